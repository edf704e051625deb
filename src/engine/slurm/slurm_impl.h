/* Shared by the files of the engine slurm: slurm.c (calls, events, timers), slurm_pilots.c (pilots),
 * slurm_queue.c (Slurm's commands), slurm_jobs.c (jobs), slurm_rescale.c (resizing of jobs). */
#ifndef ENGINE_SLURM_SLURM_IMPL_H
#define ENGINE_SLURM_SLURM_IMPL_H

#include "engine/slurm/slurm.h"
#include "engine/slurm/slurm_command.h"
#include "engine/slurm/slurm_spool.h"
#include "engine/slurm/slurm_text.h"
#include "io/loop.h"

#define SLURM_NO_POOL        UINT32_MAX
#define SLURM_EXIT_LEFT      79   /* exit status of a part that has left its job */
#define SLURM_EXIT_STOPPED   143  /* part that saved and ended, as it or another one was told */
#define SLURM_ERROR_TEXT_MAX 512u /* bytes of a text that says what is wrong */

/* A pilot whose directory has been seen. */
struct pilot {
	char name[CORE_NAME_MAX]; /* name of the core's node */
	char directory[SLURM_PATH_MAX];
	struct slurm_have have; /* newest state read from the pilot, if number > 0; parts owned */
	uint64_t number;        /* number of have; 0: none was read yet */
	uint64_t want;          /* number of the want that was written last */
	uint32_t pool;          /* index of its pool; SLURM_NO_POOL: not known yet */
	int64_t came_ns;        /* time at which its directory was first seen */
	int64_t last_seen_ns;   /* time at which the directory or the last new have was seen */
	int64_t goes_at_ns;     /* if have says that the pilot goes: when, in the core's time */
	bool dirty;             /* want must be written anew */
	bool awaits_removal;    /* an ended part is wanted again once have no longer shows it */
	bool missed;            /* squeue has not listed the pilot's job, once */
	bool leave;             /* the pilot is to end */
	bool drained;           /* the pilot's node is drained, as Slurm says */
	bool lost;              /* the core's node is gone */
	bool empty;             /* lost, and nothing is left of what ran on it */
	int64_t empty_ns;       /* time at which empty was set */
	bool settled; /* empty, and no job waits for what it said: it is not looked at any more */
	bool posted_arrival, posted_reclaim, posted_drained, posted_gone;
};

/* A job of Slurm's that is, or will be, a pilot. */
struct pilot_job {
	struct slurm_row row;
	uint32_t pool;     /* index of its pool */
	int64_t active_ns; /* since when it has had a node; 0: it has none */
	bool listed;       /* the newest squeue lists the job */
	bool missed;       /* the newest squeue does not list the job */
	bool awaited;      /* the pilot has not come, and the job has not ended */
};

/* Nodes asked of a pool, as the core counts them. */
struct pool_request {
	uint32_t n;            /* number of nodes that have not come */
	bool queued;           /* an sbatch has not been answered; there is one at a time */
	int64_t requested_ns;  /* time of the last request */
	char wait_reason[128]; /* reason that Slurm gave last for the wait; "": none */
	char exhausted_reason
		[SLURM_ERROR_TEXT_MAX]; /* why none came last; "": one did, or was asked for since */
	int64_t exhausted_ns;           /* time at which dry was set */
};

struct slurm_job {
	struct slurm_record record;
	uint64_t refused; /* last generation that was refused; 0: none */
	char refused_why
		[SLURM_ERROR_TEXT_MAX]; /* why the last refused start was refused; "": none was */
	bool admits;          /* ranks let others in: parts that join by a rescale may start */
	bool leave_requested; /* parts that join are there: those that leave are told */
	int64_t runs_ns;    /* since when all of the job runs, or was found running; 0: not known */
	int64_t stopped_ns; /* since when a part has ended as stopped; 0: none has */
	int64_t rescale_ns; /* since when a rescale is under way; 0: none, or not seen yet */
	int64_t last_open_ns; /* last time at which the job's door was seen open; 0: never */
	bool failing;         /* a part went wrong: the others are to end */
	bool node_lost;       /* a node of the job was lost */
};

/* An event that waits to be told to the core. */
struct pending_event {
	struct core_event event;
	struct core_offer offer;
	char name[CORE_NAME_MAX]; /* name of the event's node or pool */
	struct pending_event *next;
};

