/*
 * What the parts of a group share: see group.c.
 *
 * Locks, in order: driving (the port, plans, talk and what is under way; whoever holds it moves
 * bytes), then state (queues, counts, failure; never held across a call to the port but wake).
 */
#ifndef COLL_GROUP_IMPL_H
#define COLL_GROUP_IMPL_H

#include "base/clock.h"
#include "coll/card.h"
#include "coll/cost.h"
#include "coll/exec.h"
#include "coll/group.h"
#include "coll/group_call.h"
#include "coll/talk.h"

#include <pthread.h>
#include <sys/types.h>

#define GROUP_SLOTS 16u       /* plans kept, with memory for an operation each */
#define NEVER_NS    INT64_MAX /* no deadline */
#define GROUP_SAID  16u       /* collectives of which it is known what was said */

/* What goes before the bytes of a collective, between each two ranks that exchange some, and of an
 * all-to-all between all: by it they know that they do the same. */
struct group_head {
	uint8_t bytes[GROUP_HEAD_BYTES]; /* the peer's */
	uint8_t got;                     /* of them */
	uint8_t sent;                    /* of ours */
	bool comes, goes;                /* there is one from the peer; to it */
	int64_t sending_ns;              /* that it was the peer's turn to be sent to, */
	int64_t from_ns, to_ns;          /* from when until when */
};

/* When what of an operation was; by the clock of now_ns, so one after another. */
struct group_times {
	int64_t begun_ns;     /* somebody took it up */
	int64_t together_ns;  /* the last peer's head had come */
	int64_t far_ns;       /* the last byte from or to another host had; 0: none yet */
	int64_t added_ns;     /* spent on adding, since together_ns */
	int64_t far_added_ns; /* of it, until far_ns */
	uint32_t missing;     /* heads that have not come */
	uint32_t last;        /* whose came last; PAWL_ANY_RANK: none was waited for */
};

/* A plan, and the memory of an operation that it is carried out for. */
struct group_slot {
	struct pawl_coll_call call;     /* that it was made for: kind, root and length */
	enum coll_way way;              /* the same */
	struct coll_plan plan;          /* of it; no plan yet while exec has none */
	struct coll_exec exec;          /* of the plan */
	struct group_head *heads;       /* owned; of each peer */
	uint32_t heads_left;            /* that have not come, or gone */
	uint8_t head[GROUP_HEAD_BYTES]; /* ours, to whomever; at a server, of who was first */
	struct group_times times;       /* of the operation */
	uint8_t nothing;                /* what a barrier reduces */
	bool busy;                      /* an operation has it */
	uint64_t used;                  /* when, counted in operations */
};

/* What struct pawl_work has in priv. */
struct group_work {
	struct pawl_work *next; /* on its channel, in the inbox, or of the messages under way */
	struct pawl_work *next_told; /* to be given out */
	struct group_slot *slot;     /* of a collective; NULL: it waits for its channel */
	int64_t submitted_ns;        /* when */
	int64_t deadline_ns;         /* NEVER_NS: none */
	uint32_t caller;             /* whose call it is: at a server, of who was first */
	uint32_t digest;             /* of the collectives before it */
	struct coll_message message; /* of PAWL_SEND and PAWL_RECEIVE */
};

/* Room for the name of a peer: "server 4294967295". */
#define PEER_TEXT 24u

struct group_heads;
struct group_trace;

struct group_queue {
	struct pawl_work *first, *last;
};

/* Whose bytes go to another host now. */
struct group_turn {
	uint64_t number; /* of the collective; UINT64_MAX: nobody's */
	uint32_t peer;   /* to whom */
};

