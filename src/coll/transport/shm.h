/*
 * A transport between processes of one host, over shared memory.
 *
 * Each rank creates an area, publishes its name, and joins with the names of all others. A name
 * stands for the memfd /proc/<pid>/fd/<n>. Processes of the same user and process namespace can
 * open it, and it disappears with the process.
 */
#ifndef COLL_TRANSPORT_SHM_H
#define COLL_TRANSPORT_SHM_H

#include "coll/transport/transport.h"

#define COLL_SHM_NAME      64u          /* bytes of a name, terminator included */
#define COLL_SHM_RANKS_MAX 256u         /* ranks of a group; each maps the areas of all */
#define COLL_SHM_RING      (128u << 10) /* bytes that a stream holds */

/* Opens a transport. name: COLL_SHM_NAME bytes, filled with its name. PAWL_ELIMIT, PAWL_ENOMEM,
 * PAWL_EIO. */
int coll_shm_open(struct coll_transport **out, uint32_t rank, uint32_t ranks, char *name,
	struct pawl_err *err);
/* Joins the other ranks. names[r]: the name of rank r; NULL: nothing is exchanged with that rank.
 * PAWL_EPEER: a rank is gone, or cannot be reached from here; PAWL_EINVAL: a name is malformed, or
 * does not lead to the area of its rank. After an error the transport can only be closed. */
int coll_shm_join(struct coll_transport *transport, const char *const *names, struct pawl_err *err);

#endif
