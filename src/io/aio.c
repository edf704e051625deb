/* Chooses how transfers are carried out, and counts them: see aio.h. */
#include "io/aio.h"

#include "base/assert.h"
#include "base/log.h"
#include "io/aio_impl.h"

#include "pawl/err.h"

#include <stdlib.h>
#include <string.h>

static bool is_uring_off(void)
{
	const char *text = getenv("PAWL_NO_URING");

	return text != NULL && strcmp(text, "1") == 0;
}

/* Opens io_uring, or threads where it fails: an old kernel, a container's seccomp profile, a limit
 * on locked memory. Threads work everywhere. */
static int open_auto(struct aio **aio, unsigned depth, struct pawl_err *err)
{
	struct pawl_err why;

	if (!is_uring_off()) {
		if (aio_uring_open(aio, depth, &why) == 0) {
			return 0;
		}
		log_line(LOG_DEBUG, "%s; using threads", why.msg);
	}
	return aio_threads_open(aio, err);
}

int aio_open(struct aio **aio, enum aio_kind kind, unsigned depth, struct pawl_err *err)
{
	int rv = PAWL_EINVAL;

	ASSERT(depth > 0 && depth <= AIO_DEPTH_MAX);
	switch (kind) {
	case AIO_URING:
		rv = aio_uring_open(aio, depth, err);
		break;
	case AIO_THREADS:
		rv = aio_threads_open(aio, err);
		break;
	case AIO_AUTO:
		rv = open_auto(aio, depth, err);
		break;
	}
	if (rv == 0) {
		(*aio)->depth = depth;
	}
	return rv;
}

void aio_close(struct aio *aio)
{
	if (aio == NULL) {
		return;
	}
	while (aio->in_flight > 0) {
		aio_reap(aio, -1);
	}
	aio->ops->close(aio);
}

int aio_submit(struct aio *aio, struct aio_req *req, struct pawl_err *err)
{
	int rv;

	ASSERT(aio->in_flight < aio->depth);
	rv = aio->ops->submit(aio, req, err);
	if (rv == 0) {
		aio->in_flight++;
	}
	return rv;
}

struct aio_req *aio_reap(struct aio *aio, int timeout_ms)
{
	struct aio_req *req = aio->in_flight > 0 ? aio->ops->reap(aio, timeout_ms) : NULL;

	if (req != NULL) {
		req->next = NULL;
		aio->in_flight--;
	}
	return req;
}

unsigned aio_in_flight(const struct aio *aio)
{
	return aio->in_flight;
}

const char *aio_name(const struct aio *aio)
{
	return aio->ops->name;
}
