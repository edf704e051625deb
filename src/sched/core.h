/*
 * The scheduler's core: what happened goes in, what is to be done comes out. Pure: the same events
 * make the same updates, on any machine and in any year.
 *
 *   queued ──► starting ──► running ◄──► rescaling        paused ◄── (from all but ended)
 *     ▲            │           │              │              │
 *     │            └───────────┴──────────────┴─► stopping ──┴─► done, failed, cancelled
 *     └───────────── preempted, moved, to be tried again ◄──┘
 *
 * Once a round (core_options.round_ns; sooner where something cannot wait) the core asks its policy
 * who is to have which replicas. Before, it decides who takes part: in the order of priority, then
 * of who has its turn, of who was passed over for too long, of who runs, then of submission, a job
 * is admitted as long as its quota and the slots hold it at its least. A turn is an hour from its
 * start on, and longer by all that it ran before for one that may lose that. So nobody waits for
 * whom others could shrink, and of two jobs the one of less priority waits. After, it checks what
 * the policy says: a wrong answer is refused as a whole and said to be a bug; a job that was
 * admitted and forgotten is given its least of what others have above theirs.
 *
 * What a job is to have (want) and what it has (at, old) are two things. Slots are given only once
 * they are free; whoever is to have less, gives first.
 *
 * Each start, and each rescale, has a number, the job's generation, which grows. Before the engine
 * is told of one it is written down: the caller stores the rows of a step (core_row_next), then
 * carries out its updates. After a crash core_restore makes the same core of the rows, which does
 * nothing of its own until the engine has said what runs (CORE_LISTED); then it says again what may
 * not have been heard. An engine does what it is told of a generation once, and never a start of
 * one that is not newer than the last stop: so no job runs twice.
 *
 * Times are of a clock that goes on over restarts of the scheduler and does not jump as the wall's
 * does; one before the last counts as that.
 */
#ifndef SCHED_CORE_H
#define SCHED_CORE_H

#include "sched/policy.h"

#include <stddef.h>

#define CORE_NAME_MAX   64u     /* bytes of a name, terminator included */
#define CORE_TEXT_MAX   1024u   /* of an explanation, likewise */
#define CORE_JOBS_MAX   100000u /* that are not over; another one is refused */
#define CORE_NODES_MAX  16384u
#define CORE_SLOTS_MAX  1024u /* of a node */
#define CORE_MOST_MAX   4096u /* replicas of a job */
#define CORE_QUEUES_MAX 256u
#define CORE_POOLS_MAX  32u
#define CORE_OWNERS_MAX 4096u /* that have jobs */

#define CORE_HASTE_NS    100000000LL     /* between two decisions, however urgent */
#define CORE_PATIENCE_NS 3600000000000LL /* a turn; and queued so long, a job has the next one */
#define CORE_GOOD_NS     600000000000LL  /* having run so long, a job's next wait is short again */
#define CORE_REFUSED_MAX 16u            /* starts in a row that may be refused, or never answered */
#define CORE_LIST_NS     300000000000LL /* between two lists of what runs: messages get lost */
#define CORE_DRY_NS      600000000000LL /* a pool that had no node is asked again after that */
#define CORE_IDLE_NS     300000000000LL /* nodes too many for so long are given back */

/* ---- what the cluster is ---- */

/* Jobs that share a weight and a quota. */
struct core_queue {
	char name[CORE_NAME_MAX];
	double weight;      /* of each of its jobs, over 0 */
	uint32_t slots_max; /* that its jobs have together; 0: no quota */
};

/* Nodes of one kind that can be asked for. */
struct core_pool {
	char name[CORE_NAME_MAX];
	uint32_t type;        /* of its nodes, below SCHED_TYPES_MAX */
	uint32_t slots;       /* of each */
	double price;         /* of each, an hour */
	bool spot;            /* they can be taken away */
	uint32_t least, most; /* nodes of it */
};

