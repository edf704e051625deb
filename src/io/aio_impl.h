/* Shared by aio.c and its two kinds only: see aio.h for the contract. */
#ifndef IO_AIO_IMPL_H
#define IO_AIO_IMPL_H

#include "io/aio.h"

/* One kind. Requests given to submit come out of reap once; aio.c does the counting. */
struct aio_ops {
	const char *name; /* name that aio_name returns */
	/* Closes it. Nothing is in flight any more. */
	void (*close)(struct aio *aio);
	/* Takes a request. On failure the request was not taken. */
	int (*submit)(struct aio *aio, struct aio_req *req, struct pawl_err *err);
	/* Returns a finished request. Called with at least one in flight. */
	struct aio_req *(*reap)(struct aio *aio, int timeout_ms);
};

struct aio {
	const struct aio_ops *ops; /* functions of the kind */
	unsigned depth;            /* requests in flight, at most */
	unsigned in_flight;        /* requests submitted and not reaped */
};

int aio_uring_open(struct aio **aio, unsigned depth, struct pawl_err *err);
int aio_threads_open(struct aio **aio, struct pawl_err *err);

#endif
