/*
 * Placement: see place.h.
 *
 * Seats are given one after the other, replicas + 1 of them a group, the rest to the last group. A
 * seat goes to a host whose domain is not in the group yet, of the domain that has most hosts
 * without a seat: so no group has two hosts of a domain before that cannot be avoided. In the last
 * group, the ring, a host passes over those of its own domain as long as there are enough others.
 *
 * For sums, hosts take seats in rounds through all domains. Groups are consecutive seats, and the
 * hosts on the seats behind a group hold its sums.
 */
#include "agent/peer/place.h"

#include "base/assert.h"

#include <string.h>

#define NO_GROUP UINT32_MAX

/* The hosts that have links, and how they are seated. */
struct seating {
	uint32_t n;                     /* number of hosts */
	uint32_t hosts[PEER_HOSTS_MAX]; /* indices in the map, ascending; then in order of seats */
	uint32_t
		domain[PEER_HOSTS_MAX]; /* for each host of the map, the first host of its domain */
};

static void find_domains(struct seating *seating, const struct peer_map *map)
{
	seating->n = 0;
	for (uint32_t h = 0; h < map->n; h++) {
		const char *name = map->hosts[h].domain;
		uint32_t first = 0;

		while (first < h &&
			(name[0] == '\0' || strcmp(map->hosts[first].domain, name) != 0)) {
			first++;
		}
		seating->domain[h] = first;
		if (map->hosts[h].address[0] != '\0') {
			seating->hosts[seating->n++] = h;
		}
	}
}

/* Orders the hosts by their seats in groups of that many; what is left at the end belongs to the
 * last group. */
static void give_seats(struct seating *seating, uint32_t group_hosts)
{
	uint32_t left[PEER_HOSTS_MAX] = {0}; /* for each domain, hosts without a seat */
	uint32_t group[PEER_HOSTS_MAX];      /* for each domain, the last group that it is in */
	uint32_t groups = seating->n / group_hosts;

	memset(group, 0xff, sizeof(group));
	for (uint32_t i = 0; i < seating->n; i++) {
		left[seating->domain[seating->hosts[i]]]++;
	}
	for (uint32_t seat = 0; seat < seating->n; seat++) {
		uint32_t now = seat / group_hosts < groups ? seat / group_hosts : groups - 1;
		uint32_t best = seat;
		uint32_t host;

		for (uint32_t i = seat + 1; i < seating->n; i++) {
			uint32_t a = seating->domain[seating->hosts[i]];
			uint32_t b = seating->domain[seating->hosts[best]];
			bool fresh_a = group[a] != now;
			bool fresh_b = group[b] != now;

			if (fresh_a != fresh_b ? fresh_a : left[a] > left[b]) {
				best = i;
			}
		}
		host = seating->hosts[best];
		memmove(&seating->hosts[seat + 1], &seating->hosts[seat],
			(best - seat) * sizeof(host)); /* the others keep their order */
		seating->hosts[seat] = host;
		left[seating->domain[host]]--;
		group[seating->domain[host]] = now;
	}
}

uint32_t place_replicas(const struct peer_map *map, uint32_t host, uint32_t replicas,
	uint32_t peers[PLACE_REPLICAS_MAX])
{
	struct seating seating;
	uint32_t found = 0;
	uint32_t seat = 0;
	uint32_t first; /* first seat of the host's group */
	uint32_t hosts; /* number of hosts in that group */

	ASSERT(map->n <= PEER_HOSTS_MAX && host < map->n && replicas <= PLACE_REPLICAS_MAX);
	find_domains(&seating, map);
	if (map->hosts[host].address[0] == '\0' || seating.n < 2 || replicas == 0) {
		return 0;
	}
	replicas = replicas < seating.n - 1 ? replicas : seating.n - 1;
	give_seats(&seating, replicas + 1);
	while (seating.hosts[seat] != host) {
		seat++;
	}
	first = seat - seat % (replicas + 1);
	if (seating.n - first < replicas + 1) {
		first -= replicas + 1;
	}
	hosts = seating.n - first < 2 * (replicas + 1) ? seating.n - first : replicas + 1;
	for (uint32_t own_domain = 0; own_domain < 2; own_domain++) {
		for (uint32_t i = 1; i < hosts && found < replicas; i++) {
			uint32_t peer = seating.hosts[first + (seat - first + i) % hosts];

			if ((seating.domain[peer] == seating.domain[host]) == (own_domain == 1)) {
				peers[found++] = peer;
			}
		}
	}
	ASSERT(found == replicas);
	return found;
}

/* ---- sums ---- */

/* Orders the hosts in rounds through all domains, in the order of the domains' first hosts:
 * neighbours are of different domains until only large ones have hosts left. */
static void deal_seats(struct seating *seating)
{
	uint32_t dealt[PEER_HOSTS_MAX] = {0}; /* for each domain, hosts that have a round */
	uint32_t keys[PEER_HOSTS_MAX];        /* for each seat, the host's round and domain */

	for (uint32_t i = 0; i < seating->n; i++) {
		uint32_t host = seating->hosts[i];
		uint32_t domain = seating->domain[host];
		uint32_t key = dealt[domain]++ * PEER_HOSTS_MAX + domain;
		uint32_t seat = i;

		for (; seat > 0 && keys[seat - 1] > key; seat--) {
			keys[seat] = keys[seat - 1];
			seating->hosts[seat] = seating->hosts[seat - 1];
		}
		keys[seat] = key;
		seating->hosts[seat] = host;
	}
}

bool place_parity(const struct peer_map *map, uint32_t host, uint32_t m, struct place_group *group)
{
	struct seating seating;
	uint32_t seat = 0;
	uint32_t first; /* first seat of the group */
	uint32_t hosts; /* number of hosts in it */
	uint32_t k;

	ASSERT(map->n <= PEER_HOSTS_MAX && host < map->n && m <= PLACE_REPLICAS_MAX);
	find_domains(&seating, map);
	if (map->hosts[host].address[0] == '\0' || seating.n < PLACE_PARITY_HOSTS ||
		seating.n <= m || m == 0) {
		return false;
	}
	deal_seats(&seating);
	while (seating.hosts[seat] != host) {
		seat++;
	}
	k = seating.n - m < PLACE_PARITY_K ? seating.n - m : PLACE_PARITY_K;
	ASSERT(k > 0 && seating.n > 0);
	first = seat - seat % k;
	hosts = seating.n - first < k ? seating.n - first : k;
	*group = (struct place_group){
		.parity = {.group = UINT32_MAX, .k = hosts, .m = m, .index = seat - first}};
	for (uint32_t i = 0; i < hosts; i++) {
		uint32_t rank = map->hosts[seating.hosts[first + i]].first_rank;

		if (rank < group->parity.group) {
			group->parity.group = rank;
		}
	}
	for (uint32_t row = 0; row < m; row++) {
		group->holders[row] = seating.hosts[(first + hosts + row) % seating.n];
	}
	return true;
}
