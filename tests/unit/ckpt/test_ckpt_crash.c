/*
 * Power is cut at every operation of a history of saves, in every way a disk may take it, in a root
 * of directories and in one of objects. After recovery each step is what it was before the action
 * that was cut off, or what it is after it: nothing between, and nothing else has changed or is
 * left.
 */
#include "base/err.h"
#include "base/rng.h"
#include "building.h"
#include "ckpt/format/retain.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "sample.h"
#include "seed.h"
#include "store/dirs.h"
#include "store/fault.h"
#include "store/mem.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define STEPS           5 /* steps 1 to 4 occur */
#define ABSENT          (-1)
#define BUILT           3 /* steps 11 to 13 are tags built part by part */
#define BUILT_FIRST     11u
#define TEAR_SEEDS      4u   /* ways to tear unsynced data, at each operation */
#define TEAR_SEEDS_LONG 210u /* with PAWL_LONG=1: over 100,000 in all */
#define KEEP_LAST       1u

static uint64_t first_seed; /* first seed of the torn writes */
static uint64_t seeds;      /* number of seeds at each operation */
static uint64_t crashes[2]; /* number of simulated crashes; [1]: in roots of objects */
static uint64_t named;      /* crashes after which a half-built tag was given its name */

/* ---- histories ---- */

enum verb {
	SAVE,
	RETAIN,
	QUARANTINE,
	UPDATE, /* a built tag shares what is unchanged with the one before it, if there is one */
	ADD,    /* a part is added to a built tag */
	REMOVE, /* a built tag is removed */
	END,
};

struct action {
	enum verb verb;
	uint64_t step;    /* step to save, quarantine or remove */
	uint32_t attempt; /* attempt to save; or number of the content to build */
};

static const struct action saves[] = {{SAVE, 1, 0}, {SAVE, 2, 0}, {SAVE, 3, 0}, {SAVE, 4, 0},
	{END, 0, 0}};
static const struct action again[] = {{SAVE, 1, 0}, {SAVE, 2, 0}, {SAVE, 2, 1}, {SAVE, 1, 1},
	{SAVE, 3, 0}, {END, 0, 0}};
static const struct action retained[] = {{SAVE, 1, 0}, {SAVE, 2, 0}, {RETAIN, 0, 0}, {SAVE, 3, 0},
	{RETAIN, 0, 0}, {SAVE, 4, 0}, {RETAIN, 0, 0}, {END, 0, 0}};
static const struct action quarantined[] = {{SAVE, 1, 0}, {SAVE, 2, 0}, {QUARANTINE, 2, 0},
	{SAVE, 2, 1}, {QUARANTINE, 2, 0}, {QUARANTINE, 2, 0}, {SAVE, 3, 0}, {END, 0, 0}};

/* Each tag depends on files that earlier ones wrote, after these were replaced or removed. */
static const struct action chained[] = {{UPDATE, 11, 1}, {UPDATE, 12, 2}, {ADD, 12, 5},
	{REMOVE, 11, 0}, {UPDATE, 13, 3}, {REMOVE, 12, 0}, {UPDATE, 13, 4}, {END, 0, 0}};

/* A history, and the root in which it happens. */
struct history {
	const struct action *actions;
	bool flat;            /* the root is one of objects */
	uint64_t no_exchange; /* operation, counted from 1, that fails as an unsupported exchange
			       * does; 0: none */
};

/* What the tags are. */
struct model {
	int attempt[STEPS]; /* attempt of each step, or ABSENT */
	int quarantined;    /* number of tags that were quarantined */
	int content[BUILT]; /* number of each built tag's content, or ABSENT */
	int added[BUILT];   /* number of the added part's content, or ABSENT */
};

static void apply_to_model(struct model *model, const struct action *action)
{
	int newest = 0;

	switch (action->verb) {
	case SAVE:
		model->attempt[action->step] = (int)action->attempt;
		break;
	case QUARANTINE:
		model->quarantined += model->attempt[action->step] != ABSENT;
		model->attempt[action->step] = ABSENT;
		break;
	case RETAIN:
		for (int s = 0; s < STEPS; s++) {
			newest = model->attempt[s] != ABSENT ? s : newest;
		}
		for (int s = 0; s < newest; s++) {
			model->attempt[s] = ABSENT;
		}
		break;
	case UPDATE:
		model->content[action->step - BUILT_FIRST] = (int)action->attempt;
		break;
	case ADD:
		model->added[action->step - BUILT_FIRST] = (int)action->attempt;
		break;
	case REMOVE:
		model->content[action->step - BUILT_FIRST] = ABSENT;
		model->added[action->step - BUILT_FIRST] = ABSENT;
		break;
	case END:
		break;
	}
}

