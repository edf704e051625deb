/* Shared by the parts of the ledger: see ledger.h. Pure. */
#ifndef AGENT_LEDGER_LEDGER_IMPL_H
#define AGENT_LEDGER_LEDGER_IMPL_H

#include "agent/ledger/ledger.h"

_Static_assert(LEDGER_RANKS_MAX % 64 == 0, "a set has a bit for each rank");
_Static_assert(LEDGER_SLOTS == 3, "two slots, and a spare one");

/* ---- sets of ranks ---- */

static inline bool has_bit(const uint64_t *bits, uint32_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

static inline void clear_bit(uint64_t *bits, uint32_t i)
{
	bits[i / 64] &= ~(1ULL << (i % 64));
}

/* Sets bit i; returns 1 if it was clear. */
static inline uint32_t set_bit(uint64_t *bits, uint32_t i)
{
	uint32_t was_clear = !has_bit(bits, i);

	bits[i / 64] |= 1ULL << (i % 64);
	return was_clear;
}

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
