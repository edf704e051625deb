/* Operations of the stores in memory: see mem_power.h. */
#include "store/mem_power.h"

#include "base/assert.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TRACE_LINE_MAX (2 * STORE_PATH_MAX + 64) /* bytes */

static struct mem_power *power_of(struct store *store)
{
	ASSERT(store->ops == &mem_ops || store->ops == &mem_flat_ops);
	return (struct mem_power *)store;
}

static const struct mem_power *power_of_const(const struct store *store)
{
	ASSERT(store->ops == &mem_ops || store->ops == &mem_flat_ops);
	return (const struct mem_power *)store;
}

void mem_power_deinit(struct mem_power *power)
{
	wire_out_deinit(&power->trace);
}

int mem_power_check(const struct mem_power *power, const char *path, struct pawl_err *err)
{
	return power->dead ? pawl_err_set(err, PAWL_EIO, "%s: power lost", path) : 0;
}

int mem_power_begin(struct mem_power *power, struct pawl_err *err, const char *fmt, ...)
{
	char line[TRACE_LINE_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	power->ops++;
	power->dead = power->dead || (power->cut_at != 0 && power->ops >= power->cut_at);
	if (power->dead) {
		return pawl_err_set(err, PAWL_EIO, "%s: power lost", line);
	}
	wire_put_raw(&power->trace, line, strlen(line));
	wire_put_raw(&power->trace, "\n", sizeof("\n"));
	ASSERT(!power->trace.failed);
	power->trace.len_bytes--; /* drops the NUL, which the next line overwrites */
	return 0;
}

int mem_power_submit(struct store *store, struct store_io *io, struct pawl_err *err)
{
	struct mem_power *power = power_of(store);

	ASSERT(power->in_flight < STORE_DEPTH);
	power->in_flight++;
	io->next = power->queue;
	power->queue = io;
	return 0;
}

struct store_io *mem_power_next(struct mem_power *power)
{
	struct store_io *io = power->queue;

	if (io != NULL) {
		ASSERT(power->in_flight > 0);
		power->queue = io->next;
		power->in_flight--;
		io->next = NULL;
		io->sys = 0;
	}
	return io;
}

void store_mem_cut_at(struct store *store, uint64_t n)
{
	struct mem_power *power = power_of(store);

	power->cut_at = n;
	power->dead = power->dead && n != 0;
}

uint64_t store_mem_ops(const struct store *store)
{
	return power_of_const(store)->ops;
}

const char *store_mem_trace(const struct store *store)
{
	const struct mem_power *power = power_of_const(store);

	return power->trace.len_bytes > 0 ? (const char *)power->trace.bytes : "";
}
