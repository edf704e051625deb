/*
 * The writer: see write.h for the contract.
 *
 * Happy path: for each chunk in file order, take a free slot (waiting for a transfer if there is
 * none), get the payload from the source, compute both checksums while older chunks are being
 * written, and submit the chunk. Then wait for the rest and sync the file. The chunks of a file may
 * be in flight while those of the next one are submitted. Failure: keep the file's first error,
 * submit nothing more of it, and wait for every transfer of it, since transfers use the slots and
 * the source's memory.
 *
 * An update computes all checksums first, and then knows which chunks to write, and where.
 */
#include "ckpt/write.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/pieces.h"
#include "store/dirs.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CKPT_CHUNK % STORE_ALIGN == 0, "a chunk can be transferred");
_Static_assert(ZIP_ALIGN_LARGE % STORE_ALIGN == 0, "only the end of a raw file is padded");

/* A chunk in flight, or free. */
struct slot {
	struct store_io io; /* io.user is the slot */
	uint8_t *bounce;    /* CKPT_CHUNK bytes, or NULL */
	struct job *job;    /* the file whose chunk is in flight */
	struct slot *next;  /* in the free list */
};

struct writer {
	struct store *store; /* the opener's */
	uint8_t *bounces;    /* memory of all bounce buffers, or NULL */
	struct slot *free;   /* list of slots not in flight */
	bool resumes;        /* files are created by store_resume */
	struct slot slots[]; /* memory of all slots, as many as the store takes */
};

/* One part being written. */
struct job {
	struct writer *writer;
	const char *dir;                   /* directory that the part is written to */
	struct manifest_part *part;        /* receives the results */
	struct zip_plan *plan;             /* CRCs of its entries grow as chunks pass */
	const struct write_source *source; /* source of the payload */
	struct store_file *file;           /* the open file, or NULL */
	uint32_t entry;                    /* first entry whose payload is not summed completely */
	uint32_t in_flight;                /* chunks in flight */
	struct pawl_err *err;              /* filled at the first failure; or NULL */
	int rv;                            /* code of the first failure, or 0 */
};

/* A file that was begun. */
struct writing {
	struct job job;      /* plan and source are gone; err is why */
	uint64_t size_bytes; /* size of the file */
	struct pawl_err why; /* filled at the first failure */
	char path[STORE_PATH_MAX];
};

