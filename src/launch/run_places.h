/* The places of the rendezvous, parsed from an option or from the variables of a launcher. Pure. */
#ifndef LAUNCH_RUN_PLACES_H
#define LAUNCH_RUN_PLACES_H

#include "launch/nodes/node_net.h"
#include "launch/nodes/nodes.h"

#define RUN_PORT_DEFAULT "29400" /* torchrun's default */
#define RUN_HOST_MAX     256u    /* bytes of a name, terminator included */

/* Places, and the memory of their strings. */
struct run_places {
	uint32_t n; /* number of places */
	/* The places; strings point into the arrays below. */
	struct node_place at[NODES_PLACES_MAX];
	const char *text[NODES_PLACES_MAX]; /* text of each place */
	char texts[NODES_PLACES_MAX][RUN_HOST_MAX + 8];
	char hosts[NODES_PLACES_MAX][RUN_HOST_MAX];
	char ports[NODES_PLACES_MAX][8];
};

/* Parses "host[:port],…", with an IPv6 address in brackets. PAWL_EINVAL if text is no such list, or
 * names an address that means all of a host's. */
int run_places_parse(struct run_places *places, const char *text, struct pawl_err *err);
/* Finds the first host of a Slurm node list: gpu03 of "gpu[03-05,9],login1". Returns false if
 * nodelist is not one. */
bool run_places_first(const char *nodelist, char host[RUN_HOST_MAX]);

#endif
