/* A mirrored directory with real files: what a scan finds, what a pin holds, that leases tell of
 * writers before they write, and the mirror's own directory. */
#include "mirror/pin.h"

#include "../lib/each_fault.h"
#include "../lib/within.h"
#include "mirror/inspect_unit.h"
#include "mirror/lease.h"
#include "mirror/scan.h"
#include "mirror/walk.h"
#include "mirror/watch.h"
#include "mirror/workdir.h"
#include "pawl/err.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct unit_globs no_globs = {{NULL}, 0};
static char base[64]; /* directory of the test, in /tmp */
static int tmp_fd = -1;
static char root[PATH_MAX]; /* mirrored directory, in base */
static int root_fd = -1;
static struct leases *leases;
static struct scan *scan;
static struct pawl_err err;

/* ---- files ---- */

static void put(const char *path, const char *text)
{
	char folder[PATH_MAX];
	int fd;

	for (const char *at = path; (at = strchr(at, '/')) != NULL; at++) {
		snprintf(folder, sizeof(folder), "%.*s", (int)(at - path), path);
		mkdirat(root_fd, folder, 0777);
	}
	fd = openat(root_fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int begin(void **state)
{
	tmp_fd = tmp_fd < 0 ? open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : tmp_fd;
	snprintf(base, sizeof(base), "/tmp/pawl-mirror-XXXXXX");
	assert_non_null(mkdtemp(base));
	snprintf(root, sizeof(root), "%s/out", base);
	assert_int_equal(mkdir(root, 0777), 0);
	root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(scan_open(&scan, root_fd, &no_globs, NULL, NULL, &err), 0);
	return 0;
}

static int end(void **state)
{
	scan_close(scan);
	close(root_fd);
	walk_remove(tmp_fd, strrchr(base, '/') + 1);
	return access(base, F_OK) == 0;
}

/* ---- scans ---- */

static const struct core_seen *find(const struct core_seen *seen, uint32_t n, const char *path)
{
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(seen[i].path, path) == 0) {
			return &seen[i];
		}
	}
	return NULL;
}

static void a_scan_tells_units_from_loose_files(void **state)
{
	const struct core_seen *units, *loose;
	uint32_t units_n, loose_n;

	put("checkpoint-5/model.safetensors", "abc");
	put("checkpoint-5/global_step5/zero.pt", "de");
	put("run/epoch_1/w.bin", "f");
	put("dist/__0_0.distcp", "g");
	put("dist/sub/x", "h");
	put("train.log", "i");
	put("run/notes/a.txt", "j");
	put(".hidden/checkpoint-9/x", "k");
	put("run/.kept", "l");
	put("run/save-1/x", "m"); /* a name of ours in a bucket */
	assert_int_equal(mkdirat(root_fd, "checkpoint-7", 0777), 0);
	assert_int_equal(scan_all(scan, &err), 0);
	units = scan_units(scan, &units_n);
	loose = scan_loose(scan, &loose_n);
	assert_int_equal(units_n, 3); /* an empty one is none */
	assert_int_equal(find(units, units_n, "checkpoint-5")->files_n, 2);
	assert_int_equal(find(units, units_n, "checkpoint-5")->size_bytes, 5);
	assert_int_equal(find(units, units_n, "dist")->files_n, 2);
	assert_non_null(find(units, units_n, "run/epoch_1"));
	assert_int_equal(loose_n, 3);
	assert_non_null(find(loose, loose_n, "train.log"));
	assert_non_null(find(loose, loose_n, "run/notes/a.txt"));
	assert_non_null(find(loose, loose_n, "run/.kept"));
}

