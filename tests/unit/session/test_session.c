/* Worker and agent together, over a real socket and a real directory: save, be killed, restore; two
 * ranks; what ranks disagree on. */
#include "agent/persist/rootlock.h"
#include "base/rng.h"
#include "ckpt/format/plan.h"
#include "ckpt/format/zip.h"
#include "ckpt/tags.h"
#include "test_session_agent.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#define BIG   (5u << 20) /* bytes of the large storage: several chunks */
#define SMALL 1000u

/* The state of one rank: "model", equal on all ranks or not, and "own". */
struct state {
	uint8_t *big;
	uint8_t small[SMALL];
	char pickle[64];
};

static void fill(struct state *state, uint64_t step, uint32_t rank)
{
	for (size_t i = 0; i < BIG; i++) {
		state->big[i] = (uint8_t)(i * 7 + step * 13 + (i >> 12));
	}
	memset(state->small, (int)(step + rank), SMALL);
	snprintf(state->pickle, sizeof(state->pickle), "pickle of step %llu",
		(unsigned long long)step);
}

static int save(struct pawl_ckpt *ckpt, struct state *state, uint64_t step, bool shared,
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
static void expect(struct pawl_ckpt *ckpt, uint32_t rank, uint64_t step, bool memory)
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

static void survives_trainer_then_agent(void **unused)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	struct pawl_restore *restore;
	struct pawl_err err;
	uint64_t id;

	assert_int_equal(IN_TIME(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, &err)),
		PAWL_ENOENT);
	for (uint64_t step = 1; step <= 4; step++) {
		fill(&state, step, 0);
		assert_int_equal(save(ckpt, &state, step, false, &id, &err), 0);
		pawl_ckpt_fence(ckpt, 1);
		assert_int_equal(
			IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)), 0);
	}
	expect(ckpt, 0, 4, true);
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE, WAIT_MS, &err)), 0);
	assert_int_equal(IN_TIME(pawl_ckpt_close(ckpt, WAIT_MS, &err)), 0);

	ckpt = join(0, 1, 0); /* the trainer is new, the agent is not */
	expect(ckpt, 0, 4, true);
	fill(&state, 5, 0);
	assert_int_equal(save(ckpt, &state, 5, false, &id, &err), 0);
	pawl_ckpt_fence(ckpt, 1);
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)), 0);
	expect(ckpt, 0, 5, true);

	kill_agent(); /* and with it step 5, which was never durable */
	start_agent();
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE, WAIT_MS, &err)),
		PAWL_ECANCELED);
	await_agent(sock);
	expect(ckpt, 0, 4, false); /* connects again by itself */
	pawl_ckpt_close(ckpt, 1000, &err);
	free(state.big);
}

/* Saves, and waits until that is committed. Returns the save's id. */
static uint64_t commit(struct pawl_ckpt *ckpt, struct state *state, uint64_t step)
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

/* Whatever becomes of a question put ahead, the saves after it are whole. */
static void asking_ahead(void **unused)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct pawl_ckpt_span span = {(uintptr_t)state.big, SMALL, 1, 0};
	struct pawl_ckpt_part part = {.name = "model",
		.pickle = "p",
		.pickle_bytes = 1,
		.spans = &span,
		.spans_n = 1};
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	struct pawl_err err;
	uint64_t id;

	fill(&state, 0, 0);
	pawl_ckpt_announce(ckpt, 0); /* the first save has nothing to ask for */
	assert_int_equal(pawl_ckpt_save(ckpt, 0, &part, 1, true, &id, &err), 0);
	pawl_ckpt_fence(ckpt, 1);
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)), 0);
	/* The first save needs more than is asked for. */
	for (uint64_t step = 1; step < 6; step++) {
		pawl_ckpt_announce(ckpt, step);
		commit(ckpt, &state, step);
	}
	pawl_ckpt_announce(ckpt, 6);
	commit(ckpt, &state, 7); /* another step */
	pawl_ckpt_announce(ckpt, 8);
	pawl_ckpt_announce(ckpt, 9); /* twice */
	commit(ckpt, &state, 9);
	pawl_ckpt_announce(ckpt, 10);
	pawl_ckpt_skip(ckpt);
	commit(ckpt, &state, 10);
	pawl_ckpt_skip(ckpt); /* nothing was asked */
	id = commit(ckpt, &state, 11);

	pawl_ckpt_announce(ckpt, 14);
	kill_agent(); /* the session is to hear of this before it saves again */
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE, WAIT_MS, &err)),
		PAWL_ECANCELED);
	start_agent();
	await_agent(sock);
	commit(ckpt, &state, 14);
	pawl_ckpt_announce(ckpt, 15);
	assert_int_equal(IN_TIME(pawl_ckpt_close(ckpt, WAIT_MS, &err)), 0);
	free(state.big);
}

