/* What a mirror does before the program starts, on a bucket in memory: the newest whole units, the
 * best one and the loose files are there, and nothing half is. */
#include "mirror/start.h"

#include "../lib/each_fault.h"
#include "base/clock.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "mirror/fetch.h"
#include "mirror/lease.h"
#include "mirror/loose.h"
#include "mirror/pin.h"
#include "mirror/scan.h"
#include "mirror/sealed.h"
#include "mirror/walk.h"
#include "mirror/workdir.h"
#include "pawl/err.h"
#include "store/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LARGE (3u << 20) /* bytes of a file of several chunks */

static const struct unit_globs no_globs = {{NULL}, 0};
static const struct core_options usual = {.quiet_ns = 1,
	.settle_ns = 1,
	.retry_ns = 1,
	.retry_max_ns = 1};
static char base[64]; /* directory of the test, in /tmp */
static int tmp_fd = -1;
static char dir[PATH_MAX]; /* mirrored directory, in base; on a new node, another one */
static struct store *store;
static struct tags_root *root;
static struct workdir work;
static struct core core;
static struct leases *leases;
static struct pawl_err err;

/* ---- the node ---- */

static void open_node(const char *name)
{
	snprintf(dir, sizeof(dir), "%s/%s", base, name);
	assert_int_equal(workdir_open(&work, dir, &err), 0);
	core_init(&core, &usual);
}

static void close_node(void)
{
	workdir_close(&work);
	core_deinit(&core);
}

static int begin(void **state)
{
	tmp_fd = tmp_fd < 0 ? open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : tmp_fd;
	snprintf(base, sizeof(base), "/tmp/pawl-mirror-XXXXXX");
	assert_non_null(mkdtemp(base));
	assert_int_equal(store_mem_open_flat(&store, &err), 0);
	assert_int_equal(tags_root_over(store, &root, &err), 0);
	open_node("one");
	return 0;
}

static int end(void **state)
{
	close_node();
	tags_root_close(root);
	walk_remove(tmp_fd, strrchr(base, '/') + 1);
	return access(base, F_OK) == 0;
}

static void put_bytes(const char *path, const void *bytes, size_t len_bytes)
{
	char folder[PATH_MAX];
	int fd;

	for (const char *at = path; (at = strchr(at, '/')) != NULL; at++) {
		snprintf(folder, sizeof(folder), "%.*s", (int)(at - path), path);
		mkdirat(work.dir_fd, folder, 0777);
	}
	fd = openat(work.dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len_bytes), len_bytes);
	close(fd);
}

static void put(const char *path, const char *text)
{
	put_bytes(path, text, strlen(text));
}

/* Expects a file with this text; NULL: none. */
static void check(const char *path, const char *text)
{
	char got[256] = "";
	int fd = openat(work.dir_fd, path, O_RDONLY);

	if (text == NULL) {
		assert_int_equal(fd, -1);
		return;
	}
	assert_true(fd >= 0);
	assert_true(read(fd, got, sizeof(got) - 1) >= 0);
	assert_string_equal(got, text);
	close(fd);
}

/* A unit of a Trainer. */
static void make_unit(const char *path, const char *text, const char *best)
{
	char file[256], json[256];

	snprintf(file, sizeof(file), "%s/model.safetensors", path);
	put(file, text);
	snprintf(file, sizeof(file), "%s/sub/empty", path);
	put(file, "");
	snprintf(json, sizeof(json), "{\"best_model_checkpoint\": \"%s\"}", best);
	snprintf(file, sizeof(file), "%s/trainer_state.json", path);
	put(file, json);
}

static int age_file(void *user, const struct walk_entry *entry, bool *enter, struct pawl_err *why)
{
	static const struct timespec past[] = {{2000, 0}, {2000, 0}};

	*enter = S_ISDIR(entry->st->st_mode);
	return utimensat(entry->dir_fd, entry->name, past, 0);
}

static void ship(const char *path)
{
	const struct walk_ops age = {NULL, age_file, NULL};
	struct ship_unit unit = {.job = "test"};
	struct pin *pin;
	uint64_t *numbers;
	uint32_t n;

	assert_true(unit_tag(path, unit.tag));
	assert_true(unit_step(path, &unit.step));
	assert_int_equal(walk(work.dir_fd, path, &age, &err), 0); /* a unit rests before */
	assert_int_equal(scan_numbers(work.dir_fd, path, &numbers, &n, &err), 0);
	assert_int_equal(pin_take(&pin, leases, work.dir_fd, path, numbers, n, &err), 0);
	unit.files = pin->files;
	unit.files_n = pin->files_n;
	assert_int_equal(ship_unit(root, &unit, NULL, &err), 0);
	pin_give(pin, leases);
	free(numbers);
}

