/* What every plan must fulfil before it is simulated. Pure. */
#ifndef PIPE_PLAN_H
#define PIPE_PLAN_H

#include "pawl/pipe.h"

#include <stddef.h>

#define PIPE_TASK_TEXT 64u /* bytes of a task as text, terminator included */

/* Checks a plan's numbers, without its tasks. PAWL_EINVAL, PAWL_ELIMIT: the message says which. */
int pipe_plan_check(const struct pawl_pipe_plan *plan, struct pawl_err *err);
/* Checks that the stages' ranges of tasks follow each other. PAWL_EINVAL. */
int pipe_plan_check_ranges(const struct pawl_pipe_plan *plan, struct pawl_err *err);
/*
 * Checks that each chunk has each microbatch's F and B, or F, I and W, once,
 * among the tasks of its stage. kinds: chunks x microbatches, zeroed; set to a bit for each kind of
 * task (1 << kind) that is there. PAWL_EINVAL: the message names the task; PAWL_ELIMIT.
 */
int pipe_plan_check_tasks(const struct pawl_pipe_plan *plan, uint8_t *kinds, struct pawl_err *err);

/* Writes a task such as "F of chunk 3, microbatch 7" to text, of PIPE_TASK_TEXT bytes. Returns
 * text. */
const char *pipe_task_print(char *text, const struct pawl_pipe_task *task);

/* Returns whether a number can be a link's rate: 0, or from 1 to 1e15 bytes per second, so that no
 * time is infinite. */
static inline bool pipe_is_rate(double bytes_per_s)
{
	return bytes_per_s == 0 || (bytes_per_s >= 1 && bytes_per_s <= 1e15);
}

/* Returns the index of a chunk and a microbatch in an array with a row for each chunk. */
static inline size_t pipe_plan_cell(const struct pawl_pipe_plan *plan, uint32_t chunk,
	uint32_t microbatch)
{
	return (size_t)chunk * plan->microbatches + microbatch;
}

#endif
