/* One suite that each kind of root passes: what root.h and tags.h promise, and no more. Run against
 * directories in memory and on disk, and objects in memory. */
#include "base/err.h"
#include "base/wire.h"
#include "building.h"
#include "ckpt/format/merge.h"
#include "ckpt/format/retain.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "expect.h"
#include "sample.h"
#include "store/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct tags_root *root; /* root under test */
static struct store *store;    /* root's store */
static struct pawl_err err;
static char path[64]; /* path of a root on disk; else "" */

static const uint32_t ones[BUILDING_CHUNKS] = {1, 1};
static const uint32_t twos[BUILDING_CHUNKS] = {1, 2};
static const uint32_t threes[BUILDING_CHUNKS] = {1, 3};
static const uint32_t others[BUILDING_CHUNKS] = {8, 9};

/* ---- the roots ---- */

static int open_over(int rv)
{
	path[0] = '\0';
	return rv != 0 || tags_root_over(store, &root, &err) != 0;
}

static int open_mem(void **state)
{
	return open_over(store_mem_open(&store, &err));
}

static int open_objects(void **state)
{
	return open_over(store_mem_open_flat(&store, &err));
}

static int open_disk(void **state)
{
	int rv;

	snprintf(path, sizeof(path), "/tmp/pawl-roots.%d", (int)getpid());
	rv = tags_root_open(path, NULL, true, &root, &err);
	store = rv == 0 ? tags_root_store(root) : NULL;
	return rv;
}

/* store_list_fn: copies one name. */
static int copy_name(void *user, const char *name, enum store_kind kind)
{
	snprintf(user, STORE_NAME_MAX, "%s", name);
	return 1;
}

/* Removes what a case left in a root on disk. */
static int close_root(void **state)
{
	char name[STORE_NAME_MAX] = "";

	while (path[0] != '\0' && store_list(store, "", copy_name, name, NULL) == 0 &&
		name[0] != '\0') {
		OK(store_remove(store, name, &err));
		name[0] = '\0';
	}
	tags_root_close(root);
	return path[0] != '\0' ? rmdir(path) : 0;
}

/* ---- helpers ---- */

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

/* Expects the tags, as "a b (c) "; those in parentheses are broken. */
static void assert_tags(const char *expected)
{
	struct tag_info *tags;
	char text[512] = "";
	size_t n;

	OK(tags_list(root, NULL, &tags, &n, &err));
	for (size_t i = 0; i < n; i++) {
		size_t len_bytes = strlen(text);

		snprintf(text + len_bytes, sizeof(text) - len_bytes,
			tags[i].state == TAG_COMPLETE ? "%s " : "(%s) ", tags[i].tag);
	}
	free(tags);
	assert_string_equal(text, expected);
}

static size_t count_leftovers(void)
{
	struct tag_leftover *left;
	size_t n;

	OK(tags_leftovers(root, &left, &n, &err));
	free(left);
	return n;
}

/* Expects that no byte of the tag is left. */
static void assert_gone(const char *tag)
{
	struct manifest manifest;

	FAILS(PAWL_ENOENT, tag_open(root, tag, &manifest, &err));
	assert_int_equal(tags_root_measure(root, tag), 0);
	assert_int_equal(count_leftovers(), 0);
}

static bool has(const char *name)
{
	return store_stat(store, name, NULL, NULL, NULL) == 0;
}

static void put(const char *name, const char *text)
{
	OK(store_write_small(store, name, text, strlen(text), &err));
}

static void assert_text(const char *name, const char *expected)
{
	void *text;
	size_t len_bytes;

	OK(store_read_small(store, name, &text, &len_bytes, 1000, &err));
	assert_string_equal(text, expected);
	free(text);
}

/* Builds a tag of one part, "model", of step 1 to 9; base: tag whose part it updates, or NULL. */
static void build(const char *tag, uint64_t step, const uint32_t *content, const char *base)
{
	struct building building;
	struct manifest manifest = {.parts_n = 0};

	if (base != NULL) {
		OK(tag_open(root, base, &manifest, &err));
	}
	OK(building_begin(&building, root, tag, step, NULL, &err));
	OK(building_write(&building, "model", content, base ? &manifest : NULL, &err));
	OK(building_publish(&building, &err));
	building_deinit(&building);
	manifest_deinit(&manifest);
}