static void a_scan_stays_clear_of_odd_names(void **state)
{
	const struct core_seen *units;
	uint32_t units_n, loose_n;
	enum unit_kind kind;
	char best[CKPT_TAG_MAX], why[UNIT_WHY_MAX];
	bool never;

	put("checkpoint-1/model.bin", "a");
	put("checkpoint-2/bad\nname", "a");
	put("bad\xff"
	    "name",
		"a");
	assert_int_equal(symlinkat("/etc", root_fd, "checkpoint-3"), 0);
	assert_int_equal(symlinkat("/etc/passwd", root_fd, "passwd"), 0);
	assert_int_equal(symlinkat("..", root_fd, "checkpoint-1/up"), 0);
	assert_int_equal(mkfifoat(root_fd, "checkpoint-1/fifo", 0666), 0);
	assert_int_equal(mkfifoat(root_fd, "fifo", 0666), 0);
	assert_int_equal(scan_all(scan, &err), 0);
	units = scan_units(scan, &units_n);
	scan_loose(scan, &loose_n);
	assert_int_equal(units_n, 2);
	assert_int_equal(find(units, units_n, "checkpoint-1")->files_n, 1);
	assert_int_equal(loose_n, 0);
	assert_false(inspect_unit(&root_fd, find(units, units_n, "checkpoint-2"), &kind, best,
		&never, why));
	assert_true(never); /* without one of its files it would not be whole */
}

static void what_cannot_be_read_is_not_taken_for_gone(void **state)
{
	const struct core_seen *units;
	const struct scan_unit *unit;
	uint32_t n;
	int rv;

	put("checkpoint-1/sub/model.bin", "a");
	put("checkpoint-1/x", "a");
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		fault_arm("mirror.walk", nth, EMFILE, false);
		rv = scan_all(scan, &err);
		fault_disarm();
		assert_true(!fault_reached(nth) || rv == PAWL_EIO);
		fault_arm("mirror.walk", nth, EACCES, false);
		rv = scan_all(scan, &err);
		fault_disarm();
		units = scan_units(scan, &n);
		unit = rv == 0 && n == 1 ? units[0].user : NULL;
		assert_true(!fault_reached(nth) || unit == NULL || unit->bad != NULL);
	}
}

static void a_removed_directory_is_an_error(void **state)
{
	assert_int_equal(rmdir(root), 0);
	assert_int_equal(scan_all(scan, &err), PAWL_ENOENT);
}

static void numbers_change_with_the_bytes(void **state)
{
	uint64_t *before, *after;
	uint32_t n;

	put("checkpoint-1/a", "abc");
	assert_int_equal(scan_numbers(root_fd, "checkpoint-1", &before, &n, &err), 0);
	assert_int_equal(n, 1);
	put("checkpoint-1/a", "abd"); /* as many bytes, in one file */
	assert_int_equal(scan_numbers(root_fd, "checkpoint-1", &after, &n, &err), 0);
	assert_int_not_equal(before[0], after[0]);
	free(before);
	free(after);
	assert_int_equal(scan_numbers(root_fd, "checkpoint-2", &after, &n, &err), PAWL_ENOENT);
}

/* ---- leases and pins ---- */

static struct pin *take_pin(const char *unit, int expected)
{
	struct pin *pin = NULL;
	uint64_t *numbers;
	uint32_t n;

	assert_int_equal(scan_numbers(root_fd, unit, &numbers, &n, &err), 0);
	assert_int_equal(pin_take(&pin, leases, root_fd, unit, numbers, n, &err), expected);
	free(numbers);
	return pin;
}

static void a_pin_keeps_what_the_program_removes(void **state)
{
	struct pin *pin;
	char text[8] = "";

	put("checkpoint-1/sub/b", "two");
	put("checkpoint-1/a", "one");
	pin = take_pin("checkpoint-1", 0);
	assert_true(pin->leased);
	assert_int_equal(pin->files_n, 2);
	assert_string_equal(pin->files[0].name, "a");
	assert_string_equal(pin->files[1].name, "sub/b");
	walk_remove(root_fd, "checkpoint-1");
	assert_int_equal(pin_check(pin, &err), 0);
	assert_int_equal(pread(pin->files[1].fd, text, 8, 0), 3);
	assert_string_equal(text, "two");
	pin_give(pin, leases);
}

static void a_unit_being_written_is_not_pinned(void **state)
{
	int fd;

	put("checkpoint-1/a", "one");
	fd = openat(root_fd, "checkpoint-1/a", O_WRONLY);
	assert_null(take_pin("checkpoint-1", PAWL_EBUSY));
	assert_non_null(strstr(err.msg, "open for writing"));
	close(fd);
	pin_give(take_pin("checkpoint-1", 0), leases);
}

