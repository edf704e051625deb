/*
 * A single-threaded event loop over epoll: descriptors, timers and one way for other threads to
 * wake it. Only loop_wake may be called from another thread. A callback may add, change or remove
 * any source, itself included.
 */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct pawl_err;
struct loop;

/* A watched descriptor. Caller's memory, from add to remove, which comes before fd's close. */
struct loop_source {
	int fd; /* stays the caller's */
	void (*ready)(struct loop_source *source,
		uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLHUP… */
	void *user;               /* the caller's */
};

/* A one-shot timer. Caller's memory, alive until it fired or was cancelled. */
struct loop_timer {
	int64_t due_ns;                          /* clock_mono_ns; set by loop_timer_start */
	void (*fired)(struct loop_timer *timer); /* may start itself again */
	void *user;                              /* the caller's */
	struct loop_timer *next;                 /* the loop's */
	bool active;                             /* the loop's: waiting to fire */
};

int loop_open(struct loop **loop, struct pawl_err *err);
void loop_close(struct loop *loop); /* NULL is fine; sources and timers are simply forgotten */
int loop_add(struct loop *loop, struct loop_source *source, uint32_t events, struct pawl_err *err);
int loop_change(struct loop *loop, struct loop_source *source, uint32_t events,
	struct pawl_err *err);
void loop_remove(struct loop *loop, struct loop_source *source);
/* Signals of set are blocked in the calling thread, and come as source, whose fd is made here. */
int loop_add_signals(struct loop *loop, struct loop_source *source, const sigset_t *set,
	struct pawl_err *err);
/* The next one that came by such a source; 0: none. */
int loop_read_signal(const struct loop_source *source);
void loop_timer_start(struct loop *loop, struct loop_timer *timer,
	int64_t due_ns); /* starting an active one moves it */
void loop_timer_cancel(struct loop *loop, struct loop_timer *timer);
/* Runs until loop_stop; not from a callback. Returns 0, or PAWL_EIO when epoll itself fails. */
int loop_run(struct loop *loop, struct pawl_err *err);
void loop_stop(struct loop *loop); /* after the current callback */
/* From any thread: woken (may be NULL) is called once or more on the loop's thread.
 * Async-signal-safe. */
void loop_wake(struct loop *loop);
void loop_on_wake(struct loop *loop, void (*woken)(void *user), void *user);

#endif
