/* The scheduler's counts of its steps, for Prometheus. Their text: test_daemon_http.c. */
#include "../sched/test_sched_one.h"
#include "daemon/metrics.h"

/* Counts a step as the daemon does. */
static void count(struct metrics *metrics, struct core_event event)
{
	struct metrics_step step;

	event.now_ns = t.now_ns;
	event.generation = job(event.job)->generation;
	metrics_begin(&step, t.core, &event);
	assert_int_equal(core_step(t.core, &event, &event.job, &t.err), 0);
	metrics_end(metrics, &step, t.core, &event);
	store();
}

static uint64_t counted(const struct metrics_times *times)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i <= METRICS_BOUNDS; i++) {
		n += times->counts[i];
	}
	return n;
}

/* Makes a job that has waited for 7 s, and that the core then starts. Returns its id. */
static uint64_t start_one(void)
{
	uint64_t id;

	begin_with_one_node();
	id = submit((struct core_request){.least = 1, .most = 1});
	pass(7 * S_NS);
	is(id, CORE_STARTING, 1);
	return id;
}

/* A first start is counted once, whether it is reported as running first, or only as ended. */
static void a_first_start_is_a_wait(void **state)
{
	for (int reported = 0; reported < 2; reported++) {
		struct metrics metrics;
		uint64_t id = start_one();

		metrics_init(&metrics);
		if (reported) {
			count(&metrics, (struct core_event){.kind = CORE_RUNS, .job = id});
			is(id, CORE_RUNNING, 1);
			t.now_ns += S_NS;
		}
		count(&metrics,
			(struct core_event){.kind = CORE_ENDED,
				.job = id,
				.end_cause = CORE_END_EXITED});
		assert_int_equal(counted(&metrics.waits), 1);
		assert_true(metrics.waits.sum_s == 7);
	}
}

static void a_start_that_came_to_nothing_is_none(void **state)
{
	struct metrics metrics;
	uint64_t id = start_one();

	metrics_init(&metrics);
	count(&metrics,
		(struct core_event){.kind = CORE_ENDED, .job = id, .end_cause = CORE_END_UNKNOWN});
	assert_int_equal(counted(&metrics.waits), 0);
}

static int end(void **state)
{
	core_close(t.core);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_first_start_is_a_wait),
		cmocka_unit_test(a_start_that_came_to_nothing_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, end);
}
