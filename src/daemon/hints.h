/* Hints that a job reports about itself: JSON with AdaptDL's keys and some of Pawl's
 * (docs/sched.md). */
#ifndef DAEMON_HINTS_H
#define DAEMON_HINTS_H

#include "pawl/err.h"
#include "sched/policy/policy.h"

#include <stddef.h>

#define HINTS_BYTES_MAX (64u << 10)

/* Decodes hints. PAWL_EINVAL: the error names the wrong key, and *hints is unchanged. The core
 * checks the values. Unknown keys are ignored. */
int hints_decode(struct sched_hints *hints, const void *bytes, size_t len_bytes,
	struct pawl_err *err);

#endif
