/* Reads the files of the history, and the changes of a job in them: see history.h. */
#include "daemon/history/history.h"

#include "base/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS     8u           /* digits of a file's number in its name, at least */
#define BYTES_MAX  (256u << 20) /* bytes of a file that is read, at most */
#define NEEDLE_MAX 40u

/* ---- files ---- */

void history_file_name(const char *dir, uint64_t number, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%0*llu.jsonl", dir, (int)DIGITS, (unsigned long long)number);
}

static uint64_t number_of(const char *name)
{
	char *end;
	uint64_t number = strtoull(name, &end, 10);

	return strspn(name, "0123456789") >= DIGITS && strcmp(end, ".jsonl") == 0 ? number : 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int history_files(const char *dir, uint64_t **numbers, uint32_t *n, struct pawl_err *err)
{
	DIR *opened = opendir(dir);
	uint64_t *list = NULL;
	uint32_t count = 0;
	uint32_t room = 0;
	struct dirent *entry;

	if (!opened) {
		return pawl_err_sys(err, "history %s", dir);
	}
	while ((entry = readdir(opened)) != NULL) {
		uint64_t number = number_of(entry->d_name);
		uint64_t *more = list;

		if (number == 0) {
			continue;
		}
		if (count == room) {
			room = 2 * room + 64;
			more = realloc(list, room * sizeof(*list));
		}
		if (!more) {
			free(list);
			closedir(opened);
			return pawl_err_set(err, PAWL_ENOMEM, "no memory for history %s", dir);
		}
		list = more;
		list[count++] = number;
	}
	closedir(opened);
	if (count > 0) {
		qsort(list, count, sizeof(*list), by_number);
	}
	*numbers = list;
	*n = count;
	return 0;
}

static ssize_t read_all(int fd, char *bytes, size_t len_bytes)
{
	size_t done = 0;

	while (done < len_bytes) {
		ssize_t n = read(fd, bytes + done, len_bytes - done);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return -1;
		}
		if (n == 0) {
			break;
		}
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* Reads all of an open file. */
static int read_open(int fd, const char *path, char **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	struct stat st;
	ssize_t len;
	char *all;

	if (fstat(fd, &st) != 0) {
		return pawl_err_sys(err, "history %s", path);
	}
	if (!S_ISREG(st.st_mode) || st.st_size > BYTES_MAX) {
		return pawl_err_set(err, PAWL_EIO,
			"history %s: it is not a plain file, or too large", path);
	}
	all = malloc((size_t)st.st_size + 1);
	if (!all) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for history %s", path);
	}
	len = read_all(fd, all, (size_t)st.st_size);
	if (len < 0) {
		free(all);
		return pawl_err_sys(err, "history %s", path);
	}
	*bytes = all;
	*len_bytes = (size_t)len;
	return 0;
}

int history_file_read(const char *dir, uint64_t number, char **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	char path[PATH_MAX];
	int fd;
	int rv;

	history_file_name(dir, number, path);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		return pawl_err_sys(err, "history %s", path);
	}
	rv = read_open(fd, path, bytes, len_bytes, err);
	close(fd);
	return rv;
}

/* ---- numbers of jobs ---- */

static uint64_t highest_in(const char *bytes, size_t len_bytes)
{
	static const char key[] = "\"job\":";
	const char *end = bytes + len_bytes;
	const char *at = bytes;
	uint64_t highest = 0;

	while ((at = memmem(at, (size_t)(end - at), key, sizeof(key) - 1)) != NULL) {
		uint64_t job = 0;

		for (at += sizeof(key) - 1; at < end && *at >= '0' && *at <= '9'; at++) {
			job = job < INT64_MAX / 10 ? 10 * job + (uint64_t)(*at - '0') : 0;
		}
		highest = job > highest ? job : highest;
	}
	return highest;
}

void history_highest_job(const char *dir, uint64_t *highest)
{
	uint64_t *numbers = NULL;
	uint32_t n = 0;

	if (history_files(dir, &numbers, &n, NULL) != 0) {
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint64_t found = 0;
		size_t len;
		char *bytes;

		if (history_file_read(dir, numbers[i], &bytes, &len, NULL) == 0) {
			found = highest_in(bytes, len);
			free(bytes);
		}
		*highest = found > *highest ? found : *highest;
	}
	free(numbers);
}

