/*
 * One node's part in a job of several: who belongs to it, who decides, and what becomes of the
 * workers when a node is lost. A state machine over what happens. Pure.
 *
 *            ┌───────────── the coordinator is lost ─────────────┐
 *            ▼                                                   │
 *   begin ─► seeking ──somebody coordinates──► joining ──► member┤
 *            │  ▲                                                │
 *            │  └──an earlier place answers──┐                   ▼
 *            └──a place is ours──► leading ──┴────────────► closing ─► over
 *
 * The addresses of the rendezvous are places, in order. Who can listen at one, while none before
 * it answers, coordinates: it keeps the list of members, gives ranks, and its run_policy decides
 * for the job; the others do what they are told, and tell what their workers do. A job starts
 * only with all its nodes, each of which belongs to one coordinator: so there are two groups of it
 * only if there are twice as many nodes, and two places where they cannot reach each other.
 *
 * Each start has a number, its generation. What was said in another one is ignored, and a start
 * that is not newer than the last is refused. All members know how far the job is (node_ledger), so
 * that whoever coordinates next goes on from there.
 *
 * Hosts that only add connect to the coordinator, too; a start waits for them, and one that is
 * lost ends the group as a lost node does.
 *
 * A member that loses the coordinator kills its workers and seeks again; unless the job is ending,
 * then it ends alone. With one node there is nobody to seek: that is `pawl run` of one node.
 */
#ifndef AGENT_NODES_H
#define AGENT_NODES_H

#include "agent/node_frame.h"
#include "agent/run_policy.h"

#define NODES_PLACES_MAX 8u
#define NODES_SILENT     4    /* signs of life missed, of one that is lost */
#define NODES_WHY_MAX    160u /* bytes of a reason, terminator included */

/* Who carries out what is decided. None may call nodes_step. Connections are numbers of the
 * owner's; NODE_NONE is none. */
struct nodes_ops {
	/* Listens at a place: 0; PAWL_ENOENT: its address is none of ours; PAWL_EBUSY: somebody
	 * else does. */
	int (*listen)(void *user, uint32_t place, struct pawl_err *err);
	void (*unlisten)(void *user);
	/* Begins to connect; NODES_CONNECTED or NODES_CLOSED follows. */
	uint32_t (*connect)(void *user, uint32_t place);
	void (*send)(void *user, uint32_t conn, const struct node_frame *frame);
	/* Once what was sent is out; nothing more is heard of it. */
	void (*close)(void *user, uint32_t conn);
	/* The address at which others reach this node, who reach that place. */
	int (*address)(void *user, uint32_t place, char *address, struct pawl_err *err);
	uint32_t (*port)(void *user, const char *address); /* a free one, held; 0: none */
	/* The workers of this node. start: as the frame says. */
	void (*start)(void *user, const struct node_frame *start);
	void (*notice)(void *user, int signal, int64_t left_ns);
	void (*kill)(void *user);
	void (*add)(void *user, uint32_t n);  /* so many more, which join the others */
	void (*part)(void *user, uint32_t n); /* so many are to leave the others */
	void (*told)(void *user, const char *path, uint64_t nonce); /* as agent_told */
	void (*drain)(void *user);                                  /* NODES_DRAINED follows */
	void (*exit)(void *user, int status);
	void (*say)(void *user, bool bad, const char *text); /* to people */
};

struct nodes_times {
	int64_t answer_ns;   /* for the coordinator's answer to who wants to join */
	int64_t retry_ns;    /* after all places were tried */
	int64_t probe_ns;    /* between two looks whether an earlier place answers */
	int64_t say_ns;      /* between two lines that say what is waited for */
	int64_t close_ns;    /* for members to hear of the end */
	int64_t together_ns; /* signals of one word are not further apart */
};

struct nodes_options {
	struct nodes_times times;
	struct run_times run_times; /* of the policy */
	uint32_t nodes;             /* of the job; 1: no places, no connections */
	uint32_t workers;           /* of this node */
	uint32_t least;             /* of them that can go on; 0: all. Of one node only */
	bool joint;                 /* as in struct run_policy; its ranks meet at address(0) */
	uint32_t servers;           /* that ranks are to have, if we coordinate */
	uint32_t wanted;            /* its rank, or NODE_NONE: what is free */
	uint32_t places;            /* of the rendezvous */
	const char *const *place;   /* them, for people */
	uint64_t who;               /* random */
	int64_t beat_ns;            /* between signs of life, if we coordinate; 0: none */
	const char *job;            /* id */
	uint32_t attempt;           /* number of the first start */
	uint32_t max_restarts;      /* if we coordinate */
	int64_t grace_ns;           /* likewise */
	int64_t timeout_ns;         /* how long nodes are waited for */
	const struct nodes_ops *ops;
	void *user; /* for ops */
};

enum nodes_role {
	NODES_SEEKING,
	NODES_JOINING,
	NODES_MEMBER,
	NODES_LEADING,
	NODES_CLOSING,
	NODES_OVER
};

