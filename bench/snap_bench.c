/*
 * Cost of a snapshot to the program that is copied: 1 GiB in 481 ranges, as a small GPT with Adam
 * has them. Medians, beside memcpy into the same memory in the same run. With --json the last line
 * is one JSON object.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/rng.h"
#include "ckpt/snap/copy.h"
#include "ckpt/snap/snap.h"
#include "ckpt/snap/snap_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANGES      481u
#define RANGE_BYTES (1u << 30) / RANGES /* average size of a range */
#define ROUNDS      15u                 /* rounds of each measurement; the median counts */
#define HUGE_WAIT_S 30                  /* longest wait for huge pages */
#define ALIGN       64u                 /* alignment of torch's tensors */
#define GROUP       1u

/* The state, the arena, and the pieces to copy from one to the other. */
struct bench {
	uint8_t *state;            /* RANGES ranges of bytes, with gaps between them */
	uint8_t *arena;            /* target of the copy; as large as the state */
	size_t size_bytes;         /* size of the state, and of the arena */
	struct ckpt_pieces pieces; /* pieces that cover the ranges */
	uint64_t payload_bytes;    /* bytes in all pieces together */
};

/* Times of one round in ns; also their medians. */
struct costs {
	int64_t begin_ns;  /* until snap_begin returned */
	int64_t copy_ns;   /* from there until one engine thread had copied everything */
	int64_t kernel_ns; /* the copy kernel alone over the same pieces */
	int64_t memcpy_ns; /* one memcpy of as many bytes */
};

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a;
	int64_t y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int64_t take_median(int64_t *values, size_t n)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[n / 2];
}

/* Cuts the pieces of a partition file that holds all ranges, as a save does. */
static void cut_pieces(struct bench *b, const struct ckpt_span *spans, const uint64_t *sizes)
{
	struct zip_plan plan;

	ASSERT(zip_plan_init(&plan, sizes, RANGES, 0, NULL) == 0);
	ASSERT(plan.size_bytes <= b->size_bytes);
	ASSERT(ckpt_pieces_add(&b->pieces, &plan, spans, 0, 0, plan.size_bytes, b->arena, NULL) ==
		0);
	zip_plan_deinit(&plan);
	for (size_t i = 0; i < b->pieces.n; i++) {
		b->payload_bytes += b->pieces.at[i].len_bytes;
	}
}

