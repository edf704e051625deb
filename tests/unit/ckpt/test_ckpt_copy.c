/* Tags that are copied between roots of all kinds: bit for bit, whole or not at all. */
#include "base/err.h"
#include "building.h"
#include "ckpt/copy.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "expect.h"
#include "sample.h"
#include "store/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define TAG "global_step3" /* tag of SAMPLE_LARGE_STEP */

static struct pawl_err err;

/* Fits the functions that open a store. */
typedef int open_fn(struct store **store, struct pawl_err *err);

static open_fn *const kinds[] = {store_mem_open, store_mem_open_flat};
#define KINDS 2u

static struct tags_root *make_root(open_fn *open)
{
	struct tags_root *root;
	struct store *store;

	OK(open(&store, &err));
	OK(tags_root_over(store, &root, &err));
	return root;
}

static void save(struct tags_root *root, uint32_t attempt)
{
	OK(sample_save(sample_get(SAMPLE_LARGE_STEP, attempt), root, &err));
}

static void assert_saved(struct tags_root *root, uint32_t attempt)
{
	uint32_t found = UINT32_MAX;

	OK(sample_load(root, TAG, &found, &err));
	assert_int_equal(found, attempt);
}

static size_t count_leftovers(struct tags_root *root)
{
	struct tag_leftover *left;
	size_t n;

	OK(tags_leftovers(root, &left, &n, &err));
	free(left);
	return n;
}

static void a_tag_is_copied_between_all_kinds(void **state)
{
	for (unsigned i = 0; i < KINDS * KINDS; i++) {
		struct tags_root *from = make_root(kinds[i / KINDS]);
		struct tags_root *to = make_root(kinds[i % KINDS]);
		bool same = true;

		save(from, 0);
		OK(tag_is_copied(from, TAG, to, &same, &err));
		assert_false(same);
		OK(tag_copy(from, TAG, to, NULL, &err));
		assert_saved(to, 0);
		OK(tag_is_copied(from, TAG, to, &same, &err));
		assert_true(same);
		assert_int_equal(count_leftovers(to), 0);

		save(from, 1); /* replaced */
		OK(tag_is_copied(from, TAG, to, &same, &err));
		assert_false(same);
		OK(tag_copy(from, TAG, to, NULL, &err));
		assert_saved(to, 1);
		tags_root_close(from);
		tags_root_close(to);
	}
}

/* Files that share chunks with an older tag are whole in the copy, and need only this tag. */
static void linked_files_are_copied_whole(void **state)
{
	static const uint32_t first[BUILDING_CHUNKS] = {1, 2};
	static const uint32_t second[BUILDING_CHUNKS] = {1, 3};

	for (unsigned i = 0; i < KINDS * KINDS; i++) {
		struct tags_root *from = make_root(kinds[i / KINDS]);
		struct tags_root *to = make_root(kinds[i % KINDS]);
		struct building a = {0}, b = {0};
		struct manifest old, copied;

		OK(building_begin(&a, from, "one", 1, NULL, &err));
		OK(building_write(&a, "model", first, NULL, &err));
		OK(building_publish(&a, &err));
		OK(tag_open(from, "one", &old, &err));
		OK(building_begin(&b, from, "two", 2, NULL, &err));
		OK(building_write(&b, "model", second, &old, &err));
		OK(building_publish(&b, &err));
		assert_int_equal(b.parts[0].sources_n, 2);
		OK(tag_copy(from, "two", to, NULL, &err));
		OK(building_check(to, "two", "model", second, &err));
		OK(tag_open(to, "two", &copied, &err));
		assert_int_equal(copied.parts[0].sources_n, 0);
		assert_int_equal(copied.parts[0].depth, 0);
		manifest_deinit(&copied);
		manifest_deinit(&old);
		building_deinit(&a);
		building_deinit(&b);
		tags_root_close(from);
		tags_root_close(to);
	}
}

