/* Partition files, written and read: the bytes on the store are those that the format demands, any
 * failure on the way is reported and nothing is left in flight, any damage is named. */
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/format/pieces.h"
#include "ckpt/read.h"
#include "ckpt/write.h"
#include "sample.h"
#include "seed.h"
#include "store/dirs.h"
#include "store/fault.h"
#include "store/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define FILES 30

static uint64_t first_seed; /* seed of the first of FILES files */

/* The manifests of tags whose files lie in directories of these names. */
static const struct manifest in_dir = {.tag = "dir"};
static const struct manifest elsewhere = {.tag = "none"};

/* A file as written, and its entry in a manifest. */
struct written {
	struct sample_part part;
	struct manifest_part entry; /* chunks are owned */
};

static void written_init(struct written *w, uint64_t seed)
{
	struct rng rng = {.state = seed};
	uint64_t sizes[9];
	uint32_t n = sample_sizes(sizes, 8, 3u << 20, &rng);

	memset(w, 0, sizeof(*w));
	sample_part_init(&w->part, "model", sizes, n, &rng);
	snprintf(w->entry.file, sizeof(w->entry.file), "model");
	w->entry.size_bytes = w->part.plan.size_bytes;
	w->entry.chunks_n = ckpt_chunks(w->entry.size_bytes);
	w->entry.chunks = calloc(w->entry.chunks_n, sizeof(uint32_t));
}

static void written_deinit(struct written *w)
{
	free(w->entry.chunks);
	sample_part_deinit(&w->part);
}

/* Writes dir/model with a plan of its own, whose CRCs the writer must correct. */
static int write_file(struct written *w, struct writer *writer, const char *dir,
	struct pawl_err *err)
{
	const struct sample_part *part = &w->part;
	const struct write_source source = {.chunk = sample_chunk, .user = &w->part};
	uint32_t n = part->storages;
	struct zip_plan plan;
	int rv;

	assert_int_equal(zip_plan_init(&plan, part->sizes, n, part->sizes[n], NULL), 0);
	zip_plan_pickle(&plan)->crc = 99; /* as a plan that was used before has it */
	rv = writer_write(writer, dir, &w->entry, &plan, &source, err);
	if (rv == 0) {
		assert_memory_equal(plan.entries, part->plan.entries,
			plan.entries_n * sizeof(*plan.entries));
	}
	zip_plan_deinit(&plan);
	return rv;
}

static void assert_read(struct store *store, const struct written *w)
{
	struct reader *reader;
	uint8_t *image = image_alloc(w->entry.size_bytes);

	assert_non_null(image);
	assert_int_equal((uintptr_t)image % STORE_ALIGN, 0);
	assert_int_equal(reader_open(&reader, store, NULL), 0);
	assert_int_equal(reader_read(reader, &in_dir, &w->entry, image, NULL), 0);
	assert_memory_equal(image, w->part.image, w->entry.size_bytes);
	reader_close(reader);
	image_free(image, w->entry.size_bytes);
}

static void round_trips(struct store *store)
{
	struct writer *writer;

	assert_int_equal(store_mkdir(store, "dir", NULL), 0);
	assert_int_equal(writer_open(&writer, store, true, NULL), 0);
	for (uint64_t i = 0; i < FILES; i++) {
		struct written w;

		written_init(&w, first_seed + i);
		assert_int_equal(write_file(&w, writer, "dir", NULL), 0);
		for (uint32_t c = 0; c < w.entry.chunks_n; c++) {
			uint64_t off = (uint64_t)c * CKPT_CHUNK;
			uint64_t left = w.entry.size_bytes - off;

			assert_int_equal(w.entry.chunks[c],
				crc32c(0, w.part.image + off,
					left < CKPT_CHUNK ? left : CKPT_CHUNK));
		}
		assert_read(store, &w);
		written_deinit(&w);
	}
	writer_close(writer);
}

static void round_trips_in_memory(void **state)
{
	struct store *store;

	assert_int_equal(store_mem_open(&store, NULL), 0);
	round_trips(store);
	store_close(store);
}

static void round_trips_in_objects(void **state)
{
	struct store *store;

	assert_int_equal(store_mem_open_flat(&store, NULL), 0);
	round_trips(store);
	store_close(store);
}