/* A node, as the coordinator knows it; it has one of itself. */
struct nodes_member {
	bool in;                   /* else it is lost, or was never there */
	uint32_t conn;             /* NODE_NONE: ourselves */
	uint64_t who;              /* its random number */
	uint64_t order;            /* of arrival */
	uint32_t workers;          /* of it */
	uint32_t wanted;           /* rank that it was given, or NODE_NONE */
	uint32_t node;             /* its rank, or the one it had last, or NODE_NONE */
	uint32_t alive;            /* workers of this generation that have not ended */
	uint32_t port;             /* free there, for the next start */
	char address[ADDRESS_MAX]; /* where others reach it */
	bool ready;                /* for a start: its workers are over */
	bool drained;              /* what it had committed is durable, or cannot be made so */
	uint64_t commits;          /* it has told of */
	int64_t heard_ns;          /* when the last of it came */
	int64_t signaled_ns;       /* when it first was sent a signal; 0: never */
};

/* A host that only adds (`pawl serve`): no node, but waited for as one. */
struct nodes_server {
	bool in;                    /* else it is lost, or was never there */
	uint32_t conn;              /* of it */
	uint64_t who;               /* its random number */
	char name[NODE_SERVER_MAX]; /* for PAWL_SERVERS */
	int64_t heard_ns;           /* when the last of it came */
};

/* Zeroed before nodes_init. */
struct nodes {
	struct nodes_options options; /* as given */
	struct run_policy policy;     /* decides, but for a member: it only follows */
	enum nodes_role role;         /* see above */
	struct node_ledger ledger;    /* how far the job is */
	uint32_t held;                /* our rank in the last generation, or NODE_NONE */
	uint32_t alive;               /* our workers that have not ended */
	int signal;                   /* we were sent, as a member, and know of no answer; 0 */
	int64_t signaled_ns;          /* when we first were sent one; 0: never */
	bool drained, drained_ok;     /* our agent has answered, and what */
	uint64_t commits;             /* of all nodes, for the policy */
	int64_t now_ns;               /* of the event in hand */
	int64_t ticked_ns;            /* of the one before */
	int64_t timer_ns;             /* when NODES_TICK is wanted; 0: not at all */
	int64_t beat_ns;              /* between signs of life; 0: none */
	int64_t beat_due_ns;          /* of our next */

	uint32_t place;            /* being tried, or where we joined or lead */
	uint32_t conn;             /* seeking, joining, member: to the coordinator */
	char address[ADDRESS_MAX]; /* joining, member: ours */
	int64_t heard_ns;          /* member: when the last came from there */
	int64_t due_ns;            /* seeking without conn: of the next try; joining: of the answer;
				      closing: of the end */
	int64_t sought_ns;         /* since when we seek */
	int64_t said_ns;           /* when we last said that we do */
	char why[NODES_PLACES_MAX][NODES_WHY_MAX]; /* each place did not do */

	struct nodes_member members[NODES_MAX];        /* leading: the nodes */
	struct nodes_server servers[NODE_SERVERS_MAX]; /* likewise */
	uint64_t arrivals;                             /* so far */
	uint32_t probe;       /* connection to an earlier place, or NODE_NONE */
	uint32_t probed;      /* which */
	int64_t probe_due_ns; /* of the next; 0: none */
};

enum nodes_event_kind {
	NODES_BEGIN,     /* once, first */
	NODES_TICK,      /* timer_ns was reached */
	NODES_CONNECTED, /* conn, that connect began */
	NODES_CLOSED,    /* conn, of either side; text */
	NODES_FRAME,     /* conn, frame; of one that we did not begin: it is there with the first */
	NODES_EXITED,    /* a worker here: rank, status, parted, survivable, outside, sole, last,
			    stops, lasted_ns, commits, text */
	NODES_SIGNALED,  /* signal, that we were sent */
	NODES_SCALED,    /* workers, survivable: if run_policy_can_scale */
	NODES_QUIT,      /* the workers are to leave the others: joint */
	NODES_DRAINED,   /* ok */
	NODES_BEGUN,     /* nonce, text: the agent here has begun in a root of this path */
};

struct nodes_event {
	enum nodes_event_kind kind;                 /* says which of the others count */
	int64_t now_ns;                             /* monotonic */
	uint32_t conn;                              /* number */
	const struct node_frame *frame;             /* the caller's */
	const char *text;                           /* why, for people, or a path; the caller's */
	uint64_t nonce;                             /* of the start of our ranks */
	uint32_t rank;                              /* of the worker, in the job */
	uint32_t workers;                           /* that there are to be */
	int status;                                 /* exit status of the worker */
	bool parted, survivable, sole, last, stops; /* as in struct run_event */
	bool outside;                               /* likewise */
	int64_t lasted_ns;                          /* likewise */
	uint64_t commits;                           /* of this node, so far */
	int signal;                                 /* its number */
	bool ok;                                    /* all that was committed is durable */
};

void nodes_init(struct nodes *nodes, const struct nodes_options *options);
/* The caller then sets its timer to timer_ns. */
void nodes_step(struct nodes *nodes, const struct nodes_event *event);
/* Attempt number of the generation that runs, or ran last. */
uint32_t nodes_attempt(const struct nodes *nodes);

#endif
