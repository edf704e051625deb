/*
 * Memory of a stage for values that arrive. Blocks are kept for the next value of their size, so
 * that large ones are not mapped anew for each microbatch. A block has holders: it is free when the
 * last one has released it with pawl_stage_memory_release, even after the stage is closed.
 */
#ifndef STAGE_MEMORY_H
#define STAGE_MEMORY_H

#include "pawl/stage.h"

#include <stdint.h>

struct stage_pool;

/* Makes an empty pool. NULL: no memory. */
struct stage_pool *stage_memory_pool_open(void);
/* Frees the blocks that are free; the pool goes with the last block. NULL is fine. */
void stage_memory_pool_close(struct stage_pool *pool);
/* Takes a block of at least len_bytes with one holder, aligned to 64 bytes; its content is not
 * defined. NULL: no memory. Any thread. */
struct pawl_stage_memory *stage_memory_take(struct stage_pool *pool, uint64_t len_bytes);
/* Adds a holder. Any thread that holds the block. */
void stage_memory_hold(struct pawl_stage_memory *memory);
/* Returns the bytes of a block. */
void *stage_memory_bytes(struct pawl_stage_memory *memory);

#endif
