/* Requests to S3, signed with Amazon's credentials: see auth.h. */
#include "store/object/auth.h"

#include "base/err.h"
#include "base/fault.h"
#include "store/object/cred_aws.h"

#include <stdlib.h>

struct auth_aws {
	struct object_auth auth; /* first: what callers hold */
	struct cred_aws *cred;   /* owned */
};

static struct auth_aws *aws_of(struct object_auth *auth)
{
	return (struct auth_aws *)auth;
}

static void close_aws(struct object_auth *auth)
{
	cred_aws_close(aws_of(auth)->cred);
	free(auth);
}

static int sign(struct object_auth *auth, struct http_request *request, const char *region,
	uint64_t body_bytes, int64_t now_s, struct pawl_err *err)
{
	struct sign_aws_key key;
	int rv = cred_aws_get(aws_of(auth)->cred, now_s, &key, err);

	if (rv != 0) {
		return rv == PAWL_ENOENT ? PAWL_EINVAL : rv; /* the object is not what is missing */
	}
	sign_aws(request, &key, region, "s3", SIGN_AWS_UNSIGNED, now_s);
	return 0;
}

static void refused(struct object_auth *auth)
{
	cred_aws_refused(aws_of(auth)->cred);
}

static const char *region_of(const struct object_auth *auth)
{
	return cred_aws_region(((const struct auth_aws *)auth)->cred);
}

static const char *endpoint_of(const struct object_auth *auth)
{
	return cred_aws_endpoint(((const struct auth_aws *)auth)->cred);
}

static const struct object_auth_ops aws_ops = {
	.close = close_aws,
	.sign = sign,
	.refused = refused,
	.region = region_of,
	.endpoint = endpoint_of,
};

int auth_aws_open(const struct object_url *url, const struct cred_io *io, struct object_auth **auth,
	struct pawl_err *err)
{
	struct auth_aws *made = FAULT_MEM("auth.open", calloc(1, sizeof(*made)));
	int rv;

	if (made == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for credentials");
	}
	made->auth.ops = &aws_ops;
	rv = cred_aws_open(url, io, &made->cred, err);
	if (rv != 0) {
		free(made);
		return rv;
	}
	*auth = &made->auth;
	return 0;
}
