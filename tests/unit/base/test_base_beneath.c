/* Opening below a directory that others may write to follows no link, reaches nothing outside and
 * waits for no FIFO: with openat2, and with the walk over names where a kernel has none. */
#include "base/beneath.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "pawl/err.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

static char top[] = "/tmp/pawl-beneath.XXXXXX";
static int dir; /* top/in */

static void put(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int make_all(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[128];
	int fd;

	assert_non_null(mkdtemp(top));
	snprintf(path, sizeof(path), "%s/in", top);
	assert_int_equal(mkdir(path, 0700), 0);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(dir, "sub", 0700), 0);
	put("secret", "secret");
	put("in/file", "mine");
	put("in/sub/file", "inner");
	assert_int_equal(symlinkat("../secret", dir, "link"), 0);
	assert_int_equal(symlinkat("file", dir, "near"), 0);
	assert_int_equal(symlinkat("..", dir, "up"), 0);
	assert_int_equal(symlinkat("none", dir, "broken"), 0);
	assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/in/sock", top);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	return 0;
}

static int remove_all(void **state)
{
	static const char *const names[] = {"in/sub/file", "in/sub", "in/file", "in/link",
		"in/near", "in/up", "in/broken", "in/fifo", "in/sock", "in/new", "in", "secret",
		""};
	char path[128];

	close(dir);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/%s", top, names[i]);
		remove(path);
	}
	return access(top, F_OK) == 0;
}

static int no_openat2(void **state)
{
	fault_arm("beneath.openat2", 1, ENOSYS, true);
	return 0;
}

static int refused_openat2(void **state)
{
	fault_arm("beneath.openat2", 1, EPERM, true);
	return 0;
}

static int disarm(void **state)
{
	fault_disarm();
	return 0;
}

static void assert_refused(const char *path, int flags, int code, const char *expected)
{
	struct pawl_err err;
	struct stat st;

	assert_int_equal(file_open_beneath(dir, "in", path, flags, 0600, BENEATH_ANY, &st, &err),
		code);
	if (!strstr(err.msg, expected)) {
		fail_msg("%s: %s", path, err.msg);
	}
}

static void files_are_opened(void **state)
{
	static const struct {
		const char *path;
		const char *text;
	} files[] = {{"file", "mine"}, {"sub/file", "inner"}, {"./sub//file", "inner"}};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		char text[16] = "";
		struct stat st;
		int fd = file_open_beneath(dir, "in", files[i].path, O_RDONLY, 0, BENEATH_ONE_MOUNT,
			&st, NULL);

		assert_true(fd >= 0);
		assert_int_equal(st.st_size, strlen(files[i].text));
		assert_true(read(fd, text, sizeof(text) - 1) > 0);
		assert_string_equal(text, files[i].text);
		assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
		close(fd);
	}
}

static void what_is_no_plain_file_is_named(void **state)
{
	assert_refused("link", O_RDONLY, PAWL_EINVAL, "in/link is behind a symbolic link");
	assert_refused("near", O_RDONLY, PAWL_EINVAL, "symbolic link");
	assert_refused("up/secret", O_RDONLY, PAWL_EINVAL, "symbolic link");
	assert_refused("fifo", O_RDONLY, PAWL_EINVAL, "is a FIFO");
	assert_refused("fifo", O_WRONLY, PAWL_EINVAL, "a FIFO");
	assert_refused("sock", O_RDONLY, PAWL_EINVAL, "a socket");
	assert_refused("sub", O_RDONLY, PAWL_EINVAL, "is a directory");
	assert_refused("sub", O_RDWR, PAWL_EINVAL, "is a directory");
	assert_refused("none", O_RDONLY, PAWL_ENOENT, "in/none: No such file");
}

static void nothing_is_made_at_the_end_of_a_link(void **state)
{
	struct stat st;
	int fd;

	assert_refused("broken", O_RDWR | O_CREAT, PAWL_EINVAL, "symbolic link");
	assert_refused("up/made", O_RDWR | O_CREAT, PAWL_EINVAL, "symbolic link");
	assert_int_equal(faccessat(dir, "none", F_OK, 0), -1);
	assert_int_equal(faccessat(dir, "../made", F_OK, 0), -1);
	fd = file_open_beneath(dir, "in", "new", O_RDWR | O_CREAT, 0600, BENEATH_ANY, &st, NULL);
	assert_true(fd >= 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	close(fd);
	assert_int_equal(unlinkat(dir, "new", 0), 0);
}

static void nothing_outside_is_reached(void **state)
{
	char whole[64];

	snprintf(whole, sizeof(whole), "%s/secret", top);
	assert_int_equal(beneath_open(dir, "../secret", O_RDONLY, 0, BENEATH_ANY), -1);
	assert_int_equal(errno, EXDEV);
	assert_int_equal(beneath_open(dir, "sub/../../secret", O_RDONLY, 0, BENEATH_ANY), -1);
	assert_int_equal(errno, EXDEV);
	assert_int_equal(beneath_open(dir, whole, O_RDONLY, 0, BENEATH_ANY), -1);
	assert_int_equal(errno, EXDEV);
	assert_int_equal(beneath_open(dir, "..", O_PATH | O_DIRECTORY, 0, BENEATH_ANY), -1);
	assert_int_equal(errno, EXDEV);
}

static void a_mount_is_crossed_only_if_allowed(void **state)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/in/sub", top);
	if (mount("none", path, "tmpfs", 0, NULL) != 0) {
		printf("skipped: nothing can be mounted here\n");
		skip();
	}
	put("in/sub/file", "theirs");
	assert_int_equal(beneath_open(dir, "sub/file", O_RDONLY, 0, BENEATH_ONE_MOUNT), -1);
	assert_int_equal(errno, EXDEV);
	fd = beneath_open(dir, "sub/file", O_RDONLY, 0, BENEATH_ANY);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(umount(path), 0);
}

#define ALL(before, after)                                                                         \
	cmocka_unit_test_setup_teardown(files_are_opened, before, after),                          \
		cmocka_unit_test_setup_teardown(what_is_no_plain_file_is_named, before, after),    \
		cmocka_unit_test_setup_teardown(nothing_is_made_at_the_end_of_a_link, before,      \
			after),                                                                    \
		cmocka_unit_test_setup_teardown(nothing_outside_is_reached, before, after),        \
		cmocka_unit_test_setup_teardown(a_mount_is_crossed_only_if_allowed, before, after)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALL(NULL, NULL),
		ALL(no_openat2, disarm),
		ALL(refused_openat2, disarm),
	};

	return cmocka_run_group_tests(tests, make_all, remove_all);
}
