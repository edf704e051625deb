/*
 * The scheduler's core: it takes events, and returns updates, which are the actions to carry out.
 * Pure: the same events give the same updates, on any machine and in any year.
 *
 *   queued ──► starting ──► running ◄──► rescaling        paused ◄── (from all but ended)
 *     ▲            │           │              │              │
 *     │            └───────────┴──────────────┴─► stopping ──┴─► done, failed, cancelled
 *     └──────── preempted, moved, to be started again ◄─────┘
 *
 * Once a round (core_options.round_ns; sooner if something is urgent) the core asks its policy
 * which replicas each job is to have. Before that, it decides which jobs take part. It orders them
 * by priority, then by whether a job has its turn, is overdue, or runs, then by submission. It
 * admits a job if the job's quotas and the slots are enough for its least. A turn lasts an hour
 * from the job's start. For a job that may lose its progress, the turn is longer by all the time
 * that the job ran before. So no job waits if others could shrink, and of two jobs the one of lower
 * priority waits. Afterwards, the core checks the policy's answer. It rejects a wrong answer as a
 * whole, and reports it as a bug. If the policy forgot an admitted job, the core gives the job its
 * least, taken from what others have above theirs.
 *
 * The core keeps apart what a job is to have (want) and what it has (current, old). It gives out
 * slots only once they are free. A job that is to have less releases first.
 *
 * Each start and each rescale has a number, the job's generation, which grows. A generation is
 * stored before it is sent to the engine: the caller stores the rows of a step (core_row_next),
 * then carries out the step's updates. After a crash core_restore makes the same core from the
 * rows. The core then decides nothing until the engine has listed what runs (CORE_LISTED). It then
 * repeats what the engine may not have received. An engine carries out each generation once, and
 * never starts one that is not newer than the last stop. So no job runs twice.
 *
 * A node that is reported with fewer slots than before keeps the jobs that still fit. Slots are
 * taken off until the rest suffices, and no more than that, in this order: slots that jobs are
 * about to leave; replicas that elastic jobs have above their least; then other replicas, whose job
 * is stopped with its time to save. Of several jobs, the one that may be stopped for others comes
 * before a pinned one, then the lower priority, then the one that entered its state last (it was
 * started or rescaled last), then the higher id. What a stopped job has left on the node counts
 * until it has ended, so the node gets nothing new before that.
 *
 * Times are of a clock that continues across restarts of the scheduler and does not jump as the
 * wall clock does. A time before the last one counts as the last one.
 */
#ifndef SCHED_CORE_CORE_H
#define SCHED_CORE_CORE_H

#include "sched/policy/policy.h"

#include <stddef.h>

#define CORE_NAME_MAX   64u     /* bytes of a name, terminator included */
#define CORE_TEXT_MAX   1024u   /* bytes of an explanation, terminator included */
#define CORE_JOBS_MAX   100000u /* jobs that are not over; another one is refused */
#define CORE_NODES_MAX  16384u  /* nodes, lost ones included */
#define CORE_SLOTS_MAX  1024u   /* slots of a node */
#define CORE_MOST_MAX   4096u   /* replicas of a job, at most */
#define CORE_QUEUES_MAX 256u
#define CORE_POOLS_MAX  32u
#define CORE_OWNERS_MAX 4096u /* owners with jobs */

/* Fixed times of the core. They are not in base/times.h: the core gets the time with each event, so
 * tests run it in virtual time and need not shorten them. */
#define CORE_ROUND_MIN_NS     100000000LL     /* shortest time between two decisions */
#define CORE_TURN_NS          3600000000000LL /* length of a turn; a longer wait is overdue */
#define CORE_BACKOFF_RESET_NS 600000000000LL  /* a failure or loss after such a run is the first */
#define CORE_REFUSED_MAX      16u /* starts in a row that may be refused or not answered */
#define CORE_LIST_NS          300000000000LL /* time between two lists: messages can get lost */
#define CORE_POOL_RETRY_NS    600000000000LL /* wait before another request to an exhausted pool */
#define CORE_IDLE_NS          300000000000LL /* time after which surplus nodes are returned */

