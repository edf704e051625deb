/* file_mounts: links at paths that a job names, and the errors where a link cannot be made. */
#include "engine/mounts.h"

#include "pawl/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define NOBODY 65534u

static char folder[64];
static char from[80];
static struct pawl_err err;

static int setup(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/pawl-mounts-XXXXXX");
	if (!mkdtemp(folder) || chmod(folder, 0755) != 0) {
		return -1;
	}
	snprintf(from, sizeof(from), "%s/from", folder);
	return mkdir(from, 0755);
}

static int teardown(void **state)
{
	char path[80];

	snprintf(path, sizeof(path), "%s/at", folder);
	remove(path);
	remove(from);
	return remove(folder);
}

static int link_at(const char *name)
{
	char at[80];

	snprintf(at, sizeof(at), "%s/%s", folder, name);
	return mounts_link(at, from, &err);
}

static void a_link_is_made_once(void **state)
{
	char at[80];
	char to[PATH_MAX] = "";

	assert_int_equal(link_at("at"), 0);
	assert_int_equal(link_at("at"), 0); /* the link is there already */
	snprintf(at, sizeof(at), "%s/at", folder);
	assert_true(readlink(at, to, sizeof(to) - 1) > 0);
	assert_string_equal(to, from);
}

static void what_is_there_already_is_reported(void **state)
{
	char path[80];
	FILE *file;

	snprintf(path, sizeof(path), "%s/at", folder);
	file = fopen(path, "we");
	assert_non_null(file);
	fclose(file);
	assert_int_equal(link_at("at"), PAWL_EEXIST);
	assert_non_null(strstr(err.msg, "something else is there"));
	assert_int_equal(link_at("none/at"), PAWL_ENOENT);
	assert_non_null(strstr(err.msg, "/none/at"));
	assert_non_null(strstr(err.msg, "No such file or directory"));
	assert_int_equal(mounts_link("/tmp/x", "/nowhere/at/all", &err), PAWL_ENOENT);
	assert_non_null(strstr(err.msg, "/nowhere/at/all: No such"));
}

/* As /data for an ordinary user: the error is the missing permission, not the missing path. */
static void where_its_user_may_not_write_is_reported(void **state)
{
	pid_t child;
	int status;

	assert_int_equal(chmod(folder, 0555), 0);
	child = fork();
	if (child == 0) {
		bool ok = geteuid() != 0 || setuid(NOBODY) == 0;

		ok = ok && link_at("at") == PAWL_EIO && strstr(err.msg, "Permission denied") &&
			strstr(err.msg, "Create the link yourself");
		if (!ok) {
			print_error("%s\n", err.msg);
		}
		_exit(ok ? 0 : 1);
	}
	assert_true(waitpid(child, &status, 0) == child);
	assert_int_equal(chmod(folder, 0755), 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_link_is_made_once, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_there_already_is_reported, setup, teardown),
		cmocka_unit_test_setup_teardown(where_its_user_may_not_write_is_reported, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
