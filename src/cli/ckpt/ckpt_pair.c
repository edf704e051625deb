/*
 * Two checkpoints side by side: see ckpt_pair.h for the contract.
 *
 * The tensor table has no strides. A tensor's elements are assumed to follow each other from its
 * offset on. This is right for contiguous tensors. It is also right for dense tensors in another
 * order, if both sides have the same order: norms do not depend on the order. If the elements would
 * reach beyond the storage, or into a view that begins elsewhere, nothing is computed, and the
 * tensor's why gives the reason.
 *
 * Values are compared in the order of the first side's file, a block at a time, and compared blocks
 * are released: two files of any size need a few blocks of memory.
 */
#include "cli/ckpt/ckpt_pair.h"

#include "base/err.h"
#include "base/parallel.h"
#include "ckpt/format/zip.h"
#include "ckpt/read.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (16u << 20) /* bytes of each side that are compared together */
#define PIECE_BYTES                                                                                \
	(256u << 10) /* bytes of a block for one core; a multiple of every element's size */

const char *const pair_words[PAIR_STATES] = {"same", "changed", "added", "removed", "reshaped",
	"retyped", "not comparable"};

/* ---- tables ---- */

/* Orders by name; tensors of one name by storage. */
static int compare_rows(const void *a, const void *b)
{
	const struct pawl_tensor *x = a;
	const struct pawl_tensor *y = b;
	int order = strcmp(x->name, y->name);

	if (order != 0) {
		return order;
	}
	return (x->storage > y->storage) - (x->storage < y->storage);
}

/* Decodes the table of one side, and sorts it by name. */
static int read_table(struct pair_part *part, int side, struct pawl_err *err)
{
	const struct manifest_part *file = part->sides[side];
	struct pawl_tensor *rows = NULL;
	size_t cap = 0;
	size_t n = 0;
	size_t off = 0;
	int rv = 1;

	while (rv == 1) {
		if (n == cap) {
			size_t more = cap == 0 ? 64 : 2 * cap;
			struct pawl_tensor *grown = realloc(rows, more * sizeof(*rows));

			if (grown == NULL) {
				rv = pawl_err_set(err, PAWL_ENOMEM, "%s: %zu tensors", file->file,
					more);
				break;
			}
			rows = grown;
			cap = more;
		}
		rv = pawl_tensor_decode(file->tensors, file->tensors_bytes, &off, &rows[n], err);
		n += rv == 1;
	}
	if (n > 1) {
		qsort(rows, n, sizeof(*rows), compare_rows);
	}
	part->tables[side] = rows;
	part->tables_n[side] = n;
	return rv;
}

/* Returns the bytes of a tensor's elements; UINT64_MAX if no file could hold them. */
static uint64_t bytes_of(const struct pawl_tensor *tensor, const struct delta_dtype *dtype)
{
	uint64_t bytes = delta_dtype_bytes(dtype);

	for (uint32_t i = 0; i < tensor->ndim; i++) {
		if (tensor->shape[i] == 0) {
			return 0;
		}
	}
	for (uint32_t i = 0; i < tensor->ndim; i++) {
		if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes)) {
			return UINT64_MAX;
		}
	}
	return bytes;
}

