/*
 * The cost of an all-reduce between hosts, and the choice of the cheapest algorithm. Pure.
 *
 * The model is the alpha-beta model (Hockney 1994), plus a CPU cost for each message. An algorithm
 * has a number of successive hops, the messages that its busiest host sends, and the bytes through
 * that host's network. The model leaves out work inside a host, which is the same for all
 * algorithms. It also leaves out adding, of which direct has the least.
 *
 * Each rank of a host carries one lane. A lane has as many hops and messages as if each host had
 * one rank, and the lanes of a host together have as many bytes. So the cost is the same for any
 * number of ranks, provided that each has a core. The model assumes that servers send sums while
 * they receive more, as they do with long vectors.
 */
#ifndef COLL_PLAN_COST_H
#define COLL_PLAN_COST_H

#include "coll/plan/plan.h"

/* The network between hosts, which are all alike. */
struct coll_link {
	double bytes_per_s; /* bandwidth of a host, in each direction */
	double latency_s;   /* from a message's start to its first byte's arrival */
	double message_s;   /* time that a host is busy with each message it sends */
};

/* The link that is assumed if none was measured. With four hosts, the chosen algorithm changes at
 * 24 KiB. That is about right for virtual machines with links of 1 Gbit/s. */
extern const struct coll_link coll_link_default;

#define COLL_LINK_TEXT 80u /* bytes of a link as text, terminator included */

/* Returns whether the figures of a link are finite, not negative, and plausible. */
bool coll_link_valid(const struct coll_link *link);
/* Reads a link such as "118000000:8.5e-05:2.1e-05", the form of PAWL_LINK. Returns false if text is
 * not a valid link. */
bool coll_link_parse(const char *text, struct coll_link *link);
void coll_link_print(const struct coll_link *link, char *text); /* text: COLL_LINK_TEXT bytes */

/* Hosts that have vectors, and servers that only add. */
struct coll_hosts {
	uint32_t n;       /* hosts that have vectors; at least 1 */
	uint32_t servers; /* servers that only add; used by COLL_DIRECT alone */
};

/* Returns the cost in seconds. algorithm must fit hosts->n. */
double coll_cost_s(const struct coll_link *link, const struct coll_hosts *hosts,
	enum coll_algorithm algorithm, uint64_t len_bytes);
/* Returns a lower bound in seconds for all algorithms: the time in which some host must send or
 * receive its bytes (2(n - 1)/n of the vector; with servers BytePS's Theorem 1, Jiang et al.
 * 2020). */
double coll_bound_s(const struct coll_link *link, const struct coll_hosts *hosts,
	uint64_t len_bytes);
/* Returns the cheapest algorithm that adds in the order of topo.h. Returns COLL_DIRECT unless
 * another one is cheaper by more than the error of the model. */
enum coll_algorithm coll_choose_algorithm(const struct coll_link *link,
	const struct coll_hosts *hosts, uint64_t len_bytes);
const char *coll_algorithm_name(enum coll_algorithm algorithm); /* "direct" */

#endif
