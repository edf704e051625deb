/*
 * Power is cut at every operation while tags of any name are written, added to, replaced, deleted,
 * and put where somebody else has files, by the code that the agent writes them with, in roots of
 * both kinds, once whole and once sharing with the tag before, in every way. After recovery each
 * tag holds just what it held before the action that was cut off, or after it.
 */
#include "agent/persist/write_tag.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "ckpt/read.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "ckpt/write.h"
#include "seed.h"
#include "store/dirs.h"
#include "store/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define TAGS       4
#define FILES      5
#define TEAR_SEEDS 3u

/* How files share with the tag before. */
static enum sharing { NOTHING, NAMES, BYTES, SHARINGS } sharing;

static bool flat; /* the root is one of objects */

static uint64_t first_seed; /* first seed of the torn writes */
static uint64_t crashes;    /* number of simulated crashes */

/* ---- what is saved: the bytes of file f of a tag, made from numbers ---- */

static const char *const tags[TAGS] = {
	"epoch=2 step=7, f\xc3\xbcnf",
	"1234",
	"ends.new",
	"a name of very many words, since a name may have one hundred and twenty-seven bytes",
};

static const struct file {
	const char *name;
	bool raw;
	uint64_t size_bytes; /* bytes of a raw file, or of the storage */
} files[FILES] = {
	{"empty.json", true, 0},
	{"mp_rank_00.pt", false, 5000},
	{"odd.safetensors", true, CKPT_CHUNK + 1},
	{"page.bin", true, 4097},
	{"three_chunks.pt", false, 2 * CKPT_CHUNK},
};

/* The first page differs from tag to tag and version to version, the rest seldom. */
static uint8_t byte_of(uint32_t tag, uint32_t file, uint32_t version, uint64_t i)
{
	uint32_t changes = i < CKPT_PAGE ? tag * 7 + version * 101 : version / 4;

	return (uint8_t)(i * 31 + (i >> 9) + file * 13 + changes);
}

/* One rank's part of a save: its record, and the arena that the record describes. */
struct staged {
	struct record record;
	struct record_part parts[FILES];
	uint64_t sizes[FILES];
	struct record_piece pieces[FILES][8];
	uint8_t *arena;
};

static int plan_file(struct zip_plan *plan, uint32_t f)
{
	return files[f].raw ? zip_plan_init_raw(plan, &files[f].size_bytes, 1, NULL)
			    : zip_plan_init(plan, &files[f].size_bytes, 1, 0, NULL);
}

