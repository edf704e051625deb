/*
 * Makes the group that measures: see probe.h for the contract, docs/protocol.md for the bytes.
 *
 * Of two ranks the lower one connects, so a rank must know the names of those after it. So rank 0
 * asks the servers from the last to the first, each with the names that those after it gave.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "coll/group/group.h"
#include "coll/group/serve.h"
#include "coll/probe/probe.h"

#include <stdlib.h>
#include <sys/random.h>

/* Asks all servers. sides[r]: name by which ranks join rank r, of n; sides[0] is ours. */
static int ask_all(const char *const *names, uint32_t n, int64_t timeout_ns,
	char (*sides)[COLL_TCP_NAME], struct pawl_err *err)
{
	struct coll_ask ask = {.probe = true, .ranks = n};
	int rv = 0;

	if (getrandom(&ask.group, sizeof(ask.group), 0) != sizeof(ask.group)) {
		return pawl_err_sys(err, "get a random number");
	}
	for (ask.rank = n - 1; ask.rank > 0 && rv == 0; ask.rank--) {
		ask.names = (const char *)(sides + ask.rank + 1);
		rv = coll_serve_ask(names[ask.rank], &ask, timeout_ns, sides[ask.rank], err);
	}
	return rv;
}

static int join_all(struct coll_transport *transport, char (*sides)[COLL_TCP_NAME], uint32_t n,
	int64_t timeout_ns, struct pawl_err *err)
{
	const char *names[SURVEY_HOSTS_MAX];

	for (uint32_t r = 0; r < n; r++) {
		names[r] = sides[r];
	}
	return coll_tcp_join(transport, names, timeout_ns, NULL, err);
}

int coll_probe_open(struct pawl_group **out, const char *address, const char *const *names,
	uint32_t n, int64_t timeout_ns, struct pawl_err *err)
{
	char sides[SURVEY_HOSTS_MAX][COLL_TCP_NAME] = {0};
	uint32_t where[SURVEY_HOSTS_MAX];
	struct coll_transport *transport = NULL;
	struct pawl_group *group = NULL;
	int rv;

	ASSERT(n >= 2 && n <= SURVEY_HOSTS_MAX);
	rv = coll_group_make(&group, 0, n, 0, err);
	for (uint32_t r = 0; r < n; r++) {
		where[r] = r;
	}
	if (rv == 0) {
		rv = coll_tcp_open(&transport, 0, n, address, sides[0], err);
	}
	if (rv == 0) {
		rv = ask_all(names, n, timeout_ns, sides, err);
	}
	if (rv == 0) {
		rv = join_all(transport, sides, n, timeout_ns, err);
	}
	if (rv == 0) {
		rv = coll_group_start(group, transport, where, err);
		transport = NULL; /* owned by the group now */
	}
	if (rv != 0) {
		if (transport) {
			transport->close(transport);
		}
		pawl_group_close(group);
		return rv;
	}
	*out = group;
	return 0;
}
