/* Roots of objects alone: races for a tag and for the root, answers that are lost, requests that
 * fail, manifests that cannot be read, and names that only look like ours. */
#include "base/err.h"
#include "base/fault.h"
#include "building.h"
#include "ckpt/format/retain.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "each_fault.h"
#include "expect.h"
#include "sample.h"
#include "store/fault.h"
#include "store/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct tags_root *root;
static struct store *store; /* root's store, which may be made to fail, */
static struct store *inner; /* and the one below it, likewise */
static struct pawl_err err;

static const uint32_t ones[BUILDING_CHUNKS] = {1, 1};
static const uint32_t twos[BUILDING_CHUNKS] = {1, 2};

static int open_root(void **state)
{
	struct store *mem;

	return store_mem_open_flat(&mem, &err) != 0 ||
		store_fault_open(mem, NULL, &inner, &err) != 0 ||
		store_fault_open(inner, NULL, &store, &err) != 0 ||
		tags_root_over(store, &root, &err) != 0;
}

static int close_root(void **state)
{
	tags_root_close(root);
	return 0;
}

/* Opens an empty root in place of the one that a round has left: what lies there makes the next
 * round's operations more. */
static void open_anew(void **state)
{
	close_root(state);
	assert_int_equal(open_root(state), 0);
}

static void save(uint64_t step, uint32_t attempt)
{
	OK(sample_save(sample_get(step, attempt), root, &err));
}

static void assert_saved(uint64_t step, uint32_t attempt)
{
	char tag[CKPT_TAG_MAX];
	uint32_t found = UINT32_MAX;

	tag_of_step(tag, sizeof(tag), step);
	OK(sample_load(root, tag, &found, &err));
	assert_int_equal(found, attempt);
}

static void put(const char *name, const char *text)
{
	OK(store_write_small(store, name, text, strlen(text), &err));
}

static bool has(const char *name)
{
	return store_stat(store, name, NULL, NULL, NULL) == 0;
}

static size_t count_leftovers(void)
{
	struct tag_leftover *left;
	size_t n;

	OK(tags_leftovers(root, &left, &n, &err));
	free(left);
	return n;
}

/* Begins a tag of one part and writes it, but does not publish it. */
static void draft(struct building *building, const char *tag, const uint32_t *content)
{
	OK(building_begin(building, root, tag, 1, NULL, &err));
	OK(building_write(building, "model", content, NULL, &err));
}

static void discard(struct building *building)
{
	tag_abandon(root, &building->draft);
	building_deinit(building);
}

/* ---- races ---- */

static void the_first_of_two_publishers_wins(void **state)
{
	struct building first, second;

	for (int replaces = 0; replaces < 2; replaces++) {
		draft(&first, "tag", replaces ? twos : ones);
		draft(&second, "tag", (const uint32_t[]){6, 6});
		assert_string_not_equal(first.draft.dir, second.draft.dir);
		OK(building_publish(&first, &err));
		FAILS(PAWL_EBUSY, building_publish(&second, &err));
		assert_non_null(strstr(err.msg, "publish tag: another process has published"));
		building_deinit(&first);
		discard(&second);
		OK(building_check(root, "tag", "model", replaces ? twos : ones, &err));
		assert_int_equal(count_leftovers(), 0);
	}
}

/* A tag that was removed meanwhile is not brought back by a save that meant to replace it. */
static void a_tag_removed_meanwhile_stays_removed(void **state)
{
	struct building building;

	draft(&building, "tag", ones);
	OK(building_publish(&building, &err));
	building_deinit(&building);
	draft(&building, "tag", twos);
	OK(tag_remove(root, "tag", &err));
	FAILS(PAWL_EBUSY, building_publish(&building, &err));
	discard(&building);
	assert_false(has(".pawl/tags/tag"));
	assert_int_equal(tags_root_measure(root, "tag"), 0);
}

