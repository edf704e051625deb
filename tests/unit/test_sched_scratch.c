/* Which directory is taken for what jobs write for a while, and that one goes with all it holds. */
#include "base/err.h"
#include "base/fault.h"
#include "pawl/err.h"
#include "sched/scratch.h"
#include "within.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define NOBODY 65534

static char root[] = "/tmp/pawl-scratch-XXXXXX";

static void make(char path[PATH_MAX], const char *name)
{
	snprintf(path, PATH_MAX, "%s/%s", root, name);
	assert_int_equal(mkdir(path, 0755), 0);
}

/* Chooses with a that is full after its first write. One that took half a second for that has no
 * second one, and it is b that is full then, from the start: once more. */
static int choose_beside_full(const char *const *dirs, uint32_t *best, struct pawl_err *err)
{
	double rate;
	int rv = PAWL_ENOSPC;

	for (int i = 0; i < 20 && rv != 0; i++) {
		fault_arm("scratch.write", 2, ENOSPC, false);
		rv = scratch_choose(dirs, 2, best, &rate, err);
		assert_true(rv == 0 || (rv == PAWL_ENOSPC && strstr(err->msg, dirs[1])));
	}
	if (rv != 0) {
		SAY_LATE("a first write that takes less than half a second, of 20");
	}
	return rv;
}

/* The one that has room for no more counts as slow, and is taken if there is none other. */
static void one_that_fills_up_is_the_last_choice(void **state)
{
	char a[PATH_MAX];
	char b[PATH_MAX];
	const char *dirs[] = {a, b};
	struct pawl_err err;
	uint32_t best = 9;
	double rate;

	make(a, "a");
	make(b, "b");
	if (open(a, O_TMPFILE | O_WRONLY, 0600) < 0) {
		printf("skipped: /tmp has no files without a name\n");
		skip();
	}
	assert_int_equal(choose_beside_full(dirs, &best, &err), 0);
	assert_int_equal(best, 1);
	fault_arm("scratch.write", 2, EIO, false);
	assert_int_equal(scratch_choose(dirs, 2, &best, &rate, &err), PAWL_EIO);
	fault_arm("scratch.write", 1, ENOSPC, false);
	assert_int_not_equal(scratch_choose(dirs, 1, &best, &rate, &err), 0);
	fault_disarm();
	assert_int_equal(scratch_choose(dirs, 1, &best, &rate, &err), 0);
	assert_int_equal(best, 0);
}

/* As its owner, to whom closed directories are closed. */
static int fill_and_remove(const char *path)
{
	char inner[PATH_MAX + 16];
	struct pawl_err err;
	int rv = geteuid() == 0 ? setuid(NOBODY) : 0;

	for (int i = 0; i < 2 && rv == 0; i++) { /* the second start finds none of the first */
		rv = scratch_make(path, &err);
		snprintf(inner, sizeof(inner), "%s/in", path);
		rv = rv == 0 ? mkdir(inner, 0700) : rv;
		snprintf(inner, sizeof(inner), "%s/in/it", path);
		rv = rv == 0 ? mkdir(inner, 0500) : rv;
		snprintf(inner, sizeof(inner), "%s/in", path);
		rv = rv == 0 ? chmod(inner, 0500) : rv;
	}
	if (rv == 0) {
		scratch_remove(path);
		rv = access(path, F_OK) == 0;
	}
	return rv;
}

