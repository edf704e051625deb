/* The launcher's side of the template: the launcher accepts a pid that the template reports only if
 * that process descends from the launcher. A shell script stands for Python here. */
#include "io/loop.h"
#include "launch/run_template.h"
#include "within.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static char dir[] = "/tmp/pawl-template.XXXXXX";

struct reports {
	uint32_t started; /* number of workers started */
	pid_t pid;        /* pid of the last one */
	uint32_t failed;
};

static void on_started(void *user, uint32_t rank, pid_t pid)
{
	struct reports *reports = user;

	assert_int_equal(rank, 7);
	reports->started++;
	reports->pid = pid;
}

static void on_failed(void *user, uint32_t rank)
{
	struct reports *reports = user;

	assert_int_equal(rank, UINT32_MAX);
	reports->failed++;
}

static int make_dir(void **state)
{
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	assert_non_null(mkdtemp(dir));
	return chdir(dir);
}

static int remove_dir(void **state)
{
	unlink("pawl._template");
	return rmdir(dir);
}

/* Runs a template that does this in the shell, and then waits to be ended. */
static void run_fake_template(const char *line, struct reports *reports)
{
	static char *const worker[] = {(char *)(uintptr_t) "script", NULL};
	static char *const env[] = {(char *)(uintptr_t) "PATH=/usr/bin:/bin", NULL};
	const struct run_template_options options = {
		.python = "/bin/sh", /* sh -u -m pawl._template script */
		.worker = worker,
		.env = env,
		.imports = "",
		.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC),
		.stderr_fd = open("/dev/null", O_RDWR | O_CLOEXEC),
		.started = on_started,
		.failed = on_failed,
		.user = reports,
	};
	struct run_template *tmpl;
	struct loop *loop;
	FILE *file = fopen("pawl._template", "we");
	pid_t pid;

	assert_non_null(file);
	fprintf(file, "%s\nexec sleep 98761\n", line);
	fclose(file);
	*reports = (struct reports){0};
	assert_int_equal(loop_open(&loop, NULL), 0);
	assert_int_equal(run_template_open(&tmpl, loop, &options, NULL), 0);
	pid = run_template_pid(tmpl);
	WITHIN(WITHIN_LONG_S, (run_template_poll(tmpl), reports->started + reports->failed > 0));
	run_template_close(tmpl);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	loop_close(loop);
	close(options.null_fd);
	close(options.stderr_fd);
}

static void what_came_of_us_is_taken(void **state)
{
	struct reports reports;

	run_fake_template("sleep 98761 & printf \"started 7 $!\" >&3", &reports);
	assert_int_equal(reports.started, 1);
	assert_int_equal(reports.failed, 0);
	assert_true(reports.pid > 1);
	kill(reports.pid, SIGKILL);
	assert_int_equal(waitpid(reports.pid, NULL, 0), reports.pid);
}

/* "kill(-pid, SIGKILL)" of such a pid would end everything, or somebody else's group. */
static void what_did_not_is_refused(void **state)
{
	static const char *const pids[] = {"1", "0", "-1", "4294967295", "99999999999", "$PPID"};

	for (size_t i = 0; i < sizeof(pids) / sizeof(*pids); i++) {
		char line[64];
		struct reports reports;

		snprintf(line, sizeof(line), "printf \"started 7 %s\" >&3", pids[i]);
		run_fake_template(line, &reports);
		assert_int_equal(reports.started, 0);
		assert_int_equal(reports.failed, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_came_of_us_is_taken),
		cmocka_unit_test(what_did_not_is_refused),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