/* One rank of a pair, in a thread of its own. */
struct rank_job {
	uint32_t rank;
	void (*run)(uint32_t rank);
};

static void *run_rank(void *user)
{
	struct rank_job *job = user;

	job->run(job->rank);
	return NULL;
}

static void run_pair(void (*run)(uint32_t rank))
{
	struct rank_job jobs[2] = {{0, run}, {1, run}};
	pthread_t threads[2];

	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &jobs[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
	}
}

static void pair_shares(uint32_t rank)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct pawl_ckpt *ckpt = join(rank, 2, 0);
	struct pawl_err err;
	uint64_t id;

	for (uint64_t step = 10; step <= 12; step++) {
		fill(&state, step, rank);
		assert_int_equal(save(ckpt, &state, step, true, &id, &err), 0);
		pawl_ckpt_fence(ckpt, 1);
		assert_int_equal(
			IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)), 0);
	}
	expect(ckpt, rank, 12, true);
	assert_int_equal(IN_TIME(pawl_ckpt_flush(ckpt, WAIT_MS, &err)), 0);
	assert_int_equal(IN_TIME(pawl_ckpt_close(ckpt, WAIT_MS, &err)), 0);
	free(state.big);
}

/* If one rank cannot save, none does, and the next save is whole again. */
static void pair_gives_up(uint32_t rank)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct pawl_ckpt *ckpt = join(rank, 2, 0);
	struct pawl_err err;
	uint64_t id;

	for (uint64_t step = 1; step <= 4; step++) {
		bool gives_up = step % 2 == 1;

		fill(&state, step, rank);
		pawl_ckpt_announce(ckpt, step);
		if (gives_up && rank == 0) {
			pawl_ckpt_skip(ckpt);
			continue;
		}
		assert_int_equal(save(ckpt, &state, step, true, &id, &err), 0);
		pawl_ckpt_fence(ckpt, 1);
		assert_int_equal(
			IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)),
			gives_up ? PAWL_ECANCELED : 0);
	}
	expect(ckpt, rank, 4, true);
	pawl_ckpt_close(ckpt, WAIT_MS, &err);
	free(state.big);
}

static void ranks_give_up_together(void **unused)
{
	run_pair(pair_gives_up);
}

static void pair_loads(uint32_t rank)
{
	struct pawl_ckpt *ckpt = join(rank, 2, 0);
	struct pawl_err err;

	expect(ckpt, rank, 12, false);
	pawl_ckpt_close(ckpt, 1000, &err);
}

static void two_ranks_write_one_file(void **unused)
{
	struct store *store;
	struct pawl_err err;
	enum store_kind kind;
	uint64_t size;

	run_pair(pair_shares);
	kill_agent();
	start_agent();
	run_pair(pair_loads);
	assert_int_equal(store_posix_open(root, false, &store, &err), 0);
	assert_int_equal(store_stat(store, "global_step12/model", &kind, &size, &err), 0);
	assert_int_equal(store_stat(store, "global_step12/own-rank1", &kind, &size, &err), 0);
	assert_int_equal(store_stat(store, "global_step12/model-rank1", &kind, &size, &err),
		PAWL_ENOENT);
	store_close(store);
}

static void pair_diverges(uint32_t rank)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct pawl_ckpt *ckpt = join(rank, 2, 0);
	struct pawl_ckpt_status status;
	char names[256] = "";
	struct pawl_err err;
	uint64_t id;

	fill(&state, 1, rank);
	state.big[BIG - 1] ^= (uint8_t)rank; /* one bit */
	assert_int_equal(save(ckpt, &state, 1, true, &id, &err), 0);
	pawl_ckpt_fence(ckpt, 1);
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)),
		PAWL_ECANCELED);
	assert_int_equal(pawl_ckpt_status(ckpt, id, &status, &err), 0);
	assert_int_equal(status.code, PAWL_EMISMATCH);
	assert_non_null(strstr(status.why, "storage 0"));
	assert_int_equal(pawl_ckpt_diverged(ckpt, names, sizeof(names)), 1);
	assert_string_equal(names, "model\n");
	assert_int_equal(save(ckpt, &state, 2, false, &id, &err), 0); /* every rank saves its own */
	pawl_ckpt_fence(ckpt, 1);
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE, WAIT_MS, &err)), 0);
	pawl_ckpt_close(ckpt, 1000, &err);
	free(state.big);
}

