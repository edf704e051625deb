/*
 * Credentials for Google Cloud Storage, the first of:
 *
 *   1. GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, an HMAC key
 *   2. none, if STORAGE_EMULATOR_HOST names the server
 *   3. the file GOOGLE_APPLICATION_CREDENTIALS: a service account's key, a user's refresh token, or
 *      a token of another provider in a file, which the Security Token Service exchanges, and the
 *      IAM service once more if the file names a service account to impersonate
 *   4. application_default_credentials.json in CLOUDSDK_CONFIG, or ~/.config/gcloud
 *   5. the service account of the machine, by the metadata service at GCE_METADATA_HOST
 *
 * Files are read anew for each token. Tokens are fetched again 5 minutes before their end; if that
 * fails, the old one is used to its end. Secrets are in no message. Belongs to one thread at a
 * time.
 */
#ifndef STORE_GOOGLE_CRED_GOOGLE_H
#define STORE_GOOGLE_CRED_GOOGLE_H

#include "store/object/cred_aws.h"
#include "store/object/cred_key.h"

#include <stdint.h>

struct cred_google;
struct pawl_err;

enum google_secret_kind {
	GOOGLE_SECRET_NONE,  /* requests are not authorized */
	GOOGLE_SECRET_HMAC,  /* key.id and key.secret sign them */
	GOOGLE_SECRET_TOKEN, /* key.token goes with them */
};

struct google_secret {
	enum google_secret_kind kind; /* says what of the key is used */
	struct cred_key key;
};

/* Finds out where the credentials are to come from; asks nobody yet. PAWL_EINVAL: a variable or
 * file is wrong; err names it. PAWL_EIO: a file cannot be read; PAWL_ELIMIT: a text is too long;
 * PAWL_ENOMEM. io is copied. */
int cred_google_open(const struct object_url *url, const struct cred_io *io,
	struct cred_google **cred, struct pawl_err *err);
/* NULL is fine. */
void cred_google_close(struct cred_google *cred);
/* Gets what is valid at now_s, fetched if there is none yet or it is about to end. *secret points
 * into cred until the next call. PAWL_EINVAL: there are no credentials, or a variable or file has
 * become wrong; PAWL_EIO, PAWL_ETIMEDOUT, PAWL_ELIMIT: the source failed, or gave no usable token;
 * PAWL_ENOMEM. */
int cred_google_get(struct cred_google *cred, int64_t now_s, const struct google_secret **secret,
	struct pawl_err *err);
/* Says that the secret was refused: the next cred_google_get asks the source again. */
void cred_google_refused(struct cred_google *cred);
/* Returns the endpoint of STORAGE_EMULATOR_HOST at open; "": none. */
const char *cred_google_endpoint(const struct cred_google *cred);

#endif