static void an_owner_that_lost_the_root_changes_nothing(void **state)
{
	char holder[ROOT_HOLDER_MAX];
	struct building building;

	OK(tags_root_lock(root, "one", true, &err));
	save(1, 0);
	draft(&building, "tag", ones);
	put(".pawl/owner", "job two (pid 7 on other)\n0123456789abcdef\n");
	assert_false(tags_root_holds(root));
	FAILS(PAWL_EBUSY, building_publish(&building, &err));
	assert_non_null(strstr(err.msg, "another job has taken the root"));
	assert_false(has(".pawl/tags/tag"));
	FAILS(PAWL_EBUSY, sample_save(sample_get(1, 1), root, &err));
	FAILS(PAWL_EBUSY, tag_remove(root, "global_step1", &err));
	FAILS(PAWL_EBUSY, tag_quarantine(root, "global_step1", "", &err));
	FAILS(PAWL_EBUSY, tags_recover(root, &err));
	assert_saved(1, 0);
	assert_true(tags_root_holder(root, holder));
	assert_string_equal(holder, "job two (pid 7 on other)");
	OK(tags_root_lock(root, "one", true, &err)); /* a new agent of the job would do that */
	assert_true(tags_root_holds(root));
	OK(building_publish(&building, &err));
	building_deinit(&building);
	OK(store_remove(store, ".pawl/owner", &err));
	assert_false(tags_root_holds(root));
}

/* ---- requests that fail ---- */

/* Each operation of a save fails: the save reports it, or has happened; no other tag is touched;
 * and the next save and recovery leave nothing of it. */
static void fail_saves(const struct store_fault_plan *how)
{
	struct store_fault_plan plan = *how;
	uint64_t ops = UINT64_MAX; /* operations of a round */

	for (plan.nth = 1; ops >= plan.nth - 1; plan.nth++) {
		uint32_t attempt;
		int rv;

		save(1, 0);
		save(2, 0);
		store_fault_set(store, &plan);
		rv = sample_save(sample_get(2, 1), root, &err);
		ops = store_fault_ops(store);
		store_fault_set(store, NULL);
		assert_true(rv == 0 || ops >= plan.nth);
		assert_saved(1, 0);
		OK(sample_load(root, "global_step2", &attempt, &err));
		assert_true(rv != 0 || attempt == 1);
		save(2, 2);
		assert_saved(2, 2);
		OK(tags_recover(root, &err));
		assert_int_equal(count_leftovers(), 0);
		assert_saved(1, 0);
		assert_saved(2, 2);
		assert_true(plan.nth < 1000);
	}
}

static void saves_may_fail_anywhere(void **state)
{
	fail_saves(&(struct store_fault_plan){.what = STORE_FAULT_FAIL, .code = PAWL_EIO});
	fail_saves(&(struct store_fault_plan){.what = STORE_FAULT_FAIL,
		.code = PAWL_ENOSPC,
		.forever = true});
	fail_saves(&(struct store_fault_plan){.what = STORE_FAULT_TEAR, .code = PAWL_ENOSPC});
	fail_saves(&(struct store_fault_plan){.what = STORE_FAULT_UNANSWERED, .code = PAWL_EIO});
	fail_saves(&(struct store_fault_plan){.what = STORE_FAULT_UNANSWERED,
		.code = PAWL_EIO,
		.forever = true});
}

/* Finds the operation of a save, from 1, after which its tag has changed: the PUT of the
 * manifest. */
static uint64_t find_put(void)
{
	struct store_fault_plan plan = {.what = STORE_FAULT_FAIL,
		.code = PAWL_EIO,
		.forever = true};

	for (plan.nth = 1;; plan.nth++) {
		uint32_t attempt;

		save(2, 0);
		store_fault_set(store, &plan);
		sample_save(sample_get(2, 1), root, NULL);
		store_fault_set(store, NULL);
		OK(sample_load(root, "global_step2", &attempt, &err));
		if (attempt == 1) {
			return plan.nth - 1;
		}
		assert_true(plan.nth < 1000);
	}
}

static void a_lost_answer_is_found_out(void **state)
{
	struct store_fault_plan plan = {.what = STORE_FAULT_UNANSWERED, .code = PAWL_EIO};

	plan.nth = find_put();
	save(2, 0);
	store_fault_set(store, &plan);
	OK(sample_save(sample_get(2, 1), root, &err));
	store_fault_set(store, NULL);
	assert_saved(2, 1);
}

/* The PUT works, but neither its answer nor any other comes: the save fails, and its files must
 * stay, since they are those of a tag. */
static void files_that_may_be_used_are_not_abandoned(void **state)
{
	const struct store_fault_plan lost = {.what = STORE_FAULT_UNANSWERED,
		.nth = 1,
		.code = PAWL_EIO};
	const struct store_fault_plan down = {.what = STORE_FAULT_FAIL,
		.nth = 2,
		.forever = true,
		.code = PAWL_EIO};
	struct building building;

	draft(&building, "tag", ones);
	store_fault_set(inner, &lost);
	store_fault_set(store, &down);
	FAILS(PAWL_EIO, building_publish(&building, &err));
	tag_abandon(root, &building.draft);
	store_fault_set(store, NULL);
	OK(building_check(root, "tag", "model", ones, &err));
	discard(&building);
	OK(building_check(root, "tag", "model", ones, &err));
}

