/* Ranks by host: see topo.h for the contract. Pure. */
#include "coll/plan/topo.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdlib.h>

/* Returns the host number of rank r: that of a lower rank on the same host, else a new number. */
static uint32_t number_host(struct coll_topo *topo, const uint32_t *where, uint32_t r)
{
	for (uint32_t q = 0; q < r; q++) {
		if (where[q] == where[r]) {
			return topo->host_of[q];
		}
	}
	return topo->hosts++;
}

int coll_topo_init(struct coll_topo *topo, const uint32_t *where, uint32_t ranks, uint32_t servers,
	struct pawl_err *err)
{
	uint32_t n = 0;

	*topo = (struct coll_topo){.ranks = ranks, .servers = servers};
	if (ranks == 0) {
		return pawl_err_set(err, PAWL_EINVAL, "a group must have at least one rank");
	}
	if (ranks > COLL_RANKS_MAX || servers > COLL_RANKS_MAX - ranks) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"a group of %u ranks and %u servers: the limit is %u in all", ranks,
			servers, COLL_RANKS_MAX);
	}
	topo->start = FAULT_MEM("coll.topo", calloc(3 * (size_t)ranks + 1, sizeof(uint32_t)));
	if (!topo->start) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a group of %u ranks", ranks);
	}
	topo->member = topo->start + ranks + 1;
	topo->host_of = topo->member + ranks;
	for (uint32_t r = 0; r < ranks; r++) {
		topo->host_of[r] = number_host(topo, where, r);
	}
	for (uint32_t h = 0; h < topo->hosts; h++) {
		topo->start[h] = n;
		for (uint32_t r = 0; r < ranks; r++) {
			if (topo->host_of[r] == h) {
				topo->member[n++] = r;
			}
		}
	}
	topo->start[topo->hosts] = n;
	ASSERT(n == ranks && topo->hosts >= 1 && topo->hosts <= ranks);
	return 0;
}

void coll_topo_deinit(struct coll_topo *topo)
{
	free(topo->start);
	*topo = (struct coll_topo){0};
}

uint32_t coll_topo_locals_max(const struct coll_topo *topo)
{
	uint32_t most = 0;

	for (uint32_t h = 0; h < topo->hosts; h++) {
		if (coll_topo_locals(topo, h) > most) {
			most = coll_topo_locals(topo, h);
		}
	}
	ASSERT(most > 0); /* there is a rank, so its host has one */
	return most;
}
