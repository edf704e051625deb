/* The keeper of a part: the output of the programs is in the part's log, which is bounded. */
#include "engine/job_log.h"
#include "engine/slurm/pilot/slurm_keeper.h"
#include "engine/slurm/slurm_form.h"

#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[] = "/tmp/pawl-keep-XXXXXX";
static bool fork_fails;

pid_t __real_fork(void);
pid_t __wrap_fork(void);

pid_t __wrap_fork(void)
{
	if (fork_fails) {
		errno = EAGAIN;
		return -1;
	}
	return __real_fork();
}

static const char *in_dir(const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

/* Runs a part to its end. setup may be NULL. Returns the part's exit status. */
static int run_part(const char *setup, const char *run, const char *mount)
{
	static char sh[] = "sh";
	static char is[] = "-c";
	static char path[] = "PATH=/usr/bin:/bin";
	char texts[3][128];
	char *none[] = {NULL};
	char *mounts[] = {texts[0], texts[0], NULL};
	char *first[] = {sh, is, texts[1], NULL};
	char *second[] = {sh, is, texts[2], NULL};
	char *env[] = {path, NULL};
	char log[64];
	const struct slurm_program_view view = {.cwd = dir,
		.log = log,
		.mounts = mount ? mounts : none,
		.setup = setup ? first : none,
		.run = second,
		.setup_env = none,
		.env = none};
	struct pawl_err err;
	int started;
	int status;
	pid_t pid;

	snprintf(texts[0], sizeof(texts[0]), "%s", mount ? mount : "");
	snprintf(texts[1], sizeof(texts[1]), "%s", setup ? setup : "");
	snprintf(texts[2], sizeof(texts[2]), "%s", run);
	snprintf(log, sizeof(log), "%s", in_dir("log"));
	assert_int_equal(slurm_keeper_start(&view, "", env, &pid, &started, &err), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(started);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void assert_log(const char *expected)
{
	FILE *file = fopen(in_dir("log"), "re");
	char text[512] = "";

	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(text, expected);
	unlink(in_dir("log"));
}

static void all_that_is_printed_is_in_the_log(void **state)
{
	assert_int_equal(run_part("echo setup; echo to stderr >&2", "echo run; exit 7", NULL), 7);
	assert_int_equal(run_part(NULL, "echo again; (sleep 60; echo never) & kill -9 $$", NULL),
		137);
	assert_log("setup\nto stderr\nrun\nagain\n");
}

/* The log also has the reason why a part could not start. */
static void what_cannot_begin_logs_why(void **state)
{
	struct stat st;

	assert_int_equal(run_part(NULL, "echo never", "/proc/none"), SLURM_EXIT_NOT_BEGUN);
	assert_int_equal(stat(in_dir("log"), &st), 0);
	assert_true(st.st_size > 0);
	unlink(in_dir("log"));
}

static void a_log_does_not_fill_the_disk(void **state)
{
	char name[16];
	struct stat st;

	assert_int_equal(run_part(NULL, "head -c 100000000 /dev/zero; echo the end", NULL), 0);
	for (unsigned i = 0; i <= JOB_LOG_FILES; i++) {
		snprintf(name, sizeof(name), i > 0 ? "log.%u" : "log", i);
		assert_int_equal(stat(in_dir(name), &st) == 0, i < JOB_LOG_FILES);
		if (i < JOB_LOG_FILES) {
			assert_true(st.st_size <= (off_t)JOB_LOG_BYTES + 65536);
			assert_true(i == 0 || st.st_size >= (off_t)JOB_LOG_BYTES);
		}
		unlink(in_dir(name));
	}
}

/* The pilot starts no other one while a scale command has a process. */
static void a_scale_command_that_cannot_begin_has_no_process(void **state)
{
	static char program[] = "true";
	char *scale[] = {program, NULL};
	char *none[] = {NULL};
	const struct slurm_program_view view = {.scale = scale, .env = none};
	struct pawl_err err;
	pid_t pid = 0;

	fork_fails = true;
	assert_int_not_equal(slurm_keeper_scale(&view, none, 2, &pid, &err), 0);
	fork_fails = false;
	assert_int_equal(pid, 0);
	assert_int_equal(slurm_keeper_scale(&view, none, 2, &pid, &err), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_that_is_printed_is_in_the_log),
		cmocka_unit_test(what_cannot_begin_logs_why),
		cmocka_unit_test(a_scale_command_that_cannot_begin_has_no_process),
		cmocka_unit_test(a_log_does_not_fill_the_disk)};
	int rv;

	if (!mkdtemp(dir)) {
		return 1;
	}
	rv = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(dir);
	return rv;
}
