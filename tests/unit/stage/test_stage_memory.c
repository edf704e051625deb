/* Memory of values: blocks are used again, few are kept, holders keep them after the pool is
 * closed, and threads may share them. */
#include "stage/memory.h"

#include "base/fault.h"
#include "base/rng.h"
#include "seed.h"

#include <pthread.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static uint64_t first_seed;

static void blocks_are_used_again(void **state)
{
	struct stage_pool *pool = stage_memory_pool_open();
	struct pawl_stage_memory *a = stage_memory_take(pool, 5000000);
	struct pawl_stage_memory *b = stage_memory_take(pool, 100);
	struct pawl_stage_memory *again;

	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal((uintptr_t)stage_memory_bytes(a) % 64, 0);
	memset(stage_memory_bytes(a), 1, 5000000);
	pawl_stage_memory_release(a);
	pawl_stage_memory_release(b);
	again = stage_memory_take(pool, 5000001);
	assert_ptr_equal(again, a);
	pawl_stage_memory_release(again);
	again = stage_memory_take(pool, 256);
	assert_ptr_equal(again, b);
	pawl_stage_memory_release(again);
	assert_null(stage_memory_take(pool, UINT64_MAX));
	fault_arm("stage.memory", 1, ENOMEM, false);
	assert_null(stage_memory_take(pool, 12345));
	fault_disarm();
	stage_memory_pool_close(pool);
	stage_memory_pool_close(NULL);
	pawl_stage_memory_release(NULL);
}

static void holders_keep_a_block(void **state)
{
	struct stage_pool *pool = stage_memory_pool_open();
	struct pawl_stage_memory *a = stage_memory_take(pool, 1000);
	struct pawl_stage_memory *other;

	stage_memory_hold(a);
	pawl_stage_memory_release(a);
	other = stage_memory_take(pool, 1000);
	assert_ptr_not_equal(other, a);
	pawl_stage_memory_release(other);
	stage_memory_pool_close(pool);
	memset(stage_memory_bytes(a), 7, 1000); /* still ours */
	pawl_stage_memory_release(a);
}

/* Random sizes: content stays, and what is kept is bounded by what was in use. */
static void blocks_do_not_overlap(void **state)
{
	struct rng rng = {first_seed};
	struct stage_pool *pool = stage_memory_pool_open();
	struct pawl_stage_memory *blocks[40] = {0};
	size_t sizes[40] = {0};

	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t b = (uint32_t)rng_below(&rng, 40);
		uint8_t *bytes = blocks[b] ? stage_memory_bytes(blocks[b]) : NULL;

		if (bytes) {
			assert_int_equal(bytes[0], b);
			assert_int_equal(bytes[sizes[b] - 1], b);
			pawl_stage_memory_release(blocks[b]);
			blocks[b] = NULL;
			continue;
		}
		sizes[b] = 1 + (size_t)rng_below(&rng, 1ull << rng_below(&rng, 18));
		blocks[b] = stage_memory_take(pool, sizes[b]);
		assert_non_null(blocks[b]);
		bytes = stage_memory_bytes(blocks[b]);
		bytes[0] = bytes[sizes[b] - 1] = (uint8_t)b;
	}
	for (uint32_t b = 0; b < 40; b++) {
		pawl_stage_memory_release(blocks[b]);
	}
	stage_memory_pool_close(pool);
}

static void *use(void *user)
{
	for (uint32_t i = 0; i < 3000; i++) {
		struct pawl_stage_memory *block = stage_memory_take(user, 1000 + i % 7 * 1000);

		memset(stage_memory_bytes(block), (int)i, 1000);
		stage_memory_hold(block);
		pawl_stage_memory_release(block);
		pawl_stage_memory_release(block);
	}
	return NULL;
}

static void threads_share_a_pool(void **state)
{
	struct stage_pool *pool = stage_memory_pool_open();
	pthread_t threads[3];

	for (uint32_t t = 0; t < 3; t++) {
		pthread_create(&threads[t], NULL, use, pool);
	}
	for (uint32_t t = 0; t < 3; t++) {
		pthread_join(threads[t], NULL);
	}
	stage_memory_pool_close(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_used_again),
		cmocka_unit_test(holders_keep_a_block),
		cmocka_unit_test(blocks_do_not_overlap),
		cmocka_unit_test(threads_share_a_pool),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
