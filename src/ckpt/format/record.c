/*
 * Records: see record.h for the contract, docs/format.md for the bytes.
 *
 * A record has no checksum of its own: it lies in memory and travels over a local socket. So the
 * decoder must cope with any bytes: it compares each count with the bytes that are left before it
 * reads or allocates anything, and checks the fields of each part against each other.
 */
#include "ckpt/format/record.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "ckpt/format/block.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/tensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_MAGIC   0x43455250u /* "PREC" */
#define RECORD_VERSION 2u
#define PART_BYTES_MIN 65u /* encoded size of a part with empty name and lists */
#define PART_LISTS     5u  /* lists of a part, each taken from the block */

_Static_assert(sizeof(struct record_piece) == 8 + 4 + 4, "a piece takes as much memory as input");
_Static_assert(sizeof(struct record_part) % BLOCK_ALIGN == 0, "the parts waste nothing of a block");

/* Whether the first len_bytes of name equal word. */
static bool is_word(const char *name, size_t len_bytes, const char *word)
{
	return strlen(word) == len_bytes && memcmp(name, word, len_bytes) == 0;
}

bool ckpt_name_valid(const char *name)
{
	size_t top = strcspn(name, "/");
	uint32_t folders = 0;

	if (strlen(name) >= CKPT_NAME_MAX || is_word(name, top, ".pawl") ||
		is_word(name, top, "complete.txt") || is_word(name, top, "why.txt")) {
		return false;
	}
	for (const char *at = name;; at++) {
		size_t len_bytes = strcspn(at, "/");

		if (len_bytes == 0 || is_word(at, len_bytes, ".") || is_word(at, len_bytes, "..")) {
			return false;
		}
		at += len_bytes;
		if (*at == '\0') {
			return true;
		}
		if (++folders > CKPT_FOLDERS_MAX) {
			return false;
		}
	}
}

bool ckpt_name_in_folder(const char *folder, const char *name)
{
	size_t len_bytes = strlen(folder);

	return strncmp(folder, name, len_bytes) == 0 && name[len_bytes] == '/';
}

bool ckpt_size_valid(bool raw, uint64_t size_bytes)
{
	return size_bytes <= ZIP_FILE_MAX &&
		(raw || (size_bytes > 0 && size_bytes % ZIP_ALIGN_LARGE == 0));
}

/* Flags of a part; bits of one byte. */
enum { FLAG_SHARED = 1, FLAG_RAW = 2, FLAG_EXACT = 4 };

/* ---- encode ---- */

static void put_u32s(struct wire_out *out, const uint32_t *at, uint32_t n)
{
	wire_put_u32(out, n);
	for (uint32_t i = 0; i < n; i++) {
		wire_put_u32(out, at[i]);
	}
}

static void put_part(struct wire_out *out, const struct record_part *part)
{
	wire_put_str(out, part->name);
	wire_put_u8(out,
		(uint8_t)((part->shared ? FLAG_SHARED : 0) | (part->raw ? FLAG_RAW : 0) |
			(part->exact ? FLAG_EXACT : 0)));
	wire_put_u64(out, part->size_bytes);
	wire_put_u64(out, part->pickle_bytes);
	wire_put_u64(out, part->lo);
	wire_put_u64(out, part->hi);
	wire_put_u64(out, part->arena_off);
	wire_put_u32(out, part->storages);
	for (uint32_t i = 0; i < part->storages; i++) {
		wire_put_u64(out, part->storage_bytes[i]);
	}
	wire_put_u32(out, part->pieces_n);
	for (uint32_t i = 0; i < part->pieces_n; i++) {
		wire_put_u64(out, part->pieces[i].file_off);
		wire_put_u32(out, part->pieces[i].len_bytes);
		wire_put_u32(out, part->pieces[i].crc);
	}
	put_u32s(out, part->sums, part->sums_n);
	wire_put_blob(out, part->tensors, part->tensors_bytes);
	put_u32s(out, part->chunks, part->chunks_n);
}

void record_encode(const struct record *record, struct wire_out *out)
{
	wire_put_u32(out, RECORD_MAGIC);
	wire_put_u32(out, RECORD_VERSION);
	wire_put_u64(out, record->step);
	wire_put_u32(out, record->rank);
	wire_put_u32(out, record->world);
	wire_put_u32(out, record->parts_n);
	for (uint32_t i = 0; i < record->parts_n; i++) {
		put_part(out, &record->parts[i]);
	}
}

