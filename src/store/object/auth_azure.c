/* Requests to Azure's storage, signed with its credentials: see auth.h. */
#include "store/object/auth.h"

#include "base/err.h"
#include "base/fault.h"
#include "io/http_request.h"
#include "store/object/cred_azure.h"
#include "store/object/cred_sources.h"

#include <stdio.h>
#include <stdlib.h>

struct auth_azure {
	struct object_auth auth;       /* first: what callers hold */
	char account[OBJECT_NAME_MAX]; /* account of the address */
	struct cred_azure *cred;       /* owned */
};

static struct auth_azure *azure_of(struct object_auth *auth)
{
	return (struct auth_azure *)auth;
}

static void close_azure(struct object_auth *auth)
{
	cred_azure_close(azure_of(auth)->cred);
	free(auth);
}

static int sign(struct object_auth *auth, struct http_request *request, const char *region,
	uint64_t body_bytes, int64_t now_s, struct pawl_err *err)
{
	const struct cred_secret *secret;
	int rv = cred_azure_get(azure_of(auth)->cred, now_s, &secret, err);

	if (rv != 0) {
		return rv;
	}
	if (secret->kind == CRED_TOKEN) {
		rv = cred_check_private(request, err);
		if (rv == 0) {
			sign_azure_token(request, secret->token.token, now_s);
		}
	} else if (secret->kind == CRED_SAS) {
		sign_azure_sas(request, secret->sas);
	} else {
		const struct sign_azure_key key = {azure_of(auth)->account, secret->bytes,
			secret->bytes_n};

		sign_azure(request, &key, body_bytes, now_s);
	}
	if (rv == 0 && request->full) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "a signed request is too long");
	}
	return rv;
}

static void refused(struct object_auth *auth)
{
	cred_azure_refused(azure_of(auth)->cred);
}

/* Azure's addresses have no region. */
static const char *region_of(const struct object_auth *auth)
{
	return "";
}

static const char *endpoint_of(const struct object_auth *auth)
{
	return cred_azure_endpoint(((const struct auth_azure *)auth)->cred);
}

static const struct object_auth_ops azure_ops = {
	.close = close_azure,
	.sign = sign,
	.refused = refused,
	.region = region_of,
	.endpoint = endpoint_of,
};

int auth_azure_open(const struct object_url *url, const struct cred_io *io,
	struct object_auth **auth, struct pawl_err *err)
{
	struct auth_azure *made = FAULT_MEM("auth.open", calloc(1, sizeof(*made)));
	int rv;

	if (made == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for credentials");
	}
	made->auth.ops = &azure_ops;
	snprintf(made->account, sizeof(made->account), "%s", url->account);
	rv = cred_azure_open(url, io, &made->cred, err);
	if (rv != 0) {
		free(made);
		return rv;
	}
	*auth = &made->auth;
	return 0;
}
