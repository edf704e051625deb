/*
 * Declarations that the files of the core share: see core.h. Each file calls only those below it:
 *
 *   core.c, core_rows.c                   the order of a step; stored records, and a core from them
 *   core_nodes.c, core_found.c            events of nodes, and of jobs that run and are not known
 *   core_change.c                         new bounds and a new priority of a job
 *   core_round.c ─► core_fill.c           a decision, and corrections of the policy's answer
 *   core_carry.c                          carries the decision out; compares with the engine's list
 *   core_pools.c ─► core_explain.c        numbers of nodes by pool; what the core tells people
 *   core_admit.c                          which jobs take part, and which nodes they may be on
 *   core_used.c ─► core_jobs.c            slots in use; one job's state
 *   core_updates.c                        what a step asks for
 *   core_memory.c ─► core_placement.c     memory and look-up; placements
 */
#ifndef SCHED_CORE_CORE_IMPL_H
#define SCHED_CORE_CORE_IMPL_H

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "sched/core/core.h"

#define CORE_LOG_MAX   256u /* bytes of a step's log message, terminator included */
#define CORE_CLASSES   (2 * SCHED_TYPES_MAX)    /* classes of nodes: 2 * type, plus 1 if spot */
#define CORE_EXTRA_MAX (2 * CORE_POOLS_MAX + 8) /* updates that concern neither a job nor a node */

/* The state of a pool, beside its options. */
struct core_pool_state {
	uint32_t requested;   /* nodes that were requested and have not come */
	int64_t requested_ns; /* time of the newest request */
	int64_t retry_ns;     /* no request before this time */
	int64_t surplus_ns;   /* time since which the pool has too many nodes; 0: it has not */
};

/* What a decision notes on a job. It is not stored, and each decision fills it anew. */
struct core_job_scratch {
	struct core_placement next; /* placement that is being decided */
	uint32_t cap;           /* replicas that the job may have; 0: the job does not take part */
	enum core_reason quota; /* why cap is less than the job's most */
	uint32_t row;           /* index in the policy's view */
	bool candidate;         /* the job could have replicas */
	bool asked;             /* the job was asked for a replica, for another job */
	struct core_job *taker; /* job that asks for the replica; NULL: this job itself needs one */
	uint32_t given;         /* id of the node where that replica is */
	struct core_job *next_asked; /* next job in the queue of those asked */
	const struct core_run *run;  /* the job's entry in a list, the caller's; NULL: none */
};

/* A user who has jobs. */
struct core_owner {
	uint32_t id;
	uint32_t used; /* scratch of a step: slots given to the user's jobs */
};

/* A policy's view of the cluster, and room for the answer. */
struct core_workspace {
	struct sched_job *jobs; /* owned, as are all arrays here */
	struct sched_node *nodes;
	struct sched_grant *grants;
	uint32_t *now;               /* indices of the nodes where all jobs' replicas are */
	uint32_t *granted;           /* nodes of the grants: a row of slots_max for each job */
	struct core_job **order;     /* candidates, in the order of admission */
	struct core_job **some;      /* scratch: some of the candidates */
	uint32_t jobs_max;           /* jobs that there is room for */
	uint32_t nodes_max;          /* nodes that there is room for */
	uint32_t slots_max;          /* slots of all nodes that there is room for */
	struct core_update *updates; /* updates of a step */
	uint32_t updates_max;
};

