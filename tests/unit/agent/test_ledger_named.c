/* The ledger of named saves: its rules by example. Its promises under random histories are in
 * test_ledger_histories.c. */
#include "agent/ledger/ledger.h"

#include "pawl/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MINUTE_NS 60000000000LL

static const struct ledger_times times = {.wait_ns = 30000000000LL, .retry_ns = 1000000000LL};
static struct ledger ledger;
static struct ledger_verdict verdict; /* verdict of the last begin */

static void start(uint32_t world, int64_t interval_ns)
{
	ledger_init(&ledger, &times, world, interval_ns, 0);
	ledger.named = true;
}

/* ---- as root.c does it ---- */

static enum ledger_answer ask(const struct ledger_ask *what)
{
	if (what->seq == 0) {
		ledger_move_on(&ledger, what->rank, MOVE_BEGINS, what->tag);
	}
	return ledger_begin(&ledger, what, &verdict);
}

static enum ledger_answer begin(uint32_t rank, const char *tag)
{
	struct ledger_ask what = {.rank = rank, .step = LEDGER_STEP_NONE, .fits = true};

	snprintf(what.tag, sizeof(what.tag), "%s", tag);
	return ask(&what);
}

/* Begins and stages. Returns the slot if that committed the save, else -1. */
static int save(uint32_t rank, const char *tag)
{
	assert_int_equal(begin(rank, tag), LEDGER_GRANT);
	return ledger_staged(&ledger, rank, verdict.seq);
}

static int asks(uint32_t rank)
{
	return ledger_move_on(&ledger, rank, MOVE_ASKS, NULL);
}

static int leaves(uint32_t rank)
{
	return ledger_move_on(&ledger, rank, MOVE_LEAVES, NULL);
}

/* Returns the slot that goes to the store now; -1: none. */
static int persist(int64_t now_ns)
{
	int64_t again_ns;

	return ledger_persist_next(&ledger, now_ns, &again_ns);
}

/* Makes a slot durable, whose turn it must be. */
static void becomes_durable(int slot, int64_t now_ns)
{
	assert_int_equal(persist(now_ns), slot);
	ledger_persisted(&ledger, slot, true, now_ns);
}

static const struct ledger_slot *newest(void)
{
	int i = ledger_newest(&ledger);

	assert_true(i >= 0);
	return &ledger.slots[i];
}

/* ---- who is waited for ---- */

static void who_never_saved_is_not_waited_for_once_somebody_asks(void **state)
{
	start(3, 0);
	assert_int_equal(save(0, "a"), -1);
	assert_int_equal(asks(1), -1); /* rank 1 has no part in it, and may be about to save */
	assert_true(asks(0) >= 0);
	assert_string_equal(newest()->tag, "a");
}

static void who_saved_before_is_waited_for(void **state)
{
	start(2, 0);
	save(0, "a");
	assert_true(save(1, "a") >= 0);
	assert_int_equal(save(0, "b"), -1);
	assert_int_equal(asks(0), -1);
	assert_int_equal(begin(0, "c"), LEDGER_WAIT);
	assert_int_equal(ledger_missing_rank(&ledger), 1);
	assert_true(save(1, "b") >= 0);
}

static void who_goes_on_has_no_part(void **state)
{
	start(2, MINUTE_NS);
	save(0, "a");
	save(1, "a");
	assert_int_equal(save(0, "b"), -1);
	assert_int_equal(begin(1, "c"), LEDGER_GRANT); /* b is whole now */
	assert_string_equal(newest()->tag, "b");
	assert_false(ledger_has_part(&ledger, ledger_newest(&ledger), 1));
	assert_true(ledger_has_part(&ledger, ledger_newest(&ledger), 0));
}

static void who_goes_on_or_leaves_speaks_for_itself_alone(void **state)
{
	start(3, 0);
	assert_int_equal(save(0, "a"), -1);
	assert_int_equal(begin(1, "b"), LEDGER_WAIT); /* rank 2 may be about to save a */
	assert_true(save(2, "a") >= 0);
	assert_int_equal(save(1, "b"), -1);
	assert_int_equal(leaves(0), -1);
	assert_true(save(2, "b") >= 0);
}

