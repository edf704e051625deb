/* Memory that is allocated piece by piece and freed all at once. */
#ifndef SCHED_JOBFILE_ARENA_H
#define SCHED_JOBFILE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise; sched_arena_deinit when done. */
struct sched_arena {
	struct sched_arena_block *blocks; /* owned; the newest first */
	bool failed;                      /* an allocation failed: all later ones fail, too */
};

void sched_arena_deinit(struct sched_arena *arena);
/* Returns zeroed memory, aligned for anything, until sched_arena_deinit; NULL: memory is short. */
void *sched_arena_alloc(struct sched_arena *arena, size_t len_bytes);
/* Returns a copy with a NUL behind it, until sched_arena_deinit; NULL: memory is short. */
char *sched_arena_copy_text(struct sched_arena *arena, const void *bytes, size_t len_bytes);

#endif
