/* pawl logs: what a job prints, from all its starts.
 */
#include "cli/jobs.h"

#include "base/clock.h"
#include "base/err.h"
#include "sched/job_log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS  100000000L
#define ASK_NS   (500 * NS_PER_MS) /* between two questions whether it is over */
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

/* What is there from here on. False: stdout is closed. */
static bool copy_rest(int fd)
{
	static char bytes[COPY_MAX];
	ssize_t n;

	while ((n = read(fd, bytes, sizeof(bytes))) > 0) {
		if (fwrite(bytes, 1, (size_t)n, stdout) != (size_t)n) {
			return false;
		}
	}
	return fflush(stdout) == 0;
}

/* The file that is written to is another one by now. */
static bool was_rotated(int fd, const char *path)
{
	struct stat ours;
	struct stat there;

	return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino != there.st_ino;
}

/* Those before the newest, then the newest, which stays open: its descriptor; -1: there is none. */
static int copy_all(const char *dir)
{
	char path[PATH_MAX + 32];
	int fd = -1;

	for (unsigned i = JOB_LOG_FILES; i-- > 0;) {
		name_file(dir, i, path);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && !copy_rest(fd)) {
			close(fd);
			return -1;
		}
		if (fd >= 0 && i > 0) {
			close(fd);
		}
	}
	return fd;
}

static int is_over(struct talk *talk, const char *job, bool *over, struct pawl_err *err)
{
	static struct talk_shown shown;
	int rv = jobs_show(talk, job, &shown, err);

	*over = rv == 0 && shown.job.over;
	return rv;
}

static int follow(struct talk *talk, uint64_t id, const char *dir, int fd, struct pawl_err *err)
{
	const struct timespec pause = {.tv_nsec = POLL_NS};
	int64_t ask_ns = 0;
	char path[PATH_MAX + 32];
	char job[32];
	bool over = false;
	bool last = false;
	int rv = 0;

	name_file(dir, 0, path);
	snprintf(job, sizeof(job), "%llu", (unsigned long long)id);
	while (rv == 0 && !last) {
		last = over; /* and what it wrote before that is there */
		if (fd < 0) {
			fd = open(path, O_RDONLY | O_CLOEXEC);
		}
		if (fd >= 0 && !copy_rest(fd)) {
			break;
		}
		if (fd >= 0 && was_rotated(fd, path)) {
			close(fd);
			fd = -1;
			last = false;
			continue;
		}
		if (clock_mono_ns() >= ask_ns) {
			rv = is_over(talk, job, &over, err);
			ask_ns = clock_mono_ns() + ASK_NS;
		}
		if (!over) {
			nanosleep(&pause, NULL);
		}
	}
	if (fd >= 0) {
		close(fd);
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
	char path[PATH_MAX + 32];
	struct pawl_err err;
	int fd = -1;
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
		fd = copy_all(shown.log_dir);
		rv = asked->follow ? follow(talk, shown.job.id, shown.log_dir, fd, &err) : 0;
	}
	if (fd >= 0 && !asked->follow) {
		close(fd);
	}
	talk_close(talk);
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
