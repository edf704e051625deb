/*
 * Copies out of the memory of CUDA devices: see cuda.h for the contract.
 *
 * The device copies into page-locked buffers of one chunk each, which are still in the cache when
 * the copy kernel reads them: so the arena need not be page-locked, which takes long and is
 * limited. A lane is such a buffer and a stream that does not wait for the default one. Each copy
 * has a lane to itself, so that the copies of several threads run at the same time and none waits
 * for another. Lanes are kept: as many as there ever were copies at one time.
 *
 * The functions of the driver (CUDA driver API) that are used here are declared here and looked up
 * by name. A device is prepared when it is first marked: its primary context (the one torch uses),
 * and an event that marks moments of the default stream.
 *
 * One lock guards devices and lanes; the driver itself may be called by all threads.
 */
#include "ckpt/snap/cuda.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/pieces.h"
#include "ckpt/snap/copy.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

typedef int cu_result; /* 0: success */
typedef int cu_device;
typedef unsigned long long cu_deviceptr;
struct cu_context; /* the driver's */
struct cu_stream;
struct cu_event;

#define CU_STREAM_NON_BLOCKING  1u /* does not wait for the default stream */
#define CU_EVENT_DISABLE_TIMING 2u
#define CU_CAPTURE_RELAXED      2 /* calls are allowed while a graph is captured */

/* name in the library, name here, parameters */
#define CUDA_CALLS(X)                                                                              \
	X(cuInit, init, (unsigned flags))                                                          \
	X(cuGetErrorString, error_string, (cu_result result, const char **text))                   \
	X(cuDeviceGet, device_get, (cu_device * device, int ordinal))                              \
	X(cuDevicePrimaryCtxRetain, context_retain,                                                \
		(struct cu_context * *context, cu_device device))                                  \
	X(cuDevicePrimaryCtxRelease_v2, context_release, (cu_device device))                       \
	X(cuCtxPushCurrent_v2, context_push, (struct cu_context * context))                        \
	X(cuCtxPopCurrent_v2, context_pop, (struct cu_context * *context))                         \
	X(cuStreamCreate, stream_create, (struct cu_stream * *stream, unsigned flags))             \
	X(cuStreamDestroy_v2, stream_destroy, (struct cu_stream * stream))                         \
	X(cuStreamWaitEvent, stream_wait,                                                          \
		(struct cu_stream * stream, struct cu_event * event, unsigned flags))              \
	X(cuEventCreate, event_create, (struct cu_event * *event, unsigned flags))                 \
	X(cuEventDestroy_v2, event_destroy, (struct cu_event * event))                             \
	X(cuEventRecord, event_record, (struct cu_event * event, struct cu_stream * stream))       \
	X(cuStreamSynchronize, stream_sync, (struct cu_stream * stream))                           \
	X(cuMemcpyDtoHAsync_v2, copy,                                                              \
		(void *dst, cu_deviceptr src, size_t len_bytes, struct cu_stream *stream))         \
	X(cuThreadExchangeStreamCaptureMode, capture_mode, (int *mode))                            \
	X(cuMemHostAlloc, host_alloc, (void **at, size_t len_bytes, unsigned flags))               \
	X(cuMemFreeHost, host_free, (void *at))

/* The resources of one copy. */
struct lane {
	void *buffer; /* page-locked, CKPT_CHUNK bytes */
	struct cu_stream *stream;
};

/* One device, prepared when it was first marked. */
struct cuda_device {
	bool ready;                         /* all fields below are set */
	cu_device device;                   /* the driver's handle */
	struct cu_context *context;         /* the primary context, retained */
	struct cu_event *mark;              /* event recorded on the default stream */
	struct lane lanes[CUDA_COPIES_MAX]; /* the first idle_n are idle */
	unsigned idle_n;                    /* number of idle lanes, at the front of lanes */
	unsigned busy_n;                    /* number of lanes in use */
	bool full;                          /* no more lanes could be made than exist */
};

struct cuda {
	void *library; /* handle from dlopen */
#define X(symbol, name, args) cu_result(*name) args;
	CUDA_CALLS(X) /* the driver's functions */
#undef X
	pthread_mutex_t lock;         /* guards all below */
	pthread_cond_t lane_returned; /* signaled when a lane of some device is returned */
	struct cuda_device
		devices[CUDA_DEVICES_MAX]; /* by ordinal; once ready, only lanes change */
};

static int fail(const struct cuda *cuda, struct pawl_err *err, int code, cu_result result,
	const char *what)
{
	const char *text = NULL;

	if (cuda->error_string(result, &text) != 0 || text == NULL) {
		text = "unknown error";
	}
	return pawl_err_set(err, code, "CUDA: %s: %s (%d)", what, text, result);
}

