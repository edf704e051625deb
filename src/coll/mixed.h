/* A port that reaches some ranks through memory and the others through the network. */
#ifndef COLL_MIXED_H
#define COLL_MIXED_H

#include "coll/port.h"

#include <stdbool.h>

/* Takes both ports, also when it fails; tcp is of coll_tcp_open. local[r]: rank r is reached by
 * shm. PAWL_ENOMEM, PAWL_EIO. */
int coll_mixed_open(struct coll_port **out, struct coll_port *shm, struct coll_port *tcp,
	const bool *local, uint32_t ranks, struct pawl_err *err);

#endif
