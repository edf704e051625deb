/* Checkpoints with known content: see sample.h. Memory is asserted not to run out, since these are
 * tests. */
#include "sample.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "ckpt/read.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX 64u /* samples that one program uses, at most */

/* ---- partitions ---- */

static uint8_t *fill_random(uint64_t size_bytes, struct rng *rng)
{
	uint8_t *bytes = malloc(size_bytes + sizeof(uint64_t));

	ASSERT(bytes != NULL);
	for (uint64_t i = 0; i < size_bytes; i += sizeof(uint64_t)) {
		uint64_t v = rng_u64(rng);

		memcpy(bytes + i, &v, sizeof(v));
	}
	return bytes;
}

static struct zip_entry *entry_of(const struct sample_part *part, uint32_t i)
{
	return i < part->storages ? &part->plan.entries[i] : zip_plan_pickle(&part->plan);
}

static void make_image(struct sample_part *part)
{
	ASSERT(zip_plan_init(&part->plan, part->sizes, part->storages, part->sizes[part->storages],
		       NULL) == 0);
	part->image = malloc(part->plan.size_bytes);
	part->scratch = aligned_alloc(STORE_ALIGN, part->plan.size_bytes);
	ASSERT(part->image != NULL && part->scratch != NULL);
	memset(part->image, 0xaa, part->plan.size_bytes);
	for (uint32_t i = 0; i <= part->storages; i++) {
		struct zip_entry *entry = entry_of(part, i);

		memcpy(part->image + entry->data_off, part->payloads[i], entry->size_bytes);
		entry->crc = crc32_zip(0, part->payloads[i], entry->size_bytes);
	}
	zip_glue(&part->plan, 0, part->plan.size_bytes, part->image);
}

void sample_part_init(struct sample_part *part, const char *name, const uint64_t *sizes,
	uint32_t storages, struct rng *rng)
{
	memset(part, 0, sizeof(*part));
	part->name = name;
	part->storages = storages;
	part->sizes = calloc(storages + 1, sizeof(*sizes));
	part->payloads = calloc(storages + 1, sizeof(*part->payloads));
	ASSERT(part->sizes != NULL && part->payloads != NULL);
	memcpy(part->sizes, sizes, (storages + 1) * sizeof(*sizes));
	for (uint32_t i = 0; i <= storages; i++) {
		part->payloads[i] = fill_random(sizes[i], rng);
	}
	make_image(part);
}

void sample_part_deinit(struct sample_part *part)
{
	for (uint32_t i = 0; i <= part->storages; i++) {
		free(part->payloads[i]);
	}
	free(part->payloads);
	free(part->sizes);
	free(part->image);
	free(part->scratch);
	zip_plan_deinit(&part->plan);
}

int sample_chunk(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce, uint8_t **bytes,
	struct pawl_err *err)
{
	const struct sample_part *part = user;
	uint8_t *to_bytes = bounce != NULL ? bounce : part->scratch + off;
	uint64_t hi = off + len_bytes;

	memset(to_bytes, 0x55, len_bytes);
	for (uint32_t i = 0; i <= part->storages; i++) {
		const struct zip_entry *entry = entry_of(part, i);
		uint64_t end = entry->data_off + entry->size_bytes;
		uint64_t from = entry->data_off > off ? entry->data_off : off;
		uint64_t to = end < hi ? end : hi;

		if (from < to) {
			memcpy(to_bytes + (from - off),
				part->payloads[i] + (from - entry->data_off), to - from);
		}
	}
	*bytes = to_bytes;
	return 0;
}

uint32_t sample_sizes(uint64_t *sizes, uint32_t storages_max, uint64_t size_max, struct rng *rng)
{
	static const uint64_t odd[] = {0, 1, 63, 64, 65, ZIP_ALIGN_LARGE - 1, ZIP_ALIGN_LARGE,
		ZIP_ALIGN_LARGE + 1, CKPT_WATCH_MIN, CKPT_CHUNK - 1, CKPT_CHUNK, CKPT_CHUNK + 1};
	uint32_t storages = (uint32_t)rng_below(rng, storages_max + 1);

	for (uint32_t i = 0; i <= storages; i++) {
		uint64_t size_bytes = odd[rng_below(rng, sizeof(odd) / sizeof(odd[0]))];

		/* sizes of every magnitude are equally likely */
		if (rng_below(rng, 2) == 0) {
			size_bytes = rng_below(rng, 1 + (size_max >> rng_below(rng, 20)));
		}
		sizes[i] = size_bytes <= size_max ? size_bytes : size_max;
	}
	return storages;
}

/* ---- whole tags ---- */

