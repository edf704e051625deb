/*
 * Sources of credentials that must be asked: STS for a role, the endpoint of a container, the
 * metadata service of a machine, a command. Each call asks anew, and twice if no answer comes.
 * Secrets are in no message, and memory that held one is wiped. Any thread, as far as io allows.
 */
#ifndef STORE_OBJECT_CRED_SOURCES_H
#define STORE_OBJECT_CRED_SOURCES_H

#include "store/object/cred_aws.h"
#include "store/object/cred_key.h"

#define CRED_TOKEN_FILE_MAX 32768u /* bytes of a file with a token; STS takes 20000 */

/* What all sources need. */
struct cred_ask {
	const struct cred_io *io; /* the outside */
	const char *region;       /* where STS is asked; "": it has no region */
	const char *endpoint;     /* the profile's endpoint_url, or "" */
	int64_t now_s;            /* seconds since 1970 */
};

/* A role that STS is asked for. Each text but arn may be NULL or "". */
struct cred_role {
	const char *arn;         /* the role */
	const char *session;     /* name of the session that logs show; else "pawl" */
	const char *external_id; /* external id that the role's owner demands, or NULL */
	const char *duration_s;  /* how long the key is to live, a number */
};

/* Returns a variable of the environment; NULL if it is not set, or empty. */
const char *cred_env(const struct cred_io *io, const char *name);
/* Returns whether a variable is "true", in any case. */
bool cred_env_is_true(const struct cred_io *io, const char *name);
/* Writes a path with ~/ made the home directory; false: there is none, or it is too long. */
bool cred_home_path(const struct cred_io *io, const char *path, char *out, size_t size_bytes);
/* Returns whether an endpoint of http, "http://HOST[:PORT]", may be told secrets: nobody else can
 * listen in. */
bool cred_is_near(const char *endpoint);
/* Checks that nobody else can listen to a request, which is about to get a token. PAWL_EINVAL. */
int cred_check_private(const struct http_request *request, struct pawl_err *err);
/* Reads a token from a file, which may be replaced at any time: so read it each time. *token is the
 * caller's to wipe. PAWL_EIO: it cannot be read, or holds no token; PAWL_ELIMIT, PAWL_ENOMEM. */
int cred_read_token(const struct cred_io *io, const char *path, char **token, struct pawl_err *err);
/* Sends a request, and again if no answer came or the service failed. *text is the caller's to
 * wipe. PAWL_ELIMIT: the request is full; else as fetch of struct cred_io. */
int cred_send(const struct cred_io *io, const struct http_request *request, const char *body,
	int timeout_ms, int *status, char **text, struct pawl_err *err);

/* A form that a source is sent. */
struct cred_form {
	char *text;  /* owned; NULL: there is no memory */
	size_t n;    /* bytes in use */
	bool is_cut; /* something did not fit: do not send it */
};

struct cred_form cred_form_begin(void);
/* Appends a field, encoded. One without a value (NULL, "") is left out. */
void cred_form_add(struct cred_form *form, const char *name, const char *value);
/* Wipes and frees it. */
void cred_form_end(struct cred_form *form);

/*
 * Each gets a key. PAWL_EIO: the source cannot be read, says no, or gives no usable key;
 * PAWL_ETIMEDOUT; PAWL_ELIMIT: what it gives is too long; PAWL_EINVAL: a setting is wrong;
 * PAWL_ENOMEM. err names the source. key is then undefined.
 */

/* Asks STS for a role by the token in a file. */
int cred_from_web_identity(const struct cred_ask *ask, const struct cred_role *role,
	const char *token_file, struct cred_key *key, struct pawl_err *err);
/* Asks STS for a role, with another key. */
int cred_from_role(const struct cred_ask *ask, const struct cred_role *role,
	const struct cred_key *by, struct cred_key *key, struct pawl_err *err);
/* Runs a credential_process. */
int cred_from_process(const struct cred_ask *ask, const char *command, struct cred_key *key,
	struct pawl_err *err);
/* Returns whether the environment names an endpoint of the container. */
bool cred_has_container(const struct cred_io *io);
/* Asks it. PAWL_EINVAL, too: its address is refused. */
int cred_from_container(const struct cred_ask *ask, struct cred_key *key, struct pawl_err *err);
/* Asks the metadata service, version 2. PAWL_ENOENT, too: it does not answer at all, or the machine
 * has no role. */
int cred_from_machine(const struct cred_ask *ask, struct cred_key *key, struct pawl_err *err);

#endif