static bool has_same_shape(const struct pawl_tensor *a, const struct pawl_tensor *b)
{
	return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

/* Sets a tensor's state from the tables alone, without its values. */
static void judge_tensor(struct pair_tensor *pair)
{
	const struct pawl_tensor *a = pair->sides[0];
	const struct pawl_tensor *b = pair->sides[1];

	if (a == NULL || b == NULL) {
		pair->state = a == NULL ? PAIR_ADDED : PAIR_REMOVED;
	} else if (strcmp(a->dtype, b->dtype) != 0) {
		pair->state = PAIR_RETYPED;
	} else if (!has_same_shape(a, b)) {
		pair->state = PAIR_RESHAPED;
	} else {
		pair->dtype = delta_dtype_find(a->dtype);
		pair->state = pair->dtype != NULL ? PAIR_SAME : PAIR_UNCLEAR;
		pair->why = "this version of Pawl does not know its dtype";
		if (pair->dtype != NULL) {
			pair->bytes = bytes_of(a, pair->dtype);
			pair->why = NULL;
		}
	}
}

/* Pairs the tensors of both sides, by name. */
static int pair_tensors(struct pair_part *part, struct pawl_err *err)
{
	struct pawl_tensor *at[2] = {part->tables[0], part->tables[1]};
	size_t left[2] = {part->tables_n[0], part->tables_n[1]};

	part->tensors = calloc(left[0] + left[1] + 1, sizeof(*part->tensors));
	if (part->tensors == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%zu tensors", left[0] + left[1]);
	}
	while (left[0] > 0 || left[1] > 0) {
		struct pair_tensor *pair = &part->tensors[part->tensors_n++];
		int order = left[0] == 0 ? 1 : -1;

		if (left[0] > 0 && left[1] > 0) {
			order = strcmp(at[0]->name, at[1]->name);
		}
		if (order <= 0) {
			pair->sides[0] = at[0]++;
			left[0]--;
		}
		if (order >= 0) {
			pair->sides[1] = at[1]++;
			left[1]--;
		}
		judge_tensor(pair);
	}
	return 0;
}

int pair_init(struct pair *pair, const struct manifest *first, const struct manifest *second,
	struct pawl_err *err)
{
	const struct manifest *sides[2] = {first, second};
	uint32_t at[2] = {0, 0};
	int rv = 0;

	*pair = (struct pair){0};
	pair->parts = calloc((size_t)first->parts_n + second->parts_n + 1, sizeof(*pair->parts));
	if (pair->parts == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%u partitions", first->parts_n);
	}
	while (rv == 0 && (at[0] < first->parts_n || at[1] < second->parts_n)) {
		struct pair_part *part = &pair->parts[pair->parts_n++];
		int order = at[0] == first->parts_n ? 1
			: at[1] == second->parts_n
			? -1
			: strcmp(first->parts[at[0]].file, second->parts[at[1]].file);

		for (int side = 0; side < 2 && rv == 0; side++) {
			if (side == 0 ? order <= 0 : order >= 0) {
				part->sides[side] = &sides[side]->parts[at[side]++];
				rv = read_table(part, side, err);
			}
		}
		if (rv == 0) {
			rv = pair_tensors(part, err);
		}
	}
	return rv;
}

void pair_deinit(struct pair *pair)
{
	for (size_t i = 0; i < pair->parts_n; i++) {
		free(pair->parts[i].tables[0]);
		free(pair->parts[i].tables[1]);
		free(pair->parts[i].tensors);
	}
	free(pair->parts);
	*pair = (struct pair){0};
}

uint64_t pair_bytes(const struct pair *pair)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < pair->parts_n; i++) {
		for (size_t t = 0; t < pair->parts[i].tensors_n; t++) {
			bytes += 2 * pair->parts[i].tensors[t].bytes;
		}
	}
	return bytes;
}

/* ---- where elements lie ---- */

/* A partition of one side being read. */
struct side {
	struct part_image *image; /* contents of the file */
	struct zip_plan zip;      /* where the storages lie in the file */
};

struct source {
	struct part_image *image; /* contents of the file */
	uint64_t size_bytes;      /* size of the file */
};

static int read_image(void *user, uint64_t off, void *buf, size_t len_bytes, struct pawl_err *err)
{
	const struct source *source = user;
	int rv;

	if (off > source->size_bytes || len_bytes > source->size_bytes - off) {
		return pawl_err_set(err, PAWL_ECORRUPT, "points beyond the end of the file");
	}
	rv = part_image_read(source->image, off, len_bytes, err);
	if (rv == 0) {
		memcpy(buf, part_image_at(source->image, off), len_bytes);
	}
	return rv;
}

