/* Rounds of replication: when a save is global, how a round fails or is given up, and that nobody
 * who waits is forgotten. */
#include "agent/peer/rounds.h"
#include "base/fault.h"
#include "each_fault.h"
#include "expect.h"
#include "pawl/err.h"
#include "within.h"

#include <pthread.h>
#include <stdatomic.h>

#define ROOT  3u
#define WORLD 8u

static struct rounds *rounds;
static struct pawl_err err;

static int begin(void **state)
{
	return rounds_open(&rounds, &err);
}

static int end(void **state)
{
	rounds_close(rounds);
	return 0;
}

static struct peer_save save_of(uint64_t run, uint64_t number)
{
	return (struct peer_save){.run = run, .number = number};
}

static const struct peer_save none;

static int announce(uint64_t run, uint64_t number)
{
	struct peer_part part = {.save = save_of(run, number), .world = WORLD};

	return rounds_announce(rounds, ROOT, &part, &none, &err);
}

static void report(uint64_t run, uint64_t number, uint32_t first_rank, uint32_t ranks, int code,
	const char *text)
{
	struct peer_part part = {.save = save_of(run, number),
		.first_rank = first_rank,
		.ranks = ranks};

	rounds_done(rounds, ROOT, &part, code, text);
}

/* Waits for a result that is there, or for none. */
static int await(uint64_t run, uint64_t number)
{
	struct peer_save save = save_of(run, number);

	return rounds_await(rounds, ROOT, &save, 0, &err);
}

/* Expects what a host is told that knows of no save. */
static void assert_next(struct peer_save announced, struct peer_save global)
{
	struct peer_save a = {0};
	struct peer_save g = {0};

	OK(rounds_next(rounds, ROOT, &a, &g, 0, &err));
	assert_memory_equal(&a, &announced, sizeof(a));
	assert_memory_equal(&g, &global, sizeof(g));
}

static void a_save_is_global_once_all_ranks_are_done(void **state)
{
	rounds_begin(rounds, ROOT, 1);
	OK(announce(1, 5));
	assert_next(save_of(1, 5), save_of(0, 0));
	FAILS(PAWL_ETIMEDOUT, await(1, 5));
	SAYS("ranks 0 to 7 ");
	report(1, 5, 0, 2, 0, NULL);
	report(1, 5, 0, 2, 0, NULL); /* twice: counts once */
	report(1, 5, 7, 1, 0, NULL);
	report(1, 5, 3, 2, 0, NULL);
	FAILS(PAWL_ETIMEDOUT, await(1, 5));
	SAYS("ranks 2, 5 to 6 ");
	OK(announce(1, 5));          /* changes nothing */
	report(1, 5, 2, 4, 0, NULL); /* some of these are done */
	assert_next(save_of(1, 5), save_of(0, 0));
	report(1, 5, 6, 1, 0, NULL);
	OK(await(1, 5));
	assert_next(save_of(1, 5), save_of(1, 5));
	OK(announce(1, 6));
	assert_next(save_of(1, 6), save_of(1, 5));
	OK(await(1, 5));
	report(1, 6, 0, WORLD, PAWL_EPEER, "host b is gone");
	OK(await(1, 5));
	FAILS(PAWL_EPEER, await(1, 6));
	SAYS("host b is gone");
}

static void a_failure_ends_the_round(void **state)
{
	rounds_begin(rounds, ROOT, 1);
	OK(announce(1, 1));
	report(1, 1, 0, 4, 0, NULL);
	report(1, 1, 4, 4, PAWL_ENOMEM, "it does not fit");
	FAILS(PAWL_ENOMEM, await(1, 1));
	SAYS("it does not fit");
	report(1, 1, 4, 4, 0, NULL); /* counts if the save is announced again */
	FAILS(PAWL_ENOMEM, await(1, 1));
	OK(announce(1, 2));
	report(1, 2, 0, 1, 77, NULL); /* no code of ours */
	assert_int_equal(await(1, 2), PAWL_EIO);
}

static void a_failed_round_goes_on(void **state)
{
	rounds_begin(rounds, ROOT, 1);
	OK(announce(1, 1));
	report(1, 1, 0, 2, 0, NULL);
	report(1, 1, 2, 2, PAWL_EPEER, "its peer is gone");
	report(1, 1, 4, 2, 0, NULL); /* done after the round has failed */
	report(1, 1, 6, 2, PAWL_EIO, "too late");
	FAILS(PAWL_EPEER, await(1, 1));
	OK(announce(1, 1));
	FAILS(PAWL_ETIMEDOUT, await(1, 1));
	SAYS("ranks 2 to 3, 6 to 7 ");
	report(1, 1, 2, 2, PAWL_EIO, "it fails again");
	FAILS(PAWL_EIO, await(1, 1));
	report(1, 1, 2, 6, 0, NULL);
	FAILS(PAWL_EIO, await(1, 1));
	assert_next(save_of(1, 1), save_of(0, 0));
	OK(announce(1, 1));
	OK(await(1, 1));
	assert_next(save_of(1, 1), save_of(1, 1));
}

