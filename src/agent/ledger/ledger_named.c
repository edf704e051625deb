/* Named saves: which save of a tag a rank has a part in, which ranks are not waited for, and tags
 * that failed. See ledger.h for the rules. Pure. */
#include "agent/ledger/ledger_impl.h"

#include "base/assert.h"
#include "pawl/err.h"

#include <stdio.h>
#include <string.h>

/* ---- the parts of a tag ---- */

/* FNV-1a. */
static uint64_t hash_tag(const char *tag)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (; *tag; tag++) {
		hash = (hash ^ (uint8_t)*tag) * 0x100000001b3ull;
	}
	return hash;
}

struct ledger_known *ledger_find_known(struct ledger *ledger, const char *tag)
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
	return slot->joins_round && known && has_rank(&known->part_ranks, rank);
}

void ledger_record_parts(struct ledger *ledger, const struct ledger_slot *slot)
{
	struct ledger_known *known = ledger_find_known(ledger, slot->tag);

	if (!known) {
		known = &ledger->known[ledger->known_n++ % LEDGER_TAGS_KNOWN];
		memset(known, 0, sizeof(*known));
	}
	known->hash = hash_tag(slot->tag);
	if (!slot->joins_round) {
		known->part_ranks = (struct rank_set){0};
	}
	set_ranks(&known->part_ranks, &slot->begun_ranks);
}

void ledger_count_done(const struct ledger *ledger, struct ledger_slot *slot,
	const struct ledger_ask *ask, const struct ledger_known *known)
{
	for (uint32_t r = 0; r < ledger->world; r++) {
		bool done = has_its_part(slot, known, r) && !has_rank(&ledger->died_ranks, r);

		if (r != ask->rank && (ask->alone || done || has_rank(&ledger->left_ranks, r))) {
			slot->staged += set_rank(&slot->staged_ranks, r);
		}
	}
}

/* Whether rank staged its part; false also if rank is taken to have none. */
static bool has_staged(const struct ledger_slot *slot, uint32_t rank)
{
	return has_rank(&slot->staged_ranks, rank) && has_rank(&slot->begun_ranks, rank);
}

struct ledger_slot *ledger_find_tag(struct ledger *ledger, const struct ledger_ask *ask)
{
	struct ledger_slot *slot = ledger_find_staging(ledger);
	bool closed; /* to ranks that have not begun it */

	if (!slot || strcmp(slot->tag, ask->tag) != 0 || has_staged(slot, ask->rank)) {
		return NULL;
	}
	closed = slot->alone || has_its_part(slot, ledger_find_known(ledger, ask->tag), ask->rank);
	return (!closed || has_rank(&slot->begun_ranks, ask->rank)) &&
			(ask->seq == 0 || ask->seq == slot->seq)
		? slot
		: NULL;
}

enum ledger_answer ledger_stream_tag(struct ledger *ledger, struct ledger_slot *slot,
	const struct ledger_ask *ask, struct ledger_verdict *verdict)
{
	struct ledger_slot *before = ledger_find_undurable(ledger, ask->tag);

	if (before) {
		before->urgent = true;
		return ledger_wait_or_refuse(ledger, ask, verdict);
	}
	verdict->now_streamed = true;
	slot->streamed = true;
	ledger->stream = true;
	return LEDGER_GRANT;
}

/* ---- tags that failed ---- */

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
			set_rank(&failed->notified_ranks, rank);
		}
	}
}

/* Whether the tag will be refused to this rank, which is behind the others then. */
static bool is_behind(struct ledger *ledger, uint32_t rank, const char *tag)
{
	const struct ledger_failed *failed = find_failed(ledger, tag);

	return failed && !has_rank(&failed->notified_ranks, rank);
}

int ledger_fail_tag(struct ledger *ledger, uint32_t rank, const char *tag, int code,
	const char *why)
{
	struct ledger_slot *slot = ledger_find_staging(ledger);
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
	set_rank(&failed->notified_ranks, rank);
	if (!slot) {
		return -1;
	}
	set_ranks(&failed->notified_ranks, &slot->begun_ranks);
	slot->state = SLOT_EMPTY;
	return (int)(slot - ledger->slots);
}

/* Whether a rank that has saved something does not know yet that the tag failed. */
static bool has_unnotified(const struct ledger *ledger, const struct ledger_failed *failed)
{
	for (uint32_t r = 0; r < ledger->world; r++) {
		if (has_rank(&ledger->began_ranks, r) && !has_rank(&ledger->left_ranks, r) &&
			!has_rank(&failed->notified_ranks, r)) {
			return true;
		}
	}
	return false;
}

enum ledger_answer ledger_check_failed(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict)
{
	struct ledger_failed *failed = find_failed(ledger, ask->tag);

	if (ask->seq != 0) {
		return ledger_refuse(verdict, PAWL_ECANCELED, "another rank's part of it failed");
	}
	if (!failed) {
		return LEDGER_GRANT;
	}
	if (!has_rank(&failed->notified_ranks, ask->rank)) {
		set_rank(&failed->notified_ranks, ask->rank);
		return ledger_refuse(verdict, failed->code, failed->why);
	}
	if (has_unnotified(ledger, failed)) {
		return ledger_wait_or_refuse(ledger, ask, verdict);
	}
	memset(failed, 0, sizeof(*failed)); /* every rank knows: the tag is tried again */
	return LEDGER_GRANT;
}

/* ---- ranks that move on ---- */

static void count_as_staged(struct ledger *ledger, struct ledger_slot *slot, uint32_t rank)
{
	if (!has_rank(&slot->begun_ranks, rank) && !has_rank(&ledger->died_ranks, rank)) {
		slot->staged += set_rank(&slot->staged_ranks, rank);
	}
}

int ledger_move_on(struct ledger *ledger, uint32_t rank, enum ledger_move move, const char *tag)
{
	struct ledger_slot *slot = ledger_find_staging(ledger);

	ASSERT(rank < ledger->world && (tag != NULL || move != MOVE_BEGINS));
	if (move == MOVE_BEGINS) {
		mark_notified(ledger, rank, tag);
	}
	if (move == MOVE_LEAVES) {
		set_rank(&ledger->left_ranks, rank);
	}
	if (!slot || (move == MOVE_BEGINS && is_behind(ledger, rank, tag)) ||
		(move == MOVE_BEGINS && strcmp(tag, slot->tag) == 0 && !has_staged(slot, rank)) ||
		(move == MOVE_ASKS && !has_rank(&slot->staged_ranks, rank))) {
		return -1;
	}
	count_as_staged(ledger, slot, rank);
	for (uint32_t r = 0; has_staged(slot, rank) && r < ledger->world; r++) {
		if (!has_rank(&ledger->began_ranks, r)) {
			count_as_staged(ledger, slot, r);
		}
	}
	if (slot->staged < ledger->world) {
		return -1;
	}
	return ledger_commit(ledger, slot);
}

void ledger_rank_died(struct ledger *ledger, uint32_t rank)
{
	ASSERT(rank < ledger->world);
	set_rank(&ledger->died_ranks, rank);
}
