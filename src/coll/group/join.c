/*
 * How the ranks of a group find each other: by endpoints, lines of text that say which host a rank
 * is on, and how it is reached. Newcomers to a running group come through join_listener.h.
 *
 * A host is a kernel together with the process and network namespaces. Processes that cannot open
 * each other's memory, or that have different networks, are on different hosts.
 */
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/heartbeat.h"
#include "base/proc.h"
#include "base/times.h"
#include "coll/group/group_impl.h"
#include "coll/group/group_trace.h"
#include "coll/group/serve.h"
#include "coll/transport/endpoint.h"
#include "coll/transport/fabric.h"
#include "coll/transport/mixed.h"
#include "coll/transport/shm.h"
#include "coll/transport/tcp.h"
#include "io/address.h"

#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(COLL_TCP_NAME <= ENDPOINT_NET && COLL_FABRIC_NAME <= ENDPOINT_NET,
	"no room for a name");
_Static_assert(COLL_SHM_NAME <= ENDPOINT_SHM, "no room for a name");

/* Writes the host id of this host, such as "3f0c…:4026531836:4026531840". */
static int get_host_id(char *host_id, struct pawl_err *err)
{
	struct stat pid_ns;
	struct stat net_ns;
	char boot[PROC_BOOT_ID];

	if (!proc_boot_id(boot) || stat("/proc/self/ns/pid", &pid_ns) != 0 ||
		stat("/proc/self/ns/net", &net_ns) != 0) {
		return pawl_err_sys(err, "collectives: find out which host this is");
	}
	snprintf(host_id, ENDPOINT_HOST_ID, "%s:%llu:%llu", boot, (unsigned long long)pid_ns.st_ino,
		(unsigned long long)net_ns.st_ino);
	return 0;
}

/* Writes the hostname, which is for people; characters that do not print become '?'. */
static void get_hostname(char *hostname)
{
	if (gethostname(hostname, ENDPOINT_HOSTNAME) != 0 || hostname[0] == '\0') {
		snprintf(hostname, ENDPOINT_HOSTNAME, "?");
	}
	hostname[ENDPOINT_HOSTNAME - 1] = '\0';
	for (char *c = hostname; *c != '\0'; c++) {
		*c = (char)(*c > ' ' && *c <= '~' ? *c : '?');
	}
}

/* ---- the network ---- */

/* Returns PAWL_LINK, the measured network; empty if it is not set. */
static const char *link_text(void)
{
	const char *text = getenv("PAWL_LINK");

	return text ? text : "";
}

static int read_link(struct pawl_group *group, struct pawl_err *err)
{
	const char *text = link_text();

	return *text == '\0' || coll_link_parse(text, &group->link)
		? 0
		: pawl_err_set(err, PAWL_EINVAL,
			  "PAWL_LINK=%.80s: BYTES_PER_S:LATENCY_S:MESSAGE_S, as pawl net prints it",
			  text);
}

/* Reads PAWL_TRANSPORT, which carries bytes between hosts. */
static int read_transport(struct pawl_group *group, struct pawl_err *err)
{
	const char *text = getenv("PAWL_TRANSPORT");

	group->joining.fabric = text && strcmp(text, "fabric") == 0;
	if (text && *text != '\0' && !group->joining.fabric && strcmp(text, "tcp") != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"PAWL_TRANSPORT=%.80s: tcp (sockets) or fabric (libfabric)", text);
	}
	return group->joining.fabric && group->servers > 0
		? pawl_err_set(err, PAWL_ENOTSUP,
			  "PAWL_TRANSPORT=fabric: servers (PAWL_SERVERS) are reached by "
			  "PAWL_TRANSPORT=tcp only")
		: 0;
}

/* ---- servers ---- */

/* Returns PAWL_SERVERS, names separated by commas; empty if it is not set. */
static const char *list_servers(void)
{
	const char *text = getenv("PAWL_SERVERS");

	return text ? text : "";
}

