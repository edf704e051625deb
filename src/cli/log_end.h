/* The last lines that a job printed: why it failed stands there, as a rule. */
#ifndef CLI_LOG_END_H
#define CLI_LOG_END_H

#include <stdint.h>

#define LOG_END_LINES 10u
#define LOG_END_BYTES 4096u /* of the log that are looked at */
#define LOG_END_LINE  400u  /* of a line; longer ones are cut */

struct pawl_err;

/* Whole lines of the newest file in dir, a job's, read as user uid where root asks; of a progress
 * bar what it showed last. text: "" if it printed nothing. PAWL_ENOENT, PAWL_EINVAL: no plain file
 * is there; PAWL_EIO and its like. */
int log_end_read(const char *dir, uint32_t uid, char text[LOG_END_BYTES + 1], struct pawl_err *err);

/* Pure: the same of bytes that a log ends with, of which cut says whether others stand before. */
void log_end_of(const char *bytes, uint32_t len_bytes, int cut, char text[LOG_END_BYTES + 1]);

#endif