static int start(struct start *started)
{
	int rv;

	*started = (struct start){.root = root, .work = &work, .core = &core, .globs = &no_globs};
	rv = scan_open(&started->scan, work.dir_fd, &no_globs, NULL, NULL, &err);
	rv = rv == 0 ? fetch_open(&started->fetch, root, &work, NULL, NULL, &err) : rv;
	rv = rv == 0 ? start_run(started, &err) : rv;
	fetch_close(started->fetch);
	scan_close(started->scan);
	start_deinit(started);
	return rv;
}

static void move_to_new_node(void)
{
	close_node();
	open_node("two");
}

/* ---- a new node ---- */

static void an_empty_node_gets_the_newest_and_the_best(void **state)
{
	struct start started;
	uint8_t *large = malloc(LARGE);
	struct stat st;

	for (uint32_t i = 0; i < LARGE; i++) {
		large[i] = (uint8_t)(i * 7 + i / 999);
	}
	make_unit("checkpoint-1", "one", "");
	make_unit("checkpoint-2", "two", "");
	make_unit("checkpoint-10", "ten", "/elsewhere/one/checkpoint-1");
	put_bytes("checkpoint-10/large", large, LARGE);
	make_unit("run/checkpoint-3", "three", "");
	ship("checkpoint-1");
	ship("checkpoint-2");
	ship("checkpoint-10");
	ship("run/checkpoint-3");
	move_to_new_node();
	assert_int_equal(start(&started), 0);
	assert_int_equal(started.fetched, 3);
	check("checkpoint-10/model.safetensors", "ten");
	check("checkpoint-10/sub/empty", "");
	check("checkpoint-1/model.safetensors", "one");
	check("checkpoint-2/model.safetensors", NULL); /* later */
	check("run/checkpoint-3/model.safetensors", "three");
	assert_int_equal(fstatat(work.dir_fd, "checkpoint-10/large", &st, 0), 0);
	assert_int_equal(st.st_size, LARGE);
	assert_int_equal(core_find_unit(&core, "checkpoint-10")->state, CORE_COMMITTED);
	free(large);
}

static void times_follow_the_steps(void **state)
{
	struct start started;
	struct stat a, b, c;

	make_unit("checkpoint-2", "a", "x/checkpoint-1");
	ship("checkpoint-2");
	make_unit("checkpoint-1", "b", "");
	ship("checkpoint-1");
	move_to_new_node();
	make_unit("checkpoint-3", "local", "");
	assert_int_equal(utimensat(work.dir_fd, "checkpoint-3",
				 (struct timespec[]){{1000, 0}, {1000, 0}}, 0),
		0);
	make_unit("checkpoint-3", "local", "x/checkpoint-1");
	assert_int_equal(start(&started), 0);
	assert_int_equal(fstatat(work.dir_fd, "checkpoint-1", &a, 0), 0);
	assert_int_equal(fstatat(work.dir_fd, "checkpoint-3", &c, 0), 0);
	assert_true(c.st_mtim.tv_sec >= a.st_mtim.tv_sec + 2);
	assert_int_equal(fstatat(work.dir_fd, "checkpoint-2", &b, 0), -1); /* behind the program */
}

static void a_damaged_unit_gives_way_to_an_older_one(void **state)
{
	struct start started;
	struct manifest manifest;
	char path[STORE_PATH_MAX];

	make_unit("checkpoint-1", "one", "");
	make_unit("checkpoint-2", "two", "");
	ship("checkpoint-1");
	ship("checkpoint-2");
	assert_int_equal(tag_open(root, "checkpoint-2", &manifest, &err), 0);
	manifest_path(path, sizeof(path), &manifest,
		manifest_find_file(&manifest, "model.safetensors"), 0);
	assert_int_equal(store_mem_flip(store, path, 9, &err), 0);
	manifest_deinit(&manifest);
	move_to_new_node();
	assert_int_equal(start(&started), 0);
	check("checkpoint-1/model.safetensors", "one");
	check("checkpoint-2/model.safetensors", NULL);
	assert_false(core_find_unit(&core, "checkpoint-2")->in_bucket);
}

