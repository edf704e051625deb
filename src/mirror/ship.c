/*
 * See ship.h.
 *
 * The files of a unit go into a folder whose name is a fingerprint of them: their names, sizes, and
 * what tells one file of this machine from another. So a process that begins anew after a crash
 * finds what the one before has uploaded, and two machines never write one object. The fingerprint
 * never proves that an object has the right bytes: the store compares checksums.
 */
#include "mirror/ship.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "ckpt/write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_TRIES 16u /* fingerprints that published tags may have used up */

struct shipment {
	struct tags_root *root;
	const struct ship_unit *unit;
	const struct ship_watch *watch;
	struct tag_draft draft;
	bool begun_before; /* an earlier process has put files into the draft's folder */
	struct writer *writer;
	struct manifest manifest; /* built by hand */
	uint32_t *chunks;         /* memory of all chunks' checksums */
};

/* A file that is being read. */
struct reading {
	const struct shipment *shipment;
	const struct ship_file *file;
	uint32_t *chunks; /* gets the checksum of each chunk, or NULL */
};

/* ---- reading ---- */

static int read_piece(const struct reading *reading, uint64_t off, void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	const struct ship_watch *watch = reading->shipment->watch;
	const struct ship_file *file = reading->file;
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

/* Fits write_source. */
static int read_chunk(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce, uint8_t **bytes,
	struct pawl_err *err)
{
	*bytes = bounce;
	return read_piece(user, off, bounce, len_bytes, err);
}

/* Fits store_bytes_fn. */
static int read_and_sum(void *user, uint64_t off, void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	const struct reading *reading = user;
	int rv = read_piece(reading, off, bytes, len_bytes, err);

	ASSERT(off % CKPT_CHUNK == 0 && len_bytes <= CKPT_CHUNK);
	if (rv == 0) {
		reading->chunks[off / CKPT_CHUNK] = crc32c(0, bytes, len_bytes);
	}
	return rv;
}

/* ---- the folder ---- */

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

/* Sets *used: whether the tag, as it is published, has files in the draft's folder, which then are
 * never written again. */
static int is_folder_used(const struct shipment *s, bool *used, struct pawl_err *err)
{
	struct manifest manifest;
	int rv;

	*used = false;
	if (s->draft.etag[0] == '\0') {
		return 0;
	}
	rv = tag_open_unsealed(s->root, s->draft.tag, &manifest, err);
	if (rv == 0) {
		*used = manifest_find_folder(&manifest, s->draft.dir) != UINT32_MAX;
		manifest_deinit(&manifest);
	}
	return rv == PAWL_ECORRUPT || rv == PAWL_ENOENT ? 0 : rv;
}

/* Fits store_list_fn. */
static int find_any(void *user, const char *name, enum store_kind kind)
{
	bool *any = user;

	*any = true;
	return 1;
}

/* Begins a draft in the folder of the unit's fingerprint. */
static int begin(struct shipment *s, struct pawl_err *err)
{
	uint64_t fingerprint = 0;
	bool used = true;
	int rv = take_fingerprint(s->unit, &fingerprint, err);

	for (uint32_t i = 0; rv == 0 && used; i++) {
		char id[ROOT_ID_MAX];

		if (i == ID_TRIES) {
			return pawl_err_set(err, PAWL_EEXIST, "%s: published too often",
				s->unit->tag);
		}
		snprintf(id, sizeof(id), ROOT_UNIT_ID "%016" PRIx64 "-%u", fingerprint, i);
		rv = tag_begin_shared(s->root, s->unit->tag, id, &s->draft, err);
		rv = rv == 0 ? is_folder_used(s, &used, err) : rv;
	}
	if (rv == 0) {
		rv = store_list(tags_root_store(s->root), s->draft.dir, find_any, &s->begun_before,
			err);
		rv = rv == PAWL_ENOENT ? 0 : rv;
	}
	return rv;
}

/* ---- shipping ---- */

/* Sets *has: whether an earlier process has uploaded the whole file. Fills its checksums then. */
static int look(const struct shipment *s, const struct reading *reading, bool *has,
	struct pawl_err *err)
{
	char path[STORE_PATH_MAX];

	*has = false;
	if (!s->begun_before) {
		return 0;
	}
	snprintf(path, sizeof(path), "%s/%s", s->draft.dir, reading->file->name);
	return store_has(tags_root_store(s->root), path, reading->file->size_bytes, read_and_sum,
		(void *)reading, has, err);
}

static int ship_file(const struct shipment *s, const struct ship_file *file,
	struct manifest_part *part, struct pawl_err *err)
{
	struct reading reading = {s, file, part->chunks};
	const struct write_source source = {read_chunk, &reading};
	struct zip_plan plan = {0};
	bool has;
	int rv = look(s, &reading, &has, err);

	if (rv != 0 || has) {
		return rv;
	}
	rv = zip_plan_init_raw(&plan, &file->size_bytes, 1, err);
	if (rv == 0) {
		rv = writer_write(s->writer, s->draft.dir, part, &plan, &source, err);
		zip_plan_deinit(&plan);
	}
	return rv;
}

/* Prepares the manifest, whose parts have no checksums yet. */
static int begin_manifest(struct shipment *s, struct pawl_err *err)
{
	const struct ship_unit *unit = s->unit;
	struct manifest *manifest = &s->manifest;
	uint64_t chunks_n = 0;
	uint32_t *chunks;
	int rv;

	ASSERT(unit->files_n > 0); /* ship.h: at least one */
	*manifest = (struct manifest){.step = unit->step,
		.attempt = unit->attempt,
		.world = 1,
		.created_ns = clock_wall_ns()};
	snprintf(manifest->tag, sizeof(manifest->tag), "%s", unit->tag);
	snprintf(manifest->job, sizeof(manifest->job), "%s", unit->job);
	rv = tag_draft_manifest(s->root, &s->draft, manifest, err);
	if (rv != 0) {
		return rv;
	}
	for (uint32_t i = 0; i < unit->files_n; i++) {
		chunks_n += ckpt_chunks(unit->files[i].size_bytes);
	}
	manifest->parts = FAULT_MEM("ship.parts", calloc(unit->files_n, sizeof(*manifest->parts)));
	s->chunks = FAULT_MEM("ship.parts", calloc(chunks_n + 1, sizeof(*s->chunks)));
	if (manifest->parts == NULL || s->chunks == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the manifest of %s",
			unit->tag);
	}
	chunks = s->chunks;
	for (uint32_t i = 0; i < unit->files_n; i++) {
		const struct ship_file *file = &unit->files[i];
		struct manifest_part *part = &manifest->parts[i];

		snprintf(part->name, sizeof(part->name), "%s", file->name);
		snprintf(part->file, sizeof(part->file), "%s", file->name);
		part->rank = MANIFEST_ALL_RANKS;
		part->raw = true;
		part->size_bytes = file->size_bytes;
		part->chunks_n = ckpt_chunks(file->size_bytes);
		part->chunks = chunks;
		part->at[0].own_name = true;
		chunks += part->chunks_n;
	}
	manifest->parts_n = unit->files_n;
	return 0;
}

static int ship(struct shipment *s, struct pawl_err *err)
{
	int rv = begin(s, err);

	rv = rv == 0 ? begin_manifest(s, err) : rv;
	rv = rv == 0 ? writer_open(&s->writer, tags_root_store(s->root), true, err) : rv;
	if (rv != 0) {
		return rv;
	}
	writer_resume(s->writer);
	for (uint32_t i = 0; i < s->unit->files_n && rv == 0; i++) {
		rv = ship_file(s, &s->unit->files[i], &s->manifest.parts[i], err);
	}
	if (rv == 0) {
		manifest_sort(&s->manifest);
		rv = tag_publish(s->root, &s->draft, &s->manifest, err);
	}
	return rv;
}

int ship_unit(struct tags_root *root, const struct ship_unit *unit, const struct ship_watch *watch,
	struct pawl_err *err)
{
	static const struct ship_watch nobody = {NULL, NULL, NULL};
	struct shipment s = {.root = root, .unit = unit, .watch = watch != NULL ? watch : &nobody};
	int rv = ship(&s, err);

	writer_close(s.writer);
	free(s.manifest.folders);
	free(s.manifest.parts);
	free(s.chunks);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "ship %s", unit->tag);
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
