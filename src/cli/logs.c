/* pawl logs: what a job prints, from all its starts.
 */
#include "cli/jobs.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "sched/job_log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COPY_MAX 65536u

enum option { FOLLOW, JSON, ROOT };

static const struct cli_option options[] = {
	[FOLLOW] = {"--follow", 'f', NULL, "go on until the job is over"},
	[JSON] = {"--json", 0, NULL, "one JSON document: the files, the oldest first"},
	[ROOT] = JOBS_ROOT_OPTION,
	{NULL},
};

/* What was asked for. */
struct asked {
	const char *job;
	const char *root;
	bool follow;
	bool json;
};

/* "DIR/log.2", or "DIR/log" for 0. */
static void name_file(const char *dir, unsigned i, char path[PATH_MAX + 32])
{
	if (i > 0) {
		snprintf(path, PATH_MAX + 32, "%s/%s.%u", dir, JOB_LOG_NAME, i);
	} else {
		snprintf(path, PATH_MAX + 32, "%s/%s", dir, JOB_LOG_NAME);
	}
}

/* How far a log was read. */
struct reading {
	const char *dir;
	int fd;      /* of the file that is read; -1: none yet */
	bool closed; /* nobody takes what is printed any more */
};

/* What is there from here on. */
static int copy_rest(struct reading *r, struct pawl_err *err)
{
	static char bytes[COPY_MAX];
	ssize_t n;

	while ((n = read(r->fd, bytes, sizeof(bytes))) > 0) {
		if (fwrite(bytes, 1, (size_t)n, stdout) != (size_t)n) {
			break;
		}
	}
	if (n < 0) {
		return pawl_err_sys(err, "read the log in %s", r->dir);
	}
	if (n > 0 || fflush(stdout) != 0) {
		r->closed = errno == EPIPE;
		return pawl_err_sys(err, "write");
	}
	return 0;
}

