/* What a job tells the scheduler of itself: JSON, in AdaptDL's words and some of Pawl's
 * (docs/sched.md). */
#ifndef DAEMON_HINTS_H
#define DAEMON_HINTS_H

#include "pawl/err.h"
#include "sched/policy.h"

#include <stddef.h>

#define HINTS_BYTES_MAX (64u << 10)

/* PAWL_EINVAL: what is wrong is named, and *hints stay as they are. Figures are checked by the
 * core. Keys that it does not know are passed over. */
int hints_decode(struct sched_hints *hints, const void *bytes, size_t len_bytes,
	struct pawl_err *err);

#endif