static void round_trips_on_disk(void **state)
{
	char root[] = "/tmp/pawl-files-XXXXXX";
	struct store *store;

	assert_non_null(mkdtemp(root));
	assert_int_equal(store_posix_open(root, false, &store, NULL), 0);
	round_trips(store);
	assert_int_equal(store_remove(store, "dir", NULL), 0);
	store_close(store);
	assert_int_equal(rmdir(root), 0);
}

/* ---- a source with memory of its own ---- */

static int yield_image(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce, uint8_t **bytes,
	struct pawl_err *err)
{
	assert_null(bounce);
	*bytes = (uint8_t *)user + off;
	return 0;
}

/* A source that hands out an arena's image, without its glue, needs no second buffer. */
static void sources_may_keep_their_own_memory(void **state)
{
	struct written w;
	struct store *store;
	struct writer *writer;
	struct write_source source = {.chunk = yield_image};

	written_init(&w, first_seed);
	source.user = image_alloc(w.entry.size_bytes);
	for (uint64_t off = 0; off < w.entry.size_bytes; off += CKPT_CHUNK) {
		uint64_t left = w.entry.size_bytes - off;
		uint8_t *bytes;

		assert_int_equal(sample_chunk(&w.part, off, left < CKPT_CHUNK ? left : CKPT_CHUNK,
					 (uint8_t *)source.user + off, &bytes, NULL),
			0);
	}
	assert_int_equal(store_mem_open(&store, NULL), 0);
	assert_int_equal(store_mkdir(store, "dir", NULL), 0);
	assert_int_equal(writer_open(&writer, store, false, NULL), 0);
	assert_int_equal(writer_write(writer, "dir", &w.entry, &w.part.plan, &source, NULL), 0);
	assert_read(store, &w);
	writer_close(writer);
	store_close(store);
	image_free(source.user, w.entry.size_bytes);
	written_deinit(&w);
}

/* ---- transfers in flight ---- */

#define PATIENT_DEPTH 48u

/* A store that ends no transfer before it is asked for one: as a bucket does, which sends nothing
 * before it has a whole part. */
struct patient {
	struct store store;
	struct store_io *first;
	struct store_io **last;
	uint32_t in_flight;
	uint32_t most; /* in flight at one time */
};

static int patient_create(struct store *store, const char *path, uint64_t size_bytes,
	struct store_file **file, struct pawl_err *err)
{
	*file = (struct store_file *)store;
	return 0;
}

static int patient_submit(struct store *store, struct store_io *io, struct pawl_err *err)
{
	struct patient *patient = (struct patient *)store;

	io->next = NULL;
	*patient->last = io;
	patient->last = &io->next;
	patient->in_flight++;
	if (patient->most < patient->in_flight) {
		patient->most = patient->in_flight;
	}
	return 0;
}

static struct store_io *patient_reap(struct store *store, int timeout_ms)
{
	struct patient *patient = (struct patient *)store;
	struct store_io *io = patient->first;

	if (io != NULL) {
		patient->first = io->next;
		patient->last = patient->first != NULL ? patient->last : &patient->first;
		patient->in_flight--;
		io->rv = 0;
	}
	return io;
}

static int patient_sync(struct store *store, struct store_file *file, struct pawl_err *err)
{
	return 0;
}

static void patient_close_file(struct store *store, struct store_file *file)
{
}

/* Fits write_source. */
static int make_zeros(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce, uint8_t **bytes,
	struct pawl_err *err)
{
	memset(bounce, 0, len_bytes);
	*bytes = bounce;
	return 0;
}

static void as_many_transfers_are_in_flight_as_the_store_takes(void **state)
{
	static const struct store_ops ops = {.name = "patient",
		.depth = PATIENT_DEPTH,
		.create = patient_create,
		.submit = patient_submit,
		.reap = patient_reap,
		.sync = patient_sync,
		.close_file = patient_close_file};
	const struct write_source source = {.chunk = make_zeros};
	const uint64_t size_bytes = (PATIENT_DEPTH + 2) * CKPT_CHUNK;
	uint32_t chunks[PATIENT_DEPTH + 2];
	struct manifest_part part = {.file = "model",
		.raw = true,
		.size_bytes = size_bytes,
		.chunks_n = PATIENT_DEPTH + 2,
		.chunks = chunks};
	struct patient patient = {.store = {.ops = &ops}};
	struct writer *writer;
	struct zip_plan plan;

	patient.last = &patient.first;
	assert_int_equal(zip_plan_init_raw(&plan, &size_bytes, 1, NULL), 0);
	assert_int_equal(writer_open(&writer, &patient.store, true, NULL), 0);
	assert_int_equal(writer_write(writer, "dir", &part, &plan, &source, NULL), 0);
	assert_int_equal(patient.most, PATIENT_DEPTH);
	assert_int_equal(patient.in_flight, 0);
	writer_close(writer);
	zip_plan_deinit(&plan);
}

