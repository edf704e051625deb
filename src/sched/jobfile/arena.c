/* Blocks of memory, from which pieces are allocated: see arena.h. */
#include "sched/jobfile/arena.h"

#include "base/assert.h"
#include "base/fault.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (16u << 10) /* bytes of a block; more if one piece is larger */

struct sched_arena_block {
	struct sched_arena_block *next; /* block that was made before; NULL: this is the first */
	size_t used_bytes;              /* part of bytes that is allocated */
	size_t cap_bytes;               /* size of bytes */
	alignas(max_align_t) uint8_t bytes[];
};

_Static_assert(sizeof(struct sched_arena_block) % alignof(max_align_t) == 0, "pieces are aligned");
_Static_assert(BLOCK_BYTES % alignof(max_align_t) == 0, "a block is full of whole pieces");

void sched_arena_deinit(struct sched_arena *arena)
{
	while (arena->blocks) {
		struct sched_arena_block *next = arena->blocks->next;

		free(arena->blocks);
		arena->blocks = next;
	}
	arena->failed = false;
}

static struct sched_arena_block *add_block(struct sched_arena *arena, size_t len_bytes)
{
	size_t cap_bytes = len_bytes > BLOCK_BYTES ? len_bytes : BLOCK_BYTES;
	struct sched_arena_block *block =
		FAULT_MEM("sched.pool", calloc(1, sizeof(*block) + cap_bytes));

	if (block) {
		block->cap_bytes = cap_bytes;
		block->next = arena->blocks;
		arena->blocks = block;
	}
	return block;
}

void *sched_arena_alloc(struct sched_arena *arena, size_t len_bytes)
{
	size_t need = (len_bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	struct sched_arena_block *block = arena->blocks;
	void *piece;

	if (arena->failed || need < len_bytes || need > SIZE_MAX / 2) {
		arena->failed = true;
		return NULL;
	}
	if (!block || block->cap_bytes - block->used_bytes < need) {
		block = add_block(arena, need);
	}
	if (!block) {
		arena->failed = true;
		return NULL;
	}
	ASSERT(need <= block->cap_bytes - block->used_bytes);
	ASSERT(block->used_bytes % alignof(max_align_t) == 0);
	piece = block->bytes + block->used_bytes;
	block->used_bytes += need;
	return piece;
}

char *sched_arena_copy_text(struct sched_arena *arena, const void *bytes, size_t len_bytes)
{
	char *text = len_bytes < SIZE_MAX ? sched_arena_alloc(arena, len_bytes + 1) : NULL;

	if (text && len_bytes > 0) {
		memcpy(text, bytes, len_bytes);
	}
	return text;
}
