/*
 * Images: see image.h. The order of the pieces says where each lies, so only partitions have their
 * offset kept, and every IMAGE_MARK_PIECES-th piece: a partition may have millions of pieces.
 */
#include "agent/peer/image.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

static const struct record_part *record_of(const struct image *image, const struct image_part *part)
{
	return &image->records[part->rank]->parts[part->part];
}

/* ---- list ---- */

static size_t marks_of(const struct record_part *part)
{
	return (part->pieces_n + (size_t)IMAGE_MARK_PIECES - 1) / IMAGE_MARK_PIECES;
}

static int alloc_lists(struct image *image, struct pawl_err *err)
{
	size_t parts_n = 0;
	size_t marks_n = 0;

	for (uint32_t r = 0; r < image->ranks; r++) {
		const struct record *record = image->records[r];

		parts_n += record->parts_n;
		for (uint32_t p = 0; p < record->parts_n; p++) {
			marks_n += marks_of(&record->parts[p]);
		}
	}
	if (parts_n > UINT32_MAX) {
		return pawl_err_set(err, PAWL_ECORRUPT, "an image of %zu partitions: too many",
			parts_n);
	}
	image->parts = FAULT_MEM("image.parts", calloc(parts_n + 1, sizeof(*image->parts)));
	image->marks = FAULT_MEM("image.marks", calloc(marks_n + 1, sizeof(*image->marks)));
	if (image->parts == NULL || image->marks == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM,
			"no memory to list an image of %zu partitions", parts_n);
	}
	return 0;
}

/* Lists one partition behind those that are listed. mark: index of the next mark. */
static int list_part(struct image *image, uint32_t rank, uint32_t index, size_t *mark,
	struct pawl_err *err)
{
	const struct record_part *part = &image->records[rank]->parts[index];
	struct image_part at = {.rank = rank,
		.part = index,
		.off = image->size_bytes,
		.mark = *mark};
	uint64_t end = at.off;

	for (uint32_t i = 0; i < part->pieces_n; i++) {
		if (i % IMAGE_MARK_PIECES == 0) {
			image->marks[(*mark)++] = end;
		}
		if (__builtin_add_overflow(end, (uint64_t)part->pieces[i].len_bytes, &end)) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"partition %s: the pieces of all ranks are larger than memory",
				part->name);
		}
	}
	at.len_bytes = end - at.off;
	if (at.len_bytes > 0) {
		image->parts[image->parts_n++] = at;
		image->size_bytes = end;
	}
	return 0;
}

int image_init(struct image *image, const struct record *const *records, uint32_t ranks,
	struct pawl_err *err)
{
	struct image made = {.records = records, .ranks = ranks};
	size_t mark = 0;
	int rv = alloc_lists(&made, err);

	for (uint32_t r = 0; r < ranks && rv == 0; r++) {
		for (uint32_t p = 0; p < records[r]->parts_n && rv == 0; p++) {
			rv = list_part(&made, r, p, &mark, err);
		}
	}
	if (rv != 0) {
		image_deinit(&made);
		return rv;
	}
	*image = made;
	return 0;
}

void image_deinit(struct image *image)
{
	free(image->parts);
	free(image->marks);
	memset(image, 0, sizeof(*image));
}

/* ---- find ---- */

bool image_next(const struct image *image, struct image_at *at, struct image_piece *piece)
{
	for (; at->part < image->parts_n; at->part++, at->piece = 0) {
		const struct image_part *part = &image->parts[at->part];
		const struct record_part *record = record_of(image, part);

		if (at->piece < record->pieces_n) {
			const struct record_piece *found = &record->pieces[at->piece];

			*piece = (struct image_piece){.rank = part->rank,
				.part = part->part,
				.piece = at->piece,
				.off = at->off,
				.arena_off = record->arena_off + (found->file_off - record->lo),
				.len_bytes = found->len_bytes,
				.crc = found->crc};
			at->piece++;
			at->off += found->len_bytes;
			return true;
		}
	}
	return false;
}

