/* The interval at which ranks, and nodes, send each other heartbeats. */
#ifndef BASE_HEARTBEAT_H
#define BASE_HEARTBEAT_H

#include <stdint.h>

struct pawl_err;

/* Reads the interval from PAWL_HEARTBEAT (in seconds; 0: no heartbeats); without it,
 * TIME_HEARTBEAT. PAWL_EINVAL. */
int heartbeat_read(int64_t *every_ns, struct pawl_err *err);

#endif
