/* Requests to Google Cloud Storage, authorized with its credentials: see auth.h. */
#include "store/object/auth.h"

#include "base/err.h"
#include "base/fault.h"
#include "io/http_request.h"
#include "store/google/cred_google.h"
#include "store/object/cred_sources.h"

#include <stdlib.h>

struct auth_google {
	struct object_auth auth;  /* first: what callers hold */
	struct cred_google *cred; /* owned */
};

static struct auth_google *google_of(struct object_auth *auth)
{
	return (struct auth_google *)auth;
}

static void close_google(struct object_auth *auth)
{
	cred_google_close(google_of(auth)->cred);
	free(auth);
}

static int sign(struct object_auth *auth, struct http_request *request, const char *region,
	uint64_t body_bytes, int64_t now_s, struct pawl_err *err)
{
	const struct google_secret *secret;
	int rv = cred_google_get(google_of(auth)->cred, now_s, &secret, err);

	if (rv != 0) {
		return rv;
	}
	if (secret->kind == GOOGLE_SECRET_HMAC) {
		const struct sign_aws_key key = {secret->key.id, secret->key.secret, ""};

		sign_google(request, &key, region, now_s);
	} else if (secret->kind == GOOGLE_SECRET_TOKEN) {
		rv = cred_check_private(request, err);
		request_drop_header(request, "authorization");
		if (rv == 0) {
			request_add_header(request, "authorization", "Bearer %s",
				secret->key.token);
		}
	}
	if (rv == 0 && request->full) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "a signed request is too long");
	}
	return rv;
}

static void refused(struct object_auth *auth)
{
	cred_google_refused(google_of(auth)->cred);
}

/* Signatures may have any region. */
static const char *region_of(const struct object_auth *auth)
{
	return "";
}

static const char *endpoint_of(const struct object_auth *auth)
{
	return cred_google_endpoint(((const struct auth_google *)auth)->cred);
}

static const struct object_auth_ops google_ops = {
	.close = close_google,
	.sign = sign,
	.refused = refused,
	.region = region_of,
	.endpoint = endpoint_of,
};

int auth_google_open(const struct object_url *url, const struct cred_io *io,
	struct object_auth **auth, struct pawl_err *err)
{
	struct auth_google *made = FAULT_MEM("auth.open", calloc(1, sizeof(*made)));
	int rv;

	if (made == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for credentials");
	}
	made->auth.ops = &google_ops;
	rv = cred_google_open(url, io, &made->cred, err);
	if (rv != 0) {
		free(made);
		return rv;
	}
	*auth = &made->auth;
	return 0;
}