/* Computes Pawl's layout from the sizes of a file's entries. Returns whether the file has it. */
static bool lay_out(struct zip_plan *layout, const struct zip_plan *tail)
{
	uint64_t *sizes = calloc(tail->storages + 1u, sizeof(*sizes));
	bool same = sizes != NULL;

	for (uint32_t i = 0; same && i < tail->storages; i++) {
		sizes[i] = tail->entries[i].size_bytes;
	}
	same = same &&
		zip_plan_init(layout, sizes, tail->storages, zip_plan_pickle(tail)->size_bytes,
			NULL) == 0;
	free(sizes);
	if (same && layout->size_bytes != tail->size_bytes) {
		same = false;
	}
	for (uint32_t i = 0; same && i < tail->storages; i++) {
		same = layout->entries[i].header_off == tail->entries[i].header_off;
	}
	if (!same) {
		zip_plan_deinit(layout);
	}
	return same;
}

/* Lays out a raw file as one storage. */
static int take_as_storage(struct zip_plan *plan, uint64_t size_bytes, struct pawl_err *err)
{
	plan->entries = calloc(1, sizeof(*plan->entries));
	if (plan->entries == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for its layout");
	}
	plan->entries[0].size_bytes = size_bytes;
	plan->entries_n = 1;
	plan->storages = 1;
	plan->size_bytes = size_bytes;
	return 0;
}

/* Finds where the storages lie, from the end of the file and the one layout that Pawl writes. In a
 * file of another layout, every entry is read. */
static int locate_storages(struct side *side, const struct manifest_part *part,
	struct pawl_err *err)
{
	struct source source = {side->image, part->size_bytes};
	struct zip_plan tail = {0};
	int rv;

	if (part->raw) {
		return take_as_storage(&side->zip, part->size_bytes, err);
	}
	rv = zip_plan_read_tail(&tail, read_image, &source, part->size_bytes, err);
	if (rv == 0 && !lay_out(&side->zip, &tail)) {
		rv = zip_plan_read(&side->zip, read_image, &source, part->size_bytes, err);
	}
	zip_plan_deinit(&tail);
	return rv;
}

static void close_side(struct side *side)
{
	zip_plan_deinit(&side->zip);
	part_image_close(side->image);
}

static int open_side(struct side *side, struct reader *reader, const struct manifest *manifest,
	const struct manifest_part *part, struct pawl_err *err)
{
	int rv = part_image_open(&side->image, reader, manifest, part, err);

	if (rv != 0) {
		return rv;
	}
	rv = locate_storages(side, part, err);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s/%s", manifest->tag, part->file);
}

/* A tensor's bytes in its storage, for finding tensors that overlap. */
struct span {
	uint64_t off, len;         /* range of bytes in the storage */
	uint32_t storage;          /* index of the storage */
	struct pair_tensor *owner; /* the tensor that lies there */
};

static int compare_spans(const void *a, const void *b)
{
	const struct span *x = a;
	const struct span *y = b;

	if (x->storage != y->storage) {
		return x->storage < y->storage ? -1 : 1;
	}
	if (x->off != y->off) {
		return x->off < y->off ? -1 : 1;
	}
	return (x->len > y->len) - (x->len < y->len);
}

static void give_up(struct pair_tensor *tensor, const char *why)
{
	tensor->state = PAIR_UNCLEAR;
	tensor->why = why;
}

/* Marks as unclear the tensors that are not one run of bytes of their own on that side. */
static int check_places(struct pair_part *part, const struct side *side, int which,
	struct pawl_err *err)
{
	struct span *spans = calloc(part->tensors_n + 1, sizeof(*spans));
	size_t n = 0;

