/* Which of a pilot's slots a part has, and so which devices: the n-th of the pilot's list is of
 * slot n. A part whose size changes finds them in a file, which PAWL_RUN_DEVICES names. */
#ifndef SCHED_SLURM_SLOTS_H
#define SCHED_SLURM_SLOTS_H

#include "base/wire.h"
#include "sched/slurm_parts.h"

struct pawl_err;

/* The lowest that nobody has, behind its own, until it has n; fewer if there are none. */
void slurm_slots_take(const struct slurm_parts *parts, struct slurm_part *part, uint32_t n);
/* Writes the devices of its first n slots into its file; without devices there is none. PAWL_EIO
 * and its like: the file is as it was. */
int slurm_slots_write(const struct slurm_parts *parts, const struct slurm_part *part, uint32_t n,
	struct pawl_err *err);
/* "NAME=value" each, of what tells a part its devices; nothing without devices. */
void slurm_slots_put(const struct slurm_parts *parts, const struct slurm_part *part,
	struct wire_out *set);
/* base with set in place of its own; points into both. To be freed; NULL: out of memory. */
char **slurm_slots_env(const struct wire_out *set, char **base);
/* Removes its file. */
void slurm_slots_forget(const struct slurm_parts *parts, const struct slurm_part *part);

#endif
