/*
 * The reader: see read.h for the contract.
 *
 * Chunks are read straight into the image, as many in flight as the store takes; each is verified
 * when it arrives, while others are still in flight. One that is wrong is read again first: its
 * bits may have flipped on the way, and not where they are stored. After the first error nothing
 * more is submitted, and the transfers in flight are awaited: until then the image belongs to them.
 *
 * A file in the page cache is mapped and verified in place, since allocating memory for it takes
 * longer than verifying its bytes. So is a file that other processes of the node read as well,
 * which goes through the page cache anyway.
 */
#include "ckpt/read.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/pages.h"
#include "base/parallel.h"
#include "ckpt/format/pieces.h"
#include "store/dirs.h"
#include "store/store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE    (2u << 20) /* bytes; images begin and end at multiples of it */
#define FILL_CHUNKS  8u  /* chunks of a mapped file that are read, then verified by all cores */
#define AHEAD_CHUNKS 64u /* chunks that are being read ahead meanwhile */
#define PREPARE_MIN  (8u << 20) /* bytes; for larger reads a thread populates the pages */

_Static_assert(HUGE_PAGE % CKPT_CHUNK == 0 && CKPT_CHUNK % STORE_ALIGN == 0,
	"an image has room for the whole last block of a file");

/* A read of one chunk. */
struct request {
	struct store_io io; /* the user of it is this request */
	unsigned tries;     /* times that the chunk was read */
};

struct reader {
	struct store *store;                         /* the opener's */
	struct store_io *free;                       /* list of requests not in flight */
	uint32_t depth;                              /* number of requests */
	uint32_t free_n;                             /* number of entries in free */
	bool (*arrived)(void *user, uint64_t bytes); /* see reader_set_watcher; NULL: no watcher */
	void *arrived_user;
	struct request requests[]; /* memory of all requests */
};

/* The open files of a part, by number. */
struct files {
	struct store_file *at[MANIFEST_SOURCES];
};

/* One part being read. */
struct job {
	struct reader *reader;
	const struct manifest_part *part; /* the part as the manifest describes it */
	const struct files *files;
	uint8_t *image;       /* memory for the whole part */
	bool *have;           /* per chunk: in the image and verified; NULL: no chunk is */
	const bool *want;     /* per chunk: to be read; NULL: all are */
	bool shared;          /* as in struct store_io */
	const char *path;     /* for messages */
	struct pawl_err *err; /* filled at the first failure; or NULL */
	int rv;               /* code of the first failure, or 0 */
};

static void put_free(struct reader *r, struct store_io *io)
{
	io->next = r->free;
	r->free = io;
	r->free_n++;
}

static struct store_io *take_free(struct reader *r)
{
	struct store_io *io = r->free;

	r->free = io->next;
	r->free_n--;
	return io;
}

int reader_open(struct reader **reader, struct store *store, struct pawl_err *err)
{
	uint32_t depth = store_depth(store);
	struct reader *r =
		FAULT_MEM("reader.open", calloc(1, sizeof(*r) + depth * sizeof(r->requests[0])));

	if (r == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a reader");
	}
	r->store = store;
	r->depth = depth;
	for (uint32_t i = 0; i < depth; i++) {
		r->requests[i].io.user = &r->requests[i];
		put_free(r, &r->requests[i].io);
	}
	*reader = r;
	return 0;
}

void reader_close(struct reader *reader)
{
	free(reader);
}

void reader_set_watcher(struct reader *reader, bool (*arrived)(void *user, uint64_t bytes),
	void *user)
{
	reader->arrived = arrived;
	reader->arrived_user = user;
}

/* Reports which chunk of the file at path is damaged. */
static int chunk_error(const char *path, uint64_t off, uint64_t len_bytes, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ECORRUPT,
		"%s: bytes %" PRIu64 "..%" PRIu64 " are not what was written", path, off,
		off + len_bytes - 1);
}

static uint64_t chunk_bytes(const struct manifest_part *part, uint64_t chunk)
{
	uint64_t left = part->size_bytes - chunk * CKPT_CHUNK;

	ASSERT(chunk < part->chunks_n);
	return left < CKPT_CHUNK ? left : CKPT_CHUNK;
}