static void make_state(struct bench *b)
{
	static struct ckpt_span spans[RANGES + 1]; /* the last one is the pickle */
	static uint64_t sizes[RANGES];
	struct rng rng = {1};
	uint8_t *at;
	int fd = memfd_create("snap_bench", MFD_CLOEXEC);

	b->size_bytes = (size_t)RANGES * (RANGE_BYTES + 2 * CKPT_PAGE);
	b->state = mmap(NULL, b->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	ASSERT(fd >= 0 && ftruncate(fd, (off_t)b->size_bytes) == 0 && b->state != MAP_FAILED);
	b->arena = mmap(NULL, b->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT(b->arena != MAP_FAILED);
	close(fd);
	for (size_t i = 0; i < b->size_bytes; i += sizeof(uint64_t)) {
		*(uint64_t *)(void *)(b->state + i) = rng_u64(&rng);
	}
	memset(b->arena, 1, b->size_bytes);
	at = b->state;
	for (unsigned i = 0; i < RANGES; i++) {
		/* 0.5 to 1.5 times the average size, in pairs that sum up to twice the average */
		size_t more = (size_t)(i / 2) * (RANGE_BYTES / RANGES) * 2;

		sizes[i] = (RANGE_BYTES / 2 + (i % 2 == 0 ? more : RANGE_BYTES - more)) / ALIGN *
			ALIGN;
		at += ALIGN; /* a gap, as malloc leaves it between blocks */
		spans[i] = (struct ckpt_span){at, sizes[i], GROUP};
		at += sizes[i];
	}
	ASSERT(at <= b->state + b->size_bytes);
	cut_pieces(b, spans, sizes);
}

static void on_done(void *user, int rv, size_t piece)
{
	ASSERT(rv == 0);
}

static void time_snapshot(struct snap *snap, struct bench *b, struct costs *costs)
{
	enum snap_proof proof;
	int64_t began_ns = clock_mono_ns();
	int rv = snap_begin(snap, b->pieces.at, b->pieces.n, true, on_done, NULL, &proof, NULL);
	int64_t back_ns = clock_mono_ns();

	ASSERT(rv == 0);
	snap_wait(snap);
	costs->begin_ns = back_ns - began_ns;
	costs->copy_ns = clock_mono_ns() - back_ns;
}

static int64_t time_kernel(const struct bench *b, enum copy_kernel kernel)
{
	int64_t began_ns = clock_mono_ns();

	for (size_t i = 0; i < b->pieces.n; i++) {
		const struct ckpt_piece *piece = &b->pieces.at[i];

		ASSERT(copy_crc32c(kernel, piece->dst, piece->src, piece->len_bytes) == piece->crc);
	}
	return clock_mono_ns() - began_ns;
}

static int64_t time_memcpy(const struct bench *b)
{
	int64_t began_ns = clock_mono_ns();

	memcpy(b->arena, b->state, b->payload_bytes);
	return clock_mono_ns() - began_ns;
}

/* Runs the measurements in turns, so that other load affects all of them alike. */
static struct costs measure(struct snap *snap, struct bench *b, size_t rounds)
{
	int64_t ns[4][ROUNDS];

	for (size_t i = 0; i < rounds; i++) {
		struct costs costs;

		time_snapshot(snap, b, &costs);
		ns[0][i] = costs.begin_ns;
		ns[1][i] = costs.copy_ns;
		ns[2][i] = time_kernel(b, copy_best());
		ns[3][i] = time_memcpy(b);
	}
	return (struct costs){take_median(ns[0], rounds), take_median(ns[1], rounds),
		take_median(ns[2], rounds), take_median(ns[3], rounds)};
}

static void ignore_hit(void *user, struct snap_range run)
{
	*(size_t *)user += run.hi - run.lo;
}

/* Measures what the kernel's scan and the lifting of the protection add to the copy of the whole
 * state. */
static int64_t measure_watch(const struct bench *b)
{
	const uintptr_t unit = 2u << 20;
	struct snap_range all = {(uintptr_t)b->state,
		(uintptr_t)b->state + b->size_bytes / CKPT_PAGE * CKPT_PAGE};
	struct watch watch;
	size_t hit_bytes = 0;
	int64_t ns[ROUNDS];

	if (watch_open(&watch, NULL) != 0 || !watch_register(&watch, all)) {
		return 0;
	}
	for (size_t i = 0; i < ROUNDS; i++) {
		int64_t began_ns;

		ASSERT(watch_protect(&watch, all));
		began_ns = clock_mono_ns();
		for (uintptr_t lo = all.lo; lo < all.hi;) {
			uintptr_t hi = (lo / unit + 1) * unit;
			struct snap_range range = {lo, hi < all.hi ? hi : all.hi};

			watch_scan(&watch, range, ignore_hit, &hit_bytes);
			watch_lift(&watch, range);
			lo = range.hi;
		}
		ns[i] = clock_mono_ns() - began_ns;
	}
	watch_unregister(&watch, all);
	watch_close(&watch);
	return take_median(ns, ROUNDS);
}

static uint64_t count_eager_bytes(const struct bench *b)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < b->pieces.n; i++) {
		bytes += b->pieces.at[i].groups == 0 ? b->pieces.at[i].len_bytes : 0;
	}
	return bytes;
}

static uint64_t read_huge_bytes(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	char line[256];
	uint64_t kib = 0;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		(void)sscanf(line, "AnonHugePages: %lu", &kib);
	}
	if (file != NULL) {
		fclose(file);
	}
	return kib << 10;
}

