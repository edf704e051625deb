/* Blocks of memory, from which pieces are cut: see pool.h. */
#include "sched/jobfile/pool.h"

#include "base/fault.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (16u << 10) /* bytes of a block; more where one piece is larger */

struct pool_block {
	struct pool_block *next; /* block that was made before; NULL: this is the first */
	size_t used_bytes;       /* used part of bytes, so far */
	size_t cap_bytes;        /* size of bytes */
	alignas(max_align_t) uint8_t bytes[];
};

void pool_deinit(struct pool *pool)
{
	while (pool->blocks) {
		struct pool_block *next = pool->blocks->next;

		free(pool->blocks);
		pool->blocks = next;
	}
	pool->failed = false;
}

static struct pool_block *add_block(struct pool *pool, size_t len_bytes)
{
	size_t cap_bytes = len_bytes > BLOCK_BYTES ? len_bytes : BLOCK_BYTES;
	struct pool_block *block = FAULT_MEM("sched.pool", calloc(1, sizeof(*block) + cap_bytes));

	if (block) {
		block->cap_bytes = cap_bytes;
		block->next = pool->blocks;
		pool->blocks = block;
	}
	return block;
}

void *pool_take(struct pool *pool, size_t len_bytes)
{
	size_t need = (len_bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	struct pool_block *block = pool->blocks;
	void *piece;

	if (pool->failed || need < len_bytes || need > SIZE_MAX / 2) {
		pool->failed = true;
		return NULL;
	}
	if (!block || block->cap_bytes - block->used_bytes < need) {
		block = add_block(pool, need);
	}
	if (!block) {
		pool->failed = true;
		return NULL;
	}
	piece = block->bytes + block->used_bytes;
	block->used_bytes += need;
	return piece;
}

char *pool_text(struct pool *pool, const void *bytes, size_t len_bytes)
{
	char *text = len_bytes < SIZE_MAX ? pool_take(pool, len_bytes + 1) : NULL;

	if (text && len_bytes > 0) {
		memcpy(text, bytes, len_bytes);
	}
	return text;
}