/* ---- a job ---- */

/* Rows that were found, the newest first. */
struct found {
	struct history_row *rows; /* owned; room for most */
	uint32_t n, most;
};

/* Adds a row. A row that equals the newer one, but for its goodput, replaces it, as at the
 * beginning of a file: the time of a change is that of its first row. False: there are enough. */
static bool add_found(struct found *found, struct history_row *row)
{
	struct history_row *last = found->n > 0 ? &found->rows[found->n - 1] : NULL;

	if (last && history_job_same(&last->job, &row->job)) {
		history_row_deinit(last);
		*last = *row;
		return true;
	}
	if (found->n == found->most) {
		history_row_deinit(row);
		return false;
	}
	found->rows[found->n++] = *row;
	return true;
}

/* Finds the last line with the needle in the first len_bytes of a file; NULL: no line has it. */
static const char *find_back(const char *bytes, size_t len_bytes, const char *needle,
	size_t *line_bytes)
{
	size_t end = len_bytes;

	while (end > 0 && bytes[end - 1] == '\n') {
		const char *before = end > 1 ? memrchr(bytes, '\n', end - 1) : NULL;
		const char *line = before ? before + 1 : bytes;
		size_t len = (size_t)(bytes + end - 1 - line);

		if (memmem(line, len, needle, strlen(needle))) {
			*line_bytes = len;
			return line;
		}
		end = (size_t)(line - bytes);
	}
	return NULL;
}

/* Collects the rows of a job in a file, from its end. False: no older file is needed. */
static bool collect_rows(struct found *found, const char *bytes, size_t len_bytes, uint64_t id)
{
	char needle[NEEDLE_MAX];
	const char *line;
	size_t len = len_bytes;
	bool on = true;

	snprintf(needle, sizeof(needle), "\"job\":%llu,", (unsigned long long)id);
	while (len > 0 && bytes[len - 1] != '\n') {
		len--; /* half a line */
	}
	while (on && (line = find_back(bytes, len, needle, &len)) != NULL) {
		struct history_row row;

		if (history_row_decode(&row, line, len, NULL) == 0) {
			on = row.job.id != id || add_found(found, &row);
			if (row.job.id != id) {
				history_row_deinit(&row);
			}
		}
		len = (size_t)(line - bytes);
	}
	/* The first row of a job is the one of its submission. */
	return on &&
		(found->n == 0 ||
			found->rows[found->n - 1].t_s >
				found->rows[found->n - 1].job.submitted_s + 1);
}

int history_read_job(const char *dir, uint64_t id, uint32_t most,
	void (*on_row)(void *user, const struct history_row *row), void *user, struct pawl_err *err)
{
	struct found found = {.rows = calloc(most, sizeof(*found.rows)), .most = most};
	uint64_t *numbers = NULL;
	uint32_t n = 0;
	bool on = true;
	int rv = found.rows ? history_files(dir, &numbers, &n, err)
			    : pawl_err_set(err, PAWL_ENOMEM, "no memory for a job's history");

	for (uint32_t i = 0; rv == 0 && on && i < n && i < HISTORY_FILES_READ; i++) {
		char *bytes;
		size_t len;

		rv = history_file_read(dir, numbers[n - 1 - i], &bytes, &len, err);
		if (rv == 0) {
			on = collect_rows(&found, bytes, len, id);
			free(bytes);
		} else if (rv == PAWL_ENOENT) { /* the file made room meanwhile */
			on = false;
			rv = 0;
		}
	}
	if (rv == 0 && found.n == 0) {
		rv = pawl_err_set(err, PAWL_ENOENT, "history %s: it has no job %llu", dir,
			(unsigned long long)id);
	}
	for (uint32_t i = found.n; i-- > 0;) {
		if (rv == 0) {
			on_row(user, &found.rows[i]);
		}
		history_row_deinit(&found.rows[i]);
	}
	free(found.rows);
	free(numbers);
	return rv;
}