static void who_left_is_not_waited_for(void **state)
{
	start(3, 0);
	for (uint32_t r = 0; r < 3; r++) {
		save(r, "a");
	}
	assert_int_equal(leaves(2), -1);
	assert_int_equal(save(0, "b"), -1);
	assert_true(save(1, "b") >= 0); /* no later save waits for rank 2 either */
	becomes_durable(0, 0);
	assert_int_equal(save(0, "c"), -1);
	assert_true(leaves(1) >= 0);
	becomes_durable(1, 0);
	assert_true(save(0, "d") >= 0);
}

static void who_saves_alone_waits_for_nobody(void **state)
{
	struct ledger_ask alone = {.rank = 1, .step = 1, .tag = "b", .fits = true, .alone = true};

	start(3, MINUTE_NS);
	for (uint32_t r = 0; r < 3; r++) {
		save(r, "a");
	}
	assert_int_equal(ask(&alone), LEDGER_GRANT);
	assert_int_equal(begin(2, "b"), LEDGER_WAIT); /* nobody else joins it either */
	assert_true(ledger_staged(&ledger, 1, 2) >= 0);
	assert_int_equal(begin(2, "b"), LEDGER_GRANT);
	assert_true(ledger.slots[verdict.slot].adds);
}

static void who_died_is_waited_for(void **state)
{
	start(2, 0);
	assert_int_equal(save(0, "a"), -1);
	ledger_rank_died(&ledger, 1);
	assert_int_equal(asks(0), -1); /* rank 1 may have begun a save of which nobody knows */
	assert_int_equal(begin(0, "b"), LEDGER_WAIT);
	assert_int_equal(leaves(0), -1);
	ledger_new_epoch(&ledger, 2);
	assert_int_equal(ledger_newest(&ledger), -1);
	save(0, "a");
	assert_true(save(1, "a") >= 0);
}

static void who_has_begun_is_waited_for_whatever_others_do(void **state)
{
	start(3, 0);
	assert_int_equal(begin(1, "a"), LEDGER_GRANT);
	save(0, "a");
	assert_int_equal(asks(0), -1);
	assert_int_equal(leaves(0), -1);
	assert_int_equal(leaves(2), -1);
	assert_true(ledger_staged(&ledger, 1, verdict.seq) >= 0);
}

/* ---- tags that are added to ---- */

static void who_is_late_adds(void **state)
{
	start(2, 0);
	save(0, "a");
	assert_true(asks(0) >= 0);
	assert_int_equal(begin(1, "a"), LEDGER_GRANT);
	assert_true(ledger.slots[verdict.slot].adds);
	assert_int_equal(ledger_staged(&ledger, 1, verdict.seq), 1); /* rank 0 has its part in it */
	assert_int_equal(begin(0, "b"), LEDGER_WAIT);
	becomes_durable(0, 0); /* in order */
	assert_int_equal(begin(0, "b"), LEDGER_GRANT);
	assert_int_equal(persist(0), 1);
}

/* Rank 0 is a round ahead of rank 1: no round gets half of another. */
static void rounds_are_not_mixed(void **state)
{
	start(2, 0);
	save(0, "a");
	assert_true(asks(0) >= 0);
	assert_int_equal(begin(1, "a"), LEDGER_GRANT);
	uint64_t first = verdict.seq;

	assert_int_equal(begin(0, "a"), LEDGER_WAIT); /* the slot is the first round's */
	assert_int_equal(ledger_staged(&ledger, 1, first), 1);
	becomes_durable(0, 0);
	assert_int_equal(begin(0, "a"), LEDGER_GRANT);
	assert_true(ledger_staged(&ledger, 0, verdict.seq) < 0);
	assert_true(asks(0) < 0); /* the second round waits for both ranks */
	becomes_durable(1, 0);
	assert_int_equal(save(1, "a"), 0);
	assert_true(save(1, "a") < 0); /* the third round does, too */
}

/* Rank 0's part is damaged in memory while rank 1 adds its own, which is then all there is. Older
 * tags, whose places the ledger uses again to remember these, had parts of both. */
