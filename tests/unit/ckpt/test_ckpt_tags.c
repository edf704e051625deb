/* Tags of a root of directories: which are listed, trusted, pinned, quarantined and removed. A
 * single thing wrong with a tag is enough for it not to be trusted. */
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "ckpt/format/retain.h"
#include "ckpt/read.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "sample.h"
#include "store/dirs.h"
#include "store/fault.h"
#include "store/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* Opens a root of directories over a store, which it takes, with tags of these steps. */
static struct tags_root *open_over(struct store *store, const uint64_t *steps, size_t n)
{
	struct tags_root *root;

	assert_int_equal(tags_root_over(store, &root, NULL), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(sample_save(sample_get(steps[i], 0), root, NULL), 0);
	}
	return root;
}

static struct tags_root *open_with(const uint64_t *steps, size_t n)
{
	struct store *store;

	assert_int_equal(store_mem_open(&store, NULL), 0);
	return open_over(store, steps, n);
}

/* Opens such a root whose store will fail: see store_fault_set. */
static struct tags_root *open_failing(const uint64_t *steps, size_t n)
{
	struct store *mem, *store;

	assert_int_equal(store_mem_open(&mem, NULL), 0);
	assert_int_equal(store_fault_open(mem, NULL, &store, NULL), 0);
	return open_over(store, steps, n);
}

/* Expects the steps of complete tags, as "9 10 ", and of broken ones, as "(11) ". */
static void assert_tags(struct tags_root *root, const char *expected)
{
	struct tag_info *tags;
	char text[256] = "";
	size_t n;

	assert_int_equal(tags_list(root, NULL, &tags, &n, NULL), 0);
	for (size_t i = 0; i < n; i++) {
		size_t len_bytes = strlen(text);

		snprintf(text + len_bytes, sizeof(text) - len_bytes,
			tags[i].state == TAG_COMPLETE ? "%llu " : "(%llu) ",
			(unsigned long long)tags[i].step);
	}
	free(tags);
	assert_string_equal(text, expected);
}

static bool has(struct store *store, const char *path)
{
	return store_stat(store, path, NULL, NULL, NULL) == 0;
}

/* ---- names ---- */

static void names_are_parsed(void **state)
{
	static const char *const bad[] = {"", "global_step", "global_step01", "global_step-1",
		"global_step+1", "global_step1x", "global_step 1", "xglobal_step1", "global_ste",
		"global_step18446744073709551616", ".pawl.global_step1.new"};
	char tag[CKPT_TAG_MAX];
	uint64_t step;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_false(tag_parse(bad[i], &step));
	}
	assert_true(tag_parse("global_step0", &step) && step == 0);
	tag_of_step(tag, sizeof(tag), UINT64_MAX);
	assert_string_equal(tag, "global_step18446744073709551615");
	assert_true(tag_parse(tag, &step) && step == UINT64_MAX);
}

/* ---- listing ---- */

static void tags_are_listed_by_number(void **state)
{
	const uint64_t steps[] = {10, 9, 100, 0};
	struct tags_root *root = open_with(steps, 4);
	struct store *store = tags_root_store(root);
	struct tag_info *tags;
	size_t n;

	assert_int_equal(store_mkdir(store, "other", NULL), 0);
	assert_int_equal(store_mkdir(store, "global_step007", NULL), 0);
	assert_int_equal(store_write_small(store, "global_step55", "x", 1, NULL), 0);
	assert_tags(root, "0 9 10 100 ");
	assert_int_equal(tags_list(root, NULL, &tags, &n, NULL), 0);
	assert_string_equal(tags[2].tag, "global_step10");
	assert_int_equal(tags[2].world, 1);
	assert_int_equal(tags[2].created_ns, 1);
	assert_int_equal(tags[2].size_bytes,
		sample_get(10, 0)->parts[0].plan.size_bytes +
			sample_get(10, 0)->parts[1].plan.size_bytes);
	assert_false(tags[2].pinned);
	free(tags);
	tags_root_close(root);
}

