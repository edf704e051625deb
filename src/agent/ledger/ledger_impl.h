/*
 * Shared by the parts of the ledger: see ledger.h. Pure.
 *
 *   ledger.c        saves and their slots, from begin to durable; saves matched by number
 *   ledger_named.c  saves matched by tag; calls ledger.c, and ledger.c calls it
 *   ledger_slots.c  which slot is given out, and which one goes to the store next; calls neither
 */
#ifndef AGENT_LEDGER_LEDGER_IMPL_H
#define AGENT_LEDGER_LEDGER_IMPL_H

#include "agent/ledger/ledger.h"

_Static_assert(LEDGER_RANKS_MAX % 64 == 0, "a set has a bit for each rank");
_Static_assert(LEDGER_SLOTS == 3, "two slots, and a spare one");

/* ---- sets of ranks ---- */

static inline bool has_rank(const struct rank_set *set, uint32_t rank)
{
	return set->words[rank / 64] >> (rank % 64) & 1;
}

static inline void clear_rank(struct rank_set *set, uint32_t rank)
{
	set->words[rank / 64] &= ~(1ULL << (rank % 64));
}

/* Puts rank into the set; returns 1 if it was not there. */
static inline uint32_t set_rank(struct rank_set *set, uint32_t rank)
{
	uint32_t was_clear = !has_rank(set, rank);

	set->words[rank / 64] |= 1ULL << (rank % 64);
	return was_clear;
}

/* Puts all ranks of another set into the set. */
static inline void set_ranks(struct rank_set *set, const struct rank_set *other)
{
	for (uint32_t i = 0; i < LEDGER_SET_WORDS; i++) {
		set->words[i] |= other->words[i];
	}
}

static inline bool has_no_rank(const struct rank_set *set)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < LEDGER_SET_WORDS; i++) {
		all |= set->words[i];
	}
	return all == 0;
}

/* ---- ledger.c ---- */

/* Returns the slot of the save being staged; NULL: none is. */
struct ledger_slot *ledger_find_staging(struct ledger *ledger);
/* Returns the slot that holds this tag, committed and not in the store yet; NULL: none. */
struct ledger_slot *ledger_find_undurable(struct ledger *ledger, const char *tag);
/* Commits a slot that all ranks have staged. Returns its index. */
int ledger_commit(struct ledger *ledger, struct ledger_slot *slot);
/* Refuses a save to the rank that asks, and to no other. */
enum ledger_answer ledger_refuse(struct ledger_verdict *verdict, int code, const char *why);
/* Has the rank wait for other ranks, or for storage. If it has waited long enough, or the rank that
 * it waits for will not come, refuses the save to all ranks. */
enum ledger_answer ledger_wait_or_refuse(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict);

/* ---- ledger_named.c ---- */

/* Returns the entry of a tag that was committed in this epoch; NULL: none. */
struct ledger_known *ledger_find_known(struct ledger *ledger, const char *tag);
/* Records which ranks have a part in the tag's newest round, now that slot is committed. */
void ledger_record_parts(struct ledger *ledger, const struct ledger_slot *slot);
/* Counts the ranks that have nothing to add to the save that ask starts as having staged it. known:
 * entry of its tag, or NULL. */
void ledger_count_done(const struct ledger *ledger, struct ledger_slot *slot,
	const struct ledger_ask *ask, const struct ledger_known *known);
/* Returns the slot of the tag being staged, if this rank may still have a part in it; else NULL. */
struct ledger_slot *ledger_find_tag(struct ledger *ledger, const struct ledger_ask *ask);
/* The part of a rank that joins a save does not fit memory: has the save streamed, once an earlier
 * save of the tag is durable. LEDGER_GRANT if it is streamed now. */
enum ledger_answer ledger_stream_tag(struct ledger *ledger, struct ledger_slot *slot,
	const struct ledger_ask *ask, struct ledger_verdict *verdict);
/* Whether this rank may start a save of the tag: every rank must know of its failure, if it failed,
 * and a save that needs more must not have ended. LEDGER_GRANT if so. */
enum ledger_answer ledger_check_failed(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict);

/* ---- ledger_slots.c ---- */

bool slot_is_older(const struct ledger_slot *a, const struct ledger_slot *b);
/* Picks the slot for a new save; -1: none is free now. */
int ledger_pick_slot(const struct ledger *ledger);
/* Picks the committed slot that is next for the store: the oldest that must be persisted, else the
 * newest; -1: none. */
int ledger_pick_persist(const struct ledger *ledger);
/* Records, from a rank's request, whether memory has space for the spare slot. If not, empties the
 * spare slot once there is a newer save. */
void ledger_update_spare(struct ledger *ledger, const struct ledger_ask *ask);

#endif