static void divergence_is_reported_never_published(void **unused)
{
	run_pair(pair_diverges);
}

static void pair_disagrees(uint32_t rank)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct pawl_ckpt *ckpt = join(rank, 2, 0);
	struct pawl_ckpt_status status;
	struct pawl_err err;
	uint64_t id = 0;
	int rv;

	fill(&state, 1, rank);
	rv = save(ckpt, &state, 7 + rank, true, &id, &err);
	pawl_ckpt_fence(ckpt, 1);
	if (rv == 0) { /* This rank came first: its status tells it. */
		assert_int_equal(
			IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)),
			PAWL_ECANCELED);
		assert_int_equal(pawl_ckpt_status(ckpt, id, &status, &err), 0);
		rv = status.code;
	}
	assert_int_equal(rv, PAWL_EMISMATCH);
	assert_non_null(strstr(err.msg, "step 7"));
	assert_non_null(strstr(err.msg, "step 8"));
	pawl_ckpt_close(ckpt, 1000, &err);
	free(state.big);
}

static void different_steps_are_refused(void **unused)
{
	run_pair(pair_disagrees);
}

static void pair_streams(uint32_t rank)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct pawl_ckpt *ckpt = join(rank, 2, 1);
	struct pawl_err err;
	uint64_t id;

	for (uint64_t step = 1; step <= 2; step++) {
		fill(&state, step, rank);
		assert_int_equal(save(ckpt, &state, step, true, &id, &err), 0);
		memset(state.big, 0, BIG); /* streamed: all is written when save returns */
		assert_int_equal(
			IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE, WAIT_MS, &err)), 0);
	}
	expect(ckpt, rank, 2, false);
	pawl_ckpt_close(ckpt, 1000, &err);
	free(state.big);
}

static void what_does_not_fit_streams(void **unused)
{
	run_pair(pair_streams);
}

static void second_process_of_a_rank_is_refused(void **unused)
{
	struct pawl_ckpt *first = join(0, 1, 0);
	struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.world = 1,
		.socket = sock};
	struct pawl_ckpt *second;
	struct pawl_err err;
	char pid[16];

	assert_int_equal(pawl_ckpt_open(&second, &options, &err), PAWL_EBUSY);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	assert_non_null(strstr(err.msg, pid));
	pawl_ckpt_close(first, 1000, &err);
}

static void second_job_on_a_root_is_refused(void **unused)
{
	struct pawl_ckpt *first = join(0, 1, 0);
	pid_t first_agent = agent_pid;
	struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.world = 1,
		.socket = sock};
	struct pawl_ckpt *second;
	struct pawl_err err;
	int rv;

	snprintf(sock, sizeof(sock), "%s/other.sock", dir);
	start_agent();
	WITHIN_DOING(WITHIN_LONG_S, (rv = pawl_ckpt_open(&second, &options, &err)) != PAWL_ENOENT,
		within_pace(0.005));
	assert_int_equal(rv, PAWL_EBUSY);
	assert_non_null(strstr(err.msg, "in use by job test"));
	pawl_ckpt_close(first, 1000, &err);
	kill_agent();
	agent_pid = first_agent;
}

static void *let_go(void *user)
{
	within_pace(0.2);
	close(*(int *)user);
	return NULL;
}

/* Returns whether the session opens; otherwise the call has waited. */
static bool opens(struct pawl_ckpt **ckpt, const struct pawl_ckpt_options *options)
{
	int64_t begun_ns = clock_mono_ns();
	struct pawl_err err;
	int rv = pawl_ckpt_open(ckpt, options, &err);

	assert_true(rv == 0 || (rv == PAWL_EBUSY && clock_mono_ns() - begun_ns >= NS_PER_S));
	return rv == 0;
}

/* Opening waits for 2 s. Where that was not enough, since this process stood still, the test tries
 * again. */
