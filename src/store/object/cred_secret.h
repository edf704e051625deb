/*
 * What authorizes requests to Azure's storage, as settings give it: the key of an account, a shared
 * access signature (SAS), or a connection string with one of them. Pure; any thread. No text of a
 * setting gets into a message, but for the name of an account.
 */
#ifndef STORE_OBJECT_CRED_SECRET_H
#define STORE_OBJECT_CRED_SECRET_H

#include "store/object/cred_key.h"
#include "store/object/object_url.h"
#include "store/object/sign_azure.h"

#include <stddef.h>

struct pawl_err;

#define CRED_SAS_MAX 2048u /* bytes of a SAS, terminator included */

enum cred_kind {
	CRED_KEY,
	CRED_SAS,
	CRED_TOKEN,
};

struct cred_secret {
	enum cred_kind kind;                     /* says what of the following is used */
	unsigned char bytes[SIGN_AZURE_KEY_MAX]; /* CRED_KEY: the key, decoded */
	size_t bytes_n;                          /* bytes of the key */
	char sas[CRED_SAS_MAX];                  /* CRED_SAS, without '?' */
	struct cred_key token;                   /* CRED_TOKEN: token and end_s, else zero */
};

/*
 * Each fills a zeroed secret. name: the setting, in messages. PAWL_EINVAL: the setting is wrong, or
 * of another account than that of the address; PAWL_ELIMIT: it is too long; PAWL_ENOMEM.
 */

/* Decodes a key from base64. */
int cred_secret_set_key(struct cred_secret *secret, const char *key, const char *name,
	struct pawl_err *err);
/* Copies a SAS, which may begin with '?'. */
int cred_secret_set_sas(struct cred_secret *secret, const char *sas, const char *name,
	struct pawl_err *err);
/* Reads a connection string: AccountName, AccountKey, else SharedAccessSignature. endpoint is what
 * BlobEndpoint, or EndpointSuffix and DefaultEndpointsProtocol say; "": nothing. */
int cred_secret_read_connection(struct cred_secret *secret, const char *text, const char *account,
	char endpoint[OBJECT_ENDPOINT_MAX], struct pawl_err *err);
/* Checks that a setting names the account of the address. */
int cred_secret_check_account(const char *given, const char *account, const char *name,
	struct pawl_err *err);

#endif
