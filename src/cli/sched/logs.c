/*
 * pawl logs: prints what a job has printed, from all its starts.
 *
 * The files are in a directory of the job's user, who can put links and FIFOs there. They are
 * opened by name in one open directory, with that user's rights if root asks, and only plain files
 * are read.
 */
#include "cli/sched/jobs.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/times.h"
#include "cli/sched/as_user.h"
#include "cli/visible.h"
#include "engine/job_log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COPY_MAX   65536u
#define NAME_BYTES 32u /* bytes of "log.3", terminator included */

enum option { FOLLOW, JSON, ROOT };

static const struct cli_option options[] = {
	[FOLLOW] = {"--follow", 'f', NULL, "follow the log until the job ends"},
	[JSON] = {"--json", 0, NULL, "print one JSON document: the log files, oldest first"},
	[ROOT] = JOBS_ROOT_OPTION,
	{NULL},
};

/* The command line. */
struct logs_args {
	const char *job;
	const char *root;
	bool follow;
	bool json;
};

/* Names a file: "log.2", or "log" for 0. */
static const char *name_file(unsigned i, char name[NAME_BYTES])
{
	if (i > 0) {
		snprintf(name, NAME_BYTES, "%s.%u", JOB_LOG_NAME, i);
	} else {
		snprintf(name, NAME_BYTES, "%s", JOB_LOG_NAME);
	}
	return name;
}

/* State of reading a job's log. */
struct reading {
	uint64_t job;
	const char *dir;
	int dir_fd;             /* descriptor of dir; -1: not there yet */
	int fd;                 /* descriptor of the file that is read; -1: none yet */
	bool closed;            /* nobody reads what is printed any more */
	bool terminal;          /* stdout is a terminal: printed through visible */
	struct visible visible; /* shows control characters, so that the terminal obeys none */
};

/* Opens the directory once; all files are found in it. A missing directory is no error: the job may
 * not have made it yet. */