static void who_lost_its_part_adds_it_again(void **state)
{
	struct ledger_ask alone = {.step = 1, .tag = "a", .fits = true, .alone = true};
	char tag[CKPT_TAG_MAX];
	int slot;

	start(2, 0);
	for (uint32_t n = 0; n < LEDGER_TAGS_KNOWN; n++) {
		snprintf(tag, sizeof(tag), "older %u", n);
		save(0, tag);
		becomes_durable(save(1, tag), 0);
	}
	assert_int_equal(ask(&alone), LEDGER_GRANT);
	slot = ledger_staged(&ledger, 0, verdict.seq);
	assert_int_equal(begin(1, "a"), LEDGER_GRANT);
	ledger_drop(&ledger, slot);
	becomes_durable(ledger_staged(&ledger, 1, verdict.seq), 0);
	assert_true(save(0, "a") >= 0); /* rank 1 has its part */
}

static void what_is_added_to_becomes_durable_first(void **state)
{
	start(1, MINUTE_NS);
	assert_int_equal(save(0, "a"), 0);
	assert_int_equal(persist(0), -1); /* due in a minute */
	assert_int_equal(save(0, "a"), 1);
	assert_int_equal(begin(0, "b"), LEDGER_WAIT);
	assert_int_equal(persist(0), 0);
	ledger_persisted(&ledger, 0, false, 0); /* the store is full for the moment */
	becomes_durable(0, times.retry_ns);
	assert_int_equal(persist(times.retry_ns), 1);
	assert_int_equal(begin(0, "b"), LEDGER_GRANT);
}

/* Another tag was saved between the two rounds, so that the first is the next to be overwritten. */
static void what_is_added_to_is_not_given_out(void **state)
{
	for (int late = 0; late < 2; late++) {
		start(2, MINUTE_NS);
		save(0, "a");
		assert_int_equal(asks(0), 0);
		save(0, "b");
		assert_int_equal(asks(0), 1);
		assert_int_equal(begin(late, "a"), LEDGER_GRANT);
		assert_int_equal(verdict.slot, 1);
		assert_true(ledger.slots[1].adds);
		assert_int_equal(persist(0), 0);
	}
}

static void who_writes_by_itself_waits_for_the_place(void **state)
{
	struct ledger_ask what = {.step = 1, .tag = "a"};

	start(1, MINUTE_NS);
	save(0, "a");
	assert_int_equal(ask(&what), LEDGER_WAIT); /* .pawl.a.new belongs to the first round */
	assert_int_equal(persist(0), 0);
	assert_int_equal(ask(&what), LEDGER_WAIT);
	ledger_persisted(&ledger, 0, true, 0);
	assert_int_equal(ask(&what), LEDGER_GRANT);
	assert_true(verdict.streamed);
}

static void who_outgrows_memory_waits_for_the_place(void **state)
{
	struct ledger_ask what = {.step = 1, .tag = "a"};

	start(1, MINUTE_NS);
	save(0, "a");
	assert_int_equal(begin(0, "a"), LEDGER_GRANT);
	what.seq = verdict.seq;
	assert_int_equal(ask(&what), LEDGER_WAIT);
	becomes_durable(0, 0);
	assert_int_equal(ask(&what), LEDGER_GRANT);
	assert_true(verdict.streamed && verdict.now_streamed && verdict.granted_before);
	assert_int_equal(verdict.seq, what.seq);
}

static void who_waits_for_the_place_is_waited_for(void **state)
{
	struct ledger_ask what = {.rank = 1, .tag = "a"};
	uint64_t seq;

	start(3, MINUTE_NS);
	save(0, "a");
	save(2, "a");
	assert_int_equal(asks(0), 0); /* rank 1 never saved */
	assert_int_equal(begin(2, "a"), LEDGER_GRANT);
	seq = verdict.seq;
	save(0, "a");
	assert_int_equal(asks(0), -1); /* rank 2 has not staged it */
	assert_int_equal(ask(&what), LEDGER_WAIT);
	assert_int_equal(ledger_staged(&ledger, 2, seq), -1);
	assert_int_equal(ledger_missing_rank(&ledger), 1);
	becomes_durable(0, 0);
	assert_int_equal(ask(&what), LEDGER_GRANT);
	assert_true(ledger_staged(&ledger, 1, verdict.seq) >= 0);
}

/* ---- tags that fail ---- */

