/* What the files of the engine slurm share: slurm.c (calls, events, time), slurm_nodes.c (pilots),
 * slurm_queue.c (Slurm's commands), slurm_jobs.c (jobs), slurm_rescale.c (other sizes of them). */
#ifndef SCHED_SLURM_IMPL_H
#define SCHED_SLURM_IMPL_H

#include "base/loop.h"
#include "sched/slurm.h"
#include "sched/slurm_command.h"
#include "sched/slurm_spool.h"
#include "sched/slurm_text.h"

#define SLURM_NO_POOL      UINT32_MAX
#define SLURM_EXIT_LEFT    79   /* of a part that has left its job */
#define SLURM_EXIT_STOPPED 143  /* of one that has saved, as it or another one was told */
#define SLURM_SAID_MAX     512u /* bytes of why something is not as it should be */

/* A pilot that has come, by its directory. */
struct pilot {
	char name[CORE_NAME_MAX]; /* of the core's node */
	char directory[SLURM_PATH_MAX];
	struct slurm_have have; /* the newest; parts owned. number 0: none yet */
	uint64_t number;        /* of it */
	uint64_t want;          /* number of the want that was written last */
	uint32_t pool;          /* index; SLURM_NO_POOL: not known yet */
	int64_t came_ns;        /* when its directory was seen */
	int64_t heard_ns;       /* when have was new, or the pilot */
	int64_t goes_at_ns;     /* have says it goes: when, in the core's time */
	bool dirty;             /* want is not written as it is to be */
	bool forgets;           /* a part is wanted again once it is not in have any more */
	bool missed;            /* squeue did not know its job, once */
	bool leave;             /* it is to end */
	bool drained;           /* its node is, to Slurm */
	bool lost;              /* there is no node any more, for the core */
	bool empty;             /* and nothing is left of what ran on it */
	int64_t empty_ns;       /* since when */
	bool settled; /* and nobody waits for what it said: it is not looked at any more */
	bool told_comes, told_goes, told_drained, told_gone;
};

/* A job of Slurm's that is, or will be, a pilot. */
struct pilot_job {
	struct slurm_row row;
	uint32_t pool;     /* index */
	int64_t active_ns; /* since when it has had a node; 0: it has none */
	bool listed;       /* by the squeue that is being read */
	bool missed;       /* not by the last one */
	bool awaited;      /* it has not come, nor ended */
};

/* What was asked of a pool, as the core counts it. */
struct asked {
	uint32_t n;               /* nodes that have not come */
	bool queued;              /* an sbatch has not been answered; there is one at a time */
	int64_t asked_ns;         /* when the last were asked for */
	char waits[128];          /* why Slurm lets them wait, as was said last; "": they do not */
	char dry[SLURM_SAID_MAX]; /* why none came, last; "": one did, or was asked for since */
	int64_t dry_ns;           /* when */
};

struct slurm_job {
	struct slurm_record record;
	uint64_t refused;                 /* generation that was; 0 */
	char refused_why[SLURM_SAID_MAX]; /* the last that was; "": none */
	bool admits;        /* its ranks let others in: who is to join by a rescale may start */
	bool parting;       /* who is to leave by a rescale is told: those who join are there */
	int64_t runs_ns;    /* since when all of it runs, or was found to */
	int64_t stopped_ns; /* since when a part has ended as one that was stopped; 0: none has */
	int64_t rescale_ns; /* since when a rescale is under way; 0: none, or not seen yet */
	int64_t open_ns;    /* when its door was seen open last; 0 */
	bool failing;       /* one part went wrong: the others are to end */
	bool bereaved;      /* a node of it was lost */
};

/* An event that is to be told. */
struct telling {
	struct core_event event;
	struct core_offer offer;
	char name[CORE_NAME_MAX]; /* of its node, or pool */
	struct telling *next;
};

struct sched_slurm {
	struct slurm_options options;
	char id[SLURM_ID_CHARS + 1];
	int lock; /* descriptor of spool/lock */
	struct slurm_commands *commands;
	struct pilot *pilots;
	uint32_t pilots_n, pilots_cap;
	uint32_t looked_n; /* of them, those that were looked at last */
	struct pilot_job *queue;
	uint32_t queue_n, queue_cap;
	struct asked *asked;     /* of each pool */
	struct slurm_job **jobs; /* ascending ids */
	uint32_t jobs_n, jobs_cap;
	struct slurm_node_row *machines; /* owned: what Slurm has; none: it has not said */
	uint32_t machines_n, machines_cap;
	int64_t sized_ns;              /* when it was asked what it has */
	struct telling *first, **last; /* of what is to be told */
	struct core_run *runs;         /* of the last list */
	struct loop_timer look, poll, tell;
	int64_t kill_wait_ns;        /* 0: not known yet */
	bool ready;                  /* squeue has been read once */
	bool seen;                   /* all pilots' directories have, in one look */
	bool listing;                /* the core waits for a list */
	bool polling;                /* squeue is on its way */
	int64_t polled_ns;           /* when it was called last */
	char failed[SLURM_SAID_MAX]; /* what Slurm's commands say that fail; "": they do not */
	int64_t failed_ns;           /* since when */
	char spool_failed[SLURM_SAID_MAX]; /* the same of what is written to the spool, or read */
	bool spool_failing;                /* likewise, in the look that is under way */
};

/* ---- slurm.c ---- */

/* Tells the core, from the loop. NULL: out of memory, which was said. */
struct telling *slurm_tell(struct sched_slurm *s, enum core_event_kind kind);
void slurm_tell_node(struct sched_slurm *s, const char *name, enum core_event_kind kind);
void slurm_tell_job(struct sched_slurm *s, enum core_event_kind kind, const struct slurm_job *job,
	uint64_t generation);
