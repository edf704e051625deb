/* Directories for the temporary files of jobs with disk_tier: best. Finds the fastest directory,
 * and makes a directory for one job in it. */
#ifndef ENGINE_SCRATCH_H
#define ENGINE_SCRATCH_H

#include <limits.h>
#include <stdint.h>

struct pawl_err;

#define SCRATCH_DIRS_MAX 16u
#define SCRATCH_VAR      "PAWL_SCRATCH"

/* Finds which of n directories (n at least 1) writes durable bytes fastest. *best becomes its
 * index. *rate becomes its bytes per second; time that the thread waited for a processor is not
 * counted. With a single directory, it is only checked and *rate becomes 0. Takes about half a
 * second per directory. PAWL_EIO and other errors of writing: the error names a directory that
 * cannot be used. */
int scratch_choose(const char *const *dirs, uint32_t n, uint32_t *best, double *rate,
	struct pawl_err *err);
/* Makes an empty directory at path, of mode 0700. Replaces a directory of this user's that exists
 * there. Only this user may be able to write to the parent directory: otherwise another user could
 * take the name first. PAWL_EIO and other errors of mkdir. */
int scratch_make(const char *path, struct pawl_err *err);
/* Makes an empty directory of mode 0700 in a parent directory that others can write to. Its name,
 * which path gets, is base (an absolute path) plus a dash and six random characters. Removes this
 * user's earlier directories of that base. PAWL_EINVAL: the path is too long; PAWL_EIO and other
 * errors of mkdtemp. */
int scratch_make_new(const char *base, char path[PATH_MAX], struct pawl_err *err);
/* Removes a directory that this user owns, and all its contents. Follows no links. Leaves what the
 * user may not remove, mounted file systems, and what is nested deeper than 512 directories. */
void scratch_remove(const char *path);

#endif