struct sched_slurm {
	struct slurm_options options;
	char id[SLURM_ID_CHARS + 1];
	int lock; /* descriptor of spool/lock */
	struct slurm_commands *commands;
	struct pilot *pilots;
	uint32_t pilots_n, pilots_cap;
	uint32_t looked_n; /* number of pilots examined in the last look */
	struct pilot_job *queue;
	uint32_t queue_n, queue_cap;
	struct pool_request *requests; /* one for each pool */
	struct slurm_job **jobs;       /* in order of ids */
	uint32_t jobs_n, jobs_cap;
	struct slurm_node_row *machines; /* sizes of Slurm's nodes, owned; none: not known */
	uint32_t machines_n, machines_cap;
	int64_t sizes_polled_ns; /* time at which Slurm was asked for machines; 0: never */
	struct pending_event *first, **last; /* queue of events for the core */
	struct core_run *runs;               /* answer to the last list; owned */
	struct loop_timer look, poll, post;
	int64_t kill_wait_ns;              /* Slurm's KillWait; 0: not known yet */
	bool queue_read;                   /* squeue has been read once */
	bool pilots_seen;                  /* one look has seen all pilots' directories */
	bool listing;                      /* the core waits for a list */
	bool polling;                      /* squeue has been asked for and has not answered */
	int64_t polled_ns;                 /* time at which squeue was asked for last */
	char failed[SLURM_ERROR_TEXT_MAX]; /* last error of Slurm's commands; "": they work */
	int64_t failed_ns;                 /* time at which failed was set after "" */
	char spool_failed[SLURM_ERROR_TEXT_MAX]; /* last error of the spool; "": it works */
	bool spool_failing; /* the look under way could not write or read the spool */
};

/* ---- slurm.c ---- */

/* Queues an event, which the loop tells the core. NULL: out of memory, which was logged. */
struct pending_event *slurm_post(struct sched_slurm *s, enum core_event_kind kind);
void slurm_post_node(struct sched_slurm *s, const char *name, enum core_event_kind kind);
void slurm_post_job(struct sched_slurm *s, enum core_event_kind kind, const struct slurm_job *job,
	uint64_t generation);
/* Whether all pilots are known. Before, one that was not seen yet would be taken for lost. */
bool slurm_pilots_known(const struct sched_slurm *s);
/* Notes that the spool cannot be written or read; logged once, until it can. */
void slurm_report_spool_error(struct sched_slurm *s, const struct pawl_err *err);
/* Makes the next look happen now. */
void slurm_look_soon(struct sched_slurm *s);
/* Makes room for one more item. Returns false if out of memory, which was logged. */
bool slurm_grow(void *items, uint32_t n, uint32_t *cap, size_t item_bytes);

/* ---- slurm_pilots.c: pilots that have come ---- */

/* Finds a pilot by its name; NULL: there is none. */
struct pilot *slurm_pilot_named(struct sched_slurm *s, const char *name);
/* Notes that the core's node is gone. empty: nothing is left of what ran on it, either. */
void slurm_pilot_lose(struct sched_slurm *s, struct pilot *pilot, bool empty);
/* Has the pilot told to end. */
void slurm_pilot_end(struct pilot *pilot);
/* Reads what the spool says of pilots. */
void slurm_pilots_look(struct sched_slurm *s, int64_t now_ns);
/* Writes the wants that have changed. */
void slurm_pilots_write(struct sched_slurm *s);
void slurm_pilots_post_all(struct sched_slurm *s);
/* Removes the logs of pilots that are long gone. */
void slurm_pilots_forget_logs(struct sched_slurm *s);
void slurm_pilots_close(struct sched_slurm *s);

/* ---- slurm_queue.c: what Slurm says of pilots ---- */

/* Asks Slurm for the queue. The answer comes later. */
void slurm_queue_poll(struct sched_slurm *s);
/* Returns the pool of the pilot that Slurm gave this number; SLURM_NO_POOL: not known. */
uint32_t slurm_queue_pool(struct sched_slurm *s, uint64_t slurm_job);
/* Whether Slurm has said that the pilot's job is over, or began again since. Stays true, however
 * long ago Slurm said so. */
