/* The orders of rank 0 in a measurement: docs/protocol.md has the bytes. Pure. */
#ifndef COLL_PROBE_PROBE_IMPL_H
#define COLL_PROBE_PROBE_IMPL_H

#include "coll/plan/survey.h"

#include "pawl/coll.h"

#define ORDER_BYTES      56u
#define ORDER_ROUNDS_MAX 1024u
#define ORDER_STREAM_MAX (64ull << 20) /* most bytes that a host sends in a round */

enum probe_kind {
	PROBE_END,  /* the other ranks leave */
	PROBE_PING, /* from a to b and back, round after round */
	PROBE_PAIR, /* from a to b */
	/* All hosts in pairs, as in the a-th round of a tournament; b: 0, the lower numbers send,
	 * or 1, the higher ones. */
	PROBE_PAIRS,
	PROBE_ALL, /* from each host to each other host */
	PROBE_SUM, /* all-reduce, by the algorithm that is chosen for link */
	PROBE_KINDS
};

struct probe_order {
	enum probe_kind kind;
	uint32_t a, b;         /* see enum probe_kind; else 0 */
	uint32_t rounds;       /* number of rounds, 4 .. ORDER_ROUNDS_MAX */
	enum pawl_dtype dtype; /* SUM: type of the elements, a float; else PAWL_UINT8 */
	uint64_t len_bytes;    /* size of each message, or of the vector; at least 1 */
	struct coll_link
		link; /* SUM: link for which the algorithm is chosen; else any that is valid */
};

void probe_encode(uint8_t *bytes, const struct probe_order *order);
/* Reads an order of ORDER_BYTES, for a group of `ranks` ranks. -1: it is malformed, or beyond what
 * a host may be ordered. */
int probe_decode(const uint8_t *bytes, uint32_t ranks, struct probe_order *order);

/* Returns the partner of a host in a round of a tournament of n hosts, in which each host meets
 * each other once; the host itself: none. There are n - 1 rounds, or n if n is odd. */
uint32_t probe_partner(uint32_t n, uint32_t round, uint32_t host);
/* Returns the bytes from one rank to another in a round of PAIR, PAIRS or ALL; in one of PING,
 * those on the way there. */
uint64_t probe_bytes(const struct probe_order *order, uint32_t ranks, uint32_t from, uint32_t to);

#endif