/* ---- failures ---- */

static int fail_at(void *user, uint64_t off, size_t len_bytes, uint8_t *bounce, uint8_t **bytes,
	struct pawl_err *err)
{
	struct written *w = user;

	if (off == CKPT_CHUNK) {
		return pawl_err_set(err, PAWL_EPEER, "the arena is gone");
	}
	return sample_chunk(&w->part, off, len_bytes, bounce, bytes, err);
}

static void big_file(struct written *w)
{
	const uint64_t sizes[] = {20 * CKPT_CHUNK, 100};
	struct rng rng = {.state = first_seed};

	written_init(w, first_seed);
	sample_part_deinit(&w->part);
	free(w->entry.chunks);
	sample_part_init(&w->part, "model", sizes, 1, &rng);
	w->entry.size_bytes = w->part.plan.size_bytes;
	w->entry.chunks_n = ckpt_chunks(w->entry.size_bytes);
	w->entry.chunks = calloc(w->entry.chunks_n, sizeof(uint32_t));
}

static void open_mem(struct store **store, bool flat)
{
	assert_int_equal(flat ? store_mem_open_flat(store, NULL) : store_mem_open(store, NULL), 0);
	assert_int_equal(store_mkdir(*store, "dir", NULL), 0);
}

static void source_fails(bool flat)
{
	struct written w;
	struct store *store;
	struct writer *writer;
	struct pawl_err err;
	const struct write_source source = {.chunk = fail_at, .user = &w};
	struct zip_plan plan;

	big_file(&w);
	assert_int_equal(zip_plan_init(&plan, w.part.sizes, 1, w.part.sizes[1], NULL), 0);
	open_mem(&store, flat);
	assert_int_equal(writer_open(&writer, store, true, NULL), 0);
	assert_int_equal(writer_write(writer, "dir", &w.entry, &plan, &source, &err), PAWL_EPEER);
	zip_plan_deinit(&plan);
	assert_string_equal(err.msg, "write dir/model: the arena is gone");
	assert_null(store_reap(store, 0)); /* nothing is in flight */
	/* An object that is not complete does not exist. */
	assert_int_equal(store_stat(store, "dir/model", NULL, NULL, NULL), flat ? PAWL_ENOENT : 0);
	/* The writer can be used again. */
	assert_int_equal(write_file(&w, writer, "dir", NULL), 0);
	assert_read(store, &w);
	writer_close(writer);
	store_close(store);
	written_deinit(&w);
}

static void a_failing_source_ends_the_write(void **state)
{
	source_fails(false);
	source_fails(true);
}

/* Each operation of a write fails once: the error is reported, nothing is in flight, and the next
 * try succeeds. */
static void write_fails_anywhere(bool flat)
{
	struct store_fault_plan plan = {.what = STORE_FAULT_FAIL, .code = PAWL_ENOSPC};
	struct written w;
	uint64_t ops = UINT64_MAX; /* operations of a round */

	big_file(&w);
	for (plan.nth = 1; ops >= plan.nth - 1; plan.nth++) {
		struct store *mem, *store;
		struct writer *writer;
		struct pawl_err err = {0};
		int rv;

		open_mem(&mem, flat);
		assert_int_equal(store_fault_open(mem, &plan, &store, NULL), 0);
		assert_int_equal(writer_open(&writer, store, true, NULL), 0);
		rv = write_file(&w, writer, "dir", &err);
		assert_true(rv == 0 || rv == PAWL_ENOSPC);
		assert_true(rv == 0 || strstr(err.msg, "dir/model") != NULL);
		assert_null(store_reap(store, 0));
		ops = store_fault_ops(store);
		store_fault_set(store, NULL);
		assert_true(rv == 0 || ops >= plan.nth);
		assert_true(rv == 0 || !flat ||
			store_stat(store, "dir/model", NULL, NULL, NULL) == PAWL_ENOENT);
		assert_int_equal(write_file(&w, writer, "dir", NULL), 0);
		assert_read(store, &w);
		writer_close(writer);
		store_close(store);
	}
	assert_true(plan.nth > 21);
	written_deinit(&w);
}

