/*
 * Read leases: as long as one is held, nobody has the file open for writing, and whoever wants to
 * has to wait until it is released (fcntl(2), F_SETLEASE). A thread releases a lease as soon as
 * somebody waits, so that a program is held up by milliseconds.
 *
 * Leases are there for the owner of a file, and for root, on local file systems.
 */
#ifndef MIRROR_LEASE_H
#define MIRROR_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>

struct pawl_err;
struct leases;

/* Starts the thread, and blocks the signals that leases use in the calling thread: call it before
 * other threads exist. woken: called on the lease thread after leases were broken; or NULL. */
int leases_open(struct leases **out, void (*woken)(void *user), void *user, struct pawl_err *err);
void leases_close(struct leases *leases); /* releases all; NULL is fine */

/*
 * Takes a read lease on an open file, until lease_give or close(2) of fd. If it is broken, *broken
 * becomes true before the writer can write. PAWL_EBUSY: a process has the file open for writing.
 * PAWL_ENOTSUP: there are no leases for this file, or for us. PAWL_ENOMEM. Any thread.
 */
int lease_take(struct leases *leases, int fd, atomic_bool *broken, struct pawl_err *err);
/* Releases the lease on fd, if it is held: call it before fd is closed. Any thread. */
void lease_give(struct leases *leases, int fd);

#endif
