/*
 * The placement of a run's replicas after a rescale, in a file of the run's directory. The order
 * (order.h) has only the placement at the start. With the file, a scheduler that has lost its
 * database can take the run over. The file holds the newest placement, which the run may not have
 * reached yet, and the one before. It is replaced atomically. Only the scheduler writes and reads
 * it.
 */
#ifndef ENGINE_LOCAL_RUN_PLACEMENT_H
#define ENGINE_LOCAL_RUN_PLACEMENT_H

#include "engine/local/order.h"

#define RUN_PLACEMENT_FILE "place"

struct run_placement_entry {
	uint64_t generation; /* generation that has this placement */
	uint32_t nodes_n;
	struct order_node nodes[ORDER_NODES_MAX];
};

/* Writes the entry to, and keeps the entry of the generation runs, if there is one. Does not sync:
 * after a power loss the run is gone anyway. PAWL_ENOMEM; PAWL_EIO and other errors of writing. On
 * errors the file is unchanged. */
int run_placement_save(const char *run_dir, const struct run_placement_entry *to, uint64_t runs,
	struct pawl_err *err);
/* Reads the entry of a generation. PAWL_ENOENT: there is none; PAWL_ECORRUPT; PAWL_ENOMEM; PAWL_EIO
 * and other errors of reading. */
int run_placement_load(const char *run_dir, uint64_t generation, struct run_placement_entry *entry,
	struct pawl_err *err);

#endif