static void assert_model(const char *tag, const uint32_t *content)
{
	OK(building_check(root, tag, "model", content, &err));
}

/* Writes the path of the first file of the tag's first part. */
static void find_file(const char *tag, char *file)
{
	struct manifest manifest;

	OK(tag_open(root, tag, &manifest, &err));
	manifest_path(file, STORE_PATH_MAX, &manifest, &manifest.parts[0], 0);
	manifest_deinit(&manifest);
}

/* Damages a tag: one of its files is too short. */
static void shorten(const char *tag)
{
	char file[STORE_PATH_MAX];

	find_file(tag, file);
	put(file, "short");
}

static void damage_manifest(const char *tag)
{
	char file[STORE_PATH_MAX];

	snprintf(file, sizeof(file), store_is_flat(store) ? ".pawl/tags/%s" : "%s/.pawl/manifest",
		tag);
	put(file, "no manifest");
}

/* ---- publishing ---- */

static void tags_are_published_listed_and_opened(void **state)
{
	struct manifest manifest;
	struct tag_info *tags;
	size_t n;

	save(10, 0);
	save(9, 0);
	build("best", 9, ones, NULL);
	assert_tags("global_step9 best global_step10 ");
	assert_saved(9, 0);
	assert_saved(10, 0);
	assert_model("best", ones);
	OK(tags_list(root, NULL, &tags, &n, &err));
	assert_int_equal(tags[2].files, SAMPLE_PARTS);
	assert_int_equal(tags[2].size_bytes,
		sample_get(10, 0)->parts[0].plan.size_bytes +
			sample_get(10, 0)->parts[1].plan.size_bytes);
	free(tags);
	OK(tag_open_unsealed(root, "best", &manifest, &err));
	manifest_deinit(&manifest);
	OK(tag_seal(root, "best", &err));
	assert_model("best", ones);
	assert_int_equal(count_leftovers(), 0);
}

static void a_draft_is_no_tag(void **state)
{
	struct building building;
	struct manifest manifest;
	bool named;

	OK(building_begin(&building, root, "draft", 1, NULL, &err));
	OK(building_write(&building, "model", ones, NULL, &err));
	assert_tags("");
	FAILS(PAWL_ENOENT, tag_open(root, "draft", &manifest, &err));
	OK(tag_has_name(root, "draft", &named, &err));
	assert_false(named);
	OK(building_publish(&building, &err));
	OK(tag_has_name(root, "draft", &named, &err));
	assert_true(named);
	assert_tags("draft ");
	building_deinit(&building);
}

static void names_are_refused(void **state)
{
	static const char *const bad[] = {"", ".hidden", "a/b", "..", "a\nb"};
	struct tag_draft draft;
	struct manifest manifest;
	bool named;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		FAILS(PAWL_EINVAL, tag_begin(root, bad[i], &draft, &err));
		tag_abandon(root, &draft);
		FAILS(PAWL_EINVAL, tag_begin_shared(root, bad[i], "hosts-1", &draft, &err));
		FAILS(PAWL_EINVAL, tag_open(root, bad[i], &manifest, &err));
		FAILS(PAWL_EINVAL, tag_has_name(root, bad[i], &named, &err));
		FAILS(PAWL_EINVAL, tag_quarantine(root, bad[i], "", &err));
		FAILS(PAWL_EINVAL, tag_remove(root, bad[i], &err));
		FAILS(PAWL_EINVAL, tag_pin(root, bad[i], true, &err));
	}
	assert_tags("");
}

static void a_tag_saved_again_is_replaced(void **state)
{
	save(1, 0);
	save(2, 0);
	save(2, 1);
	save(2, 2);
	assert_saved(1, 0);
	assert_saved(2, 2);
	assert_tags("global_step1 global_step2 ");
	assert_int_equal(count_leftovers(), 0);
}

