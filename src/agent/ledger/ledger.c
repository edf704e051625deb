/* Saves and their slots, from begin to durable, and how saves are matched by number: see ledger.h
 * for the rules. Pure. */
#include "agent/ledger/ledger_impl.h"

#include "base/assert.h"
#include "pawl/err.h"

#include <stdio.h>
#include <string.h>

static struct ledger_slot *find_seq(struct ledger *ledger, uint64_t seq, enum slot_state state)
{
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		struct ledger_slot *slot = &ledger->slots[i];

		if (slot->state == state && slot->seq == seq) {
			return slot;
		}
	}
	return NULL;
}

struct ledger_slot *ledger_find_staging(struct ledger *ledger)
{
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		if (ledger->slots[i].state == SLOT_STAGING) {
			return &ledger->slots[i];
		}
	}
	return NULL;
}

void ledger_init(struct ledger *ledger, const struct ledger_times *times, uint32_t world,
	int64_t interval_ns, int64_t now_ns)
{
	ASSERT(world >= 1 && world <= LEDGER_RANKS_MAX);
	memset(ledger, 0, sizeof(*ledger));
	ledger->times = *times;
	ledger->world = world;
	ledger->interval_ns = interval_ns;
	ledger->persist_due_ns = now_ns + interval_ns;
}

void ledger_new_epoch(struct ledger *ledger, uint32_t world)
{
	ASSERT(world >= 1 && world <= LEDGER_RANKS_MAX);
	ledger->world = world;
	ledger->refused_seq = 0;
	ledger->last_seq = 0;
	ledger->durable_order = 0;
	ledger->known_n = 0;
	memset(ledger->failed, 0, sizeof(ledger->failed));
	ledger->no_spare_ranks = (struct rank_set){0};
	ledger->began_ranks = (struct rank_set){0};
	ledger->died_ranks = (struct rank_set){0};
	ledger->left_ranks = (struct rank_set){0};
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		struct ledger_slot *slot = &ledger->slots[i];

		slot->seq = 0; /* numbers of the epoch before mean nothing now */
		slot->readers = 0;
		if (slot->state == SLOT_STAGING) {
			slot->state = SLOT_EMPTY;
		}
	}
}

uint32_t ledger_missing_rank(const struct ledger *ledger)
{
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &ledger->slots[i];

		for (uint32_t r = 0; slot->state == SLOT_STAGING && r < ledger->world; r++) {
			if (!has_rank(&slot->staged_ranks, r)) {
				return r;
			}
		}
	}
	return ledger->world;
}

bool ledger_has_part(const struct ledger *ledger, int i, uint32_t rank)
{
	ASSERT(i >= 0 && i < LEDGER_SLOTS && rank < ledger->world);
	return has_rank(&ledger->slots[i].begun_ranks, rank);
}

/* ---- saves that fail ---- */

enum ledger_answer ledger_refuse(struct ledger_verdict *verdict, int code, const char *why)
{
	verdict->code = code;
	snprintf(verdict->why, sizeof(verdict->why), "%s", why);
	return LEDGER_REFUSE;
}

int ledger_fail(struct ledger *ledger, uint64_t seq, int code, const char *why)
{
	struct ledger_slot *slot = find_seq(ledger, seq, SLOT_STAGING);

	if (seq > ledger->refused_seq) {
		ledger->refused_seq = seq;
		ledger->refused_code = code;
		snprintf(ledger->refused_why, sizeof(ledger->refused_why), "%s", why);
	}
	if (!slot) {
		return -1;
	}
	slot->state = SLOT_EMPTY;
	return (int)(slot - ledger->slots);
}

/* Refuses, and makes sure that the other ranks get the same answer. */
static enum ledger_answer refuse_for_all(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict, int code)
{
	verdict->failed_slot = ledger->named
		? ledger_fail_tag(ledger, ask->rank, ask->tag, code, verdict->why)
		: ledger_fail(ledger, ask->seq, code, verdict->why);
	verdict->code = code;
	return LEDGER_REFUSE;
}