/* ---- each defence by itself ---- */

/* Does one thing to tag 2, all else being right, and expects it to be broken for that reason. */
static void assert_broken(void (*harm)(struct store *store), const char *why)
{
	const uint64_t steps[] = {1, 2};
	struct tags_root *root = open_with(steps, 2);
	struct store *store = tags_root_store(root);
	struct manifest manifest;
	struct tag_info *tags;
	struct pawl_err err;
	size_t n;

	harm(store);
	assert_int_equal(tag_open(root, "global_step2", &manifest, &err), PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, why));
	assert_int_equal(tags_list(root, NULL, &tags, &n, NULL), 0);
	assert_int_equal(tags[1].state, TAG_BROKEN);
	assert_non_null(strstr(tags[1].why, why));
	assert_int_equal(tags[0].state, TAG_COMPLETE);
	free(tags);
	tags_root_close(root);
}

static void write_file(struct store *store, const char *path, const char *text)
{
	assert_int_equal(store_write_small(store, path, text, strlen(text), NULL), 0);
}

static void no_complete(struct store *store)
{
	assert_int_equal(store_remove(store, "global_step2/complete.txt", NULL), 0);
}

static void empty_complete(struct store *store)
{
	write_file(store, "global_step2/complete.txt", "");
}

static void short_complete(struct store *store)
{
	write_file(store, "global_step2/complete.txt", "O");
}

static void long_complete(struct store *store)
{
	write_file(store, "global_step2/complete.txt", "OK\n");
}

static void other_complete(struct store *store)
{
	write_file(store, "global_step2/complete.txt", "ok");
}

static void no_manifest(struct store *store)
{
	assert_int_equal(store_remove(store, "global_step2/.pawl/manifest", NULL), 0);
}

static void damaged_manifest(struct store *store)
{
	assert_int_equal(store_mem_flip(store, "global_step2/.pawl/manifest", 500, NULL), 0);
}

static void foreign_manifest(struct store *store)
{
	void *bytes;
	size_t len_bytes;

	assert_int_equal(store_read_small(store, "global_step1/.pawl/manifest", &bytes, &len_bytes,
				 1 << 20, NULL),
		0);
	assert_int_equal(
		store_write_small(store, "global_step2/.pawl/manifest", bytes, len_bytes, NULL), 0);
	free(bytes);
}

/* Writes a whole manifest, with that tag, step and time, into the directory in. */
static void write_manifest(struct store *store, const char *in, const char *tag, uint64_t step,
	int64_t created_ns)
{
	struct manifest manifest = {.step = step, .world = 1, .created_ns = created_ns};
	struct wire_out out = {0};
	char path[100];

	snprintf(path, sizeof(path), "%s/.pawl/manifest", in);
	memcpy(manifest.tag, tag, strlen(tag) + 1);
	manifest_encode(&manifest, &out);
	assert_int_equal(store_write_small(store, path, out.bytes, out.len_bytes, NULL), 0);
	wire_out_deinit(&out);
}

static void manifest_of_other_tag(struct store *store)
{
	write_manifest(store, "global_step2", "global_step3", 2, 0);
}

static void manifest_of_other_step(struct store *store)
{
	write_manifest(store, "global_step2", "global_step2", 3, 0);
}

static void no_file(struct store *store)
{
	assert_int_equal(store_remove(store, "global_step2/model", NULL), 0);
}

static void short_file(struct store *store)
{
	write_file(store, "global_step2/model", "short");
}

static void directory_for_file(struct store *store)
{
	no_file(store);
	assert_int_equal(store_mkdir(store, "global_step2/model", NULL), 0);
}

static void long_file(struct store *store)
{
	assert_int_equal(store_append_small(store, "global_step2/model", "x", 1, true, NULL), 0);
}

