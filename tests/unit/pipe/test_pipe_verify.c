/* The simulation: times and memory worked out by hand, random orders against a slow reference, and
 * plans that cannot run. */
#include "pipe_models.h"
#include "seed.h"

#include <stdlib.h>

#define ORDERS 1000u
#define TASKS  512u /* tasks of a plan of the tests, at most */

/* A plan in memory of its own. */
struct hand_made {
	struct pawl_pipe_plan plan;
	struct pawl_pipe_stage stage[MODEL_STAGES];
	struct pawl_pipe_chunk chunks[MODEL_STAGES];
	uint32_t first[MODEL_STAGES + 1];
	struct pawl_pipe_task tasks[TASKS];
	struct pawl_pipe_copies copies;
	uint32_t holders[MODEL_STAGES];
};

/* Makes a plan without tasks, whose chunk c is on stage c % stages: F 1 s, B 2 s. */
static void make(struct hand_made *made, uint32_t stages, uint32_t chunks, uint32_t microbatches)
{
	memset(made, 0, sizeof(*made));
	made->plan = (struct pawl_pipe_plan){.stages = stages,
		.chunks_n = chunks,
		.microbatches = microbatches,
		.stage = made->stage,
		.chunks = made->chunks,
		.copies = &made->copies,
		.holders = made->holders,
		.first = made->first,
		.tasks = made->tasks,
		.schedule = PAWL_PIPE_LISTED,
		.each = 1};
	for (uint32_t s = 0; s < stages; s++) {
		made->stage[s] = (struct pawl_pipe_stage){1000 * (s + 1), PAWL_PIPE_NO_CAP};
	}
	for (uint32_t c = 0; c < chunks; c++) {
		made->chunks[c] = (struct pawl_pipe_chunk){.stage = c % stages,
			.first = c,
			.units = 1,
			.forward_s = 1,
			.backward_s = 2,
			.weight_s = 0.5,
			.saved_bytes = 10 + c,
			.in_bytes = c > 0 && stages > 1 ? 100 : 0};
	}
}

/* Gives a stage its tasks, such as "F0.0 F0.1 B0.0" (kind, chunk, microbatch). Stages must come in
 * ascending order. */
static void give(struct hand_made *made, uint32_t stage, const char *tasks)
{
	const char *kinds = "FBIW";
	uint32_t n = made->first[stage];
	char kind = 0;
	unsigned chunk = 0;
	unsigned microbatch = 0;
	int len = 0;

	while (sscanf(tasks, " %c%u.%u%n", &kind, &chunk, &microbatch, &len) == 3) {
		made->tasks[n++] = (struct pawl_pipe_task){(uint8_t)(strchr(kinds, kind) - kinds),
			(uint16_t)chunk, microbatch};
		tasks += len;
	}
	made->first[stage + 1] = n;
}

/* Makes a plan of two stages, of a chunk each. */
static void make_two(struct hand_made *made, uint32_t microbatches, const char *first,
	const char *second)
{
	make(made, 2, 2, microbatches);
	give(made, 0, first);
	give(made, 1, second);
}

static void simulate(const struct hand_made *made, struct pawl_pipe_report *report)
{
	struct pawl_err err;

	OK(pawl_pipe_verify(report, &made->plan, &err));
}

static void expect_times(const struct pawl_pipe_report *report, uint32_t first, uint32_t n,
	const double *ends_s)
{
	for (uint32_t i = 0; i < n; i++) {
		assert_close(report->end_s[first + i], ends_s[i], 1e-12);
	}
}

/* ---- by hand ---- */

/*
 *   time      0 1 2 3 4 5 6 7 8 9 10
 *   stage 0   F F . B B . B B . .
 *   stage 1   . F . . . .
 */
static void two_stages_by_hand(void **state)
{
	static struct hand_made made;
	struct pawl_pipe_report report;

	make_two(&made, 2, "F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1");
	simulate(&made, &report);
	expect_times(&report, 0, 4, (const double[]){1, 2, 6, 9});
	expect_times(&report, 4, 4, (const double[]){2, 4, 5, 7});
	assert_close(report.finish_s, 9, 1e-12);
	assert_close(report.step_s, 9, 1e-12);
	assert_close(report.bound_s, 9, 1e-12); /* 1 + 2 * 3 on stage 1, and 2 back */
	assert_close(report.bubble, 0.5, 1e-12);
	assert_int_equal(report.stage[0].peak_bytes, 1000 + 2 * 10);
	assert_int_equal(report.stage[1].peak_bytes, 2000 + 11);
	assert_int_equal(report.stage[0].peak_live, 2);
	assert_int_equal(report.stage[1].peak_live, 1);
	assert_int_equal(report.over, PAWL_PIPE_ANY_STAGE);
	pawl_pipe_report_deinit(&report);
	made.stage[1].cap_bytes = 2010;
	simulate(&made, &report);
	assert_int_equal(report.over, 1);
	pawl_pipe_report_deinit(&report);
}