/* Builds a tag with this number in the content of its last chunk. */
static int build(struct tags_root *root, const struct action *action, struct pawl_err *err)
{
	const uint32_t content[BUILDING_CHUNKS] = {9, action->attempt};
	struct building building;
	struct manifest base = {.parts_n = 0};
	char tag[CKPT_TAG_MAX];
	char before[CKPT_TAG_MAX];
	int rv;

	tag_of_step(tag, sizeof(tag), action->step);
	tag_of_step(before, sizeof(before), action->step - (action->verb == UPDATE));
	rv = tag_open(root, before, &base, err);
	if (rv != 0 && (rv != PAWL_ENOENT || action->verb == ADD)) {
		return rv;
	}
	rv = building_begin(&building, root, tag, action->step, NULL, err);
	if (rv == 0) {
		rv = action->verb == ADD ? building_write(&building, "added", content, NULL, err)
					 : building_write(&building, "model", content, &base, err);
	}
	if (rv == 0 && action->verb == ADD) {
		rv = building_keep(&building, &base, err);
	}
	rv = rv == 0 ? building_publish(&building, err) : rv;
	building_deinit(&building);
	manifest_deinit(&base);
	return rv;
}

static int apply_to_root(struct tags_root *root, const struct action *action, struct pawl_err *err)
{
	const struct retain_rule rule = {.keep_last = KEEP_LAST};
	char tag[CKPT_TAG_MAX];
	int rv = 0;

	switch (action->verb) {
	case SAVE:
		rv = sample_save(sample_get(action->step, action->attempt), root, err);
		break;
	case QUARANTINE:
		tag_of_step(tag, sizeof(tag), action->step);
		rv = tag_quarantine(root, tag, "for a test", err);
		break;
	case RETAIN:
		rv = tags_retain(root, &rule, err);
		break;
	case UPDATE:
	case ADD:
		rv = build(root, action, err);
		break;
	case REMOVE:
		tag_of_step(tag, sizeof(tag), action->step);
		rv = tag_remove(root, tag, err);
		break;
	case END:
		break;
	}
	return rv;
}

/* A history and where it stopped: the state before the last action, and the state after it. */
struct run {
	struct store *mem;      /* the disk */
	struct tags_root *root; /* root that the history works on, over mem or a layer above it */
	struct model before;
	struct model after;
	uint64_t step; /* step of the last action; 0 if it had none */
	bool flat;     /* the root is one of objects */
	bool done;     /* all actions were carried out */
};

/* Runs a history with the power cut at operation cut_at (0: never). */
static void run_history(struct run *run, const struct history *history, uint64_t cut_at)
{
	const struct store_fault_plan plan = {.what = STORE_FAULT_FAIL,
		.nth = history->no_exchange,
		.code = PAWL_ENOTSUP};
	struct store *store;

	*run = (struct run){.flat = history->flat};
	for (int s = 0; s < STEPS; s++) {
		run->after.attempt[s] = ABSENT;
	}
	for (int s = 0; s < BUILT; s++) {
		run->after.content[s] = run->after.added[s] = ABSENT;
	}
	run->before = run->after;
	assert_int_equal(history->flat ? store_mem_open_flat(&run->mem, NULL)
				       : store_mem_open(&run->mem, NULL),
		0);
	store = run->mem;
	if (history->no_exchange != 0) {
		assert_int_equal(store_fault_open(run->mem, &plan, &store, NULL), 0);
	}
	assert_int_equal(tags_root_over(store, &run->root, NULL), 0);
	store_mem_cut_at(run->mem, cut_at);
	for (const struct action *action = history->actions; action->verb != END; action++) {
		run->before = run->after;
		run->step = action->step;
		apply_to_model(&run->after, action);
		if (apply_to_root(run->root, action, NULL) != 0) {
			return;
		}
	}
	run->before = run->after;
	run->done = true;
}

/* Opens the root on the disk after a crash. */
static struct tags_root *open_after(const struct store *mem, enum mem_crash how, struct rng *rng)
{
	struct tags_root *root;
	struct store *disk;

