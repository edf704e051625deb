/* Shares and pieces: see pieces.h for the contract. */
#include "ckpt/format/pieces.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/record.h"

#include <stdlib.h>
#include <string.h>

#define PIECES_CAP_FIRST 1024u /* pieces allocated at first; doubled when full */

_Static_assert(CKPT_CHUNK % CKPT_PAGE == 0, "a chunk has whole pages");
_Static_assert(CKPT_WATCH_MIN >= 2 * CKPT_PAGE, "a watched span has a page to itself");
_Static_assert(ZIP_FILE_MAX / CKPT_CHUNK < UINT32_MAX, "chunks are counted in 32 bits");

void ckpt_share(uint64_t size_bytes, uint32_t rank, uint32_t world, uint64_t *lo, uint64_t *hi)
{
	uint64_t chunks = ckpt_chunks(size_bytes);
	uint64_t place = rank == 0 ? world - 1 : rank - 1;
	uint64_t from, to;

	ASSERT(rank < world);
	from = chunks * place / world * CKPT_CHUNK;
	to = chunks * (place + 1) / world * CKPT_CHUNK;
	*lo = from < size_bytes ? from : size_bytes;
	*hi = to < size_bytes ? to : size_bytes;
	ASSERT(*lo <= *hi);
}

/* State of one call: common to all its pieces, then common to one span. */
struct cutter {
	struct ckpt_pieces *pieces;   /* the caller's */
	uint64_t lo;                  /* offset in the file at which image begins */
	uint8_t *image;               /* memory of the image, or NULL */
	uint32_t part;                /* index of the partition */
	uint32_t storage;             /* index of the span */
	const struct ckpt_span *span; /* the span being cut */
};

static int grow_pieces(struct ckpt_pieces *pieces, struct pawl_err *err)
{
	size_t cap = pieces->cap == 0 ? PIECES_CAP_FIRST : pieces->cap * 2;
	struct ckpt_piece *at;

	if (cap > CKPT_PIECES_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "the state has more than %u pieces",
			CKPT_PIECES_MAX);
	}
	at = FAULT_MEM("plan.pieces", realloc(pieces->at, cap * sizeof(*at)));
	if (at == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu pieces", cap);
	}
	pieces->at = at;
	pieces->cap = cap;
	return 0;
}

/* Appends [src, src + len) as one piece at file_off; does nothing if the run is empty. */
static int add_piece(struct cutter *cut, const uint8_t *src, uint64_t len_bytes, uint64_t file_off,
	uint64_t groups, struct pawl_err *err)
{
	struct ckpt_pieces *pieces = cut->pieces;

	ASSERT(len_bytes <= CKPT_CHUNK && file_off >= cut->lo);
	if (len_bytes == 0) {
		return 0;
	}
	if (pieces->n == pieces->cap) {
		int rv = grow_pieces(pieces, err);

		if (rv != 0) {
			return rv;
		}
	}
	pieces->at[pieces->n++] = (struct ckpt_piece){
		.src = src,
		.dst = cut->image == NULL ? NULL : cut->image + (file_off - cut->lo),
		.file_off = file_off,
		.len_bytes = (uint32_t)len_bytes,
		.part = cut->part,
		.storage = cut->storage,
		.device = cut->span->device,
		.groups = groups,
	};
	return 0;
}

static uintptr_t clamp(uintptr_t at, uintptr_t lo, uintptr_t hi)
{
	if (at < lo) {
		return lo;
	}
	return at < hi ? at : hi;
}

/* Adds [src, src + len) of one chunk. Bytes on pages that belong to the span alone keep its groups,
 * bytes on pages shared with others get none. Memory of devices is not cut at pages. */
static int cut_run(struct cutter *cut, const uint8_t *src, uint64_t len_bytes, uint64_t file_off,
	struct pawl_err *err)
{
	const struct ckpt_span *span = cut->span;
	uintptr_t lo = (uintptr_t)span->addr;
	uintptr_t at = (uintptr_t)src;
	uint64_t head, body;
	int rv;

	if (span->device != 0) {
		return add_piece(cut, src, len_bytes, file_off, span->groups, err);
	}
	if (span->groups == 0 || span->size_bytes < CKPT_WATCH_MIN) {
		return add_piece(cut, src, len_bytes, file_off, 0, err);
	}
	head = clamp((lo + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE, at, at + len_bytes) - at;
	body = clamp((lo + span->size_bytes) / CKPT_PAGE * CKPT_PAGE, at, at + len_bytes) - at -
		head;
	ASSERT(head <= len_bytes && body <= len_bytes - head);
	rv = add_piece(cut, src, head, file_off, 0, err);
	if (rv == 0) {
		rv = add_piece(cut, src + head, body, file_off + head, span->groups, err);
	}
	if (rv == 0) {
		rv = add_piece(cut, src + head + body, len_bytes - head - body,
			file_off + head + body, 0, err);
	}
	return rv;
}

/* Adds the bytes of the span's payload in [lo, hi), chunk by chunk. */
static int cut_span(struct cutter *cut, const struct zip_entry *entry, uint64_t hi,
	struct pawl_err *err)
{
	const uint8_t *addr = cut->span->addr;
	uint64_t end = entry->data_off + entry->size_bytes;
	uint64_t off = entry->data_off > cut->lo ? entry->data_off : cut->lo;
	int rv = 0;

	ASSERT(cut->span->size_bytes == entry->size_bytes);
	end = end < hi ? end : hi;
	while (off < end && rv == 0) {
		uint64_t to = (off / CKPT_CHUNK + 1) * CKPT_CHUNK;

		to = to < end ? to : end;
		rv = cut_run(cut, addr + (off - entry->data_off), to - off, off, err);
		off = to;
	}
	return rv;
}

int ckpt_pieces_add(struct ckpt_pieces *pieces, const struct zip_plan *plan,
	const struct ckpt_span *spans, uint32_t part, uint64_t lo, uint64_t hi, uint8_t *image,
	struct pawl_err *err)
{
	struct cutter cut = {.pieces = pieces, .lo = lo, .image = image, .part = part};
	size_t n_before = pieces->n;
	int rv = 0;

	for (uint32_t i = 0; i <= plan->storages && rv == 0; i++) {
		const struct zip_entry *entry =
			i < plan->storages ? &plan->entries[i] : zip_plan_pickle(plan);

		cut.storage = i;
		cut.span = &spans[i];
		rv = cut_span(&cut, entry, hi, err);
	}
	if (rv != 0) {
		pieces->n = n_before;
	}
	return rv;
}

int ckpt_pieces_add_span(struct ckpt_pieces *pieces, const struct ckpt_span *span, uint32_t storage,
	uint8_t *dst, struct pawl_err *err)
{
	const struct zip_entry whole = {.size_bytes = span->size_bytes};
	struct cutter cut = {.pieces = pieces, .image = dst, .storage = storage, .span = span};
	size_t n_before = pieces->n;
	int rv = cut_span(&cut, &whole, span->size_bytes, err);

	if (rv != 0) {
		pieces->n = n_before;
	}
	return rv;
}

void ckpt_pieces_deinit(struct ckpt_pieces *pieces)
{
	free(pieces->at);
	memset(pieces, 0, sizeof(*pieces));
}
