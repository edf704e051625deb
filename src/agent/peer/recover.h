/*
 * Chooses the save that the hosts restore from memory, by what they hold. Pure.
 */
#ifndef AGENT_PEER_RECOVER_H
#define AGENT_PEER_RECOVER_H

#include "agent/peer/peer_msg.h"

/* A part, and a host that holds it. */
struct recover_held {
	uint32_t host; /* lowest rank of the host */
	struct peer_part part;
};

/* A host that is asked for the parts of some ranks. */
struct recover_source {
	uint32_t host;              /* lowest rank of the host */
	uint32_t first_rank, ranks; /* the part */
	/* k 0: the host holds the part; else a sum from which it can be rebuilt */
	struct peer_parity parity;
};

struct recover_plan {
	bool found;
	struct peer_save save;
	uint64_t step;
	char tag[CKPT_TAG_MAX];
	uint32_t sources_n;
	/* Every host that holds a part, or a sum in which it is, ordered by first_rank; the hosts
	 * that hold the part itself come first, its own before the others, then one host for each
	 * sum, by their rows. At most PEER_PARTS_MAX / (number of parts) sources for a part. */
	struct recover_source sources[PEER_PARTS_MAX];
};

/*
 * Finds the save of the highest step (among those the highest number, then the highest run) of
 * which every rank of world is in some part; parts of another world, or that overlap without being
 * of the same ranks, do not count. With has_step, of that step only. Parts of one save that
 * disagree on step or tag, or on the groups of its sums, make it no candidate. Sorts held.
 *
 * A part that nobody holds counts if it is in a sum, and at least k of the group's k parts and m
 * sums are held. A sum of which a part is not listed does not count.
 */
void recover_choose(struct recover_held *held, uint32_t held_n, uint32_t world, bool has_step,
	uint64_t step, struct recover_plan *plan);

#endif
