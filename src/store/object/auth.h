/*
 * Signing of the requests to a bucket: credentials that are found and kept fresh, and the signature
 * that they make. One implementation for each kind of service. Belongs to one thread at a time.
 */
#ifndef STORE_OBJECT_AUTH_H
#define STORE_OBJECT_AUTH_H

#include <stdint.h>

struct cred_io;
struct object_auth;
struct http_request;
struct object_url;
struct pawl_err;

struct object_auth_ops {
	void (*close)(struct object_auth *auth);
	/* Signs a request that has all other headers, to be sent at now_s (seconds since 1970) with
	 * so many bytes of body. Fetches credentials if there are none yet, or they are about to
	 * end. PAWL_EINVAL: there are none; PAWL_EIO, PAWL_ETIMEDOUT: their source failed. */
	int (*sign)(struct object_auth *auth, struct http_request *request, const char *region,
		uint64_t body_bytes, int64_t now_s, struct pawl_err *err);
	/* The service has refused what was signed: the next sign asks the source again. */
	void (*refused)(struct object_auth *auth);
	/* Return what the environment or a profile says; "": nothing. */
	const char *(*region)(const struct object_auth *auth);
	const char *(*endpoint)(const struct object_auth *auth);
};

struct object_auth {
	const struct object_auth_ops *ops; /* functions of the kind, whose own fields follow */
};

/* Find out where the credentials are to come from; fetch none yet. PAWL_EINVAL: what is configured
 * cannot be used; err names it and the remedy. io is copied. */
int auth_aws_open(const struct object_url *url, const struct cred_io *io, struct object_auth **auth,
	struct pawl_err *err);
int auth_azure_open(const struct object_url *url, const struct cred_io *io,
	struct object_auth **auth, struct pawl_err *err);
int auth_google_open(const struct object_url *url, const struct cred_io *io,
	struct object_auth **auth, struct pawl_err *err);

#endif
