/* The ledger of one root: see ledger.h for the rules. Pure. */
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

/* Whether rank staged its part; false also if rank is taken to have none. */
static bool has_staged(const struct ledger_slot *slot, uint32_t rank)
{
	return has_bit(slot->staged_bits, rank) && has_bit(slot->begun_bits, rank);
}

static struct ledger_slot *find_staging(struct ledger *ledger)
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
	ledger->known_n = 0;
	memset(ledger->failed, 0, sizeof(ledger->failed));
	memset(ledger->no_spare_bits, 0, sizeof(ledger->no_spare_bits));
	memset(ledger->began_bits, 0, sizeof(ledger->began_bits));
	memset(ledger->died_bits, 0, sizeof(ledger->died_bits));
	memset(ledger->left_bits, 0, sizeof(ledger->left_bits));
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
			if (!has_bit(slot->staged_bits, r)) {
				return r;
			}
		}
	}
	return ledger->world;
}

static enum ledger_answer refuse(struct ledger_verdict *verdict, int code, const char *why)
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

static enum ledger_answer wait_or_refuse(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict)
{
	const struct ledger_slot *staging = find_staging(ledger);

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

/* Finds the generation that holds this tag and is not in the store yet; NULL: none. */
static struct ledger_slot *find_undurable(struct ledger *ledger, const char *tag)
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

/* Adds a rank to a save that another rank has begun. */
static enum ledger_answer join_save(struct ledger *ledger, struct ledger_slot *slot,
	const struct ledger_ask *ask, struct ledger_verdict *verdict)
{
	if (!ledger->named && slot->step != ask->step) {
		snprintf(verdict->why, sizeof(verdict->why),
			"rank %u saves step %llu where another rank saves step %llu (save number "
			"%u of each)",
			ledger->first_rank + ask->rank, (unsigned long long)ask->step,
			(unsigned long long)slot->step, (uint32_t)ask->seq);
		return refuse_for_all(ledger, ask, verdict, PAWL_EMISMATCH);
	}
	if (!ledger->named && strcmp(slot->tag, ask->tag) != 0) {
		snprintf(verdict->why, sizeof(verdict->why),
			"rank %u saves %.64s where another rank saves %.64s",
			ledger->first_rank + ask->rank, ask->tag, slot->tag);
		return refuse_for_all(ledger, ask, verdict, PAWL_EMISMATCH);
	}
	verdict->granted_before = has_bit(slot->begun_bits, ask->rank);
	if (has_bit(slot->staged_bits, ask->rank) && !verdict->granted_before) {
		/* The rank has a part after all, and is waited for from now on, also while it waits
		 * itself. */
		ASSERT(slot->staged > 0);
		clear_bit(slot->staged_bits, ask->rank);
		slot->staged--;
	}
	if (ledger->named && !slot->streamed && !ask->fits) {
		struct ledger_slot *before = find_undurable(ledger, ask->tag);

		if (before) {
			before->urgent = true;
			return wait_or_refuse(ledger, ask, verdict);
		}
		verdict->now_streamed = true;
		slot->streamed = true;
		ledger->stream = true;
	}
	if (!slot->streamed && !ask->fits) {
		ledger->stream = true;
		snprintf(verdict->why, sizeof(verdict->why),
			"rank %u's state does not fit the memory budget: this save is skipped, "
			"later ones are streamed",
			ledger->first_rank + ask->rank);
		return refuse_for_all(ledger, ask, verdict, PAWL_ELIMIT);
	}
	slot->adds = slot->adds || ask->adds;
	slot->urgent = slot->urgent || ask->adds;
	slot->begun += set_bit(slot->begun_bits, ask->rank);
	ASSERT(slot->begun <= ledger->world && slot->staged < ledger->world);
	verdict->slot = (int)(slot - ledger->slots);
	verdict->seq = slot->seq;
	verdict->streamed = slot->streamed;
	return LEDGER_GRANT;
}

/* FNV-1a. */
static uint64_t hash_tag(const char *tag)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (; *tag; tag++) {
		hash = (hash ^ (uint8_t)*tag) * 0x100000001b3ull;
	}
	return hash;
}

/* Finds a tag that was committed in this epoch; NULL: none. */
static struct ledger_known *find_known(struct ledger *ledger, const char *tag)
{
	uint32_t n = ledger->known_n < LEDGER_TAGS_KNOWN ? ledger->known_n : LEDGER_TAGS_KNOWN;
	uint64_t hash = hash_tag(tag);

	for (uint32_t i = 0; i < n; i++) {
		if (ledger->known[i].hash == hash) {
			return &ledger->known[i];
		}
	}
	return NULL;
}