/* Waits until nearly all of the state lies in huge pages. */
static uint64_t wait_huge(const struct bench *b)
{
	int64_t until_ns = clock_mono_ns() + HUGE_WAIT_S * NS_PER_S;

	while (read_huge_bytes() < b->size_bytes / 100 * 98 && clock_mono_ns() < until_ns) {
		usleep(100000);
	}
	usleep(100000);
	return read_huge_bytes();
}

static void print_row(const char *what, int64_t ns, uint64_t bytes)
{
	printf("%-52s %9.3f ms", what, (double)ns / NS_PER_MS);
	if (bytes != 0) {
		printf(" %7.2f GiB/s",
			(double)bytes / (double)(1u << 30) / ((double)ns / NS_PER_S));
	}
	printf("\n");
}

/* Prints the times of all copy kernels, to show whether the best one was chosen. */
static void print_kernels(const struct bench *b)
{
	static const char *const names[] = {[COPY_PLAIN] = "  memcpy and checksum",
		[COPY_SSE2] = "  SSE2, four pages",
		[COPY_AVX2] = "  AVX2, four pages",
		[COPY_AVX2_ROW] = "  AVX2, row"};

	for (enum copy_kernel kernel = COPY_PLAIN; kernel <= COPY_AVX2_ROW; kernel++) {
		int64_t ns[ROUNDS];

		for (size_t i = 0; i < ROUNDS && copy_has(kernel); i++) {
			ns[i] = time_kernel(b, kernel);
		}
		if (copy_has(kernel)) {
			print_row(names[kernel], take_median(ns, ROUNDS), b->payload_bytes);
		}
	}
}

int main(int argc, char **argv)
{
	const struct snap_options options = {.threads = 1, .watch = true};
	struct bench b = {0};
	struct snap *snap;
	struct costs first, small, huge;
	int64_t small_watch_ns;
	uint64_t huge_bytes;

	make_state(&b);
	small_watch_ns = measure_watch(&b);
	ASSERT(snap_open(&snap, &options, NULL) == 0);
	first = measure(snap, &b, 1);
	small = measure(snap, &b, 1);
	huge_bytes = wait_huge(&b);
	huge = measure(snap, &b, ROUNDS);
	snap_close(snap);
	printf("%-52s %9zu, %.1f MiB copied before begin returns\n", "pieces", b.pieces.n,
		(double)count_eager_bytes(&b) / (double)(1u << 20));
	print_row("first begin (4 KiB pages, makes the list)", first.begin_ns, 0);
	print_row("second begin (4 KiB pages)", small.begin_ns, 0);
	print_row("copy by one thread (4 KiB pages)", small.copy_ns, b.payload_bytes);
	print_row("  scan and lift alone", small_watch_ns, 0);
	printf("%-52s %9.1f %%\n", "then huge pages",
		100.0 * (double)huge_bytes / (double)b.size_bytes);
	print_row("begin", huge.begin_ns, 0);
	print_row("copy by one thread", huge.copy_ns, b.payload_bytes);
	print_row("  scan and lift alone", measure_watch(&b), 0);
	print_row("  copy kernel alone", huge.kernel_ns, b.payload_bytes);
	print_kernels(&b);
	print_row("memcpy, one thread", huge.memcpy_ns, b.payload_bytes);
	if (argc > 1 && strcmp(argv[1], "--json") == 0) {
		printf("{\"name\":\"snap\",\"runs\":%u,\"metrics\":{\"begin_small_ms\":%.3f,"
		       "\"begin_huge_ms\":%.3f,\"copy_huge_ms\":%.3f,\"memcpy_ms\":%.3f},"
		       "\"ratios\":{\"copy_to_memcpy\":%.3f}}\n",
			ROUNDS, (double)small.begin_ns / NS_PER_MS,
			(double)huge.begin_ns / NS_PER_MS, (double)huge.copy_ns / NS_PER_MS,
			(double)huge.memcpy_ns / NS_PER_MS,
			(double)huge.memcpy_ns / (double)huge.copy_ns);
	}
	return 0;
}
