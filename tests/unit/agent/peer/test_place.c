/* Placement: what holds for any number of hosts, replicas and failure domains. */
#include "agent/peer/place.h"
#include "base/rng.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka.h needs the standard headers above. */
#include <cmocka.h>

#define HOSTS_MAX    40u
#define REPLICAS_MAX 4u

static struct peer_map map;
static struct rng rng;
static uint32_t peers[HOSTS_MAX][PLACE_REPLICAS_MAX];
static uint32_t peers_n[HOSTS_MAX];
static uint32_t load[HOSTS_MAX]; /* replicas that a host holds */

/* Makes n hosts with links, in no failure domain. */
static void make(uint32_t n)
{
	memset(&map, 0, sizeof(map));
	map.run = 1;
	map.n = n;
	for (uint32_t i = 0; i < n; i++) {
		map.hosts[i].first_rank = 8 * i;
		map.hosts[i].ranks = 8;
		snprintf(map.hosts[i].address, PEER_ADDRESS_MAX, "10.0.0.%u:7000", i + 1);
	}
}

static void set_domain(uint32_t host, uint64_t number)
{
	snprintf(map.hosts[host].domain, PEER_DOMAIN_MAX, "zone-%u", (unsigned)number);
}

static bool is_same_domain(uint32_t a, uint32_t b)
{
	const char *name = map.hosts[a].domain;

	return a == b || (name[0] != '\0' && strcmp(name, map.hosts[b].domain) == 0);
}

static bool has_links(uint32_t host)
{
	return map.hosts[host].address[0] != '\0';
}

/* Places all hosts' replicas, each as another host computes it, and checks what always holds. */
static void place(uint32_t replicas)
{
	uint32_t n = 0;

	memset(load, 0, sizeof(load));
	for (uint32_t h = 0; h < map.n; h++) {
		n += has_links(h);
	}
	for (uint32_t h = 0; h < map.n; h++) {
		uint32_t again[PLACE_REPLICAS_MAX];
		uint32_t expected = replicas < n ? replicas : n - 1;

		map.own = h;
		peers_n[h] = place_replicas(&map, h, replicas, peers[h]);
		assert_int_equal(peers_n[h], has_links(h) ? expected : 0);
		map.own = (uint32_t)rng_below(&rng, map.n);
		assert_int_equal(place_replicas(&map, h, replicas, again), peers_n[h]);
		assert_memory_equal(again, peers[h], peers_n[h] * sizeof(again[0]));
		for (uint32_t i = 0; i < peers_n[h]; i++) {
			assert_true(peers[h][i] < map.n && peers[h][i] != h);
			assert_true(has_links(peers[h][i]));
			load[peers[h][i]]++;
			for (uint32_t j = 0; j < i; j++) {
				assert_true(peers[h][i] != peers[h][j]);
			}
		}
	}
	for (uint32_t h = 0; h < map.n; h++) {
		assert_true(load[h] <= replicas + n % (replicas + 1));
	}
}

/* Places in domains that alternate, in random and unknown ones, and with hosts without links. */
static void place_in_domains(uint32_t replicas, uint32_t zones)
{
	for (uint32_t h = 0; h < map.n; h++) {
		set_domain(h, h % zones);
	}
	place(replicas);
	for (uint32_t h = 0; h < map.n; h++) {
		set_domain(h, rng_below(&rng, zones));
		if (rng_below(&rng, 4) == 0) {
			map.hosts[h].domain[0] = '\0';
		}
	}
	place(replicas);
	for (uint32_t h = 0; h < map.n; h++) {
		if (rng_below(&rng, 3) == 0) {
			map.hosts[h].address[0] = '\0';
		}
	}
	place(replicas);
}

static void every_host_has_its_peers(void **state)
{
	for (uint32_t n = 1; n <= HOSTS_MAX; n++) {
		for (uint32_t replicas = 0; replicas <= REPLICAS_MAX; replicas++) {
			make(n);
			place(replicas);
			for (uint32_t zones = 1; zones <= 7; zones++) {
				make(n);
				place_in_domains(replicas, zones);
			}
		}
	}
}

static bool holds_for(uint32_t host, uint32_t peer)
{
	for (uint32_t i = 0; i < peers_n[host]; i++) {
		if (peers[host][i] == peer) {
			return true;
		}
	}
	return false;
}

/* Whether the host and its peers hold each other's parts, and nobody else's. */
static bool is_group(uint32_t host)
{
	bool is = load[host] == peers_n[host];

	for (uint32_t i = 0; i < peers_n[host]; i++) {
		uint32_t peer = peers[host][i];

		is = is && load[peer] == peers_n[host] && holds_for(peer, host);
		for (uint32_t j = 0; j < peers_n[host]; j++) {
			is = is && (j == i || holds_for(peer, peers[host][j]));
		}
	}
	return is;
}