/* ---- the cluster ---- */

/* A queue: its jobs share a weight and a quota. */
struct core_queue {
	char name[CORE_NAME_MAX];
	double weight;      /* weight of each job in the queue, over 0 */
	uint32_t slots_max; /* slots that the queue's jobs may have together; 0: no quota */
};

/* A pool: nodes of one kind that the core can request. */
struct core_pool {
	char name[CORE_NAME_MAX];
	uint32_t type;        /* type of the nodes, below SCHED_TYPES_MAX */
	uint32_t slots;       /* slots of each node */
	double price;         /* price of a node, per hour */
	bool spot;            /* the nodes can be taken away */
	uint32_t least, most; /* nodes in the pool, at least and at most */
};

struct core_options {
	const struct core_queue *queues; /* copied; a job that names no queue is in the first */
	uint32_t queues_n;               /* at least 1 */
	const struct core_pool *pools;   /* copied; NULL: the core requests no nodes */
	uint32_t pools_n;
	uint32_t pool_slots_max; /* slots of all pools' nodes together, at most; 0: no bound */
	/* The core requests more nodes as long as each replica reaches this part of a lone
	 * replica's goodput; from 0 to 1; 0: a half. A lower value ends jobs sooner, at a higher
	 * price. */
	double good_use;
	uint32_t owner_slots_max; /* slots that jobs of one owner may have together; 0: no quota */
	int64_t round_ns;         /* time between two decisions */
	int64_t start_timeout_ns; /* time in which a start or a rescale must be answered */
	int64_t kill_interval_ns; /* time between two kills of a job that does not end */
	int64_t backoff_ns;       /* first wait of a job that failed; doubled each time */
	int64_t backoff_max_ns;   /* longest wait of a job that failed */
	const struct sched_policy *policy;
	uint64_t seed;   /* seed of the policy */
	double fairness; /* from 0 to SCHED_FAIRNESS_MAX: see sched_view */
};

/* A node, as the engine reports it. */
struct core_offer {
	char name[CORE_NAME_MAX];
	char pool[CORE_NAME_MAX]; /* name of the pool; "": none */
	uint32_t type;            /* below SCHED_TYPES_MAX */
	uint32_t slots;           /* at least 1 */
	double price;             /* price per hour; 0: not known */
	bool spot;                /* the node can be taken away */
};

enum core_node_state {
	CORE_NODE_UP,
	CORE_NODE_DRAINED, /* takes no more replicas; those that cannot be moved stay */
	CORE_NODE_GOING,   /* goes away at deadline_ns: all replicas leave */
	CORE_NODE_LOST,
};

struct core_node {
	uint32_t id; /* never reused */
	struct core_offer offer;
	enum core_node_state state;
	int64_t deadline_ns; /* going: time at which the node goes away */
	uint32_t pool;       /* index in options.pools; CORE_NO_POOL: none */
	bool returning;      /* the core drains the node to return it; nobody else asked for that */
	bool returned;       /* CORE_DO_RETURN_NODE was sent */
	uint32_t used;       /* slots that replicas have or may have */
	uint32_t room;       /* slots that are left, during a decision */
	bool dirty;          /* the stored row is out of date */
};
#define CORE_NO_POOL UINT32_MAX

/* ---- jobs ---- */

