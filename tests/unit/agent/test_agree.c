/*
 * Jobs whose ranks span hosts: the members of a run, messages as bytes, merged manifests; and power
 * cut at every operation of a save that two hosts write into one root of either kind, taking turns.
 */
#include "agree_pair.h"
#include "base/rng.h"
#include "ckpt/format/merge.h"
#include "seed.h"
#include "store/mem.h"

static uint64_t first_seed; /* first seed of the torn writes */
static uint64_t crashes;    /* number of simulated crashes */

/* ---- who is in ---- */

#define JOIN(first_, ranks_, nonce_, world_)                                                       \
	{                                                                                          \
		.member = {.first_rank = first_, .ranks = ranks_, .nonce = nonce_},                \
		.world = world_                                                                    \
	}

static uint32_t plan(const struct agree_msg_join *joins, uint32_t n,
	const struct agree_msg_run *old, uint32_t *missing)
{
	const struct agree_member own = {.first_rank = 0, .ranks = 2, .nonce = 7};
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
	const struct agree_msg_run old = {.members_n = 1,
		.members = {{.first_rank = 4, .ranks = 1, .nonce = 4}}};
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

static struct agree_member member(uint32_t first, uint32_t ranks, uint64_t nonce)
{
	struct agree_member made = {.first_rank = first,
		.ranks = ranks,
		.nonce = nonce,
		.replicas = first,
		.parity = first == 1};

	snprintf(made.address, sizeof(made.address), "10.0.0.%u:40000", first);
	snprintf(made.domain, sizeof(made.domain), "rack %u", first);
	return made;
}

static void assert_member(const struct agree_member *a, const struct agree_member *b)
{
	assert_int_equal(a->first_rank, b->first_rank);
	assert_int_equal(a->ranks, b->ranks);
	assert_int_equal(a->nonce, b->nonce);
	assert_string_equal(a->address, b->address);
	assert_string_equal(a->domain, b->domain);
	assert_int_equal(a->replicas, b->replicas);
	assert_int_equal(a->parity, b->parity);
}

static int get_run(const struct wire_out *out)
{
	struct agree_msg_run run;

	return agree_msg_get_run(out->bytes, out->len_bytes, &run, NULL);
}

/* Expects that no message with one bit flipped, or cut anywhere, is taken. */
static void refuses_damage(struct wire_out *out, int (*get)(const struct wire_out *out))
{
	size_t len_bytes = out->len_bytes;

	assert_int_equal(get(out), 0);
	for (size_t bit = 0; bit < len_bytes * 8; bit++) {
		out->bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		assert_int_not_equal(get(out), 0);
		out->bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	for (out->len_bytes = 0; out->len_bytes < len_bytes; out->len_bytes++) {
		assert_int_not_equal(get(out), 0);
	}
}

static void a_run_comes_back_or_is_refused(void **state)
{
	struct agree_msg_run run = {.run = 77,
		.leader = member(0, 1, 5),
		.members_n = 2,
		.members = {member(1, 2, 3), member(3, 1, 9)}};
	struct agree_msg_status status = {0};
	struct agree_msg_run again;
	struct wire_out out = {0};

	agree_msg_put_run(&out, &run);
	assert_int_equal(agree_msg_get_run(out.bytes, out.len_bytes, &again, NULL), 0);
	assert_int_equal(again.run, 77);
	assert_member(&again.leader, &run.leader);
	assert_member(&again.members[0], &run.members[0]);
	assert_member(&again.members[1], &run.members[1]);
	assert_int_equal(agree_msg_get_status(out.bytes, out.len_bytes, &status, NULL),
		PAWL_ECORRUPT);
	refuses_damage(&out, get_run);
	run.members[1].first_rank = 4; /* rank 3 is nobody's */
	agree_msg_put_run(&out, &run);
	assert_int_equal(get_run(&out), PAWL_ECORRUPT);
	run.members[1] = member(3, UINT32_MAX - 2, 9);
	agree_msg_put_run(&out, &run);
	assert_int_equal(get_run(&out), PAWL_ECORRUPT);
	run.members[1] = member(3, 1, 9);
	run.leader = member(0, 0, 5);
	agree_msg_put_run(&out, &run);
	assert_int_equal(get_run(&out), PAWL_ECORRUPT);
	run.leader = member(0, 1, 5);
	run.leader.replicas = PLACE_REPLICAS_MAX + 1;
	agree_msg_put_run(&out, &run);
	assert_int_equal(get_run(&out), PAWL_ECORRUPT);
	run.leader = member(0, 1, 5);
	agree_msg_put_run(&out, &run);
	out.bytes[8] = 1; /* as written before the hosts had links */
	assert_int_equal(get_run(&out), PAWL_ENOTSUP);
	wire_out_deinit(&out);
}

static int get_status(const struct wire_out *out)
{
	struct agree_msg_status status = {0};

	return agree_msg_get_status(out->bytes, out->len_bytes, &status, NULL);
}

static struct peer_part held_part(uint32_t first, uint32_t ranks)
{
	return (struct peer_part){.save = {.run = 9, .number = 4},
		.step = 30,
		.tag = "thirty",
		.world = 4,
		.first_rank = first,
		.ranks = ranks};
}

static void a_status_comes_back_or_is_refused(void **state)
{
	static struct recover_plan plan, got_plan;
	struct peer_part held[AGREE_HELD_MAX + 1];
	struct peer_part got_held[AGREE_HELD_MAX];
	struct agree_msg_status status = {.held_n = 2, .held = held};
	struct agree_msg_status got = {.held = got_held, .plan = &got_plan};
	struct wire_out out = {0};

	held[0] = held_part(0, 1);
	held[1] = held_part(1, 3);
	held[1].parity = (struct peer_parity){1, 4, 2, 1, 3};
	agree_msg_put_status(&out, &status);
	assert_int_equal(agree_msg_get_status(out.bytes, out.len_bytes, &got, NULL), 0);
	assert_int_equal(got.held_n, 2);
	assert_memory_equal(&got_held[1], &held[1], sizeof(held[1]));
	assert_false(got.memory || got_plan.found);
	refuses_damage(&out, get_status);
	held[1].parity.index = 4;
	agree_msg_put_status(&out, &status);
	assert_int_equal(get_status(&out), PAWL_ECORRUPT);
	held[1] = held_part(1, 4); /* more than the world has */
	agree_msg_put_status(&out, &status);
	assert_int_equal(get_status(&out), PAWL_ECORRUPT);
	held[1].ranks = 0;
	agree_msg_put_status(&out, &status);
	assert_int_equal(get_status(&out), PAWL_ECORRUPT);
	plan = (struct recover_plan){.found = true,
		.save = {.run = 9, .number = 4},
		.sources_n = 3,
		.sources = {{0, 0, 1}, {1, 1, 3}, {0, 1, 3, {1, 4, 2, 1, 3}}}};
	status = (struct agree_msg_status){.found = true,
		.step = 30,
		.tag = "thirty",
		.memory = true,
		.plan = &plan};
	agree_msg_put_status(&out, &status);
	assert_int_equal(agree_msg_get_status(out.bytes, out.len_bytes, &got, NULL), 0);
	assert_true(got.memory && got.found && got_plan.found);
	assert_true(peer_save_is(&got_plan.save, &plan.save));
	assert_int_equal(got_plan.step, 30);
	assert_string_equal(got_plan.tag, "thirty");
	assert_int_equal(got_plan.sources_n, 3);
	assert_memory_equal(got_plan.sources, plan.sources, 3 * sizeof(plan.sources[0]));
	refuses_damage(&out, get_status);
	wire_out_deinit(&out);
}

/* Numbers beyond a limit, with a checksum that is right. */
static void lists_that_are_too_long_are_refused(void **state)
{
	static struct recover_plan plan = {.found = true, .sources_n = PEER_PARTS_MAX};
	struct peer_part held[AGREE_HELD_MAX];
	struct agree_msg_status status = {.held_n = AGREE_HELD_MAX, .held = held};
	struct wire_out out = {0};
	size_t at;

	for (uint32_t h = 0; h < AGREE_HELD_MAX; h++) {
		held[h] = held_part(0, 1);
	}
	agree_msg_put_status(&out, &status);
	assert_int_equal(get_status(&out), 0);
	/* code, why, part, verdict, has_step, asked_step, found, step and tag stand before it */
	at = 17 + 4 + 4 + 4 + 1 + 1 + 8 + 1 + 8 + 4;
	assert_int_equal(out.bytes[at], AGREE_HELD_MAX);
	wire_patch_u32(&out, at, AGREE_HELD_MAX + 1);
	wire_patch_u32(&out, 13, crc32c(0, out.bytes + 17, out.len_bytes - 17));
	assert_int_equal(get_status(&out), PAWL_ECORRUPT);
	status = (struct agree_msg_status){.memory = true, .plan = &plan};
	agree_msg_put_status(&out, &status);
	assert_int_equal(get_status(&out), 0);
	at += 4 + 1 + 16;
	wire_patch_u32(&out, at, PEER_PARTS_MAX + 1);
	wire_put_raw(&out, (const char[12]){0}, 12);
	wire_patch_u32(&out, 13, crc32c(0, out.bytes + 17, out.len_bytes - 17));
	assert_int_equal(get_status(&out), PAWL_ECORRUPT);
	wire_out_deinit(&out);
}

static void a_part_comes_back(void **state)
{
	uint32_t sums[] = {5, 6};
	struct agree_msg_shared shared = {"model", 4096, 2, sums};
	struct agree_msg_part part = {.shared_n = 1, .shared = &shared};
	struct agree_msg_part back;
	struct wire_out out = {0};

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

#define SAVES 3
/* Steps of a run's saves; the last one replaces a tag. */
static const uint64_t steps_of[SAVES] = {1, 2, 1};

/* Returns how many saves of a run became durable. */
static uint64_t run_saves(struct pair *pair, struct tags_root *root)
{
	uint64_t done = 0;

	init_pair(pair, NULL, NULL);
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
		struct agree_msg_status status = {0};
		struct agree *again = zero ? &pair.zero : &pair.one;

		init_pair(&pair, NULL, NULL);
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

	init_pair(&pair, NULL, NULL);
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

	init_pair(&pair, NULL, NULL);
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
	static struct recover_plan plan;

	for (int saving = 0; saving < 2; saving++) {
		struct agree_msg_status status = {.plan = &plan};
		struct pawl_err err;
		struct pair pair;
		struct tags_root *root = open_root(state);

		init_pair(&pair, NULL, NULL);
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

	init_pair(&pair, NULL, NULL);
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

/* Has both hosts choose what they save: any numbers. */
static void open_choosing(struct pair *pair, struct tags_root *root)
{
	init_pair(pair, NULL, NULL);
	assert_int_equal(begin_pair(pair, root), 0);
	pair->zero.chosen = true;
	pair->one.chosen = true;
}

static void old_messages_of_chosen_saves_are_removed(void **state)
{
	struct pair pair;
	struct tags_root *root = open_root(state);
	char path[STORE_PATH_MAX];
	struct pawl_err why;
	uint32_t names = 0;

	open_choosing(&pair, root);
	pawl_err_set(&why, PAWL_EIO, "no");
	for (uint64_t n = 1; n <= 100; n++) {
		if (n % 4 != 0) {
			assert_int_equal(save_pair(&pair, root, n * n, n % 3), 0);
			continue;
		}
		assert_int_equal(agree_save_fail(&pair.one, n * n, NULL, 0, "", &why, NULL), 0);
		assert_int_equal(save_part(&pair.zero, root, n * n, n % 3), PAWL_EIO);
		assert_int_equal(agree_save_fail(&pair.zero, n * n, NULL, 0, "", &why, NULL), 0);
	}
	snprintf(path, sizeof(path), "%s/%016llx", pair.zero.base,
		(unsigned long long)pair.zero.run.run);
	assert_int_equal(store_list(tags_root_store(root), path, count_name, &names, NULL), 0);
	assert_in_range(names, 2, 2 * AGREE_KEPT);
	deinit_pair(&pair);
	tags_root_close(root);
}

/* A chosen save that fails is followed by an older one: a part of the former is none of the
 * latter. */
static void an_older_save_can_be_chosen_after_a_failure(void **state)
{
	struct pair pair;
	struct tags_root *root = open_root(state);
	struct pawl_err why;

	open_choosing(&pair, root);
	pawl_err_set(&why, PAWL_ECANCELED, "it is not there");
	assert_int_equal(save_pair(&pair, root, 3, 3), 0);
	assert_int_equal(agree_save_fail(&pair.one, 9, NULL, 0, "", &why, NULL), 0);
	assert_int_equal(save_part(&pair.zero, root, 9, 9), PAWL_ECANCELED);
	assert_int_equal(agree_save_fail(&pair.zero, 9, NULL, 0, "", &why, NULL), 0);
	/* Rank 0 begins first, and waits although the other host has sent a part of save 9. */
	assert_int_equal(agree_gather(&pair.zero, AGREE_ROUND_SAVE, 8, NULL), PAWL_ECANCELED);
	assert_int_equal(save_part(&pair.one, root, 8, 8), PAWL_ECANCELED);
	assert_int_equal(agree_gather(&pair.zero, AGREE_ROUND_SAVE, 8, NULL), 0);
	pair.zero.chosen = false;
	assert_int_equal(agree_gather(&pair.zero, AGREE_ROUND_SAVE, 7, NULL), 0);
	deinit_pair(&pair);
	tags_root_close(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_has_each_rank_once),
		cmocka_unit_test(a_run_comes_back_or_is_refused),
		cmocka_unit_test(a_status_comes_back_or_is_refused),
		cmocka_unit_test(lists_that_are_too_long_are_refused),
		cmocka_unit_test(a_part_comes_back),
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
		cmocka_unit_test_prestate(old_messages_of_chosen_saves_are_removed, &directories),
		cmocka_unit_test_prestate(old_messages_of_chosen_saves_are_removed, &objects),
		cmocka_unit_test_prestate(an_older_save_can_be_chosen_after_a_failure,
			&directories),
		cmocka_unit_test_prestate(an_older_save_can_be_chosen_after_a_failure, &objects),
		cmocka_unit_test_prestate(a_save_of_two_hosts_is_whole_or_not_there, &directories),
		cmocka_unit_test_prestate(a_save_of_two_hosts_is_whole_or_not_there, &objects),
	};
	int failed;

	first_seed = test_seed();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	printf("%llu crashes\n", (unsigned long long)crashes);
	return failed;
}