static void writes_may_fail_anywhere(void **state)
{
	write_fails_anywhere(false);
	write_fails_anywhere(true);
}

/* Each operation of a read fails once, and is reported. A disk that lies, with half of a chunk
 * zeros, is found out, and helped by another read if it lied once. */
static void read_fails_anywhere(bool flat)
{
	struct store_fault_plan plan = {.what = STORE_FAULT_FAIL, .code = PAWL_EIO};
	struct written w;
	struct store *mem, *store;
	struct writer *writer;
	struct reader *reader;
	uint8_t *image;

	big_file(&w);
	image = image_alloc(w.entry.size_bytes);
	open_mem(&mem, flat);
	assert_int_equal(store_fault_open(mem, NULL, &store, NULL), 0);
	assert_int_equal(writer_open(&writer, store, true, NULL), 0);
	assert_int_equal(write_file(&w, writer, "dir", NULL), 0);
	assert_int_equal(reader_open(&reader, store, NULL), 0);
	for (plan.nth = 1; plan.nth <= 1 + w.entry.chunks_n; plan.nth++) {
		struct pawl_err err;

		plan.what = STORE_FAULT_FAIL;
		store_fault_set(store, &plan);
		assert_int_equal(reader_read(reader, &in_dir, &w.entry, image, &err), PAWL_EIO);
		assert_null(store_reap(store, 0));
		plan.what = STORE_FAULT_SHORT; /* the first operation is the open */
		store_fault_set(store, &plan);
		memset(image, 0, w.entry.size_bytes);
		assert_int_equal(reader_read(reader, &in_dir, &w.entry, image, &err), 0);
		assert_int_equal(store_fault_ops(store), 1 + w.entry.chunks_n + (plan.nth > 1));
		assert_memory_equal(image, w.part.image, w.entry.size_bytes);
		plan.forever = true;
		store_fault_set(store, &plan);
		assert_int_equal(reader_read(reader, &in_dir, &w.entry, image, &err),
			PAWL_ECORRUPT);
		assert_non_null(strstr(err.msg, "dir/model: bytes "));
		assert_null(store_reap(store, 0));
		plan.forever = false;
	}
	store_fault_set(store, NULL);
	assert_int_equal(reader_read(reader, &in_dir, &w.entry, image, NULL), 0);
	assert_memory_equal(image, w.part.image, w.entry.size_bytes);
	image_free(image, w.entry.size_bytes);
	reader_close(reader);
	writer_close(writer);
	store_close(store);
	written_deinit(&w);
}

static void reads_may_fail_anywhere(void **state)
{
	read_fails_anywhere(false);
	read_fails_anywhere(true);
}

static void damage_is_named_with_file_and_offset(void **state)
{
	struct written w;
	struct store *store;
	struct writer *writer;
	struct reader *reader;
	struct pawl_err err;
	uint8_t *image;

	big_file(&w);
	image = image_alloc(w.entry.size_bytes);
	assert_int_equal(store_mem_open(&store, NULL), 0);
	assert_int_equal(store_mkdir(store, "dir", NULL), 0);
	assert_int_equal(writer_open(&writer, store, true, NULL), 0);
	assert_int_equal(reader_open(&reader, store, NULL), 0);
	assert_int_equal(reader_read(reader, &in_dir, &w.entry, image, NULL), PAWL_ENOENT);
	assert_int_equal(write_file(&w, writer, "dir", NULL), 0);
	assert_int_equal(store_mem_flip(store, "dir/model", (3ull * CKPT_CHUNK + 5) * 8, NULL), 0);
	assert_int_equal(reader_read(reader, &in_dir, &w.entry, image, &err), PAWL_ECORRUPT);
	assert_string_equal(err.msg, "dir/model: bytes 3145728..4194303 are not what was written");
	w.entry.size_bytes += 4096;
	assert_int_equal(reader_read(reader, &in_dir, &w.entry, image, &err), PAWL_ECORRUPT);
	w.entry.size_bytes -= 8192;
	assert_int_equal(reader_read(reader, &in_dir, &w.entry, image, &err), PAWL_ECORRUPT);
	assert_non_null(strstr(err.msg, "were written"));
	w.entry.size_bytes += 4096;
	image_free(image, w.entry.size_bytes);
	reader_close(reader);
	writer_close(writer);
	store_close(store);
	written_deinit(&w);
}