static void each_defence_is_enough(void **state)
{
	assert_broken(no_complete, "complete.txt is missing");
	assert_broken(empty_complete, "complete.txt is not OK");
	assert_broken(short_complete, "complete.txt is not OK");
	assert_broken(long_complete, "complete.txt is not OK");
	assert_broken(other_complete, "complete.txt is not OK");
	assert_broken(no_manifest, "manifest is missing");
	assert_broken(damaged_manifest, "checksum");
	assert_broken(foreign_manifest, "the manifest of global_step1");
	assert_broken(manifest_of_other_tag, "the manifest of global_step3");
	assert_broken(manifest_of_other_step, "step 3");
	assert_broken(no_file, "model is missing");
	assert_broken(short_file, "5 bytes long");
	assert_broken(long_file, "were written");
	assert_broken(directory_for_file, "not a file");
}

/* Steps are known from names alone. A tag whose name is not made from its step is opened; if it is
 * broken, the number at the end of its name counts. */
static void steps_are_known_without_opening(void **state)
{
	const uint64_t steps[] = {1, 12, 2};
	struct tags_root *root = open_with(steps, 3);
	struct store *store = tags_root_store(root);
	struct tag_step *tags;
	struct tag_step highest;
	size_t n;

	no_file(store);
	assert_int_equal(store_mkdir(store, "global_step40", NULL), 0); /* not ours */
	assert_int_equal(store_mkdir(store, "run-007", NULL), 0);
	assert_int_equal(store_mkdir(store, "run-007/.pawl", NULL), 0);
	assert_int_equal(store_mkdir(store, "other-9", NULL), 0);
	assert_int_equal(tags_steps(root, NULL, &tags, &n, NULL), 0);
	assert_int_equal(n, 5);
	assert_int_equal(tags[1].step, 2);
	assert_true(tags[1].named);
	assert_string_equal(tags[2].tag, "run-007");
	assert_int_equal(tags[2].step, 7);
	assert_false(tags[2].named);
	assert_int_equal(tags[4].step, 40);
	free(tags);
	assert_int_equal(tags_highest(root, NULL, &highest, NULL), 0);
	assert_int_equal(highest.step, 12);
	tags_root_close(root);
}

/* The order for restores and retention: of one step, the tag saved last is the newest. */
static void tags_of_one_step_are_ordered_by_age(void **state)
{
	const uint64_t steps[] = {9, 10};
	struct tags_root *root = open_with(steps, 2);
	struct store *store = tags_root_store(root);
	struct tag_step *tags;
	size_t n;

	assert_int_equal(store_mkdir(store, "older", NULL), 0);
	assert_int_equal(store_mkdir(store, "older/.pawl", NULL), 0);
	assert_int_equal(store_mkdir(store, "younger", NULL), 0);
	assert_int_equal(store_mkdir(store, "younger/.pawl", NULL), 0);
	write_manifest(store, "older", "older", 9, 0); /* samples have time 1 */
	write_manifest(store, "younger", "younger", 9, 2);
	assert_int_equal(tags_steps(root, NULL, &tags, &n, NULL), 0);
	assert_int_equal(n, 4);
	assert_string_equal(tags[0].tag, "older");
	assert_string_equal(tags[1].tag, "global_step9");
	assert_string_equal(tags[2].tag, "younger");
	assert_int_equal(tags[3].created_ns, 0); /* global_step10 is not opened */
	free(tags);
	tags_root_close(root);
}

/* ---- the newest ---- */

/* Tags that a search passed by, as "12 9 ". */
struct skipped {
	char text[256];
	int code; /* error code of the last tag passed by */
};

static void record_skipped(void *user, const char *tag, const struct pawl_err *why)
{
	struct skipped *skipped = user;
	size_t len_bytes = strlen(skipped->text);
	uint64_t step;

	assert_true(tag_parse(tag, &step));
	snprintf(skipped->text + len_bytes, sizeof(skipped->text) - len_bytes, "%llu ",
		(unsigned long long)step);
	skipped->code = why->code;
}

static void remove_in(struct store *store, uint64_t step, const char *name)
{
	char path[300];

	snprintf(path, sizeof(path), "global_step%llu/%s", (unsigned long long)step, name);
	assert_int_equal(store_remove(store, path, NULL), 0);
}