struct pawl_group {
	uint32_t rank, ranks;       /* ours (of server i: ranks + i); all */
	uint32_t servers;           /* as of topo; asked for, until start */
	uint32_t peers;             /* ranks and servers */
	struct coll_topo topo;      /* owned; from start on */
	struct coll_link link;      /* by which ways are chosen; the same at all ranks */
	struct coll_port *port;     /* owned; from start on */
	struct group_heads *heads;  /* owned; of a server only */
	bool *gone;                 /* owned; of each peer: it took no part any more */
	char *toward;               /* owned; as it was opened; NULL: nowhere */
	char (*places)[CARD_PLACE]; /* owned; of each rank its host's name; NULL: all have one */
	/* of one that another was shrunk to */
	struct pawl_group *base; /* the first of them, whose streams are used to agree; or NULL */
	uint32_t *base_rank;     /* owned; of each rank, there */
	uint32_t round;          /* of a base: how often it was shrunk */
	/* owned; the next one with newcomers, if this one failed before we heard that all had
	 * joined it: others may have heard it; or NULL */
	struct pawl_group *grown;
	struct coll_port *shm;   /* owned; until start, then port's */
	struct coll_port *net;   /* owned; the same */
	bool fabric;             /* net is libfabric's, else TCP's */
	pid_t pid;               /* whose the group is */
	int64_t beat_every_ns;   /* 0: neither beats nor silence */
	bool started;            /* it has a thread, unless it is of one rank */
	pthread_mutex_t driving; /* see above; guards what follows */
	struct group_slot slots[GROUP_SLOTS];
	struct coll_talk talk;       /* with all others */
	struct group_queue messages; /* under way */
	struct group_turn turn;      /* see above */
	/* of collective n, from when it is taken up, at n mod GROUP_SAID; number UINT64_MAX:
	 * none */
	uint8_t said[GROUP_SAID][GROUP_SAID_BYTES];
	int64_t *heard_ns;           /* owned; of each rank: when something came */
	int64_t beat_ns, checked_ns; /* when last */
	int64_t now_ns;              /* when the driver began to look, or finished something */
	pthread_mutex_t state;       /* see above; guards all that follows */
	pthread_cond_t over;         /* an operation, or somebody's turn at driving */
	pthread_cond_t work;         /* for the group's thread */
	pthread_cond_t tell;         /* for pawl_group_next */
	struct group_queue channels[COLL_CHANNELS]; /* the one under way, and those behind it */
	struct group_queue inbox;                   /* messages that were submitted */
	struct group_queue told;                    /* done, to be given out */
	struct pawl_kind_stats kinds[PAWL_COLLS];   /* what was done */
	struct pawl_peer_stats *peer_stats;         /* owned; the same, by peer */
	int64_t free_ns[COLL_CHANNELS];             /* when the channel's last one was done */
	struct group_trace *trace;                  /* owned; NULL: not wanted */
	uint64_t submitted;                         /* collectives, ever */
	uint32_t digest;                            /* of all of them */
	uint64_t messages_n;                        /* the same */
	uint32_t pending;                           /* not done */
	uint32_t waiters;        /* threads in wait: the group's own leaves it to them */
	bool driven;             /* somebody holds driving, or is about to */
	bool asleep;             /* the group's thread waits for work */
	bool unsent;             /* the port is busy */
	bool closing;            /* it is to end */
	struct pawl_err failure; /* code 0: none */
	pthread_t thread;        /* the group's own */
};

static inline struct group_work *priv_of(struct pawl_work *work)
{
	_Static_assert(sizeof(struct group_work) <= sizeof(work->priv), "priv is too small");
	return (struct group_work *)(void *)work->priv;
}

/* What it works on is not ready. */
static inline bool group_work_held(const struct pawl_work *work)
{
	return __atomic_load_n(&work->held, __ATOMIC_ACQUIRE);
}

/* Of its port, once it has one. */
static inline int64_t group_clock_ns(const struct pawl_group *group)
{
	return group->port && group->port->now_ns ? group->port->now_ns(group->port)
						  : clock_mono_ns();
}

void group_push(struct group_queue *queue, struct pawl_work *work);

/* Whether bytes go between us and a peer: servers say nothing to each other. */
static inline bool group_meets(const struct pawl_group *group, uint32_t peer)
{
	return peer != group->rank && (peer < group->ranks || group->rank < group->ranks);
}

