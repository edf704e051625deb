/* Directories for what jobs write for a while (disk_tier: best): which is the fastest, and one of a
 * job's own in it. */
#ifndef SCHED_SCRATCH_H
#define SCHED_SCRATCH_H

#include <limits.h>
#include <stdint.h>

struct pawl_err;

#define SCRATCH_DIRS_MAX 16u
#define SCRATCH_VAR      "PAWL_SCRATCH"

/* The one of them, n at least 1, that takes bytes fastest, made durable: *best becomes its index,
 * *rate its bytes a second, of the time in which the thread did not wait for a processor; 0 if
 * there is one alone, which is tried only. It takes about half a second each. PAWL_EIO and others
 * of writing: one cannot be used, and is named. */
int scratch_choose(const char *const *dirs, uint32_t n, uint32_t *best, double *rate,
	struct pawl_err *err);
/* An empty directory for this user alone, in place of the user's own that is there. In a directory
 * of this user's alone: another may have that name first. */
int scratch_make(const char *path, struct pawl_err *err);
/* The same where others may write as well: at base (from /) and six characters that nobody knows
 * beforehand. This user's earlier ones of that base are removed. */
int scratch_make_new(const char *base, char path[PATH_MAX], struct pawl_err *err);
/* A directory of this user's, with all that is in it; links are not followed. What the user may not
 * remove, what is mounted there, and what is deeper than 512 directories is left. */
void scratch_remove(const char *path);

#endif