/* A user's request for a job. */
struct core_request {
	char name[CORE_NAME_MAX];
	char queue[CORE_NAME_MAX]; /* name of the queue; "": the first one */
	uint32_t owner;            /* user id */
	uint32_t least, most;      /* replicas: 1 <= least <= most <= CORE_MOST_MAX */
	uint32_t wanted;           /* replicas, for policies that do not choose; 0: most */
	uint32_t types;            /* bit t: the job may be on nodes of type t; 0: on any */
	uint32_t spot_most;        /* replicas on nodes that can be taken away; 0: none */
	uint32_t spot_least;       /* replicas on such nodes, or all if fewer; at most spot_most */
	int32_t priority;          /* jobs of higher priority come first */
	bool pinned;               /* the job may not be stopped or moved for others */
	bool in_place;             /* replicas can change while the job runs */
	double restart_s;          /* seconds that a change of replicas costs */
	uint32_t retries;          /* further starts after failures */
	int64_t time_limit_ns;     /* time that the job may run; 0: unlimited */
	int64_t grace_ns;          /* time from a request to stop to the kill */
};

enum core_state {
	CORE_QUEUED,
	CORE_STARTING,
	CORE_RUNNING,
	CORE_RESCALING,
	CORE_STOPPING,
	CORE_PAUSED,
	CORE_DONE, /* from here on the job is over */
	CORE_FAILED,
	CORE_CANCELLED,
};

/* Why a job is in its state, or why it has no more replicas. */
#define CORE_REASONS(X)                                                                            \
	X(CORE_WHY_NONE, "")                                                                       \
	X(CORE_WHY_NEW, "submitted")                                                               \
	X(CORE_WHY_USER, "its user requested it")                                                  \
	X(CORE_WHY_DECIDED, "scheduling decision")                                                 \
	X(CORE_WHY_PREEMPTED, "preempted by other jobs")                                           \
	X(CORE_WHY_MOVED, "its placement changes")                                                 \
	X(CORE_WHY_NODE, "a node was lost")                                                        \
	X(CORE_WHY_EXIT, "it ended by itself")                                                     \
	X(CORE_WHY_TIME, "it reached its time limit")                                              \
	X(CORE_WHY_REFUSED, "its start was refused")                                               \
	X(CORE_WHY_SILENT, "its start was not answered")                                           \
	X(CORE_WHY_GONE, "it was no longer running")                                               \
	X(CORE_WHY_BACKOFF, "it waits after a failure")                                            \
	X(CORE_WHY_QUEUE_QUOTA, "the quota of its queue")                                          \
	X(CORE_WHY_OWNER_QUOTA, "the quota of its user")                                           \
	X(CORE_WHY_PRIORITY, "jobs of higher priority have the slots")                             \
	X(CORE_WHY_SLOTS, "no slots are free")                                                     \
	X(CORE_WHY_NODES, "no nodes can hold it")                                                  \
	X(CORE_WHY_BUSY, "it waits until other jobs release their slots")                          \
	X(CORE_WHY_ROUND, "it waits for the next decision")                                        \
	X(CORE_WHY_FEWER_SLOTS, "a node has fewer slots than before")

enum core_reason {
#define X(name, text) name,
	CORE_REASONS(X)
#undef X
		CORE_REASONS_N,
};

/* Replicas on a node. */
struct core_placement_entry {
	uint32_t node; /* id of the node */
	uint32_t replicas;
};

/* A placement of replicas: nodes in ascending order of ids, each with at least one replica. */
struct core_placement {
	struct core_placement_entry *entries; /* owned; room for the job's place_max */
	uint32_t n;                           /* number of entries */
	uint32_t replicas;                    /* replicas in all entries */
};

/* The state of a job once it has stopped. */
enum core_after {
	CORE_THEN_QUEUED,
	CORE_THEN_BACKOFF, /* queued after a wait, or failed after too many starts */
	CORE_THEN_PAUSED,
	CORE_THEN_FAILED,
	CORE_THEN_CANCELLED,
};

