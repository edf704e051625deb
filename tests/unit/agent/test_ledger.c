/* The ledger: its rules by example, then its promises under random histories (the seed is
 * printed). */
#include "agent/ledger/ledger.h"

#include "base/rng.h"
#include "ckpt/tags.h"
#include "pawl/err.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MINUTE_NS 60000000000LL

static const struct ledger_times times = {.wait_ns = 30000000000LL, .retry_ns = 1000000000LL};
static struct ledger_verdict verdict; /* verdict of the last begin */

static enum ledger_answer begin(struct ledger *ledger, uint32_t rank, uint64_t seq, uint64_t step)
{
	struct ledger_ask ask = {.rank = rank, .seq = seq, .step = step, .fits = true};

	tag_of_step(ask.tag, sizeof(ask.tag), step);
	return ledger_begin(ledger, &ask, &verdict);
}

/* Does a whole save of one rank. Returns its slot. */
static int save(struct ledger *ledger, uint64_t seq)
{
	assert_int_equal(begin(ledger, 0, seq, 100 * seq), LEDGER_GRANT);
	assert_int_equal(ledger_staged(ledger, 0, seq), verdict.slot);
	return verdict.slot;
}

static void commits_when_all_ranks_staged(void **state)
{
	struct ledger ledger;

	ledger_init(&ledger, &times, 2, MINUTE_NS, 0);
	assert_int_equal(begin(&ledger, 0, 1, 100), LEDGER_GRANT);
	assert_true(verdict.fresh);
	assert_int_equal(ledger_staged(&ledger, 0, 1), -1);
	assert_int_equal(ledger_newest(&ledger), -1);
	assert_int_equal(ledger_missing_rank(&ledger), 1);
	assert_int_equal(begin(&ledger, 1, 1, 100), LEDGER_GRANT);
	assert_false(verdict.fresh);
	assert_int_equal(ledger_staged(&ledger, 1, 1), verdict.slot);
	assert_int_equal(ledger_newest(&ledger), verdict.slot);
}

static void next_save_waits_for_slow_rank_then_is_skipped(void **state)
{
	struct ledger ledger;
	struct ledger_ask ask = {.rank = 0,
		.seq = 2,
		.step = 200,
		.tag = "global_step200",
		.fits = true,
		.waited_ns = times.wait_ns};

	ledger_init(&ledger, &times, 2, MINUTE_NS, 0);
	assert_int_equal(begin(&ledger, 0, 1, 100), LEDGER_GRANT);
	ledger_staged(&ledger, 0, 1);
	assert_int_equal(begin(&ledger, 0, 2, 200), LEDGER_WAIT);
	assert_int_equal(ledger_begin(&ledger, &ask, &verdict), LEDGER_REFUSE);
	assert_non_null(strstr(verdict.why, "rank 1 has not staged global_step100"));
	assert_null(strstr(verdict.why, "stopped"));
	assert_int_equal(begin(&ledger, 1, 1, 100),
		LEDGER_GRANT); /* late, but not too late for its own save */
	assert_true(ledger_staged(&ledger, 1, 1) >= 0);
	assert_int_equal(begin(&ledger, 1, 2, 200), LEDGER_REFUSE); /* the answer of rank 0, too */
	assert_int_equal(begin(&ledger, 1, 3, 300), LEDGER_GRANT);
}

static void a_stopped_rank_is_not_waited_for(void **state)
{
	struct ledger ledger;
	struct ledger_ask ask = {.rank = 0,
		.seq = 2,
		.step = 200,
		.tag = "global_step200",
		.fits = true,
		.stuck_why = "its process is stopped"};

	ledger_init(&ledger, &times, 2, MINUTE_NS, 0);
	begin(&ledger, 0, 1, 100);
	ledger_staged(&ledger, 0, 1);
	assert_int_equal(ledger_begin(&ledger, &ask, &verdict), LEDGER_REFUSE);
	assert_string_equal(verdict.why,
		"save of global_step200 skipped: rank 1 has not staged global_step100 yet: its "
		"process is stopped");
	assert_int_equal(verdict.code, PAWL_ETIMEDOUT);
}

