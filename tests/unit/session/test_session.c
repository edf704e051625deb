/* Worker and agent together, over a real socket and a real directory: save, be killed, restore; two
 * ranks; what ranks disagree on. test_session_restore.c has what goes wrong in a restore. */
#include "ckpt/rootlock.h"
#include "test_session_state.h"

#include <pthread.h>
#include <sys/stat.h>

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

/* Whatever becomes of an announced save, the saves after it are complete. */
static void announced_saves(void **unused)
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
	pawl_ckpt_announce(ckpt, 0); /* before the first save there is no size to request */
	assert_int_equal(pawl_ckpt_save(ckpt, 0, &part, 1, true, &id, &err), 0);
	pawl_ckpt_fence(ckpt, 1);
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)), 0);
	/* the first save needs more than is requested */
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
	pawl_ckpt_skip(ckpt); /* nothing was announced */
	id = commit(ckpt, &state, 11);

	pawl_ckpt_announce(ckpt, 14);
	kill_agent(); /* the session must learn of this before it saves again */
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
	if (rv == 0) { /* this rank came first: its status has the error */
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

static void *release_root(void *user)
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

/* Opening waits for 2 s. If that was not enough, because this process was stopped, the test tries
 * again. */
static void opening_waits_for_a_job_that_releases_the_root(void **unused)
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
	assert_int_equal(pthread_create(&thread, NULL, release_root, &fd), 0);
	WITHIN(WITHIN_LONG_S, opens(&ckpt, &options));
	pthread_join(thread, NULL);
	pawl_ckpt_close(ckpt, 1000, &err);
}

/* The agent is stopped for 20 s: a call with a timeout waits no longer than its timeout. */
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
		cmocka_unit_test_setup_teardown(announced_saves, setup, teardown),
		cmocka_unit_test_setup_teardown(ranks_give_up_together, setup, teardown),
		cmocka_unit_test_setup_teardown(two_ranks_write_one_file, setup, teardown),
		cmocka_unit_test_setup_teardown(divergence_is_reported_never_published, setup,
			teardown),
		cmocka_unit_test_setup_teardown(different_steps_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(what_does_not_fit_streams, setup, teardown),
		cmocka_unit_test_setup_teardown(second_process_of_a_rank_is_refused, setup,
			teardown),
		cmocka_unit_test_setup_teardown(second_job_on_a_root_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(opening_waits_for_a_job_that_releases_the_root,
			setup, teardown),
		cmocka_unit_test_setup_teardown(flush_is_not_true_where_the_agent_died, setup,
			teardown),
		cmocka_unit_test_setup_teardown(a_call_to_an_agent_that_hangs_times_out, setup,
			teardown),
	};

	return argc > 1 ? run_agent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