struct core_options {
	const struct core_queue *queues; /* copied; the first is that of who names none */
	uint32_t queues_n;               /* at least 1 */
	const struct core_pool *pools;   /* copied; NULL: nodes come and go by themselves */
	uint32_t pools_n;
	uint32_t pool_slots_max; /* of all pools' nodes together; 0: no bound */
	/* Nodes are asked for as long as each replica does this part of what one alone does; from 0
	 * to 1, the less, the sooner jobs end, and the dearer; 0: a half. */
	double good_use;
	uint32_t owner_slots_max; /* that jobs of one owner have together; 0: no quota */
	int64_t round_ns;         /* between two decisions */
	int64_t start_ns;         /* for a start, or a rescale, to be answered */
	int64_t again_ns;         /* between two kills of what does not die */
	int64_t backoff_ns;       /* the first wait of a job that failed; doubled each time */
	int64_t backoff_max_ns;   /* the longest */
	const struct sched_policy *policy;
	uint64_t seed;   /* of the policy */
	double fairness; /* from 0 to SCHED_FAIRNESS_MAX: see sched_view */
};

/* A node that is there, as the engine tells. */
struct core_offer {
	char name[CORE_NAME_MAX];
	char pool[CORE_NAME_MAX]; /* "": none */
	uint32_t type;            /* below SCHED_TYPES_MAX */
	uint32_t slots;           /* at least 1 */
	double price;             /* an hour; 0: not known */
	bool spot;                /* it can be taken away */
};

enum core_node_state {
	CORE_NODE_UP,
	CORE_NODE_DRAINED, /* it takes nobody; those that cannot be moved stay */
	CORE_NODE_GOING,   /* it will be gone at deadline_ns: all leave */
	CORE_NODE_LOST,
};

struct core_node {
	uint32_t id; /* never used again */
	struct core_offer offer;
	enum core_node_state state;
	int64_t deadline_ns; /* going: when */
	uint32_t pool;       /* index; CORE_NO_POOL */
	bool returning;      /* we drain it to give it back; by nobody else's wish */
	bool returned;       /* the engine was told to take it */
	uint32_t used;       /* slots that replicas have, or may have */
	uint32_t room;       /* scratch of a decision */
	bool dirty;          /* its row is not stored as it is */
};
#define CORE_NO_POOL UINT32_MAX

/* ---- what a job is ---- */

/* What its user wants. */
struct core_ask {
	char name[CORE_NAME_MAX];
	char queue[CORE_NAME_MAX]; /* "": the first */
	uint32_t owner;            /* user id */
	uint32_t least, most;      /* replicas, 1 <= least <= most <= CORE_MOST_MAX */
	uint32_t wanted;           /* of those, for policies that do not choose; 0: most */
	uint32_t types;            /* bit t: it may be on nodes of type t; 0: on any */
	uint32_t spot_most;        /* replicas on nodes that can be taken away; 0: none */
	uint32_t spot_least;       /* of those, unless it has fewer in all; at most spot_most */
	int32_t priority;          /* the higher, the sooner */
	bool pinned;               /* it may not be stopped, or moved, for others */
	bool in_place;             /* its replicas change while it runs */
	double restart_s;          /* what a change costs it */
	uint32_t retries;          /* starts more after it failed */
	int64_t time_limit_ns;     /* that it may run; 0: for ever */
	int64_t grace_ns;          /* from being told to stop to being killed */
};

enum core_state {
	CORE_QUEUED,
	CORE_STARTING,
	CORE_RUNNING,
	CORE_RESCALING,
	CORE_STOPPING,
	CORE_PAUSED,
	CORE_DONE, /* from here on it is over */
	CORE_FAILED,
	CORE_CANCELLED,
};

/* Why it is in its state; or why it has no more. */
#define CORE_REASONS(X)                                                                            \
	X(CORE_WHY_NONE, "")                                                                       \
	X(CORE_WHY_NEW, "submitted")                                                               \
	X(CORE_WHY_USER, "its user said so")                                                       \
	X(CORE_WHY_DECIDED, "so it was decided")                                                   \
	X(CORE_WHY_PREEMPTED, "others come first")                                                 \
	X(CORE_WHY_MOVED, "it gets other replicas")                                                \
	X(CORE_WHY_NODE, "a node went")                                                            \
	X(CORE_WHY_EXIT, "it ended by itself")                                                     \
	X(CORE_WHY_TIME, "its time limit")                                                         \
	X(CORE_WHY_REFUSED, "its start was refused")                                               \
	X(CORE_WHY_SILENT, "its start was not answered")                                           \
	X(CORE_WHY_GONE, "it was not there any more")                                              \
	X(CORE_WHY_BACKOFF, "it waits after a failure")                                            \
	X(CORE_WHY_QUEUE_QUOTA, "the quota of its queue")                                          \
	X(CORE_WHY_OWNER_QUOTA, "the quota of its user")                                           \
	X(CORE_WHY_PRIORITY, "jobs that come first have the slots")                                \
	X(CORE_WHY_SLOTS, "no slots are free")                                                     \
	X(CORE_WHY_NODES, "no nodes that could hold it")                                           \
	X(CORE_WHY_BUSY, "it waits until others have given way")                                   \
	X(CORE_WHY_ROUND, "it waits for the next decision")

