/* The last lines that a job printed, which usually have the reason of a failure. */
#ifndef CLI_SCHED_LOG_END_H
#define CLI_SCHED_LOG_END_H

#include <stdint.h>

#define LOG_END_LINES 10u
#define LOG_END_BYTES 4096u /* bytes at the end of the log that are read */
#define LOG_END_LINE  400u  /* bytes of a line; longer lines are cut */

struct pawl_err;

/* Reads the last lines of the newest log in dir, a job's directory, with the rights of user uid if
 * root asks. Of a progress bar it takes what the bar showed last. text: "" if the job printed
 * nothing. PAWL_ENOENT, PAWL_EINVAL: the log is no plain file; PAWL_EIO and its like. */
int log_end_read(const char *dir, uint32_t uid, char text[LOG_END_BYTES + 1], struct pawl_err *err);

/* Takes the last lines, as log_end_read does, from the last len_bytes bytes of a log. cut: the log
 * has more bytes before these. Pure. */
void log_end_of(const char *bytes, uint32_t len_bytes, int cut, char text[LOG_END_BYTES + 1]);

#endif
