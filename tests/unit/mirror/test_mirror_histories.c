/* Histories of a mirror at random, and without memory: what is called committed is in the bucket
 * with these files, and the newest of the bucket is never removed. */
#include "../lib/seed.h"
#include "base/fault.h"
#include "base/rng.h"
#include "mirror_dir.h"

#include <errno.h>

/* A shell that does anything that can happen, in any order. */
static struct {
	struct rng rng;
	uint64_t published[UNITS][FILES]; /* files in the bucket, by step */
	uint32_t published_n[UNITS];      /* number of them; 0: none */
	uint64_t pinned[UNITS][FILES];    /* files that pins hold */
	uint32_t pinned_n[UNITS];         /* number of them */
	struct core_job job;              /* job under way */
} shell;

static bool one_in(uint64_t n)
{
	return rng_below(&shell.rng, n) == 0;
}

static void change_something(void)
{
	uint32_t i = (uint32_t)rng_below(&shell.rng, UNITS);

	switch (rng_below(&shell.rng, 6)) {
	case 0:
		make_unit(i, 1 + (uint32_t)rng_below(&shell.rng, FILES), !one_in(4));
		break;
	case 1:
		dir.files_n[i] -= dir.files_n[i] > 0;
		break;
	case 2:
		dir.files_n[i] = 0;
		break;
	case 3:
		scan();
		break;
	default:
		now += (int64_t)rng_below(&shell.rng, 4 * NS_PER_S);
	}
}

static void break_pins(void)
{
	for (uint32_t j = 0; j < core.units_n; j++) {
		struct core_unit *u = core.units[j];

		if (u->state == CORE_PINNED || u->state == CORE_SHIPPING) {
			core_must_unpin(&core, u, one_in(50), now);
		}
	}
}

static void begin_jobs(void)
{
	struct core_job job;

	while ((job = next()).kind == CORE_PIN) {
		uint64_t step = job.unit->step;

		memcpy(shell.pinned[step], job.unit->whole.at,
			job.unit->whole.n * sizeof(uint64_t));
		shell.pinned_n[step] = job.unit->whole.n;
		core_pinned(&core, job.unit, !one_in(3), "no", now);
	}
	if (job.kind != CORE_NOTHING) {
		assert_int_equal(shell.job.kind, CORE_NOTHING); /* one at a time */
		shell.job = job;
	}
}

static void end_shipping(struct core_unit *u)
{
	bool ok = !one_in(3);

	if (ok) {
		memcpy(shell.published[u->step], shell.pinned[u->step],
			sizeof(shell.pinned[u->step]));
		shell.published_n[u->step] = shell.pinned_n[u->step];
	}
	core_shipped(&core, u, ok, !ok && one_in(2), "no", now);
}

static void end_removal(struct core_unit *u)
{
	bool newer = false;

	for (uint64_t step = u->step + 1; step < UNITS; step++) {
		newer = newer || shell.published_n[step] > 0;
	}
	assert_true(newer); /* the newest of the bucket is never removed */
	shell.published_n[u->step] = 0;
	core_removed(&core, u, true, "", now);
}

static void end_job(void)
{
	if (shell.job.kind == CORE_SHIP && one_in(2)) {
		end_shipping(shell.job.unit);
		shell.job.kind = CORE_NOTHING;
	} else if (shell.job.kind == CORE_REMOVE && one_in(2)) {
		end_removal(shell.job.unit);
		shell.job.kind = CORE_NOTHING;
	}
}

/* What is called committed is in the bucket, with these files. */
static void check_committed(void)
{
	for (uint32_t j = 0; j < core.units_n; j++) {
		const struct core_unit *u = core.units[j];

		if (u->state == CORE_COMMITTED && u->in_bucket) {
			assert_int_equal(u->whole.n, shell.published_n[u->step]);
			assert_memory_equal(u->whole.at, shell.published[u->step],
				u->whole.n * sizeof(uint64_t));
		}
	}
}

static void random_histories(void **state)
{
	uint64_t seed = test_seed();

	for (uint32_t round = 0; round < 300; round++) {
		memset(&shell, 0, sizeof(shell));
		shell.rng.state = seed + round;
		begin(&usual);
		core.options.local_max_bytes = one_in(2) ? 250 : 0;
		for (uint32_t turn = 0; turn < 200; turn++) {
			change_something();
			break_pins();
			begin_jobs();
			end_job();
			check_committed();
		}
	}
}

static void memory_may_run_out(void **state)
{
	begin(&usual);
	for (uint64_t nth = 1; nth < 12; nth++) {
		static const struct core_inspect inspect = {look, NULL};
		struct core_seen seen = {"checkpoint-1", dir.files[1], 2, 10, &dir.whole[1]};
		int rv;

		make_unit(1, 2, true);
		fault_arm("mirror.", nth, ENOMEM, false);
		rv = core_scan(&core, &seen, 1, NULL, 0, &inspect, now, NULL);
		fault_disarm();
		assert_true(rv == 0 || rv == PAWL_ENOMEM);
	}
	scan();
	now += 2 * NS_PER_S;
	pin(1);
}

static int end(void **state)
{
	core_deinit(&core);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_histories),
		cmocka_unit_test(memory_may_run_out),
	};

	return cmocka_run_group_tests(tests, NULL, end);
}