static void a_damaged_tag_is_replaced(void **state)
{
	save(1, 0);
	damage_manifest("global_step1");
	assert_tags("(global_step1) ");
	save(1, 1);
	assert_saved(1, 1);
	assert_tags("global_step1 ");
	assert_int_equal(count_leftovers(), 0);
}

static void parts_are_added_to_a_tag(void **state)
{
	struct building building;
	struct manifest base;

	build("tag", 1, ones, NULL);
	for (int i = 0; i < 3; i++) {
		const uint32_t content[BUILDING_CHUNKS] = {4, (uint32_t)i};

		OK(tag_open(root, "tag", &base, &err));
		OK(building_begin(&building, root, "tag", 1, NULL, &err));
		OK(building_write(&building, i == 0 ? "optim" : "rng", content, NULL, &err));
		OK(building_keep(&building, &base, &err));
		OK(tag_adopt(root, &building.draft, &base, &err));
		OK(building_publish(&building, &err));
		building_deinit(&building);
		manifest_deinit(&base);
	}
	assert_model("tag", ones);
	OK(building_check(root, "tag", "optim", (const uint32_t[]){4, 0}, &err));
	OK(building_check(root, "tag", "rng", (const uint32_t[]){4, 2}, &err));
	assert_int_equal(count_leftovers(), 0);
	OK(tag_remove(root, "tag", &err));
	assert_gone("tag");
}

/* Files of other programs in the folder of a tag outlive that the tag is saved again. */
static void files_of_others_stay(void **state)
{
	struct building building;
	struct manifest base;

	build("tag", 1, ones, NULL);
	put("tag/notes", "mine");
	OK(tag_open(root, "tag", &base, &err));
	OK(building_begin(&building, root, "tag", 1, NULL, &err));
	OK(building_write(&building, "optim", others, NULL, &err));
	OK(building_keep(&building, &base, &err));
	OK(tag_adopt(root, &building.draft, &base, &err));
	OK(building_publish(&building, &err));
	building_deinit(&building);
	manifest_deinit(&base);
	assert_model("tag", ones);
	assert_text("tag/notes", "mine");
}

static void a_chain_of_updates_outlives_its_base(void **state)
{
	build("a", 1, ones, NULL);
	build("b", 2, twos, "a");
	build("c", 3, threes, "b");
	build("d", 4, threes, "c"); /* nothing changed */
	assert_model("b", twos);
	OK(tag_remove(root, "a", &err));
	OK(tag_remove(root, "b", &err));
	assert_model("c", threes);
	assert_model("d", threes);
	assert_int_equal(count_leftovers(), 0);
	OK(tag_remove(root, "c", &err));
	OK(tags_recover(root, &err));
	assert_model("d", threes);
	build("d", 4, ones, NULL); /* replaced by one that shares nothing */
	assert_gone("c");
	assert_gone("a");
	assert_model("d", ones);
	build("e", 5, others, "d"); /* all has changed, so that nothing is shared */
	OK(tag_remove(root, "d", &err));
	assert_gone("d");
	assert_model("e", others);
	OK(tag_remove(root, "e", &err));
	assert_gone("e");
}

/* ---- drafts that are not published ---- */

static void an_abandoned_draft_leaves_nothing(void **state)
{
	struct tag_draft none = {.tag = ""};
	struct building building;

	save(1, 0);
	for (int replaces = 0; replaces < 2; replaces++) {
		const char *tag = replaces ? "global_step1" : "tag";

		OK(building_begin(&building, root, tag, 1, NULL, &err));
		OK(building_write(&building, "model", ones, NULL, &err));
		assert_true(tags_root_measure(root, building.draft.dir) > 0);
		tag_abandon(root, &building.draft);
		assert_int_equal(tags_root_measure(root, building.draft.dir), 0);
		tag_abandon(root, &building.draft);
		building_deinit(&building);
	}
	tag_abandon(root, &none);
	assert_int_equal(count_leftovers(), 0);
	assert_tags("global_step1 ");
	assert_saved(1, 0);
}

