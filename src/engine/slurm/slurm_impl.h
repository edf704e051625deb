/*
 * Shared by the files of the engine slurm. Calls go down only, in this order:
 *
 *   slurm.c              the core's calls, and the timers
 *   slurm_pilots.c       the pilots' files        slurm_remark.c       remarks for people
 *   slurm_queue.c        Slurm's commands         slurm_jobs.c         jobs: start, stop, progress
 *   slurm_rescale.c      rescales of jobs
 *   slurm_wants.c        parts on pilots          slurm_job_nodes.c    a job's nodes
 *   slurm_pilot_state.c  the known pilots         slurm_records.c      the jobs' records
 *   slurm_sizes.c        resources of nodes
 *   slurm_state.c        queue of events, next look, errors of the spool
 */
#ifndef ENGINE_SLURM_SLURM_IMPL_H
#define ENGINE_SLURM_SLURM_IMPL_H

#include "engine/slurm/slurm.h"
#include "engine/slurm/slurm_command.h"
#include "engine/slurm/slurm_spool.h"
#include "engine/slurm/slurm_text.h"
#include "io/loop.h"

#define SLURM_NO_POOL        UINT32_MAX
#define SLURM_EXIT_LEFT      79   /* exit status of a part that has left its job */
#define SLURM_EXIT_STOPPED   143  /* exit status of a part that saved and ended on a stop request */
#define SLURM_ERROR_TEXT_MAX 512u /* bytes of an error text, terminator included */

/* What is left of a pilot. A lost pilot never comes back, and each value but the first includes the
 * ones before it: what is empty is also lost. */
enum pilot_life {
	PILOT_THERE,   /* not known to be lost */
	PILOT_LOST,    /* the core's node is gone */
	PILOT_EMPTY,   /* nothing is left of what ran on the node */
	PILOT_SETTLED, /* no job needs the pilot's have: the pilot is no longer examined */
};

/* A pilot whose directory has been seen. */
struct pilot {
	char name[CORE_NAME_MAX]; /* name of the core's node */
	char directory[SLURM_PATH_MAX];
	struct slurm_have have; /* newest state read, if number > 0; parts owned */
	uint64_t number;        /* number of have; 0: none read yet */
	uint64_t want;          /* number of the want written last */
	uint32_t pool;          /* index of its pool; SLURM_NO_POOL: not known yet */
	int64_t first_seen_ns;  /* time at which its directory was first seen */
	int64_t last_seen_ns;   /* time at which its directory or newest have was first seen */
	int64_t gone_at_ns;  /* if have says going: time of the pilot's end, on the core's clock */
	bool dirty;          /* want must be written again */
	bool awaits_removal; /* an ended part must leave have before the next is wanted */
	bool missed;         /* squeue has once not listed the pilot's job */
	bool leave;          /* the pilot is to end */
	bool drained;        /* Slurm says that the pilot's node is drained */
	enum pilot_life life;
	int64_t empty_ns; /* time at which life became PILOT_EMPTY */
	bool posted_arrival, posted_reclaim, posted_drained, posted_gone;
};

/* A job of Slurm's that is or becomes a pilot. */
struct pilot_job {
	struct slurm_row row;
	uint32_t pool;     /* index of its pool */
	int64_t active_ns; /* time since which it has had a node; 0: it has none */
	uint32_t misses;   /* squeues in a row that did not list it; 0: the newest one did */
	bool awaited;      /* the pilot has not arrived yet, and the job has not ended */
};

/* The nodes requested of a pool, as the core counts them. */
struct pool_request {
	uint32_t n;            /* number of nodes that have not arrived */
	bool queued;           /* an sbatch is running; there is at most one */
	int64_t requested_ns;  /* time of the last request */
	char wait_reason[128]; /* Slurm's last reason for the wait; "": none */
	/* Why the last request got no node; "": the last one was queued, or there was none. */
	char exhausted_reason[SLURM_ERROR_TEXT_MAX];
	int64_t exhausted_ns; /* time at which exhausted_reason was set */
};

struct slurm_job {
	struct slurm_record record;
	uint64_t refused;                       /* last generation that was refused; 0: none */
	char refused_why[SLURM_ERROR_TEXT_MAX]; /* reason of the last refused start; "": none */
	bool admits; /* the membership file was open: parts that join by a rescale may start */
	bool leave_requested; /* the joining parts train: the leaving parts are asked to leave */
	int64_t runs_ns;      /* time since which the whole job is known to run; 0: not known */
	int64_t stopped_ns;   /* time since which a part has ended as stopped; 0: none has */
	int64_t rescale_ns; /* time since which a rescale is under way; 0: none, or not seen yet */
	int64_t last_open_ns; /* last time at which the membership file was open; 0: never */
	bool failing;         /* a part has failed: the others are to end */
	bool node_lost;       /* a node of the job was lost */
};

/* An event in the queue to the core; pending_events.h says why this engine has its own queue. */
struct slurm_event {
	struct core_event event;
	struct core_offer offer;
	char name[CORE_NAME_MAX]; /* name of the event's node or pool */
	struct slurm_event *next;
};