static void closed_directories_are_removed(void **state)
{
	char folder[PATH_MAX];
	char path[PATH_MAX + 4];
	int status;
	pid_t child;

	make(folder, "c");
	assert_int_equal(chmod(root, 0755) | chmod(folder, 0777), 0);
	snprintf(path, sizeof(path), "%s/own", folder);
	child = fork();
	if (child == 0) {
		_exit(fill_and_remove(path));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void make_as(uid_t uid, const char *path, mode_t mode)
{
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chown(path, uid, (gid_t)uid) | chmod(path, mode), 0);
}

/* As a user who is not root. */
static int make_twice(const char *base, const char *left)
{
	char first[PATH_MAX];
	char second[PATH_MAX];
	struct pawl_err err;
	struct stat st;

	if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0 ||
		scratch_make_new(base, first, &err) != 0 || access(left, F_OK) == 0) {
		return 1;
	}
	scratch_remove(base);
	return scratch_make_new(base, second, &err) != 0 || strcmp(first, second) == 0 ||
		access(first, F_OK) == 0 || stat(second, &st) != 0 || (st.st_mode & 07777) != 0700;
}

/* Who has taken a name before, or lays out a tree that the user could remove things from, gets
 * neither into the way nor at the user's files. */
static void others_are_neither_in_the_way_nor_walked_through(void **state)
{
	char folder[PATH_MAX];
	char base[PATH_MAX + 8];
	char left[PATH_MAX + 24];
	char theirs[PATH_MAX + 24];
	char bait[PATH_MAX + 40];
	char link[PATH_MAX + 40];
	int status;
	pid_t child;

	if (geteuid() != 0) {
		skip(); /* there is nobody else */
	}
	make(folder, "d");
	assert_int_equal(chmod(root, 0755) | chmod(folder, 01777), 0);
	snprintf(base, sizeof(base), "%s/task", folder);
	make_as(0, base, 0777);
	snprintf(bait, sizeof(bait), "%s/users", base);
	make_as(NOBODY, bait, 0700);
	snprintf(theirs, sizeof(theirs), "%s/task-abcdef", folder);
	make_as(0, theirs, 0777);
	snprintf(left, sizeof(left), "%s/task-000000", folder);
	make_as(NOBODY, left, 0500); /* of a start whose keeper was killed */
	snprintf(link, sizeof(link), "%s/link", left);
	assert_int_equal(symlink(base, link), 0);
	child = fork();
	if (child == 0) {
		_exit(make_twice(base, left));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(access(bait, F_OK) | access(theirs, F_OK), 0);
}

/* In place of the directory, a link is there at times. */
static _Noreturn void swap(const char *tree, int begun)
{
	int at = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	while (renameat2(at, "sub", at, "link", RENAME_EXCHANGE) == 0 && write(begun, "", 1) == 1) {
	}
	_exit(0);
}

/* Whoever was let into the directory swaps what is in it while it is removed. */
static void what_links_lead_to_stays(void **state)
{
	char kept[PATH_MAX];
	char file[PATH_MAX + 8];
	char tree[PATH_MAX];
	char sub[PATH_MAX + 8];
	char link[PATH_MAX + 8];

	make(kept, "kept");
	snprintf(file, sizeof(file), "%s/file", kept);
	for (int i = 0; i < 4000; i++) {
		char bytes[256];
		pid_t child;
		int ends[2];

		assert_int_equal(mkdir(file, 0700) == 0 || errno == EEXIST, 1);
		make(tree, "tree");
		snprintf(sub, sizeof(sub), "%s/sub", tree);
		snprintf(link, sizeof(link), "%s/link", tree);
		assert_int_equal(mkdir(sub, 0700) | symlink(kept, link), 0);
		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		child = fork();
		if (child == 0) {
			swap(tree, ends[1]);
		}
		assert_true(read(ends[0], bytes, sizeof(bytes)) > 0);
		scratch_remove(tree);
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		close(ends[0]);
		close(ends[1]);
		assert_int_equal(access(file, F_OK), 0);
		scratch_remove(tree); /* what was swapped away from under it */
	}
}

static int begin(void **state)
{
	return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
	scratch_remove(root);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_fills_up_is_the_last_choice),
		cmocka_unit_test(closed_directories_are_removed),
		cmocka_unit_test(what_links_lead_to_stays),
		cmocka_unit_test(others_are_neither_in_the_way_nor_walked_through),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
