/* A listening socket in a loop: see listener.h. */
#include "io/listener.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/times.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static void schedule_retry(struct listener *l)
{
	loop_timer_start(l->loop, &l->retry_timer, clock_mono_ns() + times_ns(TIME_LISTEN_AGAIN));
}

static void on_retry(struct loop_timer *timer)
{
	struct listener *l = timer->user;

	if (loop_add(l->loop, &l->source, EPOLLIN, NULL) != 0) {
		schedule_retry(l);
	}
}

static void pause_accept(struct listener *l)
{
	if (!l->accept_failing) {
		log_line(LOG_WARNING, "cannot accept %s, trying again: %s", l->what,
			strerror(errno));
	}
	l->accept_failing = true;
	loop_remove(l->loop, &l->source);
	schedule_retry(l);
}

static void on_connect(struct loop_source *source, uint32_t events)
{
	struct listener *l = source->user;
	struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
	socklen_t len = sizeof(from);
	int fd = FAULT_SYS("listener.accept",
		accept4(source->fd, (struct sockaddr *)&from, &len,
			SOCK_CLOEXEC | (l->blocking ? 0 : SOCK_NONBLOCK)));

	ASSERT(!l->retry_timer.active); /* the socket is not watched while it rests */
	if (fd >= 0) {
		l->accept_failing = false;
		l->accepted(l, fd, (struct sockaddr *)&from, len);
	} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
		pause_accept(l);
	} /* Otherwise the peer has already gone. */
}

int listener_start(struct listener *l, struct loop *loop, int fd, struct pawl_err *err)
{
	int rv;

	ASSERT(l->loop == NULL);
	l->source = (struct loop_source){.fd = fd, .ready = on_connect, .user = l};
	l->retry_timer = (struct loop_timer){.fired = on_retry, .user = l};
	rv = loop_add(loop, &l->source, EPOLLIN, err);
	l->loop = rv == 0 ? loop : NULL;
	return rv;
}

void listener_stop(struct listener *l)
{
	if (!l->loop) {
		return;
	}
	if (l->retry_timer.active) {
		loop_timer_cancel(l->loop, &l->retry_timer);
	} else {
		loop_remove(l->loop, &l->source);
	}
	close(l->source.fd);
	l->loop = NULL;
}
