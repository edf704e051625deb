/* See copy.h. A file is read some MiB ahead, so that many transfers are in flight, and its memory
 * is freed behind. */
#include "ckpt/copy.h"

#include "base/err.h"
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "ckpt/put.h"
#include "ckpt/read.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"

#include <string.h>

#define AHEAD ((uint64_t)32 << 20) /* bytes that are read at a time */

struct copy {
	const struct manifest *from;
	const struct copy_watch *watch;
	struct reader *reader;
	const struct manifest_part *part; /* part that is being read */
	struct part_image *image;         /* contents of the part */
	uint64_t have_bytes;              /* bytes of the part that were read */
};

/* ---- reading ---- */

static int begin_part(struct copy *copy, struct pawl_err *err)
{
	copy->have_bytes = 0;
	return part_image_open(&copy->image, copy->reader, copy->from, copy->part, err);
}

/* Fits put_source. */
static int open_part(void *user, uint32_t i, struct pawl_err *err)
{
	struct copy *copy = user;

	copy->part = &copy->from->parts[i];
	return begin_part(copy, err);
}

/* Fits put_source. */
static void close_part(void *user)
{
	struct copy *copy = user;

	part_image_close(copy->image);
	copy->image = NULL;
}

/* Fits put_source. */
static int read_piece(void *user, uint64_t off, void *bytes, size_t len_bytes, struct pawl_err *err)
{
	struct copy *copy = user;
	uint64_t left = copy->part->size_bytes - off;
	uint64_t ahead = left < AHEAD ? left : AHEAD;
	int rv = copy->watch->go_on != NULL ? copy->watch->go_on(copy->watch->user, err) : 0;

	if (rv == 0 && off == 0 && copy->have_bytes > 0) { /* the part is read a second time */
		part_image_close(copy->image);
		copy->image = NULL;
		rv = begin_part(copy, err);
	}
	if (rv == 0 && off + len_bytes > copy->have_bytes) {
		part_image_drop(copy->image, off);
		rv = part_image_read(copy->image, off, ahead, err);
		copy->have_bytes = off + ahead;
	}
	if (rv != 0) {
		return rv;
	}
	memcpy(bytes, part_image_at(copy->image, off), len_bytes);
	if (copy->watch->progress != NULL) {
		copy->watch->progress(copy->watch->user, len_bytes);
	}
	return 0;
}

/* ---- copying ---- */

/* Computes a number from the bytes of all files. */
static uint64_t take_fingerprint(const struct manifest *manifest)
{
	struct rng rng = {manifest->step};
	uint64_t hash = rng_u64(&rng);

	for (uint32_t i = 0; i < manifest->parts_n; i++) {
		const struct manifest_part *part = &manifest->parts[i];

		rng.state = hash ^ part->size_bytes;
		hash = rng_u64(&rng);
		for (uint32_t c = 0; c < part->chunks_n; c++) {
			rng.state = hash ^ part->chunks[c];
			hash = rng_u64(&rng);
		}
	}
	return hash;
}

static bool is_same_part(const struct manifest_part *a, const struct manifest_part *b)
{
	return strcmp(a->file, b->file) == 0 && strcmp(a->name, b->name) == 0 &&
		a->rank == b->rank && a->raw == b->raw && a->size_bytes == b->size_bytes &&
		a->chunks_n == b->chunks_n &&
		memcmp(a->chunks, b->chunks, a->chunks_n * sizeof(*a->chunks)) == 0;
}

static bool is_same(const struct manifest *a, const struct manifest *b)
{
	bool same = a->step == b->step && a->world == b->world && a->parts_n == b->parts_n;

	for (uint32_t i = 0; same && i < a->parts_n; i++) {
		same = is_same_part(&a->parts[i], &b->parts[i]);
	}
	return same;
}

/* Sets *same: whether the root has a tag like this manifest, complete. */
static int compare(const struct manifest *from, struct tags_root *to, bool *same,
	struct pawl_err *err)
{
	struct manifest manifest;
	int rv = tag_open(to, from->tag, &manifest, err);

	*same = false;
	if (rv != 0) {
		return rv == PAWL_ENOENT || rv == PAWL_ECORRUPT ? 0 : rv;
	}
	*same = is_same(from, &manifest);
	manifest_deinit(&manifest);
	return 0;
}

int tag_is_copied(struct tags_root *from, const char *tag, struct tags_root *to, bool *same,
	struct pawl_err *err)
{
	struct manifest manifest;
	int rv = tag_open(from, tag, &manifest, err);

	*same = false;
	if (rv == 0) {
		rv = compare(&manifest, to, same, err);
		manifest_deinit(&manifest);
	}
	return rv;
}

int tag_copy(struct tags_root *from, const char *tag, struct tags_root *to,
	const struct copy_watch *watch, struct pawl_err *err)
{
	static const struct copy_watch nobody = {NULL, NULL, NULL};
	struct manifest manifest;
	struct copy copy = {.from = &manifest, .watch = watch != NULL ? watch : &nobody};
	const struct put_source source = {open_part, read_piece, close_part, &copy};
	bool same = false;
	int rv = tag_open(from, tag, &manifest, err);

	if (rv != 0) {
		return rv;
	}
	rv = compare(&manifest, to, &same, err);
	if (rv == 0 && !same) {
		rv = reader_open(&copy.reader, tags_root_store(from), err);
	}
	if (rv == 0 && !same) {
		rv = tag_put(to, &manifest, take_fingerprint(&manifest), &source, err);
	}
	reader_close(copy.reader);
	manifest_deinit(&manifest);
	return rv;
}
