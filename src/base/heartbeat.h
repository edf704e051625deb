/* How often ranks, and nodes, tell each other that they live. */
#ifndef BASE_HEARTBEAT_H
#define BASE_HEARTBEAT_H

#include <stdint.h>

struct pawl_err;

/* What PAWL_HEARTBEAT says (seconds), 0: not at all; else TIME_HEARTBEAT. PAWL_EINVAL. */
int heartbeat_read(int64_t *every_ns, struct pawl_err *err);

#endif
