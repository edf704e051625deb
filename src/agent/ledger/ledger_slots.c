/* The slots of the ledger: which one is given to a save, which one goes to the store next. See
 * ledger.h for the rules. Pure. */
#include "agent/ledger/ledger_impl.h"

bool slot_is_older(const struct ledger_slot *a, const struct ledger_slot *b)
{
	return a->order < b->order;
}

bool ledger_is_outdated(const struct ledger *ledger, int i)
{
	return ledger->slots[i].order < ledger->store_only_order;
}

static bool is_lower(const struct ledger_slot *a, const struct ledger_slot *b)
{
	return a->step < b->step || (a->step == b->step && slot_is_older(a, b));
}

/* Finds the last, by an order, of the committed slots that are not older than the store's; -1:
 * none. */
static int find_last(const struct ledger *ledger, bool streamed,
	bool (*is_before)(const struct ledger_slot *a, const struct ledger_slot *b))
{
	int last = -1;

	for (int i = 0; i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &ledger->slots[i];

		if (slot->state == SLOT_COMMITTED && (streamed || !slot->streamed) &&
			!ledger_is_outdated(ledger, i) &&
			(last < 0 || is_before(&ledger->slots[last], slot))) {
			last = i;
		}
	}
	return last;
}

int ledger_newest(const struct ledger *ledger)
{
	return find_last(ledger, false, slot_is_older);
}

int ledger_highest(const struct ledger *ledger, bool streamed)
{
	return find_last(ledger, streamed, is_lower);
}

/* Whether a newer save is durable, and this one need not be. */
static bool is_passed(const struct ledger *ledger, const struct ledger_slot *slot)
{
	return ledger->role != LEDGER_ALONE && slot->order < ledger->durable_order;
}

bool ledger_is_passed(const struct ledger *ledger, int i)
{
	return is_passed(ledger, &ledger->slots[i]);
}

/* Whether the slot must become durable: a rank waits for it, or all hosts are to do it now, or the
 * save is streamed and has no other copy, or every save must. */
static bool must_persist(const struct ledger *ledger, const struct ledger_slot *slot)
{
	return !slot->durable && !is_passed(ledger, slot) &&
		(slot->urgent || slot->chosen || slot->streamed || ledger->interval_ns == 0);
}

/* Whether memory holds a whole checkpoint besides the one in slot i. */
static bool has_other(const struct ledger *ledger, int i)
{
	bool found = false;

	for (int s = 0; s < LEDGER_SLOTS; s++) {
		const struct ledger_slot *slot = &ledger->slots[s];

		found = found || (s != i && slot->state == SLOT_COMMITTED && !slot->streamed);
	}
	return found;
}

/* Whether no rank or thread uses the slot, and its save need not be persisted. */
static bool is_idle(const struct ledger *ledger, int i)
{
	const struct ledger_slot *slot = &ledger->slots[i];

	if (slot->persisting || slot->readers > 0 || slot->state == SLOT_STAGING) {
		return false;
	}
	return slot->state == SLOT_EMPTY || !must_persist(ledger, slot);
}

/* Whether memory has space for the spare slot of all ranks. */
static bool has_spare(const struct ledger *ledger)
{
	return has_no_rank(&ledger->no_spare_ranks);
}

/* Whether slot a is given out before b: empty ones first, then older ones. */
static bool is_before(const struct ledger_slot *a, const struct ledger_slot *b)
{
	bool empty = a->state == SLOT_EMPTY;

	return empty == (b->state == SLOT_EMPTY) ? slot_is_older(a, b) : empty;
}

/* Whether the newest committed slot may be given out although its save is then in memory no more:
 * memory takes no third save, or the store has this one. */
static bool may_overwrite(const struct ledger *ledger, int newest)
{
	return newest >= 0 && is_idle(ledger, newest) && has_other(ledger, newest) &&
		(ledger->slots[newest].durable || !has_spare(ledger));
}

/* Prefers a slot in use, then the spare one, then the newest committed one. With interval_ns 0 a
 * save waits for the store, not for memory. */
