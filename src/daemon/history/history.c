/*
 * Writing the history: see history.h.
 *
 * Happy path: begin, puts, end. A put compares the row with the latest one, and keeps it as the
 * pending row. The next put encodes the pending row with "more"; end encodes the last one without,
 * and writes all of them at once. A new file gets its header and rows of all nodes and jobs, and is
 * then renamed.
 *
 * Failing: the file is closed, and rows are missing from lost_s on. Puts still update the latest
 * rows in memory, so the next file begins with the state of that time.
 */
#include "daemon/history/history.h"
#include "base/assert.h"
#include "base/times.h"
#include "daemon/history/history_latest.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_S    1e-6 /* seconds between two steps, at least */
#define DUMP      (JSON_COMPACT | JSON_REAL_PRECISION(16))
#define FILE_MODE 0640

struct history {
	struct history_options options;
	char dir[PATH_MAX];
	char host[CORE_NAME_MAX];
	char policy[CORE_NAME_MAX];
	struct history_latest latest;
	uint64_t number; /* number of the newest file; 0: there is none */
	int fd;          /* the newest file; -1: another one is to be begun */
	uint64_t grown_bytes;
	double t_s;        /* time of the newest step */
	double lost_s;     /* time since when rows are missing; 0: none are */
	double retry_at_s; /* time before which no file is begun again */
	bool failed;       /* no memory, in this step */
	json_t *pending;   /* owned; the last row; NULL: none */
	char *bytes;       /* owned; rows before it */
	size_t len_bytes, room_bytes;
};

/* ---- files ---- */

static void fail(struct history *h, const char *what)
{
	if (h->lost_s == 0) {
		log_line(LOG_WARNING,
			"history %s: %s: %s; rows are lost until it can be written again, jobs go "
			"on",
			h->dir, what, strerror(errno));
		h->lost_s = h->t_s;
	}
	if (h->fd >= 0) {
		close(h->fd);
		h->fd = -1;
	}
	h->retry_at_s = h->t_s + times_s(TIME_HISTORY_AGAIN);
}

static bool write_all(int fd, const char *bytes, size_t len_bytes)
{
	size_t done = 0;

	while (done < len_bytes) {
		ssize_t n = FAULT_SYS("history.write", write(fd, bytes + done, len_bytes - done));

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return false;
		}
		done += (size_t)n;
	}
	return true;
}

/* ---- rows ---- */

static bool reserve(struct history *h, size_t more_bytes)
{
	size_t room = 2 * h->room_bytes + more_bytes;
	char *bytes;

	if (h->len_bytes + more_bytes <= h->room_bytes) {
		return true;
	}
	bytes = realloc(h->bytes, room);
	if (!bytes) {
		return false;
	}
	h->bytes = bytes;
	h->room_bytes = room;
	return true;
}

/* Dumps the pending row into the room that there is. Returns how much it takes. */
static size_t dump(const struct history *h)
{
	return json_dumpb(h->pending, h->bytes ? h->bytes + h->len_bytes : NULL,
		h->room_bytes - h->len_bytes, DUMP);
}

/* Moves the pending row to the bytes. more: the step goes on. */
static void flush(struct history *h, bool more)
{
	size_t len;

	if (!h->pending) {
		return;
	}
	if (more && json_object_set_new(h->pending, "more", json_true()) != 0) {
		h->failed = true;
	}
	len = dump(h);
	if (len >= h->room_bytes - h->len_bytes && reserve(h, len + 1)) {
		len = dump(h);
	}
	if (len == 0 || len >= h->room_bytes - h->len_bytes) {
		h->failed = true;
	} else {
		h->len_bytes += len;
		h->bytes[h->len_bytes++] = '\n';
	}
	ASSERT(h->len_bytes <= h->room_bytes);
	json_decref(h->pending);
	h->pending = NULL;
}

static void put_row(struct history *h, struct history_row *row)
{
	row->t_s = h->t_s;
	flush(h, true);
	h->pending = history_row_encode(row);
	h->failed |= h->pending == NULL;
}