/* A file may be in the folder of an earlier save, of another tag. It is named as a file of its
 * own. */
static void files_are_found_in_their_folders(void **state)
{
	struct manifest_folder folders[] = {{"new/save-2"}, {"old/save-1"}};
	struct manifest manifest = {.tag = "new", .folders_n = 2, .folders = folders};
	struct written w;
	struct store *store;
	struct writer *writer;
	struct reader *reader;
	struct part_image *image;
	struct pawl_err err;
	uint8_t *bytes;

	big_file(&w);
	bytes = image_alloc(w.entry.size_bytes);
	assert_int_equal(store_mem_open_flat(&store, NULL), 0);
	assert_int_equal(writer_open(&writer, store, true, NULL), 0);
	assert_int_equal(write_file(&w, writer, "old/save-1", NULL), 0);
	assert_int_equal(w.entry.at[0].folder, 0);
	assert_true(w.entry.at[0].own_name);
	assert_int_equal(reader_open(&reader, store, NULL), 0);
	assert_int_equal(reader_read(reader, &manifest, &w.entry, bytes, NULL), PAWL_ENOENT);
	w.entry.at[0].folder = 1;
	assert_int_equal(reader_read(reader, &manifest, &w.entry, bytes, NULL), 0);
	assert_memory_equal(bytes, w.part.image, w.entry.size_bytes);
	assert_int_equal(part_image_open(&image, reader, &manifest, &w.entry, NULL), 0);
	assert_int_equal(part_image_read(image, 0, w.entry.size_bytes, NULL), 0);
	assert_memory_equal(part_image_at(image, 0), w.part.image, w.entry.size_bytes);
	part_image_close(image);
	assert_int_equal(store_mem_flip(store, "old/save-1/model", 9, NULL), 0);
	assert_int_equal(reader_read(reader, &manifest, &w.entry, bytes, &err), PAWL_ECORRUPT);
	assert_string_equal(err.msg, "new/model: bytes 0..1048575 are not what was written");
	image_free(bytes, w.entry.size_bytes);
	reader_close(reader);
	writer_close(writer);
	store_close(store);
	written_deinit(&w);
}

/* Each chunk is read when it is first needed, once, and stays as it was verified. */
static void images_are_read_as_needed(void **state)
{
	struct written w;
	struct store *mem, *store;
	struct writer *writer;
	struct reader *reader;
	struct part_image *image;
	struct pawl_err err;
	uint64_t size;

	big_file(&w);
	size = w.entry.size_bytes;
	assert_int_equal(store_mem_open(&mem, NULL), 0);
	assert_int_equal(store_mkdir(mem, "dir", NULL), 0);
	assert_int_equal(store_fault_open(mem, NULL, &store, NULL), 0);
	assert_int_equal(writer_open(&writer, store, true, NULL), 0);
	assert_int_equal(write_file(&w, writer, "dir", NULL), 0);
	assert_int_equal(reader_open(&reader, store, NULL), 0);
	store_fault_set(store, NULL);
	assert_int_equal(part_image_open(&image, reader, &in_dir, &w.entry, &err), 0);
	assert_int_equal(store_fault_ops(store), 1);
	assert_int_equal(part_image_read(image, 7, 0, &err), 0);
	assert_int_equal(store_fault_ops(store), 1);
	assert_int_equal(part_image_read(image, size - 10, 10, &err), 0);
	assert_int_equal(store_fault_ops(store), 2);
	assert_int_equal(part_image_read(image, 5 * CKPT_CHUNK - 1, 2, &err), 0);
	assert_int_equal(store_fault_ops(store), 4);
	assert_memory_equal(part_image_at(image, 5 * CKPT_CHUNK - 1),
		w.part.image + 5 * CKPT_CHUNK - 1, 2);
	/* A chunk that was read is not verified again; a damaged one is never handed out. */
	assert_int_equal(store_mem_flip(mem, "dir/model", (size - 1) * 8, NULL), 0);
	assert_int_equal(store_mem_flip(mem, "dir/model", 9ull * CKPT_CHUNK * 8, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(part_image_read(image, 0, size, &err), PAWL_ECORRUPT);
		assert_string_equal(err.msg,
			"dir/model: bytes 9437184..10485759 are not what was written");
	}
	assert_int_equal(store_mem_flip(mem, "dir/model", 9ull * CKPT_CHUNK * 8, NULL), 0);
	assert_int_equal(part_image_read(image, 0, size, &err), 0);
	assert_memory_equal(part_image_at(image, 0), w.part.image, size);
	part_image_close(image);
	reader_close(reader);
	writer_close(writer);
	store_close(store);
	written_deinit(&w);
}

static void flip(int fd, uint64_t off)
{
	char byte;

	assert_int_equal(pread(fd, &byte, 1, (off_t)off), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)off), 1);
}

