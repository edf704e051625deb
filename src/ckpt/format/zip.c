/*
 * The torch zip format: layout and glue. zip_read.c reads files. See zip.h for the contract.
 *
 * Everything follows from the list of payload sizes, so no byte of glue is stored anywhere:
 * zip_glue builds a header, a descriptor or a directory record again each time a range contains a
 * part of it. docs/format.md lists the differences from torch.save's own bytes, with the reasons.
 */
#include "ckpt/format/zip.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/zip_bytes.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX         "archive/"
#define ENTRY_NAME_CAP 48u /* bytes; the longest is "archive/.data/serialization_id" */
#define ID_BYTES       40u /* decimal digits of .data/serialization_id */
#define CONSTANTS      5u

_Static_assert(ZIP_ALIGN_LARGE % ZIP_ALIGN_SMALL == 0, "what is aligned for large is for small");

/* The entries between storages and pickle. Their bytes depend on the layout only, never on the
 * payload. */
static const char *const constant_names[CONSTANTS] = {"version", "byteorder", ".format_version",
	".storage_alignment", ".data/serialization_id"};
static const char *const constant_bytes[CONSTANTS - 1] = {"3\n", "little", "0", "64"};

/* ---- properties that follow from the size of a payload and the place of a header ---- */

static bool is_large_size(const struct zip_entry *entry)
{
	return entry->size_bytes >= ZIP_U32_FULL;
}

static uint64_t local_zip64_bytes(const struct zip_entry *entry)
{
	return is_large_size(entry) ? ZIP_EXTRA_HEADER_BYTES + 16u : 0;
}

static uint64_t descriptor_bytes(const struct zip_entry *entry)
{
	return is_large_size(entry) ? ZIP_DESCRIPTOR64_BYTES : ZIP_DESCRIPTOR_BYTES;
}

static uint64_t directory_zip64_bytes(const struct zip_entry *entry)
{
	uint64_t fields = is_large_size(entry) ? 16 : 0;

	fields += entry->header_off >= ZIP_U32_FULL ? 8 : 0;
	return fields > 0 ? ZIP_EXTRA_HEADER_BYTES + fields : 0;
}

static uint64_t align_up(uint64_t off, uint64_t align)
{
	return (off + align - 1) / align * align;
}

static uint64_t align_payload(uint64_t off, uint64_t size_bytes)
{
	return align_up(off, size_bytes >= ZIP_ALIGN_LARGE ? ZIP_ALIGN_LARGE : ZIP_ALIGN_SMALL);
}

/* Writes the name of entry i. Returns its length, not counting the terminator. */
static uint16_t name_entry(const struct zip_plan *plan, uint32_t i, char name[ENTRY_NAME_CAP])
{
	int n;

	if (i < plan->storages) {
		n = snprintf(name, ENTRY_NAME_CAP, PREFIX "data/%" PRIu32, i);
	} else if (i == plan->entries_n - 1) {
		n = snprintf(name, ENTRY_NAME_CAP, PREFIX "data.pkl");
	} else {
		n = snprintf(name, ENTRY_NAME_CAP, PREFIX "%s", constant_names[i - plan->storages]);
	}
	ASSERT(n > 0 && (unsigned)n < ENTRY_NAME_CAP);
	return (uint16_t)n;
}

/* ---- constants ---- */

/* torch writes a hash of names and of contents, 20 digits each; ours are a hash of the sizes
 * (FNV-1a, 64 bits) and their sum, so that equal layouts have equal glue. */
static void print_id(const struct zip_plan *plan, char id[ID_BYTES + 1])
{
	uint64_t hash = 0xcbf29ce484222325ull;
	uint64_t sum_bytes = 0;

	for (uint32_t i = 0; i <= plan->storages; i++) {
		const struct zip_entry *entry =
			i < plan->storages ? &plan->entries[i] : zip_plan_pickle(plan);

		for (unsigned shift = 0; shift < 64; shift += 8) {
			hash = (hash ^ ((entry->size_bytes >> shift) & 0xff)) * 0x100000001b3ull;
		}
		sum_bytes += entry->size_bytes;
	}
	snprintf(id, ID_BYTES + 1, "%020" PRIu64 "%020" PRIu64, hash, sum_bytes);
}

