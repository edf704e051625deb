/*
 * A single-threaded event loop over epoll: descriptors, timers, and a way for other threads to
 * wake it. Only loop_wake may be called from another thread. A callback may add, change or remove
 * any source, itself included.
 */
#ifndef IO_LOOP_H
#define IO_LOOP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct pawl_err;
struct loop;

/* A watched descriptor, in the caller's memory from loop_add to loop_remove. Remove it before fd is
 * closed. */
struct loop_source {
	int fd; /* stays the caller's */
	void (*ready)(struct loop_source *source,
		uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLHUP… */
	void *user;               /* for the caller's use */
};

/* A one-shot timer, in the caller's memory until it has fired or was cancelled. */
struct loop_timer {
	int64_t due_ns;                          /* by clock_mono_ns; set by loop_timer_start */
	void (*fired)(struct loop_timer *timer); /* may start itself again */
	void *user;                              /* for the caller's use */
	struct loop_timer *next;                 /* used by the loop */
	bool active;                             /* used by the loop: waiting to fire */
};

int loop_open(struct loop **loop, struct pawl_err *err);
void loop_close(struct loop *loop); /* NULL is fine; leaves sources and timers as they are */
int loop_add(struct loop *loop, struct loop_source *source, uint32_t events, struct pawl_err *err);
int loop_change(struct loop *loop, struct loop_source *source, uint32_t events,
	struct pawl_err *err);
void loop_remove(struct loop *loop, struct loop_source *source);
/* Blocks the signals of set in the calling thread, and delivers them by source, whose fd is made
 * here. */
int loop_add_signals(struct loop *loop, struct loop_source *source, const sigset_t *set,
	struct pawl_err *err);
/* Returns the next signal that came by such a source; 0: none. */
int loop_read_signal(const struct loop_source *source);
void loop_timer_start(struct loop *loop, struct loop_timer *timer,
	int64_t due_ns); /* starting an active one moves it */
void loop_timer_cancel(struct loop *loop, struct loop_timer *timer);
/* Runs until loop_stop; not from a callback. Returns 0, or PAWL_EIO when epoll itself fails. */
int loop_run(struct loop *loop, struct pawl_err *err);
void loop_stop(struct loop *loop); /* ends the loop after the current callback */
/* Wakes the loop from any thread: the function set by loop_on_wake, if any, is called once or more
 * on the loop's thread. Async-signal-safe. */
void loop_wake(struct loop *loop);
void loop_on_wake(struct loop *loop, void (*woken)(void *user), void *user);

#endif