struct core_job {
	uint64_t id;
	struct core_request request;
	enum core_state state;
	enum core_reason reason;       /* why the job is in state */
	enum core_after after;         /* stopping: what follows */
	uint32_t queue;                /* index in options.queues */
	uint64_t generation;           /* number of the newest start or rescale */
	uint64_t start_generation;     /* generation of the newest start */
	struct core_placement current; /* placement of generation */
	/* Rescaling, or stopped during a rescale: earlier placement, maybe still in use. */
	struct core_placement old;
	struct core_placement want; /* placement that the job is to have */
	uint32_t place_max; /* replicas that each placement has room for; at least request.most */
	int64_t submitted_ns;
	int64_t since_ns; /* time at which state was entered */
	/* Queued: no start before this time; starting, rescaling: deadline of the answer; stopping:
	 * time of the kill; 0: none. */
	int64_t due_ns;
	int64_t counted_ns;     /* time up to which attained_s and ran_ns are counted */
	double attained_s;      /* slots times seconds that the job has had */
	int64_t ran_ns;         /* time spent running */
	uint32_t failures;      /* exits with a code other than 0 */
	uint32_t refused;       /* starts in a row that were refused or not answered */
	uint32_t backoff_count; /* failures and refusals in a row, for the wait */
	uint32_t restarts;      /* changes of replicas since the first start */
	bool needs_restart; /* a rescale in place was refused: the next change is by a new start */
	bool killed;        /* stopping: the grace period is over */
	int exit_code;      /* exit code, if the job has exited by itself */
	struct sched_hints *hints[SCHED_TYPES_MAX]; /* owned, by type; NULL: none reported */

	bool dirty; /* the stored row is out of date */
	/* Nothing is stored from here on. */
	enum core_reason wait;   /* queued, or with less than most: the constraint that binds */
	uint64_t wait_for;       /* job that wait refers to; 0: none */
	int64_t queued_since_ns; /* start of the wait before the last start; 0: not known */
	struct core_job_scratch *scratch; /* owned; for the files of the core only */
};

/* ---- events ---- */

enum core_event_kind {
	CORE_TIMER,         /* wake_ns was reached */
	CORE_SUBMIT,        /* request; *job becomes the new job's id */
	CORE_CANCEL,        /* job */
	CORE_PAUSE,         /* job */
	CORE_RESUME,        /* job */
	CORE_CHANGE,        /* job, change */
	CORE_HINTS,         /* job, type, hints */
	CORE_RUNS,          /* job, generation: all replicas run */
	CORE_ENDED,         /* job, generation, end_cause, exit_code: no replica runs any more */
	CORE_REFUSED,       /* job, generation: not started; or not rescaled, and runs as before */
	CORE_LISTED,        /* runs: all jobs that the engine has; the first follows core_restore */
	CORE_NODE_REPORTED, /* offer; also of a node that is known, which may have changed */
	CORE_NODE_NOTICE,   /* node, deadline_ns: the node will go away */
	CORE_NODE_DRAIN,    /* node */
	CORE_NODE_RESUME,   /* node: no longer drained, or stays after all */
	CORE_NODE_GONE,     /* node: lost, or returned */
	CORE_POOL_EXHAUSTED, /* pool: requested nodes that are missing will not come */
	/* job, generation, found: the engine has a job of which nothing is stored, or only an
	 * earlier generation. Comes only before the first CORE_LISTED, which says whether the job
	 * runs. */
	CORE_FOUND,
	CORE_IDS_USED, /* job: ids up to this one were given to jobs */
};

enum core_end_cause {
	CORE_END_EXITED,    /* the job exited by itself, with exit_code */
	CORE_END_STOPPED,   /* the engine stopped the job on request */
	CORE_END_NODE_LOST, /* a node of the job was lost */
	CORE_END_UNKNOWN,   /* the engine has no such job, or does not know the cause */
};

/* What a job's user can change while the job is there. The next decision puts it into effect: a job
 * with more replicas than its new most gives some up, also a pinned one; a job with fewer than its
 * new least gets more, or is stopped and queued until there are as many. */
struct core_change {
	uint32_t least, most; /* replicas: 1 <= least <= most <= CORE_MOST_MAX */
	int32_t priority;
};

/* An entry in an engine's list: one job. */
struct core_run {
	uint64_t job;
	uint64_t generation;
	bool running; /* true: running; false: being started */
};

