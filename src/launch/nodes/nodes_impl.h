/* Shared by the parts of nodes.c: see nodes.h. */
#ifndef LAUNCH_NODES_NODES_IMPL_H
#define LAUNCH_NODES_NODES_IMPL_H

#include "launch/nodes/nodes.h"

/* ---- nodes.c ---- */

/* Hands an event to the policy, and carries out what it decides, here and at the members. */
void nodes_decide(struct nodes *nodes, struct run_event event);
/* Handles a signal that was sent to a node; *signaled_ns: time of the first one there, 0: none. */
void nodes_signal(struct nodes *nodes, int64_t *signaled_ns, int signal);
/* Carries out run_action bits. */
void nodes_carry_out(struct nodes *nodes, unsigned actions);
__attribute__((format(printf, 3, 4))) void nodes_log(struct nodes *nodes, bool is_error,
	const char *fmt, ...);
/* Starts this node's workers of a new generation. */
void nodes_start_own(struct nodes *nodes, const struct node_frame *start);
void nodes_exit(struct nodes *nodes);

/* ---- nodes_lead.c: the coordinator ---- */

/* Becomes the coordinator, alone at first. */
void nodes_lead(struct nodes *nodes);
void nodes_lead_frame(struct nodes *nodes, uint32_t conn, const struct node_frame *frame);
void nodes_lead_closed(struct nodes *nodes, uint32_t conn, const char *why);
/* A worker of this node ended. */
void nodes_lead_exited(struct nodes *nodes, const struct nodes_event *event);
/* The next start of this node, the job's only one, has that many workers. */
void nodes_lead_resize(struct nodes *nodes, uint32_t workers);
/* The number of workers on this node is to change. */
void nodes_lead_scaled(struct nodes *nodes, const struct nodes_event *event);
void nodes_lead_add(struct nodes *nodes); /* adds the workers that the policy decided on */
/* Goes on if all agents have answered. */
void nodes_lead_drained(struct nodes *nodes);
/* An earlier place answers: this coordinator gives up its place and joins there. */
void nodes_lead_probed(struct nodes *nodes, uint32_t conn);
void nodes_lead_tick(struct nodes *nodes);
/* Both start the group if all nodes and servers have joined; nodes_lead_wait else logs who is
 * missing. */
void nodes_lead_wait(struct nodes *nodes);
void nodes_lead_gather(struct nodes *nodes);
/* Logs that nodes did not join in time. */
void nodes_lead_log_timeout(struct nodes *nodes);
void nodes_lead_start(struct nodes *nodes);
void nodes_lead_broadcast(struct nodes *nodes, const struct node_frame *frame); /* to all members */
void nodes_lead_finish(struct nodes *nodes);
/* Closes the connections to all members and servers. */
void nodes_lead_disband(struct nodes *nodes);
/* The ranks of a node have answered a question, as the frame of kind NODE_POLLED says. */
void nodes_lead_polled(struct nodes *nodes, const struct nodes_member *member,
	const struct node_frame *frame);
/* The machine of a node may go away: has the agents of all other nodes save soon. */
void nodes_lead_advised(struct nodes *nodes, const struct nodes_member *member,
	const struct node_frame *frame);
/* The machine of a node goes away, as the frame of kind NODE_SIGNAL says. */
void nodes_lead_machine_goes(struct nodes *nodes, struct nodes_member *member,
	const struct node_frame *frame);
/* Has the nodes that depart exit, this one among them if it does. */
void nodes_lead_dismiss(struct nodes *nodes);

/* ---- nodes_members.c: the coordinator's list of members ---- */

uint32_t nodes_count_joined(const struct nodes *nodes);
/* Whether a node is left whose machine does not go away. */
bool nodes_has_staying(const struct nodes *nodes);
/* Returns the member with that node rank; NULL: there is none. */
struct nodes_member *nodes_find_member(struct nodes *nodes, uint32_t node);
/* Writes "node 1 (10.79.0.2)", or "node 10.79.0.2" before it has a rank. */
void nodes_name_member(const struct nodes_member *member, char *name, size_t cap_bytes);
/* Writes "10.79.0.1 (2 workers), 10.79.0.2 (2 workers)". */
void nodes_list_members(const struct nodes *nodes, char *text, size_t cap_bytes);
/* Writes " (node 1, which was 10.79.0.2)": the nodes that were members before and are missing. */
void nodes_list_missing(const struct nodes *nodes, char *text, size_t cap_bytes);
/* Assigns node ranks: first those wanted, then those of the last generation, then free ones in
 * order of arrival. */
void nodes_settle_ranks(struct nodes *nodes);

/* ---- nodes_serve.c: the coordinator's servers ---- */

uint32_t nodes_servers_joined(const struct nodes *nodes);
uint32_t nodes_servers_missing(const struct nodes *nodes);
/* Handles NODE_SERVE: the peer is a server. */
void nodes_serve_join(struct nodes *nodes, uint32_t conn, const struct node_frame *serve);
/* Handles a frame of a server. Returns false if the connection is not a server's. */
bool nodes_serve_frame(struct nodes *nodes, uint32_t conn, const struct node_frame *frame);
bool nodes_serve_closed(struct nodes *nodes, uint32_t conn, const char *why);
void nodes_serve_heartbeat(struct nodes *nodes); /* sends heartbeats; drops silent servers */
void nodes_serve_broadcast(struct nodes *nodes, const struct node_frame *frame);
/* Drops all servers; they then look for the next coordinator. */
void nodes_serve_drop(struct nodes *nodes);
/* Writes PAWL_SERVERS into text, of NODE_TEXT_MAX bytes. */
void nodes_serve_list(const struct nodes *nodes, char *text);
/* ---- nodes_lead.c, for nodes_serve.c ---- */

/* Logs a line here and at all members but except, which has logged it (NULL: no exception). */
__attribute__((format(printf, 4, 5))) void nodes_lead_announce(struct nodes *nodes, bool is_error,
	const struct nodes_member *except, const char *fmt, ...);
/* Sends a refusal, and closes the connection. */
__attribute__((format(printf, 4, 5))) void nodes_lead_refuse(struct nodes *nodes, uint32_t conn,
	bool final, const char *fmt, ...);
/* A member or server is lost, with alive workers that had not ended. */
void nodes_lead_lost(struct nodes *nodes, uint32_t alive);
/* Exits once all members and servers have closed after NODE_EXIT. */
void nodes_lead_try_exit(struct nodes *nodes);

/* ---- nodes_join.c: the other nodes ---- */

void nodes_seek(struct nodes *nodes);
/* Asks the coordinator at nodes->place to become a member. */
void nodes_join(struct nodes *nodes, uint32_t conn);
void nodes_join_frame(struct nodes *nodes, const struct node_frame *frame);
void nodes_join_closed(struct nodes *nodes, const char *why);
void nodes_join_exited(struct nodes *nodes, const struct nodes_event *event);
void nodes_join_tick(struct nodes *nodes);
void nodes_join_log_timeout(struct nodes *nodes);

#endif