static void what_cannot_be_is_ignored(void **state)
{
	report(1, 1, 0, WORLD, 0, NULL); /* no such root */
	rounds_begin(rounds, ROOT, 1);
	report(1, 1, 0, WORLD, 0, NULL); /* nothing is announced */
	OK(announce(1, 1));
	report(1, 2, 0, WORLD, 0, NULL);
	report(2, 1, 0, WORLD, 0, NULL);
	report(1, 2, 0, WORLD, PAWL_EIO, "another save");
	report(1, 1, 0, WORLD + 1, 0, NULL);
	report(1, 1, WORLD, 1, 0, NULL);
	report(1, 1, 1, WORLD, 0, NULL);
	report(1, 1, UINT32_MAX, 2, 0, NULL);
	report(1, 1, 2, UINT32_MAX, 0, NULL);
	report(1, 1, 2, 0, 0, NULL);
	FAILS(PAWL_ETIMEDOUT, await(1, 1));
	SAYS("ranks 0 to 7 ");
	report(1, 1, 0, WORLD, 0, NULL);
	OK(await(1, 1));
}

/* A new run knows what was global in the one before, until it has a global save itself. */
static void a_global_save_of_an_earlier_run_counts(void **state)
{
	struct peer_part part = {.save = save_of(2, 1), .world = WORLD, .ranks = WORLD};
	struct peer_save before = save_of(1, 6);

	rounds_begin(rounds, ROOT, 2);
	OK(rounds_announce(rounds, ROOT, &part, &before, &err));
	assert_next(save_of(2, 1), save_of(1, 6));
	rounds_done(rounds, ROOT, &part, 0, NULL);
	assert_next(save_of(2, 1), save_of(2, 1));
	part.save.number = 2;
	OK(rounds_announce(rounds, ROOT, &part, &before, &err));
	assert_next(save_of(2, 2), save_of(2, 1));
	rounds_begin(rounds, ROOT, 3);
	assert_next(save_of(0, 0), save_of(0, 0));
}

/* Hosts that count their saves differently: neither is global, and the ranks that are wrong are
 * named. */
static void parts_of_another_step_end_the_round(void **state)
{
	struct peer_part own = {.save = save_of(1, 5),
		.step = 50,
		.tag = "global_step50",
		.world = WORLD,
		.ranks = 4};
	struct peer_part other = own;

	other.first_rank = 4;
	rounds_begin(rounds, ROOT, 1);
	for (int wrong = 0; wrong < 2; wrong++) {
		OK(rounds_announce(rounds, ROOT, &own, &none, &err));
		rounds_done(rounds, ROOT, &own, 0, NULL);
		other.step = wrong == 0 ? 60 : 50;
		snprintf(other.tag, sizeof(other.tag), "%s", wrong == 0 ? own.tag : "best");
		if (wrong == 1) { /* the round has failed already: the report is kept */
			rounds_done(rounds, ROOT, &other, PAWL_EIO, "a disk is full");
			FAILS(PAWL_EIO, await(own.save.run, own.save.number));
		}
		rounds_done(rounds, ROOT, &other, 0, NULL);
		OK(rounds_announce(rounds, ROOT, &own, &none, &err));
		FAILS(PAWL_EMISMATCH, await(own.save.run, own.save.number));
		SAYS("rank 4's host has step");
		SAYS(wrong == 0 ? "step 60 (global_step50)" : "step 50 (best)");
		SAYS("rank 0's has step 50 (global_step50)");
		assert_next(own.save, save_of(0, 0));
		own.save.number++;
		other.save.number++;
	}
	OK(rounds_announce(rounds, ROOT, &own, &none, &err));
	rounds_done(rounds, ROOT, &own, 0, NULL);
	own.first_rank = 4;
	rounds_done(rounds, ROOT, &own, 0, NULL);
	OK(await(own.save.run, own.save.number));
}