	if (spans == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%zu tensors", part->tensors_n);
	}
	for (size_t i = 0; i < part->tensors_n; i++) {
		struct pair_tensor *tensor = &part->tensors[i];
		const struct pawl_tensor *row = tensor->sides[which];

		if (tensor->dtype == NULL || tensor->bytes == 0) {
			continue;
		}
		if (row->storage >= side->zip.storages ||
			row->offset_bytes > side->zip.entries[row->storage].size_bytes ||
			tensor->bytes >
				side->zip.entries[row->storage].size_bytes - row->offset_bytes) {
			give_up(tensor, "its elements are not one run of bytes");
			continue;
		}
		spans[n++] = (struct span){row->offset_bytes, tensor->bytes, row->storage, tensor};
	}
	if (n > 0) {
		qsort(spans, n, sizeof(*spans), compare_spans);
	}
	/* widest: index of the span that reaches furthest so far. */
	for (size_t i = 1, widest = 0; i < n; i++) {
		const struct span *before = &spans[widest];
		bool beside = before->storage != spans[i].storage ||
			before->off + before->len <= spans[i].off;
		bool same = before->off == spans[i].off && before->len == spans[i].len;

		if (!beside && !same) {
			give_up(before->owner, "it shares memory with another tensor");
			give_up(spans[i].owner, "it shares memory with another tensor");
		}
		if (beside || spans[i].off + spans[i].len > before->off + before->len) {
			widest = i;
		}
	}
	free(spans);
	return 0;
}

/* ---- comparing ---- */

/* A block of elements, cut into pieces for the cores. */
struct block {
	const uint8_t *sides[2];                        /* first byte of the block, on each side */
	const struct delta_dtype *dtype;                /* dtype of the elements */
	uint64_t bytes;                                 /* bytes of the block on each side */
	struct delta deltas[BLOCK_BYTES / PIECE_BYTES]; /* one for each piece */
};

static void compare_piece(void *user, size_t i)
{
	struct block *block = user;
	uint64_t off = i * PIECE_BYTES;
	uint64_t left = block->bytes - off;
	uint64_t len = left < PIECE_BYTES ? left : PIECE_BYTES;

	block->deltas[i] = (struct delta){0};
	delta_add(&block->deltas[i], block->dtype, block->sides[0] + off, block->sides[1] + off,
		len / delta_dtype_bytes(block->dtype));
}

/* The files of both sides while their tensors are compared. */
struct comparison {
	struct side sides[2];      /* the files */
	struct progress *progress; /* progress of the whole comparison */
	struct block block;        /* block being compared */
};

static int compare_tensor(struct comparison *with, struct pair_tensor *tensor, struct pawl_err *err)
{
	struct block *block = &with->block;
	int rv = 0;

	block->dtype = tensor->dtype;
	for (uint64_t done = 0; done < tensor->bytes && rv == 0; done += block->bytes) {
		uint64_t left = tensor->bytes - done;
		size_t pieces;

		block->bytes = left < BLOCK_BYTES ? left : BLOCK_BYTES;
		pieces = (block->bytes + PIECE_BYTES - 1) / PIECE_BYTES;
		for (int i = 0; i < 2 && rv == 0; i++) {
			const struct pawl_tensor *row = tensor->sides[i];
			struct side *side = &with->sides[i];
			uint64_t at =
				side->zip.entries[row->storage].data_off + row->offset_bytes + done;

			part_image_drop(side->image, at);
			rv = part_image_read(side->image, at, block->bytes, err);
			block->sides[i] = part_image_at(side->image, at);
		}
		if (rv == 0) {
			parallel_for(pieces, compare_piece, block);
			for (size_t i = 0; i < pieces; i++) {
				delta_merge(&tensor->delta, &block->deltas[i]);
			}
			progress_add(with->progress, 2 * block->bytes);
		}
	}
	tensor->state = tensor->delta.changed > 0 ? PAIR_CHANGED : PAIR_SAME;
	return rv;
}

static int compare_places(const void *a, const void *b)
{
	const struct pawl_tensor *x = (*(struct pair_tensor *const *)a)->sides[0];
	const struct pawl_tensor *y = (*(struct pair_tensor *const *)b)->sides[0];

	if (x->storage != y->storage) {
		return x->storage < y->storage ? -1 : 1;
	}
	return (x->offset_bytes > y->offset_bytes) - (x->offset_bytes < y->offset_bytes);
}

