/*
 * Looks at a whole mirrored directory: which units and which loose files it has. What cannot be
 * mirrored is named in the log, once. One thread.
 */
#ifndef MIRROR_SCAN_H
#define MIRROR_SCAN_H

#include "mirror/core.h"

struct pawl_err;
struct scan;

/* A unit as scan_at_unit gives it; core_seen.user of a unit is one. */
struct scan_unit {
	const char *const *names; /* names of the files in the unit, sorted */
	uint32_t names_n;         /* number of names */
	const char *bad;          /* why one of the files cannot be in a tag; NULL */
	const char *bad_name;     /* name of the bad file */
};

/* dir_fd and globs stay the caller's, as long as the scan is used. entered: called with each
 * directory before it is read, so that a watch on it misses nothing; or NULL. */
int scan_open(struct scan **scan, int dir_fd, const struct unit_globs *globs,
	void (*entered)(void *user, const char *path, int fd), void *user, struct pawl_err *err);
void scan_close(struct scan *scan); /* NULL is fine */
/* Looks at everything. The results belong to the scan, until the next call. */
int scan_all(struct scan *scan, struct pawl_err *err);
const struct core_seen *scan_units(const struct scan *scan, uint32_t *n); /* sorted by path */
const struct core_seen *scan_loose(const struct scan *scan, uint32_t *n); /* sorted by path */
/* Returns the paths of directories that are named as units, and hold no file. */
char *const *scan_empty(const struct scan *scan, uint32_t *n);
/* Gets the numbers of the files of one unit, sorted, which the caller frees. PAWL_ENOENT. */
int scan_numbers(int dir_fd, const char *path, uint64_t **files, uint32_t *n, struct pawl_err *err);

#endif
