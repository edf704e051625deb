/* What the parts of nodes.c share: see nodes.h. */
#ifndef AGENT_NODES_IMPL_H
#define AGENT_NODES_IMPL_H

#include "agent/nodes.h"

/* ---- nodes.c ---- */

/* The policy's turn: what it decides is carried out, here and at the members. */
void nodes_decide(struct nodes *nodes, struct run_event event);
/* A signal, which a node was sent; signaled_ns: when it was first sent one, 0: never. */
void nodes_signal(struct nodes *nodes, int64_t *signaled_ns, int signal);
/* Does it, where another has decided. */
void nodes_carry_out(struct nodes *nodes, unsigned actions);
__attribute__((format(printf, 3, 4))) void nodes_say(struct nodes *nodes, bool bad, const char *fmt,
	...);
/* Our workers of a new generation. */
void nodes_start_own(struct nodes *nodes, const struct node_frame *start);
void nodes_exit(struct nodes *nodes);

/* ---- nodes_lead.c: the coordinator ---- */

/* Coordinates from now on, alone at first. */
void nodes_lead(struct nodes *nodes);
void nodes_lead_frame(struct nodes *nodes, uint32_t conn, const struct node_frame *frame);
void nodes_lead_closed(struct nodes *nodes, uint32_t conn, const char *why);
/* A worker of ours. */
void nodes_lead_exited(struct nodes *nodes, const struct nodes_event *event);
/* There are to be more or fewer of ours. */
void nodes_lead_scaled(struct nodes *nodes, const struct nodes_event *event);
void nodes_lead_add(struct nodes *nodes); /* as the policy has decided */
/* Goes on if all agents have answered. */
void nodes_lead_drained(struct nodes *nodes);
/* An earlier place answers: two who coordinate are one too many, so this one joins there. */
void nodes_lead_probed(struct nodes *nodes, uint32_t conn);
void nodes_lead_tick(struct nodes *nodes);
/* Starts the group, if all are there; else (wait) says who is missing. */
void nodes_lead_wait(struct nodes *nodes);
void nodes_lead_gather(struct nodes *nodes);
/* Nodes did not come in time. */
void nodes_lead_late(struct nodes *nodes);
void nodes_lead_start(struct nodes *nodes);
void nodes_lead_tell(struct nodes *nodes, const struct node_frame *frame); /* all members */
void nodes_lead_finish(struct nodes *nodes);

/* ---- nodes_serve.c: the coordinator's servers ---- */

uint32_t nodes_servers_in(const struct nodes *nodes);
uint32_t nodes_servers_missing(const struct nodes *nodes);
/* A connection says that it is one. */
void nodes_serve_join(struct nodes *nodes, uint32_t conn, const struct node_frame *serve);
/* Whether the connection is a server's, which this is for. */
bool nodes_serve_frame(struct nodes *nodes, uint32_t conn, const struct node_frame *frame);
bool nodes_serve_closed(struct nodes *nodes, uint32_t conn, const char *why);
void nodes_serve_beat(struct nodes *nodes); /* and who is silent is lost */
void nodes_serve_tell(struct nodes *nodes, const struct node_frame *frame);
/* None is ours any more: they look for whoever coordinates. */
void nodes_serve_drop(struct nodes *nodes);
/* PAWL_SERVERS, of NODE_TEXT_MAX bytes. */
void nodes_serve_list(const struct nodes *nodes, char *text);
/* ---- nodes_lead.c, for it ---- */

/* Said here, and at all members but one (NULL: none), who knows. */
__attribute__((format(printf, 4, 5))) void nodes_lead_announce(struct nodes *nodes, bool bad,
	const struct nodes_member *but, const char *fmt, ...);
/* Tells a connection that it is not taken, and closes it. */
__attribute__((format(printf, 4, 5))) void nodes_lead_refuse(struct nodes *nodes, uint32_t conn,
	bool final, const char *fmt, ...);
/* Someone is lost, with so many workers that had not ended. */
void nodes_lead_lost(struct nodes *nodes, uint32_t alive);
/* All who were told of the end may have closed. */
void nodes_lead_closing(struct nodes *nodes);

/* ---- nodes_join.c: the others ---- */

void nodes_seek(struct nodes *nodes);
/* Wants to be a member of whoever answers at nodes->place. */
void nodes_join(struct nodes *nodes, uint32_t conn);
void nodes_join_frame(struct nodes *nodes, const struct node_frame *frame);
void nodes_join_closed(struct nodes *nodes, const char *why);
void nodes_join_exited(struct nodes *nodes, const struct nodes_event *event);
void nodes_join_tick(struct nodes *nodes);
void nodes_join_late(struct nodes *nodes);

#endif
