/* The lock of a root in which other users may write: what they put in the lock's place is neither
 * followed nor written to. */
#include "base/err.h"
#include "ckpt/rootlock.h"
#include "pawl/err.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char root[] = "/tmp/pawl-rootlock.XXXXXX";
static char lock[64];
static char victim[64];

static void put(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int make_root(void **state)
{
	assert_non_null(mkdtemp(root));
	snprintf(lock, sizeof(lock), "%s/.pawl-lock", root);
	snprintf(victim, sizeof(victim), "%s/victim", root);
	put(victim, "what is mine");
	return 0;
}

static int remove_root(void **state)
{
	unlink(victim);
	return rmdir(root);
}

static void assert_refused(const char *expected)
{
	char text[32] = "";
	struct pawl_err err;
	int fd = open(victim, O_RDONLY | O_CLOEXEC);

	assert_int_equal(rootlock_take(root, "one", &err), PAWL_EIO);
	if (!strstr(err.msg, expected)) {
		fail_msg("%s", err.msg);
	}
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	assert_string_equal(text, "what is mine");
	assert_int_equal(remove(lock), 0);
}

static void what_is_no_lock_file_is_refused(void **state)
{
	assert_int_equal(symlink(victim, lock), 0);
	assert_refused("symbolic link");
	assert_int_equal(link(victim, lock), 0);
	assert_refused("has another name");
	assert_int_equal(mkfifo(lock, 0600), 0);
	assert_refused("is a FIFO");
	assert_int_equal(mkdir(lock, 0700), 0);
	assert_refused("is a directory");
}

static void a_link_to_the_lock_that_is_held_is_not_it(void **state)
{
	char other[80];
	int fd = rootlock_take(root, "one", NULL);

	assert_true(fd >= 0 && rootlock_holds(root, fd));
	snprintf(other, sizeof(other), "%s.aside", lock);
	assert_int_equal(rename(lock, other), 0);
	assert_int_equal(symlink(other, lock), 0);
	assert_false(rootlock_holds(root, fd));
	close(fd);
	unlink(lock);
	unlink(other);
}

static void a_holder_gives_a_terminal_no_orders(void **state)
{
	struct pawl_err err;
	int fd;

	remove(lock); /* may be left by a test that failed */
	put(lock, "job \033]0;x\007 (pid 7)\n");
	fd = open(lock, O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(rootlock_take(root, "two", &err), PAWL_EBUSY);
	assert_non_null(strstr(err.msg, "in use by job \\x1b]0;x\\x07 (pid 7)"));
	close(fd);
	unlink(lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_lock_file_is_refused),
		cmocka_unit_test(a_link_to_the_lock_that_is_held_is_not_it),
		cmocka_unit_test(a_holder_gives_a_terminal_no_orders),
	};

	return cmocka_run_group_tests(tests, make_root, remove_root);
}
