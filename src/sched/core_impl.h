/* What the files of the core share: see core.h. */
#ifndef SCHED_CORE_IMPL_H
#define SCHED_CORE_IMPL_H

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "sched/core.h"

#define CORE_SAY_MAX   256u /* bytes of what people are told in a step, terminator included */
#define CORE_CLASSES   (2 * SCHED_TYPES_MAX)    /* of nodes: 2 * type, or one more if spot */
#define CORE_EXTRA_MAX (2 * CORE_POOLS_MAX + 8) /* updates that are of no job and no node */

/* Of a pool, beside what it is. */
struct core_pool_now {
	uint32_t asked;   /* nodes that have not come */
	int64_t asked_ns; /* when the newest were */
	int64_t dry_ns;   /* not asked before that */
	int64_t over_ns;  /* since when it has nodes too many; 0: it has not */
};

/* Who has jobs. */
struct core_owner {
	uint32_t id;
	uint32_t used; /* scratch of a step: slots given to its jobs */
};

/* A policy's view, and room for its answer. */
struct core_desk {
	struct sched_job *jobs; /* owned, as all of these */
	struct sched_node *nodes;
	struct sched_grant *grants;
	uint32_t *now;               /* of all jobs, where their replicas are */
	uint32_t *granted;           /* of each job a row */
	struct core_job **order;     /* candidates, who comes first */
	struct core_job **some;      /* scratch: some of them */
	uint32_t jobs_max;           /* room for jobs */
	uint32_t nodes_max;          /* and nodes */
	uint32_t slots_max;          /* and slots of all nodes */
	struct core_update *updates; /* of a step */
	uint32_t updates_max;
};

struct sched_core {
	struct core_options options; /* queues and pools owned */
	void *policy;                /* what its open() gave */
	struct core_job **jobs;      /* owned, ascending ids */
	uint32_t jobs_n;
	struct core_node *nodes; /* owned, ascending ids */
	uint32_t nodes_n;
	struct core_owner *owners; /* owned, ascending ids */
	uint32_t owners_n;
	struct core_pool_now pools[CORE_POOLS_MAX];
	uint32_t queue_used[CORE_QUEUES_MAX]; /* scratch of a decision */
	bool turns;                           /* likewise: somebody waits for one */
	const struct core_job *first; /* likewise: who has waited longest for it; NULL: nobody */
	struct core_desk desk;
	uint32_t updates_n;      /* of this step */
	char said[CORE_SAY_MAX]; /* for CORE_DO_SAY; one a step */
	int64_t now_ns;          /* the newest */
	int64_t decided_ns;      /* of the last decision; INT64_MIN: none */
	bool stale;              /* something has changed since */
	bool urgent;             /* that cannot wait */
	bool blind;              /* what runs is not known */
	int64_t blind_ns;        /* since when: of core_restore; or until when it was */
	int64_t listed_ns;       /* when the engine was last asked what runs */
	uint64_t jobs_ever;      /* ids given out */
	uint32_t nodes_ever;     /* likewise */
	uint64_t decisions;      /* so far */
	uint64_t refused;        /* of them */
	double gap;              /* of the newest; NaN: not known */
	bool dirty;              /* the cluster's row is not stored as it is */
	int64_t wake_ns;         /* 0: never */
	uint32_t *gone;          /* owned; ids of nodes whose rows are to be deleted */
	uint32_t gone_n;
	uint32_t told;       /* rows of this step */
	struct wire_out row; /* the row being told */
};

/* ---- core_place.c ---- */

uint32_t place_on(const struct core_place *place, uint32_t node);
bool place_is(const struct core_place *a, const struct core_place *b);
void place_copy(struct core_place *to, const struct core_place *from);
void place_clear(struct core_place *place);
void place_add(struct core_place *place, uint32_t node, uint32_t replicas);
/* At most so many; returns how many there were. */
uint32_t place_take(struct core_place *place, uint32_t node, uint32_t replicas);

/* ---- core_memory.c ---- */

/* Room for so many jobs, nodes and slots more, and for so many updates beside those of jobs and
 * nodes. PAWL_ENOMEM: there is as much as before. */
int core_reserve(struct sched_core *core, uint32_t jobs, uint32_t nodes, uint32_t slots,
	uint32_t updates, struct pawl_err *err);