struct sched_core {
	struct core_options options; /* queues and pools owned */
	void *policy;                /* memory of the policy, from open() */
	struct core_job **jobs;      /* owned, ascending ids */
	uint32_t jobs_n;
	struct core_node *nodes; /* owned, ascending ids */
	uint32_t nodes_n;
	struct core_owner *owners; /* owned, ascending ids */
	uint32_t owners_n;
	struct core_pool_state pools[CORE_POOLS_MAX];
	/* Used during a step: the next three. */
	uint32_t queue_used[CORE_QUEUES_MAX]; /* slots that the jobs of each queue have */
	bool turns;                           /* a job is overdue */
	/* Overdue job of highest priority, and of those the one that has waited longest; NULL:
	 * none. */
	const struct core_job *first;
	struct core_workspace workspace;
	uint32_t updates_n;          /* number of updates of this step */
	char log_text[CORE_LOG_MAX]; /* text of CORE_DO_LOG; one a step */
	int64_t now_ns;              /* time of the newest event */
	int64_t decided_ns;          /* time of the last decision; INT64_MIN: none */
	bool changed;                /* something has changed since the last decision */
	bool urgent;                 /* a change cannot wait for the next round */
	bool recovering;             /* from core_restore until the first CORE_LISTED */
	int64_t recovery_ns; /* recovering: time of core_restore; else the time at which it ended */
	int64_t listed_ns;   /* time of the newest request for a list */
	uint64_t jobs_ever;  /* ids given out to jobs */
	uint32_t nodes_ever; /* ids given out to nodes */
	uint64_t decisions;  /* decisions so far */
	uint64_t refused;    /* decisions without effect */
	double gap;          /* gap of the newest decision; NaN: not known */
	bool dirty;          /* the stored row of the cluster is out of date */
	int64_t wake_ns;     /* time at which CORE_TIMER is wanted; 0: never */
	uint32_t *gone;      /* owned; ids of nodes whose rows are to be deleted */
	uint32_t gone_n;
	uint32_t rows_visited; /* rows of this step that core_row_next has gone through */
	struct wire_out row;   /* the row that core_row_next returned last */
};

/* ---- core_placement.c ---- */

uint32_t placement_replicas_on(const struct core_placement *place, uint32_t node);
bool placement_equal(const struct core_placement *a, const struct core_placement *b);
void placement_copy(struct core_placement *to, const struct core_placement *from);
void placement_clear(struct core_placement *place);
void placement_add(struct core_placement *place, uint32_t node, uint32_t replicas);
/* Takes at most so many replicas off a node; returns how many there were. */
uint32_t placement_remove(struct core_placement *place, uint32_t node, uint32_t replicas);

/* ---- core_memory.c ---- */

/* Makes room for so many more jobs, nodes and slots, and for so many updates beside those of jobs
 * and nodes. PAWL_ENOMEM: the room is unchanged. */
int core_reserve(struct sched_core *core, uint32_t jobs, uint32_t nodes, uint32_t slots,
	uint32_t updates, struct pawl_err *err);
struct core_job *core_job_make(const struct core_request *request, struct pawl_err *err);
/* Makes room for so many replicas in the job's placements. PAWL_ENOMEM: the job is unchanged. */
int core_job_grow(struct core_job *job, uint32_t most, struct pawl_err *err);
void core_job_free(struct core_job *job);
/* Returns the index of the node in nodes; nodes_n: there is none. */
uint32_t core_node_at(const struct sched_core *core, uint32_t id);
struct core_job *core_job_at(const struct sched_core *core, uint64_t id);
/* Returns the index in owners; UINT32_MAX: none. */
uint32_t core_owner_of(const struct sched_core *core, uint32_t id);
/* Needs room in jobs and owners. */
void core_add_job(struct sched_core *core, struct core_job *job);
uint32_t core_queue_named(const struct sched_core *core, const char *name); /* UINT32_MAX: none */
uint32_t core_pool_named(const struct sched_core *core, const char *name);  /* or CORE_NO_POOL */

/* ---- core_updates.c ---- */