/* It knows which pilots there are: before, one that was not seen yet would be taken for lost. */
bool slurm_knows(const struct sched_slurm *s);
/* The spool could not be written or read: said once, until it can. */
void slurm_spool_fails(struct sched_slurm *s, const struct pawl_err *err);
/* The next look is now. */
void slurm_look_soon(struct sched_slurm *s);
/* Room for one more item. False: out of memory, which was said. */
bool slurm_grow(void *items, uint32_t n, uint32_t *cap, size_t item_bytes);

/* ---- slurm_nodes.c: pilots that have come ---- */

/* NULL: there is none. */
struct pilot *slurm_pilot_named(struct sched_slurm *s, const char *name);
/* There is no node any more; empty: and nothing is left of what ran on it. */
void slurm_pilot_lose(struct sched_slurm *s, struct pilot *pilot, bool empty);
/* It is told to end. */
void slurm_pilot_end(struct pilot *pilot);
/* What the spool says of pilots. */
void slurm_nodes_look(struct sched_slurm *s, int64_t now_ns);
/* Writes what is wanted of those where that has changed. */
void slurm_nodes_write(struct sched_slurm *s);
void slurm_nodes_tell_all(struct sched_slurm *s);
/* What pilots have printed that are long gone is removed. */
void slurm_nodes_forget_logs(struct sched_slurm *s);
void slurm_nodes_close(struct sched_slurm *s);

/* ---- slurm_queue.c: Slurm's word ---- */

/* Asks Slurm; what it says is seen once it has answered. */
void slurm_queue_poll(struct sched_slurm *s);
/* The pool of a pilot that Slurm gave this number; SLURM_NO_POOL: not known. */
uint32_t slurm_queue_pool(struct sched_slurm *s, uint64_t slurm_job);
/* Whether Slurm has said that the pilot's job is over, or began again since. That stays so, however
 * long ago it was said. */
bool slurm_queue_past(struct sched_slurm *s, const struct pilot *pilot);
void slurm_queue_ask(struct sched_slurm *s, uint32_t pool, uint32_t count);
void slurm_queue_give_back(struct sched_slurm *s, const char *node);

/* ---- slurm_sizes.c: what its nodes have ---- */

/* Asks Slurm, if it was not asked for a while. */
void slurm_sizes_poll(struct sched_slurm *s);
/* Of a node; NULL: it has not said. */
bool slurm_size_find(const struct sched_slurm *s, const char *node, struct slurm_size *size);

/* ---- slurm_remark.c ---- */

void slurm_remark(struct sched_slurm *s, uint64_t id, char *text, size_t cap_bytes);

/* ---- slurm_spots.c: on which nodes what is to run ---- */

/* A spot's node and replicas. PAWL_ENOENT: the node is gone. */
int slurm_spot_take(struct sched_slurm *s, const struct sched_core *core,
	const struct core_spot *from, struct slurm_spot *spot, struct pawl_err *err);
/* The programs of those of the first n that have none; whether the job is joint. */
int slurm_spots_describe(struct sched_slurm *s, struct slurm_record *record, uint32_t n,
	struct pawl_err *err);

/* ---- slurm_jobs.c ---- */

/* It was started, and something of it may be left. */
bool slurm_job_is_alive(const struct slurm_job *job);
/* NULL: there is none. */
const struct slurm_job *slurm_job_find(const struct sched_slurm *s, uint64_t id);
/* Made if there is none. NULL: out of memory, which was said. */
struct slurm_job *slurm_job_find_or_add(struct sched_slurm *s, uint64_t id);
/* Its record is durable then. */
int slurm_job_save(struct sched_slurm *s, const struct slurm_record *record, struct pawl_err *err);
/* What is wanted of its pilots is written anew. */
void slurm_job_touch(struct sched_slurm *s, const struct slurm_job *job);
/* What a pilot has of it; NULL: nothing. */
const struct slurm_have_part *slurm_part_find(const struct pilot *pilot,
	const struct slurm_record *record, const struct slurm_spot *spot);
/* Those that are on record. */
int slurm_jobs_load(struct sched_slurm *s, struct pawl_err *err);
void slurm_jobs_start(struct sched_slurm *s, const struct sched_core *core, uint64_t id,
	uint64_t generation, const struct core_place *place);
void slurm_jobs_stop(struct sched_slurm *s, uint64_t id, uint64_t generation, int64_t grace_ns);
/* What has become of them, by what pilots have. */
void slurm_jobs_look(struct sched_slurm *s);
/* Ends that are kept; then CORE_LISTED. */
void slurm_jobs_tell_all(struct sched_slurm *s);
/* All that runs, or is being started; the engine's. */
const struct core_run *slurm_jobs_list(struct sched_slurm *s, uint32_t *n);
/* What is wanted of a pilot's parts; owned by the caller. False: out of memory. */
bool slurm_jobs_want(const struct sched_slurm *s, struct pilot *pilot, struct slurm_want *want);
/* Whether any job that is not over is on it. */
bool slurm_jobs_on(const struct sched_slurm *s, const struct pilot *pilot);
void slurm_jobs_close(struct sched_slurm *s);

/* ---- slurm_rescale.c: other sizes of what runs ---- */

void slurm_jobs_rescale(struct sched_slurm *s, const struct sched_core *core, uint64_t id,
	uint64_t generation, const struct core_place *place);
/* Of one that is alive: whether its parts are as they are to be. */
void slurm_rescale_look(struct sched_slurm *s, struct slurm_job *job);
/* Sees whether its ranks can join and leave, into the record. */
void slurm_rescale_learn(struct slurm_record *record);
/* Of one that is over: what its ranks have left there. */
void slurm_rescale_forget(const struct slurm_record *record);

#endif
