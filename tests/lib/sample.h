/*
 * Checkpoints with content made from numbers, for tests: the content of step 3, attempt 0 is known
 * without keeping it anywhere.
 */
#ifndef TEST_SAMPLE_H
#define TEST_SAMPLE_H

#include "ckpt/format/manifest.h"
#include "ckpt/format/zip.h"
#include "ckpt/write.h"

struct rng;
struct tags_root;

/* A partition in memory, as a rank would have it. */
struct sample_part {
	const char *name;     /* the caller's */
	uint32_t storages;    /* not counting the pickle */
	uint64_t *sizes;      /* storages + 1 sizes, the pickle's last */
	uint8_t **payloads;   /* storages + 1 payloads, each of its size */
	struct zip_plan plan; /* plan of the file, CRCs filled */
	uint8_t *image;       /* the correct file, made without the writer */
	uint8_t *scratch; /* as large and aligned as image, for a writer without bounce buffers */
};

/* Fills a part with random payloads of these sizes (the storages', then the pickle's). */
void sample_part_init(struct sample_part *part, const char *name, const uint64_t *sizes,
	uint32_t storages, struct rng *rng);
void sample_part_deinit(struct sample_part *part);

/* A source for the writer: user is the part, which needs no image, and needs scratch only where
 * there is no bounce buffer. The memory is filled with rubbish first, which exposes missing
 * glue. */
int sample_chunk(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce, uint8_t **bytes,
	struct pawl_err *err);

/* Random sizes up to about size_max, including special ones: 0, 1, just below and at each limit. */
uint32_t sample_sizes(uint64_t *sizes, uint32_t storages_max, uint64_t size_max, struct rng *rng);

#define SAMPLE_PARTS 2u

#define SAMPLE_LARGE_STEP 3u /* step whose "optim" has two chunks */

/* Two partitions of a few pages, "model" and "optim". */
struct sample {
	uint64_t step;                          /* step and attempt */
	uint32_t attempt;                       /* determine the content */
	struct sample_part parts[SAMPLE_PARTS]; /* sorted by name */
};

/* Returns the sample of a step and an attempt, made at the first call and kept until the program
 * ends. */
const struct sample *sample_get(uint64_t step, uint32_t attempt);
/* Saves a sample as a tag the way an agent does, in a root of any kind: begin, files, publish. If
 * this fails, a draft may be left, as by a crash. */
int sample_save(const struct sample *sample, struct tags_root *root, struct pawl_err *err);
/* Opens and reads a tag of a sample. Returns 0 if all bytes are those of step and of the attempt in
 * the manifest; PAWL_EMISMATCH if it was read and is something else; other errors if it cannot be
 * read. attempt may be NULL. */
int sample_load(struct tags_root *root, const char *tag, uint32_t *attempt, struct pawl_err *err);

#endif
