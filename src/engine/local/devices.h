/*
 * The devices (GPUs) of a run: a list in the order of its ranks. Each device belongs to one slot of
 * a node. `pawl sched --devices` sets the devices of the nodes. The scheduler assigns each run the
 * devices of its slots, and appends the list to a file in the run's directory. The last whole
 * record of the file is valid. The shepherd reads it there.
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
	uint32_t keep; /* number of devices, from the first on, that stay */
	/* Generation from which the others are released; 0: none are to be released. */
	uint64_t shrink_generation;
};

/* Returns whether any of the devices is on that node. */
bool devices_has(const struct devices *all, const char *node);
/* Returns whether a device of that name is in the list. */
bool devices_has_name(const struct devices *devices, const char *name);
/* Returns the number of devices on that node. */
uint32_t devices_count(const struct devices *devices, const char *node);
/*
 * Changes the list of a run to match these nodes, for a generation. have: the list; taken: the
 * devices of other runs; all: all devices of the machine. Ranks keep their devices; new ranks get
 * free ones. If the list gets shorter, devices_release releases the rest later. Nodes without
 * devices are ignored. Returns false, with have unchanged, if ranks would have to change devices,
 * no device is free, or another shrink is pending. Pure.
 */
bool devices_change(struct devices *have, const struct devices *taken, const struct devices *all,
	const struct order_node *nodes, uint32_t nodes_n, uint64_t generation);
/* Releases the devices that the run no longer needs once generation runs. Returns false if there
 * are none. Pure. */
bool devices_release(struct devices *have, uint64_t generation);
/* Formats up to n devices, from index first on, as a value of CUDA_VISIBLE_DEVICES. */
void devices_format(const struct devices *devices, uint32_t first, uint32_t n,
	char text[DEVICES_TEXT]);

/* Appends a record. PAWL_EIO and other errors of writing. */
int devices_save(int fd, const struct devices *devices, struct pawl_err *err);
/* Reads the last whole record; the list is empty if there is none. Cuts off a record that was not
 * fully written, if fd is open for writing. */
void devices_load(int fd, struct devices *devices);

#endif
