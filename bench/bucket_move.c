/*
 * What Pawl does with a bucket, without an agent around it:
 *
 *   bucket_move put ADDRESS PATH MIB   uploads an object, as a save does
 *   bucket_move get ADDRESS PATH MIB   reads it into an arena, and checks it, as a restore does
 *   bucket_move newest ADDRESS         finds the newest checkpoint of a root
 *
 * Prints one JSON object: seconds, and seconds of CPU. The bytes are made, and their checksums
 * known, before the time begins.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/rng.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "store/store.h"

#include "pawl/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PIECE     ((size_t)1 << 20) /* bytes of a transfer, and of a checksum */
#define MIB_MAX   65536ul
#define DEPTH_MAX 1024u

/* An object in memory. */
struct object {
	uint8_t *arena; /* a shared mapping, as the agent has */
	uint32_t *sums; /* CRC-32C of each piece */
	size_t pieces;
};

static double cpu_s(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* ---- transfers ---- */

/* Waits for a transfer, and checks what was read. */
static struct store_io *reap(struct store *store, const struct object *object, int *rv)
{
	struct store_io *io = store_reap(store, -1);
	size_t i;

	ASSERT(io != NULL);
	i = io->off_bytes / PIECE;
	if (io->rv != 0) {
		fprintf(stderr, "bucket_move: %s\n", store_io_why(io));
		*rv = io->rv;
	} else if (!io->write && crc32c(0, io->buf, io->len_bytes) != object->sums[i] && *rv == 0) {
		fprintf(stderr, "bucket_move: piece %zu is not what was uploaded\n", i);
		*rv = PAWL_ECORRUPT;
	}
	return io;
}

static int move(struct store *store, struct store_file *file, bool write,
	const struct object *object)
{
	struct store_io ios[DEPTH_MAX];
	uint32_t depth = store_depth(store);
	size_t in_flight = 0;
	int rv = 0;

	ASSERT(depth <= DEPTH_MAX);
	for (size_t i = 0; rv == 0 && i < object->pieces; i++) {
		struct store_io *io =
			in_flight < depth ? &ios[in_flight] : reap(store, object, &rv);

		in_flight -= in_flight == depth;
		*io = (struct store_io){.file = file,
			.buf = object->arena + i * PIECE,
			.len_bytes = PIECE,
			.off_bytes = i * PIECE,
			.write = write};
		rv = rv == 0 ? store_submit(store, io, NULL) : rv;
		in_flight += rv == 0;
	}
	for (; in_flight > 0; in_flight--) {
		reap(store, object, &rv);
	}
	return rv;
}

static int put(struct store *store, const char *path, const struct object *object,
	struct pawl_err *err)
{
	struct store_file *file;
	int rv = store_create(store, path, object->pieces * PIECE, &file, err);

	if (rv == 0) {
		rv = move(store, file, true, object);
		rv = rv == 0 ? store_sync(store, file, err) : rv;
		store_close_file(store, file);
	}
	return rv;
}

static int get(struct store *store, const char *path, const struct object *object,
	struct pawl_err *err)
{
	struct store_file *file;
	int rv = store_open(store, path, &file, NULL, err);

	if (rv == 0) {
		rv = move(store, file, false, object);
		store_close_file(store, file);
	}
	return rv;
}

/* ---- objects ---- */

/* Makes an object of random bytes, the same ones each time. */
static struct object make_object(size_t pieces)
{
	struct object object = {.pieces = pieces};
	size_t size_bytes = pieces * PIECE;
	int fd = memfd_create("arena", MFD_CLOEXEC);
	struct rng rng = {1};

	ASSERT(fd >= 0 && ftruncate(fd, (off_t)size_bytes) == 0);
	object.arena = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	object.sums = calloc(pieces, sizeof(*object.sums));
	ASSERT(object.arena != MAP_FAILED && object.sums != NULL);
	close(fd);
	for (size_t i = 0; i < size_bytes; i += sizeof(uint64_t)) {
		uint64_t bytes = rng_u64(&rng);

		memcpy(object.arena + i, &bytes, sizeof(bytes));
	}
	for (size_t i = 0; i < pieces; i++) {
		object.sums[i] = crc32c(0, object.arena + i * PIECE, PIECE);
	}
	return object;
}

static void drop_object(struct object *object)
{
	munmap(object->arena, object->pieces * PIECE);
	free(object->sums);
}

/* ---- commands ---- */

static void print_costs(int64_t begun_ns, double begun_cpu_s)
{
	printf("{\"s\": %.6f, \"cpu_s\": %.6f}\n", (double)(clock_mono_ns() - begun_ns) / NS_PER_S,
		cpu_s() - begun_cpu_s);
}

static int run_move(bool write, const char *address, const char *path, size_t pieces,
	struct pawl_err *err)
{
	struct object object = make_object(pieces);
	struct store *store;
	int64_t begun_ns;
	double begun_cpu_s;
	int rv;

	if (!write) { /* an arena that held the bytes before would prove nothing */
		memset(object.arena, 0, pieces * PIECE);
	}
	begun_ns = clock_mono_ns();
	begun_cpu_s = cpu_s();
	rv = store_bucket_open(address, &store, err);
	if (rv == 0) {
		rv = write ? put(store, path, &object, err) : get(store, path, &object, err);
		print_costs(begun_ns, begun_cpu_s);
		store_close(store);
	}
	drop_object(&object);
	return rv;
}

static int run_newest(const char *address, struct pawl_err *err)
{
	const struct tags_search search = {0};
	struct tags_root *root;
	struct manifest manifest;
	int64_t begun_ns = clock_mono_ns();
	double begun_cpu_s = cpu_s();
	int rv = tags_root_open(address, NULL, false, &root, err);

	if (rv != 0) {
		return rv;
	}
	rv = tags_newest(root, &search, &manifest, err);
	if (rv == 0) {
		fprintf(stderr, "%s\n", manifest.tag);
		print_costs(begun_ns, begun_cpu_s);
		manifest_deinit(&manifest);
	}
	tags_root_close(root);
	return rv;
}

int main(int argc, char **argv)
{
	struct pawl_err err = {.msg = "it failed"};
	unsigned long mib = argc == 5 ? strtoul(argv[4], NULL, 10) : 0;
	bool write = argc == 5 && strcmp(argv[1], "put") == 0;
	int rv;

	if (argc == 3 && strcmp(argv[1], "newest") == 0) {
		rv = run_newest(argv[2], &err);
	} else if (mib > 0 && mib <= MIB_MAX && (write || strcmp(argv[1], "get") == 0)) {
		rv = run_move(write, argv[2], argv[3], mib, &err);
	} else {
		fprintf(stderr, "usage: bucket_move put|get ADDRESS PATH MIB | newest ADDRESS\n");
		return 2;
	}
	if (rv != 0) {
		fprintf(stderr, "bucket_move: %s\n", err.msg);
	}
	return rv == 0 ? 0 : 1;
}
