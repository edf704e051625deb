/* Makes a plan's chunks and stages of a cut. Pure. */
#ifndef PIPE_LAYOUT_H
#define PIPE_LAYOUT_H

#include "pipe/cost.h"

/*
 * Cuts a model that pipe_check has passed, and sets the plan's chunks, stages, copies, value and
 * bound. The plan is zeroed before, but for its schedule and numbers, and has no tasks after.
 * PAWL_EINVAL: there is no such cut; PAWL_ENOMEM. On error the plan is as before, or has arrays
 * that pawl_pipe_plan_deinit frees.
 */
int pipe_layout(struct pawl_pipe_plan *plan, const struct pawl_pipe_unit *units, uint32_t units_n,
	const struct pawl_pipe_setting *setting, const struct pipe_cutting *cutting,
	struct pawl_err *err);

#endif
