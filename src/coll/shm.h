/*
 * A port between processes of one host, over memory that they share.
 *
 * Each rank makes an area, says where it is, and joins when it has heard where all others are. A
 * name is of the process: /proc/<pid>/fd/<n> of a memfd, which processes of one user and one
 * process namespace can open, and which is gone with them.
 */
#ifndef COLL_SHM_H
#define COLL_SHM_H

#include "coll/port.h"

#define COLL_SHM_NAME      64u          /* bytes of a name, terminator included */
#define COLL_SHM_RANKS_MAX 256u         /* of a group: its areas are mapped by each rank */
#define COLL_SHM_RING      (128u << 10) /* bytes that a stream holds */

/* PAWL_ELIMIT, PAWL_ENOMEM, PAWL_EIO. */
int coll_shm_open(struct coll_port **out, uint32_t rank, uint32_t ranks, char *name,
	struct pawl_err *err);
/* names[r]: of rank r; NULL: nothing is exchanged with it. PAWL_EPEER: rank r is gone, or cannot be
 * reached from here; PAWL_EINVAL: what is there is no such area. Either leaves the port to be
 * closed. */
int coll_shm_join(struct coll_port *port, const char *const *names, struct pawl_err *err);

#endif