static void a_published_draft_is_not_abandoned(void **state)
{
	struct building building;

	OK(building_begin(&building, root, "tag", 1, NULL, &err));
	OK(building_write(&building, "model", ones, NULL, &err));
	OK(building_publish(&building, &err));
	tag_abandon(root, &building.draft);
	building_deinit(&building);
	assert_model("tag", ones);
}

static void a_manifest_that_no_reader_takes_is_not_published(void **state)
{
	struct building building;

	OK(building_begin(&building, root, "tag", 1, NULL, &err));
	OK(building_write(&building, "model", ones, NULL, &err));
	building.manifest.world = 0;
	FAILS(PAWL_EINVAL, building_publish(&building, &err));
	tag_abandon(root, &building.draft);
	building_deinit(&building);
	assert_gone("tag");
}

static void what_a_dead_process_left_is_removed(void **state)
{
	struct tag_leftover *left;
	struct building building;
	size_t n;

	save(1, 0);
	OK(building_begin(&building, root, "tag", 1, NULL, &err));
	OK(building_write(&building, "model", ones, NULL, &err));
	building_deinit(&building);
	OK(tags_leftovers(root, &left, &n, &err));
	assert_int_equal(n, 1);
	assert_string_equal(left[0].tag, "tag");
	assert_false(left[0].put_back);
	assert_true(tags_root_measure(root, left[0].name) > 0);
	free(left);
	OK(tags_recover(root, &err));
	assert_gone("tag");
	assert_saved(1, 0);
	OK(tags_recover(root, &err));
	assert_saved(1, 0);
}

/* ---- several hosts ---- */

/* A member writes its files, and the leader publishes them with its own. */
static void hosts_write_a_tag_together(void **state)
{
	struct building leader, member;
	struct manifest whole;
	struct merge_host hosts[2];

	for (int again = 0; again < 2; again++) {
		const char *id = again ? "hosts-0123456789abcdef-2" : "hosts-0123456789abcdef-1";

		OK(building_begin(&leader, root, "tag", 1, id, &err));
		OK(building_begin(&member, root, "tag", 1, id, &err));
		assert_string_equal(leader.draft.dir, member.draft.dir);
		leader.manifest.world = member.manifest.world = 2;
		OK(building_write(&leader, "model", again ? twos : ones, NULL, &err));
		OK(building_write(&member, "model-rank1", others, NULL, &err));
		member.parts[0].rank = 1;
		snprintf(member.parts[0].name, sizeof(member.parts[0].name), "model");
		leader.parts[0].rank = 0;
		OK(tag_sync_files(root, &member.draft, &err));
		hosts[0] = (struct merge_host){&leader.manifest, 0, 1};
		hosts[1] = (struct merge_host){&member.manifest, 1, 1};
		OK(manifest_merge(hosts, 2, &whole, &err));
		OK(tag_publish(root, &leader.draft, &whole, &err));
		free(whole.parts);
		free(whole.folders);
		building_deinit(&leader);
		building_deinit(&member);
	}
	assert_model("tag", twos);
	OK(building_check(root, "tag", "model-rank1", others, &err));
	assert_int_equal(count_leftovers(), 0);
}

static void a_shared_draft_is_abandoned_or_recovered(void **state)
{
	struct building building;

	for (int recovered = 0; recovered < 2; recovered++) {
		OK(building_begin(&building, root, "tag", 1, "hosts-7", &err));
		OK(building_write(&building, "model", ones, NULL, &err));
		assert_int_equal(count_leftovers(), 1);
		if (recovered) {
			OK(tags_recover(root, &err));
		} else {
			tag_abandon(root, &building.draft);
		}
		assert_int_equal(tags_root_measure(root, building.draft.dir), 0);
		building_deinit(&building);
		assert_gone("tag");
	}
}

/* ---- damage ---- */

/* Records the tag that a search passes by. */
static void record_skipped(void *user, const char *tag, const struct pawl_err *why)
{
	assert_int_equal(why->code, PAWL_ECORRUPT);
	snprintf(user, CKPT_TAG_MAX, "%s", tag);
}