/* ---- a new file ---- */

static void put_all(struct history *h)
{
	struct history_row row = {.kind = HISTORY_FILE_HEADER, .lost_s = h->lost_s};

	snprintf(row.host, sizeof(row.host), "%s", h->host);
	snprintf(row.policy, sizeof(row.policy), "%s", h->policy);
	put_row(h, &row);
	row.kind = HISTORY_NODE;
	for (uint32_t i = 0; i < h->latest.nodes_n; i++) {
		row.node = *h->latest.nodes[i];
		put_row(h, &row);
	}
	row.kind = HISTORY_JOB;
	for (uint32_t i = 0; i < h->latest.jobs_n; i++) {
		row.job = *h->latest.jobs[i];
		put_row(h, &row);
	}
	flush(h, false);
}

static bool make_dir(struct history *h)
{
	bool shared = h->options.group != (gid_t)-1;

	if (FAULT_SYS("history.mkdir", mkdir(h->dir, 0700)) != 0 && errno != EEXIST) {
		return false;
	}
	/* Files in the directory get its group. */
	return (!shared || chown(h->dir, (uid_t)-1, h->options.group) == 0) &&
		chmod(h->dir, shared ? 02750 : 0700) == 0;
}

/* Removes the oldest files, as long as all take too much. */
static void make_room(struct history *h)
{
	uint64_t *numbers;
	uint64_t all_bytes = 0;
	uint32_t n;

	if (history_files(h->dir, &numbers, &n, NULL) != 0) {
		return;
	}
	while (n-- > 0) {
		char path[PATH_MAX];
		struct stat st;

		history_file_name(h->dir, numbers[n], path);
		all_bytes += lstat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
		if (all_bytes > h->options.all_bytes && numbers[n] < h->number) {
			unlink(path);
		}
	}
	free(numbers);
}

/* Creates a file: it appears under its name only once it is complete. */
static bool publish(struct history *h, const char *path)
{
	char new[PATH_MAX];
	int fd;

	if ((size_t)snprintf(new, sizeof(new), "%s/new", h->dir) >= sizeof(new) || !make_dir(h)) {
		return false;
	}
	unlink(new);
	fd = FAULT_SYS("history.open",
		open(new, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, FILE_MODE));
	if (fd < 0) {
		return false;
	}
	if (!write_all(fd, h->bytes, h->len_bytes) ||
		FAULT_SYS("history.rename", rename(new, path)) != 0) {
		int sys = errno;

		close(fd);
		unlink(new);
		errno = sys;
		return false;
	}
	h->fd = fd;
	return true;
}

static void begin_file(struct history *h)
{
	char path[PATH_MAX];

	if (h->fd >= 0) {
		close(h->fd);
		h->fd = -1;
	}
	h->len_bytes = 0;
	put_all(h);
	history_file_name(h->dir, h->number + 1, path);
	errno = ENOMEM;
	if (h->failed || !publish(h, path)) {
		fail(h, "begin a file");
		return;
	}
	if (h->lost_s > 0) {
		log_line(LOG_WARNING, "history %s: it is written again, %.0f s of it are missing",
			h->dir, h->t_s - h->lost_s);
	}
	h->number++;
	h->grown_bytes = 0;
	h->lost_s = 0;
	h->retry_at_s = 0;
	make_room(h);
}

/* ---- a step ---- */

const struct history_job *history_job_find(const struct history *h, uint64_t id)
{
	return history_latest_job(&h->latest, id);
}

uint32_t history_jobs(const struct history *h, const struct history_job *const **jobs)
{
	*jobs = (const struct history_job *const *)h->latest.jobs;
	return h->latest.jobs_n;
}

uint32_t history_nodes(const struct history *h, const struct history_node *const **nodes)
{
	*nodes = (const struct history_node *const *)h->latest.nodes;
	return h->latest.nodes_n;
}