/* ---- constraints on a part; each check returns what is wrong, or NULL ---- */

static const char *check_sizes(const struct record_part *part)
{
	uint64_t left = part->size_bytes;

	if (!ckpt_size_valid(part->raw, part->size_bytes)) {
		return "impossible size of the file";
	}
	if (part->pickle_bytes > left) {
		return "pickle larger than the file";
	}
	left -= part->pickle_bytes;
	for (uint32_t i = 0; i < part->storages; i++) {
		if (part->storage_bytes[i] > left) {
			return "storages larger than the file";
		}
		left -= part->storage_bytes[i];
	}
	return NULL;
}

static const char *check_share(const struct record_part *part)
{
	if (part->lo > part->hi || part->hi > part->size_bytes) {
		return "share outside of the file";
	}
	if ((part->lo % CKPT_CHUNK != 0 && part->lo != part->size_bytes) ||
		(part->hi % CKPT_CHUNK != 0 && part->hi != part->size_bytes)) {
		return "share not at chunks";
	}
	if (part->arena_off % CKPT_PAGE != 0 || part->arena_off > UINT64_MAX - part->size_bytes) {
		return "invalid offset in the arena";
	}
	return NULL;
}

static const char *check_pieces(const struct record_part *part)
{
	uint64_t off = part->lo;

	for (uint32_t i = 0; i < part->pieces_n; i++) {
		const struct record_piece *piece = &part->pieces[i];

		if (piece->file_off < off || piece->file_off >= part->hi) {
			return "piece out of order or outside of the share";
		}
		if (piece->len_bytes == 0 || piece->len_bytes > part->hi - piece->file_off ||
			piece->len_bytes > CKPT_CHUNK - piece->file_off % CKPT_CHUNK) {
			return "piece longer than its share or chunk";
		}
		off = piece->file_off + piece->len_bytes;
	}
	return NULL;
}

static const char *check_tensors(const struct record_part *part)
{
	struct pawl_tensor tensor;
	size_t off = 0;
	int rv;

	while ((rv = pawl_tensor_decode(part->tensors, part->tensors_bytes, &off, &tensor, NULL)) >
		0) {
		if (part->raw ? tensor.storage != 0 || tensor.offset_bytes > part->size_bytes
			      : tensor.storage >= part->storages ||
					tensor.offset_bytes > part->storage_bytes[tensor.storage]) {
			return "tensor outside of its storage";
		}
	}
	return rv == 0 ? NULL : "tensor table is damaged";
}

static const char *check_part(const struct record_part *part)
{
	const char *wrong = check_sizes(part);

	if (!ckpt_name_valid(part->name)) {
		return "not a valid name of a partition";
	}
	if (part->sums_n != 0 && part->sums_n != part->storages) {
		return "number of checksums is not that of storages";
	}
	if (part->chunks_n != 0 && part->chunks_n != ckpt_chunks(part->size_bytes)) {
		return "number of checksums is not that of chunks";
	}
	wrong = wrong != NULL ? wrong : check_share(part);
	wrong = wrong != NULL ? wrong : check_pieces(part);
	return wrong != NULL ? wrong : check_tensors(part);
}

/* ---- decode ---- */

/* Reads a count of items of item_bytes each; fails if it exceeds n_max or what the input can
 * hold. */
static uint32_t get_count(struct wire_in *in, size_t item_bytes, uint32_t n_max)
{
	uint32_t n = wire_get_u32(in);

	if (n > n_max || n > wire_in_left(in) / item_bytes) {
		in->failed = true;
		return 0;
	}
	return n;
}

static uint32_t *get_u32s(struct wire_in *in, struct block *block, uint32_t *n, uint32_t n_max)
{
	uint32_t *at;

	*n = get_count(in, sizeof(*at), n_max);
	at = block_take(block, *n * sizeof(*at));
	for (uint32_t i = 0; i < *n; i++) {
		at[i] = wire_get_u32(in);
	}
	return at;
}

