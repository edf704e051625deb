/*
 * Shared by the parts of a group: see group.c.
 *
 * Locks, in order: driving (guards the port, plans, talk and what is under way; the thread that
 * holds it moves bytes), then state (guards queues, counts and failure; never held across a call to
 * the port, except wake).
 */
#ifndef COLL_GROUP_GROUP_IMPL_H
#define COLL_GROUP_GROUP_IMPL_H

#include "base/clock.h"
#include "coll/group/control.h"
#include "coll/group/group.h"
#include "coll/group/group_call.h"
#include "coll/plan/cost.h"
#include "coll/plan/exec.h"
#include "coll/transport/endpoint.h"

#include <pthread.h>
#include <sys/types.h>

#define GROUP_SLOTS    16u       /* plans that are kept, each with memory for an operation */
#define NEVER_NS       INT64_MAX /* no deadline */
#define GROUP_PREFIXES 16u       /* collectives of which the beginnings of headers are kept */

/* The headers that precede the bytes of a collective, between each two ranks that exchange some; in
 * an all-to-all, between all. By them ranks know that they do the same. */
struct group_header {
	uint8_t bytes[GROUP_HEADER_BYTES]; /* header of the peer */
	uint8_t got;                       /* bytes of the peer's header received */
	uint8_t sent;                      /* bytes of our header sent */
	bool incoming, outgoing;           /* a header comes from the peer; one goes to it */
	int64_t sending_ns;                /* time that it was the peer's turn to be sent to */
	int64_t from_ns, to_ns;            /* beginning of the first turn; end of the last */
};

/* The times of an operation, by the clock of now_ns; each is no earlier than the one before. */
struct group_times {
	int64_t begun_ns;        /* time at which a driver took the operation up */
	int64_t all_begun_ns;    /* time at which the last peer's header had come */
	int64_t remote_ns;       /* time of the last byte from or to another host; 0: none yet */
	int64_t added_ns;        /* time spent adding, since together_ns */
	int64_t remote_added_ns; /* part of added_ns, until far_ns */
	uint32_t missing;        /* headers that have not come */
	uint32_t last; /* peer whose header came last; PAWL_ANY_RANK: none was waited for */
};

/* A plan, and the memory of an operation that is carried out by it. */
struct group_slot {
	struct pawl_coll_call call;    /* call that the plan was made for: kind, root and length */
	enum coll_algorithm algorithm; /* way that the plan was made for */
	struct coll_plan plan;         /* no plan yet while exec has none */
	struct coll_exec exec;         /* execution of the plan */
	struct group_header *headers;  /* owned; one per peer */
	uint32_t headers_left;         /* headers that have not come, or not gone */
	/* Our header, for any peer; at a server, the first rank's. */
	uint8_t header[GROUP_HEADER_BYTES];
	struct group_times times; /* times of the operation */
	uint8_t barrier_byte;     /* byte that a barrier reduces */
	bool busy;                /* in use by an operation */
	uint64_t last_used;       /* 1 + number of the operation that used it last */
};

/* The contents of priv in struct pawl_work. */
struct group_work {
	struct pawl_work *next;            /* next in the channel, in the inbox, or in messages */
	struct pawl_work *next_completion; /* next in told */
	struct group_slot *slot;           /* slot of a collective; NULL: it has not begun */
	int64_t submitted_ns;              /* time of submission */
	int64_t deadline_ns;               /* time at which it fails; NEVER_NS: none */
	uint32_t caller;                   /* rank that called; at a server, the first that did */
	uint32_t digest;                   /* digest of the collectives before */
	struct coll_message message;       /* the message, for PAWL_SEND and PAWL_RECEIVE */
};

/* Bytes for the name of a peer: "server 4294967295". */
#define PEER_TEXT 24u

struct group_server;
struct group_trace;

struct group_queue {
	struct pawl_work *first, *last;
};

/* The collective and the peer that bytes go to on another host now. */
struct group_turn {
	uint64_t number; /* number of the collective; UINT64_MAX: none */
	uint32_t peer;   /* peer that is sent to */
};

