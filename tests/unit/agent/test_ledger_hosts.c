/* The ledgers of hosts of which one chooses what all make durable. */
#include "agent/ledger/ledger.h"

#include "ckpt/tags.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const struct ledger_times times = {.wait_ns = 30000000000LL, .retry_ns = 1000000000LL};
static struct ledger_verdict verdict; /* verdict of the last begin */
static int64_t again_ns;              /* result of the last persist_next */

static struct ledger start(enum ledger_role role)
{
	struct ledger ledger;

	ledger_init(&ledger, &times, 1, 1, 0);
	ledger.role = role;
	return ledger;
}

static enum ledger_answer begin(struct ledger *ledger, uint64_t seq)
{
	struct ledger_ask ask = {.seq = seq, .step = 100 * seq, .fits = true, .fits_spare = true};

	tag_of_step(ask.tag, sizeof(ask.tag), ask.step);
	return ledger_begin(ledger, &ask, &verdict);
}

/* Does a whole save. Returns its slot. */
static int save(struct ledger *ledger, uint64_t seq)
{
	assert_int_equal(begin(ledger, seq), LEDGER_GRANT);
	assert_int_equal(ledger_staged(ledger, 0, seq), verdict.slot);
	return verdict.slot;
}

/* Persists what is next. Returns the number of that save; 0: nothing. */
static uint64_t persist(struct ledger *ledger, int64_t now_ns, bool ok)
{
	int i = ledger_persist_next(ledger, now_ns, &again_ns);

	if (i < 0) {
		return 0;
	}
	ledger_persisted(ledger, i, ok, now_ns);
	return ledger->slots[i].seq;
}

static void saves_never_wait_for_the_leaders_storage(void **state)
{
	struct ledger ledger = start(LEDGER_LEADS);
	int first = save(&ledger, 1);

	assert_int_equal(ledger_persist_next(&ledger, 10, &again_ns), first);
	for (uint64_t seq = 2; seq <= 20; seq++) {
		save(&ledger, seq);
		assert_int_equal(ledger_persist_next(&ledger, 10 + (int64_t)seq, &again_ns), -1);
	}
	ledger_persisted(&ledger, first, true, 40);
	assert_int_equal(persist(&ledger, 50, true), 20);
	assert_true(ledger_all_durable(&ledger));
}

static void what_fails_at_the_leader_is_followed_by_the_next(void **state)
{
	struct ledger ledger = start(LEDGER_LEADS);
	int slot;

	ledger_set_interval(&ledger, 3600 * times.retry_ns);
	save(&ledger, 1);
	slot = save(&ledger, 2);
	ledger_want_durable(&ledger, 0);
	assert_int_equal(persist(&ledger, 10, false), 2);
	ledger_drop(&ledger, slot);
	ledger.flush = false;
	assert_int_equal(persist(&ledger, 10, true), 0);
	assert_int_equal(again_ns, 10 + times.retry_ns);
	assert_int_equal(persist(&ledger, again_ns, true), 1); /* in spite of the interval */
}

static void a_following_ledger_persists_what_is_chosen(void **state)
{
	struct ledger ledger = start(LEDGER_FOLLOWS);

	save(&ledger, 1);
	save(&ledger, 2);
	assert_int_equal(persist(&ledger, INT64_MAX / 2, true), 0);
	assert_int_equal(again_ns, INT64_MAX);
	assert_false(ledger_choose(&ledger, 3));
	assert_true(ledger_choose(&ledger, 1));
	assert_true(ledger_choose(&ledger, 2)); /* instead */
	assert_int_equal(begin(&ledger, 3), LEDGER_GRANT);
	assert_false(ledger_choose(&ledger, 3)); /* not committed yet */
	assert_int_equal(persist(&ledger, 10, true), 2);
	assert_int_equal(persist(&ledger, 20, true), 0);
	assert_int_equal(ledger_staged(&ledger, 0, 3), verdict.slot);
	assert_true(ledger_choose(&ledger, 3));
	assert_int_equal(persist(&ledger, 20, false), 3); /* is chosen no more */
	assert_int_equal(persist(&ledger, INT64_MAX / 2, true), 0);
	assert_true(ledger_choose(&ledger, 3));
	assert_int_equal(persist(&ledger, 20, true), 3); /* at once, though it has failed */
	assert_false(ledger_choose(&ledger, 3));
}

static void a_chosen_save_keeps_its_slot(void **state)
{
	struct ledger ledger = start(LEDGER_FOLLOWS);
	int first = save(&ledger, 1);

	assert_true(ledger_choose(&ledger, 1));
	for (uint64_t seq = 2; seq <= 9; seq++) {
		assert_int_not_equal(save(&ledger, seq), first);
	}
	assert_int_equal(persist(&ledger, 10, true), 1);
	assert_int_equal(save(&ledger, 10), first);
}

static void saves_become_durable_in_order(void **state)
{
	enum ledger_role roles[] = {LEDGER_LEADS, LEDGER_FOLLOWS};

	for (int r = 0; r < 2; r++) {
		struct ledger ledger = start(roles[r]);
		int first = save(&ledger, 1);
		int second;

		ledger.slots[first].readers = 1; /* otherwise its slot is the next */
		second = save(&ledger, 2);
		ledger_want_durable(&ledger, 0);
		assert_true(roles[r] == LEDGER_LEADS || ledger_choose(&ledger, 2));
		assert_int_equal(persist(&ledger, 10, true), 2);
		assert_true(ledger_is_passed(&ledger, first));
		assert_false(ledger_is_passed(&ledger, second));
		assert_false(ledger_want_durable(&ledger, 1));
		assert_true(ledger_want_durable(&ledger, 2));
		assert_int_equal(persist(&ledger, 20, true), 0);
		assert_true(ledger_all_durable(&ledger));
		assert_int_equal(ledger_wanted(&ledger), -1);
	}
}

static void what_somebody_waits_for_is_wanted(void **state)
{
	struct ledger ledger = start(LEDGER_FOLLOWS);
	int first = save(&ledger, 1);
	int second;

	assert_int_equal(ledger_wanted(&ledger), -1);
	assert_false(ledger_all_durable(&ledger));
	assert_true(ledger_want_durable(&ledger, 1));
	assert_int_equal(ledger_wanted(&ledger), first);
	second = save(&ledger, 2);
	assert_int_not_equal(second, first);
	ledger_want_durable(&ledger, 0);
	assert_int_equal(ledger_wanted(&ledger), first);
	assert_true(ledger_choose(&ledger, 1));
	assert_int_equal(ledger_wanted(&ledger), -1);
	assert_int_equal(persist(&ledger, 10, true), 1);
	assert_int_equal(ledger_wanted(&ledger), second);
	ledger_drop(&ledger, second);
	assert_int_equal(ledger_wanted(&ledger), -1);
	ledger.role = LEDGER_LEADS;
	save(&ledger, 3);
	ledger_want_durable(&ledger, 0);
	assert_int_equal(ledger_wanted(&ledger), -1); /* a leader decides itself */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(saves_never_wait_for_the_leaders_storage),
		cmocka_unit_test(what_fails_at_the_leader_is_followed_by_the_next),
		cmocka_unit_test(a_following_ledger_persists_what_is_chosen),
		cmocka_unit_test(a_chosen_save_keeps_its_slot),
		cmocka_unit_test(saves_become_durable_in_order),
		cmocka_unit_test(what_somebody_waits_for_is_wanted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
