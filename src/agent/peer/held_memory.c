/*
 * Memory of replicas, and what is kept of it for replicas to come: see held_impl.h.
 *
 * A host gets a part of every save, of about the same size each time, and drops an older one at
 * about that time. New pages cost more than encrypting what comes into them, so the memory of what
 * is dropped stays. All of it together was in use at one time, so nothing grows by it.
 */
#include "agent/peer/held_impl.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/pages.h"

#include <string.h>

/* Takes the spare memory of this size, or any, out of the list; zeroed: there is none. With
 * spare_lock. */
static struct held_memory take_spare(struct held *held, uint64_t size_bytes)
{
	struct held_memory taken = {0};
	uint32_t at = held->spares_n - 1; /* the newest */

	if (held->spares_n == 0) {
		return taken;
	}
	for (uint32_t i = 0; i < held->spares_n; i++) {
		at = held->spares[i].size_bytes == size_bytes ? i : at;
	}
	taken = held->spares[at];
	held->spares[at] = held->spares[--held->spares_n];
	return taken;
}

static void free_memory(struct held_memory *memory)
{
	pages_unmap(memory->map, memory->size_bytes);
	*memory = (struct held_memory){0};
}

int held_memory_take(struct held *held, uint64_t size_bytes, struct held_memory *memory,
	struct pawl_err *err)
{
	struct held_memory taken;
	uint8_t *map;

	pthread_mutex_lock(&held->spare_lock);
	taken = take_spare(held, size_bytes);
	pthread_mutex_unlock(&held->spare_lock);
	map = FAULT_MEM("held.create",
		taken.map == NULL ? pages_map(-1, size_bytes)
				  : pages_resize(taken.map, taken.size_bytes, size_bytes));
	if (map == NULL) {
		int rv = pawl_err_sys(err, "create memory for a replica");

		free_memory(&taken);
		return rv;
	}
	memory->map = map;
	memory->size_bytes = size_bytes;
	/* The memory may have ended within a page. */
	memory->present_bytes = taken.present_bytes < size_bytes
		? taken.present_bytes / PAGES_HUGE * PAGES_HUGE
		: size_bytes;
	return 0;
}

void held_memory_give(struct held *held, struct held_memory *memory)
{
	bool kept;

	pthread_mutex_lock(&held->spare_lock);
	kept = memory->present_bytes > 0 && held->spares_n < HELD_SPARES_MAX;
	if (kept) {
		held->spares[held->spares_n++] = *memory;
		*memory = (struct held_memory){0};
	}
	pthread_mutex_unlock(&held->spare_lock);
	if (!kept) { /* or there is none */
		free_memory(memory);
	}
}

uint64_t held_memory_spare(struct held *held)
{
	uint64_t spare_bytes = 0;

	pthread_mutex_lock(&held->spare_lock);
	for (uint32_t i = 0; i < held->spares_n; i++) {
		spare_bytes += held->spares[i].present_bytes;
	}
	pthread_mutex_unlock(&held->spare_lock);
	return spare_bytes;
}

bool held_trim(struct held *held, uint64_t most_bytes)
{
	bool freed = false;

	while (held_memory_spare(held) > most_bytes) {
		struct held_memory taken;

		pthread_mutex_lock(&held->spare_lock);
		taken = take_spare(held, 0);
		pthread_mutex_unlock(&held->spare_lock);
		free_memory(&taken);
		freed = true;
	}
	return freed;
}