struct pawl_group {
	uint32_t rank, ranks;             /* this rank, or ranks + i at server i; number of ranks */
	uint32_t servers;                 /* number of servers; until start, of those asked for */
	uint32_t peers;                   /* number of ranks and servers */
	struct coll_topo topo;            /* owned; set by start */
	struct coll_link link;            /* network by which ways are chosen; equal at all ranks */
	struct coll_transport *transport; /* owned; NULL until start */
	struct group_server *server_state; /* owned; NULL except at a server */
	bool *gone;                        /* owned; per peer: it takes no part any more */
	char *route_hint;                  /* owned; toward of pawl_group_open, or NULL */
	/* Owned; per rank, the name of its host; NULL: all have one host. */
	char (*hostnames)[ENDPOINT_HOSTNAME];
	/* Shrinking: see group_shrink.c. */
	/* Group that was shrunk first, whose streams carry notes; or NULL. */
	struct pawl_group *base;
	uint32_t *base_rank; /* owned; per rank, its number in base */
	uint32_t round;      /* in a base: how often it was shrunk */
	/* Owned; or NULL. The next group with newcomers, if this one failed before we heard that
	 * all had joined that one: other ranks may have heard it. */
	struct pawl_group *grown;
	struct coll_transport *shm;    /* owned; NULL once it is part of port */
	struct coll_transport *net;    /* owned; NULL once it is part of port */
	bool fabric;                   /* net is libfabric's, else TCP's */
	pid_t pid;                     /* process that the group belongs to */
	int64_t heartbeat_interval_ns; /* time between heartbeats; 0: none are sent or expected */
	bool started;                  /* coll_group_start has succeeded */
	pthread_mutex_t driving;       /* guards the fields from here to state; taken before it */
	struct group_slot slots[GROUP_SLOTS];
	struct coll_control control; /* messages, heartbeats and notes */
	struct group_queue messages; /* messages under way */
	struct group_turn turn;      /* see struct group_turn */
	/* Beginning of our header of collective n, once it is taken up, at n modulo GROUP_PREFIXES;
	 * with number UINT64_MAX: none. */
	uint8_t prefixes[GROUP_PREFIXES][GROUP_PREFIX_BYTES];
	int64_t *last_received_ns; /* owned; per peer: when something came last */
	/* Last time that heartbeats were sent; that peers were checked. */
	int64_t last_heartbeat_ns, checked_ns;
	int64_t now_ns;        /* time at which the driver began to look, or finished something */
	pthread_mutex_t state; /* guards all fields from here on */
	pthread_cond_t over;   /* an operation is over, or a turn at driving */
	pthread_cond_t work;   /* wakes the group's thread */
	pthread_cond_t completed;                   /* wakes pawl_group_next_completion */
	struct group_queue channels[COLL_CHANNELS]; /* per channel: under way, then waiting */
	struct group_queue inbox;                   /* messages submitted, and not begun */
	struct group_queue completions; /* works that are done, for pawl_group_next_completion */
	struct pawl_kind_stats kinds[PAWL_COLLS]; /* totals by kind of operation */
	struct pawl_peer_stats *peer_stats;       /* owned; totals by peer */
	int64_t free_ns[COLL_CHANNELS];           /* per channel: when its last work was done */
	struct group_trace *trace;                /* owned; NULL: none is wanted */
	uint64_t submitted;                       /* collectives submitted, ever */
	uint32_t digest;                          /* digest of all collectives submitted */
	uint64_t messages_n;                      /* messages submitted, ever */
	uint32_t pending;                         /* operations that are not done */
	uint32_t waiters; /* threads in pawl_group_wait; the group's own leaves driving to them */
	bool driven;      /* a thread holds driving, or is about to */
	bool asleep;      /* the group's thread waits for work */
	bool unsent;      /* the port has bytes to send that wait for a driver */
	bool closing;     /* pawl_group_leave was called */
	struct pawl_err failure; /* why the group failed; code 0: it has not */
	pthread_t thread;        /* the group's own thread */
};

static inline struct group_work *priv_of(struct pawl_work *work)
{
	_Static_assert(sizeof(struct group_work) <= sizeof(work->priv), "priv is too small");
	return (struct group_work *)(void *)work->priv;
}

/* Returns whether a work is held: its memory is not ready. */
static inline bool group_work_deferred(const struct pawl_work *work)
{
	return __atomic_load_n(&work->deferred, __ATOMIC_ACQUIRE);
}

/* Returns the time of the port's clock, or monotonic time if the port has none, or is not there
 * yet. */
static inline int64_t group_clock_ns(const struct pawl_group *group)
{
	return group->transport && group->transport->now_ns
		? group->transport->now_ns(group->transport)
		: clock_mono_ns();
}

void group_push(struct group_queue *queue, struct pawl_work *work);