static void damaged_tags_are_passed_by(void **state)
{
	char skipped[CKPT_TAG_MAX] = "";
	const struct tags_search search = {.on_skipped = record_skipped, .user = skipped};
	struct manifest manifest;

	save(1, 0);
	save(2, 0);
	save(4, 0);
	damage_manifest("global_step4");
	OK(tags_newest(root, &search, &manifest, &err));
	assert_string_equal(manifest.tag, "global_step2");
	manifest_deinit(&manifest);
	assert_string_equal(skipped, "global_step4");
	shorten("global_step2");
	assert_tags("global_step1 (global_step2) (global_step4) ");
	FAILS(PAWL_ECORRUPT, tag_open(root, "global_step2", &manifest, &err));
	assert_non_null(strstr(err.msg, "5 bytes long"));
	OK(tags_newest(root, &search, &manifest, &err));
	assert_string_equal(manifest.tag, "global_step1");
	manifest_deinit(&manifest);
	FAILS(PAWL_ECORRUPT, tag_open(root, "global_step4", &manifest, &err));
}

static void a_manifest_of_another_tag_is_refused(void **state)
{
	const char *form = store_is_flat(store) ? ".pawl/tags/%s" : "%s/.pawl/manifest";
	char from[STORE_PATH_MAX], to[STORE_PATH_MAX];
	struct manifest manifest;
	void *bytes;
	size_t len_bytes;

	save(1, 0);
	save(2, 0);
	snprintf(from, sizeof(from), form, "global_step1");
	snprintf(to, sizeof(to), form, "global_step2");
	OK(store_read_small(store, from, &bytes, &len_bytes, 1 << 20, &err));
	OK(store_write_small(store, to, bytes, len_bytes, &err));
	free(bytes);
	FAILS(PAWL_ECORRUPT, tag_open(root, "global_step2", &manifest, &err));
	assert_non_null(strstr(err.msg, "the manifest of global_step1"));
}

/* A manifest with folders is one of objects, and one without is one of directories. */
static void a_manifest_of_the_other_kind_is_refused(void **state)
{
	struct manifest_folder folder = {.dir = "tag/save-0123456789abcdef"};
	struct manifest manifest = {.step = 1, .tag = "tag", .world = 1};
	struct wire_out out = {0};
	char file[STORE_PATH_MAX];

	build("tag", 1, ones, NULL);
	if (!store_is_flat(store)) {
		manifest.folders_n = 1;
		manifest.folders = &folder;
	}
	manifest_encode(&manifest, &out);
	snprintf(file, sizeof(file),
		store_is_flat(store) ? ".pawl/tags/tag" : "tag/.pawl/manifest");
	OK(store_write_small(store, file, out.bytes, out.len_bytes, &err));
	wire_out_deinit(&out);
	FAILS(PAWL_ECORRUPT, tag_open(root, "tag", &manifest, &err));
	assert_non_null(strstr(err.msg, "of a root of"));
}

/* ---- leaving the root ---- */

static bool is_bad(const char *tag, int n)
{
	char file[STORE_PATH_MAX];

	snprintf(file, sizeof(file), store_is_flat(store) ? ".pawl/bad/%s.%d" : ".bad/%s.%d", tag,
		n);
	return has(file);
}

static void bad_tags_are_quarantined_with_the_reason(void **state)
{
	save(1, 0);
	save(2, 0);
	OK(tag_quarantine(root, "global_step2", "its model is damaged", &err));
	assert_tags("global_step1 ");
	assert_text(store_is_flat(store) ? ".pawl/bad/global_step2.1.why"
					 : ".bad/global_step2.1/why.txt",
		"its model is damaged");
	OK(tag_quarantine(root, "global_step2", "gone already", &err));
	OK(tags_recover(root, &err));
	assert_true(is_bad("global_step2", 1) && !is_bad("global_step2", 2));
	assert_true(tags_root_measure(root,
			    store_is_flat(store) ? "global_step2" : ".bad/global_step2.1") > 5000);
	assert_int_equal(count_leftovers(), 0);
	save(2, 1);
	assert_saved(2, 1);
}

