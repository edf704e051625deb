/* Lists of devices: see devices.h. A record is the list's size and checksum (u32 each), then the
 * list. */
#include "engine/local/devices.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES   8u
#define FILE_BYTES_MAX (64u << 20) /* bytes of all records: enough for thousands of changes */

bool devices_has_name(const struct devices *devices, const char *name)
{
	for (uint32_t i = 0; i < devices->n; i++) {
		if (strcmp(devices->at[i].name, name) == 0) {
			return true;
		}
	}
	return false;
}

/* Counts the devices of a node among the first n. */
static uint32_t count_of(const struct devices *devices, uint32_t n, const char *node)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++) {
		count += strcmp(devices->at[i].node, node) == 0;
	}
	return count;
}

uint32_t devices_count(const struct devices *devices, const char *node)
{
	return count_of(devices, devices->n, node);
}

bool devices_has(const struct devices *all, const char *node)
{
	return devices_count(all, node) > 0;
}

/* Adds a free device of the node. Returns false if there is none. */
static bool add_free(struct devices *have, const struct devices *taken, const struct devices *all,
	const char *node)
{
	for (uint32_t i = 0; i < all->n && have->n < DEVICES_MAX; i++) {
		const struct device *device = &all->at[i];

		if (strcmp(device->node, node) == 0 && !devices_has_name(taken, device->name) &&
			!devices_has_name(have, device->name)) {
			have->at[have->n++] = *device;
			return true;
		}
	}
	return false;
}

/* Returns whether the first n devices belong to these nodes, and no node has more than it has
 * replicas. */
static bool fits(const struct devices *have, uint32_t n, const struct devices *all,
	const struct order_node *nodes, uint32_t nodes_n)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < nodes_n; i++) {
		uint32_t has = count_of(have, n, nodes[i].name);

		if (!devices_has(all, nodes[i].name)) {
			continue;
		}
		if (has > nodes[i].replicas) {
			return false;
		}
		found += has;
	}
	return found == n;
}

static uint32_t count_wanted(const struct devices *all, const struct order_node *nodes,
	uint32_t nodes_n)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nodes_n; i++) {
		n += devices_has(all, nodes[i].name) ? nodes[i].replicas : 0;
	}
	return n;
}

bool devices_change(struct devices *have, const struct devices *taken, const struct devices *all,
	const struct order_node *nodes, uint32_t nodes_n, uint64_t generation)
{
	uint32_t wanted = count_wanted(all, nodes, nodes_n);
	uint32_t kept = wanted < have->n ? wanted : have->n;
	struct devices next = *have;

	if ((have->shrink_generation != 0 && have->shrink_generation != generation) ||
		!fits(have, kept, all, nodes, nodes_n)) {
		return false;
	}
	if (wanted < have->n) {
		have->keep = wanted;
		have->shrink_generation = generation;
		return true;
	}
	for (uint32_t i = 0; i < nodes_n; i++) {
		uint32_t has = count_of(have, have->n, nodes[i].name);

		for (; devices_has(all, nodes[i].name) && has < nodes[i].replicas; has++) {
			if (!add_free(&next, taken, all, nodes[i].name)) {
				return false;
			}
		}
	}
	*have = next;
	return true;
}

bool devices_release(struct devices *have, uint64_t generation)
{
	if (have->shrink_generation == 0 || generation < have->shrink_generation) {
		return false;
	}
	ASSERT(have->keep <= have->n);
	have->n = have->keep;
	have->shrink_generation = 0;
	return true;
}

void devices_format(const struct devices *devices, uint32_t first, uint32_t n,
	char text[DEVICES_TEXT])
{
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t i = first; i < devices->n && i - first < n; i++) {
		len += (size_t)snprintf(text + len, DEVICES_TEXT - len, "%s%s",
			i > first ? "," : "", devices->at[i].name);
	}
	ASSERT(len < DEVICES_TEXT);
}

/* ---- the file ---- */

/* Cuts off an incomplete record, behind which no other record would be found. A process that opened
 * the file only for reading cannot, and ignores the record. */
static void cut(int fd, off_t end)
{
	int rv = ftruncate(fd, end);

	(void)rv;
}

int devices_save(int fd, const struct devices *devices, struct pawl_err *err)
{
	struct wire_out list = {NULL};
	struct wire_out out = {NULL};
	off_t end = lseek(fd, 0, SEEK_END);
	int rv = 0;

	wire_put_u32(&list, devices->keep);
	wire_put_u64(&list, devices->shrink_generation);
	wire_put_u32(&list, devices->n);
	for (uint32_t i = 0; i < devices->n; i++) {
		wire_put_str(&list, devices->at[i].name);
		wire_put_str(&list, devices->at[i].node);
	}
	wire_put_u32(&out, (uint32_t)list.len_bytes);
	wire_put_u32(&out, crc32c(0, list.bytes, list.len_bytes));
	wire_put_raw(&out, list.bytes, list.len_bytes);
	if (list.failed || out.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for the devices of a run");
	} else if (FAULT_SYS("run.devices", pwrite(fd, out.bytes, out.len_bytes, end)) !=
		(ssize_t)out.len_bytes) {
		rv = pawl_err_sys(err, "write the devices of a run");
		cut(fd, end);
	}
	wire_out_deinit(&list);
	wire_out_deinit(&out);
	return rv;
}

static bool decode(struct devices *devices, const void *bytes, size_t len_bytes)
{
	struct wire_in in;

	*devices = (struct devices){0};
	wire_in_init(&in, bytes, len_bytes);
	devices->keep = wire_get_u32(&in);
	devices->shrink_generation = wire_get_u64(&in);
	devices->n = wire_get_u32(&in);
	in.failed = in.failed || devices->n > DEVICES_MAX || devices->keep > devices->n;
	for (uint32_t i = 0; i < devices->n && !in.failed; i++) {
		wire_get_str(&in, devices->at[i].name, DEVICE_NAME);
		wire_get_str(&in, devices->at[i].node, CORE_NAME_MAX);
	}
	return wire_in_done(&in);
}

void devices_load(int fd, struct devices *devices)
{
	struct stat st;
	uint8_t *bytes = NULL;
	size_t at = 0;
	size_t len =
		fstat(fd, &st) == 0 && st.st_size <= (off_t)FILE_BYTES_MAX ? (size_t)st.st_size : 0;

	*devices = (struct devices){0};
	bytes = malloc(len + 1);
	if (!bytes || pread(fd, bytes, len, 0) != (ssize_t)len) {
		len = 0;
	}
	while (at + HEADER_BYTES <= len) {
		struct devices found;
		struct wire_in header;
		uint32_t size;
		uint32_t crc;

		wire_in_init(&header, bytes + at, HEADER_BYTES);
		size = wire_get_u32(&header);
		crc = wire_get_u32(&header);
		if (size > len - at - HEADER_BYTES ||
			crc != crc32c(0, bytes + at + HEADER_BYTES, size) ||
			!decode(&found, bytes + at + HEADER_BYTES, size)) {
			break;
		}
		*devices = found;
		at += HEADER_BYTES + size;
	}
	/* The scheduler was killed while it wrote the last record, before it acted on it. */
	if (at < len) {
		cut(fd, (off_t)at);
	}
	free(bytes);
}
