/* The ledger of named saves: its promises under random histories (the seed is printed). Its rules
 * by example are in test_ledger_named.c. */
#include "agent/ledger/ledger.h"

#include "base/rng.h"
#include "pawl/err.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS    4
#define TAGS     1024
#define ATTEMPTS 4096
#define EVENTS   1000

#define MINUTE_NS 60000000000LL

enum doing { IDLE, WAITING, BUILDING, LEFT, DEAD };

/* A rank as it knows itself. */
struct rank {
	enum doing doing;
	struct ledger_ask ask; /* the request, while WAITING or BUILDING */
	uint32_t next;         /* number of its next tag: "0", "1", ... */
	uint32_t at;           /* the newest tag that it has begun or given up */
	bool saved;            /* has begun a save */
	uint64_t alive;        /* while DEAD: the newest save when it died */
	bool unnotified[TAGS]; /* by tag: failed, and the rank has not come to it since */
};

/* State of one save, by its number. */
struct attempt {
	uint32_t tag;        /* number of the save's tag */
	bool granted[RANKS]; /* by rank: has begun it */
	bool staged[RANKS];  /* by rank: has staged it */
	bool past[RANKS];    /* by rank: has begun another tag since it was started */
	bool late;           /* the starter had no part in the tag's newest round */
	bool failed;         /* failed for all ranks */
	bool committed;      /* is whole */
	bool durable;        /* in the store */
};

struct world {
	struct rng rng;
	uint32_t n; /* ranks */
	struct rank ranks[RANKS];
	struct attempt attempts[ATTEMPTS]; /* by number */
	bool in_round[TAGS][RANKS];        /* has a part in the newest round of a tag */
	uint64_t at[LEDGER_SLOTS];         /* number of the save in each slot */
	int persisting;                    /* slot that is being written; -1: none */
	int64_t now_ns;                    /* time of the agent's clock */
	bool fits;                         /* memory suffices for a save */
	/* All ranks save all tags once, and nobody is late: a failed tag is then refused once to
	 * every other rank. */
	bool orderly;
};

static struct world w;
static const struct ledger_times times = {.wait_ns = 30000000000LL, .retry_ns = 1000000000LL};
static struct ledger ledger;
static struct ledger_verdict verdict; /* verdict of the last begin */

static bool chance(uint32_t one_in)
{
	return rng_below(&w.rng, one_in) == 0;
}

/* Checks what must hold of a tag that has just become whole. */
static void check_whole(int slot)
{
	struct attempt *attempt = &w.attempts[w.at[slot]];

	assert_false(attempt->failed || attempt->committed);
	attempt->committed = true;
	for (uint32_t r = 0; r < w.n; r++) {
		const struct rank *rank = &w.ranks[r];
		bool has_part = attempt->granted[r];
		bool *in = &w.in_round[attempt->tag][r];

		assert_int_equal(ledger_has_part(&ledger, slot, r), has_part);
		assert_true(!has_part || attempt->staged[r]);
		assert_true(has_part || rank->doing != DEAD || w.at[slot] <= rank->alive);
		assert_true(has_part || !rank->saved || rank->doing == LEFT || attempt->past[r] ||
			(attempt->late && *in));
		assert_false(attempt->late && *in && has_part);
		*in = has_part || (attempt->late && *in);
	}
}

/* A rank begins a tag. Unless it is refused, because the tag has failed, it is past all other
 * tags. */
static void on_begin(uint32_t r)
{
	bool refused = w.orderly && w.ranks[r].unnotified[w.ranks[r].at];

	for (uint64_t i = 1; i <= ledger.last_seq && !refused; i++) {
		w.attempts[i].past[r] = w.attempts[i].past[r] || w.attempts[i].tag != w.ranks[r].at;
	}
}

static void on_move(int slot)
{
	if (slot >= 0) {
		check_whole(slot);
	}
}

/* A tag has failed. Its ranks are notified at once, the others when they come to it. */
static void on_failed(uint32_t tag, uint32_t by, int slot)
{
	struct attempt *attempt = slot >= 0 ? &w.attempts[w.at[slot]] : NULL;

	for (uint32_t r = 0; r < w.n; r++) {
		struct rank *rank = &w.ranks[r];
		bool in = r == by || (attempt && attempt->granted[r]);

		rank->unnotified[tag] = !in && (rank->unnotified[tag] || rank->at <= tag);
		if (in && rank->doing == BUILDING && rank->ask.seq == w.at[slot] && chance(2)) {
			rank->doing = IDLE; /* otherwise it goes on, and is refused */
		}
	}
	if (attempt) {
		assert_false(attempt->committed);
		attempt->failed = true;
	}
}

