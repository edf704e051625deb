/*
 * Inside a worker: saving a state that the memory tier has no room for. The rank writes its
 * partitions to the store itself, chunk by chunk through a few bounce buffers, while training
 * waits; the agent then publishes them. What all ranks hold alike is written by rank 0 alone.
 */
#include "agent/session.h"

#include "base/err.h"
#include "ckpt/cuda.h"
#include "ckpt/tags.h"
#include "ckpt/write.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the bytes come from. */
struct live {
	struct session_part *part; /* being written */
	struct cuda *cuda;         /* NULL: nothing lies on a device */
};

/* Copies the part of [off, off + len) of the file that lies in one entry. */
static int copy_entry(const struct live *live, const struct zip_entry *entry,
	const struct ckpt_span *span, uint64_t off, size_t len_bytes, uint8_t *image,
	struct pawl_err *err)
{
	uint64_t lo = entry->data_off > off ? entry->data_off : off;
	uint64_t hi = entry->data_off + entry->size_bytes;
	const uint8_t *src = span->addr;
	uint32_t crc;

	hi = hi < off + len_bytes ? hi : off + len_bytes;
	if (lo >= hi) {
		return 0;
	}
	src += lo - entry->data_off;
	if (span->device != 0) {
		return cuda_copy_crc32c(live->cuda, span->device - 1, image + (lo - off), src,
			hi - lo, &crc, err);
	}
	memcpy(image + (lo - off), src, hi - lo);
	return 0;
}

/* write_source: payload out of live memory. */
static int chunk_from_memory(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce,
	uint8_t **bytes, struct pawl_err *err)
{
	const struct live *live = user;
	const struct session_part *part = live->part;
	uint32_t pickle = part->spans_n - 1;
	int rv = 0;

	for (uint32_t s = 0; s < part->spans_n && rv == 0; s++) {
		const struct zip_entry *entry =
			s < pickle ? &part->zip.entries[s] : zip_plan_pickle(&part->zip);

		rv = copy_entry(live, entry, &part->spans[s], off, len_bytes, bounce, err);
	}
	*bytes = bounce;
	return rv;
}

/* Waits for what is queued on the devices of a partition. */
static int mark_devices(struct cuda **cuda, const struct session_part *part, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t s = 0; s < part->spans_n && rv == 0; s++) {
		int device = part->spans[s].device;

		if (device != 0 && (s == 0 || part->spans[s - 1].device != device)) {
			rv = cuda_mark(cuda, device - 1, err);
		}
	}
	return rv;
}

static int write_part(struct pawl_ckpt *ckpt, struct writer *writer, const char *dir,
	struct live *live, struct pawl_err *err)
{
	struct session_part *part = live->part;
	struct record_part *record = part->record;
	struct write_source source = {chunk_from_memory, live};
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
	struct live live = {0};
	char tag[CKPT_TAG_MAX];
	char dir[CKPT_TAG_MAX + 8];
	int rv = store_posix_open(ckpt->options.root, false, &store, err);

	if (rv != 0) {
		return rv;
	}
	session_drop_arenas(
		ckpt); /* the agent hands over new ones if it ever grants memory again */
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
		live.part = part;
		rv = mark_devices(&live.cuda, part, err);
		if (rv == 0) {
			rv = write_part(ckpt, writer, dir, &live, err);
		}
	}
	cuda_close(live.cuda);
	writer_close(writer);
	store_close(store);
	if (rv == 0) {
		ckpt->summing = false;
		session_tell_staged(ckpt, id);
	}
	return rv;
}
