/*
 * Jobs whose ranks span hosts: the members of a run, messages as bytes, merged manifests; and power
 * cut at every operation of a save that two hosts write into one root of either kind, taking turns.
 */
#include "agent/persist/agree_save.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/rng.h"
#include "ckpt/format/merge.h"
#include "ckpt/tags.h"
#include "seed.h"
#include "store/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static uint64_t first_seed; /* first seed of the torn writes */
static uint64_t crashes;    /* number of simulated crashes */

/* ---- who is in ---- */

#define JOIN(first_, ranks_, nonce_, world_)                                                       \
	{                                                                                          \
		.member = {first_, ranks_, nonce_}, .world = world_                                \
	}

static uint32_t plan(const struct agree_msg_join *joins, uint32_t n,
	const struct agree_msg_run *old, uint32_t *missing)
{
	const struct agree_member own = {0, 2, 7};
	struct agree_member members[AGREE_HOSTS_MAX];
	uint32_t got = agree_choose_members(&own, 6, joins, n, old, members, missing);

	for (uint32_t m = 0, next = 2; m < got; next += members[m].ranks, m++) {
		assert_int_equal(members[m].first_rank, next);
	}
	return got;
}

static void a_run_has_each_rank_once(void **state)
{
	const struct agree_msg_join joins[] = {
		JOIN(5, 1, 1, 6), /* in any order */
		JOIN(4, 2, 2, 8), /* from a job of another size */
		JOIN(2, 2, 3, 6), JOIN(4, 1, 4, 6),
		JOIN(4, 9, 5, 6), /* more ranks than the job has */
	};
	const struct agree_msg_run none = {0};
	const struct agree_msg_run old = {.members_n = 1, .members = {{4, 1, 4}}};
	uint32_t missing;

	assert_int_equal(plan(joins, 5, &none, &missing), 3);
	assert_int_equal(missing, 6);
	assert_int_equal(plan(joins + 1, 4, &none, &missing), 0);
	assert_int_equal(missing, 5);
	/* The member of rank 4 was in the run that is over. */
	assert_int_equal(plan(joins, 5, &old, &missing), 0);
	assert_int_equal(missing, 4);
}

/* ---- messages ---- */

static void messages_come_back_or_are_refused(void **state)
{
	const struct agree_msg_run run = {.run = 77,
		.members_n = 2,
		.members = {{1, 2, 3}, {3, 1, 9}}};
	uint32_t sums[] = {5, 6};
	struct agree_msg_shared shared = {"model", 4096, 2, sums};
	struct agree_msg_part part = {.shared_n = 1, .shared = &shared};
	struct agree_msg_part back;
	struct agree_msg_run again;
	struct agree_msg_status status;
	struct wire_out out = {0};

	agree_msg_put_run(&out, &run);
	assert_int_equal(agree_msg_get_run(out.bytes, out.len_bytes, &again, NULL), 0);
	assert_int_equal(again.run, 77);
	assert_memory_equal(again.members, run.members, 2 * sizeof(run.members[0]));
	assert_int_equal(agree_msg_get_status(out.bytes, out.len_bytes, &status, NULL),
		PAWL_ECORRUPT);
	for (size_t bit = 0; bit < out.len_bytes * 8; bit++) {
		out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		assert_int_not_equal(agree_msg_get_run(out.bytes, out.len_bytes, &again, NULL), 0);
		out.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	for (size_t len = 0; len < out.len_bytes; len++) {
		assert_int_not_equal(agree_msg_get_run(out.bytes, len, &again, NULL), 0);
	}
	part.status =
		(struct agree_msg_status){.code = PAWL_ENOSPC, .why = "full", .part = "model"};
	agree_msg_put_part(&out, &part);
	assert_int_equal(agree_msg_get_part(out.bytes, out.len_bytes, &back, NULL), 0);
	assert_int_equal(back.status.code, PAWL_ENOSPC);
	assert_string_equal(back.status.why, "full");
	assert_string_equal(back.shared[0].name, "model");
	assert_int_equal(back.shared[0].sums[1], 6);
	agree_msg_part_deinit(&back);
	wire_out_deinit(&out);
}

/* ---- merging ---- */

static struct manifest_part part_of(const char *name, uint32_t rank)
{
	struct manifest_part part = {.rank = rank, .raw = true};

	snprintf(part.name, sizeof(part.name), "%s", name);
	snprintf(part.file, sizeof(part.file), "%s", name);
	return part;
}

static struct manifest manifest_of(const char *tag, uint32_t world, struct manifest_part *parts,
	uint32_t n)
{
	struct manifest manifest = {.step = 3, .world = world, .parts = parts, .parts_n = n};

	snprintf(manifest.tag, sizeof(manifest.tag), "%s", tag);
	return manifest;
}

static int merge_two(const struct manifest *a, const struct manifest *b, struct manifest *into)
{
	const struct merge_host hosts[] = {{a, 0, 1}, {b, 1, 2}};

	return manifest_merge(hosts, 2, into, NULL);
}

static void manifests_merge_or_fail_with_a_reason(void **state)
{
	struct manifest_part of_a[] = {part_of("c", MANIFEST_ALL_RANKS), part_of("d", 0)};
	struct manifest_part of_b[] = {part_of("a", 2), part_of("e", 1)};
	struct manifest_part twice[] = {part_of("d", 1)};
	struct manifest_part others[] = {part_of("x", 0)};
	struct manifest_part shared[] = {part_of("x", MANIFEST_ALL_RANKS)};
	const struct manifest a = manifest_of("t", 3, of_a, 2);
	const struct manifest b = manifest_of("t", 3, of_b, 2);
	const struct manifest bad[] = {manifest_of("u", 3, of_b, 2), manifest_of("t", 4, of_b, 2),
		manifest_of("t", 3, twice, 1), manifest_of("t", 3, others, 1),
		manifest_of("t", 3, shared, 1)};
	struct manifest later = b;
	struct manifest into;

	assert_int_equal(merge_two(&a, &b, &into), 0);
	assert_int_equal(into.parts_n, 4);
	for (uint32_t p = 0; p < 4; p++) {
		assert_int_equal(into.parts[p].file[0], "acde"[p]);
	}
	free(into.parts);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(merge_two(&a, &bad[i], &into), PAWL_EMISMATCH);
	}
	later.step++;
	assert_int_equal(merge_two(&a, &later, &into), PAWL_EMISMATCH);
}

