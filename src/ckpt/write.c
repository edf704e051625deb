/*
 * The writer: see write.h for the contract.
 *
 * Happy path: for each chunk in file order a free slot is taken (waiting for a transfer if none
 * is), the source yields the payload, both checksums are taken while older chunks are on their way
 * to the disk, and the chunk is submitted. Then the rest is awaited and the file synced.
 * Failure: the first error is kept, nothing more is submitted, and every transfer in flight is
 * awaited before return, since the slots and the source's memory are theirs until then.
 */
#include "ckpt/write.h"

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

/* A chunk in flight, or free. */
struct slot {
	struct store_io io; /* io.user is the slot */
	uint8_t *bounce;    /* CKPT_CHUNK bytes, or NULL */
	struct slot *next;  /* in the free list */
};

struct writer {
	struct store *store;            /* the opener's */
	uint8_t *bounces;               /* memory of all bounce buffers, or NULL */
	struct slot *free;              /* slots not in flight */
	struct slot slots[STORE_DEPTH]; /* all of them */
};

/* One file being written. */
struct job {
	struct writer *writer;
	struct zip_plan *plan;             /* entry CRCs grow as chunks pass */
	const struct write_source *source; /* of the payload */
	struct store_file *file;
	uint32_t *chunks;     /* results, one a chunk */
	uint32_t entry;       /* the first entry whose payload is not summed whole */
	struct pawl_err *err; /* of the first failure, or NULL */
	int rv;               /* the first failure, or 0 */
};

int writer_open(struct writer **writer, struct store *store, bool bounce, struct pawl_err *err)
{
	struct writer *w = FAULT_MEM("writer.open", calloc(1, sizeof(*w)));

	if (w == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "open a writer");
	}
	if (bounce) {
		w->bounces = FAULT_MEM("writer.bounce",
			aligned_alloc(STORE_ALIGN, (size_t)STORE_DEPTH * CKPT_CHUNK));
		if (w->bounces == NULL) {
			free(w);
			return pawl_err_set(err, PAWL_ENOMEM, "open a writer: its buffers");
		}
	}
	w->store = store;
	for (uint32_t i = 0; i < STORE_DEPTH; i++) {
		struct slot *slot = &w->slots[i];

		slot->io.user = slot;
		slot->bounce = bounce ? w->bounces + (size_t)i * CKPT_CHUNK : NULL;
		slot->next = w->free;
		w->free = slot;
	}
	*writer = w;
	return 0;
}

void writer_close(struct writer *writer)
{
	if (writer != NULL) {
		free(writer->bounces);
		free(writer);
	}
}

/* Waits for one transfer and frees its slot. False when none is in flight. */
static bool reap_slot(struct job *job)
{
	struct store_io *io = store_reap(job->writer->store, -1);
	struct slot *slot;

	if (io == NULL) {
		return false;
	}
	slot = io->user;
	slot->next = job->writer->free;
	job->writer->free = slot;
	if (io->rv != 0 && job->rv == 0) {
		job->rv = pawl_err_set(job->err, io->rv, "at %" PRIu64 ": %s", io->off_bytes,
			io->sys != 0 ? strerror(io->sys) : pawl_err_name(io->rv));
		if (job->err != NULL) {
			job->err->sys = io->sys;
		}
	}
	return true;
}

/* Adds what of payloads lies in [off, off + len) to the CRC-32 of their entries. Constants have
 * theirs. */
static void sum_payload(struct job *job, uint64_t off, size_t len_bytes, const uint8_t *bytes)
{
	struct zip_plan *plan = job->plan;
	uint64_t hi = off + len_bytes;

	while (job->entry < plan->entries_n) {
		struct zip_entry *entry = &plan->entries[job->entry];
		uint64_t end = entry->data_off + entry->size_bytes;
		uint64_t from = entry->data_off > off ? entry->data_off : off;
		uint64_t to = end < hi ? end : hi;

		if (from < to &&
			(job->entry < plan->storages || job->entry == plan->entries_n - 1)) {
			entry->crc = crc32_zip(entry->crc, bytes + (from - off), to - from);
		}
		if (end > hi) {
			break;
		}
		job->entry++;
	}
}

/* Makes the chunk at off whole and starts its transfer. */
static int submit_chunk(struct job *job, struct slot *slot, uint64_t off)
{
	uint64_t left = job->plan->size_bytes - off;
	size_t len_bytes = left < CKPT_CHUNK ? (size_t)left : CKPT_CHUNK;
	size_t pad_bytes = -len_bytes % STORE_ALIGN; /* of a raw file; cut off at the end */
	uint8_t *bytes = NULL;
	int rv;

	rv = job->source->chunk(job->source->user, off, len_bytes, slot->bounce, &bytes, job->err);
	if (rv != 0) {
		return rv;
	}
	sum_payload(job, off, len_bytes, bytes);
	zip_glue(job->plan, off, off + len_bytes, bytes);
	job->chunks[off / CKPT_CHUNK] = crc32c(0, bytes, len_bytes);
	memset(bytes + len_bytes, 0, pad_bytes);
	slot->io.file = job->file;
	slot->io.buf = bytes;
	slot->io.len_bytes = len_bytes + pad_bytes;
	slot->io.off_bytes = off;
	slot->io.write = true;
	return store_submit(job->writer->store, &slot->io, job->err);
}

static void write_chunks(struct job *job)
{
	struct writer *w = job->writer;

	for (uint64_t off = 0; off < job->plan->size_bytes && job->rv == 0; off += CKPT_CHUNK) {
		struct slot *slot;

		if (w->free == NULL) {
			bool reaped = reap_slot(job);

			ASSERT(reaped); /* all slots are in flight */
		}
		if (job->rv != 0) {
			break;
		}
		slot = w->free;
		job->rv = submit_chunk(job, slot, off);
		if (job->rv == 0) {
			w->free = slot->next;
		}
	}
	while (reap_slot(job)) {
	}
}

int writer_write(struct writer *writer, const char *dir, const char *file, struct zip_plan *plan,
	const struct write_source *source, uint32_t *chunks, struct pawl_err *err)
{
	char path[STORE_PATH_MAX];
	struct job job = {.writer = writer,
		.plan = plan,
		.source = source,
		.chunks = chunks,
		.err = err};
	int rv;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	for (uint32_t i = 0; i < plan->storages; i++) {
		plan->entries[i].crc = 0;
	}
	zip_plan_pickle(plan)->crc = 0;
	rv = store_create(writer->store, path, plan->size_bytes, &job.file, err);
	if (rv == 0) {
		write_chunks(&job);
		rv = job.rv;
	}
	if (rv == 0 && plan->size_bytes % STORE_ALIGN != 0) {
		rv = store_resize(writer->store, job.file, plan->size_bytes, err);
	}
	if (rv == 0) {
		rv = store_sync(writer->store, job.file, err);
	}
	store_close_file(writer->store, job.file);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "write %s", path);
}