static void loose_files_come_back(void **state)
{
	struct start started;
	struct loose_sent sent;
	uint8_t *large = calloc(1, LARGE + 5);

	make_unit("checkpoint-1", "one", "");
	ship("checkpoint-1");
	put("train.log", "log");
	put("run/a.txt", "text");
	put("empty", "");
	put_bytes("model.safetensors", large, LARGE + 5);
	assert_int_equal(loose_ship(store, work.dir_fd, "train.log", false, &sent, &err), 0);
	assert_int_equal(loose_ship(store, work.dir_fd, "run/a.txt", false, &sent, &err), 0);
	assert_int_equal(loose_ship(store, work.dir_fd, "empty", false, &sent, &err), 0);
	assert_int_equal(loose_ship(store, work.dir_fd, "model.safetensors", false, &sent, &err),
		0);
	assert_int_equal(sent.size_bytes, LARGE + 5);
	assert_int_equal(loose_ship(store, work.dir_fd, "none", false, &sent, &err), PAWL_ENOENT);
	move_to_new_node();
	put("train.log", "newer"); /* the directory's own is not replaced */
	assert_int_equal(start(&started), 0);
	assert_int_equal(started.loose, 3);
	check("train.log", "newer");
	check("run/a.txt", "text");
	check("empty", "");
	assert_int_equal(core_find_loose(&core, "run/a.txt")->in_bucket, true);
	free(large);
}

static void latest_names_what_is_there(void **state)
{
	struct start started;
	struct loose_sent sent;

	put("ds/global_step1/states.pt", "one");
	put("ds/latest", "global_step2");
	ship("ds/global_step1"); /* and the node was lost before global_step2 was committed */
	assert_int_equal(loose_ship(store, work.dir_fd, "ds/latest", false, &sent, &err), 0);
	move_to_new_node();
	assert_int_equal(start(&started), 0);
	check("ds/latest", "global_step1");
}

/* ---- the same node again ---- */

static void half_units_are_moved_aside(void **state)
{
	struct start started;

	make_unit("checkpoint-1", "one", "");
	ship("checkpoint-1");
	put("checkpoint-2/model.safetensors", "half");
	put("checkpoint-2/optimizer.pt", "half");
	put("step_3/weights", "perhaps half");
	assert_int_equal(mkdirat(work.dir_fd, "checkpoint-5", 0777), 0);
	assert_int_equal(mkdirat(work.dir_fd, "checkpoint-5/sub", 0777), 0);
	make_unit("checkpoint-4", "whole, and not committed", "");
	assert_int_equal(workdir_begin(&work, &err), 0);
	close_node(); /* a crash */
	open_node("one");
	assert_int_equal(start(&started), 0);
	check("checkpoint-1/model.safetensors", "one");
	check("checkpoint-2/model.safetensors", NULL);
	check("step_3/weights", NULL);
	check("checkpoint-5", NULL);
	check("checkpoint-4/model.safetensors", "whole, and not committed");
	check("../.one.pawl/half/checkpoint-2.1/optimizer.pt", "half");
	check("../.one.pawl/half/step_3.1/weights", "perhaps half");
}

/* Records that a unit is whole, as the mirror does before it ships it. */
static void record(const char *path)
{
	uint64_t *numbers;
	uint32_t n;
	char tag[CKPT_TAG_MAX];

	assert_true(unit_tag(path, tag));
	assert_int_equal(scan_numbers(work.dir_fd, path, &numbers, &n, &err), 0);
	sealed_put(&work, tag, numbers, n);
	free(numbers);
}

static void what_was_being_removed_is_not_taken_for_whole(void **state)
{
	struct start started;

	make_unit("run/checkpoint-1", "one", "");
	make_unit("checkpoint-2", "two", "");
	make_unit("checkpoint-3", "three", "");
	put("step_4/weights", "whole");
	record("run/checkpoint-1");
	record("checkpoint-2");
	record("checkpoint-3");
	record("step_4");
	make_unit("checkpoint-3", "saved again since", "");
	assert_int_equal(unlinkat(work.dir_fd, "run/checkpoint-1/model.safetensors", 0), 0);
	assert_int_equal(workdir_begin(&work, &err), 0);
	close_node(); /* a crash, before any was committed */
	open_node("one");
	assert_int_equal(start(&started), 0);
	check("run/checkpoint-1/trainer_state.json", NULL);
	check("checkpoint-2/model.safetensors", "two");
	check("checkpoint-3/model.safetensors", "saved again since");
	check("step_4/weights", "whole");
}