struct sched_slurm {
	struct slurm_options options;
	char id[SLURM_ID_CHARS + 1];
	int lock; /* descriptor of spool/lock */
	struct slurm_commands *commands;
	struct pilot *pilots;
	uint32_t pilots_n, pilots_cap;
	uint32_t looked_n; /* number of pilots examined by the last look */
	struct pilot_job *queue;
	uint32_t queue_n, queue_cap;
	struct pool_request *requests; /* one for each pool */
	struct slurm_job **jobs;       /* ordered by id */
	uint32_t jobs_n, jobs_cap;
	struct slurm_node_row *machines; /* resources of Slurm's nodes, owned; none: not known */
	uint32_t machines_n, machines_cap;
	int64_t sizes_polled_ns;           /* time at which machines were last queried; 0: never */
	struct slurm_event *first, **last; /* queue of events for the core */
	struct core_run *runs;             /* runs of the last CORE_LISTED; owned */
	struct loop_timer look, poll, post;
	int64_t kill_wait_ns;              /* Slurm's KillWait; 0: not known yet */
	bool queue_read;                   /* the output of a squeue has been read */
	bool pilots_seen;                  /* a look has read all pilots' directories */
	bool listing;                      /* the core has requested a list */
	bool polling;                      /* a squeue is queued or runs */
	int64_t polled_ns;                 /* time at which the last squeue was queued */
	char failed[SLURM_ERROR_TEXT_MAX]; /* last error of Slurm's commands; "": they work */
	int64_t failed_ns; /* time of the first error since the commands last worked */
	char spool_failed[SLURM_ERROR_TEXT_MAX]; /* last error of the spool; "": it works */
	bool spool_failing; /* the current look could not read or write the spool */
};

/* ---- slurm_state.c: events, timers and errors ---- */

/* Queues an event, which the loop posts to the core. NULL: out of memory, which was logged. */
struct slurm_event *slurm_post(struct sched_slurm *s, enum core_event_kind kind);
void slurm_post_node(struct sched_slurm *s, const char *name, enum core_event_kind kind);
void slurm_post_job(struct sched_slurm *s, enum core_event_kind kind, const struct slurm_job *job,
	uint64_t generation);
/* Schedules the next look for now. */
void slurm_look_soon(struct sched_slurm *s);
/* Records that the spool cannot be read or written. Logs the first such error since it last
 * worked. */
void slurm_report_spool_error(struct sched_slurm *s, const struct pawl_err *err);
/* Makes room for one more item in the array *items. Returns false if out of memory, which was
 * logged. */
bool slurm_grow(void *items, uint32_t n, uint32_t *cap, size_t item_bytes);

/* ---- slurm_sizes.c: resources of Slurm's nodes ---- */

/* Queues an sinfo for the nodes' resources, unless the last one is recent. */
void slurm_sizes_poll(struct sched_slurm *s);
/* Finds the resources of a node. Returns false if they are not known. */
bool slurm_size_find(const struct sched_slurm *s, const char *node, struct slurm_size *size);
/* Returns whether pilots of the pool with that index can get a node with at least these resources.
 * Also true while the nodes' resources are not known. */
bool slurm_sizes_fit(const struct sched_slurm *s, uint32_t pool, const struct slurm_size *least);

/* ---- slurm_pilot_state.c: the pilots that are known ---- */

/* Returns whether all pilots are known. Until then, a pilot not seen yet would be taken for
 * lost. */
bool slurm_pilots_known(const struct sched_slurm *s);
/* Finds a pilot by its name; NULL: there is none. */
struct pilot *slurm_pilot_named(struct sched_slurm *s, const char *name);
/* Records and posts that the core's node is gone. life: PILOT_LOST, or PILOT_EMPTY if nothing that
 * ran on the node is left. */
void slurm_pilot_lose(struct sched_slurm *s, struct pilot *pilot, enum pilot_life life);
/* Has the next want tell the pilot to end. */
void slurm_pilot_end(struct pilot *pilot);

/* ---- slurm_records.c: the jobs' records ---- */

/* Returns whether the job was started and something of it may be left. */
bool slurm_job_is_alive(const struct slurm_job *job);
/* Finds a job; NULL: there is none. */
const struct slurm_job *slurm_job_find(const struct sched_slurm *s, uint64_t id);
/* Finds a job, or adds it. NULL: out of memory. */
struct slurm_job *slurm_job_find_or_add(struct sched_slurm *s, uint64_t id);
/* Writes the record durably. PAWL_EIO and other errors of writing. */
int slurm_job_save(struct sched_slurm *s, const struct slurm_record *record, struct pawl_err *err);
/* Loads the jobs' records. PAWL_ECORRUPT; PAWL_ENOMEM; PAWL_EIO and other errors of reading. */
int slurm_jobs_load(struct sched_slurm *s, struct pawl_err *err);
/* Posts the recorded ends, then CORE_LISTED. */
void slurm_jobs_post_all(struct sched_slurm *s);
/* Lists the jobs that run or start. The engine owns the list. NULL: out of memory. */
const struct core_run *slurm_jobs_list(struct sched_slurm *s, uint32_t *n);
void slurm_jobs_close(struct sched_slurm *s);