static void who_goes_past_a_save_has_no_part_in_it(void **state)
{
	struct ledger ledger;

	ledger_init(&ledger, &times, 2, MINUTE_NS, 0);
	assert_int_equal(begin(&ledger, 0, 7, 100), LEDGER_GRANT); /* numbers may begin anywhere */
	assert_int_equal(ledger_skipped_seq(&ledger, 0, 8), 0);    /* rank 0 has a part in save 7 */
	assert_int_equal(ledger_skipped_seq(&ledger, 1, 7), 0);    /* rank 1 comes to save 7 */
	assert_int_equal(ledger_skipped_seq(&ledger, 1, 8), 7);
	assert_int_equal(ledger_fail(&ledger, 7, PAWL_ECANCELED, "gone past"), verdict.slot);
	assert_int_equal(ledger_skipped_seq(&ledger, 1, 8), 0);
	assert_int_equal(begin(&ledger, 1, 8, 200), LEDGER_GRANT);
	assert_int_equal(begin(&ledger, 0, 8, 200), LEDGER_GRANT);
}

static void different_steps_fail_the_save_for_all(void **state)
{
	struct ledger ledger;
	int slot;

	ledger_init(&ledger, &times, 2, MINUTE_NS, 0);
	begin(&ledger, 0, 1, 100);
	slot = verdict.slot;
	assert_int_equal(begin(&ledger, 1, 1, 101), LEDGER_REFUSE);
	assert_int_equal(verdict.code, PAWL_EMISMATCH);
	assert_int_equal(verdict.failed_slot, slot);
	assert_int_equal(ledger_staged(&ledger, 0, 1), -1);
}

static void hung_storage_costs_no_stall(void **state)
{
	struct ledger ledger;
	int64_t again;
	int hung;

	ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
	hung = save(&ledger, 1);
	assert_int_equal(ledger_persist_next(&ledger, 0, &again), -1);
	assert_int_equal(again, MINUTE_NS);
	assert_int_equal(ledger_persist_next(&ledger, MINUTE_NS, &again), hung);
	for (uint64_t seq = 2; seq < 50; seq++) {
		assert_int_not_equal(save(&ledger, seq), hung);
	}
	ledger_persisted(&ledger, hung, true, 2 * MINUTE_NS);
	assert_int_equal(save(&ledger, 50), hung);
}

/* Like begin, for one rank that is alone, where memory takes a third slot. */
static enum ledger_answer begin_roomy(struct ledger *ledger, uint64_t seq)
{
	struct ledger_ask ask = {.rank = 0,
		.seq = seq,
		.step = 100 * seq,
		.fits = true,
		.fits_spare = true};

	tag_of_step(ask.tag, sizeof(ask.tag), ask.step);
	return ledger_begin(ledger, &ask, &verdict);
}

static int save_roomy(struct ledger *ledger, uint64_t seq)
{
	assert_int_equal(begin_roomy(ledger, seq), LEDGER_GRANT);
	assert_false(verdict.overwrites_newest);
	assert_int_equal(ledger_staged(ledger, 0, seq), verdict.slot);
	return verdict.slot;
}

/* Storage hangs: the last committed save is the newest until the next one is committed. */
static void what_was_committed_last_is_kept(void **state)
{
	struct ledger ledger;
	int64_t again;
	int hung, last;

	ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
	hung = save_roomy(&ledger, 1);
	assert_int_equal(ledger_persist_next(&ledger, MINUTE_NS, &again), hung);
	last = save_roomy(&ledger, 2);
	assert_true(ledger_is_next(&ledger, LEDGER_SPARE));
	for (uint64_t seq = 3; seq < 50; seq++) {
		assert_int_equal(begin_roomy(&ledger, seq), LEDGER_GRANT);
		assert_false(verdict.overwrites_newest);
		assert_true(verdict.slot != hung && verdict.slot != last);
		assert_int_equal(ledger_newest(&ledger), last);
		if (seq % 5 == 0) { /* every fifth save fails */
			ledger_fail(&ledger, seq, PAWL_ECHANGED, "test");
			assert_int_equal(ledger_newest(&ledger), last);
			continue;
		}
		last = ledger_staged(&ledger, 0, seq);
		assert_int_equal(last, verdict.slot);
	}
	ledger_persisted(&ledger, hung, true, 2 * MINUTE_NS);
	assert_int_equal(save_roomy(&ledger, 50), hung);
}