void history_begin(struct history *h, double t_s)
{
	t_s = floor(t_s / TICK_S) * TICK_S;
	h->t_s = t_s > h->t_s ? t_s : h->t_s + TICK_S;
	h->len_bytes = 0;
	h->failed = false;
}

void history_put_node(struct history *h, const struct history_node *node)
{
	const struct history_node *last = history_latest_node(&h->latest, node->name);
	struct history_row row = {.kind = HISTORY_NODE, .node = *node};

	if (last ? strcmp(last->state, node->state) == 0 && last->slots == node->slots &&
				last->price == node->price && last->spot == node->spot &&
				strcmp(last->pool, node->pool) == 0 &&
				strcmp(last->type, node->type) == 0
		 : node->slots == 0) {
		return;
	}
	put_row(h, &row);
	h->failed |= !history_latest_put_node(&h->latest, node);
}

/* Returns whether the job has changed so much that it gets a row. */
static bool is_significant(const struct history_job *last, const struct history_job *job)
{
	double more = fabs(job->goodput - last->goodput);

	if (job->over || !history_job_same(last, job)) {
		return true;
	}
	return last->goodput > 0 ? more >= HISTORY_GOODPUT * last->goodput &&
			job->last_row_s >= last->last_row_s + HISTORY_GOODPUT_S
				 : job->goodput > 0;
}

void history_put_job(struct history *h, struct history_job *job)
{
	const struct history_job *last = history_job_find(h, job->id);
	struct history_row row = {.kind = HISTORY_JOB};

	if (last && last->begun_s > 0) {
		job->begun_s = last->begun_s;
	} else if (job->entries_n > 0) {
		job->begun_s = h->t_s;
	}
	job->last_row_s = h->t_s;
	if (last && !is_significant(last, job)) {
		free(job->entries);
		return;
	}
	row.job = *job;
	put_row(h, &row);
	h->failed |= !history_latest_put_job(&h->latest, job);
}

void history_put_event(struct history *h, const char *event)
{
	struct history_row row = {.kind = HISTORY_SCHEDULER};

	snprintf(row.event, sizeof(row.event), "%s", event);
	snprintf(row.policy, sizeof(row.policy), "%s", h->policy);
	put_row(h, &row);
}

void history_end(struct history *h)
{
	bool any = h->pending != NULL || h->len_bytes > 0;

	flush(h, false);
	if (h->failed) {
		errno = ENOMEM;
		fail(h, "write");
	} else if (h->fd < 0 && h->t_s >= h->retry_at_s) {
		begin_file(h);
	} else if (h->fd >= 0 && any) {
		h->grown_bytes += h->len_bytes;
		if (!write_all(h->fd, h->bytes, h->len_bytes)) {
			fail(h, "write");
		} else if (h->grown_bytes >= h->options.file_bytes) {
			begin_file(h);
		}
	}
}

/* ---- opening ---- */

/* Reads a line of the newest file into the latest rows. */
static int replay_line(struct history *h, const char *line, size_t len_bytes, struct pawl_err *err)
{
	struct history_row row;
	int rv = history_row_decode(&row, line, len_bytes, err);

	if (rv != 0) {
		return rv;
	}
	h->t_s = row.t_s > h->t_s ? row.t_s : h->t_s;
	switch (row.kind) {
	case HISTORY_FILE_HEADER:
		history_latest_clear(&h->latest);
		break;
	case HISTORY_NODE:
		rv = history_latest_put_node(&h->latest, &row.node) ? 0 : PAWL_ENOMEM;
		break;
	case HISTORY_JOB:
		row.job.last_row_s = row.t_s;
		rv = history_latest_put_job(&h->latest, &row.job) ? 0 : PAWL_ENOMEM;
		break;
	default:
		break;
	}
	return rv == 0 ? 0 : pawl_err_set(err, rv, "no memory for the history");
}

