/* The end of a log: see log_end.h. The log's directory belongs to the job's user, who can put
 * anything there: it is opened with that user's rights, and only a plain file is read. */
#include "cli/sched/log_end.h"

#include "base/err.h"
#include "base/file.h"
#include "cli/sched/as_user.h"
#include "engine/job_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns what a terminal finally shows of a line: the text after its last carriage return. */
static const char *last_shown(const char *line, const char *end, const char **shown_end)
{
	const char *from;

	while (end > line && end[-1] == '\r') {
		end--;
	}
	from = memrchr(line, '\r', (size_t)(end - line));
	*shown_end = end;
	return from ? from + 1 : line;
}

/* Returns the start of the last LOG_END_LINES lines. */
static const char *find_lines(const char *bytes, const char *end)
{
	const char *at = end;
	uint32_t lines = 0;

	if (at > bytes && at[-1] == '\n') {
		at--;
	}
	while (at > bytes) {
		if (at[-1] == '\n' && ++lines == LOG_END_LINES) {
			break;
		}
		at--;
	}
	return at;
}

/* Returns the length of a line that is shown; a character is never cut in the middle. */
static size_t cut_line(const char *line, size_t len)
{
	if (len > LOG_END_LINE) {
		len = LOG_END_LINE;
		while (len > 0 && ((unsigned char)line[len] & 0xc0) == 0x80) {
			len--;
		}
	}
	return len;
}

void log_end_of(const char *bytes, uint32_t len_bytes, int cut, char text[LOG_END_BYTES + 1])
{
	const char *end = bytes + len_bytes;
	const char *first = cut ? memchr(bytes, '\n', len_bytes) : NULL;
	const char *at = find_lines(first && first + 1 < end ? first + 1 : bytes, end);
	size_t used = 0;

	while (at < end) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));
		const char *next = line_end ? line_end + 1 : end;
		const char *shown_end;
		const char *shown = last_shown(at, line_end ? line_end : end, &shown_end);
		size_t len = cut_line(shown, (size_t)(shown_end - shown));

		for (size_t i = 0; i < len; i++) {
			text[used] = shown[i];
			if (text[used] == '\0') {
				text[used] = ' ';
			}
			used++;
		}
		if (line_end) {
			text[used++] = '\n';
		}
		at = next;
	}
	text[used] = '\0';
}

static int read_end(const char *dir, int dir_fd, char text[LOG_END_BYTES + 1], struct pawl_err *err)
{
	char bytes[LOG_END_BYTES];
	struct stat st;
	int fd = file_open_beneath(dir_fd, dir, JOB_LOG_NAME, O_RDONLY, 0, BENEATH_ANY, &st, err);
	off_t from;
	ssize_t n;
	int rv = 0;

	if (fd < 0) {
		return fd;
	}
	from = st.st_size > (off_t)sizeof(bytes) ? st.st_size - (off_t)sizeof(bytes) : 0;
	n = pread(fd, bytes, sizeof(bytes), from);
	if (n >= 0) {
		log_end_of(bytes, (uint32_t)n, from > 0, text);
	} else {
		rv = pawl_err_sys(err, "read %s/%s", dir, JOB_LOG_NAME);
	}
	close(fd);
	return rv;
}

int log_end_read(const char *dir, uint32_t uid, char text[LOG_END_BYTES + 1], struct pawl_err *err)
{
	struct as_user owner = {.other = false};
	int rv = as_user_init(&owner, uid, err);
	int dir_fd;

	rv = rv == 0 ? as_user_begin(&owner, err) : rv;
	if (rv == 0) {
		dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
		rv = dir_fd >= 0 ? read_end(dir, dir_fd, text, err) : pawl_err_sys(err, "%s", dir);
		if (dir_fd >= 0) {
			close(dir_fd);
		}
		as_user_end(&owner);
	}
	as_user_deinit(&owner);
	return rv;
}