static void without_a_spare_slot_the_older_one_is_kept(void **state)
{
	struct ledger ledger;
	int64_t again;
	int hung;

	ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
	hung = save(&ledger, 1);
	assert_int_equal(ledger_persist_next(&ledger, MINUTE_NS, &again), hung);
	save(&ledger, 2);
	assert_false(verdict.overwrites_newest);
	assert_false(ledger_is_next(&ledger, LEDGER_SPARE));
	assert_int_equal(begin(&ledger, 0, 3, 300), LEDGER_GRANT);
	assert_true(verdict.overwrites_newest);
	assert_int_equal(ledger_newest(&ledger), hung);
}

/* The newest save is durable while an older one is being read, or becomes durable after all: memory
 * then has nothing that is newer than the store. */
static void memory_is_not_preferred_to_something_newer_in_the_store(void **state)
{
	struct ledger ledger;
	int64_t again;
	int newest;

	ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
	ledger.slots[save(&ledger, 1)].readers = 1;
	newest = save(&ledger, 2);
	assert_int_equal(ledger_persist_next(&ledger, MINUTE_NS, &again), newest);
	ledger_persisted(&ledger, newest, true, MINUTE_NS);
	assert_int_equal(begin(&ledger, 0, 3, 300), LEDGER_GRANT);
	assert_int_equal(verdict.slot, newest);
	assert_false(verdict.overwrites_newest);
	assert_int_equal(ledger_newest(&ledger), -1);
	assert_int_equal(ledger_staged(&ledger, 0, 3), newest);
	assert_int_equal(ledger_newest(&ledger), newest);
}

/* The spare slot stays unused while nothing is written or read. When memory has no room for it any
 * more, it is emptied as soon as another slot holds the newest save. */
static void the_spare_slot_is_used_when_it_must_be(void **state)
{
	struct ledger ledger;
	int64_t again;
	int busy;

	ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
	for (uint64_t seq = 1; seq < 6; seq++) {
		assert_int_not_equal(save_roomy(&ledger, seq), LEDGER_SPARE);
		assert_false(ledger_is_next(&ledger, LEDGER_SPARE));
	}
	busy = ledger_persist_next(&ledger, MINUTE_NS, &again);
	assert_int_not_equal(save_roomy(&ledger, 6), LEDGER_SPARE);
	assert_int_equal(save_roomy(&ledger, 7), LEDGER_SPARE);
	assert_int_equal(begin(&ledger, 0, 8, 800), LEDGER_GRANT);
	assert_false(verdict.overwrites_newest);
	assert_false(ledger_is_spare_unused(&ledger)); /* the spare slot holds the newest save */
	assert_int_equal(ledger_staged(&ledger, 0, 8), verdict.slot);
	ledger_persisted(&ledger, busy, true, MINUTE_NS);
	assert_int_equal(begin(&ledger, 0, 9, 900), LEDGER_GRANT);
	assert_true(ledger_is_spare_unused(&ledger));
	assert_int_equal(verdict.slot, busy);
}

static void one_rank_that_is_tight_is_enough(void **state)
{
	struct ledger ledger;
	struct ledger_ask ask = {.rank = 1, .fits = true, .fits_spare = true};
	int64_t again;

	ledger_init(&ledger, &times, 2, MINUTE_NS, 0);
	for (uint64_t seq = 1; seq < 3; seq++) {
		begin(&ledger, 0, seq, 0);
		ledger_staged(&ledger, 0, seq);
		ask.seq = seq;
		tag_of_step(ask.tag, sizeof(ask.tag), 0);
		assert_int_equal(ledger_begin(&ledger, &ask, &verdict), LEDGER_GRANT);
		assert_true(ledger_staged(&ledger, 1, seq) >= 0);
		ledger_persist_next(&ledger, MINUTE_NS, &again);
	}
	ask.seq = 3;
	assert_int_equal(ledger_begin(&ledger, &ask, &verdict), LEDGER_GRANT);
	assert_true(verdict.overwrites_newest);
}

