/* A small file that is put in place is the old one or the new one, whichever step fails, and no
 * temporary file stays beside it. */
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "pawl/err.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[] = "/tmp/pawl-file.XXXXXX";
static char path[64];
static char aside[64];

static int make_dir(void **state)
{
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/file", dir);
	snprintf(aside, sizeof(aside), "%s/file.new", dir);
	return 0;
}

static int remove_dir(void **state)
{
	unlink(path);
	return rmdir(dir); /* fails if anything is left in it */
}

static void assert_holds(const char *name, const char *text)
{
	char found[16] = "";
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(read(fd, found, sizeof(found)), (ssize_t)strlen(text));
	assert_string_equal(found, text);
	close(fd);
}

static void is_old_or_new(void **state)
{
	struct stat st;
	uint64_t steps;

	assert_int_equal(file_put(path, "old", 3, 0600, true, NULL), 0);
	assert_holds(path, "old");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	fault_arm("file.", UINT64_MAX, ENOSPC, false);
	assert_int_equal(file_put(path, "old", 3, 0600, true, NULL), 0);
	steps = fault_count();
	assert_int_equal(steps, 4); /* write, sync, rename, sync of the directory */
	for (uint64_t nth = 1; nth <= steps; nth++) {
		fault_arm("file.", nth, ENOSPC, false);
		assert_int_equal(file_put(path, "newer", 5, 0600, true, NULL), PAWL_ENOSPC);
		fault_disarm();
		assert_holds(path, nth < steps ? "old" : "newer");
		assert_int_equal(access(aside, F_OK), -1);
	}
	fault_arm("file.sync", 1, ENOSPC, true);
	/* A quick put does not sync. */
	assert_int_equal(file_put(path, "quick", 5, 0600, false, NULL), 0);
	fault_disarm();
	assert_holds(path, "quick");
}

static void does_not_write_through_a_link(void **state)
{
	char other[64];

	snprintf(other, sizeof(other), "%s/other", dir);
	assert_int_equal(file_put(other, "theirs", 6, 0600, false, NULL), 0);
	assert_int_equal(symlink(other, aside), 0);
	assert_int_equal(file_put(path, "ours", 4, 0600, true, NULL), 0);
	assert_holds(path, "ours");
	assert_holds(other, "theirs");
	unlink(other);
}

/* A name that is no plain file gives another error than a missing one, and opening it never
 * waits. */
static void opens_nothing_but_files(void **state)
{
	struct stat st;
	int fd;

	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(file_open_plain(AT_FDCWD, path, O_RDONLY, 0, &st), -1);
	assert_true(file_is_special(errno));
	assert_int_equal(file_open_plain(AT_FDCWD, path, O_WRONLY, 0, &st), -1);
	assert_true(file_is_special(errno));
	assert_string_equal(file_kind(AT_FDCWD, path), "a FIFO");
	unlink(path);
	assert_int_equal(file_open_plain(AT_FDCWD, dir, O_RDONLY, 0, &st), -1);
	assert_true(file_is_special(errno));
	assert_int_equal(file_open_plain(AT_FDCWD, "/dev/null", O_RDONLY, 0, &st), -1);
	assert_true(file_is_special(errno));
	assert_int_equal(file_open_plain(AT_FDCWD, path, O_RDONLY, 0, &st), -1);
	assert_false(file_is_special(errno));
	assert_string_equal(file_kind(AT_FDCWD, path), "");
	assert_int_equal(symlink("nowhere", path), 0);
	assert_string_equal(file_kind(AT_FDCWD, path), "a symbolic link that leads nowhere");
	unlink(path);
	fd = file_open_plain(AT_FDCWD, path, O_RDWR | O_CREAT, 0600, &st);
	assert_true(fd >= 0 && S_ISREG(st.st_mode));
	close(fd);
	assert_int_equal(symlink(path, aside), 0);
	assert_int_equal(file_open_plain(AT_FDCWD, aside, O_WRONLY | O_CREAT, 0600, &st), -1);
	assert_true(file_is_special(errno));
	fd = file_open_plain(AT_FDCWD, aside, O_RDONLY, 0, &st);
	assert_true(fd >= 0);
	close(fd);
	unlink(aside);
}

static void folders_are_found_from_the_top_down(void **state)
{
	static const struct {
		const char *path;
		size_t folders[4];
	} known[] = {{"", {0}}, {"a", {0}}, {"/", {0}}, {"/a", {0}}, {"a/", {1, 0}},
		{"/a/", {2, 0}}, {"a/b/c", {1, 3, 0}}, {"/a/b/c", {2, 4, 0}}, {"a//b", {1, 2, 0}}};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		size_t len = 0;

		for (size_t j = 0; j == 0 || len > 0; j++) {
			len = file_next_folder(known[i].path, len);
			assert_int_equal(len, known[i].folders[j]);
		}
	}
}

static void folders_are_made(void **state)
{
	static char longest[PATH_MAX + 16];
	char inner[80];
	int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(file_make_folders(at, "a/b/file", 0700), 0);
	/* The folders exist already. */
	assert_int_equal(file_make_folders(at, "a/b/file", 0700), 0);
	snprintf(inner, sizeof(inner), "%s/a/c/", dir);
	assert_int_equal(file_make_folders(AT_FDCWD, inner, 0700), 0);
	assert_int_equal(unlinkat(at, "a/c", AT_REMOVEDIR), 0);
	assert_int_equal(unlinkat(at, "a/b", AT_REMOVEDIR), 0);
	assert_int_equal(unlinkat(at, "a", AT_REMOVEDIR), 0);
	assert_int_equal(mknodat(at, "a", S_IFREG | 0600, 0), 0);
	assert_int_equal(file_make_folders(at, "a/b/file", 0700), -1);
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(unlinkat(at, "a", 0), 0);
	memset(longest, 'x', sizeof(longest) - 2);
	longest[sizeof(longest) - 2] = '/';
	assert_int_equal(file_make_folders(at, longest, 0700), -1);
	assert_int_equal(errno, ENAMETOOLONG);
	close(at);
}

static void names_what_it_could_not_write(void **state)
{
	static char longest[8192];
	struct pawl_err err;

	memset(longest, 'x', sizeof(longest) - 1);
	assert_int_equal(file_put(longest, "", 0, 0600, true, &err), PAWL_EINVAL);
	snprintf(longest, sizeof(longest), "%s/none/file", dir);
	assert_int_equal(file_put(longest, "", 0, 0600, true, &err), PAWL_ENOENT);
	assert_non_null(strstr(err.msg, longest));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_old_or_new),
		cmocka_unit_test(does_not_write_through_a_link),
		cmocka_unit_test(opens_nothing_but_files),
		cmocka_unit_test(folders_are_found_from_the_top_down),
		cmocka_unit_test(folders_are_made),
		cmocka_unit_test(names_what_it_could_not_write),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
