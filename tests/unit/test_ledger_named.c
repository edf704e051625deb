/* The ledger of named saves: its rules by example, then its promises under random histories (the
 * seed is printed). */
#include "agent/ledger.h"

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

#define MINUTE_NS 60000000000LL

static struct ledger ledger;
static struct ledger_verdict verdict; /* of the last begin */

static void start(uint32_t world, int64_t interval_ns)
{
	ledger_init(&ledger, world, interval_ns, 0);
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

/* Begins and stages. Returns the slot if that committed it, else -1. */
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

/* The slot that goes to the store now. */
static int persist(int64_t now_ns)
{
	int64_t again_ns;

	return ledger_persist_next(&ledger, now_ns, &again_ns);
}

/* Its turn is now. */
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
	assert_int_equal(asks(1), -1); /* has no part in it: it may be about to save */
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
	assert_int_equal(ledger_missing(&ledger), 1);
	assert_true(save(1, "b") >= 0);
}

static void who_goes_on_has_no_part(void **state)
{
	start(2, MINUTE_NS);
	save(0, "a");
	save(1, "a");
	assert_int_equal(save(0, "b"), -1);
	assert_int_equal(begin(1, "c"), LEDGER_GRANT); /* and so b is whole */
	assert_string_equal(newest()->tag, "b");
	assert_false(ledger_has_part(&ledger, ledger_newest(&ledger), 1));
	assert_true(ledger_has_part(&ledger, ledger_newest(&ledger), 0));
}

static void who_goes_on_or_leaves_speaks_for_itself_alone(void **state)
{
	start(3, 0);
	assert_int_equal(save(0, "a"), -1);
	assert_int_equal(begin(1, "b"), LEDGER_WAIT); /* 2 may be about to save a */
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
	assert_true(save(1, "b") >= 0); /* nor for any later one */
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
	assert_int_equal(begin(2, "b"), LEDGER_WAIT); /* nor does anybody join it */
	assert_true(ledger_staged(&ledger, 1, 2) >= 0);
	assert_int_equal(begin(2, "b"), LEDGER_GRANT);
	assert_true(ledger.slots[verdict.slot].again);
}

static void who_died_is_waited_for(void **state)
{
	start(2, 0);
	assert_int_equal(save(0, "a"), -1);
	ledger_gone(&ledger, 1);
	assert_int_equal(asks(0), -1); /* it had begun, perhaps: nobody knows what */
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
	assert_true(ledger.slots[verdict.slot].again);
	assert_int_equal(ledger_staged(&ledger, 1, verdict.seq), 1); /* 0 has its part in it */
	assert_int_equal(begin(0, "b"), LEDGER_WAIT);
	becomes_durable(0, 0); /* in order */
	assert_int_equal(begin(0, "b"), LEDGER_GRANT);
	assert_int_equal(persist(0), 1);
}

/* Rank 0 is a round ahead of rank 1: no round of theirs gets half of another. */
static void rounds_are_not_mixed(void **state)
{
	start(2, 0);
	save(0, "a");
	assert_true(asks(0) >= 0);
	assert_int_equal(begin(1, "a"), LEDGER_GRANT);
	uint64_t first = verdict.seq;

	assert_int_equal(begin(0, "a"), LEDGER_WAIT); /* that one is the first round's */
	assert_int_equal(ledger_staged(&ledger, 1, first), 1);
	becomes_durable(0, 0);
	assert_int_equal(begin(0, "a"), LEDGER_GRANT);
	assert_true(ledger_staged(&ledger, 0, verdict.seq) < 0);
	assert_true(asks(0) < 0); /* in the second both are waited for */
	becomes_durable(1, 0);
	assert_int_equal(save(1, "a"), 0);
	assert_true(save(1, "a") < 0); /* and in the third */
}

static void what_is_added_to_becomes_durable_first(void **state)
{
	start(1, MINUTE_NS);
	assert_int_equal(save(0, "a"), 0);
	assert_int_equal(persist(0), -1); /* in a minute */
	assert_int_equal(save(0, "a"), 1);
	assert_int_equal(begin(0, "b"), LEDGER_WAIT);
	assert_int_equal(persist(0), 0);
	ledger_persisted(&ledger, 0, false, 0); /* full, for the moment */
	becomes_durable(0, LEDGER_RETRY_NS);
	assert_int_equal(persist(LEDGER_RETRY_NS), 1);
	assert_int_equal(begin(0, "b"), LEDGER_GRANT);
}

/* Between the two rounds another tag was saved, so that the first is the next to be overwritten. */
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
		assert_true(ledger.slots[1].again);
		assert_int_equal(persist(0), 0);
	}
}

