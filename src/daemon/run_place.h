/*
 * Where a run's replicas are, once their number was changed while it runs: in a file of its
 * directory, since what was ordered (order.h) says only where it started. With it, a scheduler that
 * has lost its database takes the run over. The change that is under way, and the one before, are
 * in it; it is whole, or not there. Written and read by the scheduler alone.
 */
#ifndef DAEMON_RUN_PLACE_H
#define DAEMON_RUN_PLACE_H

#include "daemon/order.h"

#define RUN_PLACE_FILE "place"

struct run_place_entry {
	uint64_t generation; /* 0: none */
	uint32_t nodes_n;
	struct order_node nodes[ORDER_NODES_MAX];
};

/* Writes that generation to, beside the one that runs, down. Not synced: after a loss of power
 * nothing runs any more. PAWL_ENOMEM; PAWL_EIO and others of writing: what was there is. */
int run_place_save(const char *run_dir, const struct run_place_entry *to, uint64_t runs,
	struct pawl_err *err);
/* PAWL_ENOENT: nothing is written of that generation; PAWL_ECORRUPT; PAWL_EIO and others. */
int run_place_load(const char *run_dir, uint64_t generation, struct run_place_entry *entry,
	struct pawl_err *err);

#endif