/* Expects the newest whole tag, or an error code, and the tags passed by before it. */
static void assert_newest(struct tags_root *root, int expected, uint64_t step, const char *passed)
{
	struct skipped skipped = {.code = 0};
	const struct tags_search search = {.on_skipped = record_skipped, .user = &skipped};
	struct manifest manifest;

	assert_int_equal(tags_newest(root, &search, &manifest, NULL), expected);
	assert_string_equal(skipped.text, passed);
	if (expected == 0) {
		assert_int_equal(manifest.step, step);
		manifest_deinit(&manifest);
	}
}

static void the_newest_whole_tag_is_found(void **state)
{
	const uint64_t steps[] = {1, 2, 9, 12};
	struct tags_root *root = open_with(steps, 4);
	struct store *store = tags_root_store(root);

	assert_int_equal(store_mkdir(store, "global_step99", NULL), 0); /* not ours */
	assert_newest(root, 0, 12, "");
	remove_in(store, 12, ".pawl/manifest");
	remove_in(store, 9, "complete.txt");
	assert_newest(root, 0, 2, "12 9 ");
	remove_in(store, 2, "complete.txt");
	remove_in(store, 1, "complete.txt");
	assert_newest(root, PAWL_ECORRUPT, 0, "12 9 2 1 ");
	tags_root_close(root);
	root = open_with(NULL, 0);
	assert_newest(root, PAWL_ENOENT, 0, "");
	tags_root_close(root);
}

/* Returns true, to stop the search, once it was asked *left times. */
static bool ask(void *user)
{
	unsigned *left = user;

	return (*left)-- == 0;
}

static void a_look_is_broken_off(void **state)
{
	const uint64_t steps[] = {1, 2, 3, 4};
	struct tags_root *root = open_with(steps, 4);
	struct store *store = tags_root_store(root);
	struct skipped skipped = {.code = 0};
	unsigned left = 2;
	const struct tags_stop stop = {ask, &left};
	const struct tags_search search = {&stop, record_skipped, &skipped};
	struct manifest manifest;
	struct tag_info *tags;
	size_t n;

	for (uint64_t step = 1; step <= 4; step++) {
		remove_in(store, step, "complete.txt");
	}
	assert_int_equal(tags_newest(root, &search, &manifest, NULL), PAWL_ECANCELED);
	assert_string_equal(skipped.text, "4 3 ");
	left = 3;
	assert_int_equal(tags_list(root, &stop, &tags, &n, NULL), PAWL_ECANCELED);
	tags_root_close(root);
}

/* ---- publishing ---- */

static void a_step_saved_again_is_replaced(void **state)
{
	const uint64_t steps[] = {1, 2};
	struct tags_root *root = open_with(steps, 2);
	struct store *store = tags_root_store(root);
	uint32_t attempt;

	assert_int_equal(store_write_small(store, "global_step2/extra", "x", 1, NULL), 0);
	assert_int_equal(sample_save(sample_get(2, 1), root, NULL), 0);
	assert_int_equal(sample_load(root, "global_step2", &attempt, NULL), 0);
	assert_int_equal(attempt, 1);
	assert_false(has(store, "global_step2/extra"));
	assert_false(has(store, ".pawl.global_step2.new"));
	assert_tags(root, "1 2 ");
	tags_root_close(root);
}

/* Each operation of a save fails, once or for good, whole or half done: the save reports it or has
 * happened; no other tag is touched; the next save succeeds by itself when the cause is gone. */