static void who_writes_by_itself_waits_for_the_place(void **state)
{
	struct ledger_ask what = {.step = 1, .tag = "a"};

	start(1, MINUTE_NS);
	save(0, "a");
	assert_int_equal(ask(&what), LEDGER_WAIT); /* .pawl.a.new is the first one's */
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
	assert_true(verdict.streamed && verdict.turned && verdict.more);
	assert_int_equal(verdict.seq, what.seq);
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
	assert_int_equal(begin(2, "a"), LEDGER_GRANT);  /* tried again, by all */
	assert_false(ledger.slots[verdict.slot].again); /* it never was whole */
	save(0, "a");
	assert_int_equal(asks(0), -1);
	ledger_staged(&ledger, 2, verdict.seq);
	assert_true(save(1, "a") >= 0);
}

static void what_failed_waits_until_all_that_save_know(void **state)
{
	struct ledger_ask late = {.rank = 0, .tag = "b", .fits = true, .waited_ns = LEDGER_WAIT_NS};

	start(3, 0);
	for (uint32_t r = 0; r < 3; r++) {
		save(r, "a");
	}
	assert_int_equal(ledger_fail_tag(&ledger, 0, "b", PAWL_ENOMEM, "x"), -1);
	assert_int_equal(begin(0, "b"), LEDGER_WAIT); /* 1 and 2 have not come by */
	assert_int_equal(begin(1, "b"), LEDGER_REFUSE);
	assert_int_equal(begin(0, "b"), LEDGER_WAIT);
	assert_int_equal(ask(&late), LEDGER_REFUSE);
	leaves(2); /* has nothing to be told any more */
	assert_int_equal(begin(0, "b"), LEDGER_GRANT);
	assert_int_equal(begin(1, "b"), LEDGER_GRANT);
}

/* Rank 1 is slow: it comes to each of them only when rank 0 has given all of them up. */
static void who_is_behind_is_refused_each_tag_that_failed(void **state)
{
	char tag[8];

	start(2, 0);
	save(0, "a");
	for (int i = 0; i < LEDGER_FAILED; i++) {
		snprintf(tag, sizeof(tag), "b%d", i);
		assert_int_equal(ledger_fail_tag(&ledger, 0, tag, PAWL_ENOMEM, "x"), -1);
	}
	assert_true(save(1, "a") >= 0); /* which is older than all of them */
	assert_int_equal(save(0, "c"), -1);
	for (int i = 0; i < LEDGER_FAILED; i++) {
		snprintf(tag, sizeof(tag), "b%d", i);
		assert_int_equal(begin(1, tag), LEDGER_REFUSE);
	}
	assert_true(save(1, "c") >= 0); /* it was waited for all the time */
}

static void who_went_on_need_not_know_what_failed(void **state)
{
	start(2, 0);
	save(0, "a");
	save(1, "a");
	assert_int_equal(ledger_fail_tag(&ledger, 0, "b", PAWL_ENOMEM, "x"), -1);
	assert_int_equal(begin(1, "c"), LEDGER_GRANT);
	assert_int_equal(begin(0, "b"), LEDGER_WAIT); /* for c */
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
	assert_true(verdict.more);
	ledger_fail_tag(&ledger, 0, "a", PAWL_ENOMEM, "x");
	assert_int_equal(ask(&more), LEDGER_REFUSE);
	assert_int_equal(verdict.code, PAWL_ECANCELED);
	assert_int_equal(begin(0, "a"), LEDGER_GRANT); /* the next attempt */
	assert_true(verdict.seq != more.seq);
	assert_int_equal(ask(&more), LEDGER_REFUSE); /* has no part in it */
	assert_int_equal(ledger_staged(&ledger, 1, more.seq), -1);
}

static void who_waits_too_long_fails_the_tag(void **state)
{
	struct ledger_ask late = {.rank = 0, .tag = "b", .fits = true, .waited_ns = LEDGER_WAIT_NS};

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
	ledger_know_step(&ledger, 30);
	save(0, "best");
	assert_int_equal(newest()->step, 30);
	assert_int_equal(ask(&what), LEDGER_GRANT);
	assert_true(ledger_staged(&ledger, 0, verdict.seq) >= 0);
	becomes_durable(0, 0);
	save(0, "best");
	assert_int_equal(newest()->step, 70);
}

/* ---- random histories ---- */

#define RANKS    4
#define TAGS     1024
#define ATTEMPTS 4096
#define EVENTS   1000

enum doing { IDLE, WAITING, BUILDING, LEFT, DEAD };