/* ---- two hosts and one root ---- */

/* States of the tests: whether the root is one of objects. */
static bool directories = false;
static bool objects = true;

static struct tags_root *open_root(void **state)
{
	struct tags_root *root;
	struct store *mem;

	assert_int_equal(
		*(bool *)*state ? store_mem_open_flat(&mem, NULL) : store_mem_open(&mem, NULL), 0);
	assert_int_equal(tags_root_over(mem, &root, NULL), 0);
	return root;
}

/* Ends every wait at once: the hosts take turns, so that all is there, or never will be. */
static bool give_up(void *user, int64_t pause_ns)
{
	return false;
}

struct pair {
	struct agree zero, one;
};

static void init_pair(struct pair *pair)
{
	memset(pair, 0, sizeof(*pair));
	agree_init(&pair->zero, "job", 0, 1, 2, give_up, NULL);
	agree_init(&pair->one, "job", 1, 1, 2, give_up, NULL);
}

static void deinit_pair(struct pair *pair)
{
	agree_deinit(&pair->zero);
	agree_deinit(&pair->one);
}

/* Opens both hosts, which join one run. */
static int begin_pair(struct pair *pair, struct tags_root *root)
{
	struct pawl_err err;

	return agree_open(&pair->zero, root, &err) || agree_open(&pair->one, root, &err) ||
		agree_begin(&pair->one, &err) || agree_begin(&pair->zero, &err) ||
		agree_enter(&pair->zero, &err) || agree_enter(&pair->one, &err);
}

/* Returns what the files of a save hold. */
static uint64_t content_of(uint64_t n, uint64_t step)
{
	return n * 100 + step;
}

/* Does one host's part of a save: a file of its rank's own. The host of rank 0 publishes. */
static int save_part(struct agree *agree, struct tags_root *root, uint64_t n, uint64_t step)
{
	const struct record record = {.step = step, .rank = agree->own.first_rank, .world = 2};
	uint64_t content = content_of(n, step);
	uint32_t crc = crc32c(0, &content, sizeof(content));
	struct manifest_part part =
		part_of(agree->own.first_rank ? "r1" : "r0", agree->own.first_rank);
	struct manifest manifest = manifest_of("", 2, &part, 0);
	char differs[CKPT_NAME_MAX];
	char path[STORE_PATH_MAX];
	struct pawl_err err;
	uint64_t size_bytes;
	uint32_t files;
	int rv;

	manifest.step = step;
	tag_of_step(manifest.tag, sizeof(manifest.tag), step);
	part.size_bytes = sizeof(content);
	part.chunks_n = 1;
	part.chunks = &crc;
	part.at[0].own_name = true;
	rv = agree_save_begin(agree, n, manifest.tag, &err);
	rv = rv == 0 ? tag_draft_manifest(root, &agree->draft, &manifest, &err) : rv;
	if (rv == 0) {
		manifest.parts_n = 1;
		manifest_file_path(path, sizeof(path), agree->draft.dir, &part, 0);
		rv = store_write_small(tags_root_store(root), path, &content, sizeof(content),
			&err);
	}
	if (rv == 0) {
		rv = agree_save_end(agree, n, &manifest, &record, &files, &size_bytes, differs,
			&err);
	}
	free(manifest.folders);
	return rv;
}