bool slurm_queue_is_over(struct sched_slurm *s, const struct pilot *pilot);
void slurm_queue_request_nodes(struct sched_slurm *s, uint32_t pool, uint32_t count);
void slurm_queue_return_node(struct sched_slurm *s, const char *node);

/* ---- slurm_sizes.c: what Slurm's nodes have ---- */

/* Asks Slurm what its nodes have, unless it was asked a short while ago. */
void slurm_sizes_poll(struct sched_slurm *s);
/* Finds the size of a node. Returns false if Slurm has not said. */
bool slurm_size_find(const struct sched_slurm *s, const char *node, struct slurm_size *size);

/* ---- slurm_remark.c ---- */

void slurm_remark(struct sched_slurm *s, uint64_t id, char *text, size_t cap_bytes);

/* ---- slurm_job_nodes.c: a job's nodes ---- */

/* Fills in a spot's node and replicas. PAWL_ENOENT: the node is gone. */
int slurm_job_node_fill(struct sched_slurm *s, const struct sched_core *core,
	const struct core_placement_entry *from, struct slurm_job_node *job_node,
	struct pawl_err *err);
/* Fills in the programs of those of the first n spots that have none, and whether the job is
 * joint. */
int slurm_job_nodes_describe(struct sched_slurm *s, struct slurm_record *record, uint32_t n,
	struct pawl_err *err);

/* ---- slurm_jobs.c ---- */

/* Whether the job was started and something of it may be left. */
bool slurm_job_is_alive(const struct slurm_job *job);
/* Finds a job; NULL: there is none. */
const struct slurm_job *slurm_job_find(const struct sched_slurm *s, uint64_t id);
/* Finds a job, or makes it. NULL: out of memory, which was logged. */
struct slurm_job *slurm_job_find_or_add(struct sched_slurm *s, uint64_t id);
/* Makes the record durable. */
int slurm_job_save(struct sched_slurm *s, const struct slurm_record *record, struct pawl_err *err);
/* Has the wants of the job's pilots written anew. */
void slurm_job_touch(struct sched_slurm *s, const struct slurm_job *job);
/* Finds what a pilot has of the job; NULL: nothing. */
const struct slurm_have_part *slurm_part_find(const struct pilot *pilot,
	const struct slurm_record *record, const struct slurm_job_node *job_node);
/* Loads the jobs that are on record. */
int slurm_jobs_load(struct sched_slurm *s, struct pawl_err *err);
void slurm_jobs_start(struct sched_slurm *s, const struct sched_core *core, uint64_t id,
	uint64_t generation, const struct core_placement *place);
void slurm_jobs_stop(struct sched_slurm *s, uint64_t id, uint64_t generation, int64_t grace_ns);
/* Finds out, from what the pilots have, what has become of the jobs. */
void slurm_jobs_look(struct sched_slurm *s);
/* Tells the core the ends that are on record; then CORE_LISTED. */
void slurm_jobs_post_all(struct sched_slurm *s);
/* Lists all that runs or is being started. The list is the engine's. NULL: out of memory. */
const struct core_run *slurm_jobs_list(struct sched_slurm *s, uint32_t *n);
/* Lists the parts wanted of a pilot; owned by the caller. Returns false if out of memory. */
bool slurm_jobs_want(const struct sched_slurm *s, struct pilot *pilot, struct slurm_want *want);
/* Whether any job that is not over is on the pilot. */
bool slurm_pilot_has_jobs(const struct sched_slurm *s, const struct pilot *pilot);
void slurm_jobs_close(struct sched_slurm *s);

/* ---- slurm_rescale.c: resizing of jobs that run ---- */

void slurm_jobs_rescale(struct sched_slurm *s, const struct sched_core *core, uint64_t id,
	uint64_t generation, const struct core_placement *place);
/* Advances the rescale of a job that is alive, if there is one, and tells the core its outcome. */
void slurm_rescale_look(struct sched_slurm *s, struct slurm_job *job);
/* Notes in the record whether the job's ranks have shown that they can join and leave. */
void slurm_rescale_set_elastic(struct slurm_record *record);
/* Removes the door's files, which the ranks of a job that is over have left. */
void slurm_rescale_remove_files(const struct slurm_record *record);

#endif
