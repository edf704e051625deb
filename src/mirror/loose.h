/*
 * Loose files: what a program writes besides its units. Each is one object, whose path in the
 * bucket is that of the file. The newest version wins; nothing depends on them.
 *
 * For one thread, which waits for the network.
 */
#ifndef MIRROR_LOOSE_H
#define MIRROR_LOOSE_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;
struct store;

/* What became of a loose file. */
struct loose_sent {
	uint64_t file;       /* walk_file_number of what was read */
	uint64_t size_bytes; /* bytes shipped */
};

/* Uploads the file at path in dir_fd. PAWL_ENOENT: it has vanished. PAWL_ENOTSUP: it cannot be
 * opened, now or later. PAWL_ECANCELED: it changed
 * meanwhile; if forced, it is shipped all the same, as far as it went when it was opened. */
int loose_ship(struct store *store, int dir_fd, const char *path, bool forced,
	struct loose_sent *sent, struct pawl_err *err);
/* Lists the objects that are loose files: each is called with their paths. Nonzero ends the list,
 * and is returned. */
int loose_list(struct store *store, int (*each)(void *user, const char *path), void *user,
	struct pawl_err *err);
/* Downloads an object to the same path in dir_fd, durably, by way of the file part in work_fd, in
 * the same file system. PAWL_EEXIST: the file exists already, and stays. */
int loose_fetch(struct store *store, const char *path, int dir_fd, int work_fd,
	struct pawl_err *err);

#endif
