/*
 * What an all-reduce between hosts costs, and which way is the cheapest. Pure.
 *
 * The model is the alpha-beta one (Hockney 1994) with what a message costs a CPU beside: a way has
 * so many hops behind each other, messages by its busiest host, and bytes through that host's
 * network. What happens inside a host is the same for all ways and is left out, and so is adding,
 * of which direct has the least. The ranks of a host each carry a lane, with as many hops and
 * messages as one rank a host and as many bytes together, so that the cost is the same for any
 * number of them, if each has a core. Servers that only add are taken to send what they have added
 * while they receive more, as they do with long vectors.
 */
#ifndef COLL_COST_H
#define COLL_COST_H

#include "coll/plan.h"

/* The network between hosts that are alike. */
struct coll_link {
	double bytes_per_s; /* of a host, each way */
	double latency_s;   /* from a message's start to its first byte's arrival */
	double message_s;   /* that a host is kept busy by each message it sends */
};

/* Without a measured one. With four hosts, ways change at 24 KiB: about where they should between
 * virtual machines with links of 1 Gbit/s. */
extern const struct coll_link coll_link_default;

#define COLL_LINK_TEXT 80u /* bytes of a link as text, terminator included */

/* Whether it is one: positive, finite, and of this world. */
bool coll_link_valid(const struct coll_link *link);
/* "118000000:8.5e-05:2.1e-05", as PAWL_LINK has it. False: it is none. */
bool coll_link_parse(const char *text, struct coll_link *link);
void coll_link_print(const struct coll_link *link, char *text); /* COLL_LINK_TEXT */

/* Hosts that have vectors, and servers that only add. */
struct coll_hosts {
	uint32_t n;       /* at least 1 */
	uint32_t servers; /* that COLL_DIRECT goes by; the other ways do without */
};

/* Seconds; way fits hosts->n. */
double coll_cost_s(const struct coll_link *link, const struct coll_hosts *hosts, enum coll_way way,
	uint64_t len_bytes);
/* Seconds below which no way can be: the bytes that some host must send or receive, at its rate
 * (2(n - 1)/n of the vector; with servers BytePS's Theorem 1, Jiang et al. 2020). */
double coll_bound_s(const struct coll_link *link, const struct coll_hosts *hosts,
	uint64_t len_bytes);
/* The cheapest that adds in our order; COLL_DIRECT, unless another one is cheaper by more than the
 * model errs. */
enum coll_way coll_choose(const struct coll_link *link, const struct coll_hosts *hosts,
	uint64_t len_bytes);
const char *coll_way_name(enum coll_way way); /* "direct" */

#endif
