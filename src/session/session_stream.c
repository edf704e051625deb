/*
 * Inside a worker: saves a state that does not fit into the memory tier, or that is not to go there
 * (PAWL_SAVE_STREAM). The rank writes its partitions to the store itself, chunk by chunk through a
 * few bounce buffers, while training waits. The agent then publishes them. Rank 0 alone writes the
 * partitions that all ranks share.
 */
#include "session/session.h"

#include "base/err.h"
#include "ckpt/root.h"
#include "ckpt/snap/cuda.h"
#include "ckpt/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The live memory that a partition is written from. */
struct live {
	struct session_part *part; /* partition being written */
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

/* Marks what is queued on the devices of a partition: copies wait for it. */
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

/* A writer of this rank into the store. */
struct session_stream {
	struct tags_root *root;
	struct writer *writer;    /* writer into the store */
	struct cuda *cuda;        /* NULL: nothing lay on a device so far */
	char dir[STORE_NAME_MAX]; /* folder that the agent has made */
};

int session_stream_open(struct session_stream **out, struct pawl_ckpt *ckpt, struct pawl_err *err)
{
	struct session_stream *stream = calloc(1, sizeof(*stream));
	int rv;

	if (!stream) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to stream");
	}
	memcpy(stream->dir, ckpt->current.stream_dir, sizeof(stream->dir));
	rv = tags_root_open(ckpt->options.root, ckpt->options.hidden, false, &stream->root, err);
	if (rv == 0) {
		rv = writer_open(&stream->writer, tags_root_store(stream->root), true, err);
	}
	if (rv != 0) {
		session_stream_close(stream);
		return rv;
	}
	if (!(ckpt->current.flags & PAWL_SAVE_STREAM)) {
		session_notify(ckpt,
			"the state exceeds the limit of the memory tier: saves write to the store "
			"directly, and training waits for them");
	}
	*out = stream;
	return 0;
}

void session_stream_close(struct session_stream *stream)
{
	if (stream) {
		cuda_close(stream->cuda);
		writer_close(stream->writer);
		tags_root_close(stream->root);
		free(stream);
	}
}

static int write_part(struct session_stream *stream, const struct pawl_ckpt *ckpt,
	struct session_part *part, struct pawl_err *err)
{
	struct live live = {.part = part, .cuda = stream->cuda};
	struct record_part *record = part->record;
	struct write_source source = {chunk_from_memory, &live};
	uint32_t chunks_n = ckpt_chunks(record->size_bytes);
	struct manifest_part written = {0};

	free(record->chunks);
	record->chunks = calloc(chunks_n ? chunks_n : 1, sizeof(*record->chunks));
	if (!record->chunks) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for %u checksums",
			record->name, chunks_n);
	}
	record->chunks_n = chunks_n;
	record->lo = 0;
	record->hi = record->size_bytes;
	written.chunks = record->chunks;
	manifest_file_name(written.file, sizeof(written.file), record->name,
		record->shared || record->exact, ckpt->options.rank, ckpt->options.world);
	return writer_write(stream->writer, stream->dir, &written, &part->zip, &source, err);
}

int session_stream_part(struct session_stream *stream, struct pawl_ckpt *ckpt, uint32_t p,
	struct pawl_err *err)
{
	struct session_part *part = &ckpt->layout.parts[p];
	int rv;

	part->record->pieces_n = 0;
	part->record->sums_n = 0;
	part->piece_lo = part->piece_hi = ckpt->layout.pieces.n;
	if (part->record->shared && ckpt->options.rank != 0) {
		part->record->lo = part->record->hi = 0;
		return 0;
	}
	rv = mark_devices(&stream->cuda, part, err);
	return rv == 0 ? write_part(stream, ckpt, part, err) : rv;
}

int session_stream(struct pawl_ckpt *ckpt, uint64_t id, struct pawl_err *err)
{
	struct session_stream *stream;
	int rv = session_stream_open(&stream, ckpt, err);

	if (rv != 0) {
		return rv;
	}
	session_drop_arenas(ckpt); /* the agent sends new ones if it ever grants memory again */
	ckpt->layout.pieces.n = 0;
	for (uint32_t p = 0; p < ckpt->layout.parts_n && rv == 0; p++) {
		rv = session_stream_part(stream, ckpt, p, err);
	}
	session_stream_close(stream);
	if (rv == 0) {
		ckpt->current.summing = false;
		session_send_staged(ckpt, id);
	}
	return rv;
}
