/* What a restore from the memory of several hosts begins with: the list of what a host holds, and
 * the records of all ranks, which must fit together. */
#include "agent/root.h"
#include "base/fault.h"
#include "peer_hosts.h"
#include "seed.h"
#include "times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define HOSTS 2u
#define SMALL 5000u /* bytes of a partition */
#define ODD   3u    /* the rank whose record is changed, of the second host */

static uint64_t shared_bytes = 10; /* size of the only storage of the shared partition */
static uint32_t sum;               /* checksum of that storage */
static uint32_t other_sum = 1;

/* Makes the last partition one that all ranks have alike, of which rank 0 has staged all. */
static void share_last(struct rank_sample *s)
{
	struct record_part *part = &s->parts[PARTS_MAX - 1];

	part->shared = true;
	part->size_bytes = shared_bytes;
	part->lo = 0;
	part->hi = s->record.rank == 0 ? shared_bytes : 0;
	part->pieces_n = 0;
	part->storages = 1;
	part->storage_bytes = &shared_bytes;
	part->sums_n = 1;
	part->sums = &sum;
}

static void encode_again(struct rank_sample *s)
{
	wire_out_reset(&s->blob);
	record_encode(&s->record, &s->blob);
	assert_false(s->blob.failed);
}

/* Has two hosts hold a save, and the first one fetch it. change: what is odd about one rank. */
static enum peer_fetch_state try_offer(void (*change)(struct record_part *shared))
{
	const struct peer_save save = {.run = 7, .number = 3};
	struct recover_plan *plan = calloc(1, sizeof(*plan));
	struct agent_root *root = calloc(1, sizeof(*root));
	struct host hosts[HOSTS_MAX] = {{0}};
	enum peer_fetch_state state;
	struct peer_map map;

	assert_true(plan && root);
	root->ranks = calloc(RANKS, sizeof(*root->ranks));
	assert_non_null(root->ranks);
	hosts_open(hosts, HOSTS, 8, &map);
	*plan = (struct recover_plan){.found = true, .save = save, .sources_n = HOSTS};
	for (uint32_t h = 0; h < HOSTS; h++) {
		struct part_sample *s = sample_part(&save, h, HOSTS, SMALL, false);

		for (uint32_t r = 0; r < RANKS; r++) {
			share_last(&s->ranks[r]);
			if (s->ranks[r].record.rank == ODD) {
				change(&s->ranks[r].parts[PARTS_MAX - 1]);
			}
			encode_again(&s->ranks[r]);
		}
		hold_sample(peers_held(hosts[h].peers), s);
		plan->step = s->info.step;
		plan->sources[h] = (struct recover_source){.host = h * RANKS,
			.first_rank = h * RANKS,
			.ranks = RANKS};
		sample_drop(s);
	}
	root->ledger.world = RANKS;
	root->remote_ranks = RANKS;
	OK(peer_fetch_open(&root->peers.fetch, hosts[0].peers, hosts[0].loop, ROOT, plan,
		HOSTS * RANKS, &map, &err));
	WITHIN(WITHIN_LONG_S, (state = restore_peers_state(root, &err)) != FETCH_OPENING);
	restore_peers_end(root);
	for (uint32_t h = 0; h < HOSTS; h++) {
		host_close(&hosts[h]);
	}
	free(plan);
	free(root->ranks);
	free(root);
	return state;
}

static void change_nothing(struct record_part *shared)
{
}

static void have_another_sum(struct record_part *shared)
{
	shared->sums = &other_sum;
}

static void have_its_own(struct record_part *shared)
{
	shared->shared = false;
}

static void stage_it_once_more(struct record_part *shared)
{
	shared->hi = shared->size_bytes;
}

/* The storage thread may still read the list of one restore while the next one makes its own. */
static void each_restore_has_its_own_list(void **state)
{
	const struct peer_save saves[] = {{.run = 7, .number = 3}, {.run = 7, .number = 4}};
	struct agent_root *root = calloc(1, sizeof(*root));
	struct host hosts[HOSTS_MAX] = {{0}};
	struct peer_part *lists[3] = {NULL};
	struct agent agent = {0};
	struct peer_map map;
	uint32_t n;

	assert_non_null(root);
	hosts_open(hosts, 1, 8, &map);
	agent.peers = hosts[0].peers;
	root->agent = &agent;
	OK(root_peers_list(root, &lists[0], &n, &err)); /* without links */
	assert_true(lists[0] == NULL && n == 0);
	root->peers.has_links = true;
	root->peers.root = ROOT;
	for (uint32_t i = 0; i < 2; i++) {
		struct part_sample *s = sample_part(&saves[i], 0, 1, SMALL, false);

		held_drop_others(peers_held(agent.peers), ROOT, NULL);
		hold_sample(peers_held(agent.peers), s);
		sample_drop(s);
		OK(root_peers_list(root, &lists[i], &n, &err));
		assert_int_equal(n, 1);
	}
	assert_int_equal(lists[0][0].save.number, 3);
	assert_int_equal(lists[1][0].save.number, 4);
	fault_arm("root.list", 1, ENOMEM, false);
	FAILS(PAWL_ENOMEM, root_peers_list(root, &lists[2], &n, &err));
	fault_disarm();
	assert_true(lists[2] == NULL && n == 0);
	free(lists[0]);
	free(lists[1]);
	host_close(&hosts[0]);
	free(root);
}

static void records_that_fit_are_offered(void **state)
{
	assert_int_equal(try_offer(change_nothing), FETCH_READY);
}

static void records_that_do_not_fit_are_named(void **state)
{
	static const struct {
		void (*change)(struct record_part *shared);
		const char *why;
	} cases[] = {{have_another_sum, "differs between rank 0 and rank 3"},
		{have_its_own, "rank 0 declares it equal on all ranks, rank 3 does not"},
		{stage_it_once_more, "the ranks' shares do not make up the file"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(try_offer(cases[i].change), FETCH_FAILED);
		assert_int_equal(err.code, PAWL_EMISMATCH);
		SAYS(cases[i].why);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_restore_has_its_own_list),
		cmocka_unit_test(records_that_fit_are_offered),
		cmocka_unit_test(records_that_do_not_fit_are_named),
	};

	test_times("peer_connect=600,peer_answer=600");
	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
