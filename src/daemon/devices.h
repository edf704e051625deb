/*
 * Which devices (GPUs) a run has: a list, in the order of its ranks, each device of one slot of a
 * node. The scheduler says which nodes have which (`pawl sched --devices`), gives each run those of
 * its slots, and keeps its list in a file of the run's directory: records that are appended, of
 * which the last whole one counts. The shepherd reads them there.
 */
#ifndef DAEMON_DEVICES_H
#define DAEMON_DEVICES_H

#include "daemon/order.h"

#define DEVICES_MAX  64u /* of a machine, and of a run */
#define DEVICE_NAME  48u /* bytes of what CUDA_VISIBLE_DEVICES has of one, terminator included */
#define DEVICES_TEXT (DEVICES_MAX * DEVICE_NAME)
#define DEVICES_FILE "devices"

struct device {
	char name[DEVICE_NAME]; /* "0", "GPU-8f…" */
	char node[CORE_NAME_MAX];
};

struct devices {
	uint32_t n;
	struct device at[DEVICES_MAX];
	uint32_t keep; /* of them, the first; the others are given back once generation from runs */
	uint64_t from; /* 0: none are given back */
};

/* Whether a node has any of all. */
bool devices_has(const struct devices *all, const char *node);
/* A device of that name; devices of that node. */
bool devices_has_name(const struct devices *devices, const char *name);
uint32_t devices_count(const struct devices *devices, const char *node);
/*
 * Changes a list to be for these nodes: in have, those that a run has; taken, those that others
 * have; all, those that there are. Ranks keep theirs; new ones get free ones. false: that cannot
 * be, as ranks would have to change theirs, or there is none free. Nodes without devices count for
 * nothing. Pure.
 */
bool devices_change(struct devices *have, const struct devices *taken, const struct devices *all,
	const struct order_node *nodes, uint32_t nodes_n, uint64_t generation);
/* That generation runs: what was to be given back then, is. Whether it was. Pure. */
bool devices_settle(struct devices *have, uint64_t generation);
/* The first n of the list from one on, as CUDA_VISIBLE_DEVICES has them. */
void devices_say(const struct devices *devices, uint32_t first, uint32_t n,
	char text[DEVICES_TEXT]);

/* Appends a record. PAWL_EIO and others of writing. */
int devices_save(int fd, const struct devices *devices, struct pawl_err *err);
/* The last whole record; none: an empty list. */
void devices_load(int fd, struct devices *devices);

#endif