static void get_part(struct wire_in *in, struct block *block, struct record_part *part)
{
	const uint8_t *tensors;
	uint8_t flags;

	wire_get_str(in, part->name, sizeof(part->name));
	flags = wire_get_u8(in);
	part->shared = (flags & FLAG_SHARED) != 0;
	part->raw = (flags & FLAG_RAW) != 0;
	part->exact = (flags & FLAG_EXACT) != 0;
	part->size_bytes = wire_get_u64(in);
	part->pickle_bytes = wire_get_u64(in);
	part->lo = wire_get_u64(in);
	part->hi = wire_get_u64(in);
	part->arena_off = wire_get_u64(in);
	part->storages = get_count(in, sizeof(uint64_t), ZIP_STORAGES_MAX);
	part->storage_bytes = block_take(block, part->storages * sizeof(uint64_t));
	for (uint32_t i = 0; i < part->storages; i++) {
		part->storage_bytes[i] = wire_get_u64(in);
	}
	part->pieces_n = get_count(in, sizeof(struct record_piece), CKPT_PIECES_MAX);
	part->pieces = block_take(block, part->pieces_n * sizeof(struct record_piece));
	for (uint32_t i = 0; i < part->pieces_n; i++) {
		part->pieces[i].file_off = wire_get_u64(in);
		part->pieces[i].len_bytes = wire_get_u32(in);
		part->pieces[i].crc = wire_get_u32(in);
	}
	part->sums = get_u32s(in, block, &part->sums_n, ZIP_STORAGES_MAX);
	tensors = wire_get_blob(in, &part->tensors_bytes);
	part->tensors = block_take(block, part->tensors_bytes);
	if (part->tensors_bytes > 0) {
		memcpy(part->tensors, tensors, part->tensors_bytes);
	}
	part->chunks = get_u32s(in, block, &part->chunks_n, UINT32_MAX);
}

/* Checks names: two partitions of one name would be one file, and a file cannot lie in another. */
static const char *check_names(const struct record *record, uint32_t i)
{
	const char *name = record->parts[i].name;

	for (uint32_t j = 0; j < i; j++) {
		const char *other = record->parts[j].name;

		if (strcmp(name, other) == 0) {
			return "listed twice";
		}
		if (ckpt_name_in_folder(name, other) || ckpt_name_in_folder(other, name)) {
			return "both a file and a folder";
		}
	}
	return NULL;
}

static int get_parts(struct wire_in *in, struct block *block, struct record *record,
	struct pawl_err *err)
{
	for (uint32_t i = 0; i < record->parts_n; i++) {
		struct record_part *part = &record->parts[i];
		const char *wrong;

		get_part(in, block, part);
		if (in->failed) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"record of step %" PRIu64 ": partition %u is cut short or too long",
				record->step, i);
		}
		wrong = check_part(part);
		wrong = wrong != NULL ? wrong : check_names(record, i);
		if (wrong != NULL) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"record of step %" PRIu64 ": partition %s: %s", record->step,
				part->name, wrong);
		}
	}
	if (!wire_in_done(in)) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"record of step %" PRIu64 ": bytes behind its end", record->step);
	}
	return 0;
}

int record_decode(struct record *record, const void *bytes, size_t len_bytes, struct pawl_err *err)
{
	struct record r = {0};
	struct block block;
	struct wire_in in;
	int rv;

	wire_in_init(&in, bytes, len_bytes);
	if (wire_get_u32(&in) != RECORD_MAGIC || wire_get_u32(&in) != RECORD_VERSION) {
		return pawl_err_set(err, PAWL_ECORRUPT, "not a record of version %u",
			RECORD_VERSION);
	}
	r.step = wire_get_u64(&in);
	r.rank = wire_get_u32(&in);
	r.world = wire_get_u32(&in);
	r.parts_n = get_count(&in, PART_BYTES_MIN, CKPT_PARTS_MAX);
	if (in.failed || r.rank >= r.world) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"record of step %" PRIu64 ": its header is damaged", r.step);
	}
	/* lists take as much memory as input, apart from alignment */
	block.left_bytes = r.parts_n * (sizeof(*r.parts) + PART_LISTS * BLOCK_ALIGN) + len_bytes;
	block.at = FAULT_MEM("record.decode", calloc(1, block.left_bytes));
	if (block.at == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to decode a record of %zu bytes",
			len_bytes);
	}
	r.block = block.at;
	r.parts = block_take(&block, r.parts_n * sizeof(*r.parts));
	rv = get_parts(&in, &block, &r, err);
	if (rv != 0) {
		record_deinit(&r);
		return rv;
	}
	*record = r;
	return 0;
}

void record_deinit(struct record *record)
{
	free(record->block);
	memset(record, 0, sizeof(*record));
}

const struct record_part *record_find_shared(const struct record *record, const char *name)
{
	for (uint32_t p = 0; p < record->parts_n; p++) {
		if (record->parts[p].shared && strcmp(record->parts[p].name, name) == 0) {
			return &record->parts[p];
		}
	}
	return NULL;
}
