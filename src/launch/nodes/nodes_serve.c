/* The coordinator's side of hosts that only add (servers): see nodes.h. */
#include "launch/nodes/nodes_impl.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

static struct nodes_server *find_conn(struct nodes *n, uint32_t conn)
{
	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		if (n->servers[s].joined && n->servers[s].conn == conn) {
			return &n->servers[s];
		}
	}
	return NULL;
}

uint32_t nodes_servers_joined(const struct nodes *n)
{
	uint32_t count = 0;

	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		count += n->servers[s].joined;
	}
	return count;
}

uint32_t nodes_servers_missing(const struct nodes *n)
{
	uint32_t joined = nodes_servers_joined(n);

	ASSERT(joined <= n->options.servers);
	return n->options.servers - joined;
}

static void remove_server(struct nodes *n, struct nodes_server *server, const char *why)
{
	server->joined = false;
	if (n->role == NODES_LEADING) {
		nodes_lead_announce(n, true, NULL, "server %s is lost: %s", server->name, why);
		nodes_lead_lost(n, 0);
	} else {
		nodes_lead_try_exit(n);
	}
}

void nodes_serve_join(struct nodes *n, uint32_t conn, const struct node_frame *serve)
{
	const struct node_frame welcome = {.kind = NODE_WELCOME,
		.heartbeat_interval_ns = n->heartbeat_interval_ns};
	struct nodes_server *place = NULL;

	for (uint32_t s = NODE_SERVERS_MAX; s-- > 0;) {
		struct nodes_server *server = &n->servers[s];

		if (server->joined && server->instance_id == serve->instance_id) {
			n->options.ops->close(n->options.user, server->conn);
			remove_server(n, server, "it has joined again");
		}
		place = server->joined ? place : server;
	}
	if (n->options.servers == 0) {
		nodes_lead_refuse(n, conn, true,
			"the job uses no servers: start it with pawl run --servers K");
		return;
	}
	if (n->role != NODES_LEADING) {
		nodes_lead_refuse(n, conn, false, "the job is ending");
		return;
	}
	if (nodes_servers_missing(n) == 0) {
		nodes_lead_refuse(n, conn, false, "the job already has its servers");
		return;
	}
	ASSERT(place != NULL); /* fewer than options.servers have joined */
	*place = (struct nodes_server){.joined = true,
		.conn = conn,
		.instance_id = serve->instance_id,
		.last_received_ns = n->now_ns};
	snprintf(place->name, sizeof(place->name), "%.*s", (int)sizeof(place->name) - 1,
		serve->text);
	n->options.ops->send(n->options.user, conn, &welcome);
	nodes_lead_wait(n);
}

bool nodes_serve_frame(struct nodes *n, uint32_t conn, const struct node_frame *frame)
{
	struct nodes_server *server = find_conn(n, conn);

	if (server == NULL) {
		return false;
	}
	server->last_received_ns = n->now_ns;
	if (frame->kind != NODE_HEARTBEAT) {
		n->options.ops->close(n->options.user, conn);
		remove_server(n, server, "it sent a frame that no server sends");
	}
	return true;
}

bool nodes_serve_closed(struct nodes *n, uint32_t conn, const char *why)
{
	struct nodes_server *server = find_conn(n, conn);

	if (server != NULL) {
		remove_server(n, server, why);
	}
	return server != NULL;
}

void nodes_serve_broadcast(struct nodes *n, const struct node_frame *frame)
{
	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		if (n->servers[s].joined) {
			n->options.ops->send(n->options.user, n->servers[s].conn, frame);
		}
	}
}

void nodes_serve_heartbeat(struct nodes *n)
{
	const struct node_frame heartbeat = {.kind = NODE_HEARTBEAT};
	char why[64];

	nodes_serve_broadcast(n, &heartbeat);
	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		struct nodes_server *server = &n->servers[s];

		if (server->joined &&
			n->now_ns - server->last_received_ns >
				NODES_HEARTBEATS_MISSED * n->heartbeat_interval_ns) {
			snprintf(why, sizeof(why), "no heartbeat for %.1f s",
				(double)(n->now_ns - server->last_received_ns) / 1e9);
			n->options.ops->close(n->options.user, server->conn);
			remove_server(n, server, why);
		}
	}
}

void nodes_serve_drop(struct nodes *n)
{
	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		if (n->servers[s].joined) {
			n->servers[s].joined = false;
			n->options.ops->close(n->options.user, n->servers[s].conn);
		}
	}
}

void nodes_serve_list(const struct nodes *n, char *text)
{
	size_t len = 0;

	_Static_assert(NODE_SERVERS_MAX * NODE_SERVER_MAX < NODE_TEXT_MAX, "a list is too long");
	text[0] = '\0';
	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		if (n->servers[s].joined) {
			len += (size_t)snprintf(text + len, NODE_TEXT_MAX - len, "%s%s",
				len > 0 ? "," : "", n->servers[s].name);
		}
	}
}
