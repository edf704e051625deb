/*
 * The event loop: see loop.h.
 *
 * A turn fires the timers that are due, waits for descriptors until the next timer is due, and
 * calls the sources of those that are ready. A source removed by a callback must not be called for
 * an event that was fetched with the same batch: loop_remove takes it out of the rest of the batch.
 */
#include "io/loop.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LOOP_BATCH 64u /* events fetched at a time; the rest comes with the next turn */
#define LOOP_TIMERS_PER_TURN                                                                       \
	64u /* timers fired in a turn: one that restarts itself must not starve others */

struct loop {
	int epoll_fd;
	bool stopped;              /* loop_run returns after the current callback */
	struct loop_timer *timers; /* active timers, soonest first; equal times in order of start */
	struct loop_source wake;   /* the eventfd that loop_wake writes to */
	void (*woken)(void *user); /* called after loop_wake; may be NULL */
	void *woken_user;          /* passed to woken */
	struct epoll_event batch[LOOP_BATCH];
	int batch_at; /* index of the event being handled */
	int batch_n;  /* events in batch */
};

static int control_epoll(struct loop *loop, int how, struct loop_source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return FAULT_SYS("loop.control", epoll_ctl(loop->epoll_fd, how, source->fd, &event));
}

int loop_add(struct loop *loop, struct loop_source *source, uint32_t events, struct pawl_err *err)
{
	if (control_epoll(loop, EPOLL_CTL_ADD, source, events) != 0) {
		return pawl_err_sys(err, "loop: watch descriptor %d", source->fd);
	}
	return 0;
}

int loop_change(struct loop *loop, struct loop_source *source, uint32_t events,
	struct pawl_err *err)
{
	if (control_epoll(loop, EPOLL_CTL_MOD, source, events) != 0) {
		return pawl_err_sys(err, "loop: watch descriptor %d", source->fd);
	}
	return 0;
}

int loop_add_signals(struct loop *loop, struct loop_source *source, const sigset_t *set,
	struct pawl_err *err)
{
	pthread_sigmask(SIG_BLOCK, set, NULL);
	source->fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (source->fd < 0) {
		return pawl_err_sys(err, "receive signals");
	}
	return loop_add(loop, source, EPOLLIN, err);
}

int loop_read_signal(const struct loop_source *source)
{
	struct signalfd_siginfo info;

	return read(source->fd, &info, sizeof(info)) == (ssize_t)sizeof(info) ? (int)info.ssi_signo
									      : 0;
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
	/* fails only for a descriptor that is not watched, where nothing is left to do */
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	for (int i = loop->batch_at + 1; i < loop->batch_n; i++) {
		if (loop->batch[i].data.ptr == source) {
			loop->batch[i].data.ptr = NULL;
		}
	}
}

void loop_timer_start(struct loop *loop, struct loop_timer *timer, int64_t due_ns)
{
	struct loop_timer **at = &loop->timers;

	loop_timer_cancel(loop, timer);
	while (*at != NULL && (*at)->due_ns <= due_ns) {
		at = &(*at)->next;
	}
	timer->due_ns = due_ns;
	timer->active = true;
	timer->next = *at;
	*at = timer;
}

void loop_timer_cancel(struct loop *loop, struct loop_timer *timer)
{
	struct loop_timer **at = &loop->timers;

	if (!timer->active) {
		return;
	}
	while (*at != timer) {
		ASSERT(*at != NULL); /* the timer is active in this loop, not in another */
		at = &(*at)->next;
	}
	*at = timer->next;
	timer->active = false;
	timer->next = NULL;
}

static void fire_timers(struct loop *loop)
{
	int64_t now_ns = clock_mono_ns();

	for (unsigned i = 0; i < LOOP_TIMERS_PER_TURN && !loop->stopped; i++) {
		struct loop_timer *timer = loop->timers;

		if (timer == NULL || timer->due_ns > now_ns) {
			return;
		}
		ASSERT(timer->active); /* nobody has overwritten a timer that waits */
		loop_timer_cancel(loop, timer);
		timer->fired(timer);
	}
}

