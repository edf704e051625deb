/* The choice of the directory for jobs' scratch files, and the removal of scratch directories. */
#include "base/err.h"
#include "base/fault.h"
#include "engine/scratch.h"
#include "pawl/err.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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

/* A directory that fills up is chosen only if there is no other one. */
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
	fault_arm("scratch.write", 3, ENOSPC, false); /* the second write to a */
	assert_int_equal(scratch_choose(dirs, 2, &best, &rate, &err), 0);
	assert_int_equal(best, 1);
	fault_arm("scratch.write", 4, ENOSPC, false);
	assert_int_equal(scratch_choose(dirs, 2, &best, &rate, &err), 0);
	assert_int_equal(best, 0);
	fault_arm("scratch.write", 2, EIO, false);
	assert_int_equal(scratch_choose(dirs, 2, &best, &rate, &err), PAWL_EIO);
	fault_arm("scratch.write", 1, ENOSPC, false);
	assert_int_not_equal(scratch_choose(dirs, 1, &best, &rate, &err), 0);
	fault_disarm();
	assert_int_equal(scratch_choose(dirs, 1, &best, &rate, &err), 0);
	assert_int_equal(best, 0);
}

/* A short write, with space for only a part of the block, sets no errno. */
static void a_write_that_is_cut_finds_no_more_room(void **state)
{
	char a[PATH_MAX];
	char b[PATH_MAX];
	const char *dirs[] = {a, b};
	struct rlimit before;
	struct rlimit limit;
	struct pawl_err err;
	uint32_t best = 9;
	double rate = 1;
	int rv;

	make(a, "e");
	make(b, "f");
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){.rlim_cur = 3u << 19, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	errno = 0; /* errno of an earlier call does not count */
	rv = scratch_choose(dirs, 2, &best, &rate, &err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(rv, 0);
	assert_int_equal(best, 0);
	assert_true(rate == 0);
}

/* ---- on a busy node ---- */

static _Noreturn void keep_busy(void)
{
	static volatile unsigned n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		n++;
	}
}

static double rate_of_memory(void)
{
	const char *const dirs[] = {"/dev/shm", "/dev/shm"};
	struct pawl_err err;
	uint32_t best;
	double rate;

	assert_int_equal(scratch_choose(dirs, 2, &best, &rate, &err), 0);
	return rate;
}

static bool can_measure_waits(void)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "re");
	unsigned long long ran = 0;
	bool can = file && fscanf(file, "%llu", &ran) == 1 && ran > 0;

	if (file) {
		fclose(file);
	}
	return can;
}

/* Eight other processes use the same processor: by the clock, a write takes nine times as long. */
static void waits_for_a_processor_do_not_count(void **state)
{
	cpu_set_t before;
	cpu_set_t one;
	pid_t others[8];
	double alone;
	double beside = 0;

	if (open("/dev/shm", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600) < 0 || !can_measure_waits()) {
		printf("skipped: no /dev/shm, or Linux reports no waits for processors\n");
		skip();
	}
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	alone = rate_of_memory();
	for (size_t i = 0; i < 8; i++) {
		others[i] = fork();
		if (others[i] == 0) {
			keep_busy();
		}
	}
	for (int i = 0; i < 5 && beside < alone / 3; i++) {
		beside = rate_of_memory();
	}
	for (size_t i = 0; i < 8; i++) {
		assert_int_equal(kill(others[i], SIGKILL), 0);
		assert_int_equal(waitpid(others[i], NULL, 0), others[i]);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	printf("%.0f MB/s alone, %.0f beside eight others\n", alone / 1e6, beside / 1e6);
	assert_true(beside >= alone / 3);
}

/* Fills a directory and removes it, as an owner who needs access rights to do so. */
static int fill_and_remove(const char *path)
{
	char inner[PATH_MAX + 16];
	struct pawl_err err;
	int rv = geteuid() == 0 ? setuid(NOBODY) : 0;

	for (int i = 0; i < 2 && rv == 0; i++) { /* the second one replaces the first */
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

/* Makes a directory twice, as a user who is not root. */
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

/* Another user who took the name first, or made a tree with a link to files of the job's user,
 * neither blocks the job nor has those files removed. */
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
		skip(); /* there is no other user */
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
	make_as(NOBODY, left, 0500); /* left by a start whose shepherd was killed */
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

/* Swaps the directory and a link again and again. */
static _Noreturn void swap(const char *tree, int begun)
{
	int at = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	while (renameat2(at, "sub", at, "link", RENAME_EXCHANGE) == 0 && write(begun, "", 1) == 1) {
	}
	_exit(0);
}

/* A process with access to the directory swaps its entries during the removal. */
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
		scratch_remove(tree); /* removes entries that were swapped meanwhile */
	}
}

/* Gives measurements as much time as their writes need. */
static int begin(void **state)
{
	const struct sigaction ignored = {.sa_handler = SIG_IGN};
	const char *times = getenv("PAWL_TEST_TIMES");
	char longer[256];

	snprintf(longer, sizeof(longer), "scratch_try=600%s%s", times ? "," : "",
		times ? times : "");
	setenv("PAWL_TEST_TIMES", longer, 1);
	sigaction(SIGXFSZ, &ignored, NULL);
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
		cmocka_unit_test(a_write_that_is_cut_finds_no_more_room),
		cmocka_unit_test(waits_for_a_processor_do_not_count),
		cmocka_unit_test(closed_directories_are_removed),
		cmocka_unit_test(what_links_lead_to_stays),
		cmocka_unit_test(others_are_neither_in_the_way_nor_walked_through),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
