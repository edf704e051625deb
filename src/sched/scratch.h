/* Directories for what jobs write for a while (disk_tier: best): which is the fastest, and one of a
 * job's own in it. */
#ifndef SCHED_SCRATCH_H
#define SCHED_SCRATCH_H

#include <stdint.h>

struct pawl_err;

#define SCRATCH_DIRS_MAX 16u
#define SCRATCH_VAR      "PAWL_SCRATCH"

/* The one of them, n at least 1, that takes bytes fastest, made durable: *best becomes its index,
 * *rate its bytes a second; 0 if there is one alone, which is tried only. It takes about half a
 * second each. PAWL_EIO and others of writing: one cannot be used, and is named. */
int scratch_choose(const char *const *dirs, uint32_t n, uint32_t *best, double *rate,
	struct pawl_err *err);
/* An empty directory for this user alone, in place of whatever is there. */
int scratch_make(const char *path, struct pawl_err *err);
/* With all that is in it, as far as this user may; what is mounted there is left. */
void scratch_remove(const char *path);

#endif
