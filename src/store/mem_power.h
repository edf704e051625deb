/* Shared by the two stores in memory, of directories and of objects: operations, counted and
 * traced, until the power is cut. See mem.h. */
#ifndef STORE_MEM_POWER_H
#define STORE_MEM_POWER_H

#include "base/wire.h"
#include "store/mem.h"

struct mem_power {
	struct store store;     /* first: what callers hold */
	struct wire_out trace;  /* text, with a NUL behind len_bytes */
	struct store_io *queue; /* submitted transfers, newest first */
	uint64_t ops;           /* operations so far, including the one that failed */
	uint64_t cut_at;        /* number of the operation before which power is cut; 0: none */
	unsigned in_flight;     /* transfers in queue */
	bool dead;              /* power was cut */
};

extern const struct store_ops mem_ops;      /* directories: mem.c */
extern const struct store_ops mem_flat_ops; /* objects: mem_flat.c */

void mem_power_deinit(struct mem_power *power);
/* Fails with PAWL_EIO if the power is gone. */
int mem_power_check(const struct mem_power *power, const char *path, struct pawl_err *err);
/* Counts an operation and adds it to the trace by this name. PAWL_EIO when the power is gone: the
 * operation must then have no effect. */
__attribute__((format(printf, 3, 4))) int mem_power_begin(struct mem_power *power,
	struct pawl_err *err, const char *fmt, ...);

/* submit of both stores: the transfer takes effect when it is reaped. */
int mem_power_submit(struct store *store, struct store_io *io, struct pawl_err *err);
/* Takes the newest transfer off the queue; NULL: there is none. */
struct store_io *mem_power_next(struct mem_power *power);

/* What a crash leaves of a store of objects, as store_mem_after_crash does. */
int mem_flat_after_crash(const struct store *store, struct store **after, struct pawl_err *err);
/* Returns the bytes of an object, or NULL, to be changed in place by tests. */
uint8_t *mem_flat_bytes(struct store *store, const char *path, size_t *len_bytes);

#endif