	assert_int_equal(store_mem_after_crash(mem, how, rng, &disk, NULL), 0);
	assert_int_equal(tags_root_over(disk, &root, NULL), 0);
	return root;
}

/* ---- what must be true after a crash ---- */

static int refuse_hidden(void *user, const char *name, enum store_kind kind)
{
	bool *found = user;

	*found = *found || strncmp(name, ".pawl.", 6) == 0;
	return 0;
}

/* Nothing unfinished is left: no hidden directory, and no folder of files that no tag uses. */
static void assert_nothing_left(struct tags_root *root)
{
	struct tag_leftover *left;
	bool found = false;
	size_t n;

	assert_int_equal(store_list(tags_root_store(root), "", refuse_hidden, &found, NULL), 0);
	assert_false(found);
	assert_int_equal(tags_leftovers(root, &left, &n, NULL), 0);
	free(left);
	assert_int_equal(n, 0);
}

/* store_list_fn: counts quarantined tags, without the reasons of objects. */
static int count_bad(void *user, const char *name, enum store_kind kind)
{
	struct model *found = user;

	found->quarantined += strstr(name, ".why") == NULL;
	return 0;
}

/* Quarantined tags are kept, with the reason. */
static void assert_quarantined(struct tags_root *root, const struct run *run)
{
	const char *folder = run->flat ? ".pawl/bad" : ".bad";
	struct store *store = tags_root_store(root);
	struct model found = {.quarantined = 0};

	for (int n = 1; n <= run->before.quarantined; n++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/global_step2.%d%s", folder, n,
			run->flat ? ".why" : "/why.txt");
		assert_int_equal(store_stat(store, path, NULL, NULL, NULL), 0);
	}
	if (store_stat(store, folder, NULL, NULL, NULL) == 0) {
		assert_int_equal(store_list(store, folder, count_bad, &found, NULL), 0);
	}
	assert_in_range(found.quarantined, run->before.quarantined, run->after.quarantined);
	/* An object has one name: the tag is in its place or in quarantine, and never in both. */
	if (run->flat && run->before.quarantined != run->after.quarantined) {
		assert_int_equal(found.quarantined == run->after.quarantined,
			store_stat(store, ".pawl/tags/global_step2", NULL, NULL, NULL) != 0);
	}
}

/* Finds out which part of a built tag has which content. expected: one of those it may have. */
static bool has_content(struct tags_root *root, const char *tag, const char *name, int expected)
{
	const uint32_t content[BUILDING_CHUNKS] = {9, (uint32_t)expected};
	int rv = building_check(root, tag, name, content, NULL);

	return expected == ABSENT ? rv == PAWL_ENOENT : rv == 0;
}

/* A built tag is what it was before or after. */
static void assert_built(struct tags_root *root, const struct model *model,
	const struct model *other, int i)
{
	char tag[CKPT_TAG_MAX];

	tag_of_step(tag, sizeof(tag), BUILT_FIRST + (uint64_t)i);
	if (!has_content(root, tag, "model", model->content[i]) ||
		!has_content(root, tag, "added", model->added[i])) {
		assert_true(has_content(root, tag, "model", other->content[i]));
		assert_true(has_content(root, tag, "added", other->added[i]));
	}
}

/* Every tag listed is whole, and each step is what it was before or after. */
static void assert_state(struct tags_root *root, const struct run *run)
{
	struct model found;
	struct tag_info *tags;
	size_t n;

	for (int s = 0; s < STEPS; s++) {
		found.attempt[s] = ABSENT;
	}
	assert_int_equal(tags_list(root, NULL, &tags, &n, NULL), 0);
	for (size_t i = 0; i < n; i++) {
		uint32_t attempt = 0;

		assert_int_equal(tags[i].state, TAG_COMPLETE);
		if (tags[i].step >= BUILT_FIRST) {
			continue;
		}
		assert_true(tags[i].step < STEPS);
		assert_int_equal(sample_load(root, tags[i].tag, &attempt, NULL), 0);
		found.attempt[tags[i].step] = (int)attempt;
	}
	free(tags);
	for (int s = 0; s < STEPS; s++) {
		if (found.attempt[s] != run->before.attempt[s]) {
			assert_int_equal(found.attempt[s], run->after.attempt[s]);
		}
	}
	for (int i = 0; i < BUILT; i++) {
		assert_built(root, &run->before, &run->after, i);
	}
}