enum core_reason {
#define X(name, text) name,
	CORE_REASONS(X)
#undef X
};

/* Replicas on a node. */
struct core_spot {
	uint32_t node; /* id */
	uint32_t replicas;
};

/* Where replicas are: ascending nodes, none with no replicas. */
struct core_place {
	struct core_spot *spots; /* owned; room for as many as the job's most */
	uint32_t n;              /* of them */
	uint32_t replicas;       /* of all */
};

/* What follows once it has stopped. */
enum core_after {
	CORE_THEN_QUEUED,
	CORE_THEN_BACKOFF, /* queued, in a while; refused once more */
	CORE_THEN_PAUSED,
	CORE_THEN_FAILED,
	CORE_THEN_CANCELLED,
};

struct core_job {
	uint64_t id;
	struct core_ask ask;
	enum core_state state;
	enum core_reason reason; /* of the state */
	enum core_after after;   /* stopping */
	uint32_t queue;          /* index */
	uint64_t generation;     /* of the newest start or rescale */
	uint64_t born;           /* of the newest start */
	struct core_place at;    /* of generation */
	struct core_place old;   /* rescaling, or stopped then: where it may still be, too */
	struct core_place want;  /* what it is to have */
	int64_t submitted_ns;
	int64_t since_ns; /* of the state */
	int64_t due_ns;   /* queued: not before; starting, rescaling: answered by; stopping: killed
			     then; 0: none */
	int64_t counted_ns; /* up to when attained_s and ran_ns are */
	double attained_s;  /* slots times seconds */
	int64_t ran_ns;     /* running */
	uint32_t failures;  /* exits other than 0 */
	uint32_t refused;   /* starts refused, or not answered, in a row */
	uint32_t fast;      /* of both in a row, for the wait */
	uint32_t restarts;  /* changes of its replicas since the first start */
	bool stiff;         /* a rescale in place was refused: the next is by a new start */
	bool killed;        /* stopping: its grace is over */
	int exit_code;      /* of the last end by itself */
	struct sched_hints *hints[SCHED_TYPES_MAX]; /* owned; NULL: it told none */

	bool dirty;             /* its row is not stored as it is */
	enum core_reason wait;  /* queued, or with less than most: what binds. Not stored, as all
				   below */
	uint64_t wait_for;      /* job that is meant by wait; 0: none */
	int64_t line_ns;        /* since when it stood in line at its start; 0: not known */
	struct core_place next; /* scratch of a decision */
	uint32_t cap;           /* likewise: replicas that it may have; 0: it does not take part */
	enum core_reason quota; /* likewise: why cap is less than its most */
	uint32_t row;           /* likewise: in the policy's view */
	bool candidate;         /* likewise: it could have some */
	bool asked;             /* likewise: for a replica, for another job */
	struct core_job *taker; /* likewise: for that one; NULL: it is the one who needs it */
	uint32_t given;         /* likewise: node where that replica is */
	struct core_job *giver; /* likewise: who is asked next */
	const struct core_run *run; /* scratch of a list: the caller's; NULL: none */
};

/* ---- events ---- */