static uint64_t chunk_of(const struct job *job, const struct store_io *io)
{
	return (uint64_t)((uint8_t *)io->buf - job->image) / CKPT_CHUNK;
}

/* Checks the chunk that io has read against the manifest. */
static int check_chunk(struct job *job, const struct store_io *io)
{
	uint64_t chunk = chunk_of(job, io);
	uint64_t len_bytes;
	int rv;

	if (io->rv != 0) {
		rv = pawl_err_set(job->err, io->rv, "%s: read at %" PRIu64 ": %s", job->path,
			chunk * CKPT_CHUNK, store_io_why(io));
		if (job->err != NULL) {
			job->err->sys = io->sys;
		}
		return rv;
	}
	len_bytes = chunk_bytes(job->part, chunk);
	if (crc32c(0, io->buf, len_bytes) != job->part->chunks[chunk]) {
		return chunk_error(job->path, chunk * CKPT_CHUNK, len_bytes, job->err);
	}
	return 0;
}

/* Takes a chunk that was read. */
static int accept_chunk(struct job *job, const struct store_io *io)
{
	const struct reader *r = job->reader;

	if (job->have != NULL) {
		job->have[chunk_of(job, io)] = true;
	}
	return r->arrived == NULL || r->arrived(r->arrived_user, io->len_bytes)
		? 0
		: pawl_err_set(job->err, PAWL_ECANCELED, "%s: the read was stopped", job->path);
}

/* Waits for one transfer and verifies its chunk, or reads it again. Returns false when none is in
 * flight. */
static bool reap_chunk(struct job *job)
{
	struct reader *r = job->reader;
	struct store_io *io = store_reap(r->store, -1);
	struct request *request;
	int rv = 0;

	if (io == NULL) {
		return false;
	}
	ASSERT(r->free_n < r->depth);
	request = io->user;
	if (job->rv == 0) {
		rv = check_chunk(job, io);
	}
	if (rv == PAWL_ECORRUPT && io->rv == 0 && request->tries < CKPT_READS_MAX) {
		request->tries++;
		rv = store_submit(r->store, io, job->err);
		if (rv == 0) {
			return true;
		}
	}
	put_free(r, io);
	if (job->rv == 0) {
		job->rv = rv == 0 ? accept_chunk(job, io) : rv;
	}
	return true;
}

static int submit_chunk(struct job *job, struct store_io *io, uint32_t chunk)
{
	struct manifest_place place = manifest_place(job->part, chunk);

	ASSERT(place.source < manifest_files_n(job->part));
	io->file = job->files->at[place.source];
	io->buf = job->image + (uint64_t)chunk * CKPT_CHUNK;
	io->len_bytes = chunk_bytes(job->part, chunk);
	io->len_bytes += -io->len_bytes % STORE_ALIGN; /* a raw file's last block is read whole */
	io->off_bytes = (uint64_t)place.chunk * CKPT_CHUNK;
	io->write = false;
	io->shared = job->shared;
	((struct request *)io->user)->tries = 1;
	return store_submit(job->reader->store, io, job->err);
}

/* Reads the wanted chunks of [first, end) that the image does not have yet. */
static int read_chunks(struct job *job, uint64_t first, uint64_t end)
{
	struct reader *r = job->reader;

	for (uint64_t chunk = first; chunk < end && job->rv == 0; chunk++) {
		if ((job->have != NULL && job->have[chunk]) ||
			(job->want != NULL && !job->want[chunk])) {
			continue;
		}
		while (r->free_n == 0) {
			bool reaped = reap_chunk(job);

			ASSERT(reaped); /* all requests are in flight */
		}
		if (job->rv == 0) {
			struct store_io *io = take_free(r);

			job->rv = submit_chunk(job, io, (uint32_t)chunk);
			if (job->rv != 0) {
				put_free(r, io);
			}
		}
	}
	while (reap_chunk(job)) {
	}
	ASSERT(r->free_n == r->depth); /* the image is the caller's again */
	return job->rv;
}