/* ---- slurm_wants.c: parts that pilots are to have ---- */

/* Finds the job's part in a pilot's have; NULL: there is none. */
const struct slurm_have_part *slurm_part_find(const struct pilot *pilot,
	const struct slurm_record *record, const struct slurm_job_node *job_node);
/* Returns whether a part is to be on its pilot. A joining part does not start before the membership
 * file is open; once started, it stays wanted. */
bool slurm_part_is_wanted(const struct slurm_job *job, const struct slurm_job_node *job_node,
	const struct slurm_have_part *part);
/* Has the wants of the job's pilots written again. */
void slurm_job_touch(struct sched_slurm *s, const struct slurm_job *job);
/* Returns whether a job that is not over has a node on the pilot. */
bool slurm_pilot_has_jobs(const struct sched_slurm *s, const struct pilot *pilot);
/* Fills in the parts wanted on a pilot, which the caller frees. Returns false if out of memory. */
bool slurm_jobs_want(const struct sched_slurm *s, struct pilot *pilot, struct slurm_want *want);

/* ---- slurm_job_nodes.c: a job's nodes ---- */

/* Fills in the node and the replicas of a job node. PAWL_ENOENT: the node is gone. */
int slurm_job_node_fill(struct sched_slurm *s, const struct sched_core *core,
	const struct core_placement_entry *from, struct slurm_job_node *job_node,
	struct pawl_err *err);
/* Fills in the programs of those of the first n job nodes that have none. For the first node of the
 * job, also sets record->dynamic_nodes. PAWL_ENOMEM; other errors refuse the start. */
int slurm_job_nodes_describe(struct sched_slurm *s, struct slurm_record *record, uint32_t n,
	struct pawl_err *err);
/* Lists a job's nodes by rank: see sched_engine.hosts. */
uint32_t slurm_job_nodes_hosts(struct sched_slurm *s, uint64_t id, uint64_t generation,
	struct sched_engine_host *hosts, uint32_t cap);

/* ---- slurm_rescale.c: rescales of running jobs ---- */

void slurm_jobs_rescale(struct sched_slurm *s, const struct sched_core *core, uint64_t id,
	uint64_t generation, const struct core_placement *place);
/* Advances the rescale of a job that is alive, if there is one, and posts its outcome. */
void slurm_rescale_look(struct sched_slurm *s, struct slurm_job *job);
/* Sets record->elastic if the job's ranks have shown that they can join and leave. */
void slurm_rescale_set_elastic(struct slurm_record *record);
/* Removes the membership files that the ranks of a job that is over have left. */
void slurm_rescale_remove_files(const struct slurm_record *record);

/* ---- slurm_jobs.c: starts, stops and progress of jobs ---- */

void slurm_jobs_start(struct sched_slurm *s, const struct sched_core *core, uint64_t id,
	uint64_t generation, const struct core_placement *place);
void slurm_jobs_stop(struct sched_slurm *s, uint64_t id, uint64_t generation, int64_t grace_ns);
/* Updates the jobs' states from the pilots' haves. */
void slurm_jobs_look(struct sched_slurm *s);

/* ---- slurm_queue.c: Slurm's commands, and its jobs ---- */

/* Queues a squeue. Its output is handled later. */
void slurm_queue_poll(struct sched_slurm *s);
/* Returns the pool of the pilot with this job number of Slurm's; SLURM_NO_POOL: not known. */
uint32_t slurm_queue_pool(struct sched_slurm *s, uint64_t slurm_job);
/* Returns whether Slurm has reported that the pilot's job is over, or was requeued since. */
bool slurm_queue_is_over(struct sched_slurm *s, const struct pilot *pilot);
/* Requests count more nodes for the pool. */
void slurm_queue_request_nodes(struct sched_slurm *s, uint32_t pool, uint32_t count);
/* Ends the pilot that is that node, and cancels its job. */
void slurm_queue_return_node(struct sched_slurm *s, const char *node);

/* ---- slurm_pilots.c: pilots that have arrived ---- */

/* Reads the pilots' directories in the spool. */
void slurm_pilots_look(struct sched_slurm *s, int64_t now_ns);
/* Writes the wants that have changed. */
void slurm_pilots_write(struct sched_slurm *s);
/* Posts all pilots as nodes that are there or gone, for a list. */
void slurm_pilots_post_all(struct sched_slurm *s);
/* Removes old logs of pilots that are gone. */
void slurm_pilots_forget_logs(struct sched_slurm *s);
void slurm_pilots_close(struct sched_slurm *s);

/* ---- slurm_remark.c: remarks for people ---- */

/* Writes the engine's remarks on a job (0: on all) to text, one per line. */
void slurm_remark(struct sched_slurm *s, uint64_t id, char *text, size_t cap_bytes);

#endif