enum core_event_kind {
	CORE_TIME,       /* wake_ns was reached */
	CORE_SUBMIT,     /* ask; *job becomes its id */
	CORE_CANCEL,     /* job */
	CORE_PAUSE,      /* job */
	CORE_RESUME,     /* job */
	CORE_HINTS,      /* job, type, hints */
	CORE_RUNS,       /* job, generation: all its replicas run */
	CORE_ENDED,      /* job, generation, by, exit_code: none of them runs any more */
	CORE_REFUSED,    /* job, generation: it was not started; or not rescaled, and runs as it
			    was */
	CORE_LISTED,     /* runs: all that there is, after core_restore */
	CORE_NODE_COMES, /* offer; also of one that is known */
	CORE_NODE_GOES,  /* node, deadline_ns: it is announced to go */
	CORE_NODE_DRAIN, /* node */
	CORE_NODE_BACK,  /* node: it is not drained any more, or goes not after all */
	CORE_NODE_GONE,  /* node: lost, or given back */
	CORE_POOL_DRY,   /* pool: what was asked of it and has not come, will not */
	CORE_FOUND,      /* job, generation, found: the engine has it, and what is stored knows
			    nothing of it, or of an earlier generation; before the first CORE_LISTED
			    alone, which says whether it runs */
	CORE_SEEN,       /* job: numbers up to this one were given to jobs */
};

enum core_by {
	CORE_BY_ITSELF, /* exit_code is its own */
	CORE_BY_US,     /* it was told to stop */
	CORE_BY_NODE,   /* its node went */
	CORE_BY_NOBODY, /* there is none; or how it ended is not known */
};

/* What an engine has of a job: of a list. */
struct core_run {
	uint64_t job;
	uint64_t generation;
	bool runs; /* else it is being started */
};

/* What is known of a job that was found. */
struct core_found {
	struct core_ask ask;
	uint64_t born;                 /* generation of its start */
	const struct core_spot *spots; /* where it is; the caller's */
	uint32_t spots_n;
	uint32_t restarts;    /* changes of its replicas until its start */
	int64_t submitted_ns; /* by the core's clock */
};

struct core_event {
	enum core_event_kind kind; /* says which of the others count */
	int64_t now_ns;
	uint64_t job;
	uint64_t generation;
	enum core_by by;
	int exit_code;
	uint32_t type;
	const struct sched_hints *hints; /* copied */
	const struct core_ask *ask;      /* copied */
	const struct core_offer *offer;  /* copied */
	const char *node;                /* name */
	const char *pool;                /* name */
	int64_t deadline_ns;
	const struct core_run *runs;
	uint32_t runs_n;
	const struct core_found *found; /* copied */
};

/* ---- updates ---- */

enum core_update_kind {
	CORE_DO_START,   /* job, generation, place */
	CORE_DO_RESCALE, /* job, generation, place: in place; lost nodes do not answer */
	CORE_DO_STOP,    /* job, generation and all before, grace_ns: save and end */
	CORE_DO_KILL, /* job, generation and all before: end now. CORE_ENDED follows in any case */
	CORE_DO_ASK,  /* pool, count nodes of it */
	CORE_DO_RETURN, /* node: take it, CORE_NODE_GONE follows */
	CORE_DO_LIST,   /* CORE_LISTED follows */
	CORE_DO_SAY,    /* text: a bug, or what people must know */
};

struct core_update {
	enum core_update_kind kind;
	uint64_t job;
	uint64_t generation;
	const struct core_place *place; /* the job's; until the next step */
	int64_t grace_ns;
	uint32_t pool; /* index in options */
	uint32_t count;
	uint32_t node;    /* id */
	const char *text; /* until the next step */
};

struct sched_core;

/*
 * An empty cluster without jobs. PAWL_EINVAL: options contradict themselves; PAWL_ENOMEM. *out is
 * the caller's, to be closed.
 */
int core_open(struct sched_core **out, const struct core_options *options, struct pawl_err *err);
void core_close(struct sched_core *core);

/*
 * Takes an event in. PAWL_ENOENT: no such job, node or pool; PAWL_EEXIST: what was found is known;
 * PAWL_EINVAL: what was asked makes no sense; PAWL_ELIMIT; PAWL_ENOMEM: nothing has happened. What
 * an engine says of what is over is no error. Until core_rows_done, no other event may follow.
 */
int core_step(struct sched_core *core, const struct core_event *event, uint64_t *job,
	struct pawl_err *err);
/* False: an end of what is known to be over, as engines repeat it; a step would change nothing. */
bool core_is_news(const struct sched_core *core, const struct core_event *event);
/* What the last step wants done, in this order. The core's, until the next. */
const struct core_update *core_updates(const struct sched_core *core, uint32_t *n);
/* When CORE_TIME is wanted; 0: never. */
int64_t core_wake_ns(const struct sched_core *core);