static void only_the_newest_bad_ones_are_kept(void **state)
{
	for (uint64_t step = 1; step <= TAGS_BAD_MAX + 1; step++) {
		char tag[CKPT_TAG_MAX];

		save(step, 0);
		tag_of_step(tag, sizeof(tag), step);
		OK(tag_quarantine(root, tag, "", &err));
	}
	assert_false(is_bad("global_step1", 1));
	assert_gone("global_step1");
	for (int n = 2; n <= (int)TAGS_BAD_MAX + 1; n++) {
		char tag[CKPT_TAG_MAX];

		tag_of_step(tag, sizeof(tag), (uint64_t)n);
		assert_true(is_bad(tag, n));
	}
	assert_tags("");
}

static void tags_are_removed(void **state)
{
	save(1, 0);
	save(2, 0);
	OK(tag_pin(root, "global_step2", true, &err));
	OK(tag_remove(root, "global_step2", &err));
	assert_gone("global_step2");
	OK(tag_remove(root, "global_step2", &err));
	assert_saved(1, 0);
	damage_manifest("global_step1");
	OK(tag_remove(root, "global_step1", &err));
	assert_gone("global_step1");
	assert_tags("");
}

static void retention_keeps_pins_and_what_latest_names(void **state)
{
	const struct retain_rule rule = {.keep_last = 1};

	for (uint64_t step = 1; step <= 4; step++) {
		save(step, 0);
	}
	FAILS(PAWL_ENOENT, tag_pin(root, "global_step9", true, &err));
	OK(tag_pin(root, "global_step1", true, &err));
	put("latest", "global_step2");
	OK(tags_retain(root, &rule, &err));
	assert_tags("global_step1 global_step2 global_step4 ");
	assert_gone("global_step3");
	put("latest", "global_step4");
	OK(tag_pin(root, "global_step1", false, &err));
	OK(tags_check_pins(root, &err));
	OK(tags_retain(root, &rule, &err));
	assert_tags("global_step4 ");
	assert_saved(4, 0);
	assert_gone("global_step1");
}

static void tags_are_found_by_step(void **state)
{
	struct tag_step highest;
	char tag[CKPT_TAG_MAX];

	FAILS(PAWL_ENOENT, tags_highest(root, NULL, &highest, &err));
	save(3, 0);
	build("best", 7, ones, NULL);
	OK(tags_highest(root, NULL, &highest, &err));
	assert_string_equal(highest.tag, "best");
	assert_int_equal(highest.step, 7);
	OK(tag_find_step(root, 7, tag, &err));
	assert_string_equal(tag, "best");
	OK(tag_find_step(root, 3, tag, &err));
	assert_string_equal(tag, "global_step3");
	FAILS(PAWL_ENOENT, tag_find_step(root, 5, tag, &err));
}

/* ---- small files ---- */

static void files_are_appended_to_and_put_aside(void **state)
{
	OK(tags_root_append(root, "rows.csv", "a\n", 2, false, &err));
	OK(tags_root_append(root, "rows.csv", "b\n", 2, true, &err));
	assert_text("rows.csv", "a\nb\n");
	assert_int_equal(tags_root_measure(root, "rows.csv"), 4);
	OK(tags_root_put_aside(root, "rows.csv", "rows.old.csv", &err));
	assert_false(has("rows.csv"));
	assert_text("rows.old.csv", "a\nb\n");
	FAILS(PAWL_ENOENT, tags_root_put_aside(root, "rows.csv", "rows.old.csv", &err));
	OK(tags_root_append(root, "rows.csv", "c\n", 2, true, &err));
	OK(tags_root_put_aside(root, "rows.csv", "rows.old.csv", &err));
	assert_text("rows.old.csv", "c\n");
	assert_tags("");
}

static void folders_are_cleared(void **state)
{
	OK(tags_root_clear(root, ".folder", ".folder.old", &err));
	for (int i = 0; i < 2; i++) {
		OK(tags_root_make_folder(root, ".folder", &err));
		OK(tags_root_make_folder(root, ".folder", &err));
		OK(tags_root_make_folder(root, ".folder/inner", &err));
		put(".folder/inner/message", "hello");
		put(".folder/other", "!");
		assert_int_equal(tags_root_measure(root, ".folder"), 6);
		OK(tags_root_clear(root, ".folder", ".folder.old", &err));
		assert_false(has(".folder/inner/message"));
		assert_int_equal(tags_root_measure(root, ".folder"), 0);
	}
	OK(tags_root_refresh(root, &err));
	assert_int_equal(tags_root_measure(root, ".nothing"), 0);
}