const struct sample *sample_get(uint64_t step, uint32_t attempt)
{
	static const uint64_t model[] = {5000, 10, 0, 4096, 300};
	const uint64_t optim[] = {8, step == SAMPLE_LARGE_STEP ? CKPT_CHUNK : 9000, 4097, 700};
	static struct sample samples[SAMPLES_MAX];
	static uint32_t n;
	struct rng rng = {.state = step * 1000 + attempt};

	for (uint32_t i = 0; i < n; i++) {
		if (samples[i].step == step && samples[i].attempt == attempt) {
			return &samples[i];
		}
	}
	ASSERT(n < SAMPLES_MAX);
	samples[n].step = step;
	samples[n].attempt = attempt;
	sample_part_init(&samples[n].parts[0], "model", model, 4, &rng);
	sample_part_init(&samples[n].parts[1], "optim/of/all", optim, 3, &rng);
	return &samples[n++];
}

/* Writes the files and fills their parts. The caller frees the parts' chunks. */
static int write_parts(const struct sample *sample, struct store *store, const char *dir,
	struct manifest_part *parts, struct pawl_err *err)
{
	struct writer *writer = NULL;
	int rv = writer_open(&writer, store, false, err);

	for (uint32_t i = 0; i < SAMPLE_PARTS && rv == 0; i++) {
		struct sample_part from = sample->parts[i];
		const struct write_source source = {.chunk = sample_chunk, .user = &from};
		struct zip_plan plan;

		ASSERT(zip_plan_init(&plan, from.sizes, from.storages, from.sizes[from.storages],
			       NULL) == 0);
		snprintf(parts[i].name, sizeof(parts[i].name), "%s", from.name);
		snprintf(parts[i].file, sizeof(parts[i].file), "%s", from.name);
		parts[i].rank = MANIFEST_ALL_RANKS;
		parts[i].size_bytes = plan.size_bytes;
		parts[i].chunks_n = ckpt_chunks(plan.size_bytes);
		parts[i].chunks = calloc(parts[i].chunks_n, sizeof(uint32_t));
		rv = writer_write(writer, dir, &parts[i], &plan, &source, err);
		zip_plan_deinit(&plan);
	}
	writer_close(writer);
	return rv;
}

int sample_save(const struct sample *sample, struct tags_root *root, struct pawl_err *err)
{
	struct manifest_part parts[SAMPLE_PARTS] = {0};
	struct manifest manifest = {.step = sample->step,
		.job = "test",
		.attempt = sample->attempt,
		.world = 1,
		.created_ns = 1};
	struct tag_draft draft;
	int rv;

	tag_of_step(manifest.tag, sizeof(manifest.tag), sample->step);
	rv = tag_begin(root, manifest.tag, &draft, err);
	if (rv == 0) {
		rv = tag_draft_manifest(root, &draft, &manifest, err);
	}
	if (rv == 0) {
		manifest.parts_n = SAMPLE_PARTS;
		manifest.parts = parts;
		rv = write_parts(sample, tags_root_store(root), draft.dir, parts, err);
	}
	if (rv == 0) {
		rv = tag_publish(root, &draft, &manifest, err);
	}
	free(manifest.folders);
	for (uint32_t i = 0; i < SAMPLE_PARTS; i++) {
		free(parts[i].chunks);
	}
	return rv;
}

static int load_parts(const struct sample *expected, const struct manifest *manifest,
	struct reader *reader, struct pawl_err *err)
{
	int rv = manifest->parts_n == SAMPLE_PARTS ? 0 : PAWL_EMISMATCH;

	for (uint32_t i = 0; i < SAMPLE_PARTS && rv == 0; i++) {
		const struct sample_part *part = &expected->parts[i];
		const struct manifest_part *found = manifest_find_part(manifest, part->name, 0);
		uint8_t *image;

		if (found == NULL || found->size_bytes != part->plan.size_bytes) {
			return PAWL_EMISMATCH;
		}
		/* not image_alloc: a huge page for a small file would take most of a test's time */
		image = aligned_alloc(STORE_ALIGN, found->size_bytes);
		ASSERT(image != NULL);
		rv = reader_read(reader, manifest, found, image, err);
		if (rv == 0 && memcmp(image, part->image, found->size_bytes) != 0) {
			rv = PAWL_EMISMATCH;
		}
		free(image);
	}
	return rv;
}

int sample_load(struct tags_root *root, const char *tag, uint32_t *attempt, struct pawl_err *err)
{
	struct manifest manifest;
	struct reader *reader;
	int rv = tag_open(root, tag, &manifest, err);

	if (rv != 0) {
		return rv;
	}
	ASSERT(reader_open(&reader, tags_root_store(root), err) == 0);
	rv = load_parts(sample_get(manifest.step, manifest.attempt), &manifest, reader, err);
	if (rv == 0 && attempt != NULL) {
		*attempt = manifest.attempt;
	}
	reader_close(reader);
	manifest_deinit(&manifest);
	return rv;
}