static void other_files_than_were_seen_are_not_pinned(void **state)
{
	struct pin *pin;
	uint64_t *numbers;
	uint32_t n;

	put("checkpoint-1/a", "one");
	assert_int_equal(scan_numbers(root_fd, "checkpoint-1", &numbers, &n, &err), 0);
	put("checkpoint-1/b", "two");
	assert_int_equal(pin_take(&pin, leases, root_fd, "checkpoint-1", numbers, n, &err),
		PAWL_EBUSY);
	free(numbers);
}

/* A program that opens a file for writing, and then writes. */
static void *write_later(void *user)
{
	int fd = openat(root_fd, "checkpoint-1/a", O_WRONLY); /* waits for the lease */

	if (fd >= 0) {
		(void)!write(fd, "TWO", 3);
		close(fd);
	}
	return NULL;
}

static void a_writer_waits_until_the_pin_knows(void **state)
{
	struct pin *pin;
	pthread_t writer;

	put("checkpoint-1/a", "one");
	pin = take_pin("checkpoint-1", 0);
	assert_int_equal(pthread_create(&writer, NULL, write_later, NULL), 0);
	WITHIN(10, atomic_load(&pin->broken));
	pthread_join(writer, NULL); /* well before the 45 s of the kernel, or the test hangs */
	assert_int_equal(pin_check(pin, &err), PAWL_ECANCELED);
	pin_give(pin, leases);
}

static void readers_and_renames_break_no_lease(void **state)
{
	struct pin *pin;
	int fd;

	put("checkpoint-1/a", "one");
	pin = take_pin("checkpoint-1", 0);
	fd = openat(root_fd, "checkpoint-1/a", O_RDONLY);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(renameat(root_fd, "checkpoint-1", root_fd, "other"), 0);
	assert_int_equal(pin_check(pin, &err), 0);
	pin_give(pin, leases);
}

static void without_leases_the_times_tell(void **state)
{
	struct pin *pin;

	put("checkpoint-1/a", "one");
	fault_arm("mirror.lease", 1, EINVAL, true);
	pin = take_pin("checkpoint-1", 0);
	fault_disarm();
	assert_false(pin->leased);
	assert_int_equal(pin_check(pin, &err), 0);
	put("checkpoint-1/a", "two");
	assert_int_equal(pin_check(pin, &err), PAWL_ECANCELED);
	pin_give(pin, leases);
}

static void a_pin_that_fails_leaves_nothing_open(void **state)
{
	int before = dup(root_fd), after;

	close(before);
	put("checkpoint-1/a", "one");
	put("checkpoint-1/b", "two");
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		struct pin *pin = NULL;
		uint64_t *numbers;
		uint32_t n;
		int rv;

		assert_int_equal(scan_numbers(root_fd, "checkpoint-1", &numbers, &n, &err), 0);
		fault_arm("mirror.", nth, EMFILE, false);
		rv = pin_take(&pin, leases, root_fd, "checkpoint-1", numbers, n, &err);
		fault_disarm();
		assert_true(rv == 0 || fault_reached(nth));
		if (rv == 0) {
			pin_give(pin, leases);
		}
		free(numbers);
	}
	after = dup(root_fd);
	assert_int_equal(after, before);
	close(after);
}

/* ---- watches ---- */

static bool is_told(struct watch *watch)
{
	struct pollfd polled = {watch->fd, POLLIN, 0};

	return poll(&polled, 1, 10000) == 1 && dir_watch_take(watch);
}

static void check_watch(bool fanotify)
{
	struct watch watch;

	if (!fanotify) {
		fault_arm("mirror.fanotify", 1, EPERM, true);
	}
	dir_watch_open(&watch);
	fault_disarm();
	if (watch.fd < 0 || watch.fanotify != fanotify) {
		print_message("skipped: the system does not allow this kind of watch\n");
		dir_watch_close(&watch);
		return;
	}
	dir_watch_add(&watch, root_fd);
	dir_watch_add(&watch, root_fd);
	assert_false(watch.failing);
	assert_false(dir_watch_take(&watch));
	put("a", "b");
	assert_true(is_told(&watch));
	assert_int_equal(renameat(root_fd, "a", root_fd, "b"), 0);
	assert_true(is_told(&watch));
	assert_int_equal(mkdirat(root_fd, "c", 0777), 0);
	assert_true(is_told(&watch));
	assert_int_equal(unlinkat(root_fd, "b", 0), 0);
	assert_true(is_told(&watch));
	dir_watch_close(&watch);
}

