/* The coordinator's side of hosts that only add (servers): see nodes.h. */
#include "launch/nodes/nodes_impl.h"

#include <stdio.h>
#include <string.h>

static struct nodes_server *find_conn(struct nodes *n, uint32_t conn)
{
	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		if (n->servers[s].in && n->servers[s].conn == conn) {
			return &n->servers[s];
		}
	}
	return NULL;
}

uint32_t nodes_servers_in(const struct nodes *n)
{
	uint32_t count = 0;

	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		count += n->servers[s].in;
	}
	return count;
}

uint32_t nodes_servers_missing(const struct nodes *n)
{
	return n->options.servers - nodes_servers_in(n);
}

static void lose(struct nodes *n, struct nodes_server *server, const char *why)
{
	server->in = false;
	if (n->role == NODES_LEADING) {
		nodes_lead_announce(n, true, NULL, "server %s is lost: %s", server->name, why);
		nodes_lead_lost(n, 0);
	} else {
		nodes_lead_closing(n);
	}
}

void nodes_serve_join(struct nodes *n, uint32_t conn, const struct node_frame *serve)
{
	const struct node_frame welcome = {.kind = NODE_WELCOME, .beat_ns = n->beat_ns};
	struct nodes_server *place = NULL;

	for (uint32_t s = NODE_SERVERS_MAX; s-- > 0;) {
		struct nodes_server *server = &n->servers[s];

		if (server->in && server->who == serve->who) {
			n->options.ops->close(n->options.user, server->conn);
			lose(n, server, "it has come again");
		}
		place = server->in ? place : server;
	}
	if (n->options.servers == 0) {
		nodes_lead_refuse(n, conn, true, "the job wants no servers: pawl run --servers K");
		return;
	}
	if (n->role != NODES_LEADING) {
		nodes_lead_refuse(n, conn, false, "the job is ending");
		return;
	}
	if (nodes_servers_missing(n) == 0) {
		nodes_lead_refuse(n, conn, false, "the job has its servers");
		return;
	}
	*place = (struct nodes_server){.in = true,
		.conn = conn,
		.who = serve->who,
		.heard_ns = n->now_ns};
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
	server->heard_ns = n->now_ns;
	if (frame->kind != NODE_BEAT) {
		n->options.ops->close(n->options.user, conn);
		lose(n, server, "it says what no server says");
	}
	return true;
}

bool nodes_serve_closed(struct nodes *n, uint32_t conn, const char *why)
{
	struct nodes_server *server = find_conn(n, conn);

	if (server != NULL) {
		lose(n, server, why);
	}
	return server != NULL;
}

void nodes_serve_tell(struct nodes *n, const struct node_frame *frame)
{
	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		if (n->servers[s].in) {
			n->options.ops->send(n->options.user, n->servers[s].conn, frame);
		}
	}
}

void nodes_serve_beat(struct nodes *n)
{
	const struct node_frame beat = {.kind = NODE_BEAT};
	char why[64];

	nodes_serve_tell(n, &beat);
	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		struct nodes_server *server = &n->servers[s];

		if (server->in && n->now_ns - server->heard_ns > NODES_SILENT * n->beat_ns) {
			snprintf(why, sizeof(why), "not a sign of it for %.1f s",
				(double)(n->now_ns - server->heard_ns) / 1e9);
			n->options.ops->close(n->options.user, server->conn);
			lose(n, server, why);
		}
	}
}

void nodes_serve_drop(struct nodes *n)
{
	for (uint32_t s = 0; s < NODE_SERVERS_MAX; s++) {
		if (n->servers[s].in) {
			n->servers[s].in = false;
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
		if (n->servers[s].in) {
			len += (size_t)snprintf(text + len, NODE_TEXT_MAX - len, "%s%s",
				len > 0 ? "," : "", n->servers[s].name);
		}
	}
}
