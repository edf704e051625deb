/* Transfers by a few threads with pread and pwrite, where io_uring is not available: see aio.h.
 *
 * One mutex guards both queues; it is held for queue operations only, never over a transfer. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "io/aio_impl.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define AIO_THREADS_N                                                                              \
	4u /* enough to keep a disk busy, few enough to leave the cores to the training */

/* A queue, first in, first out. */
struct queue {
	struct aio_req *first; /* NULL: empty */
	struct aio_req **end;  /* where the next request is linked */
};

struct aio_threads {
	struct aio aio;                   /* first: what callers hold */
	pthread_t threads[AIO_THREADS_N]; /* threads; the first threads_n run */
	unsigned threads_n;               /* number of threads started */

	pthread_mutex_t mutex;    /* guards what follows */
	pthread_cond_t todo_cond; /* todo is not empty, or stopping */
	pthread_cond_t done_cond; /* done is not empty */
	struct queue todo;        /* requests submitted, not begun */
	struct queue done;        /* requests carried out, not reaped */
	bool stopping;            /* tells the threads to end */
};

_Static_assert(offsetof(struct aio_threads, aio) == 0, "threads_of converts the pointer");

static struct aio_threads *threads_of(struct aio *aio)
{
	return (struct aio_threads *)aio;
}

static void init_queue(struct queue *q)
{
	q->first = NULL;
	q->end = &q->first;
}

static void push_req(struct queue *q, struct aio_req *req)
{
	req->next = NULL;
	*q->end = req;
	q->end = &req->next;
}

static struct aio_req *pop_req(struct queue *q)
{
	struct aio_req *req = q->first;

	if (req != NULL) {
		q->first = req->next;
		if (q->first == NULL) {
			q->end = &q->first;
		}
	}
	return req;
}

static void transfer(struct aio_req *req)
{
	off_t off = (off_t)req->off_bytes;

	do {
		req->res = req->write ? pwrite(req->fd, req->buf, req->len_bytes, off)
				      : pread(req->fd, req->buf, req->len_bytes, off);
	} while (req->res < 0 && errno == EINTR);
	if (req->res < 0) {
		req->res = -errno;
	}
}

static void *run_transfers(void *user)
{
	struct aio_threads *t = user;

	pthread_mutex_lock(&t->mutex);
	while (!t->stopping) {
		struct aio_req *req = pop_req(&t->todo);

		if (req == NULL) {
			pthread_cond_wait(&t->todo_cond, &t->mutex);
			continue;
		}
		pthread_mutex_unlock(&t->mutex);
		transfer(req);
		pthread_mutex_lock(&t->mutex);
		push_req(&t->done, req);
		pthread_cond_signal(&t->done_cond);
	}
	pthread_mutex_unlock(&t->mutex);
	return NULL;
}

static int threads_submit(struct aio *aio, struct aio_req *req, struct pawl_err *err)
{
	struct aio_threads *t = threads_of(aio);

	/* Has the fault point of io_uring, too, so that tests treat both kinds alike. */
	if (FAULT_SYS("aio.submit", 0) != 0) {
		return pawl_err_sys(err, "aio threads: submit");
	}
	pthread_mutex_lock(&t->mutex);
	push_req(&t->todo, req);
	pthread_cond_signal(&t->todo_cond);
	pthread_mutex_unlock(&t->mutex);
	return 0;
}

static struct aio_req *threads_reap(struct aio *aio, int timeout_ms)
{
	struct aio_threads *t = threads_of(aio);
	int64_t due_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
	struct aio_req *req;
	int rc = timeout_ms == 0 ? ETIMEDOUT : 0;

	pthread_mutex_lock(&t->mutex);
	while ((req = pop_req(&t->done)) == NULL && rc == 0) {
		rc = timeout_ms < 0 ? pthread_cond_wait(&t->done_cond, &t->mutex)
				    : pthread_cond_timedwait(&t->done_cond, &t->mutex, &due);
	}
	pthread_mutex_unlock(&t->mutex);
	return req;
}

static void threads_close(struct aio *aio)
{
	struct aio_threads *t = threads_of(aio);

	pthread_mutex_lock(&t->mutex);
	t->stopping = true;
	pthread_cond_broadcast(&t->todo_cond);
	pthread_mutex_unlock(&t->mutex);
	for (unsigned i = 0; i < t->threads_n; i++) {
		pthread_join(t->threads[i], NULL);
	}
	pthread_cond_destroy(&t->done_cond);
	pthread_cond_destroy(&t->todo_cond);
	pthread_mutex_destroy(&t->mutex);
	free(t);
}

static const struct aio_ops threads_ops = {
	.name = "threads",
	.close = threads_close,
	.submit = threads_submit,
	.reap = threads_reap,
};

static void init_threads(struct aio_threads *t)
{
	t->aio.ops = &threads_ops;
	pthread_mutex_init(&t->mutex, NULL);
	pthread_cond_init(&t->todo_cond, NULL);
	clock_cond_init(&t->done_cond);
	init_queue(&t->todo);
	init_queue(&t->done);
}

/* Starts the threads with all signals blocked: signals are for the program's own threads. Returns 0
 * or an errno. */
static int start_threads(struct aio_threads *t)
{
	sigset_t all;
	sigset_t old;
	int sys = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (sys == 0 && t->threads_n < AIO_THREADS_N) {
		sys = FAULT_SYS("aio.thread", 0) != 0
			? errno
			: pthread_create(&t->threads[t->threads_n], NULL, run_transfers, t);
		t->threads_n += sys == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return sys;
}

int aio_threads_open(struct aio **aio, struct pawl_err *err)
{
	struct aio_threads *t = FAULT_MEM("aio.alloc", calloc(1, sizeof(*t)));
	int sys;

	if (t == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "aio threads: out of memory");
	}
	init_threads(t);
	sys = start_threads(t);
	if (sys != 0) {
		threads_close(&t->aio);
		errno = sys;
		return pawl_err_sys(err, "aio threads: start");
	}
	*aio = &t->aio;
	return 0;
}
