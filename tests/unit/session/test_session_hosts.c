/*
 * Workers of one job on two hosts, each with an agent that is a process of its own, and one
 * directory: agents are killed at random moments of saves, and all ranks go on from one checkpoint.
 */
#include "base/rng.h"
#include "seed.h"
#include "test_session_agent.h"
#include "within.h"

#include <pthread.h>

#define HOSTS  2
#define WORLD  3
#define SHARED (3u << 20) /* bytes that are equal on all ranks: several chunks */
#define OWN    5000u
#define KILLS  12

static uint64_t seed;
static char socks[HOSTS][128];
static pid_t agents[HOSTS];
static const uint32_t firsts[HOSTS] = {0, 2};
static const uint32_t sizes[HOSTS] = {2, 1};

/* One rank: its connection, and its state. */
struct rank {
	uint32_t number;
	uint32_t host;
	struct pawl_ckpt *ckpt;
	uint8_t *shared;
	uint8_t own[OWN];
	uint64_t id;    /* id of the newest save */
	int64_t got;    /* step that it restored; -1: there was nothing */
	bool different; /* got another state than the one saved at that step */
};

static struct rank ranks[WORLD];

static void start_host(uint32_t host)
{
	agents[host] = fork();
	assert_true(agents[host] >= 0);
	if (agents[host] == 0) {
		execl("/proc/self/exe", "agent", socks[host], NULL);
		_exit(1);
	}
	await_agent(socks[host]);
}

static void kill_host(uint32_t host)
{
	kill(agents[host], SIGKILL);
	waitpid(agents[host], NULL, 0);
}

static void fill(uint8_t *shared, uint8_t *own, uint64_t step, uint32_t rank)
{
	for (size_t i = 0; i < SHARED; i++) {
		shared[i] = (uint8_t)(i * 3 + step * 31 + (i >> 13));
	}
	memset(own, (int)(step * 8 + rank), OWN);
}

static void open_rank(struct rank *rank)
{
	const struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.rank = rank->number,
		.world = WORLD,
		.persist_every_ms =
			3600 * 1000, /* ignored with several hosts: each save is durable */
		.host_first = firsts[rank->host],
		.host_ranks = sizes[rank->host],
		.socket = socks[rank->host],
		.watch = true};

	rank->ckpt = join_as(&options);
}

static void save_all(uint64_t step)
{
	for (uint32_t r = 0; r < WORLD; r++) {
		struct rank *rank = &ranks[r];
		struct pawl_ckpt_span shared = {(uintptr_t)rank->shared, SHARED, 1};
		struct pawl_ckpt_span own = {(uintptr_t)rank->own, OWN, 0};
		struct pawl_ckpt_part parts[] = {
			{.name = "shared",
				.shared = true,
				.raw = true,
				.spans = &shared,
				.spans_n = 1},
			{.name = "own", .raw = true, .spans = &own, .spans_n = 1},
		};
		struct pawl_err err;

		pawl_ckpt_fence(rank->ckpt, 1);
		fill(rank->shared, rank->own, step, rank->number);
		if (pawl_ckpt_save(rank->ckpt, step, parts, 2, true, &rank->id, &err) != 0) {
			fail_msg("save: %s", err.msg);
		}
	}
	for (uint32_t r = 0; r < WORLD; r++) {
		pawl_ckpt_fence(ranks[r].ckpt, 1);
	}
}

static void must_be_durable(void)
{
	struct pawl_err err;

	for (uint32_t r = 0; r < WORLD; r++) {
		if (pawl_ckpt_wait(ranks[r].ckpt, ranks[r].id, PAWL_CKPT_DURABLE, WAIT_MS, &err) !=
			0) {
			fail_msg("rank %u: %s", r, err.msg);
		}
	}
}

/* Reads the offer, votes for it, and compares it. */
static enum pawl_verdict take(struct rank *rank, struct pawl_restore *restore)
{
	uint8_t *want = malloc(SHARED);
	uint8_t own[OWN];
	struct pawl_restore_info info;
	enum pawl_verdict all = PAWL_VERDICT_REFUSED;
	uint32_t shared = find(restore, "shared", rank->number);
	uint32_t mine = find(restore, "own", rank->number);
	const struct pawl_restore_copy copies[] = {{shared, 0, 0, (uintptr_t)rank->shared, SHARED},
		{mine, 0, 0, (uintptr_t)rank->own, OWN}};

