/* The path of an agent's socket: in the first directory that can be used, and the message if there
 * is none. */
#include "ipc/socket_path.h"
#include "within.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static char runtime[64]; /* a directory of the test */

static int setup(void **state)
{
	snprintf(runtime, sizeof(runtime), "/var/tmp/pawl-path-XXXXXX");
	assert_non_null(mkdtemp(runtime));
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	return 0;
}

static int teardown(void **state)
{
	char dir[80];

	snprintf(dir, sizeof(dir), "%s/pawl", runtime);
	if (rmdir(dir) != 0) {
		unlink(dir);
	}
	assert_int_equal(rmdir(runtime), 0);
	return 0;
}

/* Returns whether the socket is in dir. */
static bool lies_in(const char *dir)
{
	char path[128];
	struct pawl_err err;

	if (agent_socket_path("job", path, sizeof(path), &err) != 0) {
		print_error("%s\n", err.msg);
		return false;
	}
	print_message("%s\n", path);
	return strncmp(path, dir, strlen(dir)) == 0 && path[strlen(dir)] == '/';
}

/* Returns whether the socket is in one of the directories behind XDG_RUNTIME_DIR. */
static bool falls_back(void)
{
	char tmp[32];
	char shm[32];

	snprintf(tmp, sizeof(tmp), "/tmp/pawl-%u", (unsigned)getuid());
	snprintf(shm, sizeof(shm), "/dev/shm/pawl-%u", (unsigned)getuid());
	return lies_in(tmp) || lies_in(shm);
}

static void it_lies_in_the_runtime_directory(void **state)
{
	char dir[80];
	struct stat st;

	snprintf(dir, sizeof(dir), "%s/pawl", runtime);
	assert_true(lies_in(dir));
	assert_true(stat(dir, &st) == 0 && (st.st_mode & 0777) == 0700);
	assert_true(lies_in(dir)); /* the directory exists now */
}

static void a_runtime_directory_that_cannot_be_used_is_passed_over(void **state)
{
	static const char *const names[] = {"/nowhere/at/all", "relative", "",
		"/a/name/that/has/more/bytes/than/a/socket's/path/can/take/after/it"};
	char dir[80];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		setenv("XDG_RUNTIME_DIR", names[i], 1);
		assert_true(falls_back());
	}
	unsetenv("XDG_RUNTIME_DIR");
	assert_true(falls_back());
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	snprintf(dir, sizeof(dir), "%s/pawl", runtime);
	assert_int_equal(mkdir(dir, 0755), 0); /* others may list it */
	assert_true(falls_back());
	assert_int_equal(chmod(dir, 0770), 0);
	assert_true(falls_back());
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(symlink("/var/tmp", dir), 0);
	assert_true(falls_back());
}

static void hide(const char *dir, unsigned long flags)
{
	if (mount("none", dir, "tmpfs", flags, "mode=0700") != 0) {
		_exit(1);
	}
}

/* Runs check where /tmp can only be read, and /dev/shm too if wanted. */
static void run_without(bool shm, bool (*check)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (unshare(CLONE_NEWNS) != 0 ||
			mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
			_exit(77);
		}
		hide("/tmp", MS_RDONLY);
		hide("/dev/shm", shm ? MS_RDONLY : 0);
		_exit(check() ? 0 : 1);
	}
	assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		skip(); /* mounts are root's */
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static bool lies_in_memory(void)
{
	char shm[32];

	snprintf(shm, sizeof(shm), "/dev/shm/pawl-%u", (unsigned)getuid());
	return lies_in(shm);
}

static void it_lies_in_memory_where_tmp_is_read_only(void **state)
{
	setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
	run_without(false, lies_in_memory);
}

static bool is_refused(void)
{
	char path[128];
	struct pawl_err err = {0};
	int rv = agent_socket_path("job", path, sizeof(path), &err);

	print_message("%s\n", err.msg);
	return rv == PAWL_EBUSY && strstr(err.msg, "/nowhere/pawl: No such file") != NULL &&
		strstr(err.msg, "/tmp/pawl-") != NULL &&
		strstr(err.msg, "/dev/shm/pawl-") != NULL &&
		strstr(err.msg, "Read-only file system") != NULL &&
		strstr(err.msg, "set XDG_RUNTIME_DIR") != NULL;
}

static void where_there_is_none_each_is_named_and_the_remedy(void **state)
{
	setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
	run_without(true, is_refused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(it_lies_in_the_runtime_directory, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_runtime_directory_that_cannot_be_used_is_passed_over, setup, teardown),
		cmocka_unit_test_setup_teardown(it_lies_in_memory_where_tmp_is_read_only, setup,
			teardown),
		cmocka_unit_test_setup_teardown(where_there_is_none_each_is_named_and_the_remedy,
			setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