/* The root is taken in spite of any failure, or its taking is reported. */
static void taking_the_root_may_fail(void **state)
{
	static const enum store_fault whats[] = {STORE_FAULT_FAIL, STORE_FAULT_UNANSWERED};

	for (size_t i = 0; i < 2; i++) {
		struct store_fault_plan plan = {.what = whats[i], .code = PAWL_EIO};
		int rv = -1;

		for (plan.nth = 1; plan.nth < 5; plan.nth++) {
			store_fault_set(store, &plan);
			rv = tags_root_lock(root, "one", false, &err);
			assert_true(rv == 0 || rv == PAWL_EIO);
			store_fault_set(store, NULL);
			assert_true(rv != 0 || tags_root_holds(root));
		}
		assert_int_equal(rv, 0);
	}
}

/* Each operation of retention, of quarantine and of recovery fails: tags that stay are whole, and
 * nothing is left in the end. */
static void removals_may_fail_anywhere(void **state)
{
	const struct retain_rule rule = {.keep_last = 1};
	struct store_fault_plan plan = {.what = STORE_FAULT_FAIL, .code = PAWL_EIO};
	uint64_t ops = UINT64_MAX; /* operations of a round */

	for (plan.nth = 1; ops >= plan.nth - 1; plan.nth++) {
		int rv;

		open_anew(state);
		for (uint64_t step = 1; step <= 4; step++) {
			save(step, 0);
		}
		store_fault_set(store, &plan);
		rv = tags_retain(root, &rule, &err);
		rv = rv == 0 ? tag_quarantine(root, "global_step4", "why", &err) : rv;
		rv = rv == 0 ? tags_recover(root, &err) : rv;
		ops = store_fault_ops(store);
		store_fault_set(store, NULL);
		assert_true(rv == 0 || ops >= plan.nth);
		OK(tags_recover(root, &err));
		assert_int_equal(count_leftovers(), 0);
		for (uint64_t step = 1; step <= 4; step++) {
			char path[64];

			snprintf(path, sizeof(path), ".pawl/tags/global_step%d", (int)step);
			if (has(path)) {
				assert_saved(step, 0);
			}
		}
		assert_true(has(".pawl/tags/global_step4") || has(".pawl/bad"));
		assert_true(plan.nth < 1000);
	}
}

/* ---- manifests that cannot be read ---- */

static void nothing_is_removed_while_a_manifest_is_damaged(void **state)
{
	struct building building;

	save(1, 0);
	save(2, 0);
	draft(&building, "tag", ones);
	building_deinit(&building);
	put(".pawl/tags/global_step2", "no manifest");
	assert_int_equal(count_leftovers(), 0);
	OK(tags_recover(root, &err));
	OK(tag_remove(root, "global_step1", &err));
	assert_true(tags_root_measure(root, "tag") > 0);
	assert_true(tags_root_measure(root, "global_step1") > 0);
	OK(tag_quarantine(root, "global_step2", "its manifest is damaged", &err));
	assert_int_equal(count_leftovers(), 2);
	OK(tags_recover(root, &err));
	assert_int_equal(tags_root_measure(root, "tag"), 0);
	assert_int_equal(tags_root_measure(root, "global_step1"), 0);
	/* Whoever looks into the quarantined tag finds its files. */
	assert_true(tags_root_measure(root, "global_step2") > 0);
}

static void a_manifest_of_a_newer_version_keeps_everything(void **state)
{
	struct building building;
	void *bytes;
	size_t len_bytes;

	save(1, 0);
	draft(&building, "tag", ones);
	building_deinit(&building);
	OK(store_read_small(store, ".pawl/tags/global_step1", &bytes, &len_bytes, 1 << 20, &err));
	((uint8_t *)bytes)[8]++; /* the lowest byte of the version */
	OK(store_write_small(store, ".pawl/tags/global_step1", bytes, len_bytes, &err));
	free(bytes);
	OK(tags_recover(root, &err));
	assert_true(tags_root_measure(root, "tag") > 0);
	assert_true(tags_root_measure(root, "global_step1") > 0);
}

/* ---- names ---- */

