/* Memory that is taken piece by piece and given back all at once. */
#ifndef SCHED_JOBFILE_POOL_H
#define SCHED_JOBFILE_POOL_H

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise; pool_deinit when done. */
struct pool {
	struct pool_block *blocks; /* owned; the newest first */
	bool failed;               /* an allocation failed: all later ones do, too */
};

void pool_deinit(struct pool *pool);
/* Returns zeroed memory, aligned for anything, until pool_deinit; NULL: memory is short. */
void *pool_take(struct pool *pool, size_t len_bytes);
/* Returns a copy with a NUL behind it, until pool_deinit; NULL: memory is short. */
char *pool_text(struct pool *pool, const void *bytes, size_t len_bytes);

#endif