/* The root goes on working: one more save succeeds and stays. */
static void assert_goes_on(struct tags_root *root)
{
	const struct action next = {SAVE, STEPS, 7};
	uint32_t attempt = 0;

	assert_int_equal(apply_to_root(root, &next, NULL), 0);
	assert_int_equal(sample_load(root, "global_step5", &attempt, NULL), 0);
	assert_int_equal(attempt, 7);
	assert_nothing_left(root);
}

/* ---- each defence by itself ---- */

/* Gives .pawl.<tag>.new the tag's name by hand, so that the rename is no defence. Returns false if
 * there is no such directory. */
static bool name_by_hand(struct store *disk, const char *tag)
{
	char dir[CKPT_TAG_MAX + 16];

	snprintf(dir, sizeof(dir), ".pawl.%s.new", tag);
	if (store_stat(disk, dir, NULL, NULL, NULL) != 0) {
		return false;
	}
	assert_int_equal(store_remove(disk, tag, NULL), 0);
	assert_int_equal(store_rename(disk, dir, tag, STORE_REPLACE, NULL), 0);
	named++;
	return true;
}

/* A half built or half removed directory under the tag's name: if it opens, it must be whole.
 * with_ok: complete.txt says OK in any case, so that it is no defence either, and only the manifest
 * and the sizes are. */
static void assert_half_is_seen(struct tags_root *root, const char *tag, bool with_ok)
{
	struct store *disk = tags_root_store(root);
	char complete[CKPT_TAG_MAX + 32];
	struct manifest manifest;

	if (!name_by_hand(disk, tag)) {
		return;
	}
	snprintf(complete, sizeof(complete), "%s/complete.txt", tag);
	if (with_ok) {
		assert_int_equal(store_write_small(disk, complete, "OK", 2, NULL), 0);
	}
	if (tag_open(root, tag, &manifest, NULL) == 0) {
		manifest_deinit(&manifest);
		assert_int_equal(sample_load(root, tag, NULL, NULL), 0);
	}
}

/* A tag that was never published but says OK is whole, even if nobody asked the manifest first. */
static void assert_ok_is_true(struct tags_root *root, const char *tag)
{
	struct store *disk = tags_root_store(root);
	char complete[CKPT_TAG_MAX + 32];
	void *text = NULL;
	size_t len_bytes = 0;

	if (store_stat(disk, tag, NULL, NULL, NULL) == 0 || !name_by_hand(disk, tag)) {
		return;
	}
	snprintf(complete, sizeof(complete), "%s/complete.txt", tag);
	if (store_read_small(disk, complete, &text, &len_bytes, 100, NULL) == 0 && len_bytes == 2 &&
		memcmp(text, "OK", 2) == 0) {
		assert_int_equal(sample_load(root, tag, NULL, NULL), 0);
	}
	free(text);
}

static void assert_defences(const struct run *run, enum mem_crash how, uint64_t seed,
	bool exchanges)
{
	char tag[CKPT_TAG_MAX];

	tag_of_step(tag, sizeof(tag), run->step);
	for (int i = 0; i < 3; i++) {
		struct rng rng = {.state = seed};
		struct tags_root *root = open_after(run->mem, how, &rng);

		if (i == 0) {
			assert_half_is_seen(root, tag, false);
		} else if (i == 1) {
			assert_half_is_seen(root, tag, true);
		} else if (!exchanges) {
			/* After an exchange, .new is the tag that is being removed. */
			assert_ok_is_true(root, tag);
		}
		tags_root_close(root);
	}
}

/* ---- the simulations ---- */

/* A root of objects needs no recovery to be right: only files that nobody uses may be left. */
static void crash_once(const struct run *run, enum mem_crash how, uint64_t seed, bool exchanges)
{
	struct rng rng = {.state = seed};
	struct tags_root *root = open_after(run->mem, how, &rng);

	if (run->flat) {
		assert_state(root, run);
	}
	assert_int_equal(tags_recover(root, NULL), 0);
	assert_nothing_left(root);
	assert_quarantined(root, run);
	assert_state(root, run);
	assert_goes_on(root);
	tags_root_close(root);
	if (!run->flat && run->step < BUILT_FIRST) {
		assert_defences(run, how, seed, exchanges);
	}
	crashes[run->flat]++;
}