struct core_update *core_add_update(struct sched_core *core, enum core_update_kind kind);
void core_log(struct sched_core *core, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void core_request_list(struct sched_core *core);
/* Asks for a decision: at the next round, or as soon as possible if urgent. */
void core_want_round(struct sched_core *core, bool urgent);

/* ---- core_jobs.c: one job's state ---- */

bool core_is_over(const struct core_job *job); /* done, failed or cancelled */
bool core_is_up(const struct core_job *job);   /* starting, running or rescaling */
/* Whether so many replicas are within the job's bounds. */
bool core_may_have(const struct core_job *job, uint32_t replicas);
/* Returns the slots that the job has, or may have, on a node. */
uint32_t core_job_slots_on(const struct core_job *job, uint32_t node);
uint32_t core_job_slots(const struct core_job *job); /* on all nodes, each slot counted once */
/* Brings attained_s and ran_ns up to date, before the job's state or slots change. */
void core_job_count(struct sched_core *core, struct core_job *job);
void core_job_enter(struct sched_core *core, struct core_job *job, enum core_state state,
	enum core_reason reason);
/* Stops the job, or kills it if no grace is left. */
void core_job_stop(struct sched_core *core, struct core_job *job, enum core_after after,
	enum core_reason reason, int64_t grace_ns);
void core_job_runs(struct sched_core *core, struct core_job *job, uint64_t generation);
/* Handles an end of the job for which core_event_is_new. */
void core_job_ended(struct sched_core *core, struct core_job *job, const struct core_event *event);
/* Counts an end after which the job waits; call it before the job's state changes. After a run of
 * CORE_BACKOFF_RESET_NS the end counts as the first. */
void core_job_count_end(const struct sched_core *core, struct core_job *job);
void core_job_refused(struct sched_core *core, struct core_job *job);
void core_job_check_time(struct sched_core *core, struct core_job *job);
int core_job_command(struct sched_core *core, struct core_job *job, enum core_event_kind kind,
	struct pawl_err *err);
/* Takes a lost node away from the job. */
void core_job_node_lost(struct sched_core *core, struct core_job *job, uint32_t node);
/* Whether the job can change its replicas now without a new start. */
bool core_job_can_rescale(const struct core_job *job);
/* Takes so many of the job's slots on a node away; its processes there still live. A job that can
 * go on with fewer replicas is rescaled; another one is stopped, unless it was to leave these
 * slots. */
void core_job_slots_lost(struct sched_core *core, struct core_job *job, uint32_t node,
	uint32_t count);
double core_attained_s(const struct sched_core *core, const struct core_job *job);
int64_t core_ran_ns(const struct sched_core *core, const struct core_job *job);

/* ---- core_used.c ---- */

/* Counts the slots in use anew: of each node, queue and owner. */
void core_count_used(struct sched_core *core);
/* Charges slots to the quotas of the job's queue and owner. */
void core_charge_quota(struct sched_core *core, const struct core_job *job, uint32_t slots);

/* ---- core_admit.c ---- */

uint32_t core_class_of(const struct core_node *node);
/* Whether the job may have replicas on nodes of the class. */
bool core_class_fits(const struct core_job *job, uint32_t class);
bool core_may_use(const struct core_job *job, const struct core_node *node);
/* Whether the job's turn is not over yet. */
bool core_has_turn(const struct sched_core *core, const struct core_job *job);
/* Returns the time since which a queued job has waited for its start. */
int64_t core_queued_since_ns(const struct core_job *job);
/* Fills order and caps; returns the number of candidates. */
uint32_t core_admit(struct sched_core *core);
/* Returns the placement that the job is taken to have, as far as nodes have room. */
const struct core_placement *core_place_now(const struct core_job *job);

/* ---- core_pools.c ---- */

void core_pools_adjust(struct sched_core *core);
void core_pools_request_again(struct sched_core *core);

/* ---- core_carry.c: from the placements that jobs want to those that they have ---- */

void core_carry_out(struct sched_core *core);
/* Compares jobs with the engine's list, and repeats what the engine may not have received. */
void core_reconcile(struct sched_core *core, const struct core_run *runs, uint32_t runs_n);

/* ---- core_fill.c ---- */

/* Both correct scratch->next of the jobs. core_fix_nodes moves or removes replicas that are where
 * the job may not be. It returns the types of nodes of which it removed some because of the job's
 * limits on spot nodes: a bit each. core_fix_least gives each admitted job without replicas its
 * least. */
uint32_t core_fix_nodes(struct sched_core *core, uint32_t candidates);
void core_fix_least(struct sched_core *core, uint32_t candidates);

/* ---- core_round.c: a decision ---- */

void core_decide(struct sched_core *core);

/* ---- core_found.c ---- */

int core_job_found(struct sched_core *core, const struct core_event *event, struct pawl_err *err);
/* Records that job ids up to this one are in use. */
void core_ids_used(struct sched_core *core, uint64_t job);

/* ---- core_change.c ---- */

/* Checks the replicas of a job in a queue against the limits. what: the action, for messages.
 * PAWL_EINVAL. */
int core_check_size(const struct sched_core *core, uint32_t queue, uint32_t least, uint32_t most,
	const char *what, struct pawl_err *err);
int core_job_change(struct sched_core *core, struct core_job *job, const struct core_change *change,
	struct pawl_err *err);

/* ---- core_nodes.c ---- */

int core_node_step(struct sched_core *core, const struct core_event *event, struct pawl_err *err);
void core_node_gone(struct sched_core *core, uint32_t n); /* n: index in nodes */

#endif