static int load_driver(struct cuda *cuda, struct pawl_err *err)
{
	cu_result result;

	cuda->library = FAULT_MEM("cuda.open",
		dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
	if (cuda->library == NULL) {
		return pawl_err_set(err, PAWL_ENOTSUP, "CUDA: libcuda.so.1 cannot be loaded");
	}
#define X(symbol, name, args)                                                                      \
	*(void **)&cuda->name = dlsym(cuda->library, #symbol);                                     \
	if (cuda->name == NULL) {                                                                  \
		return pawl_err_set(err, PAWL_ENOTSUP, "CUDA: the driver has no %s", #symbol);     \
	}
	CUDA_CALLS(X)
#undef X
	result = cuda->init(0);
	return result == 0 ? 0 : fail(cuda, err, PAWL_ENOTSUP, result, "start the driver");
}

static int open_driver(struct cuda **cuda, struct pawl_err *err)
{
	struct cuda *c = FAULT_MEM("cuda.alloc", calloc(1, sizeof(*c)));
	int rv;

	if (c == NULL) {
		pawl_err_set(err, PAWL_ENOMEM, "no memory to open the CUDA driver");
		return PAWL_ENOMEM;
	}
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->lane_returned, NULL);
	rv = load_driver(c, err);
	if (rv != 0) {
		cuda_close(c);
		return rv;
	}
	*cuda = c;
	return 0;
}

/* Frees a lane, complete or not. */
static void release_lane(const struct cuda *cuda, const struct lane *lane)
{
	if (lane->stream != NULL) {
		cuda->stream_destroy(lane->stream);
	}
	if (lane->buffer != NULL) {
		cuda->host_free(lane->buffer);
	}
}

/* Releases everything a device has, prepared completely or not. */
static void release_device(const struct cuda *cuda, struct cuda_device *device)
{
	struct cu_context *context;

	ASSERT(device->busy_n == 0); /* no copy is in progress */
	if (device->context == NULL) {
		return;
	}
	if (cuda->context_push(device->context) == 0) {
		while (device->idle_n > 0) {
			release_lane(cuda, &device->lanes[--device->idle_n]);
		}
		if (device->mark != NULL) {
			cuda->event_destroy(device->mark);
		}
		cuda->context_pop(&context);
	}
	cuda->context_release(device->device);
	*device = (struct cuda_device){0};
}

void cuda_close(struct cuda *cuda)
{
	if (cuda == NULL) {
		return;
	}
	for (int i = 0; i < CUDA_DEVICES_MAX; i++) {
		release_device(cuda, &cuda->devices[i]);
	}
	if (cuda->library != NULL) {
		dlclose(cuda->library);
	}
	pthread_cond_destroy(&cuda->lane_returned);
	pthread_mutex_destroy(&cuda->lock);
	free(cuda);
}

/* Prepares a device. On failure the caller releases it. */
static int prepare_device(const struct cuda *cuda, struct cuda_device *device, int ordinal)
{
	struct cu_context *context;
	cu_result result = cuda->device_get(&device->device, ordinal);

	if (result == 0) {
		result = cuda->context_retain(&device->context, device->device);
	}
	if (result != 0) {
		device->context = NULL;
		return result;
	}
	result = cuda->context_push(device->context);
	if (result != 0) {
		return result;
	}
	result = cuda->event_create(&device->mark, CU_EVENT_DISABLE_TIMING);
	cuda->context_pop(&context);
	return result;
}

static int find_device(struct cuda *cuda, int ordinal, struct pawl_err *err)
{
	struct cuda_device *device;
	cu_result result = 0;

	if (ordinal < 0 || ordinal >= CUDA_DEVICES_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "CUDA: device %d: must be 0 to %d", ordinal,
			CUDA_DEVICES_MAX - 1);
	}
	device = &cuda->devices[ordinal];
	pthread_mutex_lock(&cuda->lock);
	if (!device->ready) {
		result = prepare_device(cuda, device, ordinal);
		device->ready = result == 0;
		if (result != 0) {
			release_device(cuda, device);
		}
	}
	pthread_mutex_unlock(&cuda->lock);
	return result == 0 ? 0 : fail(cuda, err, PAWL_EINVAL, result, "prepare a device");
}

/* Marks the default stream of a device that is ready. */
static int mark_device(const struct cuda *cuda, const struct cuda_device *d, struct pawl_err *err)
{
	struct cu_context *context;
	cu_result result;

	result = cuda->context_push(d->context);
	if (result == 0) {
		result = cuda->event_record(d->mark, NULL);
		cuda->context_pop(&context);
	}
	return result == 0 ? 0 : fail(cuda, err, PAWL_EIO, result, "mark the default stream");
}

int cuda_mark(struct cuda **cuda, int device, struct pawl_err *err)
{
	int rv = *cuda == NULL ? open_driver(cuda, err) : 0;

	if (rv == 0) {
		rv = find_device(*cuda, device, err);
	}
	return rv == 0 ? mark_device(*cuda, &(*cuda)->devices[device], err) : rv;
}

/* Makes a lane. Training may be capturing a graph, which these calls would otherwise invalidate. */
static cu_result make_lane(const struct cuda *cuda, struct lane *lane)
{
	int mode = CU_CAPTURE_RELAXED;
	cu_result result;

	cuda->capture_mode(&mode);
	result = cuda->host_alloc(&lane->buffer, CKPT_CHUNK, 0);
	if (result == 0) {
		result = cuda->stream_create(&lane->stream, CU_STREAM_NON_BLOCKING);
	}
	cuda->capture_mode(&mode); /* restores the previous mode */
	if (result != 0) {
		release_lane(cuda, lane);
	}
	return result;
}

/* Waits, under lock, for a lane while there is no other way to get one. Returns whether the caller
 * must make one. */
static bool wait_for_lane(struct cuda *cuda, struct cuda_device *device, struct lane *lane)
{
	while (device->idle_n == 0 && device->busy_n > 0 &&
		(device->full || device->busy_n == CUDA_COPIES_MAX)) {
		pthread_cond_wait(&cuda->lane_returned, &cuda->lock);
	}
	ASSERT(device->busy_n + device->idle_n <= CUDA_COPIES_MAX);
	ASSERT(device->busy_n < CUDA_COPIES_MAX);
	device->busy_n++;
	if (device->idle_n == 0) {
		return true;
	}
	*lane = device->lanes[--device->idle_n];
	return false;
}

/* Takes an idle lane or makes a new one. The device's context is current. */
static int take_lane(struct cuda *cuda, struct cuda_device *device, struct lane *lane,
	struct pawl_err *err)
{
	cu_result result = 0;
	bool anew;

	do {
		*lane = (struct lane){NULL, NULL};
		pthread_mutex_lock(&cuda->lock);
		if (result != 0) { /* the lane could not be made */
			device->busy_n--;
			device->full = device->busy_n + device->idle_n > 0;
		}
		if (result != 0 && !device->full) {
			pthread_cond_broadcast(
				&cuda->lane_returned); /* wakes waiting threads: no lane is left */
			pthread_mutex_unlock(&cuda->lock);
			return fail(cuda, err, PAWL_ENOMEM, result, "page-lock a buffer");
		}
		anew = wait_for_lane(cuda, device, lane);
		pthread_mutex_unlock(&cuda->lock);
		result = anew ? make_lane(cuda, lane) : 0;
	} while (result != 0);
	return 0;
}

static void return_lane(struct cuda *cuda, struct cuda_device *device, const struct lane *lane)
{
	pthread_mutex_lock(&cuda->lock);
	ASSERT(device->busy_n > 0 && device->idle_n < CUDA_COPIES_MAX);
	device->busy_n--;
	device->lanes[device->idle_n++] = *lane;
	pthread_cond_broadcast(&cuda->lane_returned);
	pthread_mutex_unlock(&cuda->lock);
}

/* Copies through a lane. The device's context is current. */
static int copy_by_lane(struct cuda *cuda, struct cuda_device *device, void *dst, const void *src,
	size_t len_bytes, uint32_t *crc, struct pawl_err *err)
{
	cu_result result;
	struct lane lane;
	int rv = take_lane(cuda, device, &lane, err);

	if (rv != 0) {
		return rv;
	}
	result = cuda->stream_wait(lane.stream, device->mark, 0);
	if (result == 0) {
		result = cuda->copy(lane.buffer, (uintptr_t)src, len_bytes, lane.stream);
	}
	if (result == 0) {
		result = cuda->stream_sync(lane.stream);
	}
	if (result == 0) {
		*crc = copy_crc32c(copy_best(), dst, lane.buffer, len_bytes);
	} else {
		rv = fail(cuda, err, PAWL_EIO, result, "copy to the host");
	}
	return_lane(cuda, device, &lane);
	return rv;
}

int cuda_copy_crc32c(struct cuda *cuda, int device, void *dst, const void *src, size_t len_bytes,
	uint32_t *crc, struct pawl_err *err)
{
	struct cuda_device *d = &cuda->devices[device];
	struct cu_context *context;
	cu_result result;
	int rv;

	ASSERT(d->ready && len_bytes <= CKPT_CHUNK);
	result = cuda->context_push(d->context);
	if (result != 0) {
		return fail(cuda, err, PAWL_EIO, result, "use a device");
	}
	rv = copy_by_lane(cuda, d, dst, src, len_bytes, crc, err);
	cuda->context_pop(&context);
	return rv;
}