	pawl_restore_info(restore, &info);
	assert_int_equal(pawl_restore_read(restore, shared, NULL), 0);
	assert_int_equal(pawl_restore_read(restore, mine, NULL), 0);
	assert_int_equal(pawl_restore_vote(restore, PAWL_VERDICT_GO, "", WAIT_MS, &all, NULL), 0);
	if (all == PAWL_VERDICT_GO) {
		assert_int_equal(pawl_restore_copy(restore, copies, 2, NULL), 0);
		fill(want, own, info.step, rank->number);
		rank->got = (int64_t)info.step;
		rank->different =
			memcmp(want, rank->shared, SHARED) != 0 || memcmp(own, rank->own, OWN) != 0;
	}
	free(want);
	return all;
}

static void *restore_one(void *user)
{
	struct rank *rank = user;
	enum pawl_verdict all = PAWL_VERDICT_RETRY;

	rank->got = -1;
	rank->different = false;
	while (all == PAWL_VERDICT_RETRY) {
		struct pawl_restore *restore;
		struct pawl_err err;
		int rv = pawl_ckpt_restore(rank->ckpt, false, 0, WAIT_MS, &restore, &err);

		if (rv == PAWL_ENOENT) {
			return NULL;
		}
		if (rv != 0) {
			fprintf(stderr, "rank %u: %s\n", rank->number, err.msg);
			rank->different = true;
			return NULL;
		}
		all = take(rank, restore);
		pawl_restore_close(restore);
	}
	return NULL;
}

/* Restores on all ranks, which must get the same step. Returns it. */
static int64_t restore_all(void)
{
	pthread_t threads[WORLD];

	for (uint32_t r = 0; r < WORLD; r++) {
		assert_int_equal(pthread_create(&threads[r], NULL, restore_one, &ranks[r]), 0);
	}
	for (uint32_t r = 0; r < WORLD; r++) {
		pthread_join(threads[r], NULL);
	}
	for (uint32_t r = 0; r < WORLD; r++) {
		assert_false(ranks[r].different);
		assert_int_equal(ranks[r].got, ranks[0].got);
	}
	return ranks[0].got;
}

static int setup_hosts(void **state)
{
	uint32_t r = 0;

	snprintf(dir, sizeof(dir), "/var/tmp/pawl-session-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(root, sizeof(root), "%s/root", dir);
	for (uint32_t h = 0; h < HOSTS; h++) {
		snprintf(socks[h], sizeof(socks[h]), "%s/agent%u.sock", dir, h);
		start_host(h);
		for (uint32_t n = 0; n < sizes[h]; n++, r++) {
			ranks[r] = (struct rank){.number = r,
				.host = h,
				.shared = aligned_alloc(4096, SHARED)};
			open_rank(&ranks[r]);
		}
	}
	return 0;
}

static int teardown_hosts(void **state)
{
	for (uint32_t r = 0; r < WORLD; r++) {
		pawl_ckpt_close(ranks[r].ckpt, 1000, NULL);
		free(ranks[r].shared);
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		kill_host(h);
	}
	return teardown(state);
}

static void hosts_go_on_from_one_checkpoint(void **unused)
{
	assert_int_equal(restore_all(), -1);
	for (uint64_t step = 1; step <= 3; step++) {
		save_all(step);
		must_be_durable();
	}
	assert_int_equal(restore_all(), 3);
	save_all(3); /* again */
	must_be_durable();
	assert_int_equal(restore_all(), 3);
}

/* A rank of one host disconnects without BYE and comes back: all hosts start over. */
static void a_rank_that_comes_back_ends_the_run(void **unused)
{
	for (uint32_t r = 0; r < WORLD; r++) {
		save_all(10 + r);
		must_be_durable();
		pawl_ckpt_abandon(ranks[r].ckpt, "test");
		pawl_ckpt_close(ranks[r].ckpt, 0, NULL);
		open_rank(&ranks[r]);
		assert_int_equal(restore_all(), 10 + r);
	}
}

static void killed_agents_lose_what_was_not_durable(void **unused)
{
	struct rng rng = {.state = seed};
	uint64_t step = 1;

	save_all(step);
	must_be_durable();
	for (int i = 0; i < KILLS; i++) {
		uint32_t host = (uint32_t)rng_below(&rng, HOSTS);
		int64_t got;

		save_all(step + 1);
		within_sleep_ns((int64_t)rng_below(&rng, 40 * NS_PER_MS));
		kill_host(host);
		start_host(host);
		got = restore_all();
		assert_true(got == (int64_t)step || got == (int64_t)step + 1);
		step += 2;
		save_all(step);
		must_be_durable();
	}
	assert_int_equal(restore_all(), step);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(hosts_go_on_from_one_checkpoint, setup_hosts,
			teardown_hosts),
		cmocka_unit_test_setup_teardown(a_rank_that_comes_back_ends_the_run, setup_hosts,
			teardown_hosts),
		cmocka_unit_test_setup_teardown(killed_agents_lose_what_was_not_durable,
			setup_hosts, teardown_hosts),
	};

	if (argc > 1) {
		return run_agent(argv[1]);
	}
	seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
