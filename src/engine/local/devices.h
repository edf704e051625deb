/*
 * The devices (GPUs) of a run: a list, in the order of its ranks, each device of one slot of a
 * node. `pawl sched --devices` says which nodes have which devices. The scheduler gives each run
 * the devices of its slots, and keeps the run's list in a file of the run's directory: records that
 * are appended, of which the last whole one counts. The shepherd reads them there.
 */
#ifndef ENGINE_LOCAL_DEVICES_H
#define ENGINE_LOCAL_DEVICES_H

#include "engine/local/order.h"

#define DEVICES_MAX  64u /* devices of a machine, and of a run */
#define DEVICE_NAME  48u /* bytes of a device in CUDA_VISIBLE_DEVICES, terminator included */
#define DEVICES_TEXT (DEVICES_MAX * DEVICE_NAME)
#define DEVICES_FILE "devices"

struct device {
	char name[DEVICE_NAME]; /* "0", "GPU-8f…" */
	char node[CORE_NAME_MAX];
};

struct devices {
	uint32_t n;
	struct device at[DEVICES_MAX];
	/* Number of devices, from the first on, that stay once generation from runs; the others are
	 * given back then. */
	uint32_t keep;
	uint64_t shrink_generation; /* 0: none are given back */
};

/* Returns whether a node has any of all. */
bool devices_has(const struct devices *all, const char *node);
/* Returns whether a device of that name is in the list. */
bool devices_has_name(const struct devices *devices, const char *name);
/* Returns the number of devices of that node. */
uint32_t devices_count(const struct devices *devices, const char *node);
/*
 * Changes a run's list to be for these nodes. have: the list; taken: devices that other runs have;
 * all: devices that there are. Ranks keep their devices; new ones get free ones. False: ranks would
 * have to change theirs, or no device is free. Nodes without devices count for nothing. Pure.
 */
bool devices_change(struct devices *have, const struct devices *taken, const struct devices *all,
	const struct order_node *nodes, uint32_t nodes_n, uint64_t generation);
/* Gives back the devices that were to go once that generation runs. False: there were none.
 * Pure. */
bool devices_release(struct devices *have, uint64_t generation);
/* Formats n devices, from index first on, as CUDA_VISIBLE_DEVICES has them. */
void devices_format(const struct devices *devices, uint32_t first, uint32_t n,
	char text[DEVICES_TEXT]);

/* Appends a record. PAWL_EIO and other errors of writing. */
int devices_save(int fd, const struct devices *devices, struct pawl_err *err);
/* Reads the last whole record; none: an empty list. */
void devices_load(int fd, struct devices *devices);

#endif
