/*
 * Shared by the parts of a group: see group.c.
 *
 * Each file calls only those below it:
 * - group_shrink.c, group_admit.c and join.c: how ranks come together, and again.
 * - group.c: life cycle, submitting, waiting; the threads that drive.
 * - group_drive.c: one round of driving; moves collectives.
 * - group_serve.c: how a server's side of a group starts collectives.
 * - group_liveness.c: peers and works that must fail the group.
 * - group_control.c: messages, heartbeats, the failure of the group.
 * - group_work.c: queues of works, and how they end. group_slot.c: keeps plans, and starts
 *   collectives.
 * - group_stats.c, then group_trace.c: times.
 * - group_completion.c: how a thread learns that a work is done.
 *
 * Two locks, taken in this order:
 * - driving: the thread that holds it moves bytes. It guards the transport, the plans, the control
 *   channel and what is under way.
 * - state: guards queues, counts and the failure. No thread holds it across a call to the
 *   transport, except wake.
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

#define GROUP_SLOTS       16u         /* plans that are kept, each with memory for an operation */
#define NEVER_NS          INT64_MAX   /* no deadline */
#define GROUP_PREFIXES    16u         /* collectives whose header prefixes are kept */
#define GROUP_CHUNK_BYTES (64u << 10) /* bytes moved at a time: each stream gets its turn */

/* The headers that precede the bytes of a collective, one each way between two ranks that exchange
 * bytes; in an all-to-all, between all ranks. They show whether the ranks make the same call. */
struct group_header {
	uint8_t bytes[GROUP_HEADER_BYTES]; /* header of the peer */
	uint8_t got;                       /* bytes of the peer's header received */
	uint8_t sent;                      /* bytes of our header sent */
	bool incoming, outgoing;           /* the peer sends us a header; we send it one */
	int64_t sending_ns;                /* total time in which it was the peer's turn */
	int64_t from_ns, to_ns;            /* start of the peer's first turn; end of its last */
};

/* The times of an operation, on the clock of now_ns; each is no earlier than the one before. */
struct group_times {
	int64_t begun_ns;        /* a driver took up the operation */
	int64_t all_begun_ns;    /* the last peer's header had come */
	int64_t remote_ns;       /* last byte from or to another host; 0: none yet */
	int64_t added_ns;        /* duration: time spent adding since all_begun_ns */
	int64_t remote_added_ns; /* duration: part of added_ns before remote_ns */
	uint32_t missing;        /* number of headers that have not come */
	uint32_t last; /* peer whose header came last; PAWL_ANY_RANK: we waited for none */
};

/* A plan, and the memory of an operation that follows it. */
struct group_slot {
	struct pawl_coll_call call;    /* call that the plan was made for: kind, root and length */
	enum coll_algorithm algorithm; /* algorithm that the plan was made for */
	struct coll_plan plan;         /* no plan yet while exec has none */
	struct coll_exec exec;         /* execution of the plan */
	struct group_header *headers;  /* owned; one per peer */
	uint32_t headers_left;         /* number of headers not yet received, or not yet sent */
	/* Our header, for any peer; at a server, that of the first rank. */
	uint8_t header[GROUP_HEADER_BYTES];
	struct group_times times; /* times of the operation */
	uint8_t barrier_byte;     /* byte that a barrier reduces */
	bool busy;                /* an operation uses the slot */
	uint64_t last_used;       /* 1 + number of the operation that used the slot last */
};

/* The contents of priv in struct pawl_work. */
struct group_work {
	struct pawl_work *next;            /* next in a channel, in inbox, or in messages */
	struct pawl_work *next_completion; /* next in completions */
	struct group_slot *slot;           /* slot of a collective; NULL: it has not begun */
	int64_t submitted_ns;              /* time of submission */
	int64_t deadline_ns;               /* time at which it fails; NEVER_NS: none */
	uint32_t caller;                   /* rank that called; at a server, the first that did */
	uint32_t digest;                   /* digest of the collectives before */
	struct coll_message message;       /* the message, for PAWL_SEND and PAWL_RECEIVE */
};

struct group_server;
struct group_trace;

struct group_queue {
	struct pawl_work *first, *last;
};

/* The collective and the peer whose turn it is: to peers on other hosts, we send to one at a
 * time. */
struct group_turn {
	uint64_t number; /* number of the collective; UINT64_MAX: none */
	uint32_t peer;   /* peer that we send to */
};

/* The groups that this one was shrunk from, or is growing into: see group_shrink.c. */
struct group_lineage {
	struct pawl_group *base; /* first group of a series of shrinks; it carries the notices.
				  * NULL: this group is the first */
	uint32_t *base_rank;     /* owned; per rank, its number in base; NULL without base */
	uint32_t round;          /* in a base: number of times that it was shrunk */
	/* Owned, or NULL. The next group with newcomers, if this group failed before we knew that
	 * all had joined the next one: other ranks may know it. */
	struct pawl_group *grown;
};

/* Transports that are open and not yet joined; group->transport is made of them. */
struct group_joining {
	struct coll_transport *shm; /* owned; NULL once it is part of the group's transport */
	struct coll_transport *net; /* owned; NULL once it is part of the group's transport */
	bool fabric;                /* net uses libfabric, else TCP */
};