/* Whether rank already has its part in the round that slot adds to. */
static bool has_its_part(const struct ledger_slot *slot, const struct ledger_known *known,
	uint32_t rank)
{
	return slot->joins_round && known && has_bit(known->part_bits, rank);
}

/* Records which ranks have a part in the tag's newest round, now that slot is committed. */
static void record_parts(struct ledger *ledger, const struct ledger_slot *slot)
{
	struct ledger_known *known = find_known(ledger, slot->tag);

	if (!known) {
		known = &ledger->known[ledger->known_n++ % LEDGER_TAGS_KNOWN];
		memset(known, 0, sizeof(*known));
	}
	known->hash = hash_tag(slot->tag);
	for (uint32_t i = 0; i < LEDGER_SET_WORDS; i++) {
		known->part_bits[i] =
			slot->begun_bits[i] | (slot->joins_round ? known->part_bits[i] : 0);
	}
}

/* Commits a slot that all ranks have staged. Returns its index. */
static int commit(struct ledger *ledger, struct ledger_slot *slot)
{
	ASSERT(slot->state == SLOT_STAGING && slot->staged == ledger->world);
	slot->state = SLOT_COMMITTED;
	if (ledger->named) {
		record_parts(ledger, slot);
	}
	return (int)(slot - ledger->slots);
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
	ASSERT(find_staging(ledger) == NULL && !slot->persisting && slot->readers == 0);
	memset(slot, 0, sizeof(*slot));
	slot->state = SLOT_STAGING;
	slot->seq = ledger->named ? ledger->last_seq + 1 : ask->seq;
	slot->order = ++ledger->last_order;
	slot->step = ask->step == LEDGER_STEP_NONE ? ledger->newest_step : ask->step;
	snprintf(slot->tag, sizeof(slot->tag), "%s", ask->tag);
	slot->adds = known || ask->adds;
	slot->joins_round = known && !has_bit(known->part_bits, ask->rank);
	slot->urgent = slot->adds;
	slot->alone = ask->alone;
	slot->streamed = streams(ledger, ask);
	slot->begun = set_bit(slot->begun_bits, ask->rank);
	for (uint32_t r = 0; r < ledger->world; r++) {
		bool done = has_its_part(slot, known, r) && !has_bit(ledger->died_bits, r);

		if (r != ask->rank && (ask->alone || done || has_bit(ledger->left_bits, r))) {
			slot->staged += set_bit(slot->staged_bits, r);
		}
	}
	ASSERT(slot->staged < ledger->world && slot->seq > ledger->last_seq);
	ledger->stream = ledger->stream || !ask->fits;
	ledger->last_seq = slot->seq;
	ledger->newest_step = max_step(ledger->newest_step, slot->step);
}

void ledger_record_stored(struct ledger *ledger, uint64_t step)
{
	ledger->newest_step = max_step(ledger->newest_step, step);
	ledger->stored_step = max_step(ledger->stored_step, step);
}

/* ---- named saves ---- */

static struct ledger_failed *find_failed(struct ledger *ledger, const char *tag)
{
	for (uint32_t i = 0; i < LEDGER_FAILED_MAX; i++) {
		if (strcmp(ledger->failed[i].tag, tag) == 0) {
			return &ledger->failed[i];
		}
	}
	return NULL;
}

/* When the tag failed or, if it did not, was first begun, in the order of slots; 0: the tag is new,
 * as far as is known. All failed tags are measured alike: otherwise two ranks could wait for each
 * other to go on. */
static uint64_t find_order(struct ledger *ledger, const char *tag)
{
	const struct ledger_failed *failed = find_failed(ledger, tag);
	uint64_t order = failed ? failed->order : 0;

	for (int i = 0; !failed && i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &ledger->slots[i];

		if (slot->seq != 0 && (order == 0 || slot->order < order) &&
			strcmp(slot->tag, tag) == 0) {
			order = slot->order;
		}
	}
	return order;
}

/* Marks a rank that begins a tag as notified of the tags that failed before that tag. */
static void mark_notified(struct ledger *ledger, uint32_t rank, const char *tag)
{
	uint64_t order = find_order(ledger, tag);

	for (uint32_t i = 0; i < LEDGER_FAILED_MAX; i++) {
		struct ledger_failed *failed = &ledger->failed[i];

		if (strcmp(tag, failed->tag) != 0 && (order == 0 || order > failed->order)) {
			set_bit(failed->notified_bits, rank);
		}
	}
}