/* Does a save with both hosts. */
static int save_pair(struct pair *pair, struct tags_root *root, uint64_t n, uint64_t step)
{
	struct agree_msg_status status;
	struct pawl_err err;
	int rv = save_part(&pair->one, root, n, step);

	rv = rv == PAWL_ECANCELED ? save_part(&pair->zero, root, n, step) : rv;
	return rv == 0 ? agree_await_result(&pair->one, AGREE_ROUND_SAVE, n, &status, &err) : rv;
}

/* Returns the content of a tag's files, equal in both; 0: there is no such tag. */
static uint64_t read_tag(struct tags_root *root, const char *tag)
{
	uint64_t contents[2];
	struct manifest manifest;

	if (tag_open(root, tag, &manifest, NULL) != 0) {
		return 0;
	}
	assert_int_equal(manifest.parts_n, 2);
	assert_int_equal(manifest.world, 2);
	for (int r = 0; r < 2; r++) {
		char path[STORE_PATH_MAX];
		size_t len_bytes;
		void *bytes;

		manifest_path(path, sizeof(path), &manifest, &manifest.parts[r], 0);
		assert_int_equal(
			store_read_small(tags_root_store(root), path, &bytes, &len_bytes, 64, NULL),
			0);
		assert_int_equal(len_bytes, sizeof(contents[r]));
		memcpy(&contents[r], bytes, len_bytes);
		assert_int_equal(crc32c(0, bytes, len_bytes), manifest.parts[r].chunks[0]);
		free(bytes);
	}
	assert_int_equal(contents[0], contents[1]);
	assert_int_equal(contents[0] % 100, manifest.step);
	manifest_deinit(&manifest);
	return contents[0];
}

#define SAVES 3
/* Steps of a run's saves; the last one replaces a tag. */
static const uint64_t steps_of[SAVES] = {1, 2, 1};

/* Returns how many saves of a run became durable. */
static uint64_t run_saves(struct pair *pair, struct tags_root *root)
{
	uint64_t done = 0;

	init_pair(pair);
	if (begin_pair(pair, root) == 0) {
		while (done < SAVES && save_pair(pair, root, done + 1, steps_of[done]) == 0) {
			done++;
		}
	}
	deinit_pair(pair);
	return done;
}

static void assert_nothing_left(struct tags_root *root)
{
	struct tag_leftover *left;
	size_t n;

	assert_int_equal(tags_leftovers(root, &left, &n, NULL), 0);
	assert_int_equal(n, 0);
	free(left);
}

static void crash_once(struct tags_root *root, uint64_t done, enum mem_crash how, uint64_t seed)
{
	struct rng rng = {.state = seed};
	struct tags_root *disk;
	struct store *mem;
	struct pair pair;

	assert_int_equal(store_mem_after_crash(tags_root_store(root), how, &rng, &mem, NULL), 0);
	assert_int_equal(tags_root_over(mem, &disk, NULL), 0);
	assert_int_equal(tags_recover(disk, NULL), 0);
	for (uint64_t step = 1; step <= 2; step++) {
		char tag[CKPT_TAG_MAX];
		uint64_t before = 0; /* content that became durable */
		uint64_t after = 0;  /* content if the save that was cut off counts */
		uint64_t got;

		for (uint64_t n = 0; n < SAVES && n <= done; n++) {
			before = steps_of[n] == step && n < done ? content_of(n + 1, step) : before;
			after = steps_of[n] == step ? content_of(n + 1, step) : after;
		}
		tag_of_step(tag, sizeof(tag), step);
		got = read_tag(disk, tag);
		assert_true(got == before || got == after);
	}
	assert_nothing_left(disk);
	assert_int_equal(run_saves(&pair, disk), SAVES); /* the next run works */
	tags_root_close(disk);
	crashes++;
}

