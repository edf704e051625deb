/* One allocation that a decoder cuts up: its size is bounded by the input's, so taking never
 * fails. */
#ifndef CKPT_BLOCK_H
#define CKPT_BLOCK_H

#include "base/assert.h"

#include <stddef.h>
#include <stdint.h>

#define BLOCK_ALIGN 8u /* of what is taken: each taking may waste one byte less */

struct block {
	uint8_t *at;       /* next free byte, BLOCK_ALIGN aligned; the owner keeps the start */
	size_t left_bytes; /* from at on */
};

/* The next bytes of the block. That they fit is the decoder's arithmetic, hence asserted. */
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
