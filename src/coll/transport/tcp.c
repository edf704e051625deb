/*
 * A port over TCP: see tcp.h and port.h for the contracts; tcp_join.c makes the connections.
 *
 * The kernel says once when a connection has bytes or room (edge-triggered epoll). This is kept
 * until a call finds none.
 */
#include "coll/transport/tcp.h"

#include "base/clock.h"
#include "base/times.h"
#include "coll/transport/tcp_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_N 64 /* events taken at a time */

/* ---- events ---- */

static void note_event(struct tcp *tcp, const struct epoll_event *event)
{
	uint64_t count;

	tcp->seen++;
	if (event->data.u64 == TCP_WAKE) {
		(void)!read(tcp->event, &count, sizeof(count));
		return;
	}
	if ((event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
		tcp->links[event->data.u64].in = true;
	}
	if ((event->events & EPOLLOUT) != 0) {
		tcp->links[event->data.u64].out = true;
	}
}

static void take_events(struct tcp *tcp, int timeout_ms)
{
	struct epoll_event events[EVENTS_N];
	int n = epoll_wait(tcp->epoll, events, EVENTS_N, timeout_ms);

	for (int i = 0; i < n; i++) {
		note_event(tcp, &events[i]);
	}
}

int coll_tcp_events(struct coll_port *port)
{
	return tcp_of(port)->epoll;
}

static uint32_t look(struct coll_port *port)
{
	struct tcp *tcp = tcp_of(port);

	take_events(tcp, 0);
	return tcp->seen;
}

static void wait(struct coll_port *port, uint32_t seen, int64_t timeout_ns)
{
	struct tcp *tcp = tcp_of(port);
	int64_t timeout_ms = (timeout_ns + NS_PER_MS - 1) / NS_PER_MS;

	if (tcp->seen == seen) {
		take_events(tcp, timeout_ms < INT32_MAX ? (int)timeout_ms : INT32_MAX);
	}
}

static void wake(struct coll_port *port)
{
	eventfd_write(tcp_of(port)->event, 1);
}

/* ---- bytes ---- */

static void end_link(struct tcp_link *link, bool broken)
{
	link->ended = true;
	link->broken = broken;
	link->in = link->out = false;
}

static size_t tcp_send(struct coll_port *port, uint32_t peer, uint32_t stream, const void *bytes,
	size_t len_bytes)
{
	struct tcp_link *link = tcp_link(tcp_of(port), peer, stream);
	ssize_t n;

	if (!link->out || len_bytes == 0) {
		return 0;
	}
	n = send(link->fd, bytes, len_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n >= 0) {
		return (size_t)n;
	}
	link->out = false;
	if (errno != EAGAIN && errno != EINTR) {
		link->broken = true; /* bytes that have come may still be read */
	}
	return 0;
}

static size_t tcp_receive(struct coll_port *port, uint32_t peer, uint32_t stream, void *bytes,
	size_t len_bytes)
{
	struct tcp_link *link = tcp_link(tcp_of(port), peer, stream);
	ssize_t n;

	if (!link->in || len_bytes == 0) {
		return 0;
	}
	n = recv(link->fd, bytes, len_bytes, MSG_DONTWAIT);
	if (n > 0) {
		return (size_t)n;
	}
	link->in = false;
	if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		end_link(link, n < 0);
	}
	return 0;
}

/* Returns why a peer is lost. Connections overtake each other: the end of the talk is what comes
 * after a peer's last words. */
static const char *lost(struct coll_port *port, uint32_t peer)
{
	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		if (tcp_link(tcp_of(port), peer, s)->broken) {
			return "its connection broke";
		}
	}
	return tcp_link(tcp_of(port), peer, COLL_TALK)->ended ? "its connection was closed" : NULL;
}

/* ---- the end ---- */

/* Reads and forgets what comes until the peer closes, too: bytes that were never read would make
 * the kernel throw away those that we have just sent. Returns whether the peer has closed. */
static bool drain(struct tcp_link *link)
{
	char bytes[4096];
	ssize_t n;

	while (link->fd >= 0 && !link->ended) {
		n = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			link->ended = true;
		} else if (n < 0) {
			return false;
		}
	}
	return true;
}

static void say_goodbye(struct tcp *tcp)
{
	uint32_t n = tcp->ranks * COLL_STREAMS;
	int64_t end_ns = clock_mono_ns() + times_ns(TIME_TCP_GOODBYE);
	bool all = false;

	for (uint32_t i = 0; i < n; i++) {
		if (tcp->links[i].fd >= 0) {
			shutdown(tcp->links[i].fd, SHUT_WR);
		}
	}
	while (!all && clock_mono_ns() < end_ns) {
		all = true;
		for (uint32_t i = 0; i < n; i++) {
			all &= drain(&tcp->links[i]);
		}
		if (!all) {
			poll(NULL, 0, 1);
		}
	}
}

static void tcp_close(struct coll_port *port)
{
	struct tcp *tcp = tcp_of(port);
	const int others[] = {tcp->listener, tcp->epoll, tcp->event};

	if (tcp->links) {
		say_goodbye(tcp);
		for (uint32_t i = 0; i < tcp->ranks * COLL_STREAMS; i++) {
			if (tcp->links[i].fd >= 0) {
				close(tcp->links[i].fd);
			}
		}
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		if (others[i] >= 0) {
			close(others[i]);
		}
	}
	free(tcp->links);
	free(tcp);
}

const struct coll_port tcp_port = {tcp_send, tcp_receive, look, wait, wake, lost, tcp_close};