/* Returns whether bytes go between us and a peer: servers say nothing to each other. */
static inline bool group_connects_to(const struct pawl_group *group, uint32_t peer)
{
	return peer != group->rank && (peer < group->ranks || group->rank < group->ranks);
}

/* Returns whether a peer is on another host. */
static inline bool group_is_remote(const struct pawl_group *group, uint32_t peer)
{
	bool ranks = peer < group->ranks && group->rank < group->ranks;

	return !ranks || group->topo.host_of[peer] != group->topo.host_of[group->rank];
}

/* group_drive.c; all under driving */

/* Moves all that can be moved now; if that was nothing, waits for more, for wait_ns at most. */
void group_drive(struct pawl_group *group, int64_t wait_ns);
/* Ends an operation. Its memory may be the caller's again when this returns. */
void group_finish(struct pawl_group *group, struct pawl_work *work, int code);
/* Under state: reports that a work is done that is in no queue, and has its code and results. */
void group_report_done(struct pawl_group *group, struct pawl_work *work);
/* Ends the group, and with it all operations under way. */
void group_fail(struct pawl_group *group, const struct pawl_err *why);
/* Begins the messages that were submitted. */
void group_take_inbox(struct pawl_group *group);
/* Moves bytes beside those of collectives. Returns whether any moved. */
bool group_move_control(struct pawl_group *group);
/* Tells all peers that we live, and what we do. */
void group_heartbeat(struct pawl_group *group);
/* Returns how long a peer may be silent before it is lost; 0: for ever. */
int64_t group_peer_timeout_ns(const struct pawl_group *group);

/* group.c */

/* Under state: takes the turn at driving, which nobody else has; and gives it back, under state
 * again. */
void group_begin_turn(struct pawl_group *group);
void group_end_turn(struct pawl_group *group);

/* group_shrink.c */

/* Tells all ranks of the group, and of the ones that it was shrunk from, that this rank has gone on
 * in another group. A rank that shrinks follows to group->grown, or is left out. PAWL_ENOMEM. */
int group_notify_moved(struct pawl_group *group, struct pawl_err *err);

/* join.c */

/* Opens a group as pawl_group_open does, with `servers` servers of PAWL_SERVERS. */
int group_open(struct pawl_group **out, uint32_t rank, uint32_t ranks, uint32_t servers,
	const char *route_hint, char *endpoint, struct pawl_err *err);
/* Joins with all cards, then does a barrier with all others, each for timeout_ns at most. Errors as
 * for pawl_group_join. */
int group_join_barrier(struct pawl_group *group, const char *const *endpoints, int64_t timeout_ns,
	struct pawl_err *err);

/* group_slot.c; all under driving */

/* Returns the beginning of our header of a collective; NULL: not known, or no longer. */
const uint8_t *group_header_prefix(const struct pawl_group *group, uint64_t number);
/* Gives the work a slot with its plan, and begins it. PAWL_ENOMEM. */
int group_slot_take(struct pawl_group *group, struct pawl_work *work, struct pawl_err *err);
void group_slot_deinit(struct group_slot *slot);

/* group_stats.c */

/* Under driving: a collective was taken up, and its slot knows which headers come. */
void group_stats_begin(const struct pawl_group *group, struct pawl_work *work);
/* Under driving: a peer's header has come. */
void group_stats_header(const struct pawl_group *group, struct group_slot *slot, uint32_t peer);
/* Under driving: adds bytes that have come; on the clock, if they are many. */
void group_stats_add(struct pawl_group *group, struct group_slot *slot, uint32_t peer, size_t n);
/* Under driving: bytes have come from, or gone to, a peer. */
void group_stats_moved(const struct pawl_group *group, struct group_slot *slot, uint32_t peer);
/* Under driving: group->turn was that from before_ns to now_ns. work: the first one on the channel
 * of the turn, or NULL. */
void group_stats_turn(const struct pawl_group *group, struct pawl_work *work, int64_t before_ns);
/* Under driving and state: a work has succeeded, at now_ns. */
void group_stats_done(struct pawl_group *group, struct pawl_work *work);
/* Under state: a thread has waited for a work since from_ns. */
void group_stats_waited(struct pawl_group *group, const struct pawl_work *work, int64_t from_ns);

/* group_serve.c; servers only; all under driving */

/* Allocates group->heads. PAWL_ENOMEM. */
int group_server_init(struct pawl_group *group, struct pawl_err *err);
/* Receives the headers of what ranks begin with us. Returns whether anything came. */
bool group_server_receive(struct pawl_group *group);

#endif
