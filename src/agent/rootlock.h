/* One job a root: an advisory lock on <root>/.pawl-lock that says whose it is and dies with its
 * holder. */
#ifndef AGENT_ROOTLOCK_H
#define AGENT_ROOTLOCK_H

#include <stdbool.h>

struct pawl_err;

/*
 * Takes the root for job. Returns a descriptor that holds the lock until closed; PAWL_EBUSY naming
 * both jobs, the holder's pid and host; PAWL_EIO: what has the lock's name there is no plain
 * file, or has other names; or another negative code. The root must exist.
 */
int rootlock_take(const char *root, const char *job, struct pawl_err *err);

/* The same; waits up to 2 s for another job to let go: its agent does when the job has ended and
 * all is durable and old tags are deleted, but not in that instant. */
int rootlock_await(const char *root, const char *job, struct pawl_err *err);

/* Is the lock file of the root still the one that fd holds? Not if the root was removed, or another
 * directory put in its place. */
bool rootlock_holds(const char *root, int fd);

#endif