static int count_servers(uint32_t *n, struct pawl_err *err)
{
	const char *text = list_servers();

	*n = *text != '\0';
	for (; *text != '\0'; text++) {
		*n += *text == ',';
	}
	return *n <= COLL_SERVERS_MAX
		? 0
		: pawl_err_set(err, PAWL_EINVAL, "PAWL_SERVERS: %u servers, %u at most", *n,
			  COLL_SERVERS_MAX);
}

/* Returns a digest of the settings that must be the same at all ranks: servers, link, transport and
 * heartbeat interval. */
static uint32_t digest_settings(const struct pawl_group *group)
{
	const char *link = link_text();
	uint32_t digest =
		group->servers > 0 ? crc32c(0, list_servers(), strlen(list_servers())) : 0;

	digest = *link != '\0' ? crc32c(digest, link, strlen(link)) : digest;
	if (group->liveness.heartbeat_interval_ns != times_ns(TIME_HEARTBEAT)) {
		digest = crc32c(digest, &group->liveness.heartbeat_interval_ns,
			sizeof(group->liveness.heartbeat_interval_ns));
	}
	return group->joining.fabric ? crc32c(digest, "fabric", strlen("fabric")) : digest;
}

/* Writes the i-th name of PAWL_SERVERS, which has more than i. */
static void copy_server_name(uint32_t i, char *name)
{
	const char *text = list_servers();

	for (; i > 0; i--) {
		text += strcspn(text, ",");
		text += *text == ',';
	}
	snprintf(name, COLL_TCP_NAME, "%.*s", (int)strcspn(text, ","), text);
}

/* ---- opening ---- */

/* Listens where others can reach this rank, and writes the name for its endpoint; "-": nowhere. */
static int open_network(struct pawl_group *group, const char *route_hint, char *name,
	struct pawl_err *err)
{
	char address[ADDRESS_MAX];
	int rv;

	if (!route_hint || group->ranks == 1) {
		snprintf(name, ENDPOINT_NET, "-");
		return 0;
	}
	rv = address_find(route_hint, address, err);
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "collectives");
	}
	return group->joining.fabric
		? coll_fabric_open(&group->joining.net, group->rank, group->peers, address, name,
			  err)
		: coll_tcp_open(&group->joining.net, group->rank, group->peers, address, name, err);
}

int group_open(struct pawl_group **out, uint32_t rank, uint32_t ranks, uint32_t servers,
	const char *route_hint, char *endpoint, struct pawl_err *err)
{
	struct pawl_group *group = NULL;
	struct coll_endpoint ours;
	int rv;

	if (rank >= ranks || ranks > COLL_RANKS_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "collectives: rank %u of %u; %u at most",
			rank, ranks, COLL_RANKS_MAX);
	}
	rv = coll_group_make(&group, rank, ranks, servers, err);
	if (rv == 0 && route_hint) {
		group->route_hint = FAULT_MEM("coll.group", strdup(route_hint));
		rv = group->route_hint ? 0
				       : pawl_err_set(err, PAWL_ENOMEM, "no memory for a group");
	}
	if (rv == 0) {
		rv = read_link(group, err);
	}
	if (rv == 0) {
		rv = read_transport(group, err);
	}
	if (rv == 0) {
		rv = get_host_id(ours.host_id, err);
	}
	if (rv == 0) {
		rv = coll_shm_open(&group->joining.shm, rank, ranks, ours.shm, err);
	}
	if (rv == 0) {
		rv = open_network(group, route_hint, ours.net, err);
	}
	if (rv != 0) {
		pawl_group_close(group);
		return rv;
	}
	get_hostname(ours.hostname);
	ours.settings = digest_settings(group);
	coll_endpoint_encode(endpoint, &ours);
	*out = group;
	return 0;
}

int pawl_group_open(struct pawl_group **out, uint32_t rank, uint32_t ranks, const char *route_hint,
	char *endpoint, struct pawl_err *err)
{
	uint32_t servers = 0;
	int rv = route_hint && ranks > 1 ? count_servers(&servers, err) : 0;

	return rv == 0 ? group_open(out, rank, ranks, servers, route_hint, endpoint, err) : rv;
}

