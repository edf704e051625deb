/* Encodes placements: see run_placement.h. The file has a checksum, a version, the number of
 * entries, then the entries. */
#include "engine/local/run_placement.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLACEMENT_VERSION     1u
#define PLACEMENT_ENTRIES     2u
#define PLACEMENT_NODE_BYTES  (CORE_NAME_MAX + 8u) /* bytes of a node, at most */
#define PLACEMENT_ENTRY_BYTES (16u + ORDER_NODES_MAX * PLACEMENT_NODE_BYTES)
#define PLACEMENT_BYTES_MAX   (16u + PLACEMENT_ENTRIES * PLACEMENT_ENTRY_BYTES)

static void name_file(const char *run_dir, char path[PATH_MAX + 16])
{
	snprintf(path, PATH_MAX + 16, "%s/" RUN_PLACEMENT_FILE, run_dir);
}

static void put_entry(struct wire_out *out, const struct run_placement_entry *entry)
{
	ASSERT(entry->nodes_n <= ORDER_NODES_MAX);
	wire_put_u64(out, entry->generation);
	wire_put_u32(out, entry->nodes_n);
	for (uint32_t i = 0; i < entry->nodes_n; i++) {
		wire_put_str(out, entry->nodes[i].name);
		wire_put_u32(out, entry->nodes[i].replicas);
	}
}

static void get_entry(struct wire_in *in, struct run_placement_entry *entry)
{
	entry->generation = wire_get_u64(in);
	entry->nodes_n = wire_get_u32(in);
	in->failed = in->failed || entry->nodes_n > ORDER_NODES_MAX;
	for (uint32_t i = 0; i < entry->nodes_n && !in->failed; i++) {
		wire_get_str(in, entry->nodes[i].name, sizeof(entry->nodes[i].name));
		entry->nodes[i].replicas = wire_get_u32(in);
	}
}

/* Decodes the entry of that generation. PAWL_ENOENT: there is none. */
static int decode(const uint8_t *bytes, size_t len_bytes, uint64_t generation,
	struct run_placement_entry *entry, struct pawl_err *err)
{
	struct wire_in in;
	bool found = false;
	uint32_t crc;
	uint32_t n;

	wire_in_init(&in, bytes, len_bytes);
	crc = wire_get_u32(&in);
	if (in.failed || len_bytes < 4 || crc != crc32c(0, bytes + 4, len_bytes - 4) ||
		wire_get_u32(&in) != PLACEMENT_VERSION) {
		return pawl_err_set(err, PAWL_ECORRUPT, "the placements of a run are damaged");
	}
	n = wire_get_u32(&in);
	for (uint32_t i = 0; i < n && i < PLACEMENT_ENTRIES && !found && !in.failed; i++) {
		get_entry(&in, entry);
		found = entry->generation == generation;
	}
	if (in.failed) {
		return pawl_err_set(err, PAWL_ECORRUPT, "the placements of a run are malformed");
	}
	return found ? 0
		     : pawl_err_set(err, PAWL_ENOENT, "no placement of generation %llu of a run",
			       (unsigned long long)generation);
}

int run_placement_load(const char *run_dir, uint64_t generation, struct run_placement_entry *entry,
	struct pawl_err *err)
{
	char path[PATH_MAX + 16];
	uint8_t *bytes = malloc(PLACEMENT_BYTES_MAX);
	ssize_t n;
	int fd;
	int rv;

	name_file(run_dir, path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	n = fd >= 0 && bytes ? read(fd, bytes, PLACEMENT_BYTES_MAX) : -1;
	if (!bytes) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for the placements of a run");
	} else if (n < 0) {
		rv = pawl_err_sys(err, "%s", path);
	} else {
		rv = decode(bytes, (size_t)n, generation, entry, err);
	}
	if (fd >= 0) {
		close(fd);
	}
	free(bytes);
	return rv;
}

int run_placement_save(const char *run_dir, const struct run_placement_entry *to, uint64_t runs,
	struct pawl_err *err)
{
	struct run_placement_entry *last = calloc(1, sizeof(*last));
	struct wire_out out = {NULL};
	struct wire_out header = {NULL};
	char path[PATH_MAX + 16];
	bool has_last = last && run_placement_load(run_dir, runs, last, NULL) == 0;
	int rv = 0;

	name_file(run_dir, path);
	wire_put_u32(&out, 0); /* room for the checksum */
	wire_put_u32(&out, PLACEMENT_VERSION);
	wire_put_u32(&out, has_last ? 2 : 1);
	put_entry(&out, to);
	if (has_last) {
		put_entry(&out, last);
	}
	if (!out.failed) {
		wire_put_u32(&header, crc32c(0, out.bytes + 4, out.len_bytes - 4));
	}
	if (!last || out.failed || header.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for the placements of a run");
	} else {
		memcpy(out.bytes, header.bytes, 4);
		rv = file_put(path, out.bytes, out.len_bytes, 0600, false, err);
	}
	wire_out_deinit(&header);
	wire_out_deinit(&out);
	free(last);
	return rv;
}