/* Returns the length of the whole steps at the beginning of the file. */
static size_t find_whole(const char *bytes, size_t len_bytes)
{
	size_t whole = 0;
	const char *line = bytes;
	const char *end;

	while ((end = memchr(line, '\n', len_bytes - (size_t)(line - bytes))) != NULL) {
		static const char more[] = ",\"more\":true}";
		size_t len = (size_t)(end - line);
		size_t tail = sizeof(more) - 1;

		if (len < tail || memcmp(end - tail, more, tail) != 0) {
			whole = (size_t)(end + 1 - bytes);
		}
		line = end + 1;
	}
	return whole;
}

static int replay(struct history *h, const char *bytes, size_t len_bytes, struct pawl_err *err)
{
	size_t at = 0;

	while (at < len_bytes) {
		const char *end = memchr(bytes + at, '\n', len_bytes - at);
		size_t len = (size_t)(end - bytes) - at;
		int rv = replay_line(h, bytes + at, len, err);

		if (rv != 0) {
			return rv;
		}
		at += len + 1;
	}
	return 0;
}

/* Reopens the newest file. */
static int resume(struct history *h, struct pawl_err *err)
{
	char path[PATH_MAX];
	char *bytes = NULL;
	size_t len = 0;
	size_t whole = 0;
	int rv = history_file_read(h->dir, h->number, &bytes, &len, err);

	if (rv == 0) {
		whole = find_whole(bytes, len);
		rv = replay(h, bytes, whole, err);
	}
	free(bytes);
	if (rv != 0) {
		return rv;
	}
	history_file_name(h->dir, h->number, path);
	h->grown_bytes = whole;
	h->fd = FAULT_SYS("history.open", open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
	if (h->fd < 0 || (whole < len && ftruncate(h->fd, (off_t)whole) != 0)) {
		return pawl_err_sys(err, "history %s", path);
	}
	if (whole == 0) { /* the file was cut off as it was begun */
		close(h->fd);
		h->fd = -1;
		unlink(path);
		h->number--;
	}
	return 0;
}

static void find_last(struct history *h)
{
	struct pawl_err err = {0};
	uint64_t *numbers = NULL;
	uint32_t n = 0;
	int rv = history_files(h->dir, &numbers, &n, &err);

	h->number = n > 0 ? numbers[n - 1] : 0;
	free(numbers);
	if (rv == 0 && n > 0) {
		rv = resume(h, &err);
	}
	if (rv != 0 && rv != PAWL_ENOENT) {
		log_line(LOG_WARNING, "%s; the history goes on in a new file", err.msg);
		history_latest_clear(&h->latest);
		if (h->fd >= 0) {
			close(h->fd);
			h->fd = -1;
		}
	}
}

/* Gives the files to the group: they may belong to another one. */
static void share(struct history *h)
{
	uint64_t *numbers;
	uint32_t n;

	if (h->number == 0 || !make_dir(h) || history_files(h->dir, &numbers, &n, NULL) != 0) {
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		char path[PATH_MAX];

		history_file_name(h->dir, numbers[i], path);
		if (lchown(path, (uid_t)-1, h->options.group) != 0) {
			log_line(LOG_WARNING, "history %s: its group cannot be set: %s", path,
				strerror(errno));
			break;
		}
	}
	free(numbers);
}

int history_open(struct history **out, const struct history_options *options, struct pawl_err *err)
{
	struct history *h = calloc(1, sizeof(*h));

	if (!h) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the history");
	}
	h->options = *options;
	h->fd = -1;
	snprintf(h->dir, sizeof(h->dir), "%s", options->dir);
	snprintf(h->host, sizeof(h->host), "%s", options->host);
	snprintf(h->policy, sizeof(h->policy), "%s", options->policy);
	find_last(h);
	share(h);
	*out = h;
	return 0;
}

void history_close(struct history *h)
{
	if (!h) {
		return;
	}
	history_latest_deinit(&h->latest);
	json_decref(h->pending);
	free(h->bytes);
	if (h->fd >= 0) {
		close(h->fd);
	}
	free(h);
}
