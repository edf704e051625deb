/*
 * A worker's end of the connection to its agent: calls with replies, events, and the news that the
 * agent is gone.
 *
 * One thread of the link receives. Calls may come from any thread. The event callback runs on the
 * receiving thread and must not call back into the link, but for link_send.
 */
#ifndef IPC_LINK_H
#define IPC_LINK_H

#include "ipc/proto.h"

#include <stdbool.h>

struct link;

/* A reply, in memory that the caller keeps from call to call. Zero-initialise. */
struct link_reply {
	uint16_t type;          /* PROTO_… */
	struct wire_out bytes;  /* body; owned by the reply */
	int fds[PROTO_FDS_MAX]; /* descriptors; the caller closes them */
	uint32_t fds_n;         /* number of entries in fds */
};

/* A request that waits for its reply. The link keeps its address until link_await returns. */
struct link_call {
	uint32_t id;              /* request id */
	bool done;                /* reply is filled */
	bool failed;              /* no memory for the reply */
	struct link_reply *reply; /* the caller's; filled once done */
	struct link_call *next;   /* next in the link's list */
};

/* frame: an event; NULL: the agent is gone, and nothing more will come. */
typedef void link_event_fn(void *user, struct proto_frame *frame);

int link_open(struct link **out, const char *socket_path, link_event_fn *event, void *user,
	struct pawl_err *err);
/* Ends the connection; calls in progress fail. NULL is fine. */
void link_close(struct link *link);
bool link_alive(struct link *link);
/* Starts a frame of type in out (emptied first) with a fresh id; the caller appends the body. */
size_t link_start(struct link *link, struct wire_out *out, enum proto_type type);
/* Ends the frame begun at start and sends it, without waiting for a reply. */
int link_send(struct link *link, struct wire_out *out, size_t start, struct pawl_err *err);
/* Sends the frame as a request; unless that fails, link_await must follow, or the link's end. */
int link_ask(struct link *link, struct link_call *call, struct wire_out *out, size_t start,
	struct link_reply *reply, struct pawl_err *err);
/* Waits for the reply (timeout_ms -1: for ever). An ERROR reply comes back as its code, in err.
 * Otherwise returns 0 and fills the reply; in reads through its body. */
int link_await(struct link *link, struct link_call *call, int timeout_ms, struct wire_in *in,
	struct pawl_err *err);
/* Calls link_ask, then link_await. */
int link_call(struct link *link, struct wire_out *out, size_t start, int timeout_ms,
	struct link_reply *reply, struct wire_in *in, struct pawl_err *err);
void link_reply_close(struct link_reply *reply); /* closes the reply's descriptors */
void link_reply_deinit(struct link_reply *reply);

#endif