static void fails(uint32_t r, uint32_t tag)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", tag);
	w.ranks[r].doing = IDLE;
	w.ranks[r].at = tag;
	on_failed(tag, r, ledger_fail_tag(&ledger, r, name, PAWL_ENOMEM, "x"));
}

/* Returns whether the last request of some rank found no memory for a third save. */
static bool is_tight(void)
{
	uint64_t tight = 0;

	for (uint32_t i = 0; i < LEDGER_SET_WORDS; i++) {
		tight |= ledger.no_spare_ranks.words[i];
	}
	return tight != 0;
}

static void on_grant(uint32_t r)
{
	struct rank *rank = &w.ranks[r];
	struct attempt *attempt = &w.attempts[verdict.seq];

	assert_true(verdict.seq < ATTEMPTS);
	assert_false(attempt->failed || attempt->committed);
	assert_false(w.orderly && rank->unnotified[rank->at]);
	rank->unnotified[rank->at] = false;
	assert_int_equal(verdict.granted_before, attempt->granted[r]);
	assert_true(rank->ask.seq == 0 || rank->ask.seq == verdict.seq);
	for (int s = 0; s < LEDGER_SLOTS; s++) { /* Two saves are not built in one place. */
		const struct ledger_slot *slot = &ledger.slots[s];

		assert_true(!verdict.streamed || slot->state != SLOT_COMMITTED || slot->durable ||
			strcmp(slot->tag, rank->ask.tag) != 0);
	}
	/* Where memory takes a third save, the newest stays until a newer one is committed. */
	assert_true(!verdict.overwrites_newest || is_tight());
	attempt->tag = rank->at;
	attempt->late = verdict.fresh ? ledger.slots[verdict.slot].adds && !w.in_round[rank->at][r]
				      : attempt->late;
	attempt->granted[r] = true;
	w.at[verdict.slot] = verdict.seq;
	rank->ask.seq = verdict.seq;
	rank->doing = BUILDING;
}

static void on_refused(uint32_t r)
{
	struct rank *rank = &w.ranks[r];

	rank->doing = IDLE;
	if (verdict.failed_slot >= 0 ||
		/* The rank has waited too long. */
		(rank->ask.seq == 0 && verdict.code == PAWL_ETIMEDOUT)) {
		on_failed(rank->at, r, verdict.failed_slot);
	} else if (rank->ask.seq == 0) {
		assert_true(!w.orderly || rank->unnotified[rank->at]); /* refused only once */
		rank->unnotified[rank->at] = false;
	} else {
		assert_true(w.attempts[rank->ask.seq].failed);
	}
}

/* Asks for a slot; called again as often as it takes. */
static void asks_for_slot(uint32_t r)
{
	struct rank *rank = &w.ranks[r];
	enum ledger_answer answer;

	if (rank->ask.seq == 0) {
		on_begin(r);
		on_move(ledger_move_on(&ledger, r, MOVE_BEGINS, rank->ask.tag));
	}
	rank->ask.fits = w.fits;
	rank->ask.fits_spare = w.fits && !chance(10);
	answer = ledger_begin(&ledger, &rank->ask, &verdict);
	rank->saved = true;
	if (answer == LEDGER_GRANT) {
		on_grant(r);
	} else if (answer == LEDGER_WAIT) {
		rank->doing = WAITING;
	} else {
		on_refused(r);
	}
}

static void stages(uint32_t r)
{
	struct rank *rank = &w.ranks[r];
	struct attempt *attempt = &w.attempts[rank->ask.seq];
	int slot;

	attempt->staged[r] = true;
	rank->doing = IDLE;
	slot = ledger_staged(&ledger, r, rank->ask.seq);
	assert_true(slot < 0 || !attempt->failed);
	on_move(slot);
}

static void dies(uint32_t r)
{
	w.ranks[r].doing = DEAD;
	w.ranks[r].alive = ledger.last_seq;
	ledger_rank_died(&ledger, r);
}

static void idles(uint32_t r)
{
	struct rank *rank = &w.ranks[r];

	if (chance(200)) {
		rank->doing = LEFT;
		on_move(ledger_move_on(&ledger, r, MOVE_LEAVES, NULL));
	} else if (chance(400)) {
		dies(r);
	} else if (chance(5)) {
		on_move(ledger_move_on(&ledger, r, MOVE_ASKS, NULL));
	} else if (chance(20)) { /* before the rank has asked */
		fails(r, rank->next++);
	} else {
		rank->at = !w.orderly && chance(4) ? rank->at : rank->next;
		rank->next = rank->at + 1 + (!w.orderly && chance(20));
		rank->ask = (struct ledger_ask){.rank = r, .step = rank->at};
		snprintf(rank->ask.tag, sizeof(rank->ask.tag), "%u", rank->at);
		asks_for_slot(r);
	}
}

