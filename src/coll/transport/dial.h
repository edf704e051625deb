/* Connects to a listening process, and sends and receives bytes, each by a deadline. */
#ifndef COLL_TRANSPORT_DIAL_H
#define COLL_TRANSPORT_DIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct addrinfo;

/* Connects by end_ns (monotonic). Returns a non-blocking socket, which the caller closes; -1: errno
 * has the reason. */
int dial_connect(const struct addrinfo *at, int64_t end_ns);
/* Send or receive all bytes by end_ns. False: errno has the reason; ETIMEDOUT: not in time,
 * ECONNRESET: the other end has closed the connection. */
bool dial_send(int fd, const void *bytes, size_t len_bytes, int64_t end_ns);
bool dial_receive(int fd, void *bytes, size_t len_bytes, int64_t end_ns);

#endif
