/* Worker and agent together: restores of damaged checkpoints, in memory and in the store, and of a
 * rank that does not vote. */
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/zip.h"
#include "test_session_state.h"

#include <fcntl.h>

/* ---- flipped bits in the arenas ---- */

#define FLIPS 200

/* Flips a bit of the agent's arenas, from lo to before hi, as failing memory would: through its
 * descriptors in /proc; with of, only in arenas that hold it at lo. Returns how many. */
static int flip_arena(struct rng *rng, const char *of, uint64_t lo, uint64_t hi)
{
	char content[64] = "";
	char path[64];
	char target[64];
	int flipped = 0;
	uint64_t at = lo + rng_below(rng, hi - lo);

	for (int fd = 3; fd < 64; fd++) {
		ssize_t n;
		int arena;
		uint8_t byte;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)agent_pid, fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (!strstr(target, "pawl-arena")) {
			continue;
		}
		arena = open(path, O_RDWR | O_CLOEXEC);
		assert_true(arena >= 0);
		if (of &&
			(pread(arena, content, strlen(of), (off_t)lo) < 0 ||
				strcmp(content, of) != 0)) {
			close(arena);
			continue;
		}
		assert_int_equal(pread(arena, &byte, 1, (off_t)at), 1);
		byte ^= (uint8_t)(1u << rng_below(rng, 8));
		assert_int_equal(pwrite(arena, &byte, 1, (off_t)at), 1);
		close(arena);
		flipped++;
	}
	return flipped;
}

/* Both generations lose a bit at the same place, every other time in the pickle: restoring must
 * find it in each, before it shows the pickle, and then take the older one from the store. */
static void flipped_bit_in_arena_is_found(void **unused)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct rng rng = {(uint64_t)time(NULL)};
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	struct pawl_restore *restore;
	struct pawl_err err;
	enum pawl_verdict all;
	struct zip_plan plan;
	const struct zip_entry *hit;
	uint64_t id;

	printf("seed %llu\n", (unsigned long long)rng.state);
	fill(&state, 1, 0);
	assert_int_equal(save(ckpt, &state, 1, false, &id, &err), 0);
	pawl_ckpt_fence(ckpt, 1);
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE, WAIT_MS, &err)), 0);
	assert_int_equal(zip_plan_init(&plan, (const uint64_t[]){BIG, 0}, 2,
				 strlen("pickle of step 100"), &err),
		0); /* the model, which is first in the arena */
	for (uint64_t step = 100; step < 100 + FLIPS; step++) {
		int damaged = 0;

		hit = step % 2 == 0 ? &plan.entries[0] : zip_plan_pickle(&plan);

		fill(&state, step, 0);
		assert_int_equal(save(ckpt, &state, step, false, &id, &err), 0);
		pawl_ckpt_fence(ckpt, 1);
		assert_int_equal(
			IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)), 0);
		assert_true(
			flip_arena(&rng, NULL, hit->data_off, hit->data_off + hit->size_bytes) > 0);
		for (;;) {
			uint32_t model;
			const void *pickle;
			uint64_t len;
			struct pawl_restore_info info;

			assert_int_equal(
				IN_TIME(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, &err)),
				0);
			pawl_restore_info(restore, &info);
			if (!info.memory) {
				break;
			}
			model = find(restore, "model", 0);
			assert_int_equal(pawl_restore_pickle(restore, model, &pickle, &len, &err),
				step % 2 == 0 ? 0 : PAWL_ECORRUPT);
			assert_int_equal(pawl_restore_read(restore, model, &err), PAWL_ECORRUPT);
			assert_non_null(strstr(err.msg, "model of step"));
			assert_int_equal(IN_TIME(pawl_restore_vote(restore, PAWL_VERDICT_RETRY,
						 err.msg, WAIT_MS, &all, &err)),
				0);
			assert_int_equal(all, PAWL_VERDICT_RETRY);
			pawl_restore_close(restore);
			damaged++;
		}
		assert_in_range(damaged, 1, 2);
		assert_int_equal(IN_TIME(pawl_restore_vote(restore, PAWL_VERDICT_GO, "", WAIT_MS,
					 &all, &err)),
			0);
		pawl_restore_close(restore);
	}
	expect(ckpt, 0, 1, false);
	pawl_ckpt_close(ckpt, 1000, &err);
	zip_plan_deinit(&plan);
	free(state.big);
}

/* Opens the offer to all ranks. */
static struct pawl_restore *offered(struct pawl_ckpt *ckpt)
{
	struct pawl_restore *restore;

	assert_int_equal(IN_TIME(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, NULL)), 0);
	return restore;
}