/* What is known about a job that the engine found. */
struct core_found {
	struct core_request request;
	uint64_t start_generation;                  /* generation of the job's start */
	const struct core_placement_entry *entries; /* placement of the job; the caller's */
	uint32_t entries_n;
	uint32_t restarts;    /* changes of replicas until that start */
	int64_t submitted_ns; /* by the core's clock */
};

struct core_event {
	enum core_event_kind kind; /* says which of the other fields count */
	int64_t now_ns;
	uint64_t job;
	uint64_t generation;
	enum core_end_cause end_cause;
	int exit_code;
	uint32_t type;
	const struct sched_hints *hints;    /* copied */
	const struct core_request *request; /* copied */
	struct core_change change;
	const struct core_offer *offer; /* copied */
	const char *node;               /* name of the node */
	const char *pool;               /* name of the pool */
	int64_t deadline_ns;
	const struct core_run *runs;
	uint32_t runs_n;
	const struct core_found *found; /* copied */
};

/* ---- updates ---- */

enum core_update_kind {
	CORE_DO_START,   /* job, generation, place */
	CORE_DO_RESCALE, /* job, generation, place: in place; lost nodes do not answer */
	CORE_DO_STOP,    /* job, this generation and all before, grace_ns: save and end */
	CORE_DO_KILL,    /* job, this generation and all before: end now; CORE_ENDED follows */
	CORE_DO_REQUEST_NODES, /* pool, count: request so many nodes */
	CORE_DO_RETURN_NODE,   /* node: take the node back; CORE_NODE_GONE follows */
	CORE_DO_LIST,          /* CORE_LISTED follows */
	CORE_DO_LOG,           /* text: a bug, or something that people must know */
};

struct core_update {
	enum core_update_kind kind;
	uint64_t job;
	uint64_t generation;
	const struct core_placement *place; /* the job's; valid until the next step */
	int64_t grace_ns;
	uint32_t pool; /* index in options.pools */
	uint32_t count;
	uint32_t node;    /* id of the node */
	const char *text; /* valid until the next step */
};

struct sched_core;

/*
 * Makes a core: an empty cluster without jobs. *out is the caller's, to be closed. PAWL_EINVAL:
 * options contradict themselves; PAWL_ENOMEM.
 */
int core_open(struct sched_core **out, const struct core_options *options, struct pawl_err *err);
void core_close(struct sched_core *core);

/*
 * Takes an event. PAWL_ENOENT: no such job, node or pool; PAWL_EEXIST: the job that was found is
 * known; PAWL_EINVAL: the request makes no sense; PAWL_ELIMIT; PAWL_ENOMEM: nothing has happened. A
 * report about something that is over is no error. The next event may come only after
 * core_rows_done.
 */
int core_step(struct sched_core *core, const struct core_event *event, uint64_t *job,
	struct pawl_err *err);
/* Returns false for the end of a job that is known to be over, since engines repeat themselves. A
 * step with it would change nothing. */
bool core_event_is_new(const struct sched_core *core, const struct core_event *event);
/* Returns the updates of the last step, in order. The core's, until the next step. */
const struct core_update *core_updates(const struct sched_core *core, uint32_t *n);
/* Returns the time at which CORE_TIMER is wanted; 0: never. */
int64_t core_wake_ns(const struct sched_core *core);

/* ---- state of the core ---- */

/* Returns the number of jobs that are not over, and of those that the last step ended; ascending
 * ids. */
uint32_t core_jobs(const struct sched_core *core, const struct core_job *const **jobs);
const struct core_job *core_job_find(const struct sched_core *core, uint64_t id);
uint32_t core_nodes(const struct sched_core *core, const struct core_node **nodes);
const struct core_node *core_node_find(const struct sched_core *core, uint32_t id);
/* Returns how many nodes of a pool were requested and have not come. */
uint32_t core_pool_requested(const struct sched_core *core, uint32_t pool);
/* Returns the number of decisions so far; *refused: those without effect, because the policy failed
 * or its answer was wrong. */
