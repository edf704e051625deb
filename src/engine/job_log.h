/* The log of what a job prints: one file, and the ones before it, so that no disk fills up. */
#ifndef ENGINE_JOB_LOG_H
#define ENGINE_JOB_LOG_H

#include <stddef.h>
#include <sys/types.h>

struct job_log;
struct pawl_err;

#define JOB_LOG_BYTES (16u << 20) /* bytes of a file; then log becomes log.1, log.1 log.2 … */
#define JOB_LOG_FILES 4u          /* files that are kept, the newest included */
#define JOB_LOG_NAME  "log"       /* file name in the directory of the job */

/* Opens the log and goes on with the file that is there; older files are path.1 and so on. mode is
 * that of files that are made. PAWL_EIO and other errors of opening. */
int job_log_open(struct job_log **out, const char *path, mode_t mode, struct pawl_err *err);
void job_log_close(struct job_log *log); /* NULL is fine */
/* Writes to the log. Bytes that cannot be written (a full disk) are dropped; how many is reported
 * once writing works again. */
void job_log_write(struct job_log *log, const void *bytes, size_t len_bytes);
/* Writes a line of our own: "pawl: …". */
void job_log_printf(struct job_log *log, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