enum ledger_answer ledger_wait_or_refuse(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict)
{
	const struct ledger_slot *staging = ledger_find_staging(ledger);

	if (ask->waited_ns < ledger->times.wait_ns && !ask->stuck_why) {
		return LEDGER_WAIT;
	}
	if (staging) {
		snprintf(verdict->why, sizeof(verdict->why),
			"save of %s skipped: rank %u has not staged %s yet%s%s", ask->tag,
			ledger->first_rank + ledger_missing_rank(ledger), staging->tag,
			ask->stuck_why ? ": " : "", ask->stuck_why ? ask->stuck_why : "");
	} else {
		snprintf(verdict->why, sizeof(verdict->why),
			"save of %s skipped: storage has not finished an earlier one", ask->tag);
	}
	return refuse_for_all(ledger, ask, verdict, PAWL_ETIMEDOUT);
}

/* ---- begin ---- */

struct ledger_slot *ledger_find_undurable(struct ledger *ledger, const char *tag)
{
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		struct ledger_slot *slot = &ledger->slots[i];

		if (slot->state == SLOT_COMMITTED && !slot->durable &&
			strcmp(slot->tag, tag) == 0) {
			return slot;
		}
	}
	return NULL;
}

/* Whether the save of this number is the same checkpoint on the rank that asks as on the others;
 * LEDGER_GRANT if so. */
static enum ledger_answer match_number(struct ledger *ledger, const struct ledger_slot *slot,
	const struct ledger_ask *ask, struct ledger_verdict *verdict)
{
	if (slot->step != ask->step) {
		snprintf(verdict->why, sizeof(verdict->why),
			"rank %u saves step %llu where another rank saves step %llu (save number "
			"%u of each)",
			ledger->first_rank + ask->rank, (unsigned long long)ask->step,
			(unsigned long long)slot->step, (uint32_t)ask->seq);
		return refuse_for_all(ledger, ask, verdict, PAWL_EMISMATCH);
	}
	if (strcmp(slot->tag, ask->tag) != 0) {
		snprintf(verdict->why, sizeof(verdict->why),
			"rank %u saves %.64s where another rank saves %.64s",
			ledger->first_rank + ask->rank, ask->tag, slot->tag);
		return refuse_for_all(ledger, ask, verdict, PAWL_EMISMATCH);
	}
	return LEDGER_GRANT;
}

/* The ranks before this one stage into memory, which its state does not fit: refuses the save. */
static enum ledger_answer refuse_large(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict)
{
	ledger->stream = true;
	snprintf(verdict->why, sizeof(verdict->why),
		"rank %u's state does not fit the memory budget: this save is skipped, "
		"later ones are streamed",
		ledger->first_rank + ask->rank);
	return refuse_for_all(ledger, ask, verdict, PAWL_ELIMIT);
}

/* Adds a rank to a save that another rank has begun. */
static enum ledger_answer join_save(struct ledger *ledger, struct ledger_slot *slot,
	const struct ledger_ask *ask, struct ledger_verdict *verdict)
{
	enum ledger_answer answer =
		ledger->named ? LEDGER_GRANT : match_number(ledger, slot, ask, verdict);

	if (answer != LEDGER_GRANT) {
		return answer;
	}
	verdict->granted_before = has_rank(&slot->begun_ranks, ask->rank);
	if (has_rank(&slot->staged_ranks, ask->rank) && !verdict->granted_before) {
		/* The rank has a part after all, and is waited for from now on, also while it waits
		 * itself. */
		ASSERT(slot->staged > 0);
		clear_rank(&slot->staged_ranks, ask->rank);
		slot->staged--;
	}
	if (!slot->streamed && !ask->fits) {
		answer = ledger->named ? ledger_stream_tag(ledger, slot, ask, verdict)
				       : refuse_large(ledger, ask, verdict);
	}
	if (answer != LEDGER_GRANT) {
		return answer;
	}
	slot->adds = slot->adds || ask->adds;
	slot->urgent = slot->urgent || ask->adds;
	slot->begun += set_rank(&slot->begun_ranks, ask->rank);
	ASSERT(slot->begun <= ledger->world && slot->staged < ledger->world);
	verdict->slot = (int)(slot - ledger->slots);
	verdict->seq = slot->seq;
	verdict->streamed = slot->streamed;
	return LEDGER_GRANT;
}