/* 100 bytes at 200 bytes/s, and 0.25 s of latency. Overlapping: what is sent arrives 0.75 s later,
 * but the second of two transfers that would overlap waits. Busy: both ends take 0.5 s more. */
static void transfers_by_hand(void **state)
{
	static struct hand_made made;
	struct pawl_pipe_report report;

	make_two(&made, 2, "F0.0 F0.1 B0.0 B0.1", "F1.0 F1.1 B1.0 B1.1");
	made.plan.link = (struct pawl_pipe_link){200, 0.25, false};
	simulate(&made, &report);
	expect_times(&report, 4, 4, (const double[]){2.75, 3.75, 5.75, 7.75});
	expect_times(&report, 0, 4, (const double[]){1, 2, 8.5, 10.5});
	assert_close(report.bound_s, 1.75 + 6 + 2.75, 1e-12);
	pawl_pipe_report_deinit(&report);
	made.chunks[1].in_bytes = 400; /* 2 s each: from 1 to 3, from 3 to 5 */
	simulate(&made, &report);
	expect_times(&report, 4, 2, (const double[]){4.25, 6.25});
	pawl_pipe_report_deinit(&report);
	made.chunks[1].in_bytes = 100;
	made.plan.link.busy = true;
	simulate(&made, &report);
	expect_times(&report, 0, 4, (const double[]){1.5, 3, 10, 12.5});
	expect_times(&report, 4, 4, (const double[]){3.25, 4.75, 7.25, 9.75});
	assert_close(report.stage[0].busy_s, 8, 1e-12);
	pawl_pipe_report_deinit(&report);
}

static void split_backwards_by_hand(void **state)
{
	static struct hand_made made;
	struct pawl_pipe_report report;

	make_two(&made, 1, "F0.0 I0.0 W0.0", "F1.0 I1.0 W1.0");
	simulate(&made, &report);
	expect_times(&report, 0, 3, (const double[]){1, 5, 5.5});
	expect_times(&report, 3, 3, (const double[]){2, 3.5, 4});
	pawl_pipe_report_deinit(&report);
	made.chunks[1].stage = 0; /* both on one stage: nothing is sent */
	made.chunks[1].in_bytes = 0;
	give(&made, 0, "F0.0 F1.0 I1.0 W1.0 I0.0 W0.0");
	give(&made, 1, "");
	simulate(&made, &report);
	assert_close(report.finish_s, 6, 1e-12);
	assert_int_equal(report.stage[0].peak_bytes, 1000 + 10 + 11);
	pawl_pipe_report_deinit(&report);
}

/* Copies on stages 0 and 1 are summed once both have ended: 2 * 1/2 * 300 bytes / 200, two hops. */
static void gradients_of_copies_are_summed(void **state)
{
	static struct hand_made made;
	struct pawl_pipe_report report;

	make_two(&made, 1, "F0.0 B0.0", "F1.0 B1.0");
	made.plan.copies_n = 1;
	made.copies = (struct pawl_pipe_copies){.tied = 1, .stages = 2, .len_bytes = 300};
	made.holders[1] = 1;
	simulate(&made, &report);
	assert_close(report.step_s, 6, 1e-12);
	pawl_pipe_report_deinit(&report);
	made.plan.link = (struct pawl_pipe_link){200, 0.125, false};
	simulate(&made, &report);
	assert_close(report.finish_s, 6 + 2 * 0.625, 1e-12);
	assert_close(report.step_s, report.finish_s + 1.5 + 0.25, 1e-12);
	pawl_pipe_report_deinit(&report);
}

/* ---- against a reference ---- */

/* Puts a stage's tasks in a random order, in which each kind takes microbatches one after the
 * other. */
static void shuffle(struct hand_made *made, struct rng *rng, uint32_t stage)
{
	uint32_t done[MODEL_STAGES][PAWL_PIPE_KINDS] = {0};
	uint32_t m = made->plan.microbatches;
	uint32_t n = made->first[stage];
	uint32_t left = 0;

	for (uint32_t c = stage; c < made->plan.chunks_n; c += made->plan.stages) {
		left += 2 * m;
	}
	while (left > 0) {
		uint32_t c = stage +
			(uint32_t)rng_below(rng, made->plan.chunks_n) / made->plan.stages *
				made->plan.stages;
		uint32_t kind = (uint32_t)rng_below(rng, 2);

		if (c < made->plan.chunks_n && done[c][kind] < m &&
			(kind == 0 || done[c][1] < done[c][0])) {
			made->tasks[n++] = (struct pawl_pipe_task){(uint8_t)kind, (uint16_t)c,
				done[c][kind]++};
			left--;
		}
	}
	made->first[stage + 1] = n;
}

