/* Steps allocate nothing: 1,000 steps of collectives that were done before. */
#include "pawl/coll.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "count_alloc.h"
#include "test_coll_heartbeat.h"
#include "within.h"

#ifndef SANITIZED

#define RANKS   3
#define STEPS   1000
#define BUCKETS 6
#define LEN_MAX (96u << 10)

static atomic_bool counting;
static atomic_uint calls;

static void count_call(void)
{
	if (atomic_load(&counting)) {
		atomic_fetch_add(&calls, 1);
	}
}

static uint8_t memory[RANKS][BUCKETS][LEN_MAX * RANKS];
static struct pawl_group *groups[RANKS];
static pthread_barrier_t barrier;
static atomic_int failed;

/* One step: gradients of several sizes, all under way at once, then what a sharded model
 * gathers. */
static void step(uint32_t rank)
{
	static const uint64_t sizes[BUCKETS] = {4, 4096, LEN_MAX, 65536, LEN_MAX, 1024};
	int64_t long_ns = within_ns(WITHIN_LONG_S);
	struct pawl_work works[BUCKETS];

	for (uint32_t b = 0; b < BUCKETS; b++) {
		struct pawl_coll_call call = {.kind = b == 4 ? PAWL_ALL_GATHER : PAWL_ALL_REDUCE,
			.dtype = PAWL_FLOAT32,
			.len_bytes = sizes[b],
			.in = memory[rank][b],
			.out = memory[rank][b]};

		if (b == 4) {
			call.in = memory[rank][b] + rank * sizes[b];
		}
		if (pawl_group_submit(groups[rank], &works[b], &call, NULL) != 0) {
			atomic_store(&failed, 1);
			return;
		}
	}
	for (uint32_t b = 0; b < BUCKETS; b++) {
		if (IN_TIME(pawl_group_wait(groups[rank], &works[b], long_ns, NULL)) != 0) {
			atomic_store(&failed, 1);
		}
	}
}

static void *run(void *user)
{
	uint32_t rank = (uint32_t)(uintptr_t)user;

	for (int i = 0; i < 10; i++) {
		step(rank);
	}
	pthread_barrier_wait(&barrier);
	atomic_store(&counting, true);
	for (int i = 0; i < STEPS && atomic_load(&failed) == 0; i++) {
		step(rank);
		if (i == STEPS / 2) {
			within_quiet(2.5); /* heartbeats are sent meanwhile */
		}
	}
	pthread_barrier_wait(&barrier);
	atomic_store(&counting, false);
	return NULL;
}

int main(void)
{
	char endpoints[RANKS][PAWL_ENDPOINT_MAX];
	const char *all[RANKS];
	pthread_t threads[RANKS];

	bear_silence();
	for (uint32_t r = 0; r < RANKS; r++) {
		if (pawl_group_open(&groups[r], r, RANKS, NULL, endpoints[r], NULL) != 0) {
			return 1;
		}
		all[r] = endpoints[r];
	}
	pthread_barrier_init(&barrier, NULL, RANKS);
	for (uint32_t r = 0; r < RANKS; r++) {
		if (IN_TIME(pawl_group_join(groups[r], all, within_ns(WITHIN_LONG_S), NULL)) != 0) {
			return 1;
		}
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_create(&threads[r], NULL, run, (void *)(uintptr_t)r);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_join(threads[r], NULL);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pawl_group_close(groups[r]);
	}
	printf("%u calls of the allocator in %d steps, %s\n", atomic_load(&calls), STEPS,
		atomic_load(&failed) ? "which failed" : "which went well");
	return atomic_load(&calls) == 0 && atomic_load(&failed) == 0 ? 0 : 1;
}

#endif
