/* Assigns a pilot's slots, and thereby devices, to parts: the n-th device in the pilot's
 * CUDA_VISIBLE_DEVICES belongs to slot n. A part that is resized reads its devices from the file
 * that PAWL_RUN_DEVICES names. */
#ifndef ENGINE_SLURM_PILOT_SLURM_SLOTS_H
#define ENGINE_SLURM_PILOT_SLURM_SLOTS_H

#include "base/wire.h"
#include "engine/slurm/pilot/slurm_parts.h"

struct pawl_err;

/* Appends the lowest free slots to the part's, until it has n or none are free. */
void slurm_slots_take(const struct slurm_parts *parts, struct slurm_part *part, uint32_t n);
/* Writes the devices of the part's first n slots to its file. Writes no file if the pilot has no
 * devices. PAWL_ENOMEM; PAWL_EIO and other errors of writing: the file is unchanged. */
int slurm_slots_write(const struct slurm_parts *parts, const struct slurm_part *part, uint32_t n,
	struct pawl_err *err);
/* Appends the part's device variables, "NAME=value", to set; none if the pilot has no devices. */
void slurm_slots_put(const struct slurm_parts *parts, const struct slurm_part *part,
	struct wire_out *set);
/* Merges the variables of set over base. The array, which the caller frees, points into both. NULL:
 * out of memory. */
char **slurm_slots_env(const struct wire_out *set, char **base);
/* Removes the part's file. */
void slurm_slots_forget(const struct slurm_parts *parts, const struct slurm_part *part);

#endif
