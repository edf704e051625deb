/*
 * Credentials for Azure's storage, the first of:
 *
 *   1. AZURE_STORAGE_CONNECTION_STRING: AccountKey, else SharedAccessSignature; with BlobEndpoint,
 *      or DefaultEndpointsProtocol and EndpointSuffix
 *   2. AZURE_STORAGE_KEY, the key of an account
 *   3. AZURE_STORAGE_SAS_TOKEN, a shared access signature
 *   4. the identity of the workload, AZURE_CLIENT_ID in AZURE_TENANT_ID: AZURE_AUTHORITY_HOST
 *      exchanges the token in AZURE_FEDERATED_TOKEN_FILE for one of storage
 *   5. the identity of the machine, by its metadata service; AZURE_CLIENT_ID if it has several
 *
 * 1 to 3 are of one account, which must be the address's: so must AZURE_STORAGE_ACCOUNT be, if it
 * is set beside 2 or 3. Tokens are fetched again 5 minutes before their end; if that fails, the old
 * one is used to its end. Secrets are in no message. Belongs to one thread at a time.
 */
#ifndef STORE_OBJECT_CRED_AZURE_H
#define STORE_OBJECT_CRED_AZURE_H

#include "store/object/cred_aws.h"
#include "store/object/cred_secret.h"

#include <stdint.h>

struct cred_azure;
struct pawl_err;

/* Finds out where the credentials are to come from; asks nobody yet. PAWL_EINVAL: a variable is
 * wrong, missing, or of another account; err names it. PAWL_ELIMIT: one is too long; PAWL_ENOMEM.
 * io is copied. */
int cred_azure_open(const struct object_url *url, const struct cred_io *io,
	struct cred_azure **cred, struct pawl_err *err);
/* NULL is fine. */
void cred_azure_close(struct cred_azure *cred);
/* Gets what is valid at now_s, fetched if there is none yet or it is about to end. *secret points
 * into cred until the next call. PAWL_EINVAL: there are no credentials, or a variable has become
 * wrong; PAWL_EIO, PAWL_ETIMEDOUT, PAWL_ELIMIT: the source failed, or gave no usable token;
 * PAWL_ENOMEM. */
int cred_azure_get(struct cred_azure *cred, int64_t now_s, const struct cred_secret **secret,
	struct pawl_err *err);
/* Says that the secret was refused: the next cred_azure_get asks the source again. */
void cred_azure_refused(struct cred_azure *cred);
/* Returns the endpoint of the connection string at open, without the account's path; "": none. */
const char *cred_azure_endpoint(const struct cred_azure *cred);

#endif