/* Returns the end of a task, or infinity while it has none. */
static double find_end(const struct hand_made *made, const double *ends_s, uint8_t kind,
	uint32_t chunk, uint32_t microbatch)
{
	for (uint32_t i = 0; i < made->first[made->plan.stages]; i++) {
		const struct pawl_pipe_task *task = &made->tasks[i];

		if (task->kind == kind && task->chunk == chunk && task->microbatch == microbatch) {
			return ends_s[i];
		}
	}
	return INFINITY;
}

/* Returns when a task can begin, as far as its input is concerned: 0.25 s after what another stage
 * has computed. */
static double find_input(const struct hand_made *made, const double *ends_s,
	const struct pawl_pipe_task *task)
{
	bool forward = task->kind == PAWL_PIPE_FORWARD;
	uint32_t from = forward ? task->chunk - 1u : task->chunk + 1u;
	double hop_s = made->plan.stages > 1 ? made->plan.link.latency_s : 0;

	if (forward && task->chunk == 0) {
		return 0;
	}
	if (from == made->plan.chunks_n) {
		return find_end(made, ends_s, PAWL_PIPE_FORWARD, task->chunk, task->microbatch);
	}
	return find_end(made, ends_s, task->kind, from, task->microbatch) + hop_s;
}

/* Computes the end of a stage's i-th task if its input and the task before have ended. Returns
 * whether it is new. */
static bool compute_end(const struct hand_made *made, double *ends_s, uint32_t stage, uint32_t i)
{
	const struct pawl_pipe_task *task = &made->tasks[i];
	double before_s = i > made->first[stage] ? ends_s[i - 1] : 0;
	double start_s = fmax(before_s, find_input(made, ends_s, task));

	if (!isinf(ends_s[i]) || isinf(start_s)) {
		return false;
	}
	ends_s[i] = start_s + 1 + task->kind;
	return true;
}

/* Computes all ends by looking at all tasks over and over. Returns whether all have one. */
static bool simulate_slowly(const struct hand_made *made, double *ends_s)
{
	uint32_t n = made->first[made->plan.stages];
	uint32_t known = 0;
	uint32_t before;

	for (uint32_t i = 0; i < n; i++) {
		ends_s[i] = INFINITY;
	}
	do {
		before = known;
		for (uint32_t s = 0; s < made->plan.stages; s++) {
			for (uint32_t i = made->first[s]; i < made->first[s + 1]; i++) {
				known += compute_end(made, ends_s, s, i);
			}
		}
	} while (known > before);
	return known == n;
}

static void random_orders_take_what_a_slow_simulation_says(void **state)
{
	struct rng rng = {test_seed()};
	static struct hand_made made;
	static double ends_s[TASKS];
	uint32_t ran = 0;

	for (uint32_t i = 0; i < ORDERS; i++) {
		struct pawl_pipe_report report;
		struct pawl_err err = {0};
		uint32_t stages = 1 + (uint32_t)rng_below(&rng, 3);
		bool runs;

		make(&made, stages, stages * (1 + (uint32_t)rng_below(&rng, 2)),
			1 + (uint32_t)rng_below(&rng, 3));
		made.plan.link.latency_s = 0.25;
		for (uint32_t s = 0; s < stages; s++) {
			shuffle(&made, &rng, s);
		}
		runs = simulate_slowly(&made, ends_s);
		assert_int_equal(pawl_pipe_verify(&report, &made.plan, &err),
			runs ? 0 : PAWL_EINVAL);
		assert_int_equal(report.waits_n > 0, !runs);
		if (runs) {
			expect_times(&report, 0, made.first[stages], ends_s);
			assert_true(report.finish_s >= report.bound_s - 1e-9);
		}
		ran += runs;
		pawl_pipe_report_deinit(&report);
	}
	print_message("%u of %u orders run\n", ran, ORDERS);
	assert_true(ran > ORDERS / 10 && ran < ORDERS * 9 / 10);
}

/* ---- plans that cannot run ---- */

