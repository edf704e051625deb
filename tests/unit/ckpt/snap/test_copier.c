/* Copies beside an owner that goes on: a copy holds what was there when it began, or the span that
 * changed is named. */
#include "pawl/copier.h"

#include "base/fault.h"
#include "test_snap_world.h"

#define SPANS        40u
#define CHANGED_SPAN 25u

/* Spans of live memory, and their destinations. */
struct bench {
	struct world w; /* used for its memory; its engine is not used */
	struct pawl_copier *copier;
	struct pawl_ckpt_span from[SPANS];
	void *to[SPANS];
	enum pawl_ckpt_proof proof;
};

/* Makes spans of every size around a page, a chunk and the smallest that is watched. Every third is
 * copied at once, and has group 0; the others have group 1 or 2. */
static void bench_open(struct bench *b, bool watch)
{
	static const uint64_t sizes[] = {0, 1, 4096, CKPT_WATCH_MIN - 1, CKPT_WATCH_MIN,
		CKPT_WATCH_MIN + 1, 300001, CKPT_CHUNK, CKPT_CHUNK + 5000};
	size_t at = 100;

	world_open(&b->w, 10, 1, 7);
	assert_int_equal(pawl_copier_open(&b->copier, watch, NULL), 0);
	for (uint32_t i = 0; i < SPANS; i++) {
		uint64_t size_bytes = sizes[i % (sizeof(sizes) / sizeof(*sizes))];

		b->from[i] = (struct pawl_ckpt_span){.addr = (uintptr_t)b->w.mem + at,
			.size_bytes = size_bytes,
			.groups = i % 3 == 0 ? 0 : i % 3};
		b->to[i] = b->w.arena + at;
		at += size_bytes + i;
		ASSERT(at <= b->w.mem_bytes);
	}
}

static void bench_close(struct bench *b)
{
	pawl_copier_close(b->copier);
	world_close(&b->w);
}

static void bench_begin(struct bench *b)
{
	memcpy(b->w.before, b->w.mem, b->w.mem_bytes);
	assert_int_equal(pawl_copier_begin(b->copier, b->from, b->to, SPANS, &b->proof, NULL), 0);
}

static void bench_check(const struct bench *b)
{
	for (uint32_t i = 0; i < SPANS; i++) {
		size_t at = b->from[i].addr - (uintptr_t)b->w.mem;

		assert_memory_equal(b->to[i], b->w.before + at, b->from[i].size_bytes);
	}
}

static uint8_t *bench_page(const struct bench *b, uint32_t span)
{
	return b->w.mem + (b->from[span].addr - (uintptr_t)b->w.mem) + (CKPT_CHUNK / 2);
}

static void copies_are_of_the_moment(void **state)
{
	for (int watch = 0; watch < 2; watch++) {
		struct bench b;
		struct rng rng = {3};
		uint32_t span;

		bench_open(&b, watch);
		for (int i = 0; i < 3; i++) {
			bench_begin(&b);
			assert_true(watch || b.proof == PAWL_CKPT_COPIED);
			pawl_copier_fence(b.copier, 3);
			world_fill(&b.w, &rng);
			assert_int_equal(pawl_copier_wait(b.copier, &span), 0);
			assert_false(pawl_copier_busy(b.copier));
			bench_check(&b);
		}
		bench_close(&b);
	}
}

/* The engine is stopped before it copies the span that changes. */
static void what_changes_is_named(void **state)
{
	struct bench b;
	uint8_t *page;
	uint32_t span;

	bench_open(&b, true);
	page = bench_page(&b, CHANGED_SPAN);
	assert_true(b.from[CHANGED_SPAN].size_bytes >= CKPT_CHUNK);
	gate_arm(SNAP_UNIT_TAKEN, page);
	bench_begin(&b);
	if (b.proof == PAWL_CKPT_COPIED) {
		snap_hook = NULL;
		bench_close(&b);
		printf("skipped: the kernel does not watch pages\n");
		skip();
		return;
	}
	gate_reach();
	assert_true(pawl_copier_busy(b.copier));
	*page ^= 1;
	gate_open();
	assert_int_equal(pawl_copier_wait(b.copier, &span), PAWL_ECHANGED);
	assert_int_equal(span, CHANGED_SPAN);
	snap_hook = NULL;
	bench_begin(&b);
	assert_int_equal(pawl_copier_wait(b.copier, &span), 0);
	bench_check(&b);
	bench_close(&b);
}

/* Closing and beginning again both wait for the copies in progress. */
static void none_is_left_behind(void **state)
{
	struct bench b;

	bench_open(&b, true);
	for (int i = 0; i < 20; i++) {
		bench_begin(&b);
	}
	pawl_copier_close(b.copier);
	bench_check(&b);
	assert_int_equal(pawl_copier_open(&b.copier, true, NULL), 0);
	assert_int_equal(pawl_copier_begin(b.copier, NULL, NULL, 0, &b.proof, NULL), 0);
	bench_close(&b);
}

static void refusals_start_nothing(void **state)
{
	static const char *const points[] = {"plan.pieces", "snap.keys"};
	struct bench b;
	struct pawl_err err;
	uint32_t span;

	bench_open(&b, false);
	b.from[1].device = 1000;
	assert_int_equal(pawl_copier_begin(b.copier, b.from, b.to, SPANS, &b.proof, &err),
		PAWL_EINVAL);
	b.from[1].device = 0;
	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		fault_arm(points[i], 1, ENOMEM, false);
		assert_int_equal(pawl_copier_begin(b.copier, b.from, b.to, SPANS, &b.proof, &err),
			PAWL_ENOMEM);
		fault_disarm();
		assert_false(pawl_copier_busy(b.copier));
	}
	bench_begin(&b);
	assert_int_equal(pawl_copier_wait(b.copier, &span), 0);
	bench_check(&b);
	bench_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_are_of_the_moment),
		cmocka_unit_test(what_changes_is_named),
		cmocka_unit_test(none_is_left_behind),
		cmocka_unit_test(refusals_start_nothing),
	};

	world_keep_handlers();
	return cmocka_run_group_tests_name("copier", tests, NULL, NULL);
}
