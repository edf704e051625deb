/*
 * Where a run's replicas are, once their number was changed while it runs: in a file of its
 * directory, since the order (order.h) says only where it started. With it, a scheduler that has
 * lost its database takes the run over. The file holds the change that is under way, and the one
 * before; it is whole, or not there. Written and read by the scheduler alone.
 */
#ifndef ENGINE_LOCAL_RUN_PLACEMENT_H
#define ENGINE_LOCAL_RUN_PLACEMENT_H

#include "engine/local/order.h"

#define RUN_PLACEMENT_FILE "place"

struct run_placement_entry {
	uint64_t generation; /* 0: none */
	uint32_t nodes_n;
	struct order_node nodes[ORDER_NODES_MAX];
};

/* Writes the entry to, beside that of generation runs. Not synced: after a loss of power nothing
 * runs any more. PAWL_ENOMEM; PAWL_EIO and others of writing: the file stays as it was. */
int run_placement_save(const char *run_dir, const struct run_placement_entry *to, uint64_t runs,
	struct pawl_err *err);
/* Reads the entry of a generation. PAWL_ENOENT: there is none; PAWL_ECORRUPT; PAWL_EIO and
 * others. */
int run_placement_load(const char *run_dir, uint64_t generation, struct run_placement_entry *entry,
	struct pawl_err *err);

#endif