/* Whether the tag will be refused to this rank, which is behind the others then. */
static bool is_behind(struct ledger *ledger, uint32_t rank, const char *tag)
{
	const struct ledger_failed *failed = find_failed(ledger, tag);

	return failed && !has_bit(failed->notified_bits, rank);
}

static void count_as_staged(struct ledger *ledger, struct ledger_slot *slot, uint32_t rank)
{
	if (!has_bit(slot->begun_bits, rank) && !has_bit(ledger->died_bits, rank)) {
		slot->staged += set_bit(slot->staged_bits, rank);
	}
}

int ledger_move_on(struct ledger *ledger, uint32_t rank, enum ledger_move move, const char *tag)
{
	struct ledger_slot *slot = find_staging(ledger);

	ASSERT(rank < ledger->world && (tag != NULL || move != MOVE_BEGINS));
	if (move == MOVE_BEGINS) {
		mark_notified(ledger, rank, tag);
	}
	if (move == MOVE_LEAVES) {
		set_bit(ledger->left_bits, rank);
	}
	if (!slot || (move == MOVE_BEGINS && is_behind(ledger, rank, tag)) ||
		(move == MOVE_BEGINS && strcmp(tag, slot->tag) == 0 && !has_staged(slot, rank)) ||
		(move == MOVE_ASKS && !has_bit(slot->staged_bits, rank))) {
		return -1;
	}
	count_as_staged(ledger, slot, rank);
	for (uint32_t r = 0; has_staged(slot, rank) && r < ledger->world; r++) {
		if (!has_bit(ledger->began_bits, r)) {
			count_as_staged(ledger, slot, r);
		}
	}
	if (slot->staged < ledger->world) {
		return -1;
	}
	return commit(ledger, slot);
}

void ledger_rank_died(struct ledger *ledger, uint32_t rank)
{
	ASSERT(rank < ledger->world);
	set_bit(ledger->died_bits, rank);
}

int ledger_fail_tag(struct ledger *ledger, uint32_t rank, const char *tag, int code,
	const char *why)
{
	struct ledger_slot *slot = find_staging(ledger);
	struct ledger_failed *failed = find_failed(ledger, tag);

	ASSERT(rank < ledger->world && tag[0] != '\0'); /* "": an unused entry */
	slot = slot && strcmp(slot->tag, tag) == 0 ? slot : NULL;
	if (!failed) {
		failed = &ledger->failed[ledger->failed_n++ % LEDGER_FAILED_MAX];
		memset(failed, 0, sizeof(*failed));
		snprintf(failed->tag, sizeof(failed->tag), "%s", tag);
		failed->order = slot ? slot->order : ++ledger->last_order;
		failed->code = code;
		snprintf(failed->why, sizeof(failed->why), "%s", why);
	}
	set_bit(failed->notified_bits, rank);
	if (!slot) {
		return -1;
	}
	for (uint32_t i = 0; i < LEDGER_SET_WORDS; i++) {
		failed->notified_bits[i] |= slot->begun_bits[i];
	}
	slot->state = SLOT_EMPTY;
	return (int)(slot - ledger->slots);
}

/* Whether a rank that has saved something does not know yet that the tag failed. */
static bool has_unnotified(const struct ledger *ledger, const struct ledger_failed *failed)
{
	for (uint32_t r = 0; r < ledger->world; r++) {
		if (has_bit(ledger->began_bits, r) && !has_bit(ledger->left_bits, r) &&
			!has_bit(failed->notified_bits, r)) {
			return true;
		}
	}
	return false;
}

/* Whether a named save may be started or joined now; LEDGER_GRANT if so. */
static enum ledger_answer check_failed(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict)
{
	struct ledger_failed *failed = find_failed(ledger, ask->tag);

	if (ask->seq != 0) {
		return refuse(verdict, PAWL_ECANCELED, "another rank's part of it failed");
	}
	if (!failed) {
		return LEDGER_GRANT;
	}
	if (!has_bit(failed->notified_bits, ask->rank)) {
		set_bit(failed->notified_bits, ask->rank);
		return refuse(verdict, failed->code, failed->why);
	}
	if (has_unnotified(ledger, failed)) {
		return wait_or_refuse(ledger, ask, verdict);
	}
	memset(failed, 0, sizeof(*failed)); /* every rank knows: the tag is tried again */
	return LEDGER_GRANT;
}

/* Finds the tag being staged, if this rank may still have a part in it. */
static struct ledger_slot *find_tag(struct ledger *ledger, const struct ledger_ask *ask)
{
	struct ledger_slot *slot = find_staging(ledger);
	bool closed; /* to ranks that have not begun it */

