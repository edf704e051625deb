/* Assigns a pilot's slots, and so devices, to parts: the n-th device of the pilot's list belongs to
 * slot n. A part whose size changes finds its devices in a file that PAWL_RUN_DEVICES names. */
#ifndef ENGINE_SLURM_PILOT_SLURM_SLOTS_H
#define ENGINE_SLURM_PILOT_SLURM_SLOTS_H

#include "base/wire.h"
#include "engine/slurm/pilot/slurm_parts.h"

struct pawl_err;

/* Adds the lowest free slots behind the part's own, until it has n or none are free. */
void slurm_slots_take(const struct slurm_parts *parts, struct slurm_part *part, uint32_t n);
/* Writes the devices of the part's first n slots into its file; without devices there is none.
 * PAWL_EIO and its like: the file is as it was. */
int slurm_slots_write(const struct slurm_parts *parts, const struct slurm_part *part, uint32_t n,
	struct pawl_err *err);
/* Adds the "NAME=value" strings that tell a part its devices; none without devices. */
void slurm_slots_put(const struct slurm_parts *parts, const struct slurm_part *part,
	struct wire_out *set);
/* Returns base with the variables of set in place of its own; points into both. To be freed by the
 * caller. NULL: out of memory. */
char **slurm_slots_env(const struct wire_out *set, char **base);
/* Removes the part's file. */
void slurm_slots_forget(const struct slurm_parts *parts, const struct slurm_part *part);

#endif