static void saves_may_fail_anywhere(void **state)
{
	static const struct store_fault_plan plans[] = {
		{.what = STORE_FAULT_FAIL, .code = PAWL_EIO},
		{.what = STORE_FAULT_FAIL, .code = PAWL_ENOSPC, .forever = true},
		{.what = STORE_FAULT_TEAR, .code = PAWL_ENOSPC},
	};
	const uint64_t steps[] = {1, 2};

	for (size_t p = 0; p < 3; p++) {
		struct store_fault_plan plan = plans[p];
		uint64_t ops = UINT64_MAX; /* operations of a round */

		for (plan.nth = 1; ops >= plan.nth - 1; plan.nth++) {
			struct tags_root *root = open_failing(steps, 2);
			struct store *store = tags_root_store(root);
			uint32_t attempt;
			int rv;

			store_fault_set(store, &plan);
			rv = sample_save(sample_get(2, 1), root, NULL);
			ops = store_fault_ops(store);
			store_fault_set(store, NULL);
			assert_int_equal(sample_load(root, "global_step1", NULL, NULL), 0);
			assert_int_equal(sample_load(root, "global_step2", &attempt, NULL), 0);
			assert_true(rv != 0 || attempt == 1);
			assert_int_equal(sample_save(sample_get(2, 2), root, NULL), 0);
			assert_int_equal(sample_load(root, "global_step2", &attempt, NULL), 0);
			assert_int_equal(attempt, 2);
			assert_tags(root, "1 2 ");
			assert_false(has(store, ".pawl.global_step2.new"));
			assert_false(has(store, ".pawl.global_step2.old"));
			tags_root_close(root);
		}
	}
}

/* The system cannot exchange names: operation nth, which asks for it, is refused, and any other may
 * fail besides. The old tag is put back, or the new one is in place. */
static void replacing_in_steps_may_fail_anywhere(void **state)
{
	const uint64_t steps[] = {1, 2};
	unsigned in_steps = 0;

	for (uint64_t nth = 1; nth < 60; nth++) {
		for (uint64_t other = nth; other < nth + 8; other++) {
			const struct store_fault_plan refuse = {.what = STORE_FAULT_FAIL,
				.nth = nth,
				.code = PAWL_ENOTSUP};
			const struct store_fault_plan fail = {.what = STORE_FAULT_FAIL,
				.nth = other,
				.code = PAWL_EIO};
			struct store *mem, *inner, *outer;
			struct tags_root *root;
			uint32_t attempt;
			int rv;

			assert_int_equal(store_mem_open(&mem, NULL), 0);
			assert_int_equal(store_fault_open(mem, NULL, &inner, NULL), 0);
			assert_int_equal(store_fault_open(inner, NULL, &outer, NULL), 0);
			root = open_over(outer, steps, 2);
			store_fault_set(inner, &fail);
			store_fault_set(outer, &refuse);
			rv = sample_save(sample_get(2, 1), root, NULL);
			store_fault_set(inner, NULL);
			store_fault_set(outer, NULL);
			in_steps += strstr(store_mem_trace(mem), " .pawl.global_step2.old") != NULL;
			assert_int_equal(sample_load(root, "global_step2", &attempt, NULL), 0);
			assert_true(rv != 0 || attempt == 1);
			tags_root_close(root);
		}
	}
	assert_int_equal(in_steps, 7); /* the first of the two renames failed once */
}

/* After an exchange that was not synced, the hidden directory may be all that a power cut leaves of
 * the old tag: an abandoned save removes nothing before the root is synced. */
static void an_abandoned_save_syncs_before_it_removes(void **state)
{
	unsigned removed = 0;

	for (uint64_t nth = 1; nth < 12; nth++) {
		const struct store_fault_plan plan = {.what = STORE_FAULT_FAIL,
			.nth = nth,
			.code = PAWL_EIO};
		struct store *mem, *store;
		struct tags_root *root;
		struct tag_draft draft;
		const char *synced, *remove;
		size_t before;

		assert_int_equal(store_mem_open(&mem, NULL), 0);
		assert_int_equal(store_fault_open(mem, NULL, &store, NULL), 0);
		root = open_over(store, NULL, 0);
		assert_int_equal(tag_begin(root, "global_step2", &draft, NULL), 0);
		before = strlen(store_mem_trace(mem));
		store_fault_set(store, &plan);
		tag_abandon(root, &draft);
		remove = strstr(store_mem_trace(mem) + before, "remove ");
		synced = strstr(store_mem_trace(mem) + before, "sync_dir \n");
		assert_true(remove == NULL || (synced != NULL && synced < remove));
		removed += remove != NULL;
		tags_root_close(root);
	}
	assert_true(removed > 0 && removed < 11);
}

