/* A connection to a process that waits for one, and bytes over it, all of them in time. */
#ifndef COLL_DIAL_H
#define COLL_DIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct addrinfo;

/* A socket that blocks nobody, and is the caller's; -1: errno says why not. */
int dial_connect(const struct addrinfo *at, int64_t end_ns);
/* All of it, or false with errno; ETIMEDOUT: not in time, ECONNRESET: the other end has closed. */
bool dial_send(int fd, const void *bytes, size_t len_bytes, int64_t end_ns);
bool dial_receive(int fd, void *bytes, size_t len_bytes, int64_t end_ns);

#endif