/* Compares all tensors that can be compared, in the order of the first file. */
static int compare_tensors(struct comparison *with, struct pair_part *part, struct pawl_err *err)
{
	struct pair_tensor **order = calloc(part->tensors_n + 1, sizeof(struct pair_tensor *));
	size_t n = 0;
	int rv = 0;

	if (order == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "%zu tensors", part->tensors_n);
	}
	for (size_t i = 0; i < part->tensors_n; i++) {
		if (part->tensors[i].dtype != NULL && part->tensors[i].state == PAIR_SAME) {
			order[n++] = &part->tensors[i];
		}
	}
	if (n > 0) {
		qsort(order, n, sizeof(struct pair_tensor *), compare_places);
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		rv = compare_tensor(with, order[i], err);
	}
	free(order);
	return rv;
}

static int compare_pickles(struct comparison *with, struct pair_part *part, struct pawl_err *err)
{
	const struct zip_entry *pickles[2];
	int rv = 0;

	for (int i = 0; i < 2 && rv == 0; i++) {
		pickles[i] = zip_plan_pickle(&with->sides[i].zip);
		rv = part_image_read(with->sides[i].image, pickles[i]->data_off,
			pickles[i]->size_bytes, err);
	}
	if (rv == 0) {
		part->others_changed = pickles[0]->size_bytes != pickles[1]->size_bytes ||
			memcmp(part_image_at(with->sides[0].image, pickles[0]->data_off),
				part_image_at(with->sides[1].image, pickles[1]->data_off),
				pickles[0]->size_bytes) != 0;
	}
	return rv;
}

static bool has_same_sums(const struct manifest_part *a, const struct manifest_part *b)
{
	return a->size_bytes == b->size_bytes &&
		(a->chunks_n == 0 ||
			memcmp(a->chunks, b->chunks, a->chunks_n * sizeof(*a->chunks)) == 0);
}

/* Compares all but the tensors: the pickle or, in a raw file or one without tensors, all bytes. */
static int compare_others(struct comparison *with, struct pair_part *part, struct pawl_err *err)
{
	if (part->tensors_n > 0 && !part->sides[0]->raw && !part->sides[1]->raw) {
		return compare_pickles(with, part, err);
	}
	part->others_changed = !has_same_sums(part->sides[0], part->sides[1]);
	for (size_t i = 0; i < part->tensors_n; i++) {
		if (part->tensors[i].state != PAIR_SAME) {
			part->others_changed = false; /* unknown: the sums cover the tensors, too */
		}
	}
	return 0;
}

static int compare_part(struct pair_part *part, struct reader *reader,
	const struct manifest *const sides[2], struct progress *progress, struct pawl_err *err)
{
	struct comparison with = {.progress = progress};
	int rv = 0;

	progress_name(progress, part->sides[0]->file, "");
	for (int i = 0; i < 2 && rv == 0 && part->tensors_n > 0; i++) {
		rv = open_side(&with.sides[i], reader, sides[i], part->sides[i], err);
		if (rv == 0) {
			rv = check_places(part, &with.sides[i], i, err);
		}
	}
	if (rv == 0) {
		rv = compare_tensors(&with, part, err);
	}
	if (rv == 0) {
		rv = compare_others(&with, part, err);
	}
	close_side(&with.sides[0]);
	close_side(&with.sides[1]);
	return rv;
}

int pair_compare(struct pair *pair, struct reader *reader, const struct manifest *const sides[2],
	struct progress *progress, struct pawl_err *err)
{
	int rv = 0;

	for (size_t i = 0; i < pair->parts_n && rv == 0; i++) {
		if (pair->parts[i].sides[0] != NULL && pair->parts[i].sides[1] != NULL) {
			rv = compare_part(&pair->parts[i], reader, sides, progress, err);
		}
	}
	progress_wipe(progress);
	return rv;
}