/* Returns the index of the last of n ascending numbers that is not above value, as the first is
 * not. */
static size_t last_not_above(const uint64_t *numbers, size_t n, uint64_t value)
{
	size_t first = 0;

	while (n - first > 1) {
		size_t middle = first + (n - first) / 2;

		if (numbers[middle] <= value) {
			first = middle;
		} else {
			n = middle;
		}
	}
	return first;
}

/* Returns the index of the part that has the byte at off. */
static uint32_t part_at(const struct image *image, uint64_t off)
{
	uint32_t first = 0;
	uint32_t end = image->parts_n;

	while (end - first > 1) {
		uint32_t middle = first + (end - first) / 2;

		if (image->parts[middle].off <= off) {
			first = middle;
		} else {
			end = middle;
		}
	}
	return first;
}

void image_find(const struct image *image, uint64_t off, struct image_at *at)
{
	const struct image_part *part;
	const struct record_part *record;
	const uint64_t *marks;
	uint32_t index;
	size_t mark;

	ASSERT(off < image->size_bytes);
	index = part_at(image, off);
	part = &image->parts[index];
	record = record_of(image, part);
	marks = &image->marks[part->mark];
	mark = last_not_above(marks, marks_of(record), off);
	*at = (struct image_at){.part = index,
		.piece = (uint32_t)mark * IMAGE_MARK_PIECES,
		.off = marks[mark]};
	while (at->off + record->pieces[at->piece].len_bytes <= off) {
		at->off += record->pieces[at->piece++].len_bytes;
	}
}

/* Returns the listed partition, or NULL: it has no pieces. */
static const struct image_part *find_part(const struct image *image, uint32_t rank, uint32_t part)
{
	uint32_t first = 0;
	uint32_t end = image->parts_n;

	while (first < end) {
		uint32_t middle = first + (end - first) / 2;
		const struct image_part *at = &image->parts[middle];

		if (at->rank == rank && at->part == part) {
			return at;
		}
		if (at->rank < rank || (at->rank == rank && at->part < part)) {
			first = middle + 1;
		} else {
			end = middle;
		}
	}
	return NULL;
}

/* Returns the number of pieces that end at file offset off or before; with whole false, that begin
 * before it. */
static uint32_t pieces_before(const struct record_part *record, uint64_t off, bool whole)
{
	uint32_t first = 0;
	uint32_t end = record->pieces_n;

	while (first < end) {
		uint32_t middle = first + (end - first) / 2;
		const struct record_piece *piece = &record->pieces[middle];

		if (whole ? piece->file_off + piece->len_bytes <= off : piece->file_off < off) {
			first = middle + 1;
		} else {
			end = middle;
		}
	}
	return first;
}

/* Returns the offset in the image of a piece; of the end, for one past the last. */
static uint64_t piece_off(const struct image *image, const struct image_part *part, uint32_t piece)
{
	const struct record_part *record = record_of(image, part);
	uint32_t at = piece / IMAGE_MARK_PIECES * IMAGE_MARK_PIECES;
	uint64_t off;

	if (piece == record->pieces_n) {
		return part->off + part->len_bytes;
	}
	off = image->marks[part->mark + piece / IMAGE_MARK_PIECES];
	while (at < piece) {
		off += record->pieces[at++].len_bytes;
	}
	return off;
}

void image_range(const struct image *image, uint32_t rank, uint32_t part, uint64_t lo, uint64_t hi,
	uint64_t *off, uint64_t *end)
{
	const struct image_part *found = find_part(image, rank, part);
	uint32_t first = 0;
	uint32_t last = 0; /* one past the last piece */

	*off = 0;
	*end = 0;
	if (found != NULL && lo < hi) {
		first = pieces_before(record_of(image, found), lo, true);
		last = pieces_before(record_of(image, found), hi, false);
	}
	if (first < last) {
		*off = piece_off(image, found, first);
		*end = piece_off(image, found, last);
	}
}