static int open_dir(struct reading *r, struct pawl_err *err)
{
	if (r->dir_fd >= 0) {
		return 0;
	}
	r->dir_fd = open(r->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (r->dir_fd < 0) {
		return errno == ENOENT ? 0 : pawl_err_sys(err, "%s", r->dir);
	}
	if (faccessat(r->dir_fd, ".", X_OK, AT_EACCESS) != 0) {
		return pawl_err_sys(err, "job %llu is another user's: %s/%s",
			(unsigned long long)r->job, r->dir, JOB_LOG_NAME);
	}
	return 0;
}

static void close_files(struct reading *r)
{
	if (r->fd >= 0) {
		close(r->fd);
	}
	if (r->dir_fd >= 0) {
		close(r->dir_fd);
	}
}

static bool print(struct reading *r, const char *bytes, size_t len_bytes)
{
	return r->terminal ? visible_put(&r->visible, bytes, len_bytes)
			   : fwrite(bytes, 1, len_bytes, stdout) == len_bytes;
}

/* Prints the rest of the file that is read. */
static int copy_rest(struct reading *r, struct pawl_err *err)
{
	static char bytes[COPY_MAX];
	ssize_t n;

	while ((n = read(r->fd, bytes, sizeof(bytes))) > 0) {
		if (!print(r, bytes, (size_t)n)) {
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

/* Returns whether log.i is the file that is read. */
static bool is_current(const struct reading *r, unsigned i)
{
	char name[NAME_BYTES];
	struct stat ours;
	struct stat there;

	return fstat(r->fd, &ours) == 0 &&
		fstatat(r->dir_fd, name_file(i, name), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

/* Returns the number that the file being read has by now; JOB_LOG_FILES: it is gone. Numbers of
 * files only rise: a search from the newest on misses none. */
static unsigned find_current(const struct reading *r)
{
	unsigned i = 0;

	while (i < JOB_LOG_FILES && !is_current(r, i)) {
		i++;
	}
	return i;
}

/* Opens log.i; *fd is -1 if there is none. The owner of the directory may have put anything
 * there. */
static int open_file(const struct reading *r, unsigned i, int *fd, struct pawl_err *err)
{
	char name[NAME_BYTES];
	struct stat st;
	int rv = file_open_beneath(r->dir_fd, r->dir, name_file(i, name), O_RDONLY, 0, BENEATH_ANY,
		&st, err);

	*fd = rv >= 0 ? rv : -1;
	return rv >= 0 || rv == PAWL_ENOENT ? 0 : rv;
}

/* Returns whether any of the files [from, to) is there. */
static bool is_any(const struct reading *r, unsigned from, unsigned to)
{
	char name[NAME_BYTES];
	struct stat st;
	bool any = false;

	for (unsigned i = from; i < to && !any; i++) {
		any = fstatat(r->dir_fd, name_file(i, name), &st, AT_SYMLINK_NOFOLLOW) == 0;
	}
	return any;
}

/* Opens the oldest file; r->fd stays -1 if there is none. Searches again if a file became older
 * meanwhile. */
static int open_oldest(struct reading *r, struct pawl_err *err)
{
	int rv = 0;

	for (unsigned i = JOB_LOG_FILES; i-- > 0 && rv == 0 && r->fd < 0;) {
		rv = open_file(r, i, &r->fd, err);
		if (r->fd >= 0 && is_any(r, i + 1, JOB_LOG_FILES)) {
			close(r->fd);
			r->fd = -1;
			i = JOB_LOG_FILES;
		}
	}
	return rv;
}

/* Opens the file after log.i, which is being read; *fd is -1 if there is none yet. *moved: files
 * were renamed meanwhile, the older ones first, so that log.i is another file now, or another file
 * is between. */
static int open_next(const struct reading *r, unsigned i, int *fd, bool *moved,
	struct pawl_err *err)
{
	unsigned next = i;
	int rv = 0;

	*fd = -1;
	while (rv == 0 && *fd < 0 && next > 0) {
		next--;
		rv = open_file(r, next, fd, err);
	}
	*moved = rv == 0 && (!is_current(r, i) || is_any(r, next + 1, i));
	if (*moved && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return rv;
}

/* Begins again with the oldest file: the one that was being read is gone. */
static int start_over(struct reading *r, struct pawl_err *err)
{
	int rv;

	close(r->fd);
	r->fd = -1;
	rv = open_oldest(r, err);
	if (r->fd >= 0) {
		fflush(stdout);
		cli_print(stderr,
			"pawl logs: lines are missing here: the job printed faster than "
			"they were read\n");
	}
	return rv;
}

/* Goes on from log.i, which is being read, to the next file. *last: there is none yet. */
static int advance_file(struct reading *r, unsigned i, bool *last, struct pawl_err *err)
{
	bool moved;
	int rv;
	int fd;

	*last = false;
	if (i == JOB_LOG_FILES) {
		return start_over(r, err);
	}
	rv = open_next(r, i, &fd, &moved, err);
	*last = rv == 0 && !moved && fd < 0;
	if (fd >= 0) {
		close(r->fd);
		r->fd = fd;
	}
	return rv;
}

/* Prints all that is there, file after file, to the end of the newest. */
static int copy_all(struct reading *r, struct pawl_err *err)
{
	bool last = false;
	int rv = open_dir(r, err);

	if (rv == 0 && r->dir_fd >= 0 && r->fd < 0) {
		rv = open_oldest(r, err);
	}
	while (rv == 0 && !last && r->fd >= 0) {
		unsigned i;

		rv = copy_rest(r, err);
		i = rv == 0 ? find_current(r) : 0;
		last = i == 0;
		if (rv == 0 && !last) {
			rv = copy_rest(r, err); /* written before the file was renamed */
			rv = rv == 0 ? advance_file(r, i, &last, err) : rv;
		}
	}
	return rv;
}

static int is_over(struct sched_client *client, const char *job, bool *over, struct pawl_err *err)
{
	static struct sched_msg_shown shown;
	int rv = jobs_show(client, job, &shown, err);

	*over = rv == 0 && shown.job.over;
	return rv;
}

static int follow(struct sched_client *client, uint64_t id, struct reading *r, struct pawl_err *err)
{
	int64_t ask_ns = 0;
	char job[32];
	bool over = false;
	bool last = false;
	int rv = 0;

	snprintf(job, sizeof(job), "%llu", (unsigned long long)id);
	while (rv == 0 && !last) {
		last = over; /* a job that is over writes no more: this copy takes the rest */
		rv = copy_all(r, err);
		if (rv == 0 && clock_mono_ns() >= ask_ns) {
			rv = is_over(client, job, &over, err);
			ask_ns = clock_mono_ns() + times_ns(TIME_LOGS_ASK);
		}
		if (!over) {
			times_sleep(TIME_LOGS_LOOK);
		}
	}
	return rv;
}

static json_t *list_files(const struct reading *r)
{
	json_t *files = json_array();
	char name[NAME_BYTES];
	char path[PATH_MAX + NAME_BYTES];

	for (unsigned i = JOB_LOG_FILES; i-- > 0 && r->dir_fd >= 0;) {
		if (is_any(r, i, i + 1)) {
			snprintf(path, sizeof(path), "%s/%s", r->dir, name_file(i, name));
			json_array_append_new(files, cli_json_text(path));
		}
	}
	return json_pack("{s:o}", "files", files);
}

/* Reads, or with --json lists, the files. Sets *files with --json alone. */
static int read_logs(struct sched_client *client, const struct logs_args *args, struct reading *r,
	json_t **files, struct pawl_err *err)
{
	int rv;

	if (args->json) {
		rv = open_dir(r, err);
		*files = rv == 0 ? list_files(r) : NULL;
		return rv;
	}
	rv = args->follow ? follow(client, r->job, r, err) : copy_all(r, err);
	if (r->terminal && !r->closed) {
		visible_end(&r->visible);
		fflush(stdout);
	}
	return rv;
}

static int show_logs(const struct cli_command *command, const struct logs_args *args)
{
	static struct sched_msg_shown shown;
	struct reading reading = {.dir = shown.log_dir,
		.dir_fd = -1,
		.fd = -1,
		.terminal = isatty(STDOUT_FILENO) == 1,
		.visible = {.to = stdout}};
	struct as_user runner = {.other = false};
	struct sched_client *client = NULL;
	json_t *files = NULL;
	struct pawl_err err;
	uint32_t uid = 0;
	int rv = jobs_open(&client, args->root, &err);

	rv = rv == 0 ? jobs_show(client, args->job, &shown, &err) : rv;
	reading.job = shown.job.id;
	rv = rv == 0 ? jobs_runner(client, &shown, &uid, &err) : rv;
	rv = rv == 0 ? as_user_init(&runner, uid, &err) : rv;
	rv = rv == 0 ? as_user_begin(&runner, &err) : rv;
	if (rv == 0) {
		rv = read_logs(client, args, &reading, &files, &err);
		as_user_end(&runner);
	}
	close_files(&reading);
	as_user_deinit(&runner);
	sched_client_close(client);
	if (reading.closed) {
		return CLI_FAILURE; /* nobody reads stdout any more: no message */
	}
	return rv != 0 ? cli_fail(command, &err) : args->json ? cli_json(files) : CLI_OK;
}

static int main_logs(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct logs_args args = {NULL};
	int what;

	while ((what = cli_read(&reader)) >= CLI_ARG) {
		if (what == CLI_ARG && args.job) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		args.job = what == CLI_ARG ? reader.value : args.job;
		args.follow = args.follow || what == FOLLOW;
		args.json = args.json || what == JSON;
		args.root = what == ROOT ? reader.value : args.root;
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	return args.job ? show_logs(command, &args) : cli_usage(command, "JOB is needed");
}

const struct cli_command cli_logs = {
	.name = "logs",
	.args = "JOB",
	.summary = "Print a job's output",
	.details = "This is the output of all starts, including setup, at most the newest 64 MiB.\n"
		   "On a terminal, control characters are shown as \\x1b, except for colours and\n"
		   "carriage returns. Elsewhere, the output is exactly what the job printed.\n",
	.options = options,
	.main = main_logs,
};
