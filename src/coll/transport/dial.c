/* See dial.h for the contract. */
#include "coll/transport/dial.h"

#include "base/clock.h"
#include "base/fault.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Waits until a socket is ready for events. Returns false at the deadline. */
static bool await(int fd, short events, int64_t end_ns)
{
	struct pollfd poll_fd = {.fd = fd, .events = events};
	int64_t left_ms = (end_ns - clock_mono_ns()) / NS_PER_MS;

	return left_ms > 0 && poll(&poll_fd, 1, left_ms < INT32_MAX ? (int)left_ms : INT32_MAX) > 0;
}

int dial_connect(const struct addrinfo *at, int64_t end_ns)
{
	int fd = FAULT_SYS("coll.dial",
		socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int sys = 0;
	socklen_t len = sizeof(sys);

	if (fd < 0) {
		return -1;
	}
	if (connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
		sys = errno;
	} else if (!await(fd, POLLOUT, end_ns)) {
		sys = ETIMEDOUT;
	} else {
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &len);
	}
	if (sys == 0) {
		return fd;
	}
	close(fd);
	errno = sys;
	return -1;
}

bool dial_send(int fd, const void *bytes, size_t len_bytes, int64_t end_ns)
{
	const uint8_t *from = bytes;

	while (len_bytes > 0) {
		ssize_t n = send(fd, from, len_bytes, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN) {
			return false;
		}
		from += n > 0 ? n : 0;
		len_bytes -= n > 0 ? (size_t)n : 0;
		if (n < 0 && !await(fd, POLLOUT, end_ns)) {
			errno = ETIMEDOUT;
			return false;
		}
	}
	return true;
}

bool dial_receive(int fd, void *bytes, size_t len_bytes, int64_t end_ns)
{
	uint8_t *to = bytes;

	while (len_bytes > 0) {
		ssize_t n = recv(fd, to, len_bytes, 0);

		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			errno = n == 0 ? ECONNRESET : errno;
			return false;
		}
		to += n > 0 ? n : 0;
		len_bytes -= n > 0 ? (size_t)n : 0;
		if (n < 0 && !await(fd, POLLIN, end_ns)) {
			errno = ETIMEDOUT;
			return false;
		}
	}
	return true;
}