/* The endpoints of all ranks, decoded, and what follows from them. */
struct endpoints {
	struct coll_endpoint *at; /* owned; one per rank */
	uint32_t *where;          /* owned; per rank, the lowest rank on its host */
	/* Owned; per peer, its name if it is reached by that transport, else NULL. */
	const char **shm, **net;
	bool *local;                  /* owned; per peer: on our host */
	uint32_t locals;              /* number of ranks on our host */
	char (*sides)[COLL_TCP_NAME]; /* owned; per server, the name of its side */
};

static void free_endpoints(struct endpoints *endpoints)
{
	free(endpoints->at);
	free(endpoints->where);
	free(endpoints->shm);
	free(endpoints->net);
	free(endpoints->local);
	free(endpoints->sides);
}

static int make_endpoints(struct endpoints *endpoints, const struct pawl_group *group,
	struct pawl_err *err)
{
	uint32_t ranks = group->ranks;
	uint32_t peers = group->peers;

	endpoints->at = FAULT_MEM("coll.group", calloc(ranks, sizeof(*endpoints->at)));
	endpoints->where = FAULT_MEM("coll.group", calloc(ranks, sizeof(*endpoints->where)));
	endpoints->shm = FAULT_MEM("coll.group", calloc(peers, sizeof(*endpoints->shm)));
	endpoints->net = FAULT_MEM("coll.group", calloc(peers, sizeof(*endpoints->net)));
	endpoints->local = FAULT_MEM("coll.group", calloc(peers, sizeof(*endpoints->local)));
	endpoints->sides = FAULT_MEM("coll.group", calloc(peers, sizeof(*endpoints->sides)));
	return endpoints->at && endpoints->where && endpoints->shm && endpoints->net &&
			endpoints->local && endpoints->sides
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", ranks);
}

static int read_endpoints(struct endpoints *endpoints, const struct pawl_group *group,
	const char *const *texts, struct pawl_err *err)
{
	int rv = make_endpoints(endpoints, group, err);

	for (uint32_t r = 0; r < group->ranks && rv == 0; r++) {
		rv = coll_endpoint_decode(texts[r], r, &endpoints->at[r], err);
		if (rv == 0 && endpoints->at[r].settings != digest_settings(group)) {
			rv = pawl_err_set(err, PAWL_EINVAL,
				"collectives: ranks %u and %u differ in servers, link, transport "
				"or heartbeat: PAWL_SERVERS, PAWL_LINK, PAWL_TRANSPORT "
				"and PAWL_HEARTBEAT must be the same",
				group->rank, r);
		}
		while (rv == 0 &&
			strcmp(endpoints->at[endpoints->where[r]].host_id,
				endpoints->at[r].host_id) != 0) {
			endpoints->where[r]++;
		}
	}
	for (uint32_t r = 0; r < group->ranks && rv == 0; r++) {
		endpoints->local[r] = endpoints->where[r] == endpoints->where[group->rank];
		endpoints->locals += endpoints->local[r];
		endpoints->shm[r] = endpoints->local[r] ? endpoints->at[r].shm : NULL;
		endpoints->net[r] = endpoints->local[r] ? NULL : endpoints->at[r].net;
		if (!endpoints->local[r] &&
			(strcmp(endpoints->net[r], "-") == 0 || !group->joining.net)) {
			rv = pawl_err_set(err, PAWL_ENOTSUP,
				"collectives: ranks %u and %u are on different hosts (or "
				"containers), and have no network between them: PAWL_IFNAME names "
				"an interface",
				group->rank, r);
		}
	}
	return rv;
}

/* Keeps the hostnames, for messages about ranks, unless all ranks are on one host. */
static int keep_hostnames(struct pawl_group *group, const struct endpoints *endpoints,
	struct pawl_err *err)
{
	if (endpoints->locals == group->ranks) {
		return 0;
	}
	group->hostnames = FAULT_MEM("coll.group", calloc(group->ranks, sizeof(*group->hostnames)));
	if (!group->hostnames) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", group->ranks);
	}
	for (uint32_t r = 0; r < group->ranks; r++) {
		memcpy(group->hostnames[r], endpoints->at[r].hostname, ENDPOINT_HOSTNAME);
	}
	return 0;
}

