/*
 * Blocks of memory: see memory.h for the contract.
 *
 * Sizes are rounded up to one of eight sizes between two powers of 2, so a free block fits values
 * of almost its size. Free blocks are a short list, the last released at its end. The pool keeps as
 * many free bytes as were ever in use at once: steps that repeat need no more.
 *
 * The pool's lock guards all fields; it is the innermost lock of a stage.
 */
#include "stage/memory.h"

#include "base/assert.h"
#include "base/fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_ALIGN     64u          /* alignment of a block's bytes */
#define BLOCK_MIN       256u         /* smallest size */
#define BLOCK_MAX       (1ull << 50) /* largest size: more than a process can have */
#define POOL_FREE_MAX   256u         /* free blocks that are kept */
#define POOL_FREE_LEAST (1u << 20)   /* free bytes that are always kept */

struct pawl_stage_memory {
	struct stage_pool *pool;        /* pool that the block belongs to */
	uint64_t size_bytes;            /* bytes behind this header, which takes BLOCK_ALIGN */
	uint32_t holders;               /* under lock: holders; 0: the block is free */
	struct pawl_stage_memory *next; /* next in a list of blocks to be freed */
};

struct stage_pool {
	pthread_mutex_t lock;
	pid_t pid;                                     /* process that the pool belongs to */
	bool closed;                                   /* no more blocks are taken */
	uint64_t blocks_n;                             /* blocks that have holders */
	uint64_t used_bytes;                           /* bytes of these blocks */
	uint64_t most_bytes;                           /* most of used_bytes so far */
	uint64_t free_bytes;                           /* bytes of the free blocks */
	uint32_t free_n;                               /* number of free blocks */
	struct pawl_stage_memory *free[POOL_FREE_MAX]; /* owned; free blocks */
};

struct stage_pool *stage_memory_pool_open(void)
{
	struct stage_pool *pool = FAULT_MEM("stage.memory", calloc(1, sizeof(*pool)));

	if (pool) {
		pthread_mutex_init(&pool->lock, NULL);
		pool->pid = getpid();
	}
	return pool;
}

/* Rounds up to a size: a multiple of an eighth of the power of 2 below. */
static uint64_t size_of(uint64_t len_bytes)
{
	uint64_t power = BLOCK_MIN;

	while (power * 2 <= len_bytes) {
		power *= 2;
	}
	return len_bytes <= BLOCK_MIN ? BLOCK_MIN
				      : (len_bytes + power / 8 - 1) / (power / 8) * (power / 8);
}

/* Under lock: removes free block i from the list. */
static struct pawl_stage_memory *remove_free(struct stage_pool *pool, uint32_t i)
{
	struct pawl_stage_memory *memory = pool->free[i];

	pool->free_n--;
	pool->free_bytes -= memory->size_bytes;
	memmove(&pool->free[i], &pool->free[i + 1],
		(pool->free_n - i) * sizeof(struct pawl_stage_memory *));
	return memory;
}

static void free_pool(struct stage_pool *pool)
{
	while (pool->free_n > 0) {
		free(remove_free(pool, pool->free_n - 1));
	}
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

void stage_memory_pool_close(struct stage_pool *pool)
{
	bool last;

	if (!pool || pool->pid != getpid()) {
		return;
	}
	pthread_mutex_lock(&pool->lock);
	pool->closed = true;
	last = pool->blocks_n == 0;
	pthread_mutex_unlock(&pool->lock);
	if (last) {
		free_pool(pool);
	}
}

/* Under lock: takes a free block of this size; NULL: there is none. */
static struct pawl_stage_memory *find_free(struct stage_pool *pool, uint64_t size_bytes)
{
	for (uint32_t i = pool->free_n; i-- > 0;) {
		if (pool->free[i]->size_bytes == size_bytes) {
			return remove_free(pool, i);
		}
	}
	return NULL;
}

struct pawl_stage_memory *stage_memory_take(struct stage_pool *pool, uint64_t len_bytes)
{
	uint64_t size_bytes = len_bytes <= BLOCK_MAX ? size_of(len_bytes) : 0;
	struct pawl_stage_memory *memory;

	_Static_assert(sizeof(*memory) <= BLOCK_ALIGN, "the header is larger than its room");
	if (size_bytes == 0) {
		return NULL;
	}
	pthread_mutex_lock(&pool->lock);
	memory = find_free(pool, size_bytes);
	pthread_mutex_unlock(&pool->lock);
	if (!memory) {
		memory = FAULT_MEM("stage.memory",
			aligned_alloc(BLOCK_ALIGN, (BLOCK_ALIGN + size_bytes + 63) / 64 * 64));
	}
	if (!memory) {
		return NULL;
	}
	*memory = (struct pawl_stage_memory){pool, size_bytes, 1, NULL};
	pthread_mutex_lock(&pool->lock);
	pool->blocks_n++;
	pool->used_bytes += size_bytes;
	pool->most_bytes =
		pool->used_bytes > pool->most_bytes ? pool->used_bytes : pool->most_bytes;
	pthread_mutex_unlock(&pool->lock);
	return memory;
}

void stage_memory_hold(struct pawl_stage_memory *memory)
{
	pthread_mutex_lock(&memory->pool->lock);
	ASSERT(memory->holders > 0);
	memory->holders++;
	pthread_mutex_unlock(&memory->pool->lock);
}

void *stage_memory_bytes(struct pawl_stage_memory *memory)
{
	return (uint8_t *)memory + BLOCK_ALIGN;
}

/* Under lock: keeps a block for later. Returns a list of blocks to be freed instead: those that
 * were released first. */
static struct pawl_stage_memory *keep_free(struct stage_pool *pool,
	struct pawl_stage_memory *memory)
{
	uint64_t most = pool->most_bytes > POOL_FREE_LEAST ? pool->most_bytes : POOL_FREE_LEAST;
	struct pawl_stage_memory *unwanted = NULL;

	if (pool->free_n == POOL_FREE_MAX) {
		unwanted = remove_free(pool, 0);
		unwanted->next = NULL;
	}
	pool->free[pool->free_n++] = memory;
	pool->free_bytes += memory->size_bytes;
	while (pool->free_n > 0 && (pool->closed || pool->free_bytes > most)) {
		struct pawl_stage_memory *first = remove_free(pool, 0);

		first->next = unwanted;
		unwanted = first;
	}
	return unwanted;
}

void pawl_stage_memory_release(struct pawl_stage_memory *memory)
{
	struct stage_pool *pool = memory ? memory->pool : NULL;
	struct pawl_stage_memory *unwanted = NULL;
	bool last = false;

	if (!memory || pool->pid != getpid()) {
		return;
	}
	pthread_mutex_lock(&pool->lock);
	ASSERT(memory->holders > 0);
	memory->holders--;
	if (memory->holders == 0) {
		pool->blocks_n--;
		pool->used_bytes -= memory->size_bytes;
		unwanted = keep_free(pool, memory);
		last = pool->closed && pool->blocks_n == 0;
	}
	pthread_mutex_unlock(&pool->lock);
	while (unwanted) {
		struct pawl_stage_memory *next = unwanted->next;

		free(unwanted);
		unwanted = next;
	}
	if (last) {
		free_pool(pool);
	}
}
