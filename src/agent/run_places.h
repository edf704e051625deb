/* Where nodes meet, out of what the user or a launcher says. Pure. */
#ifndef AGENT_RUN_PLACES_H
#define AGENT_RUN_PLACES_H

#include "agent/node_net.h"
#include "agent/nodes.h"

#define RUN_PORT_DEFAULT "29400" /* as torchrun's */
#define RUN_HOST_MAX     256u    /* bytes of a name, terminator included */

/* Places, and the memory of their strings. */
struct run_places {
	uint32_t n;                             /* of them */
	struct node_place at[NODES_PLACES_MAX]; /* strings point into what follows */
	const char *text[NODES_PLACES_MAX];     /* each one's text */
	char texts[NODES_PLACES_MAX][RUN_HOST_MAX + 8];
	char hosts[NODES_PLACES_MAX][RUN_HOST_MAX];
	char ports[NODES_PLACES_MAX][8];
};

/* "host[:port],…", an IPv6 address in brackets. PAWL_EINVAL: it is none, or it is an address that
 * means all of a host's. */
int run_places_parse(struct run_places *places, const char *text, struct pawl_err *err);
/* The first of Slurm's "gpu[03-05,9],login1": gpu03. False: it is not one. */
bool run_places_first(const char *nodelist, char host[RUN_HOST_MAX]);

#endif