/* Returns the payload of constant c, built in id if necessary. */
static const char *constant_payload(const struct zip_plan *plan, uint32_t c, char id[ID_BYTES + 1])
{
	if (c < CONSTANTS - 1) {
		return constant_bytes[c];
	}
	print_id(plan, id);
	return id;
}

/* ---- layout ---- */

/* Places entry i with its header at off. Returns where its descriptor ends. */
static uint64_t place_entry(struct zip_plan *plan, uint32_t i, uint64_t off)
{
	struct zip_entry *entry = &plan->entries[i];
	char name[ENTRY_NAME_CAP];

	entry->header_off = off;
	off += ZIP_LOCAL_BYTES + name_entry(plan, i, name) + local_zip64_bytes(entry);
	entry->data_off = align_payload(off + ZIP_EXTRA_HEADER_BYTES, entry->size_bytes);
	return entry->data_off + entry->size_bytes + descriptor_bytes(entry);
}

static uint64_t directory_bytes(const struct zip_plan *plan)
{
	char name[ENTRY_NAME_CAP];
	uint64_t sum = 0;

	for (uint32_t i = 0; i < plan->entries_n; i++) {
		sum += ZIP_DIRECTORY_BYTES + name_entry(plan, i, name) +
			directory_zip64_bytes(&plan->entries[i]);
	}
	return sum;
}

/* Places the directory so that the file ends at a multiple of ZIP_ALIGN_LARGE. off: end of the
 * entries. */
static void place_tail(struct zip_plan *plan, uint64_t off)
{
	uint64_t tail_bytes = directory_bytes(plan) + ZIP_END_BYTES;

	plan->size_bytes = align_up(off + tail_bytes, ZIP_ALIGN_LARGE);
	plan->tail_off = plan->size_bytes - tail_bytes;
	if (plan->tail_off >= ZIP_U32_FULL || plan->entries_n >= ZIP_U16_FULL) {
		tail_bytes += ZIP_END64_BYTES + ZIP_LOCATOR_BYTES;
		plan->size_bytes = align_up(off + tail_bytes, ZIP_ALIGN_LARGE);
		plan->tail_off = plan->size_bytes - tail_bytes;
	}
	ASSERT(plan->tail_off >= off);
}

/* Places all entries, whose sizes are set, and the tail. Returns false if the file would be too
 * large. */
static bool place_all(struct zip_plan *plan)
{
	uint64_t off = 0;

	for (uint32_t i = 0; i < plan->entries_n; i++) {
		if (plan->entries[i].size_bytes > ZIP_FILE_MAX || off > ZIP_FILE_MAX) {
			return false;
		}
		off = place_entry(plan, i, off);
	}
	place_tail(plan, off);
	return plan->size_bytes <= ZIP_FILE_MAX;
}

int zip_plan_init(struct zip_plan *plan, const uint64_t *storage_bytes, uint32_t storages,
	uint64_t pickle_bytes, struct pawl_err *err)
{
	struct zip_plan p = {.storages = storages};

	if (storages > ZIP_STORAGES_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "lay out a file: %u storages, at most %u",
			storages, ZIP_STORAGES_MAX);
	}
	p.entries_n = storages + CONSTANTS + 1;
	p.entries = FAULT_MEM("zip.plan", calloc(p.entries_n, sizeof(*p.entries)));
	if (p.entries == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to lay out a file of %u storages",
			storages);
	}
	for (uint32_t i = 0; i < storages; i++) {
		p.entries[i].size_bytes = storage_bytes[i];
	}
	zip_plan_pickle(&p)->size_bytes = pickle_bytes;
	for (uint32_t c = 0; c < CONSTANTS; c++) {
		struct zip_entry *entry = &p.entries[storages + c];
		char id[ID_BYTES + 1];
		const char *bytes = constant_payload(&p, c, id);

		entry->size_bytes = strlen(bytes);
		entry->crc = crc32_zip(0, bytes, entry->size_bytes);
	}
	if (!place_all(&p)) {
		zip_plan_deinit(&p);
		return pawl_err_set(err, PAWL_ELIMIT, "lay out a file of more than %llu bytes",
			ZIP_FILE_MAX);
	}
	*plan = p;
	return 0;
}

