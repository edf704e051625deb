/* What all policies share: see policy.h. Pure. */
#include "sched/policy/policy.h"

#include <math.h>

double sched_verdict_gap(const struct sched_verdict *verdict)
{
	double over = verdict->cost - verdict->bound;

	return over <= 0 ? 0 : over / fabs(verdict->cost);
}