static void groups_are_disjoint(void **state)
{
	for (uint32_t replicas = 1; replicas <= REPLICAS_MAX; replicas++) {
		for (uint32_t n = replicas + 1; n <= HOSTS_MAX; n++) {
			uint32_t rest = n % (replicas + 1);
			uint32_t in_groups = 0;

			make(n);
			for (uint32_t h = 0; h < n; h++) {
				set_domain(h, rng_below(&rng, 5));
			}
			place(replicas);
			for (uint32_t h = 0; h < n; h++) {
				in_groups += is_group(h);
			}
			/* the last group is larger if there is a rest */
			assert_int_equal(in_groups, rest == 0 ? n : n - rest - (replicas + 1));
		}
	}
}

/* Gives each host one of so many domains, equally often, in random order. */
static void deal_domains(uint32_t zones)
{
	for (uint32_t h = 0; h < map.n; h++) {
		uint32_t other = (uint32_t)rng_below(&rng, h + 1);

		memcpy(map.hosts[h].domain, map.hosts[other].domain, PEER_DOMAIN_MAX);
		set_domain(other, h % zones);
	}
}

static void assert_other_domains(uint32_t replicas)
{
	for (uint32_t h = 0; h < map.n; h++) {
		assert_true(load[h] <= replicas + 1);
		for (uint32_t i = 0; i < peers_n[h]; i++) {
			assert_false(is_same_domain(h, peers[h][i]));
		}
	}
}

/* With enough equally large domains, the loss of one loses no part. */
static void no_peer_is_of_the_own_domain(void **state)
{
	for (uint32_t replicas = 1; replicas <= REPLICAS_MAX; replicas++) {
		for (uint32_t zones = replicas + 1; zones <= 9; zones++) {
			for (uint32_t n = zones; n <= HOSTS_MAX; n += zones) {
				make(n);
				deal_domains(zones);
				place(replicas);
				assert_other_domains(replicas);
			}
		}
	}
}

/* One domain has as many hosts as there are groups, and the others are small: still no group has
 * two hosts of a domain. */
static void a_large_domain_is_spread_over_the_groups(void **state)
{
	make(8);
	for (uint32_t h = 0; h < 8; h++) {
		set_domain(h, h < 4 ? 0 : 1 + h / 6); /* a a a a b b c c */
	}
	place(1);
	for (uint32_t h = 0; h < 8; h++) {
		assert_false(is_same_domain(h, peers[h][0]));
		assert_int_equal(peers[peers[h][0]][0], h);
	}
}

/* ---- sums ---- */

/* Whether enough rows of a group are left when these hosts are lost. */
static bool survives(const struct place_group *group, const uint32_t *members, const bool *lost)
{
	uint32_t rows = 0;

	for (uint32_t i = 0; i < group->parity.k; i++) {
		rows += !lost[members[i]];
	}
	for (uint32_t row = 0; row < group->parity.m; row++) {
		rows += !lost[group->holders[row]];
	}
	return rows >= group->parity.k;
}

/* Checks the group of one host: fills in its members, by their numbers in it. */
static void check_group(uint32_t host, uint32_t m, struct place_group *group, uint32_t *members)
{
	uint32_t found = 0;
	uint32_t lowest = UINT32_MAX;

	assert_true(place_parity(&map, host, m, group));
	assert_int_equal(group->parity.m, m);
	assert_int_equal(group->parity.row, 0);
	for (uint32_t h = 0; h < map.n; h++) {
		struct place_group other;

		map.own = (uint32_t)rng_below(&rng, map.n);
		if (!place_parity(&map, h, m, &other) ||
			other.parity.group != group->parity.group) {
			continue;
		}
		assert_int_equal(other.parity.k, group->parity.k);
		assert_memory_equal(other.holders, group->holders, m * sizeof(uint32_t));
		assert_true(other.parity.index < other.parity.k);
		members[other.parity.index] = h;
		found |= 1u << other.parity.index;
		lowest = map.hosts[h].first_rank < lowest ? map.hosts[h].first_rank : lowest;
		for (uint32_t row = 0; row < m; row++) {
			assert_true(has_links(group->holders[row]));
			assert_int_not_equal(group->holders[row], h);
		}
	}
	assert_int_equal(found, (1u << group->parity.k) - 1);
	assert_int_equal(lowest, group->parity.group);
	assert_true(peer_parity_is_valid(&group->parity, map.hosts[host].first_rank));
	for (uint32_t i = 0; i < 100; i++) {
		bool lost[HOSTS_MAX] = {false};

		for (uint32_t n = 0; n < m; n++) {
			lost[rng_below(&rng, map.n)] = true;
		}
		assert_true(survives(group, members, lost));
	}
}

