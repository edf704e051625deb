/* Reads partition files into memory and verifies every byte against the manifest. */
#ifndef CKPT_READ_H
#define CKPT_READ_H

#include "ckpt/format/manifest.h"

struct store;

/* Bytes that are read and have a wrong checksum are read again, since bits may flip on the way:
 * only those that are wrong so often are not what was written. */
#define CKPT_READS_MAX 3

struct reader; /* requests, reused from file to file; one thread at a time */

int reader_open(struct reader **reader, struct store *store, struct pawl_err *err);
void reader_close(struct reader *reader); /* NULL is fine */
/* Sets a watcher: from now on the reading thread calls arrived with the number of bytes read and
 * verified. If arrived returns false, the read ends with PAWL_ECANCELED. */
void reader_set_watcher(struct reader *reader, bool (*arrived)(void *user, uint64_t bytes),
	void *user);

/*
 * Reads the whole file of part, one of manifest, into image (page aligned, part->size_bytes long),
 * several chunks in flight, checking each chunk's CRC-32C as it arrives. PAWL_ECORRUPT names tag,
 * file and offset ("global_step500/model: bytes 1048576..2097151 are not what was written"), also
 * for a file that is shorter or longer. A linked part is read from its sources.
 */
int reader_read(struct reader *reader, const struct manifest *manifest,
	const struct manifest_part *part, uint8_t *image, struct pawl_err *err);

/* Allocates memory for images: private, page aligned, in huge pages where the system has them.
 * Returns NULL and errno on failure. */
void *image_alloc(uint64_t size_bytes);
void image_free(void *image, uint64_t size_bytes);

/* ---- a file in memory, read chunk by chunk as needed ---- */

struct part_image;

/* Opens the files of part, one of manifest, and maps the file if it is a single one and the store
 * can; reads nothing. reader and part stay the caller's, and must outlive the image. Errors as for
 * reader_read. */
int part_image_open(struct part_image **out, struct reader *reader, const struct manifest *manifest,
	const struct manifest_part *part, struct pawl_err *err);
/* Reads and verifies the chunks that hold these bytes. Chunks that were read before are never
 * written again. off + len_bytes is at most the file's size. Errors as for reader_read. */
int part_image_read(struct part_image *image, uint64_t off, uint64_t len_bytes,
	struct pawl_err *err);
/* Frees the memory of all whole chunks before end, so that a file larger than memory can be read
 * from start to end. If needed again, they are read again. */
void part_image_drop(struct part_image *image, uint64_t end);
/* Reads and verifies the chunks whose entry in want, which has one per chunk of the file, is true.
 * Errors as for reader_read. */
int part_image_read_chunks(struct part_image *image, const bool *want, struct pawl_err *err);
/* Sets whether other processes are about to read the same bytes (at first false). If so, they are
 * read through the page cache, which all processes of the node share. Each process still verifies
 * the bytes itself. */
void part_image_share(struct part_image *image, bool shared);
/* Returns the address of byte off of the file. Only bytes that were read may be used; they stay
 * until close. Any thread. */
const uint8_t *part_image_at(const struct part_image *image, uint64_t off);
void part_image_close(struct part_image *image); /* call before reader_close; NULL is fine */

#endif
