/*
 * Two hosts with links to each other that agree on saves and restores, taking turns: where their
 * messages lie, what becomes of them when the leader cannot be reached or begins anew, and what the
 * hosts are offered from their memory.
 */
#include "agent/peer/peers.h"
#include "agree_pair.h"
#include "base/clock.h"
#include "store/mem.h"
#include "within.h"

/* States of the tests: whether the root is one of objects. */
static bool directories = false;
static bool objects = true;

static struct peers *peers[2];
static struct pair pair;
static struct tags_root *root;
static struct pawl_err err;

static void open_peers(int host, const char *domain)
{
	const struct peers_options options = {.job = "job",
		.address = "127.0.0.1",
		.domain = domain};

	assert_int_equal(peers_open(&peers[host], &options, NULL), 0);
}

/* Both hosts know that the first one leads. */
static void set_leader(void)
{
	for (int h = 0; h < 2; h++) {
		peers_set_leader(peers[h], "127.0.0.1", peers_port(peers[0]));
	}
}

/* Returns the operations on messages in the root. */
static unsigned count_messages(void)
{
	const char *at = store_mem_trace(tags_root_store(root));
	unsigned n = 0;

	while ((at = strstr(at, AGREE_DIR)) != NULL) {
		at += sizeof(AGREE_DIR) - 1;
		n++;
	}
	return n;
}

static int start(void **state)
{
	bool flat = *state == NULL || *(bool *)*state;
	struct store *mem;

	open_peers(0, "a");
	open_peers(1, "b");
	set_leader();
	assert_int_equal(flat ? store_mem_open_flat(&mem, NULL) : store_mem_open(&mem, NULL), 0);
	assert_int_equal(tags_root_over(mem, &root, NULL), 0);
	init_pair(&pair, peers[0], peers[1]);
	assert_int_equal(begin_pair(&pair, root), 0);
	return 0;
}

static int stop(void **state)
{
	deinit_pair(&pair);
	tags_root_close(root);
	for (int h = 0; h < 2; h++) {
		peers_close(peers[h]);
		peers[h] = NULL;
	}
	return 0;
}

/* The leader's process is gone, with its notes. */
static void lose_leader(void)
{
	agree_deinit(&pair.zero);
	peers_close(peers[0]);
	peers[0] = NULL;
}

/* Rank 0's host is there again, in a new process. */
static void replace_leader(void)
{
	open_peers(0, "c");
	set_leader();
	init_host(&pair.zero, 0, peers[0]);
	assert_int_equal(agree_open(&pair.zero, root, &err), 0);
	assert_int_equal(agree_begin(&pair.zero, &err), 0);
}

/* Fits agree_pause_fn. */
static bool wait_a_while(void *user, int64_t pause_ns)
{
	within_pace((double)pause_ns / NS_PER_S);
	return true;
}

/* ---- runs and saves ---- */

static void messages_of_object_roots_are_notes(void **state)
{
	bool flat = *(bool *)*state;
	unsigned before = count_messages();

	assert_true((before == 0) == flat);
	assert_int_equal(save_pair(&pair, root, 1, 1), 0);
	assert_int_equal(save_pair(&pair, root, 2, 2), 0);
	assert_int_equal(read_tag(root, "global_step1"), content_of(1, 1));
	assert_int_equal(read_tag(root, "global_step2"), content_of(2, 2));
	assert_true(flat ? count_messages() == 0 : count_messages() > before);
}

static void all_hosts_know_the_others(void **state)
{
	static struct peer_map maps[2];

	agree_get_map(&pair.zero, &maps[0]);
	agree_get_map(&pair.one, &maps[1]);
	for (uint32_t i = 0; i < 4; i++) {
		const struct peer_map *map = &maps[i / 2];
		const struct peer_host *host = &map->hosts[i % 2];

		assert_true(map->run != 0 && map->run == maps[0].run);
		assert_int_equal(map->own, i / 2);
		assert_int_equal(map->n, 2);
		assert_int_equal(host->first_rank, i % 2);
		assert_int_equal(host->ranks, 1);
		assert_string_equal(host->address, peers_address(peers[i % 2]));
		assert_string_equal(host->domain, i % 2 == 0 ? "a" : "b");
		assert_int_equal(host->replicas, i % 2 + 1);
		assert_int_equal(host->parity, i % 2 == 1);
	}
	assert_int_equal(agree_begin(&pair.one, &err), 0);
	agree_get_map(&pair.one, &maps[1]);
	assert_int_equal(maps[1].run, 0);
}

