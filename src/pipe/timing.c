/* Times of tasks and transfers: see timing.h for the contract. Pure. */
#include "pipe/timing.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <math.h>
#include <stdlib.h>

void pipe_timing_deinit(struct pipe_timing *timing)
{
	free(timing->took);
	free(timing->sent);
	*timing = (struct pipe_timing){0};
}

/* Returns the time of a transfer between a chunk and the one before it. */
static double transfer_s(const struct pawl_pipe_plan *plan, uint32_t chunk)
{
	return plan->link.bytes_per_s > 0
		? (double)plan->chunks[chunk].in_bytes / plan->link.bytes_per_s
		: 0;
}

int pipe_timing_init(struct pipe_timing *timing, const struct pawl_pipe_plan *plan,
	struct pawl_err *err)
{
	uint32_t n = plan->chunks_n;

	*timing = (struct pipe_timing){.plan = plan};
	timing->took = FAULT_MEM("pipe.timing",
		calloc((size_t)PAWL_PIPE_KINDS * n, sizeof(*timing->took)));
	timing->sent = FAULT_MEM("pipe.timing",
		calloc((size_t)plan->stages * plan->stages, sizeof(*timing->sent)));
	if (!timing->took || !timing->sent) {
		pipe_timing_deinit(timing);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to time a plan of %u chunks", n);
	}
	for (uint32_t c = 0; c < n; c++) {
		const struct pawl_pipe_chunk *chunk = &plan->chunks[c];
		double busy_s = 0; /* for what comes in and goes out */

		if (plan->link.busy) {
			busy_s = transfer_s(plan, c) + (c + 1 < n ? transfer_s(plan, c + 1) : 0);
		}
		timing->took[PAWL_PIPE_FORWARD * n + c] = chunk->forward_s + busy_s;
		timing->took[PAWL_PIPE_BACKWARD * n + c] = chunk->backward_s + busy_s;
		timing->took[PAWL_PIPE_INPUT * n + c] =
			chunk->backward_s - chunk->weight_s + busy_s;
		timing->took[PAWL_PIPE_WEIGHT * n + c] = chunk->weight_s;
	}
	return 0;
}

double pipe_timing_send(struct pipe_timing *timing, uint32_t from, uint32_t to, double at_s)
{
	const struct pawl_pipe_plan *plan = timing->plan;
	uint32_t sender = plan->chunks[from].stage;
	uint32_t receiver = plan->chunks[to].stage;
	double *sent = &timing->sent[sender * plan->stages + receiver];

	ASSERT(from + 1 == to || to + 1 == from);
	if (sender == receiver) {
		return at_s;
	}
	if (!plan->link.busy) {
		*sent = fmax(*sent, at_s) + transfer_s(plan, from > to ? from : to);
		at_s = *sent;
	}
	return at_s + plan->link.latency_s;
}