int zip_plan_init_raw(struct zip_plan *plan, const uint64_t *payload_bytes, uint32_t payloads,
	struct pawl_err *err)
{
	struct zip_plan p = {.storages = payloads, .entries_n = payloads + 1};

	if (payloads > ZIP_STORAGES_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "lay out a file: %u pieces, at most %u",
			payloads, ZIP_STORAGES_MAX);
	}
	p.entries = FAULT_MEM("zip.plan", calloc(p.entries_n, sizeof(*p.entries)));
	if (p.entries == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to lay out a file of %u pieces",
			payloads);
	}
	for (uint32_t i = 0; i <= payloads; i++) {
		uint64_t size_bytes = i < payloads ? payload_bytes[i] : 0;

		p.entries[i] = (struct zip_entry){p.size_bytes, p.size_bytes, size_bytes, 0};
		if (size_bytes > ZIP_FILE_MAX || p.size_bytes + size_bytes > ZIP_FILE_MAX) {
			zip_plan_deinit(&p);
			return pawl_err_set(err, PAWL_ELIMIT,
				"lay out a file of more than %llu bytes", ZIP_FILE_MAX);
		}
		p.size_bytes += size_bytes;
	}
	p.tail_off = p.size_bytes;
	*plan = p;
	return 0;
}

void zip_plan_deinit(struct zip_plan *plan)
{
	free(plan->entries);
	memset(plan, 0, sizeof(*plan));
}

struct zip_entry *zip_plan_pickle(const struct zip_plan *plan)
{
	return &plan->entries[plan->entries_n - 1];
}

/* ---- glue ---- */

/* The wanted part of the file, and the memory it goes to. */
struct window {
	uint8_t *image;  /* image[0] is byte lo of the file */
	uint64_t lo, hi; /* bytes [lo, hi) of the file */
};

/* Copies those of the len bytes at off of the file (NULL: zeros) that lie in the window. */
static void lay(const struct window *w, uint64_t off, const void *bytes, uint64_t len_bytes)
{
	uint64_t from = off > w->lo ? off : w->lo;
	uint64_t to = off + len_bytes < w->hi ? off + len_bytes : w->hi;

	if (from >= to) {
		return;
	}
	if (bytes == NULL) {
		memset(w->image + (from - w->lo), 0, to - from);
	} else {
		memcpy(w->image + (from - w->lo), (const uint8_t *)bytes + (from - off), to - from);
	}
}

static uint8_t *put_u16(uint8_t *at, uint64_t v)
{
	at[0] = (uint8_t)v;
	at[1] = (uint8_t)(v >> 8);
	return at + 2;
}

static uint8_t *put_u32(uint8_t *at, uint64_t v)
{
	return put_u16(put_u16(at, v), v >> 16);
}

static uint8_t *put_u64(uint8_t *at, uint64_t v)
{
	return put_u32(put_u32(at, v), v >> 32);
}

/* Writes a number that zip64 stores elsewhere when it does not fit. */
static uint8_t *put_u32_capped(uint8_t *at, uint64_t v)
{
	return put_u32(at, v < ZIP_U32_FULL ? v : ZIP_U32_FULL);
}

static uint8_t *put_raw(uint8_t *at, const void *bytes, size_t len_bytes)
{
	memcpy(at, bytes, len_bytes);
	return at + len_bytes;
}

/* Writes the fields common to local header and directory record: version needed, flags, method,
 * time, date. */
static uint8_t *put_common(uint8_t *at, bool zip64)
{
	at = put_u16(at, zip64 ? ZIP_VERSION_ZIP64 : ZIP_VERSION_PLAIN);
	at = put_u16(at, ZIP_FLAG_DESCRIPTOR | ZIP_FLAG_UTF8);
	at = put_u16(at, ZIP_METHOD_STORED);
	at = put_u16(at, 0);
	return put_u16(at, ZIP_DATE_1980_01_01);
}