/* Returns whether r is as far ahead of some other rank as the ledger's promises reach. */
static bool is_ahead(uint32_t r)
{
	uint32_t slowest = w.ranks[r].next;

	for (uint32_t i = 0; i < w.n; i++) {
		const struct rank *rank = &w.ranks[i];
		bool saves = rank->doing != LEFT && rank->doing != DEAD;

		slowest = saves && rank->at < slowest ? rank->at : slowest;
	}
	return w.orderly && w.ranks[r].next >= slowest + LEDGER_FAILED_MAX;
}

static void acts(uint32_t r)
{
	struct rank *rank = &w.ranks[r];

	if (is_ahead(r)) {
		return;
	}
	if (rank->doing == IDLE) {
		idles(r);
	} else if (rank->doing == WAITING) {
		rank->ask.waited_ns = chance(50) ? times.wait_ns : 0;
		asks_for_slot(r);
	} else if (rank->doing == BUILDING && chance(400)) {
		dies(r);
	} else if (rank->doing == BUILDING && chance(10)) {
		fails(r, rank->at);
	} else if (rank->doing == BUILDING && chance(5)) {
		rank->ask.waited_ns = 0;
		asks_for_slot(r);
	} else if (rank->doing == BUILDING) {
		stages(r);
	}
}

/* A save that is added to is in the store before the one that adds to it. */
static void on_durable(uint64_t seq)
{
	struct attempt *attempt = &w.attempts[seq];

	assert_true(attempt->committed && !attempt->durable);
	attempt->durable = true;
	for (uint64_t i = 1; i < seq && ledger.interval_ns == 0; i++) {
		const struct attempt *before = &w.attempts[i];

		assert_true(before->tag != attempt->tag || !before->committed || before->durable);
	}
}

static void stores(void)
{
	int64_t again_ns;
	bool ok = !chance(4);

	if (w.persisting < 0) {
		w.persisting = ledger_persist_next(&ledger, w.now_ns, &again_ns);
		return;
	}
	if (ok) {
		on_durable(w.at[w.persisting]);
	} else if (ledger.slots[w.persisting].streamed) {
		w.attempts[w.at[w.persisting]].committed = false; /* lost, and reported */
	}
	ledger_persisted(&ledger, w.persisting, ok, w.now_ns);
	w.persisting = -1;
}

/* Returns whether no rank does anything but wait, and at least one waits. */
static bool is_stuck(void)
{
	bool waits = false;
	bool acts = false;

	for (uint32_t r = 0; r < w.n; r++) {
		waits = waits || w.ranks[r].doing == WAITING;
		acts = acts || w.ranks[r].doing == IDLE || w.ranks[r].doing == BUILDING ||
			w.ranks[r].doing == DEAD; /* a dead rank is waited for, rightly */
	}
	return waits && !acts;
}

/* Checks that ranks that wait get on, if only storage does. */
static void check_alive(void)
{
	for (int i = 0; is_stuck(); i++) {
		assert_true(i < 100);
		w.now_ns += 2 * times.retry_ns;
		stores();
		for (uint32_t r = 0; r < w.n; r++) {
			if (w.ranks[r].doing == WAITING) {
				w.ranks[r].ask.waited_ns = 0;
				asks_for_slot(r);
			}
		}
	}
}

static void random_history(uint64_t seed)
{
	memset(&w, 0, sizeof(w));
	w.rng = (struct rng){seed};
	w.n = 1 + (uint32_t)rng_below(&w.rng, RANKS);
	w.persisting = -1;
	w.fits = !chance(4);
	w.orderly = chance(2);
	ledger_init(&ledger, &times, w.n, chance(2) ? 0 : MINUTE_NS, 0);
	ledger.named = true;
	for (uint32_t r = 0; w.orderly && r < w.n; r++) {
		w.ranks[r].next = 1;
		w.ranks[r].ask = (struct ledger_ask){.rank = r, .tag = "0"};
		asks_for_slot(r);
	}
	for (int i = 0; i < EVENTS; i++) {
		uint32_t staging = 0;

		w.now_ns += (int64_t)rng_below(&w.rng, MINUTE_NS / 10);
		w.fits = w.fits && !chance(500);
		acts((uint32_t)rng_below(&w.rng, w.n));
		if (chance(3)) {
			stores();
		}
		for (int s = 0; s < LEDGER_SLOTS; s++) {
			staging += ledger.slots[s].state == SLOT_STAGING;
		}
		assert_true(staging <= 1);
		check_alive();
	}
}

static void promises_hold_under_random_histories(void **state)
{
	uint64_t seed = test_seed();

	for (uint64_t i = 0; i < 2000; i++) {
		random_history(seed + i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(promises_hold_under_random_histories),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