/* What a crash may leave, one state after the other. */
static void recovery_knows_what_a_hidden_name_means(void **state)
{
	const uint64_t steps[] = {1, 2, 3, 4};
	struct tags_root *root = open_with(steps, 4);
	struct store *store = tags_root_store(root);

	/* A replacement without exchange, cut off in the middle: the old tag is put back. */
	assert_int_equal(
		store_rename(store, "global_step1", ".pawl.global_step1.old", STORE_REPLACE, NULL),
		0);
	assert_int_equal(store_mkdir(store, ".pawl.global_step1.new", NULL), 0);
	/* A replacement cut off after that: the old tag is removed. */
	assert_int_equal(
		store_rename(store, "global_step2", ".pawl.global_step2.old", STORE_REPLACE, NULL),
		0);
	assert_int_equal(sample_save(sample_get(20, 0), root, NULL), 0);
	assert_int_equal(store_mkdir(store, "global_step2", NULL), 0);
	assert_int_equal(store_mkdir(store, "global_step2/.pawl", NULL), 0);
	/* One tag was being removed, another one being built. */
	assert_int_equal(
		store_rename(store, "global_step3", ".pawl.global_step3.del", STORE_REPLACE, NULL),
		0);
	assert_int_equal(store_mkdir(store, ".pawl.global_step5.new", NULL), 0);
	/* Names that are not ours stay. */
	assert_int_equal(store_mkdir(store, ".git.new", NULL), 0);
	assert_int_equal(store_mkdir(store, ".pawl.new", NULL), 0);

	assert_int_equal(tags_recover(root, NULL), 0);
	assert_tags(root, "1 (2) 4 20 ");
	assert_int_equal(sample_load(root, "global_step1", NULL, NULL), 0);
	assert_false(has(store, ".pawl.global_step1.new"));
	assert_false(has(store, ".pawl.global_step2.old"));
	assert_false(has(store, ".pawl.global_step3.del"));
	assert_false(has(store, ".pawl.global_step5.new"));
	assert_true(has(store, ".git.new"));
	assert_true(has(store, ".pawl.new"));
	tags_root_close(root);
}

/* ---- pins and retention ---- */

static void pinned_steps_stay(void **state)
{
	const uint64_t steps[] = {1, 2, 3, 4};
	const struct retain_rule rule = {.keep_last = 1};
	struct tags_root *root = open_with(steps, 4);

	assert_int_equal(tag_pin(root, "global_step7", true, NULL), PAWL_ENOENT);
	assert_int_equal(tag_pin(root, "global_step2", true, NULL), 0);
	assert_int_equal(tag_pin(root, "global_step1", true, NULL), 0);
	assert_int_equal(tag_pin(root, "global_step2", true, NULL), 0); /* pinning again: nothing */
	assert_int_equal(tag_pin(root, "global_step1", false, NULL), 0);
	assert_int_equal(tag_pin(root, "global_step9", false, NULL), 0);
	assert_int_equal(tags_retain(root, &rule, NULL), 0);
	assert_tags(root, "2 4 ");
	assert_int_equal(tag_pin(root, "global_step2", false, NULL), 0);
	assert_int_equal(tags_retain(root, &rule, NULL), 0);
	assert_tags(root, "4 ");
	tags_root_close(root);
}

/* DeepSpeed's latest file outlives the worker that would have moved it on. */
static void what_latest_names_stays(void **state)
{
	const uint64_t steps[] = {1, 2, 3, 4};
	const struct retain_rule rule = {.keep_last = 1};
	struct tags_root *root = open_with(steps, 4);
	struct store *store = tags_root_store(root);

	write_file(store, "latest", "global_step2");
	assert_int_equal(tags_retain(root, &rule, NULL), 0);
	assert_tags(root, "2 4 ");
	write_file(store, "latest", "global_step4\n");
	assert_int_equal(tags_retain(root, &rule, NULL), 0);
	assert_tags(root, "4 ");
	tags_root_close(root);
}