/* Places the sums of all hosts; returns the number of those with links. */
static uint32_t place_sums(uint32_t m)
{
	uint32_t n = 0;
	uint32_t k_max;

	memset(load, 0, sizeof(load));
	for (uint32_t h = 0; h < map.n; h++) {
		n += has_links(h);
	}
	k_max = n > m && n - m < PLACE_PARITY_K ? n - m : PLACE_PARITY_K;
	for (uint32_t h = 0; h < map.n; h++) {
		uint32_t members[PLACE_PARITY_K] = {0};
		struct place_group group;

		if (!has_links(h) || n < PLACE_PARITY_HOSTS || n <= m || m == 0) {
			assert_false(place_parity(&map, h, m, &group));
			continue;
		}
		check_group(h, m, &group, members);
		assert_true(group.parity.k <= k_max);
		for (uint32_t row = 0; group.parity.index == 0 && row < m; row++) {
			load[group.holders[row]]++;
		}
	}
	for (uint32_t h = 0; h < map.n; h++) {
		assert_true(load[h] <= m && (m > k_max || load[h] <= 2));
	}
	return n;
}

/* Takes the links of one host in four. */
static void cut_some(uint32_t host)
{
	if (rng_below(&rng, 4) == 0) {
		map.hosts[host].address[0] = '\0';
	}
}

static void any_m_hosts_may_be_lost(void **state)
{
	for (uint32_t n = 1; n <= HOSTS_MAX; n++) {
		for (uint32_t m = 0; m <= REPLICAS_MAX; m++) {
			make(n);
			assert_int_equal(place_sums(m), n);
			for (uint32_t h = 0; h < n; h++) {
				set_domain(h, rng_below(&rng, 5));
				cut_some(h);
			}
			place_sums(m);
		}
	}
}

static void assert_all_domains(const uint32_t *hosts, uint32_t n)
{
	for (uint32_t a = 0; a < n; a++) {
		for (uint32_t b = 0; b < a; b++) {
			assert_false(is_same_domain(hosts[a], hosts[b]));
		}
	}
}

/* As many domains as a group has hosts and holders, dealt in any order. */
static void a_group_and_its_holders_are_of_different_domains(void **state)
{
	for (uint32_t m = 1; m <= 3; m++) {
		uint32_t zones = PLACE_PARITY_K + m;

		make(3 * zones);
		deal_domains(zones);
		for (uint32_t h = 0; h < map.n; h++) {
			uint32_t members[PLACE_PARITY_K + PLACE_REPLICAS_MAX] = {0};
			struct place_group group;

			check_group(h, m, &group, members);
			memcpy(&members[group.parity.k], group.holders, m * sizeof(uint32_t));
			assert_all_domains(members, group.parity.k + m);
		}
	}
}

static void examples_of_sums(void **state)
{
	struct place_group group;

	make(5);
	assert_true(place_parity(&map, 2, 1, &group)); /* 0 1 2 3, and 4 alone */
	assert_int_equal(group.parity.group, 0);
	assert_int_equal(group.parity.k, 4);
	assert_int_equal(group.parity.index, 2);
	assert_int_equal(group.holders[0], 4);
	assert_true(place_parity(&map, 4, 1, &group));
	assert_int_equal(group.parity.group, 8 * 4);
	assert_int_equal(group.parity.k, 1);
	assert_int_equal(group.holders[0], 0);
	make(10);
	assert_true(place_parity(&map, 9, 2, &group)); /* 0 to 7, and 8 9 */
	assert_int_equal(group.parity.k, 2);
	assert_int_equal(group.parity.index, 1);
	assert_int_equal(group.holders[0], 0);
	assert_int_equal(group.holders[1], 1);
	make(PLACE_PARITY_HOSTS - 1);
	assert_false(place_parity(&map, 0, 1, &group));
}

static void examples(void **state)
{
	make(5);
	place(1);
	assert_int_equal(peers[0][0], 1);
	assert_int_equal(peers[1][0], 0);
	assert_int_equal(peers[2][0], 3); /* a ring of three */
	assert_int_equal(peers[3][0], 4);
	assert_int_equal(peers[4][0], 2);
	make(4);
	set_domain(3, 1); /* the others are unknown: each of a domain of its own */
	place(1);
	assert_int_equal(peers[0][0], 1);
	assert_int_equal(peers[2][0], 3);
	make(PEER_HOSTS_MAX);
	assert_int_equal(place_replicas(&map, 255, 1, peers[0]), 1);
	assert_int_equal(peers[0][0], 254);
	assert_int_equal(place_replicas(&map, 0, PLACE_REPLICAS_MAX, peers[0]), PLACE_REPLICAS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_host_has_its_peers),
		cmocka_unit_test(groups_are_disjoint),
		cmocka_unit_test(no_peer_is_of_the_own_domain),
		cmocka_unit_test(a_large_domain_is_spread_over_the_groups),
		cmocka_unit_test(any_m_hosts_may_be_lost),
		cmocka_unit_test(a_group_and_its_holders_are_of_different_domains),
		cmocka_unit_test(examples_of_sums),
		cmocka_unit_test(examples),
	};

	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
