/* The time in which no scheduler ran: see database_downtime_ns. Pure. */
#include "sched/database/database.h"

#include <string.h>

int64_t database_downtime_ns(const struct database_clock *then, const struct database_clock *now)
{
	bool same_boot = then->boot[0] != '\0' && strcmp(then->boot, now->boot) == 0;
	int64_t from_ns = same_boot ? then->boot_ns : then->wall_ns;
	int64_t to_ns = same_boot ? now->boot_ns : now->wall_ns;

	if (then->core_ns <= 0 || to_ns <= from_ns) {
		return 0;
	}
	/* Unsigned: the stored values may be anything. */
	return (uint64_t)to_ns - (uint64_t)from_ns < (uint64_t)DATABASE_DOWNTIME_MAX_NS
		? to_ns - from_ns
		: DATABASE_DOWNTIME_MAX_NS;
}
