/* What the tests of held.h share: parts made at random, and how they are sent. */
#ifndef TEST_HELD_WORLD_H
#define TEST_HELD_WORLD_H

#include "agent/peer/held_impl.h"
#include "base/crc.h"
#include "base/rng.h"
#include "expect.h"
#include "pawl/err.h"
#include "within.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/mman.h>

#define ROOT        7u
#define RANKS       2u /* ranks of a part; the last has no part in the save */
#define WORLD       6u
#define ARENA_BYTES (2u << 20)
#define IMAGE_BYTES 300u  /* size of one part */
#define OFF_BYTES   4096u /* arena offset of the second partition */

static struct held *held;
static struct rng rng;
static struct pawl_err err;

/* A part that a host could hold, and its image. */
struct sent {
	struct peer_part info;
	struct wire_out blobs[RANKS];
	uint8_t arena[2 * OFF_BYTES]; /* first bytes of the arena of the first rank */
	uint8_t image[IMAGE_BYTES];
};

/* Fills a piece with random bytes and puts them at the end of the image. */
static inline void make_piece(struct sent *sent, struct record_piece *piece, uint64_t arena_off,
	uint32_t *image_bytes)
{
	uint8_t *at = &sent->arena[arena_off];

	for (uint32_t i = 0; i < piece->len_bytes; i++) {
		at[i] = (uint8_t)rng_u64(&rng);
	}
	piece->crc = crc32c(0, at, piece->len_bytes);
	memcpy(&sent->image[*image_bytes], at, piece->len_bytes);
	*image_bytes += piece->len_bytes;
}

/* The first rank has two partitions, of two pieces and one, the last rank nothing. */
static inline struct sent *make(uint64_t run, uint64_t number, uint32_t first_rank)
{
	struct sent *sent = calloc(1, sizeof(*sent));
	struct record_piece pieces[3] = {{.file_off = 10, .len_bytes = 100},
		{.file_off = 120, .len_bytes = 1}, {.file_off = 7, .len_bytes = 199}};
	struct record_part parts[2] = {{.name = "model",
					       .raw = true,
					       .size_bytes = 500,
					       .hi = 500,
					       .pieces_n = 2,
					       .pieces = pieces},
		{.name = "rng",
			.raw = true,
			.size_bytes = 300,
			.hi = 300,
			.arena_off = OFF_BYTES,
			.pieces_n = 1,
			.pieces = &pieces[2]}};
	struct record record = {.step = 1000 * (run - 1) + 100 * number, /* grows over the runs */
		.rank = first_rank,
		.world = WORLD,
		.parts_n = 2,
		.parts = parts};
	uint32_t image_bytes = 0;

	sent->info = (struct peer_part){.save = {.run = run, .number = number},
		.step = record.step,
		.world = WORLD,
		.first_rank = first_rank,
		.ranks = RANKS};
	snprintf(sent->info.tag, sizeof(sent->info.tag), "step%u", (unsigned)record.step);
	make_piece(sent, &pieces[0], 10, &image_bytes);
	make_piece(sent, &pieces[1], 120, &image_bytes);
	make_piece(sent, &pieces[2], OFF_BYTES + 7, &image_bytes);
	assert_int_equal(image_bytes, IMAGE_BYTES);
	record_encode(&record, &sent->blobs[0]);
	assert_false(sent->blobs[0].failed);
	return sent;
}

static inline void drop(struct sent *sent)
{
	wire_out_deinit(&sent->blobs[0]);
	free(sent);
}

static const struct peer_save none;

static inline int send_record(struct held_in *in, const struct sent *sent, uint32_t i)
{
	const struct wire_out *blob = &sent->blobs[i];

	return held_in_record(in, sent->info.first_rank + i, blob->len_bytes ? ARENA_BYTES : 0,
		crc32c(0, blob->bytes, blob->len_bytes), blob->bytes, blob->len_bytes, &err);
}

/* Sends all, in blocks of that many bytes; the replica stays open in *in. */
static inline int send_in(struct held_in **in, const struct sent *sent,
	const struct peer_save *global, size_t block_bytes)
{
	int rv = held_in_open(in, held, ROOT, &sent->info, global, IMAGE_BYTES, &err);

	if (rv != 0) {
		*in = NULL;
		return rv;
	}
	for (uint32_t i = 0; i < RANKS && rv == 0; i++) {
		rv = send_record(*in, sent, i);
	}
	for (size_t off = 0; off < IMAGE_BYTES && rv == 0; off += block_bytes) {
		size_t n = IMAGE_BYTES - off < block_bytes ? IMAGE_BYTES - off : block_bytes;

		rv = held_in_bytes(*in, off, &sent->image[off], n, &err);
	}
	return rv;
}