static void announcing_needs_the_run(void **state)
{
	struct peer_part part = {.save = save_of(1, 1)};

	FAILS(PAWL_EINVAL, announce(1, 1));
	rounds_begin(rounds, ROOT, 2);
	FAILS(PAWL_EINVAL, announce(1, 1));
	FAILS(PAWL_EINVAL, announce(0, 0));
	OK(announce(2, 1));
	rounds_begin(rounds, ROOT, 0);
	FAILS(PAWL_EINVAL, announce(2, 2));
	FAILS(PAWL_EINVAL, announce(0, 0));
	rounds_begin(rounds, ROOT, 1);
	FAILS(PAWL_EINVAL, rounds_announce(rounds, ROOT, &part, &none, &err));
	part.world = WORLD;
	FAILS(PAWL_EINVAL, rounds_announce(rounds, ROOT + 1, &part, &none, &err));
	OK(announce(1, 1));
}

static void a_new_run_gives_all_up(void **state)
{
	struct peer_save announced = save_of(1, 2);
	struct peer_save global = save_of(1, 1);

	rounds_begin(rounds, ROOT, 1);
	OK(announce(1, 1));
	report(1, 1, 0, WORLD, 0, NULL);
	OK(announce(1, 2));
	rounds_begin(rounds, ROOT, 2);
	FAILS(PAWL_ECANCELED, await(1, 2));
	assert_next(save_of(0, 0), save_of(0, 0));
	report(1, 2, 0, WORLD, 0, NULL); /* belongs to the run that is over */
	FAILS(PAWL_ECANCELED, await(1, 2));
	OK(rounds_next(rounds, ROOT, &announced, &global, 0, &err));
	assert_int_equal(announced.run, 0);
	assert_int_equal(global.run, 0);
	OK(announce(2, 1));
	FAILS(PAWL_ETIMEDOUT, await(2, 1));
	OK(announce(2, 2));
	FAILS(PAWL_ECANCELED, await(2, 1));
}

static void cancel_lasts_until_the_next_run(void **state)
{
	struct peer_save a = {0};
	struct peer_save g = {0};

	rounds_begin(rounds, ROOT, 1);
	OK(announce(1, 1));
	report(1, 1, 0, WORLD, 0, NULL);
	OK(announce(1, 2));
	rounds_cancel(rounds, ROOT);
	FAILS(PAWL_ECANCELED, await(1, 2));
	FAILS(PAWL_ECANCELED, rounds_next(rounds, ROOT, &a, &g, 0, &err));
	OK(rounds_next(rounds, ROOT + 1, &a, &g, 0, &err)); /* another root goes on */
	FAILS(PAWL_EINVAL, announce(1, 3));
	rounds_begin(rounds, ROOT, 2);
	OK(rounds_next(rounds, ROOT, &a, &g, 0, &err));
	rounds_cancel(rounds, 0);
	FAILS(PAWL_ECANCELED, rounds_next(rounds, ROOT, &a, &g, 0, &err));
	FAILS(PAWL_ECANCELED, rounds_next(rounds, ROOT + 1, &a, &g, 0, &err));
	rounds_begin(rounds, ROOT + 1, 1);
	OK(rounds_next(rounds, ROOT + 1, &a, &g, 0, &err));
	FAILS(PAWL_ECANCELED, rounds_next(rounds, ROOT, &a, &g, 0, &err));
	rounds_cancel(rounds, ROOT + 2); /* nobody knows it yet */
	FAILS(PAWL_ECANCELED, rounds_next(rounds, ROOT + 2, &a, &g, 0, &err));
}

static void roots_have_rounds_of_their_own(void **state)
{
	struct peer_save save = save_of(9, 1);
	struct peer_part part = {.save = save, .world = 1, .ranks = 1};

	for (uint64_t root = 1; root <= ROUNDS_ROOTS_MAX; root++) {
		rounds_begin(rounds, root, 9);
		OK(rounds_announce(rounds, root, &part, &none, &err));
	}
	rounds_done(rounds, 5, &part, 0, NULL);
	OK(rounds_await(rounds, 5, &save, 0, &err));
	FAILS(PAWL_ETIMEDOUT, rounds_await(rounds, 6, &save, 0, &err));
	rounds_begin(rounds, 1000, 9); /* one too many */
	FAILS(PAWL_EINVAL, rounds_announce(rounds, 1000, &part, &none, &err));
	rounds_cancel(rounds, 1000);
	rounds_begin(rounds, 6, 0);
	rounds_begin(rounds, 1000, 9); /* has its place */
	OK(rounds_announce(rounds, 1000, &part, &none, &err));
	FAILS(PAWL_ECANCELED, rounds_await(rounds, 6, &save, 0, &err));
}

