/* Numbers of types of nodes: see database_types_number. Pure. */
#include "sched/database/database.h"

#include <stdio.h>
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