uint64_t core_decisions(const struct sched_core *core, uint64_t *refused);
/* Returns by how much the newest decision's cost may exceed the least, as a part of its cost; NaN:
 * the policy does not report it, or there was no decision. The core's own corrections of the answer
 * do not count. */
double core_gap(const struct sched_core *core);
const char *core_state_name(enum core_state state);
const char *core_node_state_name(enum core_node_state state);
const char *core_reason_text(enum core_reason reason);

/* Returns the goodput of the job with so many replicas on so many nodes of a type: samples a
 * second, each worth what it is beside one of an initial batch; 0: not known. */
double core_goodput(const struct core_job *job, uint32_t type, const struct pawl_placement *place);
/* Returns the seconds of work that are left at this goodput; negative: not known. */
double core_left_s(const struct core_job *job, double goodput);
/* The goodput of a job that runs, now and with one replica more or fewer. */
struct core_outlook {
	double now, more, fewer; /* samples a second; 0: not known, or no such number of replicas */
	uint64_t batch;          /* batch size for now: samples of a step */
	double left_s;           /* seconds of work that are left; negative: not known */
};
/* Fills outlook without more and fewer, which take twice as long again; core_outlook_full fills
 * all. */
void core_outlook_now(const struct sched_core *core, const struct core_job *job,
	struct core_outlook *outlook);
void core_outlook_full(const struct sched_core *core, const struct core_job *job,
	struct core_outlook *outlook);
/*
 * Explains the job's state at now_ns, in lines for people: the state, the constraint that binds,
 * the goodput with one replica more or fewer, and the expected end. A now_ns before the last step
 * counts as the time of that step. PAWL_ENOENT.
 */
int core_explain(const struct sched_core *core, uint64_t id, int64_t now_ns,
	char text[CORE_TEXT_MAX], struct pawl_err *err);

/* ---- stored records ---- */

enum core_row_kind {
	CORE_ROW_CLUSTER, /* id 0 */
	CORE_ROW_NODE,
	CORE_ROW_JOB,
};

/* A stored record: the newest one of its kind and id counts. */
struct core_row {
	enum core_row_kind kind;
	uint64_t id;
	bool gone;                    /* the node or job does not exist any more */
	const uint8_t *bytes;         /* the core's, until the next call */
	size_t len_bytes;             /* 0 if gone */
	const struct core_job *job;   /* content of a job's record; else NULL */
	const struct core_node *node; /* content of a node's record; else NULL */
};

/*
 * Returns 1 and the next record that has changed and was not returned yet; 0: no more; PAWL_ENOMEM.
 * Store all records of a step together, or none. If they cannot be stored, close the core.
 */
int core_row_next(struct sched_core *core, struct core_row *row, struct pawl_err *err);
void core_rows_done(struct sched_core *core);

/*
 * Makes a core from rows: each record once, in any order; none of jobs that are over. then_ns: the
 * clock when the newest record was stored; a job that turns out to be gone ran until then at most.
 * The updates are as after a step: CORE_DO_LIST. PAWL_ECORRUPT: a row is damaged, or rows
 * contradict each other; other errors as of core_open.
 */
int core_restore(struct sched_core **out, const struct core_options *options,
	const struct core_row *rows, uint32_t rows_n, int64_t then_ns, struct pawl_err *err);
/* Reads the user's request from a job's record, even if the job is over. PAWL_ECORRUPT: not such a
 * record. */
int core_row_request(const void *bytes, size_t len_bytes, struct core_request *request);
/* Encodes all records in a fixed order: equal cores give equal bytes. *bytes is the caller's, to be
 * freed. PAWL_ENOMEM. */
int core_dump(struct sched_core *core, uint8_t **bytes, size_t *len_bytes, struct pawl_err *err);

#endif