struct core_job *core_job_make(const struct core_ask *ask, struct pawl_err *err);
void core_job_free(struct core_job *job);
/* Where the node is in nodes; nodes_n: it is not there. */
uint32_t core_node_at(const struct sched_core *core, uint32_t id);
struct core_job *core_job_at(const struct sched_core *core, uint64_t id);
uint32_t core_owner_of(const struct sched_core *core, uint32_t id); /* index; UINT32_MAX: none */
void core_owner_add(struct sched_core *core, uint32_t id);          /* there is room */

/* ---- core_jobs.c: one job's state ---- */

bool core_is_over(const struct core_job *job);
bool core_is_up(const struct core_job *job); /* starting, running or rescaling */
/* Slots that it has, or may have, on a node. */
uint32_t core_held_on(const struct core_job *job, uint32_t node);
uint32_t core_held(const struct core_job *job); /* on all, each node's counted once */
/* What it has attained and run, up to now: before its state or what it holds changes. */
void core_job_count(struct sched_core *core, struct core_job *job);
void core_job_enter(struct sched_core *core, struct core_job *job, enum core_state state,
	enum core_reason reason);
/* Tells it to stop, or, if it must not take long, kills it. */
void core_job_stop(struct sched_core *core, struct core_job *job, enum core_after after,
	enum core_reason reason, int64_t grace_ns);
/* Nothing of it is there any more. */
void core_job_stopped(struct sched_core *core, struct core_job *job);
void core_job_runs(struct sched_core *core, struct core_job *job, uint64_t generation);
/* One that is news. */
void core_job_ended(struct sched_core *core, struct core_job *job, const struct core_event *event);
void core_job_refused(struct sched_core *core, struct core_job *job);
void core_job_time(struct sched_core *core, struct core_job *job);
int core_job_command(struct sched_core *core, struct core_job *job, enum core_event_kind kind,
	struct pawl_err *err);
/* A node is lost. */
void core_job_bereaved(struct sched_core *core, struct core_job *job, uint32_t node);
double core_attained_s(const struct sched_core *core, const struct core_job *job);
int64_t core_ran_ns(const struct sched_core *core, const struct core_job *job);

/* ---- core_carry.c: from what jobs want to what they have ---- */

void core_count_used(struct sched_core *core);
void core_carry_out(struct sched_core *core);
/* After a restart: what may not have been heard is said again. */
void core_reconcile(struct sched_core *core, const struct core_run *runs, uint32_t runs_n);

/* ---- core_round.c, core_admit.c, core_fill.c: a decision ---- */

void core_decide(struct sched_core *core);
uint32_t core_class_of(const struct core_node *node);
/* Whether the job may have replicas there. */
bool core_class_fits(const struct core_job *job, uint32_t class);
bool core_may_use(const struct core_job *job, const struct core_node *node);
/* It has not had its turn yet. */
bool core_has_turn(const struct sched_core *core, const struct core_job *job);
/* Queued: since when it stands in line. */
int64_t core_in_line_ns(const struct core_job *job);
/* Fills order and caps; returns how many candidates there are. */
uint32_t core_admit(struct sched_core *core);
/* The replicas it is taken to have, as far as nodes have room. */
const struct core_place *core_place_now(const struct core_job *job);
/* Of next, what the job may not have is moved, or taken; then who was forgotten is given its least.
 * core_bend returns the types of nodes of which something was taken since some of them can be taken
 * away, and some cannot: a bit each. */
uint32_t core_bend(struct sched_core *core, uint32_t candidates);
void core_mend(struct sched_core *core, uint32_t candidates);

/* ---- core_found.c ---- */

int core_found(struct sched_core *core, const struct core_event *event, struct pawl_err *err);
void core_seen(struct sched_core *core, uint64_t job); /* jobs up to that number were there */

/* ---- core_pools.c ---- */

void core_pools_adjust(struct sched_core *core);
void core_pools_ask_again(struct sched_core *core);

/* ---- core_nodes.c ---- */

int core_node_step(struct sched_core *core, const struct core_event *event, struct pawl_err *err);
void core_node_gone(struct sched_core *core, uint32_t n); /* index */
uint32_t core_pool_named(const struct sched_core *core, const char *name);

/* ---- core.c ---- */

uint32_t core_queue_named(const struct sched_core *core, const char *name); /* UINT32_MAX: none */
void core_add_job(struct sched_core *core, struct core_job *job);           /* there is room */
struct core_update *core_do(struct sched_core *core, enum core_update_kind kind);
void core_say(struct sched_core *core, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void core_ask_list(struct sched_core *core);
void core_want_round(struct sched_core *core, bool urgent);

#endif