static void fanotify_tells_of_changes(void **state)
{
	check_watch(true);
}

static void inotify_tells_of_changes(void **state)
{
	check_watch(false);
}

/* ---- the own directory ---- */

static void one_mirror_has_a_directory(void **state)
{
	struct workdir work, other;
	char where[PATH_MAX];
	struct sockaddr_un address;

	assert_int_equal(workdir_find(&work, root, &err), PAWL_ENOENT);
	assert_int_equal(workdir_open(&work, root, &err), 0);
	assert_false(work.crashed);
	assert_int_equal(workdir_open(&other, root, &err), PAWL_EBUSY);
	assert_non_null(strstr(err.msg, root));
	put("checkpoint-1/a", "one");
	assert_int_equal(workdir_put_half(&work, "checkpoint-1", where, &err), 0);
	assert_int_equal(access(where, F_OK), 0);
	put("checkpoint-1/a", "two");
	assert_int_equal(workdir_put_half(&work, "checkpoint-1", where, &err), 0);
	assert_non_null(strstr(where, "/half/checkpoint-1.2"));
	workdir_socket(&work, &address);
	assert_true(strlen(address.sun_path) < sizeof(address.sun_path));
	assert_int_equal(workdir_begin(&work, &err), 0);
	workdir_close(&work); /* as a crash does */
	assert_int_equal(workdir_open(&work, root, &err), 0);
	assert_true(work.crashed);
	workdir_end(&work);
	workdir_close(&work);
	assert_int_equal(workdir_open(&work, root, &err), 0);
	assert_false(work.crashed);
	workdir_close(&work);
}

static void a_place_that_others_can_change_is_not_used(void **state)
{
	struct workdir work;
	char own[PATH_MAX + 16];

	snprintf(own, sizeof(own), "%s/.out.pawl", base);
	assert_int_equal(mkdir(own, 0777), 0);
	assert_int_equal(chmod(own, 0777), 0);
	assert_int_equal(workdir_open(&work, root, &err), 0);
	assert_non_null(strstr(work.path, "/out/.pawl.mirror"));
	workdir_close(&work);
}

/* A place that turns out to be of no use is left as it was. */
static void a_place_that_is_not_used_is_not_left(void **state)
{
	struct workdir work;
	char own[PATH_MAX + 16];

	snprintf(own, sizeof(own), "%s/.out.pawl", base);
	fault_arm("workdir.own", 1, EACCES, false);
	assert_int_equal(workdir_open(&work, root, &err), 0);
	fault_disarm();
	assert_non_null(strstr(work.path, "/out/.pawl.mirror"));
	assert_int_equal(access(own, F_OK), -1);
	workdir_close(&work);
}

static void who_may_not_make_the_directory_is_told_what_to_do(void **state)
{
	struct workdir work;

	fault_arm("workdir.make", 1, EACCES, false);
	assert_true(workdir_open(&work, root, &err) < 0);
	fault_disarm();
	assert_non_null(strstr(err.msg, "/out: Permission denied. Make it yourself"));
}

static int open_leases(void **state)
{
	return leases_open(&leases, NULL, NULL, NULL);
}

static int close_leases(void **state)
{
	leases_close(leases);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_scan_tells_units_from_loose_files),
		TEST(a_scan_stays_clear_of_odd_names),
		TEST(what_cannot_be_read_is_not_taken_for_gone),
		TEST(a_removed_directory_is_an_error),
		TEST(numbers_change_with_the_bytes),
		TEST(a_pin_keeps_what_the_program_removes),
		TEST(a_unit_being_written_is_not_pinned),
		TEST(other_files_than_were_seen_are_not_pinned),
		TEST(a_writer_waits_until_the_pin_knows),
		TEST(readers_and_renames_break_no_lease),
		TEST(without_leases_the_times_tell),
		TEST(a_pin_that_fails_leaves_nothing_open),
		TEST(fanotify_tells_of_changes),
		TEST(inotify_tells_of_changes),
		TEST(one_mirror_has_a_directory),
		TEST(a_place_that_others_can_change_is_not_used),
		TEST(a_place_that_is_not_used_is_not_left),
		TEST(who_may_not_make_the_directory_is_told_what_to_do),
	};

	return cmocka_run_group_tests(tests, open_leases, close_leases);
}