int ledger_pick_slot(const struct ledger *ledger)
{
	const struct ledger_slot *slots = ledger->slots;
	bool spare = has_spare(ledger);
	int newest = ledger_newest(ledger);
	int best = -1;

	for (int i = 0; i < LEDGER_SLOTS; i++) {
		bool in_use = i != LEDGER_SPARE || (spare && slots[i].state != SLOT_EMPTY);

		if (in_use && i != newest && is_idle(ledger, i) &&
			(best < 0 || is_before(&slots[i], &slots[best]))) {
			best = i;
		}
	}
	if (best >= 0) {
		return best;
	}
	if (spare && ledger->interval_ns > 0 && newest != LEDGER_SPARE &&
		is_idle(ledger, LEDGER_SPARE)) {
		return LEDGER_SPARE;
	}
	return may_overwrite(ledger, newest) ? newest : -1;
}

bool ledger_is_next(const struct ledger *ledger, int i)
{
	bool busy = false;

	for (int s = 0; s < LEDGER_SLOTS; s++) {
		busy = busy || ledger->slots[s].persisting || ledger->slots[s].readers > 0;
	}
	if (ledger->slots[i].state != SLOT_EMPTY || !is_idle(ledger, i)) {
		return false;
	}
	/* With interval_ns 0 a save waits for the store, not for memory. */
	return i != LEDGER_SPARE || (busy && has_spare(ledger) && ledger->interval_ns > 0);
}

bool ledger_is_spare_unused(const struct ledger *ledger)
{
	return !has_spare(ledger) && ledger->slots[LEDGER_SPARE].state == SLOT_EMPTY &&
		is_idle(ledger, LEDGER_SPARE);
}

void ledger_update_spare(struct ledger *ledger, const struct ledger_ask *ask)
{
	if (ask->fits_spare) {
		clear_rank(&ledger->no_spare_ranks, ask->rank);
		return;
	}
	set_rank(&ledger->no_spare_ranks, ask->rank);
	if (ledger_newest(ledger) != LEDGER_SPARE && is_idle(ledger, LEDGER_SPARE)) {
		ledger->slots[LEDGER_SPARE].state = SLOT_EMPTY;
	}
}

bool ledger_all_durable(const struct ledger *ledger)
{
	int newest = ledger_newest(ledger);

	for (int i = 0; i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &ledger->slots[i];

		if (slot->persisting) {
			return false;
		}
		if (slot->state == SLOT_COMMITTED && !slot->durable && !is_passed(ledger, slot) &&
			(i == newest || slot->streamed || ledger->interval_ns == 0)) {
			return false;
		}
	}
	return true;
}

/* Returns the oldest slot that must be persisted, else the newest if it is not durable; -1:
 * none. */
static int find_undurable(const struct ledger *ledger)
{
	int newest = ledger_newest(ledger);
	int best = -1;

	for (int i = 0; i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &ledger->slots[i];

		if (slot->state == SLOT_COMMITTED && must_persist(ledger, slot) &&
			(best < 0 || slot_is_older(slot, &ledger->slots[best]))) {
			best = i;
		}
	}
	return best >= 0 || newest < 0 || ledger->slots[newest].durable ||
			is_passed(ledger, &ledger->slots[newest])
		? best
		: newest;
}

static int find_chosen(const struct ledger *ledger)
{
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		if (ledger->slots[i].state == SLOT_COMMITTED && ledger->slots[i].chosen) {
			return i;
		}
	}
	return -1;
}

int ledger_pick_persist(const struct ledger *ledger)
{
	return ledger->role == LEDGER_FOLLOWS ? find_chosen(ledger) : find_undurable(ledger);
}

int ledger_wanted(const struct ledger *ledger)
{
	int i = ledger->role == LEDGER_FOLLOWS ? find_undurable(ledger) : -1;

	if (i < 0 || ledger->slots[i].persisting || find_chosen(ledger) >= 0) {
		return -1;
	}
	return ledger->slots[i].urgent || ledger->slots[i].streamed || ledger->flush ? i : -1;
}