/* When we last heard from each peer, and which peers are gone. Under driving after start. */
struct group_liveness {
	int64_t heartbeat_interval_ns; /* time between heartbeats; 0: no heartbeats */
	int64_t last_heartbeat_ns;     /* time at which we last sent heartbeats */
	int64_t *last_received_ns;     /* owned; per peer: time at which bytes last came */
	int64_t checked_ns;            /* time at which we last checked the peers */
	bool *gone;                    /* owned; per peer: it no longer takes part */
};

/* What the threads of a group agree on about driving: one of them drives, the group's own or one in
 * pawl_group_wait. Under state. */
struct group_driver {
	pthread_t thread;    /* the group's own thread */
	pthread_cond_t wake; /* wakes the group's thread */
	pthread_cond_t over; /* an operation is done, or a turn at driving is over */
	uint32_t waiters;    /* threads in pawl_group_wait; the group's own lets them drive */
	bool driven;         /* a thread holds driving, or is about to */
	bool asleep;         /* the group's thread waits for wake */
	bool unsent;         /* the transport has bytes to send that need a driver */
};

/* The operations that are not done, or not handed out. Under state. */
struct group_queues {
	struct group_queue channels[COLL_CHANNELS]; /* per channel: under way, then waiting */
	struct group_queue inbox;                   /* messages submitted and not begun */
	struct group_queue completions;             /* for pawl_group_next_completion */
	pthread_cond_t completed;                   /* wakes pawl_group_next_completion */
	uint64_t submitted;                         /* number of collectives submitted, ever */
	uint32_t digest;                            /* digest of all collectives submitted */
	uint64_t messages_n;                        /* number of messages submitted, ever */
	uint32_t pending;                           /* number of operations not done */
};

/* Where the time went: see group_stats.c. Under state. */
struct group_stats {
	struct pawl_kind_stats kinds[PAWL_COLLS]; /* totals by kind of operation */
	struct pawl_peer_stats *peers;            /* owned; totals by peer */
	int64_t free_ns[COLL_CHANNELS];           /* per channel: time its last work was done */
	struct group_trace *trace;                /* owned; NULL: not traced */
};

struct pawl_group {
	uint32_t rank, ranks;              /* this rank, or ranks + i at server i; rank count */
	uint32_t servers;                  /* number of servers; before start, of those asked for */
	uint32_t peers;                    /* number of ranks and servers */
	pid_t pid;                         /* process that the group belongs to */
	struct coll_topo topo;             /* owned; set by start */
	struct coll_link link;             /* network for which algorithms are chosen; the same at
					    * all ranks */
	struct coll_transport *transport;  /* owned; NULL until start */
	struct group_server *server_state; /* owned; NULL except at a server */
	char *route_hint;                  /* owned; argument of pawl_group_open, or NULL */
	/* Owned; per rank, the name of its host; NULL: all ranks are on one host. */
	char (*hostnames)[ENDPOINT_HOSTNAME];
	struct group_joining joining;
	struct group_lineage lineage;
	bool started; /* coll_group_start has succeeded */

	pthread_mutex_t driving; /* guards the fields from here to state; taken before state */
	int64_t now_ns;          /* time at which the driver began to poll, or finished something */
	struct group_slot slots[GROUP_SLOTS];
	struct coll_control control; /* messages, heartbeats and notices */
	struct group_queue messages; /* messages under way */
	struct group_turn turn;
	/* Prefix of our header of collective n, from its begin on, at index n modulo
	 * GROUP_PREFIXES; number UINT64_MAX: none. */
	uint8_t prefixes[GROUP_PREFIXES][GROUP_PREFIX_BYTES];
	struct group_liveness liveness;

	pthread_mutex_t state; /* guards all fields from here on */
	struct group_driver driver;
	struct group_queues queues;
	struct group_stats stats;
	bool closing;            /* pawl_group_leave was called */
	struct pawl_err failure; /* why the group failed; code 0: it has not */
};

static inline struct group_work *priv_of(struct pawl_work *work)
{
	_Static_assert(sizeof(struct group_work) <= sizeof(work->priv), "priv is too small");
	return (struct group_work *)(void *)work->priv;
}

/* Returns whether a work is deferred: its memory is not ready yet. */
static inline bool group_work_deferred(const struct pawl_work *work)
{
	return __atomic_load_n(&work->deferred, __ATOMIC_ACQUIRE);
}

/* Returns the time of the transport's clock; monotonic time without a transport, or where it has
 * no clock. */
static inline int64_t group_clock_ns(const struct pawl_group *group)
{
	return group->transport && group->transport->now_ns
		? group->transport->now_ns(group->transport)
		: clock_mono_ns();
}

/* Returns whether we exchange bytes with a peer: servers exchange none with each other. */
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

/* group_completion.c */

/* Under state: marks a work as done, and wakes who waits for it. The work is in no queue, and has
 * its code and results. */
void group_report_done(struct pawl_group *group, struct pawl_work *work);

/* group_stats.c */