	if (!slot || strcmp(slot->tag, ask->tag) != 0 || has_staged(slot, ask->rank)) {
		return NULL;
	}
	closed = slot->alone || has_its_part(slot, find_known(ledger, ask->tag), ask->rank);
	return (!closed || has_bit(slot->begun_bits, ask->rank)) &&
			(ask->seq == 0 || ask->seq == slot->seq)
		? slot
		: NULL;
}

/* Whether a save of this number may be started; LEDGER_GRANT if so. */
static enum ledger_answer check_seq(const struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict)
{
	if (ask->seq <= ledger->refused_seq) {
		return refuse(verdict, ledger->refused_code, ledger->refused_why);
	}
	if (ask->seq <= ledger->last_seq) {
		return refuse(verdict, PAWL_EINVAL, "this save has ended already");
	}
	return LEDGER_GRANT;
}

/* Finds the slot for a new save; -1: not now. A save that this one adds to is made durable
 * first. */
static int find_save_slot(struct ledger *ledger, const struct ledger_ask *ask, bool adds)
{
	struct ledger_slot *before = find_undurable(ledger, ask->tag);

	if (before) {
		bool streamed = streams(ledger, ask);

		before->urgent = before->urgent || adds || streamed;
		if (streamed) {
			return -1;
		}
	}
	return find_staging(ledger) ? -1 : ledger_pick_slot(ledger);
}

uint64_t ledger_skipped_seq(const struct ledger *ledger, uint32_t rank, uint64_t seq)
{
	for (int i = 0; !ledger->named && i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &ledger->slots[i];

		if (slot->state == SLOT_STAGING && slot->seq < seq &&
			!has_bit(slot->begun_bits, rank)) {
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
	const struct ledger_known *known = ledger->named ? find_known(ledger, ask->tag) : NULL;
	int i;

	ASSERT(ask->rank < ledger->world);
	memset(verdict, 0, sizeof(*verdict));
	verdict->failed_slot = -1;
	ledger_update_spare(ledger, ask);
	set_bit(ledger->began_bits, ask->rank);
	clear_bit(ledger->left_bits, ask->rank); /* a rank that left is back */
	slot = ledger->named ? find_tag(ledger, ask) : find_seq(ledger, ask->seq, SLOT_STAGING);
	if (slot) {
		return join_save(ledger, slot, ask, verdict);
	}
	answer = ledger->named ? check_failed(ledger, ask, verdict)
			       : check_seq(ledger, ask, verdict);
	if (answer != LEDGER_GRANT) {
		return answer;
	}
	i = find_save_slot(ledger, ask, known || ask->adds);
	if (i < 0) {
		return wait_or_refuse(ledger, ask, verdict);
	}
	mark_overwritten(ledger, i, verdict);
	start_slot(ledger, &ledger->slots[i], ask, known);
	verdict->slot = i;
	verdict->seq = ledger->slots[i].seq;
	verdict->streamed = ledger->slots[i].streamed;
	verdict->fresh = true;
	return LEDGER_GRANT;
}

int ledger_staged(struct ledger *ledger, uint32_t rank, uint64_t seq)
{
	struct ledger_slot *slot = find_seq(ledger, seq, SLOT_STAGING);

	if (!slot || rank >= ledger->world || !has_bit(slot->begun_bits, rank)) {
		return -1;
	}
	slot->staged += set_bit(slot->staged_bits, rank);
	if (slot->staged < ledger->world) {
		return -1;
	}
	return commit(ledger, slot);
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
	if (now_ns < ledger->retry_ns) {
		*again_ns = ledger->retry_ns;
		return -1;
	}
	if (!ledger->flush && !slot->urgent && !slot->streamed && now_ns < ledger->persist_due_ns) {
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
		ledger->flush = ledger->flush && !ledger_all_durable(ledger);
	} else {
		ledger->retry_ns = now_ns + ledger->times.retry_ns;
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
	slot->urgent = !slot->durable;
	return true;
}

bool ledger_has_part(const struct ledger *ledger, int i, uint32_t rank)
{
	ASSERT(i >= 0 && i < LEDGER_SLOTS && rank < ledger->world);
	return has_bit(ledger->slots[i].begun_bits, rank);
}

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
	struct ledger_known *known = find_known(ledger, slot->tag);

	if (known && !slot->adds && !slot->durable) {
		known->hash = 0; /* nothing is left to add to */
	}
	if (slot->durable && i == ledger_newest(ledger)) {
		set_store_only(ledger, slot);
	}
	slot->state = SLOT_EMPTY; /* a persist under way will find the damage too */
}