static void interval_zero_makes_every_save_durable(void **state)
{
	struct ledger ledger;
	int64_t again;
	int a;
	int b;

	ledger_init(&ledger, &times, 1, 0, 0);
	a = save(&ledger, 1);
	assert_int_equal(ledger_persist_next(&ledger, 0, &again), a);
	b = save(&ledger, 2);
	assert_int_not_equal(a, b);
	assert_int_equal(begin(&ledger, 0, 3, 300), LEDGER_WAIT);
	ledger_persisted(&ledger, a, true, 1);
	assert_int_equal(begin(&ledger, 0, 3, 300), LEDGER_GRANT);
	assert_int_equal(verdict.slot, a);
	assert_int_equal(ledger_persist_next(&ledger, 1, &again), b);
}

static void failed_persist_is_retried_and_superseded(void **state)
{
	struct ledger ledger;
	int64_t again;
	int slot;

	ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
	save(&ledger, 1);
	slot = ledger_persist_next(&ledger, MINUTE_NS, &again);
	ledger_persisted(&ledger, slot, false, MINUTE_NS);
	slot = save(&ledger, 2);
	assert_int_equal(ledger_persist_next(&ledger, 2 * MINUTE_NS, &again),
		slot); /* the newest, not the one that failed */
	assert_false(ledger_want_durable(&ledger, 77));
}

static void streamed_saves_are_never_in_memory(void **state)
{
	struct ledger ledger;
	struct ledger_ask ask = {.rank = 0, .seq = 1, .step = 100, .fits = false};
	int64_t again;

	ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
	assert_int_equal(ledger_begin(&ledger, &ask, &verdict), LEDGER_GRANT);
	assert_true(verdict.streamed);
	assert_int_equal(ledger_staged(&ledger, 0, 1), verdict.slot);
	assert_int_equal(ledger_newest(&ledger), -1);
	assert_int_equal(ledger_persist_next(&ledger, 0, &again), verdict.slot); /* at once */
	ledger_persisted(&ledger, verdict.slot, true, 0);
	assert_true(ledger_all_durable(&ledger));
}

/* A save may be streamed although it would fit: the next one may be saved in memory again. */
static void who_fits_may_stream(void **state)
{
	struct ledger ledger;
	struct ledger_ask ask = {.rank = 0, .seq = 1, .step = 100, .fits = true, .streams = true};
	int64_t again;

	ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
	assert_int_equal(ledger_begin(&ledger, &ask, &verdict), LEDGER_GRANT);
	assert_true(verdict.streamed);
	assert_int_equal(ledger_staged(&ledger, 0, 1), verdict.slot);
	assert_int_equal(ledger_persist_next(&ledger, 0, &again), verdict.slot);
	ledger_persisted(&ledger, verdict.slot, true, 0);
	assert_int_equal(begin(&ledger, 0, 2, 200), LEDGER_GRANT);
	assert_false(verdict.streamed);
}

/* A state outgrows memory: the save in memory stays until the first streamed save is durable, and
 * is neither given out nor loaded from then on. */
