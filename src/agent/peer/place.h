/*
 * Chooses the hosts that hold the replicas of a host's part, or the sums in which it is. Pure.
 *
 * The rule: hosts are divided into groups of replicas + 1 that hold each other's parts (Gemini,
 * SOSP 2023, section 4: disjoint groups lose data for the fewest sets of lost hosts); the rest of
 * the division joins the last group as a ring. The hosts of a group are of different failure
 * domains, as far as that is possible. Hosts without links are in no group.
 */
#ifndef AGENT_PEER_PLACE_H
#define AGENT_PEER_PLACE_H

#include "agent/peer/peer_msg.h"

#define PLACE_REPLICAS_MAX 8u
#define PLACE_PARITY_HOSTS 4u /* hosts with links from which on sums save memory */
#define PLACE_PARITY_K     8u /* hosts in a group of sums, at most: a restore reads so many */

/* A host of the run, as all hosts of the run know it. */
struct peer_host {
	uint32_t first_rank;            /* lowest rank */
	uint32_t ranks;                 /* number of ranks */
	char address[PEER_ADDRESS_MAX]; /* "host:port"; "": its agent has no links */
	char domain[PEER_DOMAIN_MAX];   /* failure domain; "": unknown, one of its own */
	uint32_t replicas; /* hosts that are to hold its part, at most PLACE_REPLICAS_MAX */
	bool parity;       /* as many sums are to be kept in place of replicas */
};

/* The hosts of a run, in order of their first ranks. The same on all hosts. */
struct peer_map {
	uint64_t run; /* number of the run; 0: there is none */
	uint32_t own; /* index of this host */
	uint32_t n;   /* number of hosts */
	struct peer_host hosts[PEER_HOSTS_MAX];
};

/*
 * Chooses the hosts that hold the replicas of host: fills their indices into peers, nearest first,
 * and returns their number: the lesser of replicas and the number of other hosts with links; 0 for
 * a host without. The same on all hosts.
 *
 * With n hosts with links, no host holds more than replicas + n % (replicas + 1) replicas; with at
 * least replicas + 1 domains, all equally large, no more than replicas + 1, and none of its own
 * domain.
 */
uint32_t place_replicas(const struct peer_map *map, uint32_t host, uint32_t replicas,
	uint32_t peers[PLACE_REPLICAS_MAX]);

/* The sums in which a host's part is. */
struct place_group {
	/* The part's place in the first sum; in the others only the row differs. */
	struct peer_parity parity;
	uint32_t holders[PLACE_REPLICAS_MAX]; /* for each sum, the host that holds it */
};

/*
 * Chooses the m sums in which the part of host is to be; returns false if whole replicas are to be
 * held in their place: there are fewer than PLACE_PARITY_HOSTS hosts with links, or no more than m,
 * or this one has none, or m is 0. The same on all hosts.
 *
 * The n hosts with links are in groups of k, the lesser of PLACE_PARITY_K and n - m; the last one
 * may be smaller. A group's sums are held by m different hosts outside of the group: whichever m
 * hosts are lost, at least k of the k + m rows are left. No host holds more than m sums, nor more
 * than 2 if m is at most k. A group and its holders are of different failure domains as far as
 * there are enough, equally large ones.
 */
bool place_parity(const struct peer_map *map, uint32_t host, uint32_t m, struct place_group *group);

#endif
