/*
 * Inside a worker: saving a state that the memory tier has no room for. The rank writes its
 * partitions to the store itself, chunk by chunk through a few bounce buffers, while training
 * waits; the agent then publishes them. What all ranks hold alike is written by rank 0 alone.
 */
#include "agent/session.h"

#include "base/err.h"
#include "ckpt/tags.h"
#include "ckpt/write.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the part of [off, off + len) of the file that lies in one entry. */
static void copy_entry(const struct zip_entry *entry, const struct ckpt_span *span, uint64_t off,
	size_t len_bytes, uint8_t *image)
{
	uint64_t lo = entry->data_off > off ? entry->data_off : off;
	uint64_t hi = entry->data_off + entry->size_bytes;

	hi = hi < off + len_bytes ? hi : off + len_bytes;
	if (lo < hi) {
		memcpy(image + (lo - off), (const uint8_t *)span->addr + (lo - entry->data_off),
			hi - lo);
	}
}

/* write_source: payload out of live memory. */
static int chunk_from_memory(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce,
	uint8_t **bytes, struct pawl_err *err)
{
	const struct session_part *part = user;

	for (uint32_t s = 0; s + 1 < part->spans_n; s++) {
		copy_entry(&part->zip.entries[s], &part->spans[s], off, len_bytes, bounce);
	}
	copy_entry(zip_plan_pickle(&part->zip), &part->spans[part->spans_n - 1], off, len_bytes,
		bounce);
	*bytes = bounce;
	return 0;
}

static int write_part(struct pawl_ckpt *ckpt, struct writer *writer, const char *dir,
	struct session_part *part, struct pawl_err *err)
{
	struct record_part *record = part->record;
	struct write_source source = {chunk_from_memory, part};
	uint32_t chunks_n = ckpt_chunks(record->size_bytes);
	char file[CKPT_NAME_MAX + 16];

	free(record->chunks);
	record->chunks = calloc(chunks_n, sizeof(*record->chunks));
	if (!record->chunks) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for %u checksums",
			record->name, chunks_n);
	}
	record->chunks_n = chunks_n;
	record->lo = 0;
	record->hi = record->size_bytes;
	manifest_file_name(file, sizeof(file), record->name, record->shared, ckpt->options.rank,
		ckpt->options.world);
	return writer_write(writer, dir, file, &part->zip, &source, record->chunks, err);
}

int session_stream(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_err *err)
{
	struct store *store = NULL;
	struct writer *writer = NULL;
	char tag[CKPT_TAG_MAX];
	char dir[CKPT_TAG_MAX + 8];
	int rv = store_posix_open(ckpt->options.root, false, &store, err);

	if (rv != 0) {
		return rv;
	}
	session_note(ckpt,
		"the state is larger than the memory tier may be: saves write to the store "
		"themselves, and training waits for them");
	tag_of_step(tag, sizeof(tag), ckpt->step);
	snprintf(dir, sizeof(dir), ".%s.new", tag);
	rv = writer_open(&writer, store, true, err);
	for (uint32_t p = 0; p < ckpt->parts_n && rv == 0; p++) {
		struct session_part *part = &ckpt->parts[p];

		part->record->pieces_n = 0;
		part->record->sums_n = 0;
		part->piece_lo = part->piece_hi = 0;
		if (part->record->shared && ckpt->options.rank != 0) {
			part->record->lo = part->record->hi = 0;
			continue;
		}
		rv = write_part(ckpt, writer, dir, part, err);
	}
	writer_close(writer);
	store_close(store);
	if (rv == 0) {
		ckpt->summing = false;
		session_tell_staged(ckpt, id);
	}
	return rv;
}
