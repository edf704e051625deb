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
		cmocka_unit_test(examples),
	};

	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
