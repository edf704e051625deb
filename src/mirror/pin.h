/*
 * Pins: a sealed unit, all of whose files are held open, so that its bytes stay even if the program
 * removes it, and leased, so that nobody changes them unnoticed. A pin has no names on the disk: a
 * crash of ours leaves nothing behind.
 */
#ifndef MIRROR_PIN_H
#define MIRROR_PIN_H

#include "mirror/ship.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

struct leases;
struct pawl_err;

/* A pin. The loop's thread makes and frees it; another may read it in between. */
struct pin {
	struct ship_file *files; /* open files, sorted by name; owned */
	struct stat *seen;       /* state of each file when it was pinned; owned */
	uint32_t files_n;        /* number of files */
	bool leased;             /* all files are leased: else only their times tell */
	atomic_bool broken;      /* a writer has come */
	atomic_bool canceled;    /* set by the owner: the upload shall stop */
};

/*
 * Pins the files of the unit at path in dir_fd, if they have exactly those numbers
 * (walk_file_number, sorted). PAWL_EBUSY: a process writes to one, or they are others by now: err
 * says which. PAWL_ENOTSUP: one may not be read. PAWL_ELIMIT: too many files are open.
 */
int pin_take(struct pin **out, struct leases *leases, int dir_fd, const char *path,
	const uint64_t *numbers, uint32_t numbers_n, struct pawl_err *err);
/* Releases a pin that no other thread uses. NULL is fine. */
void pin_give(struct pin *pin, struct leases *leases);
/* Checks that the bytes are those that were pinned, so far as one can know: PAWL_ECANCELED if not,
 * or if it was canceled. Any thread. */
int pin_check(struct pin *pin, struct pawl_err *err);

#endif