/* ---- owning ---- */

static void the_owner_is_named(void **state)
{
	char holder[ROOT_HOLDER_MAX] = "";

	assert_false(tags_root_used(root));
	assert_false(tags_root_holder(root, holder));
	if (path[0] == '\0' && !store_is_flat(store)) {
		FAILS(PAWL_ENOTSUP, tags_root_lock(root, "one", false, &err));
		return;
	}
	OK(tags_root_lock(root, "one", false, &err));
	assert_true(tags_root_used(root));
	assert_true(tags_root_holds(root));
	assert_true(tags_root_holder(root, holder));
	assert_int_equal(strncmp(holder, "job one (pid ", 13), 0);
	assert_null(strchr(holder, '\n'));
	save(1, 0);
	assert_true(tags_root_holds(root));
	assert_saved(1, 0);
}

/* ---- every behaviour with every root ---- */

#define BEHAVIOUR(name)                                                                            \
	{                                                                                          \
#name, name                                                                        \
	}

static const struct {
	const char *name;
	CMUnitTestFunction check;
} behaviours[] = {
	BEHAVIOUR(tags_are_published_listed_and_opened),
	BEHAVIOUR(a_draft_is_no_tag),
	BEHAVIOUR(names_are_refused),
	BEHAVIOUR(a_tag_saved_again_is_replaced),
	BEHAVIOUR(a_damaged_tag_is_replaced),
	BEHAVIOUR(parts_are_added_to_a_tag),
	BEHAVIOUR(files_of_others_stay),
	BEHAVIOUR(a_chain_of_updates_outlives_its_base),
	BEHAVIOUR(an_abandoned_draft_leaves_nothing),
	BEHAVIOUR(a_published_draft_is_not_abandoned),
	BEHAVIOUR(a_manifest_that_no_reader_takes_is_not_published),
	BEHAVIOUR(what_a_dead_process_left_is_removed),
	BEHAVIOUR(hosts_write_a_tag_together),
	BEHAVIOUR(a_shared_draft_is_abandoned_or_recovered),
	BEHAVIOUR(damaged_tags_are_passed_by),
	BEHAVIOUR(a_manifest_of_another_tag_is_refused),
	BEHAVIOUR(a_manifest_of_the_other_kind_is_refused),
	BEHAVIOUR(bad_tags_are_quarantined_with_the_reason),
	BEHAVIOUR(only_the_newest_bad_ones_are_kept),
	BEHAVIOUR(tags_are_removed),
	BEHAVIOUR(retention_keeps_pins_and_what_latest_names),
	BEHAVIOUR(tags_are_found_by_step),
	BEHAVIOUR(files_are_appended_to_and_put_aside),
	BEHAVIOUR(folders_are_cleared),
	BEHAVIOUR(the_owner_is_named),
};

static const struct {
	const char *name;
	CMFixtureFunction open;
} roots[] = {
	{"directories in memory", open_mem},
	{"directories on disk", open_disk},
	{"objects in memory", open_objects},
};

#define BEHAVIOURS_N (sizeof(behaviours) / sizeof(behaviours[0]))
#define ROOTS_N      (sizeof(roots) / sizeof(roots[0]))

int main(void)
{
	static char names[ROOTS_N][BEHAVIOURS_N][96];
	struct CMUnitTest tests[ROOTS_N * BEHAVIOURS_N];

	for (size_t r = 0; r < ROOTS_N; r++) {
		for (size_t b = 0; b < BEHAVIOURS_N; b++) {
			snprintf(names[r][b], sizeof(names[r][b]), "%s: %s", roots[r].name,
				behaviours[b].name);
			tests[r * BEHAVIOURS_N + b] = (struct CMUnitTest){names[r][b],
				behaviours[b].check, roots[r].open, close_root, NULL};
		}
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