static void a_save_of_two_hosts_is_whole_or_not_there(void **state)
{
	struct tags_root *root = open_root(state);
	struct pair pair;
	uint64_t ops;

	assert_int_equal(run_saves(&pair, root), SAVES);
	assert_nothing_left(root);
	ops = store_mem_ops(tags_root_store(root));
	tags_root_close(root);
	for (uint64_t cut_at = 1; cut_at <= ops + 1; cut_at++) {
		uint64_t done;

		root = open_root(state);
		store_mem_cut_at(tags_root_store(root), cut_at);
		done = run_saves(&pair, root);
		crash_once(root, done, MEM_KEEP, 0);
		crash_once(root, done, MEM_LOSE, 0);
		crash_once(root, done, MEM_TEAR, first_seed + cut_at);
		tags_root_close(root);
	}
}

/* Each host dies while the other one lives: the save that it was in the middle of fails. */
static void who_begins_anew_ends_the_run(void **state)
{
	for (int zero = 0; zero < 2; zero++) {
		struct pair pair;
		struct tags_root *root = open_root(state);
		struct pawl_err err;
		struct agree_msg_status status;
		struct agree *again = zero ? &pair.zero : &pair.one;

		init_pair(&pair);
		assert_int_equal(begin_pair(&pair, root), 0);
		assert_int_equal(save_pair(&pair, root, 1, 1), 0);
		assert_int_equal(save_part(&pair.one, root, 2, 2), PAWL_ECANCELED);
		if (zero) {
			assert_int_equal(agree_open(again, root, &err), 0);
		}
		assert_int_equal(agree_begin(again, &err), 0);
		if (zero) {
			assert_int_equal(
				agree_await_result(&pair.one, AGREE_ROUND_SAVE, 2, &status, &err),
				PAWL_EPEER);
			assert_int_equal(agree_enter(&pair.one, &err), PAWL_EPEER);
		} else {
			assert_int_equal(save_part(&pair.zero, root, 2, 2), PAWL_EPEER);
		}
		assert_int_equal(read_tag(root, "global_step2"), 0);
		/* The other host's old join does not make a run with the new one. */
		assert_int_not_equal(agree_enter(&pair.zero, &err), 0);
		assert_int_equal(agree_begin(zero ? &pair.one : &pair.zero, &err), 0);
		assert_int_equal(agree_enter(&pair.zero, &err), 0);
		assert_int_equal(agree_enter(&pair.one, &err), 0);
		assert_int_equal(save_pair(&pair, root, 1, 2), 0);
		assert_int_equal(read_tag(root, "global_step2"), content_of(1, 2));
		deinit_pair(&pair);
		tags_root_close(root);
	}
}

/* A save comes before rank 0's host has named a run, and fails; that host then names one. Beginning
 * anew would end the run that is being named. */
static void who_is_not_named_in_time_goes_on_waiting(void **state)
{
	const struct pawl_err why = {.code = PAWL_EIO, .msg = "no disk"};
	struct pair pair;
	struct tags_root *root = open_root(state);
	struct pawl_err err;

	init_pair(&pair);
	assert_int_equal(agree_open(&pair.zero, root, &err), 0);
	assert_int_equal(agree_open(&pair.one, root, &err), 0);
	assert_int_equal(agree_begin(&pair.one, &err), 0);
	pair.one.timeout_ns = 0;
	assert_int_equal(agree_save_begin(&pair.one, 1, "global_step1", &err), PAWL_ETIMEDOUT);
	assert_int_equal(err.code, PAWL_ETIMEDOUT);
	assert_int_equal(agree_save_fail(&pair.one, 1, NULL, 0, "", &why, &err), PAWL_ETIMEDOUT);
	assert_false(pair.one.run_used);
	pair.one.timeout_ns = pair.zero.timeout_ns;
	assert_int_equal(agree_begin(&pair.zero, &err), 0);
	assert_int_equal(agree_enter(&pair.zero, &err), 0);
	assert_int_equal(save_pair(&pair, root, 1, 1), 0);
	assert_int_equal(read_tag(root, "global_step1"), content_of(1, 1));
	deinit_pair(&pair);
	tags_root_close(root);
}