/* Whether DIR/log.i is the one that is read. */
static bool is_ours(const struct reading *r, unsigned i)
{
	char path[PATH_MAX + 32];
	struct stat ours;
	struct stat there;

	name_file(r->dir, i, path);
	return fstat(r->fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
		ours.st_dev == there.st_dev;
}

/* Which one it is by now; JOB_LOG_FILES: none any more. They grow older, never newer: looked for
 * from the newest on, none escapes. */
static unsigned find_ours(const struct reading *r)
{
	unsigned i = 0;

	while (i < JOB_LOG_FILES && !is_ours(r, i)) {
		i++;
	}
	return i;
}

static int open_file(const char *dir, unsigned i)
{
	char path[PATH_MAX + 32];

	name_file(dir, i, path);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Whether any of [from, to) is there. */
static bool is_any(const char *dir, unsigned from, unsigned to)
{
	char path[PATH_MAX + 32];
	bool any = false;

	for (unsigned i = from; i < to && !any; i++) {
		name_file(dir, i, path);
		any = access(path, R_OK) == 0;
	}
	return any;
}

/* -1: there is none. If one became older while they were looked at, they are once more. */
static int open_oldest(const char *dir)
{
	for (unsigned i = JOB_LOG_FILES; i-- > 0;) {
		int fd = open_file(dir, i);

		if (fd >= 0 && !is_any(dir, i + 1, JOB_LOG_FILES)) {
			return fd;
		}
		if (fd >= 0) {
			close(fd);
			i = JOB_LOG_FILES;
		}
	}
	return -1;
}

/* The one after the i-th, which is ours; *fd is -1 if there is none yet. False: they were renamed
 * meanwhile, the older ones first: ours has its name no more then, or one between is there. */
static bool open_next(const struct reading *r, unsigned i, int *fd)
{
	unsigned next = i;

	*fd = -1;
	while (*fd < 0 && next > 0) {
		next--;
		*fd = open_file(r->dir, next);
	}
	if (is_ours(r, i) && !is_any(r->dir, next + 1, i)) {
		return true;
	}
	if (*fd >= 0) {
		close(*fd);
	}
	return false;
}

/* Ours is none of them any more. */
static void start_over(struct reading *r)
{
	close(r->fd);
	r->fd = open_oldest(r->dir);
	if (r->fd >= 0) {
		fflush(stdout);
		cli_print(stderr,
			"pawl logs: lines are missing here: the job printed faster than "
			"they were read\n");
	}
}

/* From ours, the i-th, to the one after it. False: there is none yet. */
static bool go_on(struct reading *r, unsigned i)
{
	int fd;

	if (i == JOB_LOG_FILES) {
		start_over(r);
	} else if (open_next(r, i, &fd)) {
		if (fd < 0) {
			return false;
		}
		close(r->fd);
		r->fd = fd;
	}
	return true;
}

/* All that is there, file after file, to the end of the newest. */
static int copy_all(struct reading *r, struct pawl_err *err)
{
	unsigned i = 1;
	int rv = 0;

	r->fd = r->fd >= 0 ? r->fd : open_oldest(r->dir);
	while (rv == 0 && i > 0 && r->fd >= 0) {
		rv = copy_rest(r, err);
		i = rv == 0 ? find_ours(r) : 0;
		if (i > 0) {
			rv = copy_rest(r, err); /* what came before it was renamed */
			i = rv == 0 && go_on(r, i) ? i : 0;
		}
	}
	return rv;
}

static int is_over(struct talk *talk, const char *job, bool *over, struct pawl_err *err)
{
	static struct talk_shown shown;
	int rv = jobs_show(talk, job, &shown, err);

	*over = rv == 0 && shown.job.over;
	return rv;
}

static int follow(struct talk *talk, uint64_t id, struct reading *r, struct pawl_err *err)
{
	int64_t ask_ns = 0;
	char job[32];
	bool over = false;
	bool last = false;
	int rv = 0;

	snprintf(job, sizeof(job), "%llu", (unsigned long long)id);
	while (rv == 0 && !last) {
		last = over; /* and what it wrote before that is there */
		rv = copy_all(r, err);
		if (rv == 0 && clock_mono_ns() >= ask_ns) {
			rv = is_over(talk, job, &over, err);
			ask_ns = clock_mono_ns() + times_ns(TIME_LOGS_ASK);
		}
		if (!over) {
			times_sleep(TIME_LOGS_LOOK);
		}
	}
	return rv;
}

static int list_files(const char *dir)
{
	json_t *files = json_array();
	char path[PATH_MAX + 32];

	for (unsigned i = JOB_LOG_FILES; i-- > 0;) {
		name_file(dir, i, path);
		if (access(path, F_OK) == 0) {
			json_array_append_new(files, cli_json_text(path));
		}
	}
	return cli_json(json_pack("{s:o}", "files", files));
}

static int show_logs(const struct cli_command *command, const struct asked *asked)
{
	static struct talk_shown shown;
	struct talk *talk = NULL;
	struct reading reading = {.dir = shown.log_dir, .fd = -1};
	char path[PATH_MAX + 32];
	struct pawl_err err;
	int rv = jobs_open(&talk, asked->root, &err);

	rv = rv == 0 ? jobs_show(talk, asked->job, &shown, &err) : rv;
	if (rv == 0) {
		name_file(shown.log_dir, 0, path);
		if (access(path, R_OK) != 0 && errno == EACCES) {
			rv = pawl_err_sys(&err, "job %llu is another user's: %s",
				(unsigned long long)shown.job.id, path);
		}
	}
	if (rv == 0 && asked->json) {
		talk_close(talk);
		return list_files(shown.log_dir);
	}
	if (rv == 0) {
		rv = asked->follow ? follow(talk, shown.job.id, &reading, &err)
				   : copy_all(&reading, &err);
	}
	if (reading.fd >= 0) {
		close(reading.fd);
	}
	talk_close(talk);
	if (reading.closed) {
		return CLI_FAILURE; /* as they wish: nothing is said */
	}
	return rv == 0 ? CLI_OK : cli_fail(command, &err);
}

static int main_logs(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct asked asked = {NULL};
	int what;

	while ((what = cli_read(&reader)) >= CLI_ARG) {
		if (what == CLI_ARG && asked.job) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		asked.job = what == CLI_ARG ? reader.value : asked.job;
		asked.follow = asked.follow || what == FOLLOW;
		asked.json = asked.json || what == JSON;
		asked.root = what == ROOT ? reader.value : asked.root;
	}
	if (what != CLI_END) {
		return cli_leave(what);
	}
	return asked.job ? show_logs(command, &asked) : cli_usage(command, "which JOB?");
}

const struct cli_command cli_logs = {
	.name = "logs",
	.args = "JOB",
	.summary = "Print what a job has printed",
	.details =
		"Of all its starts, setup included; of a job that printed very much, the newest\n"
		"64 MiB.\n",
	.options = options,
	.main = main_logs,
};
