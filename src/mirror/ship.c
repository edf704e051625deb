/*
 * See ship.h.
 *
 * The fingerprint of a unit (put.h) is made of the names and sizes of its files, and of what tells
 * one file of this machine from another. So two machines never write one object.
 */
#include "mirror/ship.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "ckpt/put.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct shipment {
	const struct ship_unit *unit;
	const struct copy_watch *watch;
	const struct ship_file *file; /* being read */
};

/* ---- reading ---- */

/* Fits put_source. */
static int open_file(void *user, uint32_t i, struct pawl_err *err)
{
	struct shipment *shipment = user;

	shipment->file = &shipment->unit->files[i];
	return 0;
}

/* Fits put_source. */
static void close_file(void *user)
{
}

/* Fits put_source. A file may have changed since its last bytes were read. */
static int confirm(void *user, struct pawl_err *err)
{
	const struct copy_watch *watch = ((const struct shipment *)user)->watch;

	return watch->go_on != NULL ? watch->go_on(watch->user, err) : 0;
}

/* Fits put_source. */
static int read_piece(void *user, uint64_t off, void *bytes, size_t len_bytes, struct pawl_err *err)
{
	const struct shipment *shipment = user;
	const struct copy_watch *watch = shipment->watch;
	const struct ship_file *file = shipment->file;
	size_t done = 0;
	int rv = watch->go_on != NULL ? watch->go_on(watch->user, err) : 0;

	while (rv == 0 && done < len_bytes) {
		ssize_t n = FAULT_SYS("ship.read",
			pread(file->fd, (uint8_t *)bytes + done, len_bytes - done,
				(off_t)(off + done)));

		if (n < 0 && errno != EINTR) {
			return pawl_err_sys(err, "read %s", file->name);
		}
		if (n == 0) {
			return pawl_err_set(err, PAWL_EMISMATCH,
				"%s: cut to less than %" PRIu64 " bytes while it was read",
				file->name, file->size_bytes);
		}
		done += n > 0 ? (size_t)n : 0;
	}
	if (rv == 0 && watch->progress != NULL) {
		watch->progress(watch->user, len_bytes);
	}
	return rv;
}

/* ---- shipping ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
	struct rng rng = {hash ^ value};

	return rng_u64(&rng);
}

/* Computes a number that is that of no other files. */
static int take_fingerprint(const struct ship_unit *unit, uint64_t *fingerprint,
	struct pawl_err *err)
{
	uint64_t hash = unit->files_n;

	for (uint32_t i = 0; i < unit->files_n; i++) {
		const struct ship_file *file = &unit->files[i];
		struct stat st;

		if (FAULT_SYS("ship.stat", fstat(file->fd, &st)) != 0) {
			return pawl_err_sys(err, "look at %s", file->name);
		}
		hash = mix(hash, crc32c(0, file->name, strlen(file->name)));
		hash = mix(hash, file->size_bytes);
		hash = mix(hash, (uint64_t)st.st_dev);
		hash = mix(hash, (uint64_t)st.st_ino);
		hash = mix(hash, (uint64_t)st.st_mtim.tv_sec);
		hash = mix(hash, (uint64_t)st.st_mtim.tv_nsec);
	}
	*fingerprint = hash;
	return 0;
}

/* Allocates the parts of the manifest, and the room for their checksums. The caller frees
 * both. */
static int make_parts(const struct ship_unit *unit, struct manifest *manifest, uint32_t **chunks,
	struct pawl_err *err)
{
	uint64_t chunks_n = 0;
	uint32_t *next;

	ASSERT(unit->files_n > 0); /* ship.h: at least one */
	for (uint32_t i = 0; i < unit->files_n; i++) {
		chunks_n += ckpt_chunks(unit->files[i].size_bytes);
	}
	manifest->parts =
		FAULT_MEM("ship.parts", calloc(unit->files_n + 1u, sizeof(*manifest->parts)));
	*chunks = FAULT_MEM("ship.parts", calloc(chunks_n + 1, sizeof(**chunks)));
	if (manifest->parts == NULL || *chunks == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the manifest of %s",
			unit->tag);
	}
	next = *chunks;
	for (uint32_t i = 0; i < unit->files_n; i++) {
		const struct ship_file *file = &unit->files[i];
		struct manifest_part *part = &manifest->parts[i];

		snprintf(part->name, sizeof(part->name), "%s", file->name);
		snprintf(part->file, sizeof(part->file), "%s", file->name);
		part->rank = MANIFEST_ALL_RANKS;
		part->raw = true;
		part->size_bytes = file->size_bytes;
		part->chunks_n = ckpt_chunks(file->size_bytes);
		part->chunks = next;
		next += part->chunks_n;
	}
	manifest->parts_n = unit->files_n;
	return 0;
}

int ship_unit(struct tags_root *root, const struct ship_unit *unit, const struct copy_watch *watch,
	struct pawl_err *err)
{
	static const struct copy_watch nobody = {NULL, NULL, NULL};
	struct shipment shipment = {.unit = unit, .watch = watch != NULL ? watch : &nobody};
	const struct put_source source = {open_file, read_piece, close_file, &shipment, confirm};
	struct manifest manifest = {.step = unit->step,
		.attempt = unit->attempt,
		.world = 1,
		.created_ns = clock_wall_ns()};
	uint32_t *chunks = NULL;
	uint64_t fingerprint = 0;
	int rv = take_fingerprint(unit, &fingerprint, err);

	snprintf(manifest.tag, sizeof(manifest.tag), "%s", unit->tag);
	snprintf(manifest.job, sizeof(manifest.job), "%s", unit->job);
	rv = rv == 0 ? make_parts(unit, &manifest, &chunks, err) : rv;
	rv = rv == 0 ? tag_put(root, &manifest, fingerprint, &source, err) : rv;
	free(manifest.parts);
	free(chunks);
	return rv;
}

/* ---- what is left ---- */

static bool is_kept(const char *tag, const char *const *keep, uint32_t keep_n)
{
	for (uint32_t i = 0; i < keep_n; i++) {
		if (strcmp(tag, keep[i]) == 0) {
			return true;
		}
	}
	return false;
}

int ship_recover(struct tags_root *root, const char *const *keep, uint32_t keep_n,
	struct pawl_err *err)
{
	struct tag_leftover *left;
	size_t n;
	int rv;

	if (keep_n == 0) {
		return tags_recover(root, err);
	}
	rv = tags_leftovers(root, &left, &n, err);
	if (rv != 0) {
		return rv;
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		if (!is_kept(left[i].tag, keep, keep_n)) {
			rv = store_remove(tags_root_store(root), left[i].name, err);
		}
	}
	free(left);
	return rv;
}