static void what_is_copied_is_not_written_again(void **state)
{
	for (unsigned i = 0; i < KINDS; i++) {
		struct tags_root *from = make_root(kinds[1 - i]);
		struct tags_root *to = make_root(kinds[i]);
		uint64_t ops;

		save(from, 0);
		OK(tag_copy(from, TAG, to, NULL, &err));
		ops = store_mem_ops(tags_root_store(to));
		OK(tag_copy(from, TAG, to, NULL, &err));
		assert_int_equal(store_mem_ops(tags_root_store(to)), ops);
		tags_root_close(from);
		tags_root_close(to);
	}
}

static void damage_is_not_copied(void **state)
{
	for (unsigned i = 0; i < KINDS; i++) {
		struct tags_root *from = make_root(kinds[i]);
		struct tags_root *to = make_root(kinds[1 - i]);
		char path[STORE_PATH_MAX];
		struct manifest manifest;

		save(from, 0);
		save(to, 1);
		OK(tag_open(from, TAG, &manifest, &err));
		manifest_path(path, sizeof(path), &manifest, &manifest.parts[1], 0);
		OK(store_mem_flip(tags_root_store(from), path,
			8 * (manifest.parts[1].size_bytes - 1), &err));
		manifest_deinit(&manifest);
		FAILS(PAWL_ECORRUPT, tag_copy(from, TAG, to, NULL, &err));
		assert_saved(to, 1); /* unchanged */
		FAILS(PAWL_ENOENT, tag_copy(from, "nothing", to, NULL, &err));
		tags_root_close(from);
		tags_root_close(to);
	}
}

/* Ends the copy when the count at user is used up. */
static int count_down(void *user, struct pawl_err *why)
{
	unsigned *left = user;

	return (*left)-- > 0 ? 0 : pawl_err_set(why, PAWL_ECANCELED, "enough");
}

static void add_bytes(void *user, uint64_t bytes)
{
}

static void a_copy_can_be_ended(void **state)
{
	for (unsigned i = 0; i < KINDS; i++) {
		struct tags_root *from = make_root(kinds[1 - i]);
		struct tags_root *to = make_root(kinds[i]);
		unsigned left = 1;
		const struct copy_watch watch = {count_down, add_bytes, &left};
		struct manifest manifest;

		save(from, 0);
		FAILS(PAWL_ECANCELED, tag_copy(from, TAG, to, &watch, &err));
		FAILS(PAWL_ENOENT, tag_open(to, TAG, &manifest, &err));
		left = 100;
		OK(tag_copy(from, TAG, to, &watch, &err));
		assert_saved(to, 0);
		assert_int_equal(count_leftovers(to), 0);
		tags_root_close(from);
		tags_root_close(to);
	}
}

/* Power is lost at each operation: the tag is the old one or the new one, and the next copy
 * ends. */
static void a_crash_leaves_the_old_tag_or_the_new(void **state)
{
	for (unsigned i = 0; i < KINDS; i++) {
		struct tags_root *from = make_root(kinds[1 - i]);
		bool cut = true;

		save(from, 1);
		for (uint64_t n = 1; cut; n++) {
			struct tags_root *to = make_root(kinds[i]);
			struct tags_root *again;
			struct store *after;
			uint32_t found = UINT32_MAX;
			int rv;

			save(to, 0);
			store_mem_cut_at(tags_root_store(to),
				store_mem_ops(tags_root_store(to)) + n);
			rv = tag_copy(from, TAG, to, NULL, &err);
			cut = rv != 0;
			OK(store_mem_after_crash(tags_root_store(to), MEM_LOSE, NULL, &after,
				&err));
			OK(tags_root_over(after, &again, &err));
			OK(tags_recover(again, &err));
			OK(sample_load(again, TAG, &found, &err));
			assert_true(found == 1 || (cut && found == 0));
			OK(tag_copy(from, TAG, again, NULL, &err));
			assert_saved(again, 1);
			tags_root_close(again);
			tags_root_close(to);
		}
		tags_root_close(from);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tag_is_copied_between_all_kinds),
		cmocka_unit_test(linked_files_are_copied_whole),
		cmocka_unit_test(what_is_copied_is_not_written_again),
		cmocka_unit_test(damage_is_not_copied),
		cmocka_unit_test(a_copy_can_be_ended),
		cmocka_unit_test(a_crash_leaves_the_old_tag_or_the_new),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