static void a_latest_that_names_no_tag_keeps_none(void **state)
{
	const char *const too_long =
		"a line that is longer than any tag can be, since a tag has at most one hundred "
		"and twenty-seven bytes, as this one has not: it goes on";
	const char *const other[] = {"", "global_step", "global_step11", "2", too_long};

	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		const uint64_t steps[] = {1, 2};
		const struct retain_rule rule = {.keep_last = 1};
		struct tags_root *root = open_with(steps, 2);
		struct store *store = tags_root_store(root);

		write_file(store, "latest", other[i]);
		assert_int_equal(tags_retain(root, &rule, NULL), 0);
		assert_tags(root, "2 ");
		tags_root_close(root);
	}
}

/* A list of pins that cannot be read pins every tag. */
static void a_damaged_list_of_pins_pins_all(void **state)
{
	static const char *const bad[] = {"1", "1\n2", "x\n", "\n", "01\n", "-1\n",
		"99999999999999999999999\n"};
	const uint64_t steps[] = {1, 2};
	const struct retain_rule rule = {.keep_last = 1};
	struct tags_root *root = open_with(steps, 2);
	struct store *store = tags_root_store(root);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_file(store, ".pins", bad[i]);
		assert_int_equal(tags_retain(root, &rule, NULL), 0);
		assert_tags(root, "1 2 ");
		assert_int_equal(tag_pin(root, "global_step1", true, NULL), PAWL_ECORRUPT);
	}
	write_file(store, ".pins", "");
	assert_int_equal(tags_retain(root, &rule, NULL), 0);
	assert_tags(root, "2 ");
	tags_root_close(root);
}

/* A broken tag is not counted among those kept, and is not deleted. */
static void broken_tags_do_not_count(void **state)
{
	const uint64_t steps[] = {1, 2, 3};
	const struct retain_rule rule = {.keep_last = 1};
	struct tags_root *root = open_with(steps, 3);
	struct store *store = tags_root_store(root);

	assert_int_equal(store_mem_flip(store, "global_step3/.pawl/manifest", 300, NULL), 0);
	assert_int_equal(tags_retain(root, &rule, NULL), 0);
	assert_tags(root, "2 (3) ");
	tags_root_close(root);
}

/* Returns the number of store operations that retention needs in a root with n tags that the rule
 * keeps. */
static uint64_t count_asked(uint64_t n, const struct retain_rule *rule)
{
	struct tags_root *root = open_failing(NULL, 0);
	struct store *store = tags_root_store(root);
	uint64_t ops;

	for (uint64_t i = 1; i <= n; i++) {
		assert_int_equal(sample_save(sample_get(10 * i, 0), root, NULL), 0);
	}
	store_fault_set(store, NULL);
	assert_int_equal(tags_retain(root, rule, NULL), 0);
	ops = store_fault_ops(store);
	assert_true(has(store, "global_step10"));
	tags_root_close(root);
	return ops;
}

/* Retention runs after each save, in roots with thousands of tags. */
static void what_stays_anyway_is_not_opened(void **state)
{
	const struct retain_rule every = {.keep_last = 2, .keep_every = 10};
	const struct retain_rule all = {.keep_last = 0};

	assert_int_equal(count_asked(30, &every), count_asked(3, &every));
	assert_int_equal(count_asked(3, &all), 0);
}

