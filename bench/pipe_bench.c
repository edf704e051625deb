/*
 * Measures how long it takes to cut a model and to plan a pipeline, in time of one core. For
 * bench/pipe.py. Prints a line for each case: its name, units, stages, median milliseconds, longest
 * milliseconds, and the relative distance of the value from its proven bound.
 *
 *   minmax   the largest stage's time, nothing else counts
 *   joint    also transfers that keep stages busy, and parameters and activations, whose limits of
 *            memory do not matter
 *   capped   the same with limits that matter, 1F1B's activations by stage, and unequal speeds
 *   choose   all schedules: cut, ordered and simulated (fewer units and stages)
 */
#include "base/rng.h"
#include "pipe/cost.h"
#include "pipe/partition.h"
#include "shared/cpu_times.h"

#define UNITS  10000u
#define STAGES 64u
#define SEED   1u

/* What a case measures. */
struct subject {
	const char *name;
	struct pawl_pipe_unit *units;
	uint32_t n;
	struct pawl_pipe_setting setting;
	double speeds[STAGES];
	uint64_t caps[STAGES];
};

static void print_line(const struct subject *subject, double *ms, double gap)
{
	const uint32_t sizes[] = {subject->n, subject->setting.stages};

	cpu_times_print(subject->name, sizes, 2, ms, gap);
	printf("\n");
}

static void fill(struct subject *subject, uint32_t n, uint32_t stages)
{
	struct rng rng = {SEED};

	subject->n = n;
	subject->setting = (struct pawl_pipe_setting){.stages = stages,
		.microbatches = 2 * stages,
		.schedule = PAWL_PIPE_1F1B,
		.state_factor = 4};
	for (uint32_t u = 0; u < n; u++) {
		subject->units[u] = (struct pawl_pipe_unit){.name = "unit",
			.forward_s = (0.5 + rng_unit(&rng)) / 3,
			.backward_s = (0.5 + rng_unit(&rng)) * 2 / 3,
			.param_bytes = 1000 + rng_below(&rng, 1000),
			.saved_bytes = 100 + rng_below(&rng, 100),
			.cut_bytes = 1 + rng_below(&rng, 100),
			.stage = PAWL_PIPE_ANY_STAGE};
	}
	for (uint32_t s = 0; s < stages; s++) {
		subject->speeds[s] = s % 4 == 0 ? 0.7 : 1;
		subject->caps[s] = 1ull << 50;
	}
}

/* Cuts the subject's units into a part for each stage, as a plan with 1F1B does. */
static int cut(const struct subject *subject, struct pipe_optimum *optimum)
{
	uint32_t stage[STAGES];
	uint32_t live[STAGES];
	uint32_t ends[STAGES];
	struct pipe_cutting cutting = {subject->setting.stages, stage, live,
		subject->setting.caps_bytes ? 1 : 0, false};
	struct pipe_chain chain;
	int rv;

	for (uint32_t s = 0; s < subject->setting.stages; s++) {
		stage[s] = s;
		live[s] = subject->setting.stages - s;
	}
	rv = pipe_check(subject->units, subject->n, &subject->setting, NULL);
	rv = rv ? rv
		: pipe_chain_init(&chain, subject->units, subject->n, &subject->setting, &cutting,
			  NULL);
	if (rv == 0) {
		rv = pipe_partition(&chain, ends, optimum, NULL);
		pipe_chain_deinit(&chain);
	}
	return rv;
}

static int measure_cut(const struct subject *subject)
{
	struct pipe_optimum optimum = {0};
	double ms[CPU_TIMES_MAX];
	int rv = 0;

	for (int i = 0; i < CPU_TIMES_MAX && rv == 0; i++) {
		int64_t begin_ns = cpu_ns();

		rv = cut(subject, &optimum);
		ms[i] = cpu_ms_since(begin_ns);
	}
	if (rv == 0) {
		print_line(subject, ms, (optimum.value - optimum.bound) / optimum.value);
	}
	return rv;
}

static int measure_choose(const struct subject *subject)
{
	struct pawl_pipe_plan plan = {0};
	struct pawl_pipe_report report = {0};
	double ms[CPU_TIMES_MAX];
	double gap = 0;
	int rv = 0;

	for (int i = 0; i < CPU_TIMES_MAX && rv == 0; i++) {
		int64_t begin_ns = cpu_ns();

		rv = pawl_pipe_choose(&plan, &report, NULL, subject->units, subject->n,
			&subject->setting, NULL);
		ms[i] = cpu_ms_since(begin_ns);
		gap = report.step_s / report.bound_s - 1;
		pawl_pipe_plan_deinit(&plan);
		pawl_pipe_report_deinit(&report);
	}
	if (rv == 0) {
		print_line(subject, ms, gap);
	}
	return rv;
}

static void limit_memory(struct subject *subject)
{
	double state = 0;
	double saved = 0;

	for (uint32_t u = 0; u < subject->n; u++) {
		state += 4 * (double)subject->units[u].param_bytes;
		saved += (double)subject->units[u].saved_bytes;
	}
	for (uint32_t s = 0; s < subject->setting.stages; s++) {
		subject->caps[s] = (uint64_t)((state / subject->setting.stages + saved / 2) * 1.1);
	}
	subject->setting.speeds = subject->speeds;
}

static int measure_all(struct subject *subject)
{
	int rv;

	fill(subject, UNITS, STAGES);
	subject->name = "minmax";
	rv = measure_cut(subject);
	subject->name = "joint";
	subject->setting.link = (struct pawl_pipe_link){2000, 0, true};
	subject->setting.caps_bytes = subject->caps;
	rv = rv ? rv : measure_cut(subject);
	subject->name = "capped";
	limit_memory(subject);
	rv = rv ? rv : measure_cut(subject);
	fill(subject, 100, 8);
	subject->name = "choose";
	subject->setting.schedule = PAWL_PIPE_AUTO;
	return rv ? rv : measure_choose(subject);
}

int main(void)
{
	static struct pawl_pipe_unit units[UNITS];
	static struct subject subject = {.units = units};

	return measure_all(&subject) == 0 ? 0 : 1;
}