static void fill_cache(int fd, uint64_t size)
{
	static char block[1u << 16];

	for (uint64_t off = 0; off < size; off += sizeof(block)) {
		assert_true(pread(fd, block, sizeof(block), (off_t)off) > 0);
	}
}

/* A big file that was written to a disk. */
struct on_disk {
	char root[32];
	char path[64]; /* path of the file in root */
	struct written w;
	struct store *store;
	struct writer *writer;
	struct reader *reader;
};

static void disk_init(struct on_disk *disk)
{
	snprintf(disk->root, sizeof(disk->root), "/var/tmp/pawl-files-XXXXXX");
	assert_non_null(mkdtemp(disk->root));
	snprintf(disk->path, sizeof(disk->path), "%s/dir/model", disk->root);
	big_file(&disk->w);
	assert_int_equal(store_posix_open(disk->root, false, &disk->store, NULL), 0);
	assert_int_equal(store_mkdir(disk->store, "dir", NULL), 0);
	assert_int_equal(writer_open(&disk->writer, disk->store, true, NULL), 0);
	assert_int_equal(write_file(&disk->w, disk->writer, "dir", NULL), 0);
	assert_int_equal(reader_open(&disk->reader, disk->store, NULL), 0);
}

static void disk_deinit(struct on_disk *disk)
{
	reader_close(disk->reader);
	writer_close(disk->writer);
	assert_int_equal(store_remove(disk->store, "dir", NULL), 0);
	store_close(disk->store);
	assert_int_equal(rmdir(disk->root), 0);
	written_deinit(&disk->w);
}

/* A file in the page cache is verified in place: a flipped bit is found, and the first one is
 * named. */
