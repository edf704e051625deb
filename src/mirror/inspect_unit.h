/* Looks into the small files of a unit, and beside it, to find whether it is whole: the shell of
 * units.h. One thread. */
#ifndef MIRROR_INSPECT_UNIT_H
#define MIRROR_INSPECT_UNIT_H

#include "mirror/core.h"

/* core_inspect.look; user points to the descriptor (int) of the mirrored directory, and seen is of
 * a scan. */
bool inspect_unit(void *user, const struct core_seen *seen, enum unit_kind *kind,
	char best[CKPT_TAG_MAX], bool *never, char why[UNIT_WHY_MAX]);
/* Reads a small file below dir_fd, malloc'ed with a NUL behind it (not counted). Returns NULL if it
 * is not there, larger than max_bytes, or cannot be read. */
char *inspect_read(int dir_fd, const char *path, size_t max_bytes, size_t *len_bytes);

#endif