/* If a rank closes a restore without a vote, neither it nor the other rank waits. */
static void closing_without_a_vote_refuses(void **unused)
{
	struct state state[2] = {{.big = aligned_alloc(4096, BIG)},
		{.big = aligned_alloc(4096, BIG)}};
	struct pawl_ckpt *ckpt[2] = {join(0, 2, 0), join(1, 2, 0)};
	struct pawl_restore *other;
	enum pawl_verdict all;
	struct pawl_err err;
	uint64_t id;

	for (uint32_t r = 0; r < 2; r++) {
		fill(&state[r], 1, r);
		assert_int_equal(save(ckpt[r], &state[r], 1, false, &id, &err), 0);
		pawl_ckpt_fence(ckpt[r], 1);
	}
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt[1], id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)),
		0);
	for (int round = 0; round < 3; round++) {
		pawl_restore_close(offered(ckpt[0]));
		other = offered(ckpt[1]);
		assert_int_equal(
			IN_TIME(pawl_restore_vote(other, PAWL_VERDICT_GO, "", WAIT_MS, &all, &err)),
			PAWL_EMISMATCH);
		assert_non_null(strstr(err.msg, "rank 0: it closed the restore without a vote"));
		pawl_restore_close(other);
	}
	for (uint32_t r = 0; r < 2; r++) {
		pawl_ckpt_close(ckpt[r], 1000, &err);
		free(state[r].big);
	}
}

/* Votes RETRY on the next offer, the model of step, as damaged: it must not be offered again. */
static void vote_damaged(struct pawl_ckpt *ckpt, uint64_t step, bool memory)
{
	struct pawl_restore *restore;
	struct pawl_restore_info info;
	struct pawl_err err;
	enum pawl_verdict all;

	assert_int_equal(IN_TIME(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, &err)), 0);
	pawl_restore_info(restore, &info);
	assert_int_equal(info.step, step);
	assert_int_equal(info.memory, memory);
	assert_int_equal(pawl_restore_read(restore, find(restore, "model", 0), &err),
		PAWL_ECORRUPT);
	assert_int_equal(IN_TIME(pawl_restore_vote(restore, PAWL_VERDICT_RETRY, err.msg, WAIT_MS,
				 &all, &err)),
		0);
	pawl_restore_close(restore);
}

/* Flips one byte of the newest step in the store. */
static void flip_store(struct pawl_ckpt *ckpt, uint64_t at)
{
	struct pawl_restore *restore;
	struct pawl_restore_info info;
	struct pawl_restore_part part;
	struct pawl_err err;
	enum pawl_verdict all;
	char path[512];
	uint8_t byte;
	int fd;

	assert_int_equal(IN_TIME(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, &err)), 0);
	pawl_restore_info(restore, &info);
	pawl_restore_part(restore, find(restore, "model", 0), &part);
	snprintf(path, sizeof(path), "%s/%s/%s", root, info.tag, part.file);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
	assert_int_equal(
		IN_TIME(pawl_restore_vote(restore, PAWL_VERDICT_GO, "", WAIT_MS, &all, &err)), 0);
	pawl_restore_close(restore);
}

/* The newest step is damaged in memory, and durable: its copy in the store comes before older steps
 * in memory; and those come next, if the store's copy is damaged as well. */
static void damaged_newest_comes_from_the_store(void **unused)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct rng rng = {(uint64_t)time(NULL)};
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	struct pawl_err err;
	struct zip_plan plan;
	const struct zip_entry *pickle;
	uint64_t id;

	printf("seed %llu\n", (unsigned long long)rng.state);
	assert_int_equal(zip_plan_init(&plan, (const uint64_t[]){BIG, 0}, 2,
				 strlen("pickle of step 100"), &err),
		0);
	pickle = zip_plan_pickle(&plan);
	for (uint64_t step = 100; step < 104; step += 2) {
		commit(ckpt, &state, step);
		id = commit(ckpt, &state, step + 1);
		assert_int_equal(
			IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE, WAIT_MS, &err)), 0);
		if (step > 100) {
			flip_store(ckpt, plan.entries[0].data_off);
		}
		assert_int_equal(flip_arena(&rng, state.pickle, pickle->data_off,
					 pickle->data_off + pickle->size_bytes),
			1);
		vote_damaged(ckpt, step + 1, true);
		if (step == 100) {
			expect(ckpt, 0, 101, false);
		} else {
			vote_damaged(ckpt, 103, false);
			expect(ckpt, 0, 102, true);
		}
	}
	pawl_ckpt_close(ckpt, 1000, &err);
	zip_plan_deinit(&plan);
	free(state.big);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(closing_without_a_vote_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(flipped_bit_in_arena_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged_newest_comes_from_the_store, setup,
			teardown),
	};

	return argc > 1 ? run_agent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