static void names_that_only_look_like_ours_stay(void **state)
{
	static const char *const names[] = {"runs/save-1/x", "runs/save-final/x",
		"runs/save-0123456789ABCDEF/x", "runs/save-0123456789abcdef0/x",
		"runs/save-hosts/x", "runs/other/save-0123456789abcdef/x", ".git/config",
		".hidden/save-0123456789abcdef/x", "global_step1/notes", "file"};

	save(1, 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		put(names[i], "mine");
	}
	put("runs/save-0123456789abcdef/x", "left by a save");
	assert_int_equal(count_leftovers(), 1);
	OK(tags_recover(root, &err));
	OK(tag_remove(root, "global_step1", &err));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_true(has(names[i]));
	}
	assert_false(has("runs/save-0123456789abcdef/x"));
	assert_int_equal(tags_root_measure(root, "global_step1"), 4);
}

static void what_is_no_manifest_is_no_tag(void **state)
{
	struct tag_info *tags;
	size_t n;

	put(".pawl/tags/folder/x", "y");
	put(".pawl/tags/.hidden", "y");
	put("global_step5/complete.txt", "OK");
	OK(tags_list(root, NULL, &tags, &n, &err));
	assert_int_equal(n, 0);
	free(tags);
	put(".pawl/tags/bad", "y");
	OK(tags_list(root, NULL, &tags, &n, &err));
	assert_int_equal(n, 1);
	assert_int_equal(tags[0].state, TAG_BROKEN);
	free(tags);
}

/* ---- limits and memory ---- */

static void a_file_that_is_too_long_is_not_appended_to(void **state)
{
	char *bytes = calloc(1, ROOT_FILE_MAX);

	assert_non_null(bytes);
	OK(store_write_small(store, "rows.csv", bytes, ROOT_FILE_MAX, &err));
	free(bytes);
	FAILS(PAWL_ELIMIT, tags_root_append(root, "rows.csv", "x", 1, true, &err));
	assert_non_null(strstr(err.msg, "move it away"));
	OK(tags_root_put_aside(root, "rows.csv", "rows.old.csv", &err));
	OK(tags_root_append(root, "rows.csv", "x", 1, true, &err));
}

/* All that may allocate memory of its own. */
static int use_all(void)
{
	const struct retain_rule rule = {.keep_last = 2};
	struct tag_leftover *left;
	size_t n;
	int rv = sample_save(sample_get(3, 1), root, NULL);

	rv = rv == 0 ? tags_retain(root, &rule, NULL) : rv;
	rv = rv == 0 ? tags_leftovers(root, &left, &n, NULL) : rv;
	if (rv == 0) {
		free(left);
		rv = tags_root_append(root, "rows.csv", "a\n", 2, true, NULL);
	}
	rv = rv == 0 ? tag_quarantine(root, "global_step2", "", NULL) : rv;
	return rv == 0 ? tags_recover(root, NULL) : rv;
}

static void allocations_may_fail(void **state)
{
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		open_anew(state);
		save(1, 0);
		save(2, 0);
		save(3, 0);
		fault_arm("root.", nth, ENOMEM, false);
		rv = use_all();
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(nth)));
		OK(tags_recover(root, &err));
		assert_int_equal(count_leftovers(), 0);
		OK(sample_load(root, "global_step3", NULL, &err));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_first_of_two_publishers_wins, open_root,
			close_root),
		cmocka_unit_test_setup_teardown(a_tag_removed_meanwhile_stays_removed, open_root,
			close_root),
		cmocka_unit_test_setup_teardown(an_owner_that_lost_the_root_changes_nothing,
			open_root, close_root),
		cmocka_unit_test_setup_teardown(saves_may_fail_anywhere, open_root, close_root),
		cmocka_unit_test_setup_teardown(a_lost_answer_is_found_out, open_root, close_root),
		cmocka_unit_test_setup_teardown(files_that_may_be_used_are_not_abandoned, open_root,
			close_root),
		cmocka_unit_test_setup_teardown(taking_the_root_may_fail, open_root, close_root),
		cmocka_unit_test_setup_teardown(removals_may_fail_anywhere, open_root, close_root),
		cmocka_unit_test_setup_teardown(nothing_is_removed_while_a_manifest_is_damaged,
			open_root, close_root),
		cmocka_unit_test_setup_teardown(a_manifest_of_a_newer_version_keeps_everything,
			open_root, close_root),
		cmocka_unit_test_setup_teardown(names_that_only_look_like_ours_stay, open_root,
			close_root),
		cmocka_unit_test_setup_teardown(what_is_no_manifest_is_no_tag, open_root,
			close_root),
		cmocka_unit_test_setup_teardown(a_file_that_is_too_long_is_not_appended_to,
			open_root, close_root),
		cmocka_unit_test_setup_teardown(allocations_may_fail, open_root, close_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