static void who_begins_anew_ends_the_run(void **state)
{
	assert_int_equal(save_pair(&pair, root, 1, 1), 0);
	assert_int_equal(save_part(&pair.one, root, 2, 2), PAWL_ECANCELED);
	assert_int_equal(agree_begin(&pair.one, &err), 0);
	assert_int_equal(save_part(&pair.zero, root, 2, 2), PAWL_EPEER);
	assert_int_equal(agree_begin(&pair.zero, &err), 0);
	assert_int_equal(agree_enter(&pair.zero, &err), 0);
	assert_int_equal(save_pair(&pair, root, 1, 2), 0);
	assert_int_equal(save_part(&pair.one, root, 2, 3), PAWL_ECANCELED);
	assert_int_equal(agree_begin(&pair.zero, &err), 0);
	assert_int_equal(agree_take_part(&pair.one, &err), PAWL_EPEER);
}

/* A run in which a host did nothing may end, and the host goes on with the next one. To take part
 * in a run is to do something in it. */
static void to_take_part_is_to_use_the_run(void **state)
{
	assert_int_equal(agree_begin(&pair.zero, &err), 0);
	assert_int_equal(agree_enter(&pair.one, &err), PAWL_ECANCELED); /* waits for the next run */
	assert_int_equal(agree_enter(&pair.zero, &err), 0);
	assert_int_equal(agree_take_part(&pair.one, &err), 0);
	assert_int_equal(agree_begin(&pair.zero, &err), 0);
	assert_int_equal(agree_enter(&pair.one, &err), PAWL_EPEER);
}

/* ---- the leader cannot be reached ---- */

static void a_leader_that_is_gone_is_named(void **state)
{
	struct agree_msg_status status = {0};

	pair.one.pause = wait_a_while;
	assert_int_equal(save_part(&pair.zero, root, 1, 1), PAWL_ECANCELED);
	lose_leader();
	pair.one.timeout_ns = within_ns(0.05);
	assert_int_equal(agree_enter(&pair.one, &err), 0); /* the run may go on */
	assert_int_equal(agree_await_result(&pair.one, AGREE_ROUND_SAVE, 1, &status, &err),
		PAWL_ETIMEDOUT);
	assert_non_null(strstr(err.msg, "the host of rank 0 cannot be reached"));
	agree_msg_put_status(&pair.one.out, &status);
	assert_int_equal(agree_send(&pair.one, AGREE_ROUND_VOTE, 0, false, &err), PAWL_ETIMEDOUT);
	assert_non_null(strstr(err.msg, "the host of rank 0 cannot be reached"));
	replace_leader();
	assert_int_equal(agree_take_part(&pair.one, &err), PAWL_EPEER);
	assert_int_equal(agree_begin(&pair.one, &err), 0);
	assert_int_equal(agree_enter(&pair.zero, &err), 0);
	assert_int_equal(agree_enter(&pair.one, &err), 0);
	pair.one.pause = give_up;
	assert_int_equal(save_pair(&pair, root, 1, 1), 0);
}

/* Fits agree_pause_fn: while the host waits, the leader gets reachable. */
static bool find_leader(void *user, int64_t pause_ns)
{
	set_leader();
	return true;
}

static void a_leader_that_is_away_for_a_moment_is_waited_for(void **state)
{
	struct agree_msg_status status = {0};

	pair.one.pause = find_leader;
	agree_msg_put_status(&pair.one.out, &status);
	peers_set_leader(peers[1], "127.0.0.1", 1); /* nobody listens there */
	assert_int_equal(agree_send(&pair.one, AGREE_ROUND_VOTE, 0, false, &err), 0);
	agree_msg_put_status(&pair.zero.out, &status);
	assert_int_equal(agree_send(&pair.zero, AGREE_ROUND_VOTE, 0, true, &err), 0);
	peers_set_leader(peers[1], "127.0.0.1", 1);
	assert_int_equal(agree_await_result(&pair.one, AGREE_ROUND_VOTE, 0, &status, &err), 0);
}

/* A host may begin before rank 0's host listens. */
static void a_host_may_begin_before_the_leader(void **state)
{
	lose_leader();
	assert_int_equal(agree_begin(&pair.one, &err), 0);
	pair.one.pause = wait_a_while;
	pair.one.timeout_ns = within_ns(0.02);
	assert_int_equal(agree_enter(&pair.one, &err), PAWL_ETIMEDOUT);
	assert_non_null(strstr(err.msg, "the host of rank 0 cannot be reached"));
	replace_leader();
	pair.one.pause = give_up;
	assert_int_equal(agree_enter(&pair.one, &err), PAWL_ECANCELED); /* the join is sent now */
	assert_int_equal(agree_enter(&pair.zero, &err), 0);
	assert_int_equal(agree_enter(&pair.one, &err), 0);
	assert_int_equal(save_pair(&pair, root, 1, 1), 0);
}

/* If some host has no links in a start of the ranks, nobody is sent to the leader: then all agree
 * through the root, until the next start. */
