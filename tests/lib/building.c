/* Tags built part by part: see building.h. Memory is asserted not to run out, since these are
 * tests. */
#include "building.h"

#include "base/assert.h"
#include "base/err.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/zip.h"
#include "ckpt/read.h"
#include "ckpt/tags.h"
#include "ckpt/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAYLOAD_BYTES ((uint64_t)CKPT_CHUNK + 5000)

static void plan_init(struct zip_plan *plan)
{
	const uint64_t size_bytes = PAYLOAD_BYTES;

	ASSERT(zip_plan_init(plan, &size_bytes, 1, 0, NULL) == 0);
	ASSERT(ckpt_chunks(plan->size_bytes) == BUILDING_CHUNKS);
}

/* Returns an image of the file with its payload, with room for the padding. */
static uint8_t *make_image(const struct zip_plan *plan, const uint32_t *content)
{
	size_t room = plan->size_bytes / STORE_ALIGN * STORE_ALIGN + STORE_ALIGN;
	uint8_t *image = aligned_alloc(STORE_ALIGN, room);
	uint64_t begin = plan->entries[0].data_off;
	uint64_t end = begin + PAYLOAD_BYTES;

	ASSERT(image != NULL && begin < CKPT_CHUNK && end > CKPT_CHUNK);
	memset(image, 0, room);
	memset(image + begin, (int)(content[0] * 37 & 0xff), CKPT_CHUNK - begin);
	memset(image + CKPT_CHUNK, (int)(content[1] * 37 & 0xff), end - CKPT_CHUNK);
	return image;
}

static int chunk_of_image(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce,
	uint8_t **bytes, struct pawl_err *err)
{
	*bytes = (uint8_t *)user + off;
	return 0;
}

int building_begin(struct building *building, struct tags_root *root, const char *tag,
	uint64_t step, const char *id, struct pawl_err *err)
{
	struct manifest *manifest = &building->manifest;
	int rv;

	*building = (struct building){.root = root};
	*manifest = (struct manifest){.step = step,
		.world = 1,
		.created_ns = 1,
		.parts = building->parts};
	snprintf(manifest->tag, sizeof(manifest->tag), "%s", tag);
	snprintf(manifest->job, sizeof(manifest->job), "test");
	rv = id != NULL ? tag_begin_shared(root, tag, id, &building->draft, err)
			: tag_begin(root, tag, &building->draft, err);
	return rv == 0 ? tag_draft_manifest(root, &building->draft, manifest, err) : rv;
}

/* Adds an empty part. */
static struct manifest_part *add_part(struct building *building)
{
	ASSERT(building->manifest.parts_n < BUILDING_PARTS_MAX);
	return &building->parts[building->manifest.parts_n++];
}

/* Allocates n numbers of this size, freed with the building. */
static void *own(struct building *building, size_t n, size_t size_bytes)
{
	void *memory = calloc(n, size_bytes);

	ASSERT(memory != NULL && building->owned_n < 3 * BUILDING_PARTS_MAX);
	building->owned[building->owned_n++] = memory;
	return memory;
}

int building_write(struct building *building, const char *name,
	const uint32_t content[BUILDING_CHUNKS], const struct manifest *base, struct pawl_err *err)
{
	const struct manifest_part *old = base ? manifest_find_file(base, name) : NULL;
	struct manifest_part *part = add_part(building);
	struct write_source source = {.chunk = chunk_of_image};
	struct manifest *manifest = &building->manifest;
	const char *dir = building->draft.dir;
	struct writer *writer;
	struct zip_plan plan;
	int rv = old ? manifest_add_folders(manifest, base, err) : 0;

	plan_init(&plan);
	*part = (struct manifest_part){.rank = MANIFEST_ALL_RANKS,
		.size_bytes = plan.size_bytes,
		.chunks_n = BUILDING_CHUNKS};
	snprintf(part->name, sizeof(part->name), "%s", name);
	snprintf(part->file, sizeof(part->file), "%s", name);
	part->chunks = own(building, BUILDING_CHUNKS, sizeof(*part->chunks));
	part->sums = own(building, BUILDING_CHUNKS, sizeof(*part->sums));
	part->places = own(building, BUILDING_CHUNKS, sizeof(*part->places));
	source.user = make_image(&plan, content);
	rv = rv == 0 ? writer_open(&writer, tags_root_store(building->root), false, err) : rv;
	if (rv == 0) {
		rv = old ? writer_update(writer, dir, part, &plan, &source,
				   &(const struct write_base){base, old, manifest}, err)
			 : writer_write(writer, dir, part, &plan, &source, err);
		writer_close(writer);
	}
	free(source.user);
	zip_plan_deinit(&plan);
	return rv;
}

static bool has_file(const struct building *building, const char *file)
{
	for (uint32_t i = 0; i < building->manifest.parts_n; i++) {
		if (strcmp(building->parts[i].file, file) == 0) {
			return true;
		}
	}
	return false;
}

int building_keep(struct building *building, const struct manifest *from, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 0; i < from->parts_n && rv == 0; i++) {
		const struct manifest_part *old = &from->parts[i];

		if (!has_file(building, old->file)) {
			rv = tag_keep_part(building->root, &building->draft, &building->manifest,
				from, old, add_part(building), err);
		}
	}
	return rv;
}

int building_publish(struct building *building, struct pawl_err *err)
{
	manifest_sort(&building->manifest);
	return tag_publish(building->root, &building->draft, &building->manifest, err);
}

void building_deinit(struct building *building)
{
	for (uint32_t i = 0; i < building->owned_n; i++) {
		free(building->owned[i]);
	}
	free(building->manifest.folders);
}

/* Compares the payload of an image. */
static int compare(const uint8_t *image, const uint32_t *content)
{
	struct zip_plan plan;
	uint8_t *expected;
	uint64_t begin;
	int rv;

	plan_init(&plan);
	expected = make_image(&plan, content);
	begin = plan.entries[0].data_off;
	rv = memcmp(image + begin, expected + begin, PAYLOAD_BYTES) == 0 ? 0 : PAWL_EMISMATCH;
	free(expected);
	zip_plan_deinit(&plan);
	return rv;
}

int building_check(struct tags_root *root, const char *tag, const char *name,
	const uint32_t content[BUILDING_CHUNKS], struct pawl_err *err)
{
	const struct manifest_part *part;
	struct manifest manifest;
	struct reader *reader;
	uint8_t *image;
	int rv = tag_open(root, tag, &manifest, err);

	if (rv != 0) {
		return rv;
	}
	part = manifest_find_file(&manifest, name);
	if (part == NULL) {
		manifest_deinit(&manifest);
		return pawl_err_set(err, PAWL_ENOENT, "%s has no part %s", tag, name);
	}
	image = aligned_alloc(STORE_ALIGN,
		part->size_bytes / STORE_ALIGN * STORE_ALIGN + STORE_ALIGN);
	ASSERT(image != NULL && reader_open(&reader, tags_root_store(root), NULL) == 0);
	rv = reader_read(reader, &manifest, part, image, err);
	rv = rv == 0 ? compare(image, content) : rv;
	reader_close(reader);
	free(image);
	manifest_deinit(&manifest);
	return rv;
}
