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
	const char *external_id; /* what the role's owner asks for */
	const char *duration_s;  /* how long the key is to live, a number */
};

/* Returns a variable of the environment; NULL if it is not set, or empty. */
const char *cred_env(const struct cred_io *io, const char *name);
/* Returns whether a variable is "true", in any case. */
bool cred_env_is_true(const struct cred_io *io, const char *name);
/* Writes a path with ~/ made the home directory; false: there is none, or it is too long. */
bool cred_home_path(const struct cred_io *io, const char *path, char *out, size_t size_bytes);

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