static void memory_is_kept_until_a_streamed_save_is_durable(void **state)
{
	for (int must_persist = 0; must_persist < 2; must_persist++) {
		struct ledger ledger;
		struct ledger_ask ask = {.rank = 0, .seq = 2, .step = 200, .fits = false};
		int64_t again;
		int kept, streamed;

		ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
		kept = save(&ledger, 1);
		assert_int_equal(ledger_begin(&ledger, &ask, &verdict), LEDGER_GRANT);
		streamed = verdict.slot;
		assert_true(verdict.streamed && streamed != kept);
		assert_int_equal(ledger_staged(&ledger, 0, 2), streamed);
		assert_int_equal(begin(&ledger, 0, 3, 300), LEDGER_WAIT);
		assert_int_equal(ledger_newest(&ledger), kept);
		if (must_persist) {
			assert_true(ledger_want_durable(&ledger, 1));
			assert_int_equal(ledger_persist_next(&ledger, 0, &again), kept);
			ledger_persisted(&ledger, kept, true, 0);
		}
		assert_int_equal(ledger_persist_next(&ledger, 0, &again), streamed);
		assert_int_equal(ledger_want_durable(&ledger, 1), must_persist);
		assert_true(ledger_want_durable(&ledger, 2));
		ledger_persisted(&ledger, streamed, true, 0);
		assert_int_equal(ledger_newest(&ledger), -1);
		assert_true(ledger_all_durable(&ledger));
		assert_int_equal(begin(&ledger, 0, 3, 300), LEDGER_GRANT);
	}
}

/* Both saves are streamed, and the second is whole before the first is in the store. */
static void a_streamed_save_is_not_lost_behind_another(void **state)
{
	struct ledger ledger;
	struct ledger_ask ask = {.rank = 0, .seq = 1, .step = 100, .tag = "a", .fits = false};
	int64_t again;
	int first, second;

	ledger_init(&ledger, &times, 1, MINUTE_NS, 0);
	assert_int_equal(ledger_begin(&ledger, &ask, &verdict), LEDGER_GRANT);
	first = ledger_staged(&ledger, 0, 1);
	assert_int_equal(ledger_persist_next(&ledger, 0, &again), first);
	ask = (struct ledger_ask){.rank = 0, .seq = 2, .step = 200, .tag = "b", .fits = false};
	assert_int_equal(ledger_begin(&ledger, &ask, &verdict), LEDGER_GRANT);
	second = ledger_staged(&ledger, 0, 2);
	ledger_persisted(&ledger, first, true, 0);
	assert_int_equal(ledger_persist_next(&ledger, 0, &again), second);
}

/* Checks what must hold after every event. */
static void check(const struct ledger *ledger, bool ever_committed)
{
	uint32_t staging = 0;
	uint32_t persisting = 0;

	for (int i = 0; i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &ledger->slots[i];

		staging += slot->state == SLOT_STAGING;
		persisting += slot->persisting;
		assert_true(slot->state != SLOT_STAGING || !slot->persisting);
		assert_true(slot->state != SLOT_STAGING || slot->staged <= slot->begun);
	}
	assert_true(staging <= 1);
	assert_true(persisting <= 1);
	assert_true(
		!ever_committed || ledger_newest(ledger) >= 0); /* one whole checkpoint, always */
}

/* Checks that no save takes the place of a streamed one that waits for the store. */
static void check_streamed(const struct ledger *before, const struct ledger *ledger)
{
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *was = &before->slots[i];

		if (was->state == SLOT_COMMITTED && was->streamed) {
			assert_int_equal(ledger->slots[i].state, SLOT_COMMITTED);
			assert_int_equal(ledger->slots[i].step, was->step);
		}
	}
}

/* Checks, where memory takes a spare slot, that the last committed save stays until a newer one
 * is. */
static void check_newest(const struct ledger *before, const struct ledger *ledger)
{
	int was = ledger_newest(before);
	int is = ledger_newest(ledger);

	assert_true(was < 0 || (is >= 0 && ledger->slots[is].order >= before->slots[was].order));
}

/* Returns whether an event made the saves in memory older than the store's newest one. The newest
 * save in memory was durable then. */
static bool is_passed_by(const struct ledger *before, const struct ledger *ledger)
{
	bool passed = ledger->store_only_order != before->store_only_order;

	assert_true(!passed || before->slots[ledger_newest(before)].durable);
	return passed;
}

