/*
 * The reader: see read.h for the contract.
 *
 * Chunks are read straight into the image, STORE_DEPTH in flight; each is verified when it arrives,
 * while the others are still on their way. After the first error nothing more is submitted, and
 * what is in flight is awaited: until then the image belongs to the transfers.
 */
#include "ckpt/read.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/plan.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE (2u << 20) /* bytes: images begin and end at multiples of it */

struct reader {
	struct store *store;                /* the opener's */
	struct store_io *free[STORE_DEPTH]; /* requests not in flight, as a stack */
	uint32_t free_n;                    /* of them */
	struct store_io ios[STORE_DEPTH];   /* all requests */
};

/* One file being read. */
struct job {
	struct reader *reader;
	const struct manifest_part *part; /* what to expect */
	struct store_file *file;
	uint8_t *image;       /* of the whole file */
	const char *path;     /* for messages */
	struct pawl_err *err; /* of the first failure, or NULL */
	int rv;               /* the first failure, or 0 */
};

int reader_open(struct reader **reader, struct store *store, struct pawl_err *err)
{
	struct reader *r = FAULT_MEM("reader.open", calloc(1, sizeof(*r)));

	if (r == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "open a reader");
	}
	r->store = store;
	for (uint32_t i = 0; i < STORE_DEPTH; i++) {
		r->free[r->free_n++] = &r->ios[i];
	}
	*reader = r;
	return 0;
}

void reader_close(struct reader *reader)
{
	free(reader);
}

/* Whether the chunk that io brought is what the manifest says. */
static int check_chunk(struct job *job, const struct store_io *io)
{
	int rv;

	if (io->rv != 0) {
		rv = pawl_err_set(job->err, io->rv, "%s: read at %" PRIu64 ": %s", job->path,
			io->off_bytes, io->sys != 0 ? strerror(io->sys) : pawl_err_name(io->rv));
		if (job->err != NULL) {
			job->err->sys = io->sys;
		}
		return rv;
	}
	if (crc32c(0, io->buf, io->len_bytes) != job->part->chunks[io->off_bytes / CKPT_CHUNK]) {
		return pawl_err_set(job->err, PAWL_ECORRUPT,
			"%s: bytes %" PRIu64 "..%" PRIu64 " are not what was written", job->path,
			io->off_bytes, io->off_bytes + io->len_bytes - 1);
	}
	return 0;
}

/* Waits for one transfer and verifies it. False when none is in flight. */
static bool reap_chunk(struct job *job)
{
	struct reader *r = job->reader;
	struct store_io *io = store_reap(r->store, -1);

	if (io == NULL) {
		return false;
	}
	r->free[r->free_n++] = io;
	if (job->rv == 0) {
		job->rv = check_chunk(job, io);
	}
	return true;
}

static int submit_chunk(struct job *job, struct store_io *io, uint64_t off)
{
	uint64_t left = job->part->size_bytes - off;

	io->file = job->file;
	io->buf = job->image + off;
	io->len_bytes = left < CKPT_CHUNK ? (size_t)left : CKPT_CHUNK;
	io->off_bytes = off;
	io->write = false;
	return store_submit(job->reader->store, io, job->err);
}

static void read_chunks(struct job *job)
{
	struct reader *r = job->reader;

	for (uint64_t off = 0; off < job->part->size_bytes && job->rv == 0; off += CKPT_CHUNK) {
		if (r->free_n == 0) {
			bool reaped = reap_chunk(job);

			ASSERT(reaped); /* all requests are in flight */
		}
		if (job->rv == 0) {
			job->rv = submit_chunk(job, r->free[r->free_n - 1], off);
			r->free_n -= job->rv == 0;
		}
	}
	while (reap_chunk(job)) {
	}
}

int reader_read(struct reader *reader, const char *tag, const struct manifest_part *part,
	uint8_t *image, struct pawl_err *err)
{
	char path[STORE_PATH_MAX];
	struct job job = {.reader = reader, .part = part, .image = image, .path = path, .err = err};
	uint64_t size_bytes;
	int rv;

	ASSERT(part->chunks_n == ckpt_chunks(part->size_bytes));
	snprintf(path, sizeof(path), "%s/%s", tag, part->file);
	rv = store_open(reader->store, path, &job.file, &size_bytes, err);
	if (rv != 0) {
		return rv;
	}
	if (size_bytes != part->size_bytes) {
		job.rv = pawl_err_set(err, PAWL_ECORRUPT,
			"%s: %" PRIu64 " bytes long, but %" PRIu64 " were written", path,
			size_bytes, part->size_bytes);
	} else {
		read_chunks(&job);
	}
	store_close_file(reader->store, job.file);
	return job.rv;
}

/* ---- memory for images ---- */

static size_t round_up(uint64_t size_bytes)
{
	return (size_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void *image_alloc(uint64_t size_bytes)
{
	size_t len_bytes = round_up(size_bytes);
	uint8_t *at = FAULT_SYS("image.alloc",
		mmap(NULL, len_bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	size_t head;

	if (at == MAP_FAILED) {
		return NULL;
	}
	/* cut off what stands before and behind the aligned part */
	head = -(uintptr_t)at % HUGE_PAGE;
	if (head > 0) {
		munmap(at, head);
	}
	munmap(at + head + len_bytes, HUGE_PAGE - head);
	if (size_bytes >= HUGE_PAGE) { /* clearing one costs more than reading a small file */
		madvise(at + head, len_bytes, MADV_HUGEPAGE); /* small pages do as well */
	}
	return at + head;
}

void image_free(void *image, uint64_t size_bytes)
{
	if (image != NULL) {
		munmap(image, round_up(size_bytes));
	}
}