/* A host that is a save ahead did not make the one before; steps that differ are reported. */
static void hosts_that_disagree_get_errors(void **state)
{
	struct pair pair;
	struct tags_root *root = open_root(state);

	init_pair(&pair);
	assert_int_equal(begin_pair(&pair, root), 0);
	assert_int_equal(save_part(&pair.one, root, 2, 7), PAWL_ECANCELED);
	assert_int_equal(save_part(&pair.zero, root, 1, 6), PAWL_ECANCELED);
	assert_int_equal(save_part(&pair.zero, root, 2, 8), PAWL_EMISMATCH);
	assert_int_equal(read_tag(root, "global_step6"), 0);
	assert_int_equal(read_tag(root, "global_step7"), 0);
	assert_int_equal(read_tag(root, "global_step8"), 0);
	deinit_pair(&pair);
	tags_root_close(root);
}

/* Must not be called: no host makes an offer. */
static int find_nothing(void *user, struct agree_msg_status *status)
{
	fail_msg("an offer was made");
	return 0;
}

/* Ranks that save on one host and restore on the other get an error, and are not waited for. */
static void hosts_that_do_different_things_get_errors(void **state)
{
	for (int saving = 0; saving < 2; saving++) {
		struct agree_msg_status status = {0};
		struct pawl_err err;
		struct pair pair;
		struct tags_root *root = open_root(state);

		init_pair(&pair);
		assert_int_equal(begin_pair(&pair, root), 0);
		assert_int_equal(save_pair(&pair, root, 1, 1), 0);
		pair.zero.mismatch_wait_ns = 0;
		if (saving) {
			assert_int_equal(agree_offer(&pair.one, &status, find_nothing, NULL, &err),
				PAWL_ECANCELED);
			assert_int_equal(save_part(&pair.zero, root, 2, 2), PAWL_EMISMATCH);
		} else {
			assert_int_equal(save_part(&pair.one, root, 2, 2), PAWL_ECANCELED);
			assert_int_equal(agree_offer(&pair.zero, &status, find_nothing, NULL, &err),
				PAWL_ECANCELED); /* rank 0 still waits */
			assert_int_equal(
				agree_await_result(&pair.one, AGREE_ROUND_SAVE, 2, &status, &err),
				PAWL_ECANCELED);
			assert_non_null(strstr(err.msg, "rank 0's host restore, and do not save"));
		}
		deinit_pair(&pair);
		tags_root_close(root);
	}
}

static int count_name(void *user, const char *name, enum store_kind kind)
{
	++*(uint32_t *)user;
	return 0;
}

/* Old messages are removed: a run of any length has a bounded number of them. */
static void old_messages_are_removed(void **state)
{
	struct pair pair;
	struct tags_root *root = open_root(state);
	char path[STORE_PATH_MAX];
	uint32_t names = 0;

	init_pair(&pair);
	assert_int_equal(begin_pair(&pair, root), 0);
	for (uint64_t n = 1; n <= 100; n++) {
		assert_int_equal(save_pair(&pair, root, n, n % 3), 0);
	}
	snprintf(path, sizeof(path), "%s/%016llx", pair.zero.base,
		(unsigned long long)pair.zero.run.run);
	assert_int_equal(store_list(tags_root_store(root), path, count_name, &names, NULL), 0);
	assert_in_range(names, 2, 2 * 32);
	deinit_pair(&pair);
	tags_root_close(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_has_each_rank_once),
		cmocka_unit_test(messages_come_back_or_are_refused),
		cmocka_unit_test(manifests_merge_or_fail_with_a_reason),
		cmocka_unit_test_prestate(who_begins_anew_ends_the_run, &directories),
		cmocka_unit_test_prestate(who_begins_anew_ends_the_run, &objects),
		cmocka_unit_test_prestate(who_is_not_named_in_time_goes_on_waiting, &directories),
		cmocka_unit_test_prestate(who_is_not_named_in_time_goes_on_waiting, &objects),
		cmocka_unit_test_prestate(hosts_that_disagree_get_errors, &directories),
		cmocka_unit_test_prestate(hosts_that_disagree_get_errors, &objects),
		cmocka_unit_test_prestate(hosts_that_do_different_things_get_errors, &directories),
		cmocka_unit_test_prestate(hosts_that_do_different_things_get_errors, &objects),
		cmocka_unit_test_prestate(old_messages_are_removed, &directories),
		cmocka_unit_test_prestate(old_messages_are_removed, &objects),
		cmocka_unit_test_prestate(a_save_of_two_hosts_is_whole_or_not_there, &directories),
		cmocka_unit_test_prestate(a_save_of_two_hosts_is_whole_or_not_there, &objects),
	};
	int failed;

	first_seed = test_seed();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	printf("%llu crashes\n", (unsigned long long)crashes);
	return failed;
}
