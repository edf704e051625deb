/* What authorizes requests to Azure's storage: a signature by the account's key, a shared access
 * signature (SAS), a token. Source: "Authorize with Shared Key", docs of Azure Storage. Pure; any
 * thread. */
#ifndef STORE_OBJECT_SIGN_AZURE_H
#define STORE_OBJECT_SIGN_AZURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_request;

#define SIGN_AZURE_KEY_MAX 256u /* bytes of a key; those of accounts have 64 */

struct sign_azure_key {
	const char *account;        /* name of the storage account */
	const unsigned char *bytes; /* the account's key, decoded */
	size_t bytes_n;             /* bytes of the key */
};

/* Decodes a key from base64. Returns false if it is none, or has no bytes, or too many. */
bool sign_azure_decode(const char *text, unsigned char bytes[SIGN_AZURE_KEY_MAX], size_t *bytes_n);
/*
 * Signs a request with so many bytes of body at a time in seconds since 1970: sets x-ms-date and
 * authorization. The names of its query must be in lower case. Add all other headers before.
 * Signing again replaces the old signature. A request that cannot be signed becomes full and gets
 * no signature: a part is too long, the time is beyond the year 9999, or there is no memory.
 */
void sign_azure(struct http_request *request, const struct sign_azure_key *key, uint64_t body_bytes,
	int64_t now_s);
/* Sets authorization to a token, and x-ms-date. Else as sign_azure. */
void sign_azure_token(struct http_request *request, const char *token, int64_t now_s);
/* Appends a SAS, without '?', to the query: once for each request that was built. A request in
 * which it does not fit becomes full. */
void sign_azure_sas(struct http_request *request, const char *sas);

#endif
