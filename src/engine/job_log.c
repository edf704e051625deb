/* The log of a job: see job_log.h. One process writes it. */
#include "engine/job_log.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024u /* bytes of a "pawl: …" line, terminator included */

struct job_log {
	char path[PATH_MAX];    /* path of the newest file */
	mode_t mode;            /* mode of files that are made */
	int fd;                 /* descriptor of the newest file; -1: it could not be opened */
	uint64_t len_bytes;     /* bytes in the newest file */
	uint64_t dropped_bytes; /* bytes that could not be written, and are not reported yet */
	bool in_line;           /* the last byte ends no line */
};

/* Returns whether a file of that length ends in the middle of a line. If it cannot be read, it does
 * not. */
static bool ends_in_line(const char *path, off_t len_bytes)
{
	int fd = len_bytes > 0 ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
	char last = '\n';

	if (fd >= 0) {
		(void)!pread(fd, &last, 1, len_bytes - 1);
		close(fd);
	}
	return last != '\n';
}

/* Opens the newest file. Refuses anything but a regular file: the job's user may have put a FIFO
 * there, on which a write would wait for a reader. */
static int open_file(struct job_log *log)
{
	const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	struct stat st = {.st_size = 0};

	log->fd = open(log->path, flags | O_NOCTTY, log->mode);
	if (log->fd >= 0 && (fstat(log->fd, &st) != 0 || !S_ISREG(st.st_mode))) {
		close(log->fd);
		log->fd = -1;
		errno = EINVAL;
	}
	log->len_bytes = log->fd >= 0 ? (uint64_t)st.st_size : 0;
	log->in_line = log->fd >= 0 && ends_in_line(log->path, st.st_size);
	return log->fd;
}

int job_log_open(struct job_log **out, const char *path, mode_t mode, struct pawl_err *err)
{
	struct job_log *log = calloc(1, sizeof(*log));
	int rv;

	if (!log) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the log of a job");
	}
	log->mode = mode;
	if ((size_t)snprintf(log->path, sizeof(log->path), "%s", path) >= sizeof(log->path)) {
		free(log);
		return pawl_err_set(err, PAWL_EINVAL, "%s: the path is too long", path);
	}
	if (open_file(log) < 0) {
		rv = pawl_err_sys(err, "log %s", log->path);
		free(log);
		return rv;
	}
	*out = log;
	return 0;
}

void job_log_close(struct job_log *log)
{
	if (log) {
		if (log->fd >= 0) {
			close(log->fd);
		}
		free(log);
	}
}

static void rotate(struct job_log *log)
{
	char from[PATH_MAX + 16];
	char to[PATH_MAX + 16];

	for (unsigned i = JOB_LOG_FILES - 1; i > 0; i--) {
		snprintf(to, sizeof(to), "%s.%u", log->path, i);
		snprintf(from, sizeof(from), i > 1 ? "%s.%u" : "%s", log->path, i - 1);
		if (rename(from, to) != 0 && errno != ENOENT && i == 1) {
			return; /* keep on growing the file: better than losing output */
		}
	}
	if (log->fd >= 0) {
		close(log->fd);
	}
	open_file(log);
}

/* Returns whether all bytes were written. */
static bool put(struct job_log *log, const void *bytes, size_t len_bytes)
{
	size_t done = 0;

	if (log->fd < 0 && open_file(log) < 0) {
		return false;
	}
	while (done < len_bytes) {
		ssize_t n = FAULT_SYS("job_log.write",
			write(log->fd, (const char *)bytes + done, len_bytes - done));

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return false;
		}
		done += (size_t)n;
		log->len_bytes += (uint64_t)n;
		log->in_line = ((const char *)bytes)[done - 1] != '\n';
	}
	return true;
}

void job_log_write(struct job_log *log, const void *bytes, size_t len_bytes)
{
	char line[LINE_MAX_BYTES];
	int len;

	if (log->len_bytes >= JOB_LOG_BYTES) {
		rotate(log);
	}
	if (log->dropped_bytes > 0) {
		len = snprintf(line, sizeof(line), "pawl: %llu bytes could not be written here\n",
			(unsigned long long)log->dropped_bytes);
		log->dropped_bytes = put(log, line, (size_t)len) ? 0 : log->dropped_bytes;
	}
	if (log->dropped_bytes > 0 || !put(log, bytes, len_bytes)) {
		log->dropped_bytes += len_bytes;
	}
}

void job_log_printf(struct job_log *log, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES] = "pawl: ";
	size_t start = strlen(line);
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(line + start, sizeof(line) - start - 1, fmt, args);
	va_end(args);
	len = len < 0                                    ? 0
		: (size_t)len < sizeof(line) - start - 1 ? len
							 : (int)(sizeof(line) - start) - 2;
	ASSERT(start + (size_t)len + 1 < sizeof(line));
	line[start + (size_t)len] = '\n';
	if (log->in_line) { /* a progress bar, for example */
		job_log_write(log, "\n", 1);
	}
	job_log_write(log, line, start + (size_t)len + 1);
}
