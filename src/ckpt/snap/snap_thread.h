/* Starts a thread of the engine: named, with the program's signals blocked, and SCHED_BATCH, so
 * that waking it does not take the CPU from the thread that wakes it where no core is free. */
#ifndef CKPT_SNAP_SNAP_THREAD_H
#define CKPT_SNAP_SNAP_THREAD_H

#include <pthread.h>

struct pawl_err;

/* Starts the thread. name: at most 15 bytes. The caller joins it. PAWL_EIO. */
int snap_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *user,
	struct pawl_err *err);

#endif