/* A rank as it knows itself. */
struct rank {
	enum doing doing;
	struct ledger_ask ask; /* WAITING, BUILDING */
	uint32_t next;         /* of its tags: "0", "1", ... */
	uint32_t at;           /* the newest it has begun or given up */
	bool saved;            /* it has begun one */
	uint64_t alive;        /* DEAD: the newest save when it died */
	bool untold[TAGS];     /* this one failed, and it has not come by */
};

/* What is known of one save, by its number. */
struct attempt {
	uint32_t tag;        /* which */
	bool granted[RANKS]; /* began it */
	bool staged[RANKS];  /* staged it */
	bool past[RANKS];    /* has begun another tag since it was started */
	bool late;           /* whose starter had no part in the tag's newest round */
	bool failed;         /* for all */
	bool committed;      /* is whole */
	bool durable;        /* in the store */
};

struct world {
	struct rng rng;
	uint32_t n; /* ranks */
	struct rank ranks[RANKS];
	struct attempt attempts[ATTEMPTS]; /* by number */
	bool in_round[TAGS][RANKS];        /* has a part in the newest round of a tag */
	uint64_t at[LEDGER_SLOTS];         /* number of what is in a slot */
	int persisting;                    /* slot; -1: none */
	int64_t now_ns;                    /* of the agent's clock */
	bool fits;                         /* memory suffices */
	bool orderly;                      /* all ranks save all tags once, and nobody is late: then
					      what failed is refused once to every other rank */
};

static struct world w;

static bool chance(uint32_t one_in)
{
	return rng_below(&w.rng, one_in) == 0;
}

/* What must hold of a tag that has just become whole. */
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

/* A rank begins a tag, and is not told that it failed: it has no part in any other. */
static void note_past(uint32_t r)
{
	bool refused = w.orderly && w.ranks[r].untold[w.ranks[r].at];

	for (uint64_t i = 1; i <= ledger.last_seq && !refused; i++) {
		w.attempts[i].past[r] = w.attempts[i].past[r] || w.attempts[i].tag != w.ranks[r].at;
	}
}

static void note_move(int slot)
{
	if (slot >= 0) {
		check_whole(slot);
	}
}

