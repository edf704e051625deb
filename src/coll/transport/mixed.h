/* A transport that reaches some ranks through shared memory and the others through the network. */
#ifndef COLL_TRANSPORT_MIXED_H
#define COLL_TRANSPORT_MIXED_H

#include "coll/transport/transport.h"

#include <stdbool.h>

/* Makes a transport of two. It owns shm and net, and closes them even if it fails. events: a
 * descriptor that is readable when net->poll would find an event; -1: there is none, and waits are
 * short. local[r]: rank r is reached by shm. PAWL_ENOMEM, PAWL_EIO. */
int coll_mixed_open(struct coll_transport **out, struct coll_transport *shm,
	struct coll_transport *net, int events, const bool *local, uint32_t ranks,
	struct pawl_err *err);

#endif
