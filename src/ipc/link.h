/*
 * A worker's end of the connection to its agent: calls with replies, events, and notice that the
 * agent is gone.
 *
 * One thread of the link receives. Calls may come from any thread that has a reference: the opener
 * has one until link_close, others take theirs with link_hold while nobody can close the link. The
 * event callback runs on the receiving thread and must not call back into the link, but for
 * link_send.
 */
#ifndef IPC_LINK_H
#define IPC_LINK_H

#include "ipc/frames.h"

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

/* event: the body of an event; NULL: the agent is gone, and nothing more will come. Events of types
 * that this version does not know are dropped. */
typedef void link_event_fn(void *user, struct link *link, uint16_t type,
	const union frame_event *event);

int link_open(struct link **out, const char *socket_path, link_event_fn *event, void *user,
	struct pawl_err *err);
/* Ends the connection, waits for the receiving thread, and gives the opener's reference up. Other
 * threads' calls in progress fail. NULL is fine. */
void link_close(struct link *link);
/* Takes a reference: memory and descriptor stay until link_release. Returns link. */
struct link *link_hold(struct link *link);
void link_release(struct link *link);
bool link_alive(struct link *link);
/* Sends a frame, without waiting for a reply. out: memory to build it in, which the caller keeps
 * from frame to frame. body: see frame_encode. */
int link_send(struct link *link, struct wire_out *out, enum proto_type type, const void *body,
	struct pawl_err *err);
/* Sends a frame as a request; unless that fails, link_await must follow, or the link's end. */
int link_request(struct link *link, struct link_call *call, struct wire_out *out,
	enum proto_type type, const void *body, struct link_reply *reply, struct pawl_err *err);
/* Waits for the reply (timeout_ms -1: for ever). An ERROR reply comes back as its code, in err.
 * Otherwise returns 0, with the reply filled. */
int link_await(struct link *link, struct link_call *call, int timeout_ms, struct pawl_err *err);
/* Calls link_request, then link_await. */
int link_call(struct link *link, struct wire_out *out, enum proto_type type, const void *body,
	int timeout_ms, struct link_reply *reply, struct pawl_err *err);
/* Reads the body of a reply, which must be of that type, into a struct of size_bytes; blobs point
 * into the reply. PAWL_ECORRUPT: the reply is of another type, or malformed. */
int link_reply_get(const struct link_reply *reply, enum proto_type type, void *body,
	size_t size_bytes, struct pawl_err *err);
void link_reply_close(struct link_reply *reply); /* closes the reply's descriptors */
void link_reply_deinit(struct link_reply *reply);

#endif