/* The tag is void; who is in it is told at once, the others when they come to it. */
static void note_failed(uint32_t tag, uint32_t by, int slot)
{
	struct attempt *attempt = slot >= 0 ? &w.attempts[w.at[slot]] : NULL;

	for (uint32_t r = 0; r < w.n; r++) {
		struct rank *rank = &w.ranks[r];
		bool in = r == by || (attempt && attempt->granted[r]);

		rank->untold[tag] = !in && (rank->untold[tag] || rank->at <= tag);
		if (in && rank->doing == BUILDING && rank->ask.seq == w.at[slot] && chance(2)) {
			rank->doing = IDLE; /* else it goes on, and is refused */
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
	note_failed(tag, r, ledger_fail_tag(&ledger, r, name, PAWL_ENOMEM, "x"));
}

static void note_grant(uint32_t r)
{
	struct rank *rank = &w.ranks[r];
	struct attempt *attempt = &w.attempts[verdict.seq];

	assert_true(verdict.seq < ATTEMPTS);
	assert_false(attempt->failed || attempt->committed);
	assert_false(w.orderly && rank->untold[rank->at]);
	rank->untold[rank->at] = false;
	assert_int_equal(verdict.more, attempt->granted[r]);
	assert_true(rank->ask.seq == 0 || rank->ask.seq == verdict.seq);
	for (int s = 0; s < LEDGER_SLOTS; s++) { /* two are not built in one place */
		const struct ledger_slot *slot = &ledger.slots[s];

		assert_true(!verdict.streamed || slot->state != SLOT_COMMITTED || slot->durable ||
			strcmp(slot->tag, rank->ask.tag) != 0);
	}
	attempt->tag = rank->at;
	attempt->late = verdict.fresh ? ledger.slots[verdict.slot].again && !w.in_round[rank->at][r]
				      : attempt->late;
	attempt->granted[r] = true;
	w.at[verdict.slot] = verdict.seq;
	rank->ask.seq = verdict.seq;
	rank->doing = BUILDING;
}

static void note_refused(uint32_t r)
{
	struct rank *rank = &w.ranks[r];

	rank->doing = IDLE;
	if (verdict.withdrawn >= 0 ||
		(rank->ask.seq == 0 && verdict.code == PAWL_ETIMEDOUT)) { /* it waited too long */
		note_failed(rank->at, r, verdict.withdrawn);
	} else if (rank->ask.seq == 0) {
		assert_true(!w.orderly || rank->untold[rank->at]); /* once */
		rank->untold[rank->at] = false;
	} else {
		assert_true(w.attempts[rank->ask.seq].failed);
	}
}

/* Puts a rank's question, as often as it takes. */
static void asks_for_slot(uint32_t r)
{
	struct rank *rank = &w.ranks[r];
	enum ledger_answer answer;

	if (rank->ask.seq == 0) {
		note_past(r);
		note_move(ledger_move_on(&ledger, r, MOVE_BEGINS, rank->ask.tag));
	}
	rank->ask.fits = w.fits;
	rank->ask.spare = w.fits && !chance(10);
	answer = ledger_begin(&ledger, &rank->ask, &verdict);
	rank->saved = true;
	if (answer == LEDGER_GRANT) {
		note_grant(r);
	} else if (answer == LEDGER_WAIT) {
		rank->doing = WAITING;
	} else {
		note_refused(r);
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
	note_move(slot);
}

static void dies(uint32_t r)
{
	w.ranks[r].doing = DEAD;
	w.ranks[r].alive = ledger.last_seq;
	ledger_gone(&ledger, r);
}

static void idles(uint32_t r)
{
	struct rank *rank = &w.ranks[r];

	if (chance(200)) {
		rank->doing = LEFT;
		note_move(ledger_move_on(&ledger, r, MOVE_LEAVES, NULL));
	} else if (chance(400)) {
		dies(r);
	} else if (chance(5)) {
		note_move(ledger_move_on(&ledger, r, MOVE_ASKS, NULL));
	} else if (chance(20)) { /* before it asked */
		fails(r, rank->next++);
	} else {
		rank->at = !w.orderly && chance(4) ? rank->at : rank->next;
		rank->next = rank->at + 1 + (!w.orderly && chance(20));
		rank->ask = (struct ledger_ask){.rank = r, .step = rank->at};
		snprintf(rank->ask.tag, sizeof(rank->ask.tag), "%u", rank->at);
		asks_for_slot(r);
	}
}

/* Whether r is as far ahead of some other rank as the ledger promises anything for. */
static bool is_ahead(uint32_t r)
{
	uint32_t slowest = w.ranks[r].next;

	for (uint32_t i = 0; i < w.n; i++) {
		const struct rank *rank = &w.ranks[i];
		bool saves = rank->doing != LEFT && rank->doing != DEAD;

		slowest = saves && rank->at < slowest ? rank->at : slowest;
	}
	return w.orderly && w.ranks[r].next >= slowest + LEDGER_FAILED;
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
		rank->ask.waited_ns = chance(50) ? LEDGER_WAIT_NS : 0;
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

/* What is added to is in the store before what adds to it. */
static void note_durable(uint64_t seq)
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
		note_durable(w.at[w.persisting]);
	} else if (ledger.slots[w.persisting].streamed) {
		w.attempts[w.at[w.persisting]].committed = false; /* lost, and said so */
	}
	ledger_persisted(&ledger, w.persisting, ok, w.now_ns);
	w.persisting = -1;
}

/* Whether no rank does anything but wait, and there is one that does. */
static bool is_stuck(void)
{
	bool waits = false;
	bool acts = false;

	for (uint32_t r = 0; r < w.n; r++) {
		waits = waits || w.ranks[r].doing == WAITING;
		acts = acts || w.ranks[r].doing == IDLE || w.ranks[r].doing == BUILDING ||
			w.ranks[r].doing == DEAD; /* that one is waited for, rightly */
	}
	return waits && !acts;
}

/* Ranks that wait get on, if only storage does. */
static void check_alive(void)
{
	for (int i = 0; is_stuck(); i++) {
		assert_true(i < 100);
		w.now_ns += 2 * LEDGER_RETRY_NS;
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
	start(w.n, chance(2) ? 0 : MINUTE_NS);
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
		cmocka_unit_test(what_is_added_to_becomes_durable_first),
		cmocka_unit_test(what_is_added_to_is_not_given_out),
		cmocka_unit_test(who_writes_by_itself_waits_for_the_place),
		cmocka_unit_test(who_outgrows_memory_waits_for_the_place),
		cmocka_unit_test(what_failed_is_refused_once_to_every_other_rank),
		cmocka_unit_test(what_failed_waits_until_all_that_save_know),
		cmocka_unit_test(who_is_behind_is_refused_each_tag_that_failed),
		cmocka_unit_test(who_went_on_need_not_know_what_failed),
		cmocka_unit_test(more_room_for_what_failed_is_refused),
		cmocka_unit_test(who_waits_too_long_fails_the_tag),
		cmocka_unit_test(what_has_no_step_is_as_new_as_the_newest),
		cmocka_unit_test(promises_hold_under_random_histories),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
