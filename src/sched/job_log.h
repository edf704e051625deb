/* What a job prints: one file, and the ones before it, so that it fills no disk. */
#ifndef SCHED_JOB_LOG_H
#define SCHED_JOB_LOG_H

#include <stddef.h>
#include <sys/types.h>

struct job_log;
struct pawl_err;

#define JOB_LOG_BYTES (16u << 20) /* of a file; then it becomes log.1, log.1 becomes log.2 … */
#define JOB_LOG_FILES 4u          /* that are kept, the newest included */
#define JOB_LOG_NAME  "log"       /* in the directory of the job */

/* Goes on with the file that is there; those before it are path.1 and on; mode is of those that are
 * made. PAWL_EIO and others of opening it. */
int job_log_open(struct job_log **out, const char *path, mode_t mode, struct pawl_err *err);
void job_log_close(struct job_log *log); /* NULL is fine */
/* What cannot be written (a full disk) is dropped; how much, is said once some can be again. */
void job_log_write(struct job_log *log, const void *bytes, size_t len_bytes);
/* A line of ours: "pawl: …". */
void job_log_say(struct job_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