/* Ranks save, lag, fail and restart; storage is slow and fails. */
static void random_history(uint64_t seed)
{
	struct rng rng = {seed};
	struct ledger ledger;
	uint32_t world = 1 + (uint32_t)rng_below(&rng, 4);
	uint64_t seq[4] = {1, 1, 1, 1};
	bool begun[4] = {false};
	bool committed = false;
	int64_t now = 0;
	int64_t again;
	int persisting = -1;
	int outgrown = (int)rng_below(&rng, 4000); /* memory is too small from this event on */
	bool spare = rng_below(&rng, 2);           /* memory takes three slots until that event */

	ledger_init(&ledger, &times, world, rng_below(&rng, 2) ? MINUTE_NS : 0, now);
	for (int i = 0; i < 2000; i++) {
		uint32_t rank = (uint32_t)rng_below(&rng, world);
		struct ledger_ask ask = {.rank = rank,
			.seq = seq[rank],
			.step = seq[rank] * 10,
			.fits = i < outgrown,
			.fits_spare = spare && i < outgrown,
			.waited_ns = (int64_t)rng_below(&rng, 40) * 1000000000};
		enum ledger_answer answer;
		struct ledger before = ledger;

		tag_of_step(ask.tag, sizeof(ask.tag), ask.step);
		now += (int64_t)rng_below(&rng, MINUTE_NS / 4);
		if (begun[rank]) {
			int slot = ledger_staged(&ledger, rank, seq[rank]);

			committed = committed || (slot >= 0 && !ledger.slots[slot].streamed);
			begun[rank] = false;
			seq[rank]++;
		} else {
			answer = ledger_begin(&ledger, &ask, &verdict);
			begun[rank] = answer == LEDGER_GRANT;
			seq[rank] += answer == LEDGER_REFUSE;
			committed = committed && !is_passed_by(&before, &ledger);
		}
		check_streamed(&before, &ledger);
		if (rng_below(&rng, 100) == 0) {
			ledger_new_epoch(&ledger, world);
			for (uint32_t r = 0; r < world; r++) {
				seq[r] = 1;
				begun[r] = false;
			}
		}
		if (rng_below(&rng, 50) == 0) {
			ledger_fail(&ledger, seq[rank], PAWL_ECHANGED, "test");
		}
		if (persisting < 0) {
			persisting = ledger_persist_next(&ledger, now, &again);
		} else if (rng_below(&rng, 5) == 0) {
			bool ok = rng_below(&rng, 4) != 0;

			/* A save in the store need not be in memory. */
			committed = committed && !(ok && ledger.slots[persisting].streamed);
			ledger_persisted(&ledger, persisting, ok, now);
			persisting = -1;
		}
		check(&ledger, committed);
		if (spare && i < outgrown) {
			check_newest(&before, &ledger);
		}
	}
	assert_true(committed || outgrown < 2000);
}

static void promises_hold_under_random_histories(void **state)
{
	uint64_t seed = test_seed();

	for (uint64_t i = 0; i < 500; i++) {
		random_history(seed + i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commits_when_all_ranks_staged),
		cmocka_unit_test(next_save_waits_for_slow_rank_then_is_skipped),
		cmocka_unit_test(a_stopped_rank_is_not_waited_for),
		cmocka_unit_test(who_goes_past_a_save_has_no_part_in_it),
		cmocka_unit_test(different_steps_fail_the_save_for_all),
		cmocka_unit_test(hung_storage_costs_no_stall),
		cmocka_unit_test(what_was_committed_last_is_kept),
		cmocka_unit_test(without_a_spare_slot_the_older_one_is_kept),
		cmocka_unit_test(memory_is_not_preferred_to_something_newer_in_the_store),
		cmocka_unit_test(the_spare_slot_is_used_when_it_must_be),
		cmocka_unit_test(one_rank_that_is_tight_is_enough),
		cmocka_unit_test(interval_zero_makes_every_save_durable),
		cmocka_unit_test(failed_persist_is_retried_and_superseded),
		cmocka_unit_test(streamed_saves_are_never_in_memory),
		cmocka_unit_test(who_fits_may_stream),
		cmocka_unit_test(memory_is_kept_until_a_streamed_save_is_durable),
		cmocka_unit_test(a_streamed_save_is_not_lost_behind_another),
		cmocka_unit_test(promises_hold_under_random_histories),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
