/* Hints that a job gives the scheduler about itself: JSON, in AdaptDL's words and some of Pawl's
 * (docs/sched.md). */
#ifndef DAEMON_HINTS_H
#define DAEMON_HINTS_H

#include "pawl/err.h"
#include "sched/policy/policy.h"

#include <stddef.h>

#define HINTS_BYTES_MAX (64u << 10)

/* Decodes hints. PAWL_EINVAL: the error names what is wrong, and *hints stays as it is. The core
 * checks the figures. Unknown keys are passed over. */
int hints_decode(struct sched_hints *hints, const void *bytes, size_t len_bytes,
	struct pawl_err *err);

#endif