/* Removal renames all tags, syncs the root once, and only then deletes. */
static void what_is_let_go_is_gone_before_it_is_removed(void **state)
{
	const uint64_t steps[] = {1, 2, 3};
	const struct retain_rule rule = {.keep_last = 1};
	struct tags_root *root = open_with(steps, 3);
	struct store *store = tags_root_store(root);
	const char *trace, *renamed, *synced;

	assert_int_equal(tags_retain(root, &rule, NULL), 0);
	trace = store_mem_trace(store);
	renamed = strstr(trace, "rename global_step2 .pawl.global_step2.del\n");
	assert_non_null(renamed);
	assert_true(strstr(trace, "rename global_step1 .pawl.global_step1.del\n") < renamed);
	synced = strstr(renamed, "sync_dir \n");
	assert_non_null(synced);
	assert_true(strstr(trace, "remove .pawl.global_step1.del/") > synced);
	assert_true(strstr(trace, "remove .pawl.global_step2.del/") > synced);
	tags_root_close(root);
}

/* ---- quarantine ---- */

/* On a full disk there is no room for the reason, but the tag is out of the way. */
static void a_full_disk_does_not_keep_a_bad_tag(void **state)
{
	const uint64_t steps[] = {1, 2};

	for (uint64_t nth = 1; nth < 12; nth++) {
		const struct store_fault_plan plan = {.what = STORE_FAULT_FAIL,
			.nth = nth,
			.code = PAWL_ENOSPC};
		struct tags_root *root = open_failing(steps, 2);
		struct store *store = tags_root_store(root);
		int rv;

		store_fault_set(store, &plan);
		rv = tag_quarantine(root, "global_step2", "why", NULL);
		store_fault_set(store, NULL);
		assert_true(rv != 0 || !has(store, "global_step2"));
		assert_int_equal(sample_load(root, "global_step1", NULL, NULL), 0);
		tags_root_close(root);
	}
}

static void allocations_may_fail(void **state)
{
	static const char *const points[] = {"tags.names", "tags.list", "tags.retain"};
	const uint64_t steps[] = {1, 2, 3};
	const struct retain_rule rule = {.keep_last = 1};
	const struct tags_search search = {.stop = NULL};
	struct tags_root *root = open_with(steps, 3);
	struct manifest manifest;

	fault_arm("tags.steps", 1, ENOMEM, false);
	assert_int_equal(tags_newest(root, &search, &manifest, NULL), PAWL_ENOMEM);
	for (size_t i = 0; i < 3; i++) {
		fault_arm(points[i], 1, ENOMEM, false);
		assert_int_equal(tags_retain(root, &rule, NULL), PAWL_ENOMEM);
	}
	fault_arm("tags.retain", 2, ENOMEM, false);
	assert_int_equal(tags_retain(root, &rule, NULL), PAWL_ENOMEM);
	fault_arm("tags.pins", 1, ENOMEM, false);
	assert_int_equal(tags_retain(root, &rule, NULL), 0); /* all count as pinned */
	fault_disarm();
	assert_tags(root, "1 2 3 ");
	tags_root_close(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_parsed),
		cmocka_unit_test(tags_are_listed_by_number),
		cmocka_unit_test(each_defence_is_enough),
		cmocka_unit_test(steps_are_known_without_opening),
		cmocka_unit_test(tags_of_one_step_are_ordered_by_age),
		cmocka_unit_test(the_newest_whole_tag_is_found),
		cmocka_unit_test(a_look_is_broken_off),
		cmocka_unit_test(a_step_saved_again_is_replaced),
		cmocka_unit_test(saves_may_fail_anywhere),
		cmocka_unit_test(replacing_in_steps_may_fail_anywhere),
		cmocka_unit_test(an_abandoned_save_syncs_before_it_removes),
		cmocka_unit_test(recovery_knows_what_a_hidden_name_means),
		cmocka_unit_test(pinned_steps_stay),
		cmocka_unit_test(what_latest_names_stays),
		cmocka_unit_test(a_latest_that_names_no_tag_keeps_none),
		cmocka_unit_test(a_damaged_list_of_pins_pins_all),
		cmocka_unit_test(broken_tags_do_not_count),
		cmocka_unit_test(what_stays_anyway_is_not_opened),
		cmocka_unit_test(what_is_let_go_is_gone_before_it_is_removed),
		cmocka_unit_test(a_full_disk_does_not_keep_a_bad_tag),
		cmocka_unit_test(allocations_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