static inline int send_all(const struct sent *sent, const struct peer_save *global,
	size_t block_bytes)
{
	struct held_in *in;
	int rv = send_in(&in, sent, global, block_bytes);

	rv = rv != 0 ? rv : held_in_end(in, &err);
	held_in_close(in);
	return rv;
}

/* Makes and sends a replica, whose content nobody looks at. */
static inline void put(uint64_t run, uint64_t number, uint32_t first_rank,
	const struct peer_save *global)
{
	struct sent *sent = make(run, number, first_rank);

	OK(send_all(sent, global, IMAGE_BYTES));
	drop(sent);
}

static inline int add_own(const struct sent *sent)
{
	struct held_rank ranks[RANKS] = {0};
	int fd = memfd_create("arena", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, ARENA_BYTES), 0);
	assert_int_equal(pwrite(fd, sent->arena, sizeof(sent->arena), 0), sizeof(sent->arena));
	ranks[0].arena = (struct arena){.fd = fd, .size_bytes = ARENA_BYTES, .id = 1};
	wire_put_raw(&ranks[0].blob, sent->blobs[0].bytes, sent->blobs[0].len_bytes);
	return held_add(held, ROOT, &sent->info, ranks, &err);
}

static inline void put_own(uint64_t run, uint64_t number, uint32_t first_rank)
{
	struct sent *sent = make(run, number, first_rank);

	OK(add_own(sent));
	drop(sent);
}

static inline bool has(uint64_t run, uint64_t number, uint32_t rank)
{
	struct peer_save save = {.run = run, .number = number};
	struct held_part *part = held_find(held, ROOT, &save, rank);

	held_release(part);
	return part != NULL;
}

static inline uint32_t count(void)
{
	struct peer_part parts[16];

	return held_list(held, ROOT, parts, 16);
}

static inline unsigned count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL) {
		n++;
	}
	closedir(dir);
	return n;
}

/* Returns the KiB of this process's mappings that forks do not inherit: those of pages_map. */
static inline unsigned map_kib(void)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512];
	unsigned size_kib = 0;
	unsigned all_kib = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "Size: %u", &size_kib) != 1 && strncmp(line, "VmFlags:", 8) == 0 &&
			strstr(line, " dc") != NULL) {
			all_kib += size_kib;
		}
	}
	fclose(file);
	return all_kib;
}

#define IMAGE_KIB 4u /* size of each image, in KiB */

static unsigned descriptors; /* before a test */
static unsigned mapped_kib;  /* before a test */

static inline int begin(void **state)
{
	descriptors = count_descriptors();
	mapped_kib = map_kib();
	return held_open(&held, &err);
}

static inline int end(void **state)
{
	held_close(held);
	return count_descriptors() == descriptors && map_kib() == mapped_kib ? 0 : -1;
}

/* Every range of the image reads as it was sent. */
static inline void assert_readable(const struct held_part *part, const struct sent *sent)
{
	uint8_t bytes[IMAGE_BYTES];

	assert_int_equal(held_part_image(part)->size_bytes, IMAGE_BYTES);
	for (size_t off = 0; off <= IMAGE_BYTES; off++) {
		for (size_t len = 0; len <= IMAGE_BYTES - off; len += 1 + len / 4) {
			memset(bytes, 0xee, sizeof(bytes));
			OK(held_part_read(part, off, bytes, len, &err));
			assert_memory_equal(bytes, &sent->image[off], len);
			assert_true(len == IMAGE_BYTES || bytes[len] == 0xee);
		}
	}
	FAILS(PAWL_EINVAL, held_part_read(part, 0, bytes, IMAGE_BYTES + 1, &err));
	FAILS(PAWL_EINVAL, held_part_read(part, IMAGE_BYTES + 1, bytes, 0, &err));
	FAILS(PAWL_EINVAL, held_part_read(part, 1, bytes, SIZE_MAX, &err));
}

static inline void assert_is(const struct held_part *part, const struct sent *sent)
{
	const uint8_t *blob;
	uint32_t blob_bytes;
	uint64_t arena_bytes;

	assert_string_equal(held_part_info(part)->tag, sent->info.tag);
	assert_int_equal(held_part_info(part)->step, sent->info.step);
	held_part_record(part, sent->info.first_rank, &blob, &blob_bytes, &arena_bytes);
	assert_int_equal(arena_bytes, ARENA_BYTES);
	assert_int_equal(blob_bytes, sent->blobs[0].len_bytes);
	assert_memory_equal(blob, sent->blobs[0].bytes, blob_bytes);
	held_part_record(part, sent->info.first_rank + 1, &blob, &blob_bytes, &arena_bytes);
	assert_int_equal(blob_bytes, 0);
	assert_int_equal(arena_bytes, 0);
	assert_readable(part, sent);
}

#endif