static void hosts_without_links_agree_through_the_root(void **state)
{
	unsigned written;

	for (int starts = 0; starts < 2; starts++) {
		for (int h = 0; h < 2; h++) {
			peers_set_leader(peers[h], "", 0);
		}
		/* What an earlier start left is no part of this one. */
		assert_int_equal(agree_begin(&pair.zero, &err), 0);
		assert_int_equal(agree_enter(&pair.zero, &err), PAWL_ECANCELED);
		assert_int_equal(agree_begin(&pair.one, &err), 0);
		assert_int_equal(agree_enter(&pair.zero, &err), 0);
		assert_int_equal(agree_enter(&pair.one, &err), 0);
		assert_int_equal(save_pair(&pair, root, 1, 1), 0);
		written = count_messages();
		assert_true(written > 0);
		set_leader();
		assert_int_equal(agree_begin(&pair.zero, &err), 0);
		assert_int_equal(agree_enter(&pair.zero, &err), PAWL_ECANCELED);
		assert_int_equal(agree_begin(&pair.one, &err), 0);
		assert_int_equal(agree_enter(&pair.zero, &err), 0);
		assert_int_equal(agree_enter(&pair.one, &err), 0);
		assert_int_equal(save_pair(&pair, root, 1, 2), 0);
		assert_int_equal(count_messages(), written);
	}
}

/* What waits for the leader ends when the agent leaves, or ranks begin anew. */
static void calls_can_be_canceled(void **state)
{
	agree_cancel(&pair.one);
	agree_cancel(&pair.one);
	assert_int_equal(agree_take_part(&pair.one, &err), PAWL_ECANCELED);
	agree_resume(&pair.one);
	assert_int_equal(agree_take_part(&pair.one, &err), PAWL_ECANCELED);
	lose_leader(); /* also while the leader cannot be reached */
	assert_int_equal(agree_take_part(&pair.one, &err), PAWL_ECANCELED);
	replace_leader();
	agree_resume(&pair.one);
	assert_int_equal(agree_take_part(&pair.one, &err), PAWL_EPEER);
}

/* ---- what the hosts hold ---- */

static struct peer_part part_held(uint64_t number, uint64_t step, uint32_t rank)
{
	struct peer_part part = {.save = {.run = 5, .number = number},
		.step = step,
		.world = 2,
		.first_rank = rank,
		.ranks = 1};

	snprintf(part.tag, sizeof(part.tag), "held%llu", (unsigned long long)step);
	return part;
}

/* Fits agree_find_fn: takes what the hosts hold. */
static int take_held(void *user, struct agree_msg_status *status)
{
	status->memory = status->plan->found;
	status->found = status->memory;
	status->step = status->plan->step;
	memcpy(status->tag, status->plan->tag, sizeof(status->tag));
	return 0;
}

/* Must not be called: only the leader makes an offer. */
static int find_here(void *user, struct agree_msg_status *status)
{
	fail_msg("an offer was made");
	return 0;
}

/* Has both hosts ask, with what they hold; fills in what each is offered. */
static void offer_pair(struct agree_msg_status *zero, struct agree_msg_status *one)
{
	assert_int_equal(agree_offer(&pair.one, one, find_here, NULL, &err), PAWL_ECANCELED);
	assert_int_equal(agree_offer(&pair.zero, zero, take_held, NULL, &err), 0);
	assert_int_equal(
		agree_await_result(&pair.one, AGREE_ROUND_RESTORE, pair.one.restores, one, &err),
		0);
}

static void what_hosts_hold_together_is_offered(void **state)
{
	static struct recover_plan plans[2];
	struct peer_part own[] = {part_held(1, 10, 0), part_held(3, 30, 0)};
	struct peer_part others[] = {part_held(1, 10, 1), part_held(2, 20, 1), part_held(1, 10, 0)};
	struct agree_msg_status zero = {.held_n = 2, .held = own, .plan = &plans[0]};
	struct agree_msg_status one = {.held_n = 3, .held = others, .plan = &plans[1]};

	offer_pair(&zero, &one);
	assert_true(one.found && one.memory);
	assert_int_equal(one.step, 10);
	assert_string_equal(one.tag, "held10");
	assert_true(plans[1].found && plans[1].save.run == 5 && plans[1].save.number == 1);
	assert_int_equal(plans[1].sources_n, 3); /* two hosts hold the part of rank 0 */
	assert_int_equal(plans[1].sources_n, plans[0].sources_n);
	assert_memory_equal(plans[1].sources, plans[0].sources,
		plans[0].sources_n * sizeof(plans[0].sources[0]));
	for (uint32_t s = 0; s < 3; s++) {
		const struct recover_source *source = &plans[1].sources[s];

		assert_true(source->host <= 1 && source->ranks == 1);
		assert_true(source->first_rank == 0 || source->host == 1);
	}
	assert_true((count_messages() == 0) == *(bool *)*state);
}