static void many_missing_ranks_are_cut(void **state)
{
	struct peer_part part = {.save = save_of(1, 1), .world = 500};

	rounds_begin(rounds, ROOT, 1);
	OK(rounds_announce(rounds, ROOT, &part, &none, &err));
	for (uint32_t r = 0; r < 500; r += 2) {
		report(1, 1, r, 1, 0, NULL);
	}
	FAILS(PAWL_ETIMEDOUT, await(1, 1));
	SAYS("ranks 1, 3, 5, ");
	SAYS("… are not");
}

static void no_memory(void **state)
{
	struct rounds *other = NULL;

	fault_arm("rounds.open", 1, ENOMEM, false);
	FAILS(PAWL_ENOMEM, rounds_open(&other, &err));
	fault_disarm();
	rounds_begin(rounds, ROOT, 1);
	OK(announce(1, 1));
	fault_arm("rounds.announce", 1, ENOMEM, false);
	FAILS(PAWL_ENOMEM, announce(1, 2));
	fault_disarm();
	assert_next(save_of(1, 1), save_of(0, 0)); /* nothing has changed */
	report(1, 1, 0, WORLD, 0, NULL);
	OK(await(1, 1));
	rounds_close(NULL);
}

/* ---- threads ---- */

#define HOSTS 4u
#define SAVES 100u

static _Atomic unsigned wrong; /* counts what threads found wrong */

/* A host: replicates what is announced, until the run is canceled. */
static void *be_host(void *user)
{
	uint32_t first_rank = *(uint32_t *)user;
	struct peer_save announced = {0};
	struct peer_save global = {0};
	struct peer_save last = {0};

	for (;;) {
		int rv = rounds_next(rounds, ROOT, &announced, &global, within_ns(WITHIN_LONG_S),
			NULL);

		if (rv != 0) {
			wrong += rv != PAWL_ECANCELED;
			return NULL;
		}
		wrong += announced.number < last.number || global.number > announced.number;
		if (announced.number != last.number) {
			bool fails = announced.number % 10 == 9 && first_rank == 0;

			report(1, announced.number, first_rank, WORLD / HOSTS, fails ? PAWL_EIO : 0,
				"this one fails");
		}
		last = announced;
	}
}

static void hosts_and_leader_meet_in_every_round(void **state)
{
	pthread_t threads[HOSTS];
	uint32_t first_ranks[HOSTS];

	for (uint32_t i = 0; i < HOSTS; i++) {
		first_ranks[i] = i * (WORLD / HOSTS);
		assert_int_equal(pthread_create(&threads[i], NULL, be_host, &first_ranks[i]), 0);
	}
	rounds_begin(rounds, ROOT, 1);
	for (uint64_t n = 1; n <= SAVES; n++) {
		struct peer_save save = save_of(1, n);

		OK(announce(1, n));
		assert_int_equal(
			IN_TIME(rounds_await(rounds, ROOT, &save, within_ns(WITHIN_LONG_S), &err)),
			n % 10 == 9 ? PAWL_EIO : 0);
	}
	rounds_cancel(rounds, ROOT);
	for (uint32_t i = 0; i < HOSTS; i++) {
		pthread_join(threads[i], NULL);
	}
	assert_int_equal(wrong, 0);
}

static void *await_first(void *user)
{
	struct peer_save save = save_of(1, 1);

	*(int *)user = rounds_await(rounds, ROOT, &save, INT64_MAX, NULL);
	return NULL;
}

/* Ends a wait without end, in each way. */
static void whoever_waits_is_woken(void **state)
{
	int results[4] = {0, PAWL_EIO, PAWL_ECANCELED, PAWL_ECANCELED};

	for (int way = 0; way < 4; way++) {
		pthread_t thread;
		int rv = 1;

		rounds_close(rounds);
		OK(rounds_open(&rounds, &err));
		rounds_begin(rounds, ROOT, 1);
		OK(announce(1, 1));
		assert_int_equal(pthread_create(&thread, NULL, await_first, &rv), 0);
		within_pace(0.01); /* most times it waits by now */
		if (way < 2) {
			report(1, 1, 0, WORLD, results[way], "fails");
		} else if (way == 2) {
			rounds_begin(rounds, ROOT, 2);
		} else {
			rounds_cancel(rounds, 0);
		}
		pthread_join(thread, NULL);
		assert_int_equal(rv, results[way]);
	}
}

/* ---- what becomes durable ---- */

static void choose(uint64_t run, uint64_t number)
{
	struct peer_save save = save_of(run, number);

	rounds_choose(rounds, ROOT, &save);
}

static void want(uint64_t run, uint64_t number)
{
	struct peer_save save = save_of(run, number);

	rounds_want(rounds, ROOT, &save);
}

