/*
 * An all-reduce of 32 bit floats by one of the plans, over the TCP port: our ring, or our direct
 * plan, which a group would choose. For bench/baselines.py, which starts one process on each host:
 * ring_reduce RANK RANKS ADDRESS FOLDER ring|direct NUMBERS ROUNDS Ranks find each other by files
 * in FOLDER. Prints a JSON object: seconds and CPU seconds per round.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "coll/plan/exec.h"
#include "coll/transport/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define WARM    12u /* rounds before the measured ones, which warm up TCP */
#define PART    (64u << 10)
#define JOIN_NS (60 * NS_PER_S)
#define WAIT_NS NS_PER_MS

struct rank {
	uint32_t rank, ranks;
	struct coll_transport *transport;
	struct coll_plan plan;
	struct coll_exec exec;
	uint64_t numbers;
	float *vector;
};

static double cpu_s(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
		(double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 10 * NS_PER_MS}, NULL);
}

/* Publishes our name in folder, and reads the names of all ranks. */
static void exchange(const struct rank *r, const char *folder, const char *ours,
	char (*names)[COLL_TCP_NAME])
{
	char path[2][4096];
	FILE *file;

	snprintf(path[0], sizeof(path[0]), "%s/%u.part", folder, r->rank);
	snprintf(path[1], sizeof(path[1]), "%s/%u", folder, r->rank);
	file = fopen(path[0], "w");
	ASSERT(file && fputs(ours, file) >= 0 && fclose(file) == 0);
	ASSERT(rename(path[0], path[1]) == 0);
	for (uint32_t p = 0; p < r->ranks; p++) {
		snprintf(path[0], sizeof(path[0]), "%s/%u", folder, p);
		while ((file = fopen(path[0], "r")) == NULL) {
			nap();
		}
		ASSERT(fgets(names[p], COLL_TCP_NAME, file) != NULL);
		fclose(file);
	}
}

static void join(struct rank *r, const char *address, const char *folder)
{
	char(*names)[COLL_TCP_NAME] = calloc(r->ranks, sizeof(*names));
	const char **at = calloc(r->ranks, sizeof(*at));
	char ours[COLL_TCP_NAME];
	struct pawl_err err;

	ASSERT(names && at);
	if (coll_tcp_open(&r->transport, r->rank, r->ranks, address, ours, &err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		exit(1);
	}
	exchange(r, folder, ours, names);
	for (uint32_t p = 0; p < r->ranks; p++) {
		at[p] = names[p];
	}
	if (coll_tcp_join(r->transport, at, JOIN_NS, NULL, &err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		exit(1);
	}
	free(names);
	free(at);
}

static void plan(struct rank *r, enum coll_algorithm algorithm)
{
	uint32_t *where = calloc(r->ranks, sizeof(*where));
	struct coll_topo topo;

	ASSERT(where);
	for (uint32_t p = 0; p < r->ranks; p++) {
		where[p] = p;
	}
	ASSERT(coll_topo_init(&topo, where, r->ranks, 0, NULL) == 0);
	ASSERT(coll_plan_all_reduce(&r->plan, &topo, r->rank, algorithm, r->numbers * sizeof(float),
		       NULL) == 0);
	ASSERT(coll_exec_init(&r->exec, &r->plan, r->ranks, coll_kernel_best(), NULL) == 0);
	coll_topo_deinit(&topo);
	free(where);
}

static bool receive_from(struct rank *r, uint32_t peer)
{
	void *to;
	size_t n = coll_exec_to_receive(&r->exec, peer, &to);

	n = n > 0 ? r->transport->receive(r->transport, peer, 0, to, n < PART ? n : PART) : 0;
	if (n > 0) {
		coll_exec_received(&r->exec, peer, n);
	}
	return n > 0;
}

/* Sends to the peer whose turn it is, as a group does. */
static bool send_some(struct rank *r)
{
	uint64_t first = UINT64_MAX;
	uint32_t peer = 0;
	const void *from;
	size_t n;

	for (uint32_t p = 0; p < r->ranks; p++) {
		uint64_t at = coll_exec_turn(&r->exec, p);

		peer = at < first ? p : peer;
		first = at < first ? at : first;
	}
	if (first == UINT64_MAX) {
		return false;
	}
	n = coll_exec_to_send(&r->exec, peer, &from);
	n = n > 0 ? r->transport->send(r->transport, peer, 0, from, n < PART ? n : PART) : 0;
	if (n > 0) {
		coll_exec_sent(&r->exec, peer, n);
	}
	return n > 0;
}

static void reduce(struct rank *r)
{
	coll_exec_start(&r->exec, PAWL_SUM, PAWL_FLOAT32, r->vector, r->vector);
	while (!coll_exec_done(&r->exec)) {
		uint32_t seen = r->transport->poll(r->transport);
		bool moved = send_some(r);

		for (uint32_t p = 0; p < r->ranks; p++) {
			moved |= p != r->rank && receive_from(r, p);
		}
		if (!moved) {
			r->transport->wait(r->transport, seen, WAIT_NS);
		}
	}
}

/* Checks the plan: every rank contributes its number. Afterwards all vectors are zeros, and stay
 * so. */
static void check(struct rank *r)
{
	uint32_t sum = r->ranks * (r->ranks - 1) / 2;
	float want = (float)sum;

	for (uint64_t i = 0; i < r->numbers; i++) {
		r->vector[i] = (float)r->rank;
	}
	reduce(r);
	for (uint64_t i = 0; i < r->numbers; i++) {
		ASSERT(r->vector[i] == want);
		r->vector[i] = 0;
	}
}

int main(int argc, char **argv)
{
	struct rank r = {0};
	uint32_t rounds;
	double used;
	int64_t begun;

	if (argc != 8) {
		fprintf(stderr,
			"ring_reduce RANK RANKS ADDRESS FOLDER ring|direct NUMBERS ROUNDS\n");
		return 2;
	}
	r.rank = (uint32_t)strtoul(argv[1], NULL, 10);
	r.ranks = (uint32_t)strtoul(argv[2], NULL, 10);
	r.numbers = strtoull(argv[6], NULL, 10);
	rounds = (uint32_t)strtoul(argv[7], NULL, 10);
	r.vector = calloc(r.numbers, sizeof(float));
	ASSERT(r.vector && rounds > 0 && r.ranks > r.rank && r.numbers > 0);
	join(&r, argv[3], argv[4]);
	plan(&r, strcmp(argv[5], "ring") == 0 ? COLL_RING : COLL_DIRECT);
	check(&r);
	for (uint32_t i = 0; i < WARM; i++) {
		reduce(&r);
	}
	begun = clock_mono_ns();
	used = cpu_s();
	for (uint32_t i = 0; i < rounds; i++) {
		reduce(&r);
	}
	printf("{\"wall\": %.9f, \"cpu\": %.9f}\n",
		(double)(clock_mono_ns() - begun) / NS_PER_S / rounds, (cpu_s() - used) / rounds);
	fflush(stdout);
	while (getchar() != EOF) { /* the other ranks may still read what the kernel holds */
	}
	r.transport->close(r.transport);
	coll_exec_deinit(&r.exec);
	coll_plan_deinit(&r.plan);
	free(r.vector);
	return 0;
}