static void close_files(struct store *store, struct files *files)
{
	for (uint32_t i = 0; i < MANIFEST_SOURCES; i++) {
		store_close_file(store, files->at[i]);
	}
}

/* Opens the files of part; on error none is open. */
static int open_files(struct store *store, const struct manifest *manifest,
	const struct manifest_part *part, struct files *files, struct pawl_err *err)
{
	int rv = 0;

	ASSERT(part->chunks_n == ckpt_chunks(part->size_bytes));
	*files = (struct files){{NULL}};
	for (uint32_t i = 0; i < manifest_files_n(part) && rv == 0; i++) {
		uint64_t want_bytes = manifest_file_bytes(part, i);
		char path[STORE_PATH_MAX];
		uint64_t size_bytes;

		manifest_path(path, sizeof(path), manifest, part, i);
		rv = store_open(store, path, &files->at[i], &size_bytes, err);
		if (rv == 0 && size_bytes != want_bytes) {
			rv = pawl_err_set(err, PAWL_ECORRUPT,
				"%s: %" PRIu64 " bytes long, but %" PRIu64 " were written", path,
				size_bytes, want_bytes);
		}
	}
	if (rv != 0) {
		close_files(store, files);
	}
	return rv;
}

int reader_read(struct reader *reader, const struct manifest *manifest,
	const struct manifest_part *part, uint8_t *image, struct pawl_err *err)
{
	char path[STORE_PATH_MAX];
	struct files files;
	struct job job = {.reader = reader,
		.part = part,
		.files = &files,
		.image = image,
		.path = path,
		.err = err};
	int rv = open_files(reader->store, manifest, part, &files, err);

	snprintf(path, sizeof(path), "%s/%s", manifest->tag, part->file);
	if (rv == 0) {
		rv = read_chunks(&job, 0, part->chunks_n);
		close_files(reader->store, &files);
	}
	return rv;
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
	/* cut off what lies before and behind the aligned part */
	head = -(uintptr_t)at % HUGE_PAGE;
	if (head > 0) {
		munmap(at, head);
	}
	munmap(at + head + len_bytes, HUGE_PAGE - head);
	/* clearing a huge page takes longer than reading a small file */
	if (size_bytes >= HUGE_PAGE) {
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

/* ---- a file in memory, read chunk by chunk ---- */

struct part_image {
	struct reader *reader;            /* the opener's */
	const struct manifest_part *part; /* the opener's; the part as the manifest describes it */
	struct files files;               /* open until close, even if their names are removed */
	const uint8_t *bytes;             /* content of the file */
	uint8_t *memory;           /* memory to read into; NULL: the file was mapped at once */
	bool *have;                /* per chunk: in bytes and verified */
	uint64_t dropped;          /* chunks; those before it were dropped once */
	bool shared;               /* as in struct store_io */
	bool unread;               /* bytes is a mapping that is filled chunk by chunk */
	bool tried;                /* try_page_cache was called */
	char path[STORE_PATH_MAX]; /* for messages */
};

int part_image_open(struct part_image **out, struct reader *reader, const struct manifest *manifest,
	const struct manifest_part *part, struct pawl_err *err)
{
	struct part_image *image = FAULT_MEM("reader.image", calloc(1, sizeof(*image)));
	int rv;

	if (image == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "read %s/%s: no memory", manifest->tag,
			part->file);
	}
	image->reader = reader;
	image->part = part;
	snprintf(image->path, sizeof(image->path), "%s/%s", manifest->tag, part->file);
	rv = open_files(reader->store, manifest, part, &image->files, err);
	if (rv != 0) {
		free(image);
		return rv;
	}
	image->have = FAULT_MEM("reader.image", calloc(part->chunks_n + 1u, sizeof(*image->have)));
	if (image->have != NULL &&
		(part->sources_n > 0 ||
			store_map(reader->store, image->files.at[0], &image->bytes, NULL) != 0)) {
		image->memory = image_alloc(part->size_bytes);
		image->bytes = image->memory;
	}
	if (image->bytes == NULL) {
		rv = pawl_err_sys(err, "allocate memory for %s (%" PRIu64 " bytes)", image->path,
			part->size_bytes);
		part_image_close(image);
		return rv;
	}
	*out = image;
	return 0;
}

/* Chunks of a file that are needed. */
struct needed_chunks {
	struct part_image *image; /* the image to read them into */
	uint64_t first, end;      /* chunks [first, end) */
	const bool *want;         /* per chunk of the file: wanted; NULL: all are */
};

static bool is_wanted(const struct needed_chunks *needed, uint64_t chunk)
{
	return needed->want == NULL || needed->want[chunk];
}

/* Finds the next run of wanted chunks that are not in have (NULL: all are missing), from *lo on and
 * before end. Returns it as [*lo, *hi); false if there is none. */
static bool next_run(const struct needed_chunks *needed, const bool *have, uint64_t end,
	uint64_t *lo, uint64_t *hi)
{
	while (*lo < end && ((have && have[*lo]) || !is_wanted(needed, *lo))) {
		++*lo;
	}
	*hi = *lo;
	while (*hi < end && !(have && have[*hi]) && is_wanted(needed, *hi)) {
		++*hi;
	}
	return *lo < *hi;
}

/* Returns the number of bytes in chunks [lo, hi). */
static uint64_t run_bytes(const struct part_image *image, uint64_t lo, uint64_t hi)
{
	return (hi - lo - 1) * CKPT_CHUNK + chunk_bytes(image->part, hi - 1);
}

/* Populates pages ahead of the reader, since that takes longer than reading. */
static void *prepare_pages(void *user)
{
	const struct needed_chunks *needed = user;
	struct part_image *image = needed->image;
	uint64_t hi;

	for (uint64_t lo = needed->first; next_run(needed, NULL, needed->end, &lo, &hi); lo = hi) {
		pages_populate(image->memory + lo * CKPT_CHUNK, run_bytes(image, lo, hi));
	}
	return NULL;
}

/* Reads the needed chunks into memory. */
static int read_into_memory(struct needed_chunks *needed, struct pawl_err *err)
{
	struct part_image *image = needed->image;
	struct job job = {.reader = image->reader,
		.part = image->part,
		.files = &image->files,
		.image = image->memory,
		.have = image->have,
		.want = needed->want,
		.shared = image->shared,
		.path = image->path,
		.err = err};
	pthread_t preparer;
	bool prepares = needed->end - needed->first > PREPARE_MIN / CKPT_CHUNK &&
		pthread_create(&preparer, NULL, prepare_pages, needed) == 0;
	int rv = read_chunks(&job, needed->first, needed->end);

	if (prepares) {
		pthread_join(preparer, NULL);
	}
	return rv;
}

/* Verifies one chunk of a mapped file; called by several threads. Returns whether the chunk is
 * damaged. */
static bool is_damaged(void *user, size_t i)
{
	const struct needed_chunks *needed = user;
	struct part_image *image = needed->image;
	uint64_t chunk = needed->first + i;

	if (!is_wanted(needed, chunk)) {
		return false;
	}
	if (!image->have[chunk]) {
		image->have[chunk] =
			crc32c(0, image->bytes + chunk * CKPT_CHUNK,
				chunk_bytes(image->part, chunk)) == image->part->chunks[chunk];
	}
	return !image->have[chunk];
}

/* Verifies the needed chunks of a mapped file in place. */
static int verify_mapped(struct needed_chunks *needed, struct pawl_err *err)
{
	const struct part_image *image = needed->image;
	uint64_t bad =
		needed->first + parallel_find(needed->end - needed->first, is_damaged, needed);

	if (bad == needed->end) {
		return 0;
	}
	return chunk_error(image->path, bad * CKPT_CHUNK, chunk_bytes(image->part, bad), err);
}

/* Reads the needed chunks through the page cache, with read-ahead, and verifies them in place. */
static int fill_mapped(struct needed_chunks *needed, struct pawl_err *err)
{
	struct part_image *image = needed->image;
	struct store *store = image->reader->store;
	struct store_file *file = image->files.at[0];
	uint64_t prefetched = needed->first; /* the store prefetches chunks below this */
	uint64_t lo, hi;
	int rv = 0;

	for (uint64_t at = needed->first; at < needed->end && rv == 0; at += FILL_CHUNKS) {
		struct needed_chunks now = {image, at, at + FILL_CHUNKS, needed->want};

		now.end = now.end < needed->end ? now.end : needed->end;
		for (; prefetched < needed->end && prefetched < at + AHEAD_CHUNKS;
			prefetched += FILL_CHUNKS) {
			uint64_t end = prefetched + FILL_CHUNKS;

			end = end < needed->end ? end : needed->end;
			for (lo = prefetched; next_run(needed, image->have, end, &lo, &hi);
				lo = hi) {
				store_prefetch(store, file, lo * CKPT_CHUNK,
					run_bytes(image, lo, hi));
			}
		}
		for (lo = at; rv == 0 && next_run(needed, image->have, now.end, &lo, &hi);
			lo = hi) {
			rv = store_fill(store, file, lo * CKPT_CHUNK, run_bytes(image, lo, hi),
				err);
		}
		rv = rv == 0 ? verify_mapped(&now, err) : rv;
	}
	return rv;
}

static int read_needed(struct needed_chunks *needed, struct pawl_err *err)
{
	if (needed->image->unread) {
		return fill_mapped(needed, err);
	}
	return (needed->image->memory ? read_into_memory : verify_mapped)(needed, err);
}

/* Switches the image to a mapping of the page cache, if the file can be mapped, because other
 * processes read the file as well. Chunks read into memory before stay there, since the caller may
 * be using them. */
static int try_page_cache(struct part_image *image, struct pawl_err *err)
{
	bool *before = image->have;
	struct needed_chunks again = {image, 0, image->part->chunks_n, before};
	const uint8_t *bytes;
	bool *have;
	int rv;

	image->tried = true;
	have = FAULT_MEM("reader.image", calloc(image->part->chunks_n + 1u, sizeof(*have)));
	if (have == NULL || image->part->sources_n > 0 ||
		store_map_unread(image->reader->store, image->files.at[0], &bytes, NULL) != 0) {
		free(have);
		return 0;
	}
	image->bytes = bytes;
	image->unread = true;
	image->have = have;
	rv = fill_mapped(&again, err);
	free(before);
	return rv;
}

int part_image_read(struct part_image *image, uint64_t off, uint64_t len_bytes,
	struct pawl_err *err)
{
	struct needed_chunks needed = {.image = image, .first = off / CKPT_CHUNK};

	ASSERT(off <= image->part->size_bytes && len_bytes <= image->part->size_bytes - off);
	if (len_bytes == 0) {
		return 0;
	}
	needed.end = (off + len_bytes - 1) / CKPT_CHUNK + 1;
	return read_needed(&needed, err);
}

int part_image_read_chunks(struct part_image *image, const bool *want, struct pawl_err *err)
{
	struct needed_chunks needed = {.image = image, .end = image->part->chunks_n, .want = want};
	int rv = 0;

	if (image->memory != NULL && image->shared && !image->tried) {
		rv = try_page_cache(image, err);
	}
	return rv == 0 ? read_needed(&needed, err) : rv;
}

void part_image_share(struct part_image *image, bool shared)
{
	image->shared = shared;
}

void part_image_drop(struct part_image *image, uint64_t end)
{
	uint64_t chunk = end / CKPT_CHUNK;

	ASSERT(end <= image->part->size_bytes);
	if (image->memory == NULL || image->unread || chunk <= image->dropped) {
		return; /* the page cache is the system's */
	}
	madvise(image->memory + image->dropped * CKPT_CHUNK, (chunk - image->dropped) * CKPT_CHUNK,
		MADV_DONTNEED);
	memset(image->have + image->dropped, 0, chunk - image->dropped);
	image->dropped = chunk;
}

const uint8_t *part_image_at(const struct part_image *image, uint64_t off)
{
	return image->bytes + off;
}

void part_image_close(struct part_image *image)
{
	if (image == NULL) {
		return;
	}
	image_free(image->memory, image->part->size_bytes);
	free(image->have);
	close_files(image->reader->store, &image->files);
	free(image);
}