static void expect_refused(const struct hand_made *made, const char *why)
{
	struct pawl_pipe_report report;
	struct pawl_err err = {0};

	FAILS(PAWL_EINVAL, pawl_pipe_verify(&report, &made->plan, &err));
	SAYS(why);
	pawl_pipe_report_deinit(&report);
}

static void wrong_tasks_are_named(void **state)
{
	static struct hand_made made;
	static const struct {
		const char *first;
		const char *second;
		const char *why;
	} wrong[] = {
		{"F0.0", "F1.0 B1.0", "stage 0 does not have B of chunk 0, microbatch 0"},
		{"B0.0", "F1.0 B1.0", "stage 0 does not have F of chunk 0, microbatch 0"},
		{"F0.0 I0.0", "F1.0 B1.0", "stage 0 does not have W of chunk 0, microbatch 0"},
		{"F0.0 W0.0", "F1.0 B1.0", "stage 0 does not have I of chunk 0, microbatch 0"},
		{"F0.0 B0.0 W0.0", "F1.0 B1.0",
			"stage 0 has B of chunk 0, microbatch 0, and I or W"},
		{"F0.0 B0.0 F0.0", "F1.0 B1.0", "stage 0 has F of chunk 0, microbatch 0 twice"},
		{"F0.0 B0.0 F1.0", "B1.0",
			"stage 0 has F of chunk 1, microbatch 0, which is on stage 1"},
		{"F0.0 B0.0 F0.1", "F1.0 B1.0", "2 chunks and 1 microbatches"},
		{"F0.0 B0.0 F2.0", "F1.0 B1.0", "2 chunks and 1 microbatches"},
		{"F0.0 B0.0", "B1.0 F1.0",
			"1 stages wait for each other for ever: stage 1, before B of chunk 1, "
			"microbatch 0, waits for F of chunk 1, microbatch 0"},
		{"F0.0 W0.0 I0.0", "F1.0 B1.0",
			"stage 0, before W of chunk 0, microbatch 0, waits for I of chunk 0"},
		{"B0.0 F0.0", "F1.0 I1.0 W1.0",
			"stage 0, before B of chunk 0, microbatch 0, waits for I of chunk 1"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		make_two(&made, 1, wrong[i].first, wrong[i].second);
		expect_refused(&made, wrong[i].why);
	}
}

static void wrong_numbers_are_named(void **state)
{
	static struct hand_made made;
	struct pawl_pipe_report report;
	struct pawl_err err;

	make_two(&made, 1, "F0.0 B0.0", "F1.0 B1.0");
	made.chunks[0].forward_s = NAN;
	expect_refused(&made, "chunk 0: a time");
	made.chunks[0].forward_s = -1;
	expect_refused(&made, "chunk 0: a time");
	made.chunks[0].forward_s = 1;
	made.chunks[1].weight_s = 3;
	expect_refused(&made, "chunk 1: a time");
	made.chunks[1].weight_s = 0;
	made.chunks[0].in_bytes = 1;
	expect_refused(&made, "chunk 0 receives bytes");
	made.chunks[0].in_bytes = 0;
	made.chunks[1].stage = 2;
	expect_refused(&made, "chunk 1 is on stage 2, but the last stage is 1");
	made.chunks[1].stage = 1;
	made.plan.link.latency_s = -1;
	expect_refused(&made, "link");
	made.plan.link.latency_s = 0;
	made.plan.copies_n = 1;
	made.copies = (struct pawl_pipe_copies){.tied = 7, .stages = 1};
	expect_refused(&made, "tied set 7");
	made.copies.stages = 2;
	made.holders[1] = 5;
	expect_refused(&made, "tied set 7: there is no stage 5");
	made.plan.copies_n = 0;
	made.first[1] = 9;
	expect_refused(&made, "the tasks of stage 1");
	made.first[1] = 2;
	made.chunks[0].saved_bytes = PAWL_PIPE_BYTES_MAX;
	FAILS(PAWL_ELIMIT, pawl_pipe_verify(&report, &made.plan, &err));
	made.chunks[0].saved_bytes = 0;
	made.plan.microbatches = 0;
	FAILS(PAWL_ELIMIT, pawl_pipe_verify(&report, &made.plan, &err));
	pawl_pipe_report_deinit(&report);
	pawl_pipe_report_deinit(NULL);
	pawl_pipe_plan_deinit(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_stages_by_hand),
		cmocka_unit_test(transfers_by_hand),
		cmocka_unit_test(split_backwards_by_hand),
		cmocka_unit_test(gradients_of_copies_are_summed),
		cmocka_unit_test(random_orders_take_what_a_slow_simulation_says),
		cmocka_unit_test(wrong_tasks_are_named),
		cmocka_unit_test(wrong_numbers_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
