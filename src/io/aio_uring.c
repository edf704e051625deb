/* Transfers by io_uring: one ring, one submission per call: see aio.h.
 *
 * A submission that the kernel refuses stays in the ring's queue; it is turned into a no-op there,
 * so that a request reported as not taken is never carried out by a later submission. */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "io/aio_impl.h"

#include <liburing.h>
#include <stddef.h>
#include <stdlib.h>

#define TRANSFER_MAX (1u << 30) /* bytes of one submission, whose length has 32 bits */

struct aio_uring {
	struct aio aio;       /* first: what callers hold */
	struct io_uring ring; /* liburing's */
};

_Static_assert(offsetof(struct aio_uring, aio) == 0, "uring_of converts the pointer");

static struct aio_uring *uring_of(struct aio *aio)
{
	return (struct aio_uring *)aio;
}

static void uring_close(struct aio *aio)
{
	io_uring_queue_exit(&uring_of(aio)->ring);
	free(uring_of(aio));
}

static void prepare_sqe(struct io_uring_sqe *sqe, struct aio_req *req)
{
	unsigned n = req->len_bytes < TRANSFER_MAX ? (unsigned)req->len_bytes : TRANSFER_MAX;

	if (req->write) {
		io_uring_prep_write(sqe, req->fd, req->buf, n, req->off_bytes);
	} else {
		io_uring_prep_read(sqe, req->fd, req->buf, n, req->off_bytes);
	}
	io_uring_sqe_set_data(sqe, req);
}

/* Submits like a system call: returns -1 and errno on failure. */
static int enter_ring(struct io_uring *ring)
{
	int n = io_uring_submit(ring);

	if (n >= 0) {
		return n;
	}
	errno = -n;
	return -1;
}

static int uring_submit(struct aio *aio, struct aio_req *req, struct pawl_err *err)
{
	struct io_uring *ring = &uring_of(aio)->ring;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	int n;

	if (sqe == NULL) { /* the queue is full of refused submissions */
		return pawl_err_set(err, PAWL_EIO, "io_uring: submit: the kernel takes nothing");
	}
	prepare_sqe(sqe, req);
	do {
		n = FAULT_SYS("aio.submit", enter_ring(ring));
	} while ((n < 0 && errno == EINTR) || (n > 0 && io_uring_sq_ready(ring) > 0));
	if (n > 0) {
		return 0;
	}
	errno = n == 0 ? EAGAIN : errno;
	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data(sqe, NULL);
	return pawl_err_sys(err, "io_uring: submit");
}

/* Waits for a completion, for ever if wait_ns is negative. Returns 0, or a negative errno. */
static int wait_cqe(struct io_uring *ring, int64_t wait_ns, struct io_uring_cqe **cqe)
{
	struct __kernel_timespec ts = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};

	if (wait_ns < 0) {
		return io_uring_wait_cqe(ring, cqe);
	}
	if (wait_ns == 0) {
		return io_uring_peek_cqe(ring, cqe);
	}
	return io_uring_wait_cqe_timeout(ring, cqe, &ts);
}

/* Returns the rest of a timeout, in the form that wait_cqe takes. */
static int64_t left_ns(int timeout_ms, int64_t due_ns)
{
	int64_t left;

	if (timeout_ms <= 0) {
		return timeout_ms;
	}
	left = due_ns - clock_mono_ns();
	return left > 0 ? left : 0;
}

static struct aio_req *uring_reap(struct aio *aio, int timeout_ms)
{
	struct io_uring *ring = &uring_of(aio)->ring;
	int64_t due_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;

	for (;;) {
		struct io_uring_cqe *cqe;
		struct aio_req *req;
		int rc = wait_cqe(ring, left_ns(timeout_ms, due_ns), &cqe);

		if (rc == -EINTR) {
			continue;
		}
		if (rc != 0) {
			ASSERT((rc == -ETIME || rc == -EAGAIN) && timeout_ms >= 0);
			return NULL;
		}
		req = io_uring_cqe_get_data(cqe);
		if (req != NULL) {
			req->res = cqe->res;
		}
		io_uring_cqe_seen(ring, cqe);
		if (req != NULL) {
			return req;
		}
	}
}

static const struct aio_ops uring_ops = {
	.name = "io_uring",
	.close = uring_close,
	.submit = uring_submit,
	.reap = uring_reap,
};

/* Sets up the ring like a system call: returns -1 and errno on failure. */
static int init_ring(struct io_uring *ring, unsigned depth)
{
	int rc = io_uring_queue_init(depth, ring, 0);

	if (rc == 0) {
		return 0;
	}
	errno = -rc;
	return -1;
}

int aio_uring_open(struct aio **aio, unsigned depth, struct pawl_err *err)
{
	struct aio_uring *u = FAULT_MEM("aio.alloc", calloc(1, sizeof(*u)));

	if (u == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "io_uring: out of memory");
	}
	if (FAULT_SYS("aio.uring", init_ring(&u->ring, depth)) != 0) {
		free(u);
		return pawl_err_sys(err, "io_uring: set up");
	}
	u->aio.ops = &uring_ops;
	*aio = &u->aio;
	return 0;
}