static void lay_header(const struct window *w, const struct zip_plan *plan, uint32_t i)
{
	const struct zip_entry *entry = &plan->entries[i];
	uint8_t header[ZIP_LOCAL_BYTES + ENTRY_NAME_CAP + 20u + ZIP_EXTRA_HEADER_BYTES];
	char name[ENTRY_NAME_CAP];
	uint16_t name_bytes = name_entry(plan, i, name);
	uint64_t extra_bytes = entry->data_off - entry->header_off - ZIP_LOCAL_BYTES - name_bytes;
	uint64_t pad_bytes = extra_bytes - local_zip64_bytes(entry) - ZIP_EXTRA_HEADER_BYTES;
	/* zero because of the descriptor, except for the mark that sends a reader to zip64 */
	uint32_t size_field = is_large_size(entry) ? ZIP_U32_FULL : 0;
	uint8_t *at = header;

	ASSERT(pad_bytes <= extra_bytes && extra_bytes < ZIP_U16_FULL);
	at = put_u32(at, ZIP_SIG_LOCAL);
	at = put_common(at, is_large_size(entry));
	at = put_u32(at, 0);
	at = put_u32(at, size_field);
	at = put_u32(at, size_field);
	at = put_u16(at, name_bytes);
	at = put_u16(at, extra_bytes);
	at = put_raw(at, name, name_bytes);
	if (is_large_size(entry)) {
		at = put_u16(at, ZIP_EXTRA_ZIP64);
		at = put_u16(at, 16);
		at = put_u64(at, entry->size_bytes);
		at = put_u64(at, entry->size_bytes);
	}
	at = put_u16(at, ZIP_EXTRA_PAD);
	at = put_u16(at, pad_bytes);
	lay(w, entry->header_off, header, (uint64_t)(at - header));
	lay(w, entry->data_off - pad_bytes, NULL, pad_bytes);
}

static void lay_descriptor(const struct window *w, const struct zip_entry *entry)
{
	uint8_t bytes[ZIP_DESCRIPTOR64_BYTES];
	uint8_t *at = bytes;

	at = put_u32(at, ZIP_SIG_DESCRIPTOR);
	at = put_u32(at, entry->crc);
	if (is_large_size(entry)) {
		at = put_u64(at, entry->size_bytes);
		at = put_u64(at, entry->size_bytes);
	} else {
		at = put_u32(at, entry->size_bytes);
		at = put_u32(at, entry->size_bytes);
	}
	lay(w, entry->data_off + entry->size_bytes, bytes, (uint64_t)(at - bytes));
}

static void lay_entry(const struct window *w, const struct zip_plan *plan, uint32_t i)
{
	const struct zip_entry *entry = &plan->entries[i];

	lay_header(w, plan, i);
	if (i >= plan->storages && i < plan->entries_n - 1) {
		char id[ID_BYTES + 1];

		lay(w, entry->data_off, constant_payload(plan, i - plan->storages, id),
			entry->size_bytes);
	}
	lay_descriptor(w, entry);
}

/* Lays the directory record of entry i at off. Returns its length. */
static uint64_t lay_record(const struct window *w, const struct zip_plan *plan, uint32_t i,
	uint64_t off)
{
	const struct zip_entry *entry = &plan->entries[i];
	uint64_t zip64_bytes = directory_zip64_bytes(entry);
	uint8_t bytes[ZIP_DIRECTORY_BYTES + ENTRY_NAME_CAP + ZIP_EXTRA_HEADER_BYTES + 24u];
	char name[ENTRY_NAME_CAP];
	uint16_t name_bytes = name_entry(plan, i, name);
	uint8_t *at = bytes;

	at = put_u32(at, ZIP_SIG_DIRECTORY);
	at = put_u16(at, zip64_bytes > 0 ? ZIP_VERSION_ZIP64 : ZIP_VERSION_PLAIN);
	at = put_common(at, zip64_bytes > 0);
	at = put_u32(at, entry->crc);
	at = put_u32_capped(at, entry->size_bytes);
	at = put_u32_capped(at, entry->size_bytes);
	at = put_u16(at, name_bytes);
	at = put_u16(at, zip64_bytes);
	memset(at, 0, 10); /* no comment, disk 0, no attributes */
	at = put_u32_capped(at + 10, entry->header_off);
	at = put_raw(at, name, name_bytes);
	if (zip64_bytes > 0) {
		at = put_u16(at, ZIP_EXTRA_ZIP64);
		at = put_u16(at, zip64_bytes - ZIP_EXTRA_HEADER_BYTES);
	}
	if (is_large_size(entry)) {
		at = put_u64(at, entry->size_bytes);
		at = put_u64(at, entry->size_bytes);
	}
	if (entry->header_off >= ZIP_U32_FULL) {
		at = put_u64(at, entry->header_off);
	}
	lay(w, off, bytes, (uint64_t)(at - bytes));
	return (uint64_t)(at - bytes);
}