/* Fits agree_find_fn: leaves out a part of what the hosts hold. */
static int take_less(void *user, struct agree_msg_status *status)
{
	status->plan->sources_n--;
	return take_held(user, status);
}

static void an_offer_without_all_ranks_is_refused(void **state)
{
	static struct recover_plan plans[2];
	struct peer_part own[] = {part_held(1, 10, 0)};
	struct peer_part others[] = {part_held(1, 10, 1)};
	struct agree_msg_status zero = {.held_n = 1, .held = own, .plan = &plans[0]};
	struct agree_msg_status one = {.held_n = 1, .held = others, .plan = &plans[1]};

	assert_int_equal(agree_offer(&pair.one, &one, find_here, NULL, &err), PAWL_ECANCELED);
	assert_int_equal(agree_offer(&pair.zero, &zero, take_less, NULL, &err), 0);
	one = (struct agree_msg_status){.held_n = 1, .held = others, .plan = &plans[1]};
	assert_int_equal(agree_offer(&pair.one, &one, find_here, NULL, &err), PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, "not of all ranks"));
}

static void what_is_not_whole_is_not_offered(void **state)
{
	static struct recover_plan plans[2];
	struct peer_part own[] = {part_held(3, 30, 0)};
	struct peer_part others[] = {part_held(2, 20, 1)};
	struct agree_msg_status zero = {.held_n = 1, .held = own, .plan = &plans[0]};
	struct agree_msg_status one = {.held_n = 1, .held = others, .plan = &plans[1]};

	offer_pair(&zero, &one);
	assert_false(one.found || one.memory || plans[1].found || plans[0].found);
}

/* One host asks with what it holds, the other has nothing, as if it knew nothing of memory. */
static void who_holds_nothing_can_ask(void **state)
{
	static struct recover_plan plans[2];
	struct peer_part others[] = {part_held(2, 20, 0), part_held(2, 20, 1)};
	struct agree_msg_status zero = {.plan = &plans[0]};
	struct agree_msg_status one = {.held_n = 2, .held = others, .plan = &plans[1]};

	offer_pair(&zero, &one);
	assert_true(one.memory);
	assert_int_equal(plans[0].step, 20);
	assert_int_equal(plans[0].sources[0].host, 1);
}

static void a_step_that_is_asked_for_is_the_only_one(void **state)
{
	static struct recover_plan plans[2];
	struct peer_part others[] = {part_held(2, 20, 0), part_held(2, 20, 1), part_held(1, 10, 0),
		part_held(1, 10, 1)};
	struct agree_msg_status zero = {.has_step = true, .asked_step = 10, .plan = &plans[0]};
	struct agree_msg_status one = {.has_step = true,
		.asked_step = 10,
		.held_n = 4,
		.held = others,
		.plan = &plans[1]};

	offer_pair(&zero, &one);
	assert_int_equal(one.step, 10);
	assert_int_equal(plans[1].step, 10);
}

int main(void)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate_setup_teardown(messages_of_object_roots_are_notes, start,
			stop, &objects),
		cmocka_unit_test_prestate_setup_teardown(messages_of_object_roots_are_notes, start,
			stop, &directories),
		cmocka_unit_test_prestate_setup_teardown(all_hosts_know_the_others, start, stop,
			&objects),
		cmocka_unit_test_prestate_setup_teardown(all_hosts_know_the_others, start, stop,
			&directories),
		cmocka_unit_test_setup_teardown(who_begins_anew_ends_the_run, start, stop),
		cmocka_unit_test_setup_teardown(to_take_part_is_to_use_the_run, start, stop),
		cmocka_unit_test_setup_teardown(a_leader_that_is_gone_is_named, start, stop),
		cmocka_unit_test_setup_teardown(a_leader_that_is_away_for_a_moment_is_waited_for,
			start, stop),
		cmocka_unit_test_setup_teardown(a_host_may_begin_before_the_leader, start, stop),
		cmocka_unit_test_setup_teardown(hosts_without_links_agree_through_the_root, start,
			stop),
		cmocka_unit_test_setup_teardown(calls_can_be_canceled, start, stop),
		cmocka_unit_test_prestate_setup_teardown(what_hosts_hold_together_is_offered, start,
			stop, &objects),
		cmocka_unit_test_prestate_setup_teardown(what_hosts_hold_together_is_offered, start,
			stop, &directories),
		cmocka_unit_test_setup_teardown(an_offer_without_all_ranks_is_refused, start, stop),
		cmocka_unit_test_setup_teardown(what_is_not_whole_is_not_offered, start, stop),
		cmocka_unit_test_setup_teardown(who_holds_nothing_can_ask, start, stop),
		cmocka_unit_test_setup_teardown(a_step_that_is_asked_for_is_the_only_one, start,
			stop),
	};

	sigaction(SIGPIPE, &ignore, NULL); /* as io/tls.h asks for */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
