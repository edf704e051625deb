/* Checks the scheduler's database before SQLite opens it. SQLite writes to what it opens, takes an
 * empty file for a new database, and removes the WAL file beside it, which may have all that was
 * written. */
#ifndef SCHED_DATABASE_DATABASE_HEADER_H
#define SCHED_DATABASE_DATABASE_HEADER_H

struct pawl_err;

#define DATABASE_APPLICATION 0x5061776c /* "Pawl", the application id of the file */
#define DATABASE_REMEDY                                                                            \
	"put a copy of the file back, or start with --rebuild, which keeps the running jobs and "  \
	"forgets those that wait"

/* Checks that the file can be a scheduler's, and not a new one. PAWL_ENOENT: it does not exist, or
 * is empty; PAWL_ECORRUPT: it is not a database; PAWL_EINVAL: it is another application's;
 * PAWL_EIO. */
int database_header_check(const char *path, struct pawl_err *err);
/* Reports that the file is another application's. Returns PAWL_EINVAL. */
int database_header_refuse(const char *path, struct pawl_err *err);

#endif
