/* One allocation that a decoder cuts up. The input bounds its size, so taking from it never
 * fails. */
#ifndef CKPT_FORMAT_BLOCK_H
#define CKPT_FORMAT_BLOCK_H

#include "base/assert.h"

#include <stddef.h>
#include <stdint.h>

#define BLOCK_ALIGN 8u /* alignment of what is taken; each taking may waste one byte less */

_Static_assert(BLOCK_ALIGN >= _Alignof(uint64_t), "what is taken may hold 64-bit numbers");

struct block {
	uint8_t *at;       /* next free byte, BLOCK_ALIGN aligned; the owner keeps the start */
	size_t left_bytes; /* bytes left from at on */
};

/* Takes the next bytes of the block. The decoder has computed that they fit, hence asserted. */
static inline void *block_take(struct block *block, size_t size_bytes)
{
	size_t rounded = (size_bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
	void *taken = block->at;

	ASSERT(rounded >= size_bytes && rounded <= block->left_bytes);
	block->at += rounded;
	block->left_bytes -= rounded;
	return taken;
}

#endif