/* Returns how long epoll may wait: -1 without timers. Rounded up, or the last millisecond would
 * spin. */
static int wait_ms(const struct loop *loop)
{
	int64_t left_ns;

	if (loop->timers == NULL) {
		return -1;
	}
	left_ns = loop->timers->due_ns - clock_mono_ns();
	if (left_ns <= 0) {
		return 0;
	}
	if (left_ns / NS_PER_MS >= INT_MAX) {
		return INT_MAX;
	}
	return (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static void call_sources(struct loop *loop)
{
	for (loop->batch_at = 0; loop->batch_at < loop->batch_n; loop->batch_at++) {
		const struct epoll_event *event = &loop->batch[loop->batch_at];
		struct loop_source *source = event->data.ptr;

		if (source != NULL && !loop->stopped) {
			source->ready(source, event->events);
		}
	}
	loop->batch_n = 0;
}

int loop_run(struct loop *loop, struct pawl_err *err)
{
	int rv = 0;

	ASSERT(loop->batch_n == 0); /* not from a callback */
	while (rv == 0 && !loop->stopped) {
		int n;

		fire_timers(loop);
		if (loop->stopped) {
			break;
		}
		n = FAULT_SYS("loop.wait",
			epoll_wait(loop->epoll_fd, loop->batch, LOOP_BATCH, wait_ms(loop)));
		if (n < 0 && errno != EINTR) {
			rv = pawl_err_sys(err, "loop: wait");
		}
		loop->batch_n = n > 0 ? n : 0;
		call_sources(loop);
	}
	loop->stopped = false;
	return rv;
}

void loop_stop(struct loop *loop)
{
	loop->stopped = true;
}

void loop_wake(struct loop *loop)
{
	uint64_t one = 1;
	int saved = errno; /* a signal handler must preserve errno */

	/* fails only when the counter is full, and then the loop wakes up anyway */
	if (write(loop->wake.fd, &one, sizeof(one)) < 0) {
		errno = saved;
	}
	errno = saved;
}

static void take_wake(struct loop_source *source, uint32_t events)
{
	struct loop *loop = source->user;
	uint64_t count;

	if (read(source->fd, &count, sizeof(count)) > 0 && loop->woken != NULL) {
		loop->woken(loop->woken_user);
	}
}

void loop_on_wake(struct loop *loop, void (*woken)(void *user), void *user)
{
	loop->woken = woken;
	loop->woken_user = user;
}

int loop_open(struct loop **loop, struct pawl_err *err)
{
	struct loop *l = FAULT_MEM("loop.alloc", calloc(1, sizeof(*l)));
	int rv;

	if (l == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "loop: out of memory");
	}
	l->epoll_fd = FAULT_SYS("loop.epoll", epoll_create1(EPOLL_CLOEXEC));
	if (l->epoll_fd < 0) {
		rv = pawl_err_sys(err, "loop: epoll");
		goto free_loop;
	}
	l->wake.ready = take_wake;
	l->wake.user = l;
	l->wake.fd = FAULT_SYS("loop.eventfd", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (l->wake.fd < 0) {
		rv = pawl_err_sys(err, "loop: eventfd");
		goto close_epoll;
	}
	rv = loop_add(l, &l->wake, EPOLLIN, err);
	if (rv != 0) {
		goto close_wake;
	}
	*loop = l;
	return 0;
close_wake:
	close(l->wake.fd);
close_epoll:
	close(l->epoll_fd);
free_loop:
	free(l);
	return rv;
}

void loop_close(struct loop *loop)
{
	if (loop == NULL) {
		return;
	}
	ASSERT(loop->batch_n == 0); /* not from a callback */
	close(loop->wake.fd);
	close(loop->epoll_fd);
	free(loop);
}
