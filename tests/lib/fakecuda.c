/* A CUDA driver made of host memory: see fakecuda.h. Has only the functions that
 * src/ckpt/snap/cuda.c calls. */
#include "fakecuda.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT          __attribute__((visibility("default")))
#define OPS_MAX         256 /* operations queued on one stream, at most */
#define CAPTURE_RELAXED 2

enum {
	OK = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	FAILED = 700
};

struct context {
	int device;   /* ordinal */
	int retained; /* number of times the context was retained */
};

/* An event; done once its device's default stream has finished the generation recorded in it. */
struct event {
	struct context *context; /* context it was recorded in */
	unsigned generation;     /* generation of the default stream at that time */
};

struct op {
	struct event wait; /* event to wait for; without a context the operation is a copy: */
	void *dst;
	const void *src;
	size_t len_bytes;
};

struct stream {
	struct context *context; /* context it was created in */
	struct op ops[OPS_MAX];  /* operations not done yet */
	size_t n;                /* number of operations */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static struct context contexts[FAKECUDA_DEVICES] = {{.device = 0}, {.device = 1}};
static unsigned started[FAKECUDA_DEVICES]; /* per device: generations begun on the default stream */
static unsigned done[FAKECUDA_DEVICES];
static int live_objects;
static unsigned calls, fail_nth;
static int buffers;          /* page-locked buffers that exist */
static int buffers_max = -1; /* more buffers are refused; -1: no limit */

static __thread struct context *stack[8];
static __thread int depth;
static __thread int capture_mode; /* 0: calls that would break a captured graph are refused */

void fakecuda_busy(int device, bool busy)
{
	pthread_mutex_lock(&lock);
	if (busy) {
		started[device]++;
	} else {
		done[device] = started[device];
	}
	pthread_cond_broadcast(&finished);
	pthread_mutex_unlock(&lock);
}

unsigned fakecuda_fail(unsigned nth)
{
	unsigned before;

	pthread_mutex_lock(&lock);
	before = calls;
	calls = 0;
	fail_nth = nth;
	pthread_mutex_unlock(&lock);
	return before;
}

void fakecuda_most_buffers(int most)
{
	pthread_mutex_lock(&lock);
	buffers_max = most;
	pthread_mutex_unlock(&lock);
}

int fakecuda_live_objects(void)
{
	return live_objects;
}

/* Counts a call and takes the lock; leave releases it. */
static int enter(void)
{
	pthread_mutex_lock(&lock);
	return ++calls == fail_nth ? FAILED : OK;
}

static int leave(int result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

static struct context *current(void)
{
	return depth > 0 ? stack[depth - 1] : NULL;
}

int cuInit(unsigned flags);
int cuGetErrorString(int result, const char **text);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(struct context **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(struct context *context);
int cuCtxPopCurrent_v2(struct context **context);
int cuStreamCreate(struct stream **stream, unsigned flags);
int cuStreamDestroy_v2(struct stream *stream);
int cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags);
int cuStreamSynchronize(struct stream *stream);
int cuEventCreate(struct event **event, unsigned flags);
int cuEventDestroy_v2(struct event *event);
int cuEventRecord(struct event *event, struct stream *stream);
int cuMemcpyDtoHAsync_v2(void *dst, unsigned long long src, size_t len_bytes,
	struct stream *stream);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuMemHostAlloc(void **at, size_t len_bytes, unsigned flags);
int cuMemFreeHost(void *at);

int cuInit(unsigned flags)
{
	return leave(enter());
}

int cuGetErrorString(int result, const char **text)
{
	*text = result == FAILED ? "made to fail" : "misused";
	return OK;
}

int cuDeviceGet(int *device, int ordinal)
{
	int rv = enter();

	*device = ordinal;
	return leave(rv == OK && ordinal >= FAKECUDA_DEVICES ? INVALID_DEVICE : rv);
}

int cuDevicePrimaryCtxRetain(struct context **context, int device)
{
	int rv = enter();

	if (rv == OK) {
		*context = &contexts[device];
		contexts[device].retained++;
		live_objects++;
	}
	return leave(rv);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	int rv = enter();

	live_objects--;
	contexts[device].retained--;
	return leave(rv);
}

int cuCtxPushCurrent_v2(struct context *context)
{
	int rv = enter();

	if (rv == OK && context->retained == 0) {
		rv = INVALID_CONTEXT;
	}
	if (rv == OK) {
		stack[depth++] = context;
	}
	return leave(rv);
}

int cuCtxPopCurrent_v2(struct context **context)
{
	if (depth == 0) {
		return INVALID_CONTEXT;
	}
	*context = stack[--depth];
	return OK;
}

int cuStreamCreate(struct stream **stream, unsigned flags)
{
	int rv = enter();

	if (rv == OK && (current() == NULL || flags != 1)) {
		/* A stream that waits for the default one would stall training. */
		rv = INVALID_CONTEXT;
	}
	if (rv == OK) {
		*stream = calloc(1, sizeof(**stream));
		(*stream)->context = current();
		live_objects++;
	}
	return leave(rv);
}

int cuStreamDestroy_v2(struct stream *stream)
{
	int rv = enter();

	live_objects--;
	free(stream);
	return leave(rv);
}

static int queue_op(struct stream *stream, struct op op)
{
	if (stream->context != current()) {
		return INVALID_CONTEXT;
	}
	if (stream->n == OPS_MAX) {
		return INVALID_VALUE;
	}
	stream->ops[stream->n++] = op;
	return OK;
}

int cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags)
{
	int rv = enter();

	return leave(rv == OK ? queue_op(stream, (struct op){.wait = *event}) : rv);
}

int cuMemcpyDtoHAsync_v2(void *dst, unsigned long long src, size_t len_bytes, struct stream *stream)
{
	struct op op = {.dst = dst, .src = (const void *)(size_t)src, .len_bytes = len_bytes};
	int rv = enter();

	return leave(rv == OK ? queue_op(stream, op) : rv);
}

int cuStreamSynchronize(struct stream *stream)
{
	int rv = enter();

	while (rv == OK && stream->n > 0) {
		struct op op = stream->ops[0];

		if (op.wait.context != NULL && done[op.wait.context->device] < op.wait.generation) {
			pthread_cond_wait(&finished, &lock);
			continue;
		}
		if (op.wait.context == NULL) {
			memcpy(op.dst, op.src, op.len_bytes);
		}
		memmove(stream->ops, stream->ops + 1, --stream->n * sizeof(op));
	}
	return leave(rv);
}

int cuEventCreate(struct event **event, unsigned flags)
{
	int rv = enter();

	if (rv == OK && current() == NULL) {
		rv = INVALID_CONTEXT;
	}
	if (rv == OK) {
		*event = calloc(1, sizeof(**event));
		live_objects++;
	}
	return leave(rv);
}

int cuEventDestroy_v2(struct event *event)
{
	int rv = enter();

	live_objects--;
	free(event);
	return leave(rv);
}

int cuEventRecord(struct event *event, struct stream *stream)
{
	int rv = enter();

	if (rv == OK && (current() == NULL || stream != NULL)) {
		rv = INVALID_VALUE;
	}
	if (rv == OK) {
		*event = (struct event){current(), started[current()->device]};
	}
	return leave(rv);
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = capture_mode;

	capture_mode = *mode;
	*mode = before;
	return OK;
}

int cuMemHostAlloc(void **at, size_t len_bytes, unsigned flags)
{
	int rv = enter();

	if (rv == OK && (current() == NULL || capture_mode != CAPTURE_RELAXED)) {
		rv = INVALID_CONTEXT;
	}
	if (rv == OK && buffers == buffers_max) {
		rv = OUT_OF_MEMORY;
	}
	if (rv == OK) {
		*at = malloc(len_bytes);
		live_objects++;
		buffers++;
	}
	return leave(rv);
}

int cuMemFreeHost(void *at)
{
	int rv = enter();

	if (current() == NULL) {
		return leave(INVALID_CONTEXT);
	}
	live_objects--;
	buffers--;
	free(at);
	return leave(rv);
}
