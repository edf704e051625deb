/* Shared by the tests of the snapshot engine: live memory, an arena, pieces cut as checkpoints cut
 * them, and a gate that stops the engine at a chosen instant. */
#ifndef TEST_SNAP_WORLD_H
#define TEST_SNAP_WORLD_H

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/rng.h"
#include "ckpt/snap/snap.h"
#include "ckpt/snap/snap_guard.h"
#include "ckpt/snap/snap_hook.h"
#include "within.h"

#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define WORLD_PIECES_MAX 4096u
#define WORLD_UNIT       ((size_t)2 << 20) /* unit of the engine, see snap_list.h */

/* One engine, and memory to take snapshots of. */
struct world {
	struct snap *snap;
	uint8_t *mem;              /* live, a multiple of WORLD_UNIT */
	uint8_t *before;           /* copy of mem at the last begin */
	uint8_t *arena;            /* shared memory, twice as large */
	size_t mem_bytes;          /* bytes of mem, and of before */
	size_t arena_used;         /* bytes of the arena that the pieces use so far */
	struct ckpt_piece *pieces; /* room for WORLD_PIECES_MAX */
	size_t n;                  /* pieces used */
	atomic_int calls;          /* calls of the callback since the last begin */
	int rv;                    /* result that the callback was given */
	size_t piece;              /* piece that the callback was given */
};

static struct sigaction world_segv, world_bus;

/* Must be called first in main: cmocka puts its own handlers in place for each test. */
static inline void world_keep_handlers(void)
{
	ASSERT(snap_guard_init(NULL) == 0);
	sigaction(SIGSEGV, NULL, &world_segv);
	sigaction(SIGBUS, NULL, &world_bus);
}

/* Maps private anonymous memory at a multiple of WORLD_UNIT. */
static inline uint8_t *world_map(size_t size_bytes)
{
	size_t with_slack = size_bytes + WORLD_UNIT;
	uint8_t *at =
		mmap(NULL, with_slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t skip = (WORLD_UNIT - (uintptr_t)at % WORLD_UNIT) % WORLD_UNIT;

	assert_true(at != MAP_FAILED);
	if (skip > 0) {
		munmap(at, skip);
	}
	munmap(at + skip + size_bytes, WORLD_UNIT - skip);
	return at + skip;
}

static inline void world_fill(struct world *w, struct rng *rng)
{
	for (size_t i = 0; i < w->mem_bytes; i += sizeof(uint64_t)) {
		*(uint64_t *)(void *)(w->mem + i) = rng_u64(rng);
	}
}

static inline void world_open(struct world *w, size_t units, unsigned threads, uint64_t seed)
{
	const struct snap_options options = {.threads = threads, .watch = true};
	struct rng rng = {seed};

	sigaction(SIGSEGV, &world_segv, NULL);
	sigaction(SIGBUS, &world_bus, NULL);
	*w = (struct world){.mem_bytes = units * WORLD_UNIT};
	w->mem = world_map(w->mem_bytes);
	w->before = malloc(w->mem_bytes);
	w->arena = mmap(NULL, 2 * w->mem_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	w->pieces = calloc(WORLD_PIECES_MAX, sizeof(*w->pieces));
	assert_true(w->before != NULL && w->arena != MAP_FAILED && w->pieces != NULL);
	world_fill(w, &rng);
	assert_int_equal(snap_open(&w->snap, &options, NULL), 0);
}

static inline void world_close(struct world *w)
{
	snap_close(w->snap);
	munmap(w->mem, w->mem_bytes);
	munmap(w->arena, 2 * w->mem_bytes);
	free(w->before);
	free(w->pieces);
}

static inline void world_add(struct world *w, const uint8_t *src, size_t len_bytes, uint64_t groups)
{
	assert_true(w->n < WORLD_PIECES_MAX && w->arena_used + len_bytes <= 2 * w->mem_bytes);
	w->pieces[w->n++] = (struct ckpt_piece){.src = src,
		.dst = w->arena + w->arena_used,
		.len_bytes = (uint32_t)len_bytes,
		.crc = 0xdead,
		.groups = groups};
	w->arena_used += len_bytes;
}

/* Cuts [off, off + len) of the memory as a checkpoint does: at chunks of the file, in which it
 * begins at any place; head and tail, which are not whole pages, have no groups. */
static inline void world_cut(struct world *w, size_t off, size_t len_bytes, uint64_t groups,
	uint64_t file_off)
{
	size_t end = off + len_bytes;
	size_t first = (off + CKPT_PAGE - 1) / CKPT_PAGE * CKPT_PAGE;
	size_t last = end / CKPT_PAGE * CKPT_PAGE;

	while (off < end) {
		size_t to = off + (CKPT_CHUNK - file_off % CKPT_CHUNK);
		bool whole = off >= first && off < last;
		size_t stop = off < first && first < end ? first : whole ? last : end;

		to = to < stop ? to : stop;
		world_add(w, w->mem + off, to - off, whole ? groups : 0);
		file_off += to - off;
		off = to;
	}
}

static inline void world_done(void *user, int rv, size_t piece)
{
	struct world *w = user;

	within_pace(0.001); /* waiters must wait for this, too */
	w->rv = rv;
	w->piece = piece;
	w->calls++;
}

static inline enum snap_proof world_begin(struct world *w, bool watch)
{
	enum snap_proof proof;

	memcpy(w->before, w->mem, w->mem_bytes);
	memset(w->arena, 0xee, w->arena_used);
	w->calls = 0;
	assert_int_equal(snap_begin(w->snap, w->pieces, w->n, watch, world_done, w, &proof, NULL),
		0);
	return proof;
}

/* Waits; the callback must have come once. Returns the result that it was given. */
static inline int world_finish(struct world *w)
{
	snap_wait(w->snap);
	assert_int_equal(w->calls, 1);
	return w->rv;
}

static inline const uint8_t *world_wanted(const struct world *w, const struct ckpt_piece *piece)
{
	return w->before + (piece->src - w->mem);
}

/* Checks that the arena holds the memory as it was at begin, with its checksums. */
static inline void world_check(const struct world *w, bool slow)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct ckpt_piece *piece = &w->pieces[i];
		const uint8_t *wanted = world_wanted(w, piece);

		assert_true(
			piece->dst == NULL || memcmp(piece->dst, wanted, piece->len_bytes) == 0);
		assert_int_equal(piece->crc,
			(slow ? crc32c_slow : crc32c)(0, wanted, piece->len_bytes));
	}
}

/* Stops the engine at one instant of one unit, once. */
struct gate {
	enum snap_stage stage; /* stage to stop at */
	uintptr_t at;          /* address in the unit to stop at */
	sem_t reached;         /* posted by the engine */
	sem_t go;              /* posted by the test */
	atomic_bool armed;     /* not yet reached */
};

static struct gate gate;

static inline void gate_stop(enum snap_stage stage, struct snap_range range)
{
	if (stage == gate.stage && gate.at >= range.lo && gate.at < range.hi &&
		atomic_exchange(&gate.armed, false)) {
		sem_post(&gate.reached);
		sem_wait(&gate.go);
	}
}

static inline void gate_arm(enum snap_stage stage, const uint8_t *at)
{
	gate.stage = stage;
	gate.at = (uintptr_t)at;
	sem_init(&gate.reached, 0, 0);
	sem_init(&gate.go, 0, 0);
	gate.armed = true;
	snap_hook = gate_stop;
}

static inline void gate_reach(void)
{
	while (sem_wait(&gate.reached) != 0) {
	}
}

static inline void gate_open(void)
{
	sem_post(&gate.go);
}

#endif
