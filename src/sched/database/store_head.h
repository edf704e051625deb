/* Checks the scheduler's file before SQLite opens it: SQLite writes to what it opens, takes an
 * empty file for a new database, and removes the log beside it, which may have all that was
 * written. */
#ifndef SCHED_DATABASE_STORE_HEAD_H
#define SCHED_DATABASE_STORE_HEAD_H

struct pawl_err;

#define STORE_APPLICATION 0x5061776c /* "Pawl", the application id of the file */
#define STORE_REMEDY                                                                               \
	"put a copy of the file back, or start with --rebuild, which goes on with the jobs that "  \
	"run and forgets those that wait"

/* Checks that a file may be a scheduler's, and not a new one's. PAWL_ENOENT: it is not there, or
 * empty; PAWL_ECORRUPT: it is no database; PAWL_EINVAL: it is another application's; PAWL_EIO. */
int store_head_check(const char *path, struct pawl_err *err);
/* Says that a file is another application's, and returns PAWL_EINVAL. */
int store_head_refuse(const char *path, struct pawl_err *err);

#endif
