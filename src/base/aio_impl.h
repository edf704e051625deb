/* What aio.c and its two kinds share: see aio.h for the contract. Not for others. */
#ifndef BASE_AIO_IMPL_H
#define BASE_AIO_IMPL_H

#include "base/aio.h"

/* One kind. Requests given to submit come out of reap once; aio.c does the counting. */
struct aio_ops {
	const char *name; /* for aio_name */
	/* Nothing is in flight any more. */
	void (*close)(struct aio *aio);
	/* On failure the request was not taken. */
	int (*submit)(struct aio *aio, struct aio_req *req, struct pawl_err *err);
	/* Called with at least one request in flight. */
	struct aio_req *(*reap)(struct aio *aio, int timeout_ms);
};

struct aio {
	const struct aio_ops *ops; /* the kind's */
	unsigned depth;            /* most requests in flight */
	unsigned in_flight;        /* submitted, not reaped */
};

int aio_uring_open(struct aio **aio, unsigned depth, struct pawl_err *err);
int aio_threads_open(struct aio **aio, struct pawl_err *err);

#endif
