/*
 * What an all-reduce between hosts costs, and which way is the cheapest. Pure.
 *
 * The model is the alpha-beta one (Hockney 1994) with what a message costs a CPU beside: a way has
 * so many hops behind each other, messages by its busiest host, and bytes through that host's
 * network. What happens inside a host is the same for all ways and is left out. Servers that only
 * add are taken to send what they have added while they receive more, as they do with long vectors.
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

/* Hosts that have vectors, and servers that only add. */
struct coll_hosts {
	uint32_t n;       /* at least 1 */
	uint32_t servers; /* for COLL_DIRECT */
};

/* Seconds; way fits hosts->n. */
double coll_cost_s(const struct coll_link *link, const struct coll_hosts *hosts, enum coll_way way,
	uint64_t len_bytes);
/* Seconds below which no way can be: the bytes that some host must send or receive, at its rate
 * (2(n - 1)/n of the vector; with servers BytePS's Theorem 1, Jiang et al. 2020). */
double coll_bound_s(const struct coll_link *link, const struct coll_hosts *hosts,
	uint64_t len_bytes);
/* The cheapest that adds in our order; with servers COLL_DIRECT. */
enum coll_way coll_choose(const struct coll_link *link, const struct coll_hosts *hosts,
	uint64_t len_bytes);
const char *coll_way_name(enum coll_way way); /* "direct" */

#endif
