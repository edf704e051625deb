/* Connects to a process that listens, and moves bytes over the connection, by a deadline. */
#ifndef COLL_TRANSPORT_DIAL_H
#define COLL_TRANSPORT_DIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct addrinfo;

/* Connects by end_ns (monotonic). Returns a socket that does not block, which the caller closes;
 * -1: errno says why not. */
int dial_connect(const struct addrinfo *at, int64_t end_ns);
/* Send or receive all bytes by end_ns. False: errno says why not; ETIMEDOUT: not in time,
 * ECONNRESET: the other end has closed. */
bool dial_send(int fd, const void *bytes, size_t len_bytes, int64_t end_ns);
bool dial_receive(int fd, void *bytes, size_t len_bytes, int64_t end_ns);

#endif
