/*
 * The engine slurm. Slurm remains the owner of the nodes: sbatch requests one pilot per node, and
 * scancel returns it. Jobs run inside the pilots (slurm_pilot.h), which are the core's nodes.
 * Engine and pilots communicate through files (slurm_spool.h).
 *
 * squeue lists the pilots, sinfo lists the drained nodes, and the pilots report what runs. So while
 * Slurm's controller does not answer, jobs go on, start and end in the existing pilots.
 *
 * A node is lost once Slurm reports that its pilot's job is over, requeued or suspended. The node
 * is empty once nothing of its jobs can be left: the pilot has reported so; or the node has told
 * Slurm that the pilot ended (completed, failed, out of memory); or the pilot has been silent for
 * longer than it would live without the spool (slurm_pilot.h).
 *
 * A job whose program has a scale command can be resized on its node while it runs. A job whose
 * program has a membership file can gain and lose nodes, if its ranks open the file. Any other
 * rescale is refused, and the core restarts the job.
 *
 * All calls come from one thread, the loop's.
 */
#ifndef ENGINE_SLURM_SLURM_H
#define ENGINE_SLURM_SLURM_H

#include "engine/slurm/slurm_form.h"
#include "sched/core/engine.h"
#include "sched/jobfile/vars.h"

/* Bounds of fence_ns, for the engine and its pilots. */
#define SLURM_FENCE_LEAST_S 2u
#define SLURM_FENCE_MOST_S  3600u

struct loop;
struct sched_slurm;

#define SLURM_POOL_ARGS_MAX 32u /* sbatch options of a pool, at most */
#define SLURM_TOKEN_CHARS   32u /* hexadecimal digits of a start's token */

/* Resources of a node as Slurm reports them, or as a job requires them; 0: none. */
struct slurm_size {
	uint32_t cpus;
	uint64_t memory_bytes;
	uint64_t disk_bytes; /* size of the node's TmpFS file system, used space included */
};

/* The start of a job on one of its nodes. place has no task, cluster or engine. */
struct slurm_start {
	const char *node;              /* Slurm's name of the node */
	const struct slurm_size *size; /* resources of the node; NULL: not known yet */
	uint64_t scratch_bytes;        /* bytes free on the node for jobs' scratch files; 0: none */
	uint64_t generation;
	bool elastic;    /* in an earlier start, ranks could join and leave */
	bool joins;      /* the job has dynamic nodes, and this is not its first one */
	uint32_t number; /* number among the job's nodes, unique at any time; 0: the first node */
	char token[SLURM_TOKEN_CHARS + 1]; /* random; the same on all nodes of this start only */
	const struct vars_place *place;
};

struct slurm_pool {
	struct core_pool pool; /* the pool as the core was opened with it */
	/* More options for sbatch, such as "--partition=gpu"; NULL-terminated. Unless they set a
	 * share of the node, the pilot gets the whole node. */
	const char *const *args;
	/* Directories on the pool's nodes for jobs' scratch files (scratch.h); NULL-terminated.
	 * NULL: the pilots' TMPDIR. */
	const char *const *scratch;
};

/* What the options point to must stay valid and unchanged until the engine is closed. */
struct slurm_options {
	struct loop *loop;
	const char *spool;   /* absolute path; see slurm_spool.h */
	const char *program; /* path of pawl on the nodes */
	const struct slurm_pool *pools;
	uint32_t pools_n;
	int64_t poll_ns;  /* time between two polls of Slurm */
	int64_t fence_ns; /* see slurm_pilot.h */
	/* Returns the time on the core's clock. */
	int64_t (*now_ns)(void *user);
	/* Posts an event to the core. now_ns of the event is not set; its pointers are valid until
	 * post returns. Never called from within a call of the engine. */
	void (*post)(void *user, const struct core_event *event);
	/* Fills in the program of a job on a node. program is zeroed before. The engine frees its
	 * lists; its strings must stay valid until release is called. An error refuses the
	 * start. */
	int (*describe)(void *user, const struct slurm_start *start, struct slurm_program *program,
		struct pawl_err *err);
	void (*release)(void *user, struct slurm_program *program); /* NULL: nothing to release */
	void *user;
};

/* Opens the engine. *slurm is the self of sched_slurm_engine's functions. PAWL_EINVAL: the spool,
 * fence_ns, poll_ns, or a pool's name or arguments; PAWL_EBUSY: another scheduler uses the spool;
 * PAWL_EIO and other errors of the spool. */
int sched_slurm_open(struct sched_slurm **slurm, const struct slurm_options *options,
	struct pawl_err *err);
/* Closes the engine. The pilots and the jobs in them go on. NULL is allowed. */
void sched_slurm_close(struct sched_slurm *slurm);

/* Returns whether size has at least the resources of least. */
bool slurm_size_at_least(const struct slurm_size *size, const struct slurm_size *least);

extern const struct sched_engine sched_slurm_engine;

#endif