static void what_failed_is_refused_once_to_every_other_rank(void **state)
{
	start(3, 0);
	begin(0, "a");
	begin(1, "a");
	assert_true(ledger_fail_tag(&ledger, 1, "a", PAWL_ECHANGED, "it changed") >= 0);
	assert_int_equal(begin(2, "a"), LEDGER_REFUSE);
	assert_int_equal(verdict.code, PAWL_ECHANGED);
	assert_string_equal(verdict.why, "it changed");
	assert_int_equal(begin(2, "a"), LEDGER_GRANT); /* all ranks try again */
	assert_false(ledger.slots[verdict.slot].adds); /* a never was whole */
	save(0, "a");
	assert_int_equal(asks(0), -1);
	ledger_staged(&ledger, 2, verdict.seq);
	assert_true(save(1, "a") >= 0);
}

static void what_failed_waits_until_all_that_save_know(void **state)
{
	struct ledger_ask late = {.rank = 0, .tag = "b", .fits = true, .waited_ns = times.wait_ns};

	start(3, 0);
	for (uint32_t r = 0; r < 3; r++) {
		save(r, "a");
	}
	assert_int_equal(ledger_fail_tag(&ledger, 0, "b", PAWL_ENOMEM, "x"), -1);
	assert_int_equal(begin(0, "b"), LEDGER_WAIT); /* ranks 1 and 2 have not come to it */
	assert_int_equal(begin(1, "b"), LEDGER_REFUSE);
	assert_int_equal(begin(0, "b"), LEDGER_WAIT);
	assert_int_equal(ask(&late), LEDGER_REFUSE);
	leaves(2); /* rank 2 need not be notified any more */
	assert_int_equal(begin(0, "b"), LEDGER_GRANT);
	assert_int_equal(begin(1, "b"), LEDGER_GRANT);
}

/* Rank 1 is slow: it comes to each tag that failed only when rank 0 has given all of them up. */
static void who_is_behind_is_refused_each_tag_that_failed(void **state)
{
	char tag[8];

	start(2, 0);
	save(0, "a");
	for (int i = 0; i < LEDGER_FAILED_MAX; i++) {
		snprintf(tag, sizeof(tag), "b%d", i);
		assert_int_equal(ledger_fail_tag(&ledger, 0, tag, PAWL_ENOMEM, "x"), -1);
	}
	assert_true(save(1, "a") >= 0); /* a is older than all of them */
	assert_int_equal(save(0, "c"), -1);
	for (int i = 0; i < LEDGER_FAILED_MAX; i++) {
		snprintf(tag, sizeof(tag), "b%d", i);
		assert_int_equal(begin(1, tag), LEDGER_REFUSE);
	}
	assert_true(save(1, "c") >= 0); /* rank 1 was waited for all the time */
}

static void who_went_on_need_not_know_what_failed(void **state)
{
	start(2, 0);
	save(0, "a");
	save(1, "a");
	assert_int_equal(ledger_fail_tag(&ledger, 0, "b", PAWL_ENOMEM, "x"), -1);
	assert_int_equal(begin(1, "c"), LEDGER_GRANT);
	assert_int_equal(begin(0, "b"), LEDGER_WAIT); /* waits for c */
	assert_true(ledger_staged(&ledger, 1, verdict.seq) < 0);
}

static void more_room_for_what_failed_is_refused(void **state)
{
	struct ledger_ask more = {.rank = 1, .tag = "a", .fits = true};

	start(2, 0);
	begin(0, "a");
	begin(1, "a");
	more.seq = verdict.seq;
	assert_int_equal(ask(&more), LEDGER_GRANT);
	assert_true(verdict.granted_before);
	ledger_fail_tag(&ledger, 0, "a", PAWL_ENOMEM, "x");
	assert_int_equal(ask(&more), LEDGER_REFUSE);
	assert_int_equal(verdict.code, PAWL_ECANCELED);
	assert_int_equal(begin(0, "a"), LEDGER_GRANT); /* the next attempt */
	assert_true(verdict.seq != more.seq);
	assert_int_equal(ask(&more), LEDGER_REFUSE); /* rank 1 has no part in it */
	assert_int_equal(ledger_staged(&ledger, 1, more.seq), -1);
}