/* Lays the end records, which begin at off. Zip64 records are there if the layout left room for
 * them. */
static void lay_end(const struct window *w, const struct zip_plan *plan, uint64_t off)
{
	uint8_t bytes[ZIP_END64_BYTES + ZIP_LOCATOR_BYTES + ZIP_END_BYTES];
	uint64_t records_bytes = off - plan->tail_off;
	uint64_t n = plan->entries_n;
	uint8_t *at = bytes;

	if (plan->size_bytes - off > ZIP_END_BYTES) {
		at = put_u32(at, ZIP_SIG_END64);
		at = put_u64(at, ZIP_END64_BYTES - 12u);
		at = put_u16(at, ZIP_VERSION_ZIP64);
		at = put_u16(at, ZIP_VERSION_ZIP64);
		at = put_u64(at, 0); /* disks */
		at = put_u64(at, n);
		at = put_u64(at, n);
		at = put_u64(at, records_bytes);
		at = put_u64(at, plan->tail_off);
		at = put_u32(at, ZIP_SIG_LOCATOR);
		at = put_u32(at, 0); /* disk */
		at = put_u64(at, off);
		at = put_u32(at, 1); /* disks in all */
	}
	at = put_u32(at, ZIP_SIG_END);
	at = put_u32(at, 0); /* disks */
	at = put_u16(at, n < ZIP_U16_FULL ? n : ZIP_U16_FULL);
	at = put_u16(at, n < ZIP_U16_FULL ? n : ZIP_U16_FULL);
	at = put_u32_capped(at, records_bytes);
	at = put_u32_capped(at, plan->tail_off);
	at = put_u16(at, 0); /* no comment */
	ASSERT(off + (uint64_t)(at - bytes) == plan->size_bytes);
	lay(w, off, bytes, (uint64_t)(at - bytes));
}

/* Returns the first entry that ends behind lo, by bisection; entries_n if there is none. */
static uint32_t find_entry(const struct zip_plan *plan, uint64_t lo)
{
	uint32_t from = 0;
	uint32_t to = plan->entries_n;

	while (from < to) {
		uint32_t mid = from + (to - from) / 2;
		const struct zip_entry *entry = &plan->entries[mid];

		if (entry->data_off + entry->size_bytes + descriptor_bytes(entry) > lo) {
			to = mid;
		} else {
			from = mid + 1;
		}
	}
	return from;
}

void zip_glue(const struct zip_plan *plan, uint64_t lo, uint64_t hi, uint8_t *image)
{
	const struct zip_entry *last = zip_plan_pickle(plan);
	const struct window w = {.image = image, .lo = lo, .hi = hi};
	uint64_t off;

	ASSERT(lo <= hi && hi <= plan->size_bytes);
	if (plan->entries_n == plan->storages + 1) {
		return; /* a raw file has no glue */
	}
	ASSERT(plan->entries_n == plan->storages + CONSTANTS + 1);
	for (uint32_t i = find_entry(plan, lo);
		i < plan->entries_n && plan->entries[i].header_off < hi; i++) {
		lay_entry(&w, plan, i);
	}
	off = last->data_off + last->size_bytes + descriptor_bytes(last);
	ASSERT(off <= plan->tail_off);
	lay(&w, off, NULL, plan->tail_off - off);
	if (hi <= plan->tail_off) {
		return;
	}
	off = plan->tail_off;
	for (uint32_t i = 0; i < plan->entries_n; i++) {
		off += lay_record(&w, plan, i, off);
	}
	lay_end(&w, plan, off);
}
