/* The log of what a job prints. It is rotated, so that no job fills the disk. */
#ifndef ENGINE_JOB_LOG_H
#define ENGINE_JOB_LOG_H

#include <stddef.h>
#include <sys/types.h>

struct job_log;
struct pawl_err;

#define JOB_LOG_BYTES (16u << 20) /* size at which log becomes log.1, log.1 becomes log.2, … */
#define JOB_LOG_FILES 4u          /* files that are kept, the newest included */
#define JOB_LOG_NAME  "log"       /* file name in the directory of the job */

/* Opens the log at path. An existing file is appended to; older files are path.1 and so on. mode:
 * the mode of new files. PAWL_EINVAL: the path is too long; PAWL_EIO and
 * other errors of opening, also if the path is no regular file. */
int job_log_open(struct job_log **out, const char *path, mode_t mode, struct pawl_err *err);
void job_log_close(struct job_log *log); /* NULL is fine */
/* Appends bytes to the log. Bytes that cannot be written (a full disk) are dropped. Their number is
 * logged once writing works again. */
void job_log_write(struct job_log *log, const void *bytes, size_t len_bytes);
/* Appends a line "pawl: …", a line of its own even if the job has not ended its last one. A longer
 * line than 1023 bytes is cut. */
void job_log_printf(struct job_log *log, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