/* Whether the ranks themselves write a new save. */
static bool streams(const struct ledger *ledger, const struct ledger_ask *ask)
{
	return ledger->stream || !ask->fits || ask->streams;
}

static uint64_t max_step(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void start_slot(struct ledger *ledger, struct ledger_slot *slot,
	const struct ledger_ask *ask, const struct ledger_known *known)
{
	/* No save is being staged, and nobody uses the slot. */
	ASSERT(ledger_find_staging(ledger) == NULL && !slot->persisting && slot->readers == 0);
	memset(slot, 0, sizeof(*slot));
	slot->state = SLOT_STAGING;
	slot->seq = ledger->named ? ledger->last_seq + 1 : ask->seq;
	slot->order = ++ledger->last_order;
	slot->step = ask->step == LEDGER_STEP_NONE ? ledger->newest_step : ask->step;
	snprintf(slot->tag, sizeof(slot->tag), "%s", ask->tag);
	slot->adds = known || ask->adds;
	slot->joins_round = known && !has_rank(&known->part_ranks, ask->rank);
	slot->urgent = slot->adds;
	slot->alone = ask->alone;
	slot->streamed = streams(ledger, ask);
	slot->begun = set_rank(&slot->begun_ranks, ask->rank);
	ledger_count_done(ledger, slot, ask, known);
	ASSERT(slot->staged < ledger->world && slot->seq > ledger->last_seq);
	ledger->stream = ledger->stream || !ask->fits;
	ledger->last_seq = slot->seq;
	ledger->newest_step = max_step(ledger->newest_step, slot->step);
}

/* Whether a save of this number may be started; LEDGER_GRANT if so. */
static enum ledger_answer check_seq(const struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict)
{
	if (ask->seq <= ledger->refused_seq) {
		return ledger_refuse(verdict, ledger->refused_code, ledger->refused_why);
	}
	if (ask->seq <= ledger->last_seq) {
		return ledger_refuse(verdict, PAWL_EINVAL, "this save has ended already");
	}
	return LEDGER_GRANT;
}

/* Finds the slot for a new save; -1: not now. A save that this one adds to is made durable
 * first. */
static int find_save_slot(struct ledger *ledger, const struct ledger_ask *ask, bool adds)
{
	struct ledger_slot *before = ledger_find_undurable(ledger, ask->tag);

	if (before) {
		bool streamed = streams(ledger, ask);

		before->urgent = before->urgent || adds || streamed;
		if (streamed) {
			return -1;
		}
	}
	return ledger_find_staging(ledger) ? -1 : ledger_pick_slot(ledger);
}

uint64_t ledger_skipped_seq(const struct ledger *ledger, uint32_t rank, uint64_t seq)
{
	for (int i = 0; !ledger->named && i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &ledger->slots[i];

		if (slot->state == SLOT_STAGING && slot->seq < seq &&
			!has_rank(&slot->begun_ranks, rank)) {
			return slot->seq;
		}
	}
	return 0;
}

/* Records that from now on only the store has the save in a slot. */
static void set_store_only(struct ledger *ledger, const struct ledger_slot *slot)
{
	ASSERT(slot->order >= ledger->store_only_order && slot->durable);
	ledger->store_only_order = slot->order;
	memcpy(ledger->store_only_tag, slot->tag, sizeof(ledger->store_only_tag));
}

/* Records that a new save overwrites the one in a slot. */
static void mark_overwritten(struct ledger *ledger, int i, struct ledger_verdict *verdict)
{
	const struct ledger_slot *slot = &ledger->slots[i];

	if (i != ledger_newest(ledger)) {
		return;
	}
	verdict->overwrites_newest = !slot->durable;
	if (slot->durable) {
		set_store_only(ledger, slot);
	}
}

enum ledger_answer ledger_begin(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict)
{
	struct ledger_slot *slot;
	enum ledger_answer answer = LEDGER_GRANT;
	const struct ledger_known *known =
		ledger->named ? ledger_find_known(ledger, ask->tag) : NULL;
	int i;

	ASSERT(ask->rank < ledger->world);
	memset(verdict, 0, sizeof(*verdict));
	verdict->failed_slot = -1;
	ledger_update_spare(ledger, ask);
	set_rank(&ledger->began_ranks, ask->rank);
	clear_rank(&ledger->left_ranks, ask->rank); /* a rank that left is back */
	slot = ledger->named ? ledger_find_tag(ledger, ask)
			     : find_seq(ledger, ask->seq, SLOT_STAGING);
	if (slot) {
		return join_save(ledger, slot, ask, verdict);
	}
	answer = ledger->named ? ledger_check_failed(ledger, ask, verdict)
			       : check_seq(ledger, ask, verdict);
	if (answer != LEDGER_GRANT) {
		return answer;
	}
	i = find_save_slot(ledger, ask, known || ask->adds);
	if (i < 0) {
		return ledger_wait_or_refuse(ledger, ask, verdict);
	}
	mark_overwritten(ledger, i, verdict);
	start_slot(ledger, &ledger->slots[i], ask, known);
	verdict->slot = i;
	verdict->seq = ledger->slots[i].seq;
	verdict->streamed = ledger->slots[i].streamed;
	verdict->fresh = true;
	return LEDGER_GRANT;
}

/* ---- staged, committed, durable ---- */

int ledger_commit(struct ledger *ledger, struct ledger_slot *slot)
{
	ASSERT(slot->state == SLOT_STAGING && slot->staged == ledger->world);
	slot->state = SLOT_COMMITTED;
	if (ledger->named) {
		ledger_record_parts(ledger, slot);
	}
	return (int)(slot - ledger->slots);
}

int ledger_staged(struct ledger *ledger, uint32_t rank, uint64_t seq)
{
	struct ledger_slot *slot = find_seq(ledger, seq, SLOT_STAGING);

	if (!slot || rank >= ledger->world || !has_rank(&slot->begun_ranks, rank)) {
		return -1;
	}
	slot->staged += set_rank(&slot->staged_ranks, rank);
	if (slot->staged < ledger->world) {
		return -1;
	}
	return ledger_commit(ledger, slot);
}

void ledger_record_stored(struct ledger *ledger, uint64_t step)
{
	ledger->newest_step = max_step(ledger->newest_step, step);
	ledger->stored_step = max_step(ledger->stored_step, step);
}

int ledger_persist_next(struct ledger *ledger, int64_t now_ns, int64_t *again_ns)
{
	struct ledger_slot *slot;
	int i;

	*again_ns = INT64_MAX;
	for (i = 0; i < LEDGER_SLOTS; i++) {
		if (ledger->slots[i].persisting) {
			return -1; /* one persist at a time */
		}
	}
	i = ledger_pick_persist(ledger);
	if (i < 0) {
		return -1;
	}
	slot = &ledger->slots[i];
	ASSERT(slot->state == SLOT_COMMITTED && !slot->durable);
	if (now_ns < ledger->retry_ns && !slot->chosen) {
		*again_ns = ledger->retry_ns;
		return -1;
	}
	if (!ledger->flush && !slot->urgent && !slot->streamed && !slot->chosen &&
		now_ns < ledger->persist_due_ns) {
		*again_ns = ledger->persist_due_ns;
		return -1;
	}
	slot->persisting = true;
	ledger->persist_due_ns = now_ns + ledger->interval_ns;
	return i;
}

void ledger_set_interval(struct ledger *ledger, int64_t interval_ns)
{
	ledger->persist_due_ns += interval_ns - ledger->interval_ns;
	ledger->interval_ns = interval_ns;
}

void ledger_persisted(struct ledger *ledger, int i, bool ok, int64_t now_ns)
{
	struct ledger_slot *slot = &ledger->slots[i];

	ASSERT(slot->persisting && slot->state != SLOT_STAGING);
	slot->persisting = false;
	slot->chosen = false;
	slot->durable = ok;
	if (slot->streamed) {
		/* A streamed save was never in memory, and what its ranks wrote is published or
		 * lost. */
		slot->state = SLOT_EMPTY;
	}
	for (int s = 0; ok && slot->streamed && s < LEDGER_SLOTS; s++) {
		struct ledger_slot *other = &ledger->slots[s];

		if (other->state == SLOT_COMMITTED && slot_is_older(other, slot)) {
			other->state = SLOT_EMPTY; /* a restore must not take an older save */
		}
	}
	if (ok) {
		ledger_record_stored(ledger, slot->step);
		slot->urgent = false;
		if (slot->order > ledger->durable_order) {
			ledger->durable_order = slot->order;
		}
		ledger->flush = ledger->flush && !ledger_all_durable(ledger);
	} else {
		ledger->retry_ns = now_ns + ledger->times.retry_ns;
		if (ledger->role == LEDGER_LEADS) { /* the save is lost: the next one is due */
			ledger->persist_due_ns = ledger->retry_ns;
		}
	}
}

/* Whether a streamed save is being made durable. */
static bool is_publishing(const struct ledger *ledger)
{
	bool found = false;

	for (int i = 0; i < LEDGER_SLOTS; i++) {
		found = found || (ledger->slots[i].streamed && ledger->slots[i].persisting);
	}
	return found;
}

bool ledger_want_durable(struct ledger *ledger, uint64_t seq)
{
	struct ledger_slot *slot;

	if (seq == 0) {
		ledger->flush = !ledger_all_durable(ledger);
		return true;
	}
	slot = find_seq(ledger, seq, SLOT_COMMITTED);
	slot = slot ? slot : find_seq(ledger, seq, SLOT_STAGING);
	if (!slot || (!slot->durable && !slot->streamed && is_publishing(ledger))) {
		return false; /* the streamed save supersedes this one */
	}
	if (!slot->durable && ledger_is_passed(ledger, (int)(slot - ledger->slots))) {
		return false;
	}
	slot->urgent = !slot->durable;
	return true;
}

bool ledger_choose(struct ledger *ledger, uint64_t seq)
{
	struct ledger_slot *slot = find_seq(ledger, seq, SLOT_COMMITTED);

	ASSERT(ledger->role == LEDGER_FOLLOWS);
	if (!slot || slot->durable || ledger_is_passed(ledger, (int)(slot - ledger->slots))) {
		return false;
	}
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		ledger->slots[i].chosen = &ledger->slots[i] == slot;
	}
	return true;
}