static void job_that_lets_go_of_a_root_is_waited_for(void **unused)
{
	const struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.world = 1,
		.socket = sock};
	struct pawl_err err;
	struct pawl_ckpt *ckpt;
	pthread_t thread;
	int fd;

	await_agent(sock);
	mkdir(root, 0700); /* may exist already */
	fd = rootlock_take(root, "before", &err);
	assert_true(fd >= 0);
	assert_int_equal(pthread_create(&thread, NULL, let_go, &fd), 0);
	WITHIN(WITHIN_LONG_S, opens(&ckpt, &options));
	pthread_join(thread, NULL);
	pawl_ckpt_close(ckpt, 1000, &err);
}

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

/* Opens what all ranks are offered. */
static struct pawl_restore *offered(struct pawl_ckpt *ckpt)
{
	struct pawl_restore *restore;

	assert_int_equal(IN_TIME(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, NULL)), 0);
	return restore;
}

/* A rank that closes a restore without its vote keeps neither the other rank waiting nor itself. */
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
		assert_non_null(strstr(err.msg, "rank 0: it gave the restore up"));
		pawl_restore_close(other);
	}
	for (uint32_t r = 0; r < 2; r++) {
		pawl_ckpt_close(ckpt[r], 1000, &err);
		free(state[r].big);
	}
}

/* Refuses the next offer, which is the model of step, as damaged: it is not to be met again. */
static void refuse(struct pawl_ckpt *ckpt, uint64_t step, bool memory)
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
		refuse(ckpt, step + 1, true);
		if (step == 100) {
			expect(ckpt, 0, 101, false);
		} else {
			refuse(ckpt, 103, false);
			expect(ckpt, 0, 102, true);
		}
	}
	pawl_ckpt_close(ckpt, 1000, &err);
	zip_plan_deinit(&plan);
	free(state.big);
}

/* The agent stands still for 20 s: a call with a timeout waits no longer than that. */
static void a_call_to_an_agent_that_hangs_times_out(void **unused)
{
	struct state state = {.big = aligned_alloc(4096, BIG)};
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	uint64_t id = commit(ckpt, &state, 100);
	pid_t wakes;

	kill(agent_pid, SIGSTOP);
	wakes = fork();
	if (wakes == 0) {
		within_pace(20);
		kill(agent_pid, SIGCONT);
		_exit(0);
	}
	assert_int_not_equal(pawl_ckpt_flush(ckpt, 200, NULL), 0);
	assert_int_not_equal(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE, 200, NULL), 0);
	assert_int_equal(waitpid(wakes, NULL, WNOHANG), 0);
	kill(wakes, SIGKILL);
	waitpid(wakes, NULL, 0);
	kill(agent_pid, SIGCONT);
	assert_int_equal(IN_TIME(pawl_ckpt_flush(ckpt, WAIT_MS, NULL)), 0);
	pawl_ckpt_close(ckpt, 1000, NULL);
	free(state.big);
}

/* This process cannot know what processes before it have left in the agent's memory. */
static void flush_is_not_true_where_the_agent_died(void **unused)
{
	struct pawl_ckpt *ckpt = join(0, 1, 0);

	assert_int_equal(IN_TIME(pawl_ckpt_flush(ckpt, WAIT_MS, NULL)), 0);
	kill_agent();
	assert_int_equal(pawl_ckpt_flush(ckpt, WAIT_MS, NULL), PAWL_ECANCELED);
	pawl_ckpt_close(ckpt, 1000, NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(survives_trainer_then_agent, setup, teardown),
		cmocka_unit_test_setup_teardown(asking_ahead, setup, teardown),
		cmocka_unit_test_setup_teardown(ranks_give_up_together, setup, teardown),
		cmocka_unit_test_setup_teardown(two_ranks_write_one_file, setup, teardown),
		cmocka_unit_test_setup_teardown(divergence_is_reported_never_published, setup,
			teardown),
		cmocka_unit_test_setup_teardown(different_steps_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(closing_without_a_vote_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(what_does_not_fit_streams, setup, teardown),
		cmocka_unit_test_setup_teardown(second_process_of_a_rank_is_refused, setup,
			teardown),
		cmocka_unit_test_setup_teardown(second_job_on_a_root_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(job_that_lets_go_of_a_root_is_waited_for, setup,
			teardown),
		cmocka_unit_test_setup_teardown(flipped_bit_in_arena_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged_newest_comes_from_the_store, setup,
			teardown),
		cmocka_unit_test_setup_teardown(flush_is_not_true_where_the_agent_died, setup,
			teardown),
		cmocka_unit_test_setup_teardown(a_call_to_an_agent_that_hangs_times_out, setup,
			teardown),
	};

	return argc > 1 ? run_agent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
