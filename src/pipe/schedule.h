/* What the best of several orders needs besides pawl/pipe.h. Pure. */
#ifndef PIPE_SCHEDULE_H
#define PIPE_SCHEDULE_H

#include "pawl/pipe.h"

#define PIPE_INFLIGHTS 4u /* limits of microbatches in flight that are tried */

/* Sets inflight to limits of microbatches in flight that are worth trying, ascending: as many as
 * there are stages, SMP's two more, twice as many, all. Returns how many there are. */
uint32_t pipe_inflights(uint32_t stages, uint32_t microbatches, uint32_t inflight[PIPE_INFLIGHTS]);

/* Returns the most bytes that a stage has at once. */
uint64_t pipe_find_peak(const struct pawl_pipe_report *report);

/* Returns whether a plan of that schedule is ordered by list scheduling only. */
bool pipe_is_listed(enum pawl_pipe_schedule schedule, bool visits);

#endif
