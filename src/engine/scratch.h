/* Directories for what jobs write for a while (disk_tier: best): finds the fastest one, and makes
 * one of a job's own in it. */
#ifndef ENGINE_SCRATCH_H
#define ENGINE_SCRATCH_H

#include <limits.h>
#include <stdint.h>

struct pawl_err;

#define SCRATCH_DIRS_MAX 16u
#define SCRATCH_VAR      "PAWL_SCRATCH"

/* Finds the directory of n, at least 1, that takes bytes fastest, made durable. *best becomes its
 * index, *rate its bytes a second, of the time in which the thread did not wait for a processor; 0
 * if there is one directory alone, which is tried only. Takes about half a second for each.
 * PAWL_EIO and other errors of writing: a directory cannot be used, and is named. */
int scratch_choose(const char *const *dirs, uint32_t n, uint32_t *best, double *rate,
	struct pawl_err *err);
/* Makes an empty directory for this user alone, in place of the user's own that is there. The
 * directory around it must be this user's alone: else another user may have the name first. */
int scratch_make(const char *path, struct pawl_err *err);
/* Makes an empty directory for this user alone where others may write as well: at base (from /) and
 * six characters that nobody knows beforehand. This user's earlier directories of that base are
 * removed. */
int scratch_make_new(const char *base, char path[PATH_MAX], struct pawl_err *err);
/* Removes a directory of this user's, with all that is in it; links are not followed. What the user
 * may not remove, what is mounted there, and what is deeper than 512 directories is left. */
void scratch_remove(const char *path);

#endif