/* The power fails again, at every operation of the recovery. */
static void crash_twice(const struct run *run, enum mem_crash how)
{
	for (uint64_t cut_at = 1;; cut_at++) {
		struct tags_root *first = open_after(run->mem, how, NULL);
		int rv;

		store_mem_cut_at(tags_root_store(first), cut_at);
		rv = tags_recover(first, NULL);
		for (enum mem_crash then = MEM_KEEP; then <= MEM_LOSE; then++) {
			struct tags_root *second = open_after(tags_root_store(first), then, NULL);

			assert_int_equal(tags_recover(second, NULL), 0);
			assert_quarantined(second, run);
			assert_state(second, run);
			tags_root_close(second);
		}
		tags_root_close(first);
		if (rv == 0) {
			break;
		}
	}
}

/* Only the process dies; the next one recovers, and the power fails at every operation of that. */
static void die_then_crash(const struct history *history, uint64_t cut_at, enum mem_crash how)
{
	for (uint64_t later = 1;; later++) {
		struct rng rng = {.state = first_seed + cut_at + later};
		struct tags_root *root;
		struct run run;
		int rv;

		run_history(&run, history, cut_at);
		if (history->no_exchange != 0) {
			store_fault_set(tags_root_store(run.root), NULL);
		}
		store_mem_cut_at(run.mem, 0);
		store_mem_cut_at(run.mem, store_mem_ops(run.mem) + later);
		rv = tags_recover(run.root, NULL);
		root = open_after(run.mem, how, &rng);
		assert_int_equal(tags_recover(root, NULL), 0);
		assert_quarantined(root, &run);
		assert_state(root, &run);
		tags_root_close(root);
		tags_root_close(run.root);
		if (rv == 0) {
			break;
		}
	}
}

static void crash_everywhere(const struct history *history)
{
	bool exchanges = history->actions == again || history->actions == quarantined;
	/* Nothing of an object is ever torn, and built tags are large. */
	uint64_t tears = history->flat || history->actions == chained ? 1 : seeds;
	struct run run;
	uint64_t ops;

	run_history(&run, history, 0);
	assert_true(run.done);
	ops = store_mem_ops(run.mem);
	assert_quarantined(run.root, &run);
	assert_state(run.root, &run);
	assert_nothing_left(run.root);
	tags_root_close(run.root);
	for (uint64_t cut_at = 1; cut_at <= ops + 1; cut_at++) {
		run_history(&run, history, cut_at);
		/* A history that ends in spite of the cut has lost only its last removals. */
		assert_true(!run.done || cut_at > ops - 16);
		crash_once(&run, MEM_KEEP, 0, exchanges);
		crash_once(&run, MEM_LOSE, 0, exchanges);
		for (uint64_t seed = 0; seed < tears; seed++) {
			crash_once(&run, MEM_TEAR, first_seed + cut_at * tears + seed, exchanges);
		}
		crash_twice(&run, MEM_LOSE);
		if (tears > 1) {
			crash_twice(&run, MEM_KEEP);
		}
		if (exchanges) {
			die_then_crash(history, cut_at, cut_at % 2 ? MEM_LOSE : MEM_TEAR);
		}
		tags_root_close(run.root);
	}
}

/* Crashes a history in a root of each kind. */
static void crash_both(const struct action *actions)
{
	for (int flat = 0; flat < 2; flat++) {
		const struct history history = {.actions = actions, .flat = flat != 0};

		crash_everywhere(&history);
	}
}

static void saves_survive(void **state)
{
	crash_both(saves);
}

static void a_step_saved_again_is_old_or_new(void **state)
{
	crash_both(again);
}

/* Returns the operation that first asks for an exchange, and whose refusal does not fail the
 * save. */
static uint64_t find_exchange(const struct action *actions)
{
	for (uint64_t nth = 1;; nth++) {
		const struct history history = {.actions = actions, .no_exchange = nth};
		struct run run;
		bool found;

		run_history(&run, &history, 0);
		found = strstr(store_mem_trace(run.mem),
			"rename global_step2 .pawl.global_step2.old");
		tags_root_close(run.root);
		if (found) {
			return nth;
		}
		assert_true(nth < 10000);
	}
}

static void a_step_saved_again_without_exchange_is_old_or_new(void **state)
{
	const struct history history = {.actions = again, .no_exchange = find_exchange(again)};

	crash_everywhere(&history);
}

