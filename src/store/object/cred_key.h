/*
 * Keys as sources of credentials give them: their checks, and the answers that they come in. Pure;
 * any thread. No text of an answer gets into a message, but for the code of an error.
 */
#ifndef STORE_OBJECT_CRED_KEY_H
#define STORE_OBJECT_CRED_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;

#define CRED_ID_MAX     256u  /* bytes of an access key's id, terminator included */
#define CRED_SECRET_MAX 512u  /* bytes of its secret, terminator included */
#define CRED_TOKEN_MAX  6144u /* bytes of a session token, terminator included: it is a header */

struct cred_key {
	char id[CRED_ID_MAX];         /* access key's id */
	char secret[CRED_SECRET_MAX]; /* signs requests */
	char token[CRED_TOKEN_MAX];   /* session token; "": none */
	int64_t end_s;                /* time of expiry, seconds since 1970; 0: never */
};

/* A key as it was found. Each text may be NULL or "": it is missing. */
struct cred_given {
	const char *id;     /* access key's id */
	const char *secret; /* secret of the key */
	const char *token;  /* session token */
	const char *end;    /* time of expiry, by ISO 8601 */
};

/* Checks a key and copies it. PAWL_EIO: id or secret is missing, a text has characters that no
 * header may have, or it expired before now_s; PAWL_ELIMIT: a text is too long. */
int cred_key_set(struct cred_key *key, const struct cred_given *given, int64_t now_s,
	struct pawl_err *err);
/* Reads the JSON of a metadata service or a container's endpoint: AccessKeyId, SecretAccessKey,
 * Token and Expiration; or of a credential_process: SessionToken, and Version 1. Wipes its own
 * copies, not text. PAWL_EIO: it is no such JSON, or says that it failed; else as cred_key_set. */
int cred_key_read_json(struct cred_key *key, const char *text, bool process, int64_t now_s,
	struct pawl_err *err);
/* Reads an answer of OAuth 2, to which status belongs: sets token and end_s, and the rest to "".
 * tells: what it says about an error holds nothing secret, and is shown. PAWL_EIO: it is an error,
 * or no such JSON; PAWL_ELIMIT: the token is too long. */
int cred_key_read_oauth(struct cred_key *key, int status, const char *text, bool tells,
	int64_t now_s, struct pawl_err *err);
/* Reads an answer of Google's IAM service, accessToken and expireTime, to which status belongs:
 * sets token and end_s, and the rest to "". PAWL_EIO: it is an error, named in err, or no such
 * JSON; PAWL_ELIMIT: the token is too long. */
int cred_key_read_impersonated(struct cred_key *key, int status, const char *text, int64_t now_s,
	struct pawl_err *err);
/* Reads an answer of STS, to which status belongs. PAWL_EIO: it is an error, named in err, or no
 * such XML; else as cred_key_set. */
int cred_key_read_sts(struct cred_key *key, int status, const char *text, int64_t now_s,
	struct pawl_err *err);

/* Wipes and frees a text that may hold a secret. NULL is fine. */
void cred_wipe(char *text);
/* Returns whether a text has bytes, all of them visible ASCII: fit for a header or an address. */
bool cred_is_visible(const char *text);
/* Returns whether a text has a control character, such as a line's end. */
bool cred_has_control(const char *text);

#endif
