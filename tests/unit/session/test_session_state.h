/* Shared by the tests of saves by step: the state of a rank, a way to save it, and a restore that
 * compares it. */
#ifndef TEST_SESSION_STATE_H
#define TEST_SESSION_STATE_H

#include "test_session_agent.h"

#define BIG   (5u << 20) /* bytes of the large storage: several chunks */
#define SMALL 1000u

/* The state of one rank: "model", equal on all ranks or not, and "own". */
struct state {
	uint8_t *big;
	uint8_t small[SMALL];
	char pickle[64];
};

static inline void fill(struct state *state, uint64_t step, uint32_t rank)
{
	for (size_t i = 0; i < BIG; i++) {
		state->big[i] = (uint8_t)(i * 7 + step * 13 + (i >> 12));
	}
	memset(state->small, (int)(step + rank), SMALL);
	snprintf(state->pickle, sizeof(state->pickle), "pickle of step %llu",
		(unsigned long long)step);
}

static inline int save(struct pawl_ckpt *ckpt, struct state *state, uint64_t step, bool shared,
	uint64_t *id, struct pawl_err *err)
{
	struct pawl_ckpt_span model[] = {{(uintptr_t)state->big, BIG, 1}, {0, 0, 0}};
	struct pawl_ckpt_span own[] = {{(uintptr_t)state->small, SMALL, 0}};
	struct pawl_ckpt_part parts[] = {
		{.name = "model",
			.shared = shared,
			.pickle = state->pickle,
			.pickle_bytes = strlen(state->pickle),
			.spans = model,
			.spans_n = 2},
		{.name = "own",
			.pickle = state->pickle,
			.pickle_bytes = strlen(state->pickle),
			.spans = own,
			.spans_n = 1},
	};

	return pawl_ckpt_save(ckpt, step, parts, 2, true, id, err);
}

/* Restores the newest checkpoint and compares it with what fill made for step. */
static inline void expect(struct pawl_ckpt *ckpt, uint32_t rank, uint64_t step, bool memory)
{
	struct state want = {.big = malloc(BIG)};
	struct state got = {.big = calloc(1, BIG)};
	struct pawl_restore *restore;
	struct pawl_restore_info info;
	struct pawl_err err = {0};
	enum pawl_verdict all;
	uint32_t model;
	uint32_t own;
	const void *pickle;
	uint64_t len;
	int rv = IN_TIME(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, &err));

	if (rv != 0) {
		fail_msg("restore: %s", err.msg);
	}
	fill(&want, step, rank);
	pawl_restore_info(restore, &info);
	assert_int_equal(info.step, step);
	assert_int_equal(info.memory, memory);
	model = find(restore, "model", rank);
	own = find(restore, "own", rank);
	assert_int_equal(pawl_restore_storages(restore, model), 0);
	assert_int_equal(pawl_restore_pickle(restore, model, &pickle, &len, &err), 0);
	assert_int_equal(pawl_restore_storages(restore, model), 2);
	assert_int_equal(pawl_restore_storage_bytes(restore, model, 0), BIG);
	assert_int_equal(pawl_restore_copy(restore,
				 &(struct pawl_restore_copy){model, 0, 0, (uintptr_t)got.big, 1}, 1,
				 &err),
		PAWL_EINVAL); /* nothing but the pickle was verified */
	rv = pawl_restore_read(restore, model, &err) | pawl_restore_read(restore, own, &err);
	if (rv != 0) {
		fail_msg("read: %s", err.msg);
	}
	assert_int_equal(pawl_restore_storages(restore, model), 2);
	assert_int_equal(pawl_restore_storage_bytes(restore, model, 0), BIG);
	assert_int_equal(len, strlen(want.pickle));
	assert_memory_equal(pickle, want.pickle, len);
	assert_int_equal(
		IN_TIME(pawl_restore_vote(restore, PAWL_VERDICT_GO, "", WAIT_MS, &all, &err)), 0);
	assert_int_equal(all, PAWL_VERDICT_GO);
	assert_int_equal(
		pawl_restore_copy(restore,
			(struct pawl_restore_copy[]){{model, 0, 0, (uintptr_t)got.big, BIG},
				{own, 0, 0, (uintptr_t)got.small, SMALL}},
			2, &err),
		0);
	assert_memory_equal(got.big, want.big, BIG);
	assert_memory_equal(got.small, want.small, SMALL);
	assert_int_equal(pawl_restore_copy(restore,
				 &(struct pawl_restore_copy){model, 0, 1, (uintptr_t)got.big, BIG},
				 1, &err),
		PAWL_EINVAL);
	pawl_restore_close(restore);
	free(want.big);
	free(got.big);
}

/* Saves, and waits until that is committed. Returns the save's id. */
static inline uint64_t commit(struct pawl_ckpt *ckpt, struct state *state, uint64_t step)
{
	struct pawl_err err;
	uint64_t id;

	fill(state, step, 0);
	assert_int_equal(save(ckpt, state, step, false, &id, &err), 0);
	pawl_ckpt_fence(ckpt, 1);
	if (IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)) != 0) {
		fail_msg("step %llu: %s", (unsigned long long)step, err.msg);
	}
	expect(ckpt, 0, step, true);
	return id;
}

#endif