int writer_open(struct writer **writer, struct store *store, bool bounce, struct pawl_err *err)
{
	uint32_t depth = store_depth(store);
	struct writer *w;

	w = FAULT_MEM("writer.open", calloc(1, sizeof(*w) + depth * sizeof(w->slots[0])));
	if (w == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a writer");
	}
	if (bounce) {
		w->bounces = FAULT_MEM("writer.bounce",
			aligned_alloc(STORE_ALIGN, (size_t)depth * CKPT_CHUNK));
		if (w->bounces == NULL) {
			free(w);
			return pawl_err_set(err, PAWL_ENOMEM,
				"no memory for the buffers of a writer");
		}
	}
	w->store = store;
	for (uint32_t i = 0; i < depth; i++) {
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

void writer_resume(struct writer *writer)
{
	writer->resumes = true;
}

/* Waits for one transfer, of any file, and frees its slot. */
static void reap_slot(struct writer *writer)
{
	struct store_io *io = store_reap(writer->store, -1);
	struct slot *slot;
	struct job *job;

	ASSERT(io != NULL); /* the caller knows that one is in flight */
	slot = io->user;
	job = slot->job;
	slot->next = writer->free;
	writer->free = slot;
	job->in_flight--;
	if (io->rv != 0 && job->rv == 0) {
		job->rv = pawl_err_set(job->err, io->rv, "at %" PRIu64 ": %s", io->off_bytes,
			store_io_why(io));
		if (job->err != NULL) {
			job->err->sys = io->sys;
		}
	}
}

/* Waits for all transfers of a file. */
static void drain(struct job *job)
{
	while (job->in_flight > 0) {
		reap_slot(job->writer);
	}
}

static size_t chunk_bytes(const struct job *job, uint64_t off)
{
	uint64_t left = job->plan->size_bytes - off;

	return left < CKPT_CHUNK ? (size_t)left : CKPT_CHUNK;
}

/* Adds the payload bytes in [off, off + len) to the CRC-32 of their entries. Constants have theirs
 * already. */
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

/* Completes the chunk at off and computes its checksums. *bytes is its memory, with room for
 * padding. */
static int make_chunk(struct job *job, uint64_t off, uint8_t *bounce, uint8_t **bytes)
{
	size_t len_bytes = chunk_bytes(job, off);
	uint32_t chunk = (uint32_t)(off / CKPT_CHUNK);
	int rv;

	rv = job->source->chunk(job->source->user, off, len_bytes, bounce, bytes, job->err);
	if (rv != 0) {
		return rv;
	}
	sum_payload(job, off, len_bytes, *bytes);
	zip_glue(job->plan, off, off + len_bytes, *bytes);
	job->part->chunks[chunk] = crc32c(0, *bytes, len_bytes);
	if (job->part->sums != NULL) {
		job->part->sums[chunk] = crc32_zip(0, *bytes, len_bytes);
	}
	return 0;
}

/* Takes a free slot, as soon as there is one; NULL after an error. */
static struct slot *take_slot(struct job *job)
{
	struct writer *w = job->writer;
	struct slot *slot;

	if (w->free == NULL) {
		reap_slot(w); /* all slots are in flight */
	}
	slot = job->rv == 0 ? w->free : NULL;
	w->free = slot != NULL ? slot->next : w->free;
	return slot;
}

/* Starts the transfer of a chunk to offset at of the file. On failure the slot is free again. */
static void submit_chunk(struct job *job, struct slot *slot, uint8_t *bytes, size_t len_bytes,
	uint64_t at)
{
	size_t pad_bytes = -len_bytes % STORE_ALIGN; /* pads a raw file; cut off by finish_file */

	memset(bytes + len_bytes, 0, pad_bytes);
	slot->job = job;
	slot->io.file = job->file;
	slot->io.buf = bytes;
	slot->io.len_bytes = len_bytes + pad_bytes;
	slot->io.off_bytes = at;
	slot->io.write = true;
	job->rv = store_submit(job->writer->store, &slot->io, job->err);
	if (job->rv != 0) {
		slot->next = job->writer->free;
		job->writer->free = slot;
	} else {
		job->in_flight++;
	}
}

/* Submits all chunks, or those before a failure. */
static void submit_all(struct job *job)
{
	struct writer *w = job->writer;

	for (uint64_t off = 0; off < job->plan->size_bytes && job->rv == 0; off += CKPT_CHUNK) {
		struct slot *slot = take_slot(job);
		uint8_t *bytes = NULL;

		if (slot == NULL) {
			break;
		}
		job->rv = make_chunk(job, off, slot->bounce, &bytes);
		if (job->rv == 0) {
			submit_chunk(job, slot, bytes, chunk_bytes(job, off), off);
		} else {
			slot->next = w->free;
			w->free = slot;
		}
	}
}

/* Creates the file at path, and its folders. */
static int create_file(struct job *job, const char *path, uint64_t size_bytes)
{
	struct store *store = job->writer->store;
	int rv = store_mkdirs(store, path, job->err);

	if (rv != 0) {
		return rv;
	}
	return job->writer->resumes ? store_resume(store, path, size_bytes, &job->file, job->err)
				    : store_create(store, path, size_bytes, &job->file, job->err);
}

/* Cuts off the padding of the last chunk of a file that has size_bytes, and syncs the file. */
static int finish_file(struct job *job, uint64_t size_bytes)
{
	struct store *store = job->writer->store;
	int rv = size_bytes % STORE_ALIGN != 0
		? store_resize(store, job->file, size_bytes, job->err)
		: 0;

	return rv == 0 ? store_sync(store, job->file, job->err) : rv;
}

static void close_file(struct job *job)
{
	store_close_file(job->writer->store, job->file);
	job->file = NULL;
}

static void start_job(struct job *job)
{
	for (uint32_t i = 0; i < job->plan->storages; i++) {
		job->plan->entries[i].crc = 0;
	}
	zip_plan_pickle(job->plan)->crc = 0;
	job->part->depth = 0;
	job->part->sources_n = 0;
	job->part->at[0] = (struct manifest_file){0, true};
}

int writer_begin(struct writer *writer, const char *dir, struct manifest_part *part,
	struct zip_plan *plan, const struct write_source *source, struct writing **out,
	struct pawl_err *err)
{
	struct writing *writing = FAULT_MEM("writer.begin", calloc(1, sizeof(*writing)));
	struct job *job;

	if (writing == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to write %s/%s", dir, part->file);
	}
	job = &writing->job;
	*job = (struct job){.writer = writer,
		.dir = dir,
		.part = part,
		.plan = plan,
		.source = source,
		.err = &writing->why};
	writing->size_bytes = plan->size_bytes;
	snprintf(writing->path, sizeof(writing->path), "%s/%s", dir, part->file);
	start_job(job);
	job->rv = create_file(job, writing->path, plan->size_bytes);
	if (job->rv == 0) {
		submit_all(job);
	}
	if (job->rv != 0) {
		int rv = job->rv;

		writer_end(writing, err);
		return rv;
	}
	*out = writing;
	return 0;
}

int writer_end(struct writing *writing, struct pawl_err *err)
{
	struct job *job = &writing->job;
	int rv;

	drain(job);
	rv = job->rv == 0 ? finish_file(job, writing->size_bytes) : job->rv;
	close_file(job);
	if (rv != 0) {
		pawl_err_prefix(&writing->why, rv, "write %s", writing->path);
		if (err != NULL) {
			*err = writing->why;
		}
	}
	free(writing);
	return rv;
}

int writer_write(struct writer *writer, const char *dir, struct manifest_part *part,
	struct zip_plan *plan, const struct write_source *source, struct pawl_err *err)
{
	struct writing *writing = NULL;
	int rv = writer_begin(writer, dir, part, plan, source, &writing, err);

	return rv == 0 ? writer_end(writing, err) : rv;
}

/* ---- updates ---- */

/* A chunk in memory, complete with glue. */
struct made {
	uint8_t *bytes; /* memory of the source */
	bool same;      /* unchanged from the base */
};

struct update {
	struct job job;                /* the part being written */
	const struct write_base *base; /* the previous part */
	struct made *made;             /* one entry per chunk */
	uint32_t chunks_n;             /* chunks of the part */
	uint32_t same_n;               /* unchanged chunks */
};

/* Completes all chunks, computes their checksums, and finds those that are unchanged. */
static int make_all(struct update *update)
{
	const struct manifest_part *base = update->base->part;
	struct manifest_part *part = update->job.part;
	int rv = 0;

	for (uint32_t i = 0; i < update->chunks_n && rv == 0; i++) {
		uint64_t off = (uint64_t)i * CKPT_CHUNK;
		struct made *made = &update->made[i];

		rv = make_chunk(&update->job, off, NULL, &made->bytes);
		made->same = rv == 0 && i < base->chunks_n &&
			(i + 1 < base->chunks_n ||
				base->size_bytes - off == chunk_bytes(&update->job, off)) &&
			part->chunks[i] == base->chunks[i] && part->sums[i] == base->sums[i];
		update->same_n += made->same;
	}
	return rv;
}

/* Writes the changed chunks: each to its own place in the file or, if dense, one behind the
 * other. */
static int write_changed(struct update *update, bool dense)
{
	struct job *job = &update->job;
	uint64_t end = 0;

	for (uint32_t i = 0; i < update->chunks_n && job->rv == 0; i++) {
		uint64_t off = (uint64_t)i * CKPT_CHUNK;
		struct slot *slot = update->made[i].same ? NULL : take_slot(job);

		if (slot != NULL) {
			submit_chunk(job, slot, update->made[i].bytes, chunk_bytes(job, off),
				dense ? end : off);
			end += CKPT_CHUNK;
		}
	}
	drain(job);
	return job->rv;
}

/* Writes a file of the changed chunks at path: with holes for the unchanged ones or, if dense,
 * without. */
static int write_file(struct update *update, const char *path, uint64_t size_bytes, bool dense)
{
	struct job *job = &update->job;
	int rv = create_file(job, path, size_bytes);

	rv = rv == 0 ? write_changed(update, dense) : rv;
	rv = rv == 0 ? finish_file(job, size_bytes) : rv;
	close_file(job);
	return rv;
}

/* ---- file systems where files share bytes ---- */

/* Returns the end of the run of unchanged chunks from first on that are contiguous in one
 * source. */
static uint32_t find_run(const struct update *update, uint32_t first)
{
	struct manifest_place from = manifest_place(update->base->part, first);
	uint32_t end = first + 1;

	while (end < update->chunks_n && update->made[end].same) {
		struct manifest_place place = manifest_place(update->base->part, end);

		if (place.source != from.source || place.chunk != from.chunk + (end - first)) {
			break;
		}
		end++;
	}
	return end;
}

static int clone_same(struct update *update, struct store_file *const *sources)
{
	struct job *job = &update->job;
	uint32_t i = 0;
	int rv = 0;

	while (i < update->chunks_n && rv == 0) {
		uint32_t end = update->made[i].same ? find_run(update, i) : i + 1;

		if (update->made[i].same) {
			struct manifest_place place = manifest_place(update->base->part, i);
			uint64_t off = (uint64_t)i * CKPT_CHUNK;
			struct store_range to = {job->file, off};
			struct store_range from = {sources[place.source],
				(uint64_t)place.chunk * CKPT_CHUNK};

			rv = store_clone(job->writer->store, &to, &from,
				(uint64_t)(end - i - 1) * CKPT_CHUNK +
					chunk_bytes(job, (uint64_t)(end - 1) * CKPT_CHUNK),
				job->err);
		}
		i = end;
	}
	return rv;
}

/* Writes a whole file that shares the unchanged bytes with the base's files. PAWL_ENOTSUP: the
 * store cannot share bytes. */
static int write_cloned(struct update *update)
{
	struct job *job = &update->job;
	struct store *store = job->writer->store;
	struct store_file *sources[MANIFEST_SOURCES] = {NULL};
	char path[STORE_PATH_MAX];
	int rv = 0;

	for (uint32_t i = 0; i < manifest_files_n(update->base->part) && rv == 0; i++) {
		manifest_path(path, sizeof(path), update->base->manifest, update->base->part, i);
		rv = store_open(store, path, &sources[i], NULL, job->err);
	}
	snprintf(path, sizeof(path), "%s/%s", job->dir, job->part->file);
	rv = rv == 0 ? create_file(job, path, 0) : rv; /* space is allocated as needed */
	rv = rv == 0 ? store_resize(store, job->file, job->plan->size_bytes, job->err) : rv;
	rv = rv == 0 ? clone_same(update, sources) : rv;
	rv = rv == 0 ? write_changed(update, false) : rv;
	rv = rv == 0 ? finish_file(job, job->plan->size_bytes) : rv;
	close_file(job);
	for (uint32_t i = 0; i < MANIFEST_SOURCES; i++) {
		store_close_file(store, sources[i]);
	}
	if (rv == PAWL_ENOTSUP) {
		int removed = store_remove(store, path, job->err);

		return removed != 0 ? removed : PAWL_ENOTSUP;
	}
	return rv;
}

/* ---- file systems with hard links ---- */

/* Assigns a place to each chunk, and lists in from the base's file for each source of the part.
 * Returns false if there are too many sources. Source 0 has the changed chunks, if there are
 * any. */
static bool place_chunks(struct update *update, uint32_t *from)
{
	struct manifest_part *part = update->job.part;
	uint32_t source_of[MANIFEST_SOURCES];
	uint32_t changed_n = 0;
	uint64_t changed_bytes = 0;

	memset(source_of, 0xff, sizeof(source_of));
	part->sources_n = update->same_n < update->chunks_n;
	for (uint32_t i = 0; i < update->chunks_n; i++) {
		struct manifest_place place;

		if (!update->made[i].same) {
			part->places[i] = (struct manifest_place){0, changed_n++};
			changed_bytes += chunk_bytes(&update->job, (uint64_t)i * CKPT_CHUNK);
			continue;
		}
		place = manifest_place(update->base->part, i);
		ASSERT(place.source < manifest_files_n(update->base->part));
		if (source_of[place.source] == UINT32_MAX) {
			if (part->sources_n == MANIFEST_SOURCES) {
				return false;
			}
			from[part->sources_n] = place.source;
			part->sources[part->sources_n] =
				manifest_file_bytes(update->base->part, place.source);
			source_of[place.source] = part->sources_n++;
		}
		part->places[i] = (struct manifest_place){source_of[place.source], place.chunk};
	}
	ASSERT(changed_n == update->chunks_n - update->same_n);
	part->sources[0] = changed_n > 0 ? changed_bytes : part->sources[0];
	return true;
}

/* Links a file of the base to a name of the part. */
static int link_file(struct update *update, uint32_t from, uint32_t to)
{
	struct job *job = &update->job;
	struct store *store = job->writer->store;
	char old[STORE_PATH_MAX];
	char fresh[STORE_PATH_MAX];
	int rv;

	manifest_path(old, sizeof(old), update->base->manifest, update->base->part, from);
	manifest_file_path(fresh, sizeof(fresh), job->dir, job->part, to);
	rv = store_mkdirs(store, fresh, job->err);
	return rv == 0 ? store_link(store, old, fresh, job->err) : rv;
}

/* Removes the links of the part, because its file is written whole after all. */
static void unlink_sources(struct update *update)
{
	struct job *job = &update->job;
	char path[STORE_PATH_MAX];

	for (uint32_t i = 0; i < job->part->sources_n; i++) {
		manifest_file_path(path, sizeof(path), job->dir, job->part, i);
		/* on failure a file is left that nobody reads */
		store_remove(job->writer->store, path, NULL);
	}
	job->part->sources_n = 0;
}

/* Writes the source with the changed chunks. */
static int write_own(struct update *update)
{
	struct job *job = &update->job;
	char path[STORE_PATH_MAX];

	manifest_file_path(path, sizeof(path), job->dir, job->part, 0);
	return write_file(update, path, job->part->sources[0], true);
}

/* Returns whether the base's file is a whole file with the part's content. */
static bool is_unchanged_file(const struct update *update)
{
	return update->same_n == update->chunks_n && update->base->part->sources_n == 0 &&
		update->base->part->size_bytes == update->job.part->size_bytes;
}

/* Writes a linked part, or links the whole file if nothing changed. PAWL_ENOTSUP: neither is
 * possible. */
static int write_linked(struct update *update)
{
	struct manifest_part *part = update->job.part;
	uint32_t from[MANIFEST_SOURCES] = {0};
	bool all = update->same_n == update->chunks_n;
	int rv = 0;

	if (is_unchanged_file(update)) {
		return link_file(update, 0, 0);
	}
	if (part->raw || !place_chunks(update, from)) {
		part->sources_n = 0;
		return PAWL_ENOTSUP;
	}
	for (uint32_t i = all ? 0 : 1; i < part->sources_n && rv == 0; i++) {
		rv = link_file(update, from[i], i);
	}
	rv = rv == 0 && !all ? write_own(update) : rv;
	if (rv == PAWL_ENOTSUP || rv == PAWL_ENOENT) {
		unlink_sources(update);
	}
	return rv;
}

/* ---- stores of objects ---- */

/* Makes one of the base's files the to-th of the part. PAWL_ENOENT: it is gone, or is another file
 * by now. */
static int use_file(struct update *update, uint32_t from, uint32_t to)
{
	const struct manifest_file *file = &update->base->part->at[from];
	const char *dir = update->base->manifest->folders[file->folder].dir;
	uint32_t folder = manifest_find_folder(update->base->into, dir);
	char path[STORE_PATH_MAX];
	enum store_kind kind;
	uint64_t size_bytes;
	int rv;

	ASSERT(folder != UINT32_MAX); /* the caller has added the base's folders */
	manifest_path(path, sizeof(path), update->base->manifest, update->base->part, from);
	rv = store_stat(update->job.writer->store, path, &kind, &size_bytes, update->job.err);
	if (rv == 0 &&
		(kind != STORE_FILE ||
			size_bytes != manifest_file_bytes(update->base->part, from))) {
		rv = PAWL_ENOENT;
	}
	if (rv == 0) {
		update->job.part->at[to] = (struct manifest_file){folder, file->own_name};
	}
	return rv;
}

/* Writes the changed chunks, and uses the base's files for the others. PAWL_ENOTSUP: the part must
 * be written whole; so must it after PAWL_ENOENT. */
static int write_used(struct update *update)
{
	struct manifest_part *part = update->job.part;
	uint32_t from[MANIFEST_SOURCES] = {0};
	bool all = update->same_n == update->chunks_n;
	int rv = 0;

	if (strcmp(part->file, update->base->part->file) != 0) {
		return PAWL_ENOTSUP; /* files are found by the part's name */
	}
	if (is_unchanged_file(update)) {
		return use_file(update, 0, 0);
	}
	if (part->raw || !place_chunks(update, from)) {
		return PAWL_ENOTSUP;
	}
	part->at[0] = (struct manifest_file){0, false};
	for (uint32_t i = all ? 0 : 1; i < part->sources_n && rv == 0; i++) {
		rv = use_file(update, from[i], i);
	}
	return rv == 0 && !all ? write_own(update) : rv;
}

/* ---- every store ---- */

static int write_whole(struct update *update)
{
	struct job *job = &update->job;
	char path[STORE_PATH_MAX];

	job->part->sources_n = 0;
	job->part->at[0] = (struct manifest_file){0, true};
	for (uint32_t i = 0; i < update->chunks_n; i++) {
		update->made[i].same = false;
	}
	snprintf(path, sizeof(path), "%s/%s", job->dir, job->part->file);
	return write_file(update, path, job->plan->size_bytes, false);
}

/* Writes a part that has unchanged chunks so that it shares them with the base. */
static int write_shared(struct update *update)
{
	int rv;

	if (update->base->manifest->folders_n > 0) {
		return write_used(update);
	}
	rv = write_cloned(update);
	return rv == PAWL_ENOTSUP ? write_linked(update) : rv;
}

/* Writes the part in the way that the store allows; whole also if the base is gone. */
static int write_update(struct update *update)
{
	int rv = make_all(update);

	if (rv != 0) {
		return rv;
	}
	rv = update->same_n > 0 ? write_shared(update) : PAWL_ENOTSUP;
	if (rv == PAWL_ENOTSUP || rv == PAWL_ENOENT) {
		return write_whole(update);
	}
	update->job.part->depth = update->base->part->depth + 1;
	return rv;
}

int writer_update(struct writer *writer, const char *dir, struct manifest_part *part,
	struct zip_plan *plan, const struct write_source *source, const struct write_base *base,
	struct pawl_err *err)
{
	struct update update = {.job = {.writer = writer,
					.dir = dir,
					.part = part,
					.plan = plan,
					.source = source,
					.err = err},
		.base = base,
		.chunks_n = ckpt_chunks(plan->size_bytes)};
	int rv;

	ASSERT(part->chunks_n == update.chunks_n);
	ASSERT(part->sums != NULL && base->part->sums != NULL && writer->bounces == NULL);
	update.made =
		FAULT_MEM("writer.update", calloc(update.chunks_n + 1u, sizeof(*update.made)));
	if (update.made == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "write %s: no memory for %u chunks",
			part->file, update.chunks_n);
	}
	start_job(&update.job);
	rv = write_update(&update);
	free(update.made);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "write %s/%s", dir, part->file);
}