/* ---- what memory no longer has, or has after all ---- */

void ledger_discard_empty(struct ledger *ledger, int i)
{
	ASSERT(ledger->slots[i].state == SLOT_COMMITTED && !ledger->slots[i].persisting);
	ledger->slots[i].state = SLOT_EMPTY;
}

bool ledger_revive_slots(struct ledger *ledger, const char *tag, uint64_t step)
{
	uint64_t order = ledger->store_only_order;
	int before = ledger_newest(ledger);
	int newest;

	if (order == 0 || strcmp(tag, ledger->store_only_tag) == 0) {
		return false;
	}
	ledger->store_only_order = 0;
	newest = ledger_newest(ledger);
	ASSERT(newest >= 0 || before < 0); /* more slots count now */
	if (newest != before && (tag[0] == '\0' || ledger->slots[newest].step >= step)) {
		return true;
	}
	ledger->store_only_order = order;
	return false;
}

void ledger_drop(struct ledger *ledger, int i)
{
	struct ledger_slot *slot = &ledger->slots[i];
	struct ledger_known *known = ledger_find_known(ledger, slot->tag);

	if (known && !slot->adds && !slot->durable) {
		known->hash = 0; /* nothing is left to add to */
	}
	if (slot->durable && i == ledger_newest(ledger)) {
		set_store_only(ledger, slot);
	}
	slot->state = SLOT_EMPTY; /* a persist under way will find the damage too */
}