static void cached_files_are_verified_where_they_lie(void **state)
{
	struct on_disk disk;
	struct part_image *image;
	struct pawl_err err;
	int fd;

	disk_init(&disk);
	fd = open(disk.path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	for (unsigned round = 0; round < 3; round++) {
		uint64_t size = disk.w.entry.size_bytes;
		int rv;

		if (round == 1) { /* both chunks are wrong from now on */
			flip(fd, 17ull * CKPT_CHUNK);
			flip(fd, 3ull * CKPT_CHUNK + 5);
		}
		fill_cache(fd, size);
		close(fd); /* a file open for writing is not mapped */
		fault_arm("image.alloc", 1, ENOMEM, true);
		rv = part_image_open(&image, disk.reader, &in_dir, &disk.w.entry, &err);
		fault_disarm();
		if (rv != 0) {
			print_message("skipped: no file is mapped here\n");
			fd = -1;
			break;
		}
		assert_int_equal(part_image_read(image, size - 1, 1, &err), 0);
		rv = part_image_read(image, 0, size, &err);
		assert_int_equal(rv, round == 1 ? PAWL_ECORRUPT : 0);
		if (rv != 0) {
			assert_string_equal(err.msg,
				"dir/model: bytes 3145728..4194303 are not what was written");
		} else {
			assert_memory_equal(part_image_at(image, 0), disk.w.part.image, size);
		}
		part_image_close(image);
		fd = open(disk.path, O_RDWR | O_CLOEXEC);
		if (round == 1) {
			flip(fd, 17ull * CKPT_CHUNK);
			flip(fd, 3ull * CKPT_CHUNK + 5);
		}
	}
	close(fd);
	disk_deinit(&disk);
}

/* A file that other processes read too is verified in place, cached or not. A chunk that was read
 * into memory before is verified again, and stays where it was. */
static void shared_files_are_verified_where_they_lie(void **state)
{
	struct on_disk disk;
	struct pawl_err err;

	disk_init(&disk);
	for (unsigned round = 0; round < 2; round++) {
		uint64_t size = disk.w.entry.size_bytes;
		bool *want = calloc(disk.w.entry.chunks_n, sizeof(*want));
		struct part_image *image;
		const uint8_t *tail;
		int fd = open(disk.path, O_RDWR | O_CLOEXEC);

		assert_true(fd >= 0);
		if (round == 1) { /* The first flipped chunk is not wanted. */
			flip(fd, 2ull * CKPT_CHUNK);
			flip(fd, 12ull * CKPT_CHUNK + 5);
			assert_int_equal(fsync(fd), 0);
		}
		assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
		close(fd);
		assert_int_equal(part_image_open(&image, disk.reader, &in_dir, &disk.w.entry, &err),
			0);
		assert_int_equal(part_image_read(image, size - 1, 1, &err), 0);
		tail = part_image_at(image, size - 1);
		part_image_share(image, true);
		for (uint64_t chunk = 4; chunk < 14; chunk += chunk == 6 ? 2 : 1) {
			want[chunk] = true;
		}
		if (round == 0) {
			assert_int_equal(part_image_read_chunks(image, want, &err), 0);
			assert_memory_equal(part_image_at(image, 8 * CKPT_CHUNK),
				disk.w.part.image + 8 * CKPT_CHUNK, 6 * CKPT_CHUNK);
			assert_memory_equal(part_image_at(image, size - 1),
				disk.w.part.image + size - 1, 1);
			want[0] = true;
			assert_int_equal(part_image_read_chunks(image, want, &err), 0);
			assert_memory_equal(part_image_at(image, 0), disk.w.part.image, CKPT_CHUNK);
		} else {
			assert_int_equal(part_image_read_chunks(image, want, &err), PAWL_ECORRUPT);
			assert_string_equal(err.msg,
				"dir/model: bytes 12582912..13631487 are not what was written");
		}
		assert_int_equal(*tail, disk.w.part.image[size - 1]);
		part_image_close(image);
		free(want);
	}
	disk_deinit(&disk);
}

static void allocations_may_fail(void **state)
{
	static const char *const points[] = {"writer.open", "writer.bounce"};
	static const char *const image_points[] = {"reader.image", "image.alloc"};
	struct written w;
	struct store *store;
	struct writer *writer;
	struct reader *reader;
	struct part_image *image;
	struct pawl_err err;

	assert_int_equal(store_mem_open(&store, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		fault_arm(points[i], 1, ENOMEM, false);
		assert_int_equal(writer_open(&writer, store, true, NULL), PAWL_ENOMEM);
	}
	fault_arm("reader.open", 1, ENOMEM, false);
	assert_int_equal(reader_open(&reader, store, NULL), PAWL_ENOMEM);
	fault_arm("image.alloc", 1, ENOMEM, false);
	assert_null(image_alloc(1));
	fault_disarm();
	big_file(&w);
	assert_int_equal(writer_open(&writer, store, true, NULL), 0);
	assert_int_equal(store_mkdir(store, "dir", NULL), 0);
	assert_int_equal(write_file(&w, writer, "dir", NULL), 0);
	assert_int_equal(reader_open(&reader, store, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		fault_arm(image_points[i / 2], 1 + i % 2, ENOMEM, false);
		assert_int_equal(part_image_open(&image, reader, &in_dir, &w.entry, &err),
			PAWL_ENOMEM);
		fault_disarm();
	}
	assert_int_equal(part_image_open(&image, reader, &elsewhere, &w.entry, &err), PAWL_ENOENT);
	reader_close(reader);
	writer_close(writer);
	written_deinit(&w);
	part_image_close(NULL);
	writer_close(NULL);
	reader_close(NULL);
	image_free(NULL, 0);
	store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips_in_memory),
		cmocka_unit_test(round_trips_in_objects),
		cmocka_unit_test(round_trips_on_disk),
		cmocka_unit_test(sources_may_keep_their_own_memory),
		cmocka_unit_test(as_many_transfers_are_in_flight_as_the_store_takes),
		cmocka_unit_test(a_failing_source_ends_the_write),
		cmocka_unit_test(writes_may_fail_anywhere),
		cmocka_unit_test(reads_may_fail_anywhere),
		cmocka_unit_test(damage_is_named_with_file_and_offset),
		cmocka_unit_test(files_are_found_in_their_folders),
		cmocka_unit_test(images_are_read_as_needed),
		cmocka_unit_test(cached_files_are_verified_where_they_lie),
		cmocka_unit_test(shared_files_are_verified_where_they_lie),
		cmocka_unit_test(allocations_may_fail),
	};
	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
