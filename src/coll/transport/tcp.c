/*
 * A transport over TCP: see tcp.h and transport.h for the contracts. tcp_join.c makes the
 * connections.
 *
 * The kernel reports once that a connection has bytes or room (edge-triggered epoll). The link
 * keeps this as `readable` and `writable` until a call finds no bytes or no room.
 */
#include "coll/transport/tcp.h"

#include "base/clock.h"
#include "base/times.h"
#include "coll/transport/tcp_impl.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_N 64 /* events read at a time */

_Static_assert(offsetof(struct tcp, transport) == 0, "tcp_of converts pointers");

/* ---- events ---- */

static void handle_event(struct tcp *tcp, const struct epoll_event *event)
{
	uint64_t count;

	tcp->event_count++;
	if (event->data.u64 == TCP_WAKE) {
		(void)!read(tcp->event, &count, sizeof(count));
		return;
	}
	ASSERT(event->data.u64 < (uint64_t)tcp->ranks * COLL_STREAMS);
	if ((event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
		tcp->links[event->data.u64].readable = true;
	}
	if ((event->events & EPOLLOUT) != 0) {
		tcp->links[event->data.u64].writable = true;
	}
}

static void poll_events(struct tcp *tcp, int timeout_ms)
{
	struct epoll_event events[EVENTS_N];
	int n = epoll_wait(tcp->epoll, events, EVENTS_N, timeout_ms);

	for (int i = 0; i < n; i++) {
		handle_event(tcp, &events[i]);
	}
}

int coll_tcp_events(struct coll_transport *transport)
{
	return tcp_of(transport)->epoll;
}

static uint32_t tcp_poll(struct coll_transport *transport)
{
	struct tcp *tcp = tcp_of(transport);

	poll_events(tcp, 0);
	return tcp->event_count;
}

static void wait(struct coll_transport *transport, uint32_t seen, int64_t timeout_ns)
{
	struct tcp *tcp = tcp_of(transport);
	int64_t timeout_ms = (timeout_ns + NS_PER_MS - 1) / NS_PER_MS;

	if (tcp->event_count == seen) {
		poll_events(tcp, timeout_ms < INT32_MAX ? (int)timeout_ms : INT32_MAX);
	}
}

static void wake(struct coll_transport *transport)
{
	eventfd_write(tcp_of(transport)->event, 1);
}

/* ---- bytes ---- */

static void end_link(struct tcp_link *link, bool broken)
{
	link->ended = true;
	link->broken = broken;
	link->readable = link->writable = false;
}

static size_t tcp_send(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	const void *bytes, size_t len_bytes)
{
	struct tcp_link *link = tcp_link(tcp_of(transport), peer, stream);
	ssize_t n;

	if (!link->writable || len_bytes == 0) {
		return 0;
	}
	n = send(link->fd, bytes, len_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n >= 0) {
		return (size_t)n;
	}
	link->writable = false;
	if (errno != EAGAIN && errno != EINTR) {
		link->broken = true; /* bytes received before may still be read */
	}
	return 0;
}

static size_t tcp_receive(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	void *bytes, size_t len_bytes)
{
	struct tcp_link *link = tcp_link(tcp_of(transport), peer, stream);
	ssize_t n;

	if (!link->readable || len_bytes == 0) {
		return 0;
	}
	n = recv(link->fd, bytes, len_bytes, MSG_DONTWAIT);
	if (n > 0) {
		return (size_t)n;
	}
	link->readable = false;
	if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		end_link(link, n < 0);
	}
	return 0;
}

/* Returns why a peer is lost. Connections overtake each other, so a peer has left once the
 * connection of the control channel ends: it carries the peer's last message. */
static const char *lost(struct coll_transport *transport, uint32_t peer)
{
	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		if (tcp_link(tcp_of(transport), peer, s)->broken) {
			return "its connection broke";
		}
	}
	return tcp_link(tcp_of(transport), peer, COLL_CONTROL)->ended ? "its connection was closed"
								      : NULL;
}

/* ---- closing ---- */

/* Reads and discards what has arrived: if bytes were left unread, the kernel would discard those
 * that we have just sent. Returns whether the peer has closed the connection, too. */
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

static void shut_down_links(struct tcp *tcp)
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

static void tcp_close(struct coll_transport *transport)
{
	struct tcp *tcp = tcp_of(transport);
	const int others[] = {tcp->listener, tcp->epoll, tcp->event};

	if (tcp->links) {
		shut_down_links(tcp);
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

const struct coll_transport tcp_transport = {tcp_send, tcp_receive, tcp_poll, wait, wake, lost,
	tcp_close};
