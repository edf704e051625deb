/*
 * Files with Google's credentials, as GOOGLE_APPLICATION_CREDENTIALS names them: JSON with a type.
 * Pure; any thread. No secret gets into a message.
 */
#ifndef STORE_GOOGLE_GOOGLE_FILE_H
#define STORE_GOOGLE_GOOGLE_FILE_H

#include "store/object/object_url.h"

struct pawl_err;

#define GOOGLE_PATH_MAX 1024u /* bytes of the path of an address, terminator included */

enum google_kind {
	GOOGLE_SERVICE, /* "service_account": a private key */
	GOOGLE_USER,    /* "authorized_user": a refresh token, of gcloud auth application-default */
	GOOGLE_EXTERNAL, /* "external_account": a token of another provider, in a file */
};

/* An address of a service that gives tokens. */
struct google_address {
	char text[OBJECT_ENDPOINT_MAX + GOOGLE_PATH_MAX]; /* as the file has it */
	char endpoint[OBJECT_ENDPOINT_MAX];               /* "https://HOST[:PORT]" */
	char path[GOOGLE_PATH_MAX];                       /* begins with '/' */
};

/* What a file says. Texts of other kinds are NULL; all lie in all. */
struct google_file {
	void *all; /* owned: the JSON */
	enum google_kind kind;
	struct google_address token; /* gives tokens */

	/* GOOGLE_SERVICE */
	const char *email;
	const char *key;    /* PEM */
	const char *key_id; /* may be NULL */

	/* GOOGLE_USER */
	const char *client_id;
	const char *client_secret;
	const char *refresh;

	/* GOOGLE_EXTERNAL */
	const char *audience;
	const char *subject_type; /* type of the token in the file */
	const char *subject;      /* path of the file with the other provider's token */
	/* Gives the token of a service account for that of the principal; text "": is not asked. */
	struct google_address impersonation;
	/* Name of the token in the JSON of that file; NULL: the file is the token. */
	const char *field;
};

/* Reads the text of a file. PAWL_EINVAL: it is none, or of a kind that cannot be used; err says
 * why, and the remedy. Close file after success. */
int google_file_read(struct google_file *file, const char *text, struct pawl_err *err);
/* Wipes and frees what was read. */
void google_file_close(struct google_file *file);
/* Reads the token of another provider from the text of its file. *token is the caller's to wipe.
 * PAWL_EIO: there is none in it; PAWL_ENOMEM. */
int google_file_subject(const struct google_file *file, const char *text, char **token,
	struct pawl_err *err);

#endif