static void who_waits_too_long_fails_the_tag(void **state)
{
	struct ledger_ask late = {.rank = 0, .tag = "b", .fits = true, .waited_ns = times.wait_ns};

	start(2, 0);
	save(0, "a");
	begin(1, "a");
	assert_int_equal(ask(&late), LEDGER_REFUSE);
	assert_int_equal(verdict.code, PAWL_ETIMEDOUT);
	assert_non_null(strstr(verdict.why, "rank 1 has not staged a yet"));
	assert_true(ledger_staged(&ledger, 1, 1) >= 0);
	assert_int_equal(begin(1, "b"), LEDGER_REFUSE);
	assert_int_equal(begin(1, "b"), LEDGER_GRANT);
}

/* ---- steps ---- */

static void what_has_no_step_is_as_new_as_the_newest(void **state)
{
	struct ledger_ask what = {.step = 70, .tag = "a", .fits = true};

	start(1, 0);
	ledger_record_stored(&ledger, 30);
	save(0, "best");
	assert_int_equal(newest()->step, 30);
	assert_int_equal(ask(&what), LEDGER_GRANT);
	assert_true(ledger_staged(&ledger, 0, verdict.seq) >= 0);
	becomes_durable(0, 0);
	save(0, "best");
	assert_int_equal(newest()->step, 70);
}

/* Both saves of a tag go to the store, first the one, then the other, while a newer tag is
 * committed. The next save waits for the store, since its ranks could die before it is whole. */
static void the_newest_stays_while_a_tag_is_written_twice(void **state)
{
	struct ledger_ask next = {.step = LEDGER_STEP_NONE,
		.tag = "c",
		.fits = true,
		.fits_spare = true};
	struct ledger_ask what = next;
	int first, again, committed;

	start(1, 1);
	snprintf(what.tag, sizeof(what.tag), "a");
	assert_int_equal(ask(&what), LEDGER_GRANT);
	first = ledger_staged(&ledger, 0, verdict.seq);
	assert_int_equal(persist(MINUTE_NS), first);
	assert_int_equal(ask(&what), LEDGER_GRANT);
	again = ledger_staged(&ledger, 0, verdict.seq);
	assert_true(ledger.slots[again].adds && ledger.slots[first].urgent);
	snprintf(what.tag, sizeof(what.tag), "b");
	assert_int_equal(ask(&what), LEDGER_GRANT);
	committed = ledger_staged(&ledger, 0, verdict.seq);
	assert_int_equal(ask(&next), LEDGER_WAIT);
	assert_int_equal(ledger_newest(&ledger), committed);
	ledger_persisted(&ledger, first, true, MINUTE_NS);
	assert_int_equal(ask(&next), LEDGER_GRANT);
	assert_int_equal(verdict.slot, first);
	assert_false(verdict.overwrites_newest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_never_saved_is_not_waited_for_once_somebody_asks),
		cmocka_unit_test(who_saved_before_is_waited_for),
		cmocka_unit_test(who_goes_on_has_no_part),
		cmocka_unit_test(who_goes_on_or_leaves_speaks_for_itself_alone),
		cmocka_unit_test(who_left_is_not_waited_for),
		cmocka_unit_test(who_saves_alone_waits_for_nobody),
		cmocka_unit_test(who_died_is_waited_for),
		cmocka_unit_test(who_has_begun_is_waited_for_whatever_others_do),
		cmocka_unit_test(who_is_late_adds),
		cmocka_unit_test(rounds_are_not_mixed),
		cmocka_unit_test(who_lost_its_part_adds_it_again),
		cmocka_unit_test(the_newest_stays_while_a_tag_is_written_twice),
		cmocka_unit_test(what_is_added_to_becomes_durable_first),
		cmocka_unit_test(what_is_added_to_is_not_given_out),
		cmocka_unit_test(who_writes_by_itself_waits_for_the_place),
		cmocka_unit_test(who_outgrows_memory_waits_for_the_place),
		cmocka_unit_test(who_waits_for_the_place_is_waited_for),
		cmocka_unit_test(what_failed_is_refused_once_to_every_other_rank),
		cmocka_unit_test(what_failed_waits_until_all_that_save_know),
		cmocka_unit_test(who_is_behind_is_refused_each_tag_that_failed),
		cmocka_unit_test(who_went_on_need_not_know_what_failed),
		cmocka_unit_test(more_room_for_what_failed_is_refused),
		cmocka_unit_test(who_waits_too_long_fails_the_tag),
		cmocka_unit_test(what_has_no_step_is_as_new_as_the_newest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
