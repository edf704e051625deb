/*
 * The torch zip format: where every byte of a partition file lies, and all bytes that are not
 * payload. Pure.
 *
 * A file is what torch.save writes (PyTorchFileWriter, version 3): stored entries
 * "archive/data/<i>" (one a storage), "archive/data.pkl", version, byteorder, .format_version,
 * .storage_alignment and .data/serialization_id, each with general purpose bits 3 and 11 and a data
 * descriptor, so that the bytes can be written front to back in one pass. Our files differ in order
 * (storages first, so that a longer pickle moves none of them) and in alignment; .format_version is
 * 0, so that no reader computes offsets that torch's own order and alignment would give. The file's
 * size is a multiple of ZIP_ALIGN_LARGE: padding stands before the central directory. Everything
 * between payloads is glue: headers, padding (zeros), descriptors, constant entries, the central
 * directory. Zip64 fields appear only where a number needs them.
 */
#ifndef CKPT_FORMAT_ZIP_H
#define CKPT_FORMAT_ZIP_H

#include <stddef.h>
#include <stdint.h>

struct pawl_err;

#define ZIP_ALIGN_LARGE                                                                            \
	4096u /* payloads of at least this many bytes start at a multiple of it, and the file ends \
		 at one */
#define ZIP_ALIGN_SMALL  64u          /* bytes; alignment of other payloads */
#define ZIP_STORAGES_MAX (1u << 20)   /* storages in one file, at most */
#define ZIP_FILE_MAX     (1ull << 46) /* bytes of one file: 64 TiB */

/* One entry of the archive. header_off < data_off; the descriptor follows the data. */
struct zip_entry {
	uint64_t header_off; /* offset of the local header in the file */
	uint64_t data_off;   /* offset of the payload in the file */
	uint64_t size_bytes; /* size of the payload, may be 0 */
	/* CRC-32 of the payload; the writer sets it before it calls zip_glue for the bytes behind
	 * the payload. */
	uint32_t crc;
};

/* Layout of one file. Entries lie in file order: storages 0..n-1, the constants, the pickle
 * last. */
struct zip_plan {
	struct zip_entry *entries; /* owned */
	uint32_t entries_n;        /* storages + constants + 1; a raw file has no constants */
	uint32_t storages;         /* number of entries that are "data/<i>" */
	uint64_t tail_off;         /* offset of the central directory */
	uint64_t size_bytes;       /* size of the file: a multiple of ZIP_ALIGN_LARGE, unless raw */
};

/* Lays a file out. Deterministic in its arguments. storage_bytes stays the caller's. PAWL_ENOMEM,
 * PAWL_ELIMIT (ZIP_STORAGES_MAX, ZIP_FILE_MAX). */
int zip_plan_init(struct zip_plan *plan, const uint64_t *storage_bytes, uint32_t storages,
	uint64_t pickle_bytes, struct pawl_err *err);
/* Lays out a raw file, which is no zip at all: payloads one behind the other, without any glue; the
 * pickle is empty. Errors as above. */
int zip_plan_init_raw(struct zip_plan *plan, const uint64_t *payload_bytes, uint32_t payloads,
	struct pawl_err *err);
void zip_plan_deinit(struct zip_plan *plan); /* plan is zeroed or initialised */
struct zip_entry *zip_plan_pickle(const struct zip_plan *plan);

/*
 * Writes all glue bytes in [lo, hi) of the file to image (image[0] is byte lo) and leaves payload
 * bytes of storages and pickle alone; a raw file has none. The crc of every entry whose descriptor
 * or directory record begins below hi must be final. Cannot fail.
 */
void zip_glue(const struct zip_plan *plan, uint64_t lo, uint64_t hi, uint8_t *image);

/* Reads len bytes at off of the file into buf. */
typedef int zip_read_fn(void *user, uint64_t off, void *buf, size_t len_bytes,
	struct pawl_err *err);

/*
 * Rebuilds the plan of a file from its central directory: ours, or written by torch.save (any order
 * of entries, any archive name). Every offset and size is checked against size_bytes; entries may
 * not overlap. entries[] is in the order described above, with constants left out (entries_n =
 * storages + 1), so zip_glue cannot use the plan. Storage i is the entry "…/data/<i>"; a gap in the
 * numbers is PAWL_ECORRUPT. Compressed or encrypted entries and big-endian files are PAWL_ENOTSUP
 * and named. PAWL_ECORRUPT, PAWL_ENOTSUP, PAWL_ENOMEM, PAWL_ELIMIT, and what read returns.
 */
int zip_plan_read(struct zip_plan *plan, zip_read_fn *read, void *user, uint64_t size_bytes,
	struct pawl_err *err);
/* Rebuilds the plan as zip_plan_read does, but reads no local headers of storages, so that of our
 * own files only the end is read. The pickle's place and the sizes of the storages are right; a
 * storage's data_off is only a lower bound. */
int zip_plan_read_tail(struct zip_plan *plan, zip_read_fn *read, void *user, uint64_t size_bytes,
	struct pawl_err *err);

#endif