static void retention_leaves_the_newest(void **state)
{
	crash_both(retained);
}

static void quarantined_tags_stay_quarantined(void **state)
{
	crash_both(quarantined);
}

static void files_of_earlier_tags_stay_while_they_are_used(void **state)
{
	crash_both(chained);
}

/* ---- the order of operations, as recorded ---- */

/* Returns the place in the trace of line, or of the beginning of a line. It must occur once, and
 * after the place after. */
static const char *find_line(const char *trace, const char *line, const char *after)
{
	const char *found = NULL;

	for (const char *at = trace; (at = strstr(at, line)) != NULL; at++) {
		if (at == trace || at[-1] == '\n') {
			assert_null(found);
			found = at;
		}
	}
	assert_non_null(found);
	assert_true(found > after);
	return found;
}

static void each_thing_is_durable_before_the_next(void **state)
{
	static const struct action one[] = {{SAVE, 3, 0}, {END, 0, 0}};
	const struct history history = {.actions = one};
	static const char *const order[] = {
		"sync .pawl.global_step3.new/optim/of/all\n",
		"sync_dir .pawl.global_step3.new/optim/of\n",
		"sync_dir .pawl.global_step3.new/optim\n",
		"sync_dir .pawl.global_step3.new\n",
		"create .pawl.global_step3.new/.pawl/manifest\n",
		"sync .pawl.global_step3.new/.pawl/manifest\n",
		"sync_dir .pawl.global_step3.new/.pawl\n",
		"create .pawl.global_step3.new/complete.txt\n",
		"sync .pawl.global_step3.new/complete.txt\n",
		"sync_dir .pawl.global_step3.new\n",
		"rename .pawl.global_step3.new global_step3\n",
		"sync_dir \n",
	};
	struct run run;
	const char *trace, *at;

	run_history(&run, &history, 0);
	trace = at = store_mem_trace(run.mem);
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		at = strstr(at, order[i]);
		assert_non_null(at);
	}
	/* No data is written or synced later than that. */
	at = find_line(trace, "create .pawl.global_step3.new/.pawl/manifest\n", trace);
	assert_true(find_line(trace, "sync .pawl.global_step3.new/model\n", trace) < at);
	assert_true(find_line(trace, "write .pawl.global_step3.new/optim/of/all 1048576+", trace) <
		find_line(trace, "sync .pawl.global_step3.new/optim/of/all\n", trace));
	assert_true(find_line(trace, "sync .pawl.global_step3.new/optim/of/all\n", trace) < at);
	tags_root_close(run.root);
}

/* Objects: all files are complete before the manifest is put, and nothing is written after it. */
static void a_manifest_is_put_last(void **state)
{
	static const struct action one[] = {{SAVE, 3, 0}, {END, 0, 0}};
	const struct history history = {.actions = one, .flat = true};
	struct run run;
	const char *trace, *put;

	run_history(&run, &history, 0);
	trace = store_mem_trace(run.mem);
	put = find_line(trace, "put .pawl/tags/global_step3\n", trace);
	assert_string_equal(put, "put .pawl/tags/global_step3\n");
	trace = strstr(trace, "complete global_step3/save-");
	assert_non_null(trace);
	assert_non_null(strstr(trace + 1, "complete global_step3/save-"));
	tags_root_close(run.root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_thing_is_durable_before_the_next),
		cmocka_unit_test(a_manifest_is_put_last),
		cmocka_unit_test(saves_survive),
		cmocka_unit_test(a_step_saved_again_is_old_or_new),
		cmocka_unit_test(a_step_saved_again_without_exchange_is_old_or_new),
		cmocka_unit_test(retention_leaves_the_newest),
		cmocka_unit_test(quarantined_tags_stay_quarantined),
		cmocka_unit_test(files_of_earlier_tags_stay_while_they_are_used),
	};
	int failed;

	/* Memory of large files is used again when it is free, instead of being mapped anew. */
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	first_seed = test_seed();
	seeds = getenv("PAWL_LONG") != NULL ? TEAR_SEEDS_LONG : TEAR_SEEDS;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	printf("%llu crashes of directories, %llu by hand; %llu of objects\n",
		(unsigned long long)crashes[0], (unsigned long long)named,
		(unsigned long long)crashes[1]);
	/* If no half-built tag was named, the defences were not tested. */
	return failed != 0 ? failed : named == 0;
}
