/*
 * The duration of an all-reduce of groups in a simulated world (tests/lib/sim.h), in virtual time,
 * with and without servers: little longer than the lower bound of all algorithms, and about the
 * prediction of the cost model.
 */
#include "base/clock.h"
#include "coll/group/group.h"
#include "coll/plan/cost.h"
#include "sim.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define PEERS 16
#define LEN   (8u << 20) /* bytes of a vector */

static const struct sim_net gigabit = {.bytes_per_s = 125e6,
	.latency_ns = 50000,
	.window_bytes = 256u << 10,
	.turn_ns = 10000};

struct peer {
	struct sim *sim;
	uint32_t rank, ranks, servers;
	const uint32_t *host_of;
	const atomic_bool *stop;
	float *numbers;  /* owned; vector of a rank; NULL at a server */
	int64_t done_ns; /* virtual time at which the sum was complete; 0: not yet */
};

static void add(void *user)
{
	struct peer *peer = user;
	struct pawl_coll_call call = {.dtype = PAWL_FLOAT32,
		.len_bytes = LEN,
		.in = peer->numbers,
		.out = peer->numbers};
	struct pawl_group *group;
	struct pawl_work work;
	bool ok = coll_group_make(&group, peer->rank, peer->ranks, peer->servers, NULL) == 0 &&
		coll_group_start(group, sim_transport(peer->sim, peer->rank), peer->host_of,
			NULL) == 0;

	if (ok && peer->rank >= peer->ranks) {
		coll_group_serve(group, peer->stop, NULL);
	} else if (ok && pawl_group_submit(group, &work, &call, NULL) == 0 &&
		pawl_group_wait(group, &work, -1, NULL) == 0) {
		peer->done_ns = sim_now_ns(peer->sim);
	}
	pawl_group_close(group);
}

/* Returns the seconds until the last rank has the sum. */
static double time_sum(uint32_t ranks, uint32_t servers)
{
	static const atomic_bool stop;
	uint32_t host_of[PEERS] = {0};
	struct peer peers[PEERS];
	struct sim *sim;
	int64_t last_ns = 0;

	for (uint32_t p = 0; p < ranks + servers; p++) {
		host_of[p] = p;
	}
	sim = sim_open(&gigabit, host_of, ranks + servers, 1);
	for (uint32_t p = 0; p < ranks + servers; p++) {
		peers[p] = (struct peer){sim, p, ranks, servers, host_of, &stop};
		peers[p].numbers = p < ranks ? calloc(1, LEN) : NULL;
		sim_spawn(sim, p, add, &peers[p]);
	}
	assert_true(sim_run(sim, 100 * NS_PER_S));
	for (uint32_t p = 0; p < ranks + servers; p++) {
		last_ns = peers[p].done_ns > last_ns ? peers[p].done_ns : last_ns;
		assert_true(p >= ranks || peers[p].done_ns > 0);
		free(peers[p].numbers);
	}
	sim_close(sim);
	return (double)last_ns / NS_PER_S;
}

static void sums_take_what_the_network_takes(void **state)
{
	static const struct coll_link link = {125e6, 50e-6, 0};
	static const struct coll_hosts all[] = {{2, 0}, {4, 0}, {8, 0}, {5, 0}, {4, 1}, {4, 2},
		{4, 4}, {8, 4}, {8, 8}};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		double took_s = time_sum(all[i].n, all[i].servers);
		double predicted_s = coll_cost_s(&link, &all[i], COLL_DIRECT, LEN);
		double bound_s = coll_bound_s(&link, &all[i], LEN);

		print_message("%u hosts, %u servers: %.1f ms, model %.1f, bound %.1f\n", all[i].n,
			all[i].servers, took_s * 1e3, predicted_s * 1e3, bound_s * 1e3);
		assert_true(took_s > 0.999 * bound_s);
		assert_true(took_s < 1.05 * bound_s);
		assert_true(took_s < 1.05 * predicted_s && predicted_s < 1.05 * took_s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_take_what_the_network_takes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
