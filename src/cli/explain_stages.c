/* pawl explain: sums up the steps of a pipeline, and finds its slow stage. Pure. */
#include "cli/explain.h"

#include "base/err.h"

#include <stdlib.h>

#define SLOWER  1.1  /* a stage is slow if it is busy for so much longer than the usual one */
#define DELAYED 1.15 /* ... and than planned, if that holds beside the others' */

/* ---- sums ---- */

/* Sums up the steps of one rank. busy, length: room for an entry for each of its records. */
static void sum_up(struct explain_stage *stage, const struct trace *trace, int64_t *busy,
	int64_t *length)
{
	for (size_t i = 0; i < trace->n; i++) {
		const struct trace_record *record = &trace->records[i];

		if (record->type == TRACE_STEP) {
			busy[stage->steps] = record->busy_ns;
			length[stage->steps++] =
				record->at_ns[TRACE_DONE] - record->at_ns[TRACE_SUBMITTED];
			stage->planned_ns = (int64_t)record->bytes;
		}
	}
	if (stage->steps > 0) {
		stage->busy_ns = explain_median(busy, stage->steps);
		stage->length_ns = explain_median(length, stage->steps);
	}
}

int explain_stages_init(struct explain_stages *stages, const struct explain_group *group,
	struct pawl_err *err)
{
	int64_t *times = calloc(2 * (size_t)TRACE_CAP, sizeof(*times));

	*stages = (struct explain_stages){.at = calloc(group->ranks, sizeof(*stages->at)),
		.n = group->ranks};
	if (!times || !stages->at) {
		free(times);
		explain_stages_deinit(stages);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", group->ranks);
	}
	for (uint32_t r = 0; r < group->ranks; r++) {
		sum_up(&stages->at[r], &group->traces[r], times, times + TRACE_CAP);
		if (stages->at[r].steps > stages->steps) {
			stages->steps = stages->at[r].steps;
		}
		if (stages->at[r].length_ns > stages->length_ns) {
			stages->length_ns = stages->at[r].length_ns;
		}
	}
	free(times);
	return 0;
}

void explain_stages_deinit(struct explain_stages *stages)
{
	free(stages->at);
	*stages = (struct explain_stages){0};
}

/* ---- which one is slow ---- */

/* Returns how long a stage is busy: in ns, or planned, in millionths of its plan. 0: not known. */
static int64_t busy_of(const struct explain_stage *stage, bool planned)
{
	if (!planned) {
		return stage->busy_ns;
	}
	return stage->planned_ns > 0
		? (int64_t)(1e6 * (double)stage->busy_ns / (double)stage->planned_ns)
		: 0;
}

/* Returns the median of that over all stages but one; 0: not known. */
static double find_usual(const struct explain_stages *stages, uint32_t but, bool planned)
{
	int64_t found[PAWL_PIPE_STAGES_MAX];
	size_t n = 0;

	for (uint32_t s = 0; s < stages->n && n < PAWL_PIPE_STAGES_MAX; s++) {
		int64_t busy = busy_of(&stages->at[s], planned);

		if (s != but && busy > 0) {
			found[n++] = busy;
		}
	}
	return n > 0 ? (double)explain_median(found, n) : 0;
}

struct explain_verdict explain_stages_judge(const struct explain_stages *stages)
{
	struct explain_verdict verdict = {.kind = EXPLAIN_EVEN};
	const struct explain_stage *worst;
	double usual_ns;
	double plan;

	for (uint32_t s = 1; s < stages->n; s++) {
		if (stages->at[s].busy_ns > stages->at[verdict.stage].busy_ns) {
			verdict.stage = s;
		}
	}
	worst = &stages->at[verdict.stage];
	usual_ns = find_usual(stages, verdict.stage, false);
	plan = find_usual(stages, verdict.stage, true);
	if (usual_ns > 0 && (double)worst->busy_ns >= SLOWER * usual_ns) {
		verdict.kind = EXPLAIN_LARGE;
		verdict.more = (double)worst->busy_ns / usual_ns - 1;
	}
	if (verdict.kind != EXPLAIN_EVEN && plan > 0) {
		double share = (double)busy_of(worst, true) / plan;

		if (share >= DELAYED) {
			verdict.kind = EXPLAIN_DELAYED;
			verdict.more = share - 1;
		}
	}
	return verdict;
}
