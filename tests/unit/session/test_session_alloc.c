/* From the third save of the same structure on (both generations of memory were used) the worker
 * neither allocates nor frees, in any thread; the agent does once, for the record it decodes. */
#include "../lib/count_alloc.h"
#include "test_session_agent.h"

#ifndef SANITIZED

#include <stdatomic.h>
#include <sys/mman.h>

#define SAVES       200u
#define BIG         (5u << 20) /* bytes */
#define STORAGES    40u
#define AGENT_CALLS 2u /* calls of the allocator for a save: the record of the one before goes */
#define COUNTS_ENV  "PAWL_TEST_COUNTS" /* descriptor of the counts, for the agent */

enum { WORKER, AGENT };

static atomic_ulong *counts; /* calls of the allocator in both processes; NULL: not counting */
static int self = WORKER;    /* this process */

static void count_call(void)
{
	if (counts != NULL) {
		counts[self]++;
	}
}

static atomic_ulong *map_counts(int fd)
{
	atomic_ulong *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static int run_counting_agent(const char *socket_path)
{
	const char *fd = getenv(COUNTS_ENV);

	if (fd == NULL) {
		return 1;
	}
	self = AGENT;
	counts = map_counts((int)strtol(fd, NULL, 10));
	return run_agent(socket_path);
}

/* Makes the descriptor of the counts, which the agent inherits. */
static int setup_counts(void **state)
{
	int fd = memfd_create("counts", 0);
	char text[16];

	assert_true(fd >= 0 && ftruncate(fd, 4096) == 0);
	snprintf(text, sizeof(text), "%d", fd);
	setenv(COUNTS_ENV, text, 1);
	counts = map_counts(fd);
	assert_non_null(counts);
	return setup(state);
}

/* Saves. Half of the storages wait for a fence; the pickle is another one each time. */
static void save(struct pawl_ckpt *ckpt, uint8_t *memory, uint64_t step, bool watch)
{
	struct pawl_ckpt_span spans[STORAGES];
	char pickle[32];
	struct pawl_ckpt_part parts[2] = {{.name = "model", .spans_n = STORAGES},
		{.name = "own", .spans_n = 1}};
	uint64_t id;

	for (uint32_t s = 0; s < STORAGES; s++) {
		spans[s] = (struct pawl_ckpt_span){(uintptr_t)memory + s * (BIG / STORAGES),
			BIG / STORAGES, s % 2, 0};
	}
	snprintf(pickle, sizeof(pickle), "pickle of step %08llu", (unsigned long long)step);
	for (int p = 0; p < 2; p++) {
		parts[p].spans = spans;
		parts[p].pickle = pickle;
		parts[p].pickle_bytes = strlen(pickle);
	}
	assert_int_equal(pawl_ckpt_save(ckpt, step, parts, 2, watch, &id, NULL), 0);
	pawl_ckpt_fence(ckpt, 1);
	memory[step % BIG]++;
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, NULL)), 0);
}

static void run_saves(bool watch)
{
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	uint8_t *memory = aligned_alloc(4096, BIG);
	unsigned long before[2];

	for (uint64_t step = 1; step <= 3; step++) {
		save(ckpt, memory, step, watch);
	}
	before[WORKER] = counts[WORKER];
	before[AGENT] = counts[AGENT];
	assert_true(before[WORKER] > 0 && before[AGENT] > 0);
	for (uint64_t step = 4; step < 4 + SAVES; step++) {
		save(ckpt, memory, step, watch);
	}
	assert_int_equal(counts[WORKER] - before[WORKER], 0);
	/* the agent may still drop the record before the third save's when that is committed */
	assert_in_range(counts[AGENT] - before[AGENT], 0, (SAVES + 1ul) * AGENT_CALLS);
	free(memory);
	pawl_ckpt_close(ckpt, WAIT_MS, NULL);
}

static void watched_saves_do_not_allocate(void **state)
{
	run_saves(true);
}

static void copied_saves_do_not_allocate(void **state)
{
	run_saves(false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(watched_saves_do_not_allocate, setup_counts,
			teardown),
		cmocka_unit_test_setup_teardown(copied_saves_do_not_allocate, setup_counts,
			teardown),
	};

	return argc > 1 ? run_counting_agent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
