/* Log lines on stderr: "pawl: warning: …". Each is one write(2), so that lines of threads do not
 * mix. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* Sets the level above which lines are dropped. The default is LOG_INFO, or the level that PAWL_LOG
 * names (error warning info debug). */
void log_set_level(enum log_level level);
/* Sets a short text that each line contains, e.g. "rank 1" or "agent"; copied, at most 31 bytes.
 * Not thread-safe: call at start. */
void log_set_name(const char *name);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
