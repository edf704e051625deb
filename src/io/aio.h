/*
 * Asynchronous file reads and writes: io_uring where the kernel allows it, else a few threads. One
 * thread owns an aio.
 *
 * The caller owns each request, keeps it and its buffer alive from submit until reap returns it,
 * and gets each request back exactly once. Requests are neither retried nor split: a short
 * transfer is returned as it is.
 */
#ifndef IO_AIO_H
#define IO_AIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_err;
struct aio;

/* AUTO is io_uring where it can be set up, else threads; PAWL_NO_URING=1 in the environment turns
 * it into THREADS. */
enum aio_kind { AIO_AUTO, AIO_URING, AIO_THREADS };

struct aio_req {
	void *buf;            /* the caller's */
	size_t len_bytes;     /* length of buf */
	uint64_t off_bytes;   /* offset in the file */
	int fd;               /* the caller's, open until the request is reaped */
	bool write;           /* true: write, false: read */
	int64_t res;          /* when reaped: bytes moved, or negative errno */
	struct aio_req *next; /* used by the implementation while in flight */
};

#define AIO_DEPTH_MAX 256u

int aio_open(struct aio **aio, enum aio_kind kind, unsigned depth, struct pawl_err *err);
/* Waits for requests still in flight. NULL is fine. */
void aio_close(struct aio *aio);
/* Starts req. At most depth may be in flight: more is a programming error (asserted). Fails only
 * with PAWL_EIO. */
int aio_submit(struct aio *aio, struct aio_req *req, struct pawl_err *err);
/* Returns a finished request, or NULL after timeout_ms (-1: wait; 0: poll) or when none is in
 * flight. */
struct aio_req *aio_reap(struct aio *aio, int timeout_ms);
unsigned aio_in_flight(const struct aio *aio);
/* Returns "io_uring" or "threads". */
const char *aio_name(const struct aio *aio);

#endif
