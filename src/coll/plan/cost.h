/*
 * What an all-reduce between hosts costs, and which way is the cheapest. Pure.
 *
 * The model is the alpha-beta one (Hockney 1994), and what each message costs a CPU besides. A way
 * has a number of hops one behind the other, messages sent by its busiest host, and bytes through
 * that host's network. Work inside a host is the same for all ways and is left out, and so is
 * adding, of which direct has the least. The ranks of a host each carry a lane, with as many hops
 * and messages as one rank a host would have, and as many bytes together; so the cost is the same
 * for any number of ranks, if each has a core. Servers that only add are taken to send what they
 * have added while they receive more, as they do with long vectors.
 */
#ifndef COLL_PLAN_COST_H
#define COLL_PLAN_COST_H

#include "coll/plan/plan.h"

/* The network between hosts, which are all alike. */
struct coll_link {
	double bytes_per_s; /* bandwidth of a host, each way */
	double latency_s;   /* from a message's start to its first byte's arrival */
	double message_s;   /* time that a host is busy with each message it sends */
};

/* The link that is assumed if none was measured. With four hosts, ways change at 24 KiB: about
 * where they should between virtual machines with links of 1 Gbit/s. */
extern const struct coll_link coll_link_default;

#define COLL_LINK_TEXT 80u /* bytes of a link as text, terminator included */

/* Returns whether the figures of a link are finite, not negative, and plausible. */
bool coll_link_valid(const struct coll_link *link);
/* Reads a link such as "118000000:8.5e-05:2.1e-05", the form of PAWL_LINK. False: text is none. */
bool coll_link_parse(const char *text, struct coll_link *link);
void coll_link_print(const struct coll_link *link, char *text); /* text: COLL_LINK_TEXT bytes */

/* Hosts that have vectors, and servers that only add. */
struct coll_hosts {
	uint32_t n;       /* hosts that have vectors; at least 1 */
	uint32_t servers; /* servers that only add; used by COLL_DIRECT alone */
};

/* Returns the cost in seconds; way must fit hosts->n. */
double coll_cost_s(const struct coll_link *link, const struct coll_hosts *hosts,
	enum coll_algorithm algorithm, uint64_t len_bytes);
/* Returns the seconds below which no way can be: the bytes that some host must send or receive, at
 * its rate (2(n - 1)/n of the vector; with servers BytePS's Theorem 1, Jiang et al. 2020). */
double coll_bound_s(const struct coll_link *link, const struct coll_hosts *hosts,
	uint64_t len_bytes);
/* Returns the cheapest way that adds in the order of topo.h; COLL_DIRECT, unless another way is
 * cheaper by more than the error of the model. */
enum coll_algorithm coll_choose_algorithm(const struct coll_link *link,
	const struct coll_hosts *hosts, uint64_t len_bytes);
const char *coll_algorithm_name(enum coll_algorithm algorithm); /* "direct" */

#endif
