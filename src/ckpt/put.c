/*
 * See put.h.
 *
 * In a root of objects the files go into a folder whose name is the fingerprint. So a process that
 * begins anew after a crash finds what the one before has uploaded.
 */
#include "ckpt/put.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/pieces.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "ckpt/write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_TRIES 16u /* fingerprints that published tags may have used up */

struct put {
	struct tags_root *root;
	const struct put_source *source;
	struct tag_draft draft;
	bool begun_before; /* an earlier process has put files into the draft's folder */
	struct writer *writer;
	struct writing *writing; /* the file before; NULL: none, or it has ended */
	struct manifest
		manifest; /* built by hand; its parts are owned, what they point to is not */
};

/* ---- the folder ---- */

/* Sets *used: whether the tag, as it is published, has files in the draft's folder, which then are
 * never written again. */
static int is_folder_used(const struct put *put, bool *used, struct pawl_err *err)
{
	struct manifest manifest;
	int rv;

	*used = false;
	if (put->draft.etag[0] == '\0') {
		return 0;
	}
	rv = tag_open_unsealed(put->root, put->draft.tag, &manifest, err);
	if (rv == 0) {
		*used = manifest_find_folder(&manifest, put->draft.dir) != UINT32_MAX;
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

/* Begins a draft in the folder of the fingerprint. */
static int begin_objects(struct put *put, const char *tag, uint64_t fingerprint,
	struct pawl_err *err)
{
	bool used = true;
	int rv = 0;

	for (uint32_t i = 0; rv == 0 && used; i++) {
		char id[ROOT_ID_MAX];

		if (i == ID_TRIES) {
			return pawl_err_set(err, PAWL_EEXIST,
				"these files were published too often");
		}
		snprintf(id, sizeof(id), ROOT_UNIT_ID "%016" PRIx64 "-%u", fingerprint, i);
		rv = tag_begin_shared(put->root, tag, id, &put->draft, err);
		rv = rv == 0 ? is_folder_used(put, &used, err) : rv;
	}
	if (rv == 0) {
		rv = store_list(tags_root_store(put->root), put->draft.dir, find_any,
			&put->begun_before, err);
		rv = rv == PAWL_ENOENT ? 0 : rv;
	}
	return rv;
}

/* ---- files ---- */

/* Fits write_source. */
static int read_chunk(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce, uint8_t **bytes,
	struct pawl_err *err)
{
	const struct put_source *source = user;

	*bytes = bounce;
	return source->read(source->user, off, bounce, len_bytes, err);
}

/* A file that is read to be compared. */
struct comparing {
	const struct put_source *source;
	uint32_t *chunks; /* gets the checksum of each chunk */
};

/* Fits store_bytes_fn. */
static int read_and_sum(void *user, uint64_t off, void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	const struct comparing *comparing = user;
	const struct put_source *source = comparing->source;
	int rv = source->read(source->user, off, bytes, len_bytes, err);

	ASSERT(off % CKPT_CHUNK == 0 && len_bytes <= CKPT_CHUNK);
	if (rv == 0) {
		comparing->chunks[off / CKPT_CHUNK] = crc32c(0, bytes, len_bytes);
	}
	return rv;
}

/* Sets *has: whether an earlier process has uploaded the whole file. Fills its checksums then. */
static int look(const struct put *put, const struct manifest_part *part, bool *has,
	struct pawl_err *err)
{
	struct comparing comparing = {put->source, part->chunks};
	char path[STORE_PATH_MAX];

	*has = false;
	if (!put->begun_before) {
		return 0;
	}
	snprintf(path, sizeof(path), "%s/%s", put->draft.dir, part->file);
	return store_has(tags_root_store(put->root), path, part->size_bytes, read_and_sum,
		&comparing, has, err);
}

/* Ends the file before. */
static int end_file(struct put *put, struct pawl_err *err)
{
	struct writing *writing = put->writing;

	put->writing = NULL;
	return writing != NULL ? writer_end(writing, err) : 0;
}

/* Writes a file, but leaves its end to the next one: so storage has work to do meanwhile. */
static int write_file(struct put *put, struct manifest_part *part, struct pawl_err *err)
{
	const struct write_source source = {read_chunk, (void *)put->source};
	struct zip_plan plan = {0};
	struct writing *writing = NULL;
	int rv = zip_plan_init_raw(&plan, &part->size_bytes, 1, err); /* no glue: all is copied */

	if (rv == 0) {
		rv = writer_begin(put->writer, put->draft.dir, part, &plan, &source, &writing, err);
		zip_plan_deinit(&plan);
	}
	rv = rv == 0 ? end_file(put, err) : rv;
	put->writing = writing != NULL ? writing : put->writing;
	return rv;
}

static int put_file(struct put *put, uint32_t i, struct pawl_err *err)
{
	const struct put_source *source = put->source;
	struct manifest_part *part = &put->manifest.parts[i];
	bool has = false;
	int rv = source->open(source->user, i, err);

	if (rv != 0) {
		return rv;
	}
	rv = look(put, part, &has, err);
	if (rv == 0 && !has) {
		rv = write_file(put, part, err);
	}
	source->close(source->user);
	return rv;
}

/* ---- the tag ---- */

/* Makes a manifest for the draft, with the parts of the caller's. */
static int begin_manifest(struct put *put, const struct manifest *from, struct pawl_err *err)
{
	struct manifest *manifest = &put->manifest;
	int rv;

	*manifest = *from;
	manifest->parts_n = 0;
	manifest->parts = NULL;
	manifest->folders_n = 0;
	manifest->folders = NULL;
	manifest->block = NULL;
	rv = tag_draft_manifest(put->root, &put->draft, manifest, err);
	if (rv != 0) {
		return rv;
	}
	manifest->parts = FAULT_MEM("put.parts", calloc(from->parts_n + 1u, sizeof(*from->parts)));
	if (manifest->parts == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a manifest");
	}
	manifest->parts_n = from->parts_n;
	for (uint32_t i = 0; i < from->parts_n; i++) {
		struct manifest_part *part = &manifest->parts[i];

		*part = from->parts[i];
		part->sources_n = 0;
		part->places = NULL;
		part->depth = 0;
		part->at[0] = (struct manifest_file){0, true};
	}
	return 0;
}

static int put_all(struct put *put, const struct manifest *from, uint64_t fingerprint,
	struct pawl_err *err)
{
	struct store *store = tags_root_store(put->root);
	int rv = store_is_flat(store) ? begin_objects(put, from->tag, fingerprint, err)
				      : tag_begin(put->root, from->tag, &put->draft, err);

	rv = rv == 0 ? begin_manifest(put, from, err) : rv;
	rv = rv == 0 ? writer_open(&put->writer, store, true, err) : rv;
	if (rv != 0) {
		return rv;
	}
	if (store_is_flat(store)) {
		writer_resume(put->writer);
	}
	for (uint32_t i = 0; i < from->parts_n && rv == 0; i++) {
		rv = put_file(put, i, err);
	}
	rv = rv == 0 ? end_file(put, err) : rv;
	if (rv == 0 && put->source->confirm != NULL) {
		rv = put->source->confirm(put->source->user, err);
	}
	if (rv == 0) {
		manifest_sort(&put->manifest);
		rv = tag_publish(put->root, &put->draft, &put->manifest, err);
	}
	return rv;
}

int tag_put(struct tags_root *root, const struct manifest *manifest, uint64_t fingerprint,
	const struct put_source *source, struct pawl_err *err)
{
	struct put put = {.root = root, .source = source};
	int rv = put_all(&put, manifest, fingerprint, err);

	end_file(&put, NULL); /* after an error */
	if (rv != 0 && !store_is_flat(tags_root_store(root))) {
		tag_abandon(root, &put.draft);
	}
	writer_close(put.writer);
	free(put.manifest.folders);
	free(put.manifest.parts);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "put %s", manifest->tag);
}