/* ---- what is there ---- */

/* Those that are not over, and those that the last step ended; ascending ids. */
uint32_t core_jobs(const struct sched_core *core, const struct core_job *const **jobs);
const struct core_job *core_job_find(const struct sched_core *core, uint64_t id);
uint32_t core_nodes(const struct sched_core *core, const struct core_node **nodes);
const struct core_node *core_node_find(const struct sched_core *core, uint32_t id);
/* Nodes of a pool that were asked for and have not come. */
uint32_t core_pool_asked(const struct sched_core *core, uint32_t pool);
/* Decisions so far; *refused: of those that were none, because the policy was wrong. */
uint64_t core_decisions(const struct sched_core *core, uint64_t *refused);
/* Of the newest decision, what it may cost over the least, as a part of its cost; NaN: the policy
 * does not say, or there was none. What the core changed of its answer is not in it. */
double core_gap(const struct sched_core *core);
const char *core_state_name(enum core_state state);
const char *core_node_state_name(enum core_node_state state);
const char *core_reason_text(enum core_reason reason);

/* Samples a second that the job makes of so many replicas on so many nodes of a type, each worth
 * what it is beside one of an initial batch; 0: not known. */
double core_goodput(const struct core_job *job, uint32_t type, const struct pawl_place *place);
/* Seconds of work that are left at this goodput; negative: not known. */
double core_left_s(const struct core_job *job, double goodput);
/* What a replica more or fewer is worth to a job that runs; 0: not known, or there is none. */
struct core_outlook {
	double now, more, fewer; /* samples a second */
	uint64_t batch;          /* samples of a step that now is of */
	double left_s;           /* negative: not known */
};
/* The same without more and fewer, which take twice as long again. */
void core_look(const struct sched_core *core, const struct core_job *job,
	struct core_outlook *outlook);
void core_look_ahead(const struct sched_core *core, const struct core_job *job,
	struct core_outlook *outlook);
/*
 * Why the job is where it is at now_ns, in lines for people: its state, the constraint that binds,
 * what one replica more or fewer would make, and when it is expected to end. Times go on from the
 * last step: now_ns before that counts as that. PAWL_ENOENT.
 */
int core_explain(const struct sched_core *core, uint64_t id, int64_t now_ns,
	char text[CORE_TEXT_MAX], struct pawl_err *err);

/* ---- what is stored ---- */

enum core_row_kind {
	CORE_ROW_CLUSTER, /* id 0 */
	CORE_ROW_NODE,
	CORE_ROW_JOB,
};

/* A record: the newest one of its kind and id counts. */
struct core_row {
	enum core_row_kind kind;
	uint64_t id;
	bool gone;                    /* there is none any more */
	const uint8_t *bytes;         /* the core's, until the next call */
	size_t len_bytes;             /* 0 if gone */
	const struct core_job *job;   /* of a job: what it says; else NULL */
	const struct core_node *node; /* of a node, likewise */
};

/*
 * The next record that has changed and was not told: 1, or 0: no more; PAWL_ENOMEM. They are to be
 * stored together, or not at all. A core whose rows could not be stored is closed.
 */
int core_row_next(struct sched_core *core, struct core_row *row, struct pawl_err *err);
void core_rows_done(struct sched_core *core);

/*
 * A core of rows: each record once, in any order; of jobs that are over, none. then_ns: the clock
 * when the newest of them was stored; what turns out to be gone since, ran until then at most. Its
 * updates are as of a step: CORE_DO_LIST. PAWL_ECORRUPT: they are not what was written; and as
 * core_open.
 */
int core_restore(struct sched_core **out, const struct core_options *options,
	const struct core_row *rows, uint32_t rows_n, int64_t then_ns, struct pawl_err *err);
/* What the user of a job wanted, of its record, also if it is over. PAWL_ECORRUPT: it is none. */
int core_row_ask(const void *bytes, size_t len_bytes, struct core_ask *ask);
/* All records, in one order: two cores that are alike give the same bytes, to be freed.
 * PAWL_ENOMEM. */
int core_dump(struct sched_core *core, uint8_t **bytes, size_t *len_bytes, struct pawl_err *err);

#endif
