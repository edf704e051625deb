/* An advisory lock on <root>/.pawl-lock, by which one job at a time uses a root. The file names the
 * holder; the lock ends with the holder. */
#ifndef CKPT_ROOTLOCK_H
#define CKPT_ROOTLOCK_H

#include <stdbool.h>

struct pawl_err;

/*
 * Takes the root for job. Returns a descriptor that holds the lock until closed; PAWL_EBUSY naming
 * both jobs, the holder's pid and host; PAWL_EIO if the file with the lock's name is no plain file,
 * or has other names; or another negative code. The root must exist.
 */
int rootlock_take(const char *root, const char *job, struct pawl_err *err);

/* Takes the root as rootlock_take does, but waits up to 2 s for another job to release it: an
 * agent releases the root when its job has ended, all is durable and old tags are deleted, but not
 * at once. */
int rootlock_await(const char *root, const char *job, struct pawl_err *err);

/* Whether fd still holds the lock file of the root: not if the root was removed, or another
 * directory was put in its place. */
bool rootlock_holds(const char *root, int fd);

#endif
