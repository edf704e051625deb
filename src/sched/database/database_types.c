/* Numbers of types of nodes, and the time in which no scheduler ran: see database.h. Pure. */
#include "sched/database/database.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

_Static_assert(SCHED_TYPES_MAX <= 32, "a bit for each type in known");

uint32_t database_types_number(struct database_types *types, const char *name)
{
	uint32_t unused = SCHED_TYPES_MAX;

	for (uint32_t t = SCHED_TYPES_MAX; t-- > 0;) {
		if ((types->known >> t & 1) == 0) {
			unused = t;
		} else if (strcasecmp(types->names[t], name) == 0) {
			return t;
		}
	}
	if (unused < SCHED_TYPES_MAX) {
		snprintf(types->names[unused], CORE_NAME_MAX, "%s", name);
		types->known |= 1u << unused;
	}
	return unused;
}

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