static void damaged_records_say_nothing(void **state)
{
	uint64_t numbers[] = {3, 5, 9};
	int fd;

	sealed_put(&work, "a", numbers, 3);
	assert_int_equal(sealed_look(&work, "a", numbers, 3), SEALED_WHOLE);
	assert_int_equal(sealed_look(&work, "a", numbers + 1, 2), SEALED_SHRUNK);
	assert_int_equal(sealed_look(&work, "a", (uint64_t[]){3, 4, 5, 9}, 4), SEALED_UNKNOWN);
	assert_int_equal(sealed_look(&work, "a", (uint64_t[]){3, 5, 10}, 3), SEALED_UNKNOWN);
	fd = openat(work.fd, "sealed/a", O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, 9), 1);
	close(fd);
	assert_int_equal(sealed_look(&work, "a", numbers + 1, 2), SEALED_UNKNOWN);
	sealed_remove(&work, "a");
	assert_int_equal(sealed_look(&work, "a", numbers, 3), SEALED_UNKNOWN);
}

static void without_a_crash_quiet_units_stay(void **state)
{
	struct start started;

	put("step_3/weights", "of a run without Pawl");
	assert_int_equal(start(&started), 0);
	check("step_3/weights", "of a run without Pawl");
}

static void damaged_local_units_are_fetched_again(void **state)
{
	static const struct timespec past[] = {{1000, 0}, {1000, 0}};
	struct start started;

	make_unit("checkpoint-1", "one", "");
	make_unit("checkpoint-2", "two", "");
	ship("checkpoint-1");
	ship("checkpoint-2");
	put("checkpoint-2/model.safetensors", "twx"); /* as long, by a crash of the node */
	put("checkpoint-1/model.safetensors", "o");
	assert_int_equal(utimensat(work.dir_fd, "checkpoint-2/model.safetensors", past, 0), 0);
	assert_int_equal(utimensat(work.dir_fd, "checkpoint-1/model.safetensors", past, 0), 0);
	assert_int_equal(start(&started), 0);
	check("checkpoint-2/model.safetensors", "two");
	check("checkpoint-1/model.safetensors", NULL); /* moved aside, fetched behind the program */
}

static void newer_local_units_stay(void **state)
{
	struct start started;

	make_unit("checkpoint-2", "two", "");
	ship("checkpoint-2");
	put("checkpoint-2/model.safetensors", "two, saved again");
	assert_int_equal(start(&started), 0);
	check("checkpoint-2/model.safetensors", "two, saved again");
	assert_true(core_find_unit(&core, "checkpoint-2")->in_bucket);
	assert_int_equal(core_find_unit(&core, "checkpoint-2")->files.n, 0); /* to be looked at */
}

static void tags_of_others_are_left_alone(void **state)
{
	struct start started;

	make_unit("checkpoint-1", "one", "");
	ship("checkpoint-1");
	assert_int_equal(store_write_small(store, ".pawl/tags/..%2Fx", "junk", 4, &err), 0);
	assert_int_equal(store_write_small(store, "a/../../x", "junk", 4, &err), PAWL_EINVAL);
	move_to_new_node();
	assert_int_equal(start(&started), 0);
	assert_int_equal(started.fetched, 1);
	check("../x", NULL);
}

/* ---- failures ---- */

static void each_failure_leaves_no_half_unit(void **state)
{
	struct start started;

	make_unit("checkpoint-1", "one", "");
	make_unit("checkpoint-2", "two", "/x/checkpoint-1");
	ship("checkpoint-1");
	ship("checkpoint-2");
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		char name[32];
		int rv;

		close_node();
		snprintf(name, sizeof(name), "node%u", (unsigned)nth);
		open_node(name);
		fault_arm("", nth, ENOSPC, false);
		rv = start(&started);
		fault_disarm();
		assert_true(rv == 0 || fault_reached(nth));
		if (fstatat(work.dir_fd, "checkpoint-2", &(struct stat){0}, 0) == 0) {
			check("checkpoint-2/model.safetensors", "two");
			check("checkpoint-2/sub/empty", "");
		}
	}
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
		TEST(an_empty_node_gets_the_newest_and_the_best),
		TEST(times_follow_the_steps),
		TEST(a_damaged_unit_gives_way_to_an_older_one),
		TEST(loose_files_come_back),
		TEST(latest_names_what_is_there),
		TEST(half_units_are_moved_aside),
		TEST(what_was_being_removed_is_not_taken_for_whole),
		TEST(damaged_records_say_nothing),
		TEST(without_a_crash_quiet_units_stay),
		TEST(damaged_local_units_are_fetched_again),
		TEST(newer_local_units_stay),
		TEST(tags_of_others_are_left_alone),
		TEST(each_failure_leaves_no_half_unit),
	};

	return cmocka_run_group_tests(tests, open_leases, close_leases);
}