/* Lays file f behind used_bytes of the arena. Returns where it ends. */
static uint64_t stage_file(struct staged *staged, uint32_t tag, uint32_t f, uint32_t version,
	uint64_t used_bytes)
{
	struct record_part *part = &staged->parts[staged->record.parts_n];
	struct record_piece *piece = staged->pieces[staged->record.parts_n++];
	uint8_t *image = staged->arena + used_bytes;
	struct zip_plan plan;
	uint64_t end;

	assert_int_equal(plan_file(&plan, f), 0);
	staged->sizes[f] = files[f].size_bytes;
	*part = (struct record_part){.raw = files[f].raw,
		.exact = true,
		.size_bytes = plan.size_bytes,
		.hi = plan.size_bytes,
		.arena_off = used_bytes,
		.storages = 1,
		.storage_bytes = &staged->sizes[f],
		.pieces = piece};
	snprintf(part->name, sizeof(part->name), "%s", files[f].name);
	end = plan.entries[0].data_off + files[f].size_bytes;
	for (uint64_t off = plan.entries[0].data_off; off < end;) {
		uint64_t next = (off / CKPT_CHUNK + 1) * CKPT_CHUNK;

		next = next < end ? next : end;
		for (uint64_t i = off; i < next; i++) {
			image[i] = byte_of(tag, f, version, i - plan.entries[0].data_off);
		}
		*piece++ = (struct record_piece){off, (uint32_t)(next - off),
			crc32c(0, image + off, next - off)};
		off = next;
		part->pieces_n++;
	}
	zip_plan_deinit(&plan);
	return used_bytes + (part->size_bytes + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE;
}

/* ---- histories ---- */

enum verb { SAVE, ADD, FOREIGN, DROP, END };

struct action {
	enum verb verb;
	uint32_t tag;
	uint32_t mask;    /* bit f: file f is saved */
	uint32_t version; /* version of the files' content */
};

static const struct action fresh[] = {{SAVE, 0, 0xf, 1}, {SAVE, 3, 0x2, 1}, {SAVE, 1, 0x0, 1},
	{SAVE, 2, 0x9, 1}, {END, 0, 0, 0}};
static const struct action replaced[] = {{SAVE, 0, 0xf, 1}, {SAVE, 1, 0x6, 1}, {SAVE, 0, 0x2, 2},
	{SAVE, 0, 0x9, 3}, {END, 0, 0, 0}};
static const struct action added[] = {{SAVE, 2, 0x2, 1}, {ADD, 2, 0x1, 2}, {ADD, 3, 0x8, 1},
	{ADD, 2, 0x6, 3}, {ADD, 2, 0x0, 4}, {END, 0, 0, 0}};
static const struct action foreign[] = {{FOREIGN, 1, 0, 0}, {FOREIGN, 0, 0, 0}, {SAVE, 1, 0x3, 1},
	{ADD, 1, 0x8, 2}, {END, 0, 0, 0}};

static const struct action shared[] = {{SAVE, 0, 0x14, 1}, {SAVE, 3, 0x10, 2}, {SAVE, 2, 0x14, 3},
	{DROP, 3, 0, 0}, {DROP, 0, 0, 0}, {SAVE, 2, 0x10, 5}, {ADD, 2, 0x12, 6}, {END, 0, 0, 0}};

/* The content of each tag: 0, or a version of each file. */
struct model {
	bool there[TAGS];
	bool foreign[TAGS]; /* the tag has somebody else's files */
	uint32_t version[TAGS][FILES];
};

static void apply_to_model(struct model *model, const struct action *action)
{
	bool ours = action->verb == SAVE || action->verb == ADD;

	model->there[action->tag] = action->verb != DROP && (model->there[action->tag] || ours);
	model->foreign[action->tag] = model->foreign[action->tag] || action->verb == FOREIGN;
	for (uint32_t f = 0; f < FILES; f++) {
		uint32_t *version = &model->version[action->tag][f];

		*version = action->verb == SAVE || action->verb == DROP ? 0 : *version;
		*version = action->mask >> f & 1 ? action->version : *version;
	}
}

#define ARENA_BYTES (4u << 20)

/* Finds the tag that the agent takes for the newest. */
static void find_newest(struct tags_root *root, char *tag)
{
	struct tag_step newest;

	if (tags_highest(root, NULL, &newest, NULL) == 0) {
		memcpy(tag, newest.tag, CKPT_TAG_MAX);
	}
}

static int save(struct tags_root *root, const struct action *action)
{
	struct staged staged = {.record = {.step = action->version, .world = 1}};
	struct persist_rank rank = {.record = &staged.record};
	const struct persist_save save = {.step = action->version,
		.since_ns = action->verb == ADD ? 0 : INT64_MAX,
		.world = 1,
		.ranks = &rank};
	char diverged_part[CKPT_NAME_MAX] = "";
	char newest[CKPT_TAG_MAX] = "";
	const struct write_tag_options options = {.job = "test",
		.tag = tags[action->tag],
		.base = newest,
		.full_every = sharing == NOTHING ? 0 : 5};
	struct write_tag_result result;
	struct writer *writer;
	uint64_t used_bytes = 0;
	int rv;

	staged.record.parts = staged.parts;
	staged.arena = aligned_alloc(CKPT_PAGE, ARENA_BYTES);
	rank.arena = staged.arena;
	for (uint32_t f = 0; f < FILES; f++) {
		if (action->mask >> f & 1) {
			used_bytes =
				stage_file(&staged, action->tag, f, action->version, used_bytes);
		}
	}
	assert_true(used_bytes <= ARENA_BYTES);
	assert_int_equal(writer_open(&writer, tags_root_store(root), false, NULL), 0);
	find_newest(root, newest);
	rv = write_tag_publish(root, writer, &save, &options, &result, diverged_part, NULL);
	writer_close(writer);
	free(staged.arena);
	return rv;
}

/* Puts somebody else's files there, durably, one of them named like one of ours. */
static int put_foreign(struct store *store, const char *tag)
{
	char path[STORE_PATH_MAX];
	int rv = store_mkdir(store, tag, NULL);

	snprintf(path, sizeof(path), "%s/notes.txt", tag);
	rv = rv == 0 ? store_write_small(store, path, "theirs", 6, NULL) : rv;
	snprintf(path, sizeof(path), "%s/%s", tag, files[1].name);
	rv = rv == 0 ? store_write_small(store, path, "old", 3, NULL) : rv;
	rv = rv == 0 ? store_sync_dir(store, tag, NULL) : rv;
	return rv == 0 ? store_sync_dir(store, "", NULL) : rv;
}

static int act(struct tags_root *root, const struct action *action)
{
	switch (action->verb) {
	case FOREIGN:
		return put_foreign(tags_root_store(root), tags[action->tag]);
	case DROP:
		return tag_remove(root, tags[action->tag], NULL);
	default:
		return save(root, action);
	}
}

struct run {
	struct tags_root *root; /* over the disk */
	struct store *mem;      /* the disk */
	struct model before, after;
	bool done; /* all actions were carried out */
};

static void run_history(struct run *run, const struct action *actions, uint64_t cut_at)
{
	memset(run, 0, sizeof(*run));
	assert_int_equal(
		flat ? store_mem_open_flat(&run->mem, NULL) : store_mem_open(&run->mem, NULL), 0);
	assert_int_equal(tags_root_over(run->mem, &run->root, NULL), 0);
	store_mem_cut_at(run->mem, cut_at);
	if (!flat) {
		store_mem_clones(run->mem, sharing == BYTES);
	}
	for (; actions->verb != END; actions++) {
		run->before = run->after;
		apply_to_model(&run->after, actions);
		if (act(run->root, actions) != 0) {
			return;
		}
	}
	run->before = run->after;
	run->done = true;
}

/* ---- what must be true after a crash ---- */

static bool is_file(const uint8_t *image, uint64_t size_bytes, uint32_t tag, uint32_t f,
	uint32_t version)
{
	struct zip_plan plan;
	bool same;

	assert_int_equal(plan_file(&plan, f), 0);
	same = plan.size_bytes == size_bytes;
	for (uint64_t i = 0; same && i < files[f].size_bytes; i++) {
		same = image[plan.entries[0].data_off + i] == byte_of(tag, f, version, i);
	}
	zip_plan_deinit(&plan);
	return same;
}

/* Returns the version of a file in an open tag; 0: the file is not there. */
static uint32_t load_version(struct tags_root *root, const struct manifest *manifest, uint32_t tag,
	uint32_t f)
{
	struct reader *reader;
	uint32_t version = 0;

	for (uint32_t p = 0; p < manifest->parts_n; p++) {
		const struct manifest_part *part = &manifest->parts[p];
		uint8_t *image = aligned_alloc(4096, part->size_bytes / 4096 * 4096 + 4096);

		if (strcmp(part->file, files[f].name) == 0) {
			assert_int_equal(reader_open(&reader, tags_root_store(root), NULL), 0);
			assert_int_equal(part->raw, files[f].raw);
			assert_int_equal(reader_read(reader, manifest, part, image, NULL), 0);
			reader_close(reader);
			for (uint32_t v = 1; v < 8 && version == 0; v++) {
				bool same = is_file(image, part->size_bytes, tag, f, v);

				version = same ? v : 0;
			}
			assert_true(version > 0);
		}
		free(image);
	}
	return version;
}

/* Returns whether the tag is as in model. */
static bool is_as(struct tags_root *root, uint32_t tag, const struct model *model)
{
	struct manifest manifest;
	bool same = true;
	uint32_t n = 0;

	if (tag_open(root, tags[tag], &manifest, NULL) != 0) {
		return !model->there[tag];
	}
	for (uint32_t f = 0; f < FILES; f++) {
		uint32_t version = load_version(root, &manifest, tag, f);

		n += version > 0;
		/* An empty file matches every version. */
		same = same &&
			(files[f].size_bytes > 0 || version == 0 ? version == model->version[tag][f]
								 : model->version[tag][f] > 0);
	}
	assert_int_equal(n, manifest.parts_n);
	manifest_deinit(&manifest);
	return same && model->there[tag];
}

static void assert_foreign(struct store *store, const char *tag)
{
	char path[STORE_PATH_MAX];
	size_t len_bytes;
	void *text;

	snprintf(path, sizeof(path), "%s/notes.txt", tag);
	assert_int_equal(store_read_small(store, path, &text, &len_bytes, 100, NULL), 0);
	assert_int_equal(len_bytes, 6);
	assert_memory_equal(text, "theirs", 6);
	free(text);
}

/* Checks that all tags are whole; all but one are as they were, and that one is old or new. */
static void assert_state(struct tags_root *root, const struct run *run)
{
	struct tag_leftover *left;
	struct tag_info *infos;
	size_t n;

	assert_int_equal(tags_leftovers(root, &left, &n, NULL), 0);
	assert_int_equal(n, 0);
	free(left);
	assert_int_equal(tags_list(root, NULL, &infos, &n, NULL), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(infos[i].state, TAG_COMPLETE);
	}
	free(infos);
	for (uint32_t t = 0; t < TAGS; t++) {
		if (!is_as(root, t, &run->before)) {
			assert_true(is_as(root, t, &run->after));
		}
		if (run->before.foreign[t]) {
			assert_foreign(tags_root_store(root), tags[t]);
		}
	}
}

static void crash_once(const struct run *run, enum mem_crash how, uint64_t seed)
{
	static const struct action next = {SAVE, 0, 0x6, 6};
	struct rng rng = {.state = seed};
	struct run then = *run;
	struct tags_root *disk;
	struct store *mem;

	assert_int_equal(store_mem_after_crash(run->mem, how, &rng, &mem, NULL), 0);
	assert_int_equal(tags_root_over(mem, &disk, NULL), 0);
	assert_int_equal(tags_recover(disk, NULL), 0);
	assert_state(disk, run);
	apply_to_model(&then.before, &next); /* the root goes on working */
	apply_to_model(&then.after, &next);
	assert_int_equal(save(disk, &next), 0);
	assert_true(is_as(disk, 0, &then.before));
	tags_root_close(disk);
	crashes++;
}

/* Cuts the power at every operation or, with a stride, at one of each stride, which the seed
 * chooses. */
static void crash_at_operations(const struct action *actions, uint64_t stride)
{
	struct run run;
	uint64_t ops;

	run_history(&run, actions, 0);
	assert_true(run.done);
	assert_state(run.root, &run);
	ops = store_mem_ops(run.mem);
	tags_root_close(run.root);
	for (uint64_t cut_at = 1 + first_seed % stride; cut_at <= ops + 1; cut_at += stride) {
		run_history(&run, actions, cut_at);
		crash_once(&run, MEM_KEEP, 0);
		crash_once(&run, MEM_LOSE, 0);
		for (uint64_t seed = 0; seed < TEAR_SEEDS; seed++) {
			crash_once(&run, MEM_TEAR, first_seed + cut_at * TEAR_SEEDS + seed);
		}
		tags_root_close(run.root);
	}
}

static void crash_everywhere(const struct action *actions)
{
	sharing = NOTHING;
	for (int kind = 0; kind < 2; kind++) {
		flat = kind == 1;
		crash_at_operations(actions, 1);
	}
	flat = false;
}

static void tags_of_any_name_survive(void **state)
{
	crash_everywhere(fresh);
}

static void a_tag_saved_anew_is_old_or_new(void **state)
{
	crash_everywhere(replaced);
}

static void a_tag_that_is_added_to_is_old_or_new(void **state)
{
	crash_everywhere(added);
}

static void what_others_put_there_stays(void **state)
{
	crash_everywhere(foreign);
}

/* Checks that a tag shares with the tag before: sign is in the trace. */
static void assert_shares(const char *sign)
{
	static const struct action two[] = {{SAVE, 0, 0x10, 1}, {SAVE, 1, 0x10, 2}, {END, 0, 0, 0}};
	struct run run;

	run_history(&run, two, 0);
	assert_non_null(strstr(store_mem_trace(run.mem), sign));
	tags_root_close(run.root);
}

static void tags_that_share_stand_for_themselves(void **state)
{
	static const char *const signs[SHARINGS] = {"create .pawl.1234.new/three_chunks.pt\n",
		"/.pawl/three_chunks.pt.1\n", "\nclone "};

	for (sharing = NOTHING; sharing < SHARINGS; sharing++) {
		assert_shares(signs[sharing]);
	}
	for (sharing = NAMES; sharing < SHARINGS; sharing++) {
		crash_at_operations(shared, 4);
	}
}

/* Objects that share have names in each other's manifests, and no second names. */
static void objects_that_share_stand_for_themselves(void **state)
{
	sharing = NAMES;
	flat = true;
	assert_shares("/.pawl/three_chunks.pt.0\n");
	crash_at_operations(shared, 4);
	flat = false;
}

/* The content of a file is durable before its second name is, and that before the first name
 * goes. */
static void second_names_are_durable_before_the_exchange(void **state)
{
	static const struct action two[] = {{SAVE, 2, 0x2, 1}, {ADD, 2, 0x8, 2}, {END, 0, 0, 0}};
	static const char *const order[] = {
		"sync .pawl.ends.new.new/page.bin\n",
		"link ends.new/mp_rank_00.pt .pawl.ends.new.new/mp_rank_00.pt\n",
		"sync_dir .pawl.ends.new.new\n",
		"sync .pawl.ends.new.new/.pawl/manifest\n",
		"sync_dir .pawl.ends.new.new/.pawl\n",
		"sync .pawl.ends.new.new/complete.txt\n",
		"sync_dir .pawl.ends.new.new\n",
		"exchange .pawl.ends.new.new ends.new\n",
		"sync_dir \n",
		"remove .pawl.ends.new.new/mp_rank_00.pt\n",
	};
	struct run run;
	const char *at;

	run_history(&run, two, 0);
	at = strstr(store_mem_trace(run.mem), "create .pawl.ends.new.new/page.bin\n");
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]) && at; i++) {
		at = strstr(at, order[i]);
		assert_non_null(at);
	}
	tags_root_close(run.root);
}

int main(void)
{
	const struct CMUnitTest tests_[] = {
		cmocka_unit_test(second_names_are_durable_before_the_exchange),
		cmocka_unit_test(tags_of_any_name_survive),
		cmocka_unit_test(a_tag_saved_anew_is_old_or_new),
		cmocka_unit_test(a_tag_that_is_added_to_is_old_or_new),
		cmocka_unit_test(what_others_put_there_stays),
		cmocka_unit_test(tags_that_share_stand_for_themselves),
		cmocka_unit_test(objects_that_share_stand_for_themselves),
	};
	int failed;

	first_seed = test_seed();
	failed = cmocka_run_group_tests(tests_, NULL, NULL);
	printf("%llu crashes\n", (unsigned long long)crashes);
	return failed;
}