/* Whether a peer is on another host. */
static inline bool group_is_far(const struct pawl_group *group, uint32_t peer)
{
	bool ranks = peer < group->ranks && group->rank < group->ranks;

	return !ranks || group->topo.host_of[peer] != group->topo.host_of[group->rank];
}

/* group_drive.c; all under driving */

/* All that can be moved now, then, if that was nothing, waits for more. */
void group_drive(struct pawl_group *group, int64_t wait_ns);
/* The operation is over. It may be the caller's again when this returns. */
void group_finish(struct pawl_group *group, struct pawl_work *work, int code);
/* Under state: the same of one that is in no queue, whose code and results are there. */
void group_tell_done(struct pawl_group *group, struct pawl_work *work);
/* The group ends, and with it all that is under way. */
void group_fail(struct pawl_group *group, const struct pawl_err *why);
/* What was submitted of messages begins. */
void group_take_inbox(struct pawl_group *group);
/* Bytes beside those of collectives. Whether any went. */
bool group_move_talk(struct pawl_group *group);
/* All hear that we live, and what we do. */
void group_beat(struct pawl_group *group);
/* Without a sign of life for so long a peer is lost; 0: it never is. */
int64_t group_silence_ns(const struct pawl_group *group);

/* group.c */

/* Under state: somebody's turn at driving, which nobody else has; and its end, under state
 * again. */
void group_begin_turn(struct pawl_group *group);
void group_end_turn(struct pawl_group *group);

/* group_shrink.c */

/* All ranks of the group, and those that it was shrunk from, are told that this one has gone on in
 * another group: who shrinks it follows to group->grown, or is left out. PAWL_ENOMEM. */
int group_tell_moved(struct pawl_group *group, struct pawl_err *err);

/* join.c */

/* As pawl_group_open, with so many servers of PAWL_SERVERS. */
int group_open(struct pawl_group **out, uint32_t rank, uint32_t ranks, uint32_t servers,
	const char *toward, char *card, struct pawl_err *err);
/* Joins with all cards, then meets all others; each for timeout_ns. As pawl_group_join. */
int group_meet(struct pawl_group *group, const char *const *cards, int64_t timeout_ns,
	struct pawl_err *err);

/* group_slot.c; all under driving */

/* What was said of a collective; NULL: that is not known, or no longer. */
const uint8_t *group_said(const struct pawl_group *group, uint64_t number);
/* A slot with the work's plan, begun. PAWL_ENOMEM. */
int group_slot_take(struct pawl_group *group, struct pawl_work *work, struct pawl_err *err);
void group_slot_deinit(struct group_slot *slot);

/* group_stats.c */

/* Under driving, of a collective: it has been taken up, and its slot knows which heads come. */
void group_stats_begin(const struct pawl_group *group, struct pawl_work *work);
/* The same: a peer's head has come. */
void group_stats_head(const struct pawl_group *group, struct group_slot *slot, uint32_t peer);
/* The same: bytes that have come are added; on the clock, if they are many. */
void group_stats_add(struct pawl_group *group, struct group_slot *slot, uint32_t peer, size_t n);
/* The same: bytes have come from, or gone to, a peer. */
void group_stats_moved(const struct pawl_group *group, struct group_slot *slot, uint32_t peer);
/* The same, of the first one on the channel of group->turn, or NULL: that was the turn from
 * before_ns to now_ns. */
void group_stats_turn(const struct pawl_group *group, struct pawl_work *work, int64_t before_ns);
/* Under driving and state: it is done, and well, at now_ns. */
void group_stats_done(struct pawl_group *group, struct pawl_work *work);
/* Under state: a thread has waited for it since from_ns. */
void group_stats_waited(struct pawl_group *group, const struct pawl_work *work, int64_t from_ns);

/* group_serve.c; of a server; all under driving */

/* PAWL_ENOMEM. */
int group_heads_init(struct pawl_group *group, struct pawl_err *err);
/* What ranks begin with us. Whether something came. */
bool group_hear_heads(struct pawl_group *group);

#endif