/* Under driving: a collective has begun; its slot knows which headers are to come. */
void group_stats_begin(const struct pawl_group *group, struct pawl_work *work);
/* Under driving: a peer's header has come. */
void group_stats_header(const struct pawl_group *group, struct group_slot *slot, uint32_t peer);
/* Under driving: adds n bytes that have come from a peer, and times that if they are many. */
void group_stats_add(struct pawl_group *group, struct group_slot *slot, uint32_t peer, size_t n);
/* Under driving: bytes have come from a peer, or gone to it. */
void group_stats_moved(const struct pawl_group *group, struct group_slot *slot, uint32_t peer);
/* Under driving: group->turn lasted from before_ns to now_ns. work: the first on the channel of the
 * turn, or NULL. */
void group_stats_turn(const struct pawl_group *group, struct pawl_work *work, int64_t before_ns);
/* Under driving and state: a work has succeeded at now_ns. */
void group_stats_done(struct pawl_group *group, struct pawl_work *work);
/* Under state: a thread has waited for a work from from_ns until now. */
void group_stats_waited(struct pawl_group *group, const struct pawl_work *work, int64_t from_ns);

/* group_slot.c; all under driving */

/* Returns the prefix of our header of a collective; NULL: the collective has not begun here, or the
 * prefix is no longer kept. */
const uint8_t *group_header_prefix(const struct pawl_group *group, uint64_t number);
/* Gives a collective a slot with its plan, and begins it. PAWL_ENOMEM. */
int group_slot_take(struct pawl_group *group, struct pawl_work *work, struct pawl_err *err);
void group_slot_deinit(struct group_slot *slot);

/* group_work.c */

/* Under the lock that guards the queue: appends a work. */
void group_push(struct group_queue *queue, struct pawl_work *work);
/* Returns the first collective of a channel, the one under way or to begin next; NULL: none. */
struct pawl_work *group_first(struct pawl_group *group, uint32_t channel);
/* Under driving: ends an operation. Its memory may be the caller's again when this returns. */
void group_finish(struct pawl_group *group, struct pawl_work *work, int code);

/* group_control.c; all under driving */

/* Begins the messages in the inbox, up to the first that is deferred. */
void group_take_inbox(struct pawl_group *group);
/* Moves the bytes of the control channel. Returns whether any moved. */
bool group_move_control(struct pawl_group *group);
/* Sends all peers a heartbeat with our status. */
void group_heartbeat(struct pawl_group *group);
/* Fails the group, and with it all its operations. */
void group_fail(struct pawl_group *group, const struct pawl_err *why);

/* group_liveness.c; all under driving */

/* Returns how long a peer may send nothing before it is lost; 0: for ever. */
int64_t group_peer_timeout_ns(const struct pawl_group *group);
/* Sends a heartbeat if one is due. First restarts the timeouts of all peers if no thread drove for
 * long, from before_ns to now_ns. */
void group_keep_alive(struct pawl_group *group, int64_t before_ns);
/* Fails the group: two ranks have not called the same. Appends their hosts to err. */
void group_fail_mismatch(struct pawl_group *group, uint32_t rank, uint32_t peer,
	struct pawl_err *err);
/* Fails the group if ranks call different collectives. They may wait for each other, or go on
 * without each other, and exchange nothing but heartbeats. */
void group_fail_different(struct pawl_group *group);
/* Checks peers and works while nothing moves, once per TIME_GROUP_WAIT at most. */
void group_check_liveness(struct pawl_group *group);

/* group_serve.c; servers only; all under driving */

/* Allocates group->server_state. PAWL_ENOMEM. */
int group_server_init(struct pawl_group *group, struct pawl_err *err);
/* Receives the headers of collectives that ranks begin. Returns whether anything came. */
bool group_server_receive(struct pawl_group *group);

/* group_drive.c; under driving */

/* Moves all that can be moved now; if that was nothing, waits for more, for wait_ns at most. */
void group_drive(struct pawl_group *group, int64_t wait_ns);

/* group.c */

/* Under state, while no other thread drives: begins a turn at driving. It gives up state and takes
 * driving. */
void group_begin_turn(struct pawl_group *group);
/* Ends a turn: gives up driving and takes state again. */
void group_end_turn(struct pawl_group *group);

/* group_shrink.c */

/* Notifies all ranks of the group, and of those it was shrunk from, that this rank has moved to
 * another group. A rank that shrinks then follows to its group->lineage.grown, or is left out.
 * PAWL_ENOMEM. */
int group_notify_moved(struct pawl_group *group, struct pawl_err *err);

/* join.c */

/* Opens a group as pawl_group_open does, with `servers` servers of PAWL_SERVERS. */
int group_open(struct pawl_group **out, uint32_t rank, uint32_t ranks, uint32_t servers,
	const char *route_hint, char *endpoint, struct pawl_err *err);
/* Joins with the endpoints of all ranks, then does a barrier; each takes timeout_ns at most. Errors
 * as for pawl_group_join. */
int group_join_barrier(struct pawl_group *group, const char *const *endpoints, int64_t timeout_ns,
	struct pawl_err *err);

#endif