/* Asks each server to make its side of the group, by a number that only the group's ranks know.
 * Without a network there are no servers. */
static int ask_servers(struct pawl_group *group, struct endpoints *endpoints, int64_t timeout_ns,
	struct pawl_err *err)
{
	struct coll_ask ask = {.rank = group->rank,
		.ranks = group->ranks,
		.servers = group->servers,
		.where = endpoints->where};
	char name[COLL_TCP_NAME];
	struct addrinfo *at = NULL;
	int rv = 0;

	if (endpoints->locals == group->ranks) {
		group->servers = 0;
		group->peers = group->ranks;
	}
	if (group->servers > 0 && coll_tcp_parse(endpoints->at[0].net, &at, &ask.group) != 0) {
		return pawl_err_set(err, PAWL_EINVAL, "collectives: rank 0 is said to be at %s",
			endpoints->at[0].net);
	}
	if (at) {
		freeaddrinfo(at);
	}
	for (; ask.server < group->servers && rv == 0; ask.server++) {
		copy_server_name(ask.server, name);
		rv = coll_serve_ask(name, &ask, timeout_ns, endpoints->sides[ask.server], err);
		endpoints->net[group->ranks + ask.server] = endpoints->sides[ask.server];
	}
	return rv;
}

static void drop_transport(struct coll_transport **transport)
{
	if (*transport) {
		(*transport)->close(*transport);
	}
	*transport = NULL;
}

/* Joins the group's transport: shared memory, network, or both. Closes one that is not needed. */
static int join_transports(struct pawl_group *group, const struct endpoints *endpoints,
	int64_t timeout_ns, struct coll_transport **transport, struct pawl_err *err)
{
	int events;
	int rv = 0;

	if (endpoints->locals > 1 || group->ranks == 1) {
		rv = coll_shm_join(group->joining.shm, endpoints->shm, err);
	} else {
		drop_transport(&group->joining.shm);
	}
	if (endpoints->locals == group->ranks) {
		drop_transport(&group->joining.net);
	} else if (rv == 0) {
		rv = group->joining.fabric
			? coll_fabric_join(group->joining.net, endpoints->net, timeout_ns, NULL,
				  err)
			: coll_tcp_join(group->joining.net, endpoints->net, timeout_ns, NULL, err);
	}
	if (rv != 0) {
		return rv;
	}
	if (group->joining.shm && group->joining.net) {
		events = group->joining.fabric ? coll_fabric_events(group->joining.net)
					       : coll_tcp_events(group->joining.net);
		rv = coll_mixed_open(transport, group->joining.shm, group->joining.net, events,
			endpoints->local, group->peers, err);
	} else {
		*transport = group->joining.shm ? group->joining.shm : group->joining.net;
	}
	group->joining.shm = group->joining.net = NULL; /* owned by *transport now */
	return rv;
}

int pawl_group_join(struct pawl_group *group, const char *const *endpoints, int64_t timeout_ns,
	struct pawl_err *err)
{
	struct endpoints all = {0};
	struct coll_transport *transport;
	int rv = read_endpoints(&all, group, endpoints, err);

	if (rv == 0) {
		rv = keep_hostnames(group, &all, err);
	}
	if (rv == 0) {
		rv = ask_servers(group, &all, timeout_ns, err);
	}
	if (rv == 0) {
		rv = join_transports(group, &all, timeout_ns, &transport, err);
	}
	if (rv == 0) {
		rv = coll_group_start(group, transport, all.where, err);
	}
	if (rv == 0) {
		group_trace_open(group, endpoints);
	}
	free_endpoints(&all);
	return rv;
}

int group_join_barrier(struct pawl_group *group, const char *const *endpoints, int64_t timeout_ns,
	struct pawl_err *err)
{
	const struct pawl_coll_call barrier = {.kind = PAWL_BARRIER, .timeout_ns = timeout_ns};
	struct pawl_work work;
	int rv = pawl_group_join(group, endpoints, timeout_ns, err);

	if (rv == 0) {
		rv = pawl_group_submit(group, &work, &barrier, err);
	}
	return rv == 0 ? pawl_group_wait(group, &work, -1, err) : rv;
}