/* Expects that this is chosen, for a host that knows of nothing. */
static void assert_chosen(struct peer_save expected)
{
	struct peer_save chosen = {0};

	OK(rounds_next_chosen(rounds, ROOT, &chosen, 0, &err));
	assert_memory_equal(&chosen, &expected, sizeof(chosen));
}

static void assert_wanted(struct peer_save expected)
{
	struct peer_save wanted = {0};

	OK(rounds_take_wanted(rounds, ROOT, &wanted, 0, &err));
	assert_memory_equal(&wanted, &expected, sizeof(wanted));
}

static void the_last_choice_counts(void **state)
{
	assert_chosen(save_of(0, 0));
	choose(1, 5); /* there is no run */
	rounds_begin(rounds, ROOT, 1);
	assert_chosen(save_of(0, 0));
	choose(1, 5);
	assert_chosen(save_of(1, 5));
	choose(1, 4);
	choose(2, 9);
	assert_chosen(save_of(1, 4));
	rounds_begin(rounds, ROOT, 2);
	assert_chosen(save_of(0, 0));
	rounds_cancel(rounds, ROOT);
	FAILS(PAWL_ECANCELED,
		rounds_next_chosen(rounds, ROOT, &(struct peer_save){0}, INT64_MAX, &err));
}

static void the_oldest_wish_comes_first_and_once(void **state)
{
	want(1, 5); /* there is no run */
	rounds_begin(rounds, ROOT, 1);
	assert_wanted(save_of(0, 0));
	want(1, 5);
	want(1, 7);
	want(1, 3);
	want(2, 1);
	assert_wanted(save_of(1, 3));
	assert_wanted(save_of(0, 0));
	want(1, 7);
	rounds_begin(rounds, ROOT, 2);
	assert_wanted(save_of(0, 0));
	rounds_cancel(rounds, 0);
	FAILS(PAWL_ECANCELED,
		rounds_take_wanted(rounds, ROOT, &(struct peer_save){0}, INT64_MAX, &err));
}

static void *await_chosen(void *user)
{
	struct peer_save save = save_of(1, 1); /* known */

	*(int *)user = rounds_next_chosen(rounds, ROOT, &save, INT64_MAX, NULL) == 0
		? (int)save.number
		: -1;
	return NULL;
}

static void *await_wanted(void *user)
{
	struct peer_save save = {0};

	*(int *)user = rounds_take_wanted(rounds, ROOT, &save, INT64_MAX, NULL) == 0
		? (int)save.number
		: -1;
	return NULL;
}

static void choices_and_wishes_wake(void **state)
{
	pthread_t threads[2];
	int chosen = 0;
	int wanted = 0;

	rounds_begin(rounds, ROOT, 1);
	choose(1, 1);
	assert_int_equal(pthread_create(&threads[0], NULL, await_chosen, &chosen), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, await_wanted, &wanted), 0);
	within_pace(0.01); /* most times they wait by now */
	want(1, 6);
	choose(1, 2);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	assert_int_equal(chosen, 2);
	assert_int_equal(wanted, 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_save_is_global_once_all_ranks_are_done, begin,
			end),
		cmocka_unit_test_setup_teardown(a_failure_ends_the_round, begin, end),
		cmocka_unit_test_setup_teardown(a_failed_round_goes_on, begin, end),
		cmocka_unit_test_setup_teardown(what_cannot_be_is_ignored, begin, end),
		cmocka_unit_test_setup_teardown(a_global_save_of_an_earlier_run_counts, begin, end),
		cmocka_unit_test_setup_teardown(parts_of_another_step_end_the_round, begin, end),
		cmocka_unit_test_setup_teardown(announcing_needs_the_run, begin, end),
		cmocka_unit_test_setup_teardown(a_new_run_gives_all_up, begin, end),
		cmocka_unit_test_setup_teardown(cancel_lasts_until_the_next_run, begin, end),
		cmocka_unit_test_setup_teardown(roots_have_rounds_of_their_own, begin, end),
		cmocka_unit_test_setup_teardown(many_missing_ranks_are_cut, begin, end),
		cmocka_unit_test_setup_teardown(no_memory, begin, end),
		cmocka_unit_test_setup_teardown(hosts_and_leader_meet_in_every_round, begin, end),
		cmocka_unit_test_setup_teardown(whoever_waits_is_woken, begin, end),
		cmocka_unit_test_setup_teardown(the_last_choice_counts, begin, end),
		cmocka_unit_test_setup_teardown(the_oldest_wish_comes_first_and_once, begin, end),
		cmocka_unit_test_setup_teardown(choices_and_wishes_wake, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
