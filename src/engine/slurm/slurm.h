/*
 * The engine slurm. Slurm stays the owner of the nodes: sbatch asks for one pilot per node, and
 * scancel gives it back. Jobs run inside of the pilots (slurm_pilot.h), which are the core's nodes.
 * Engine and pilots communicate through files (slurm_spool.h).
 *
 * squeue tells which pilots there are, sinfo which nodes are drained; the pilots tell what runs. So
 * while Slurm's controller does not answer, jobs go on, start and end in the pilots that there are.
 *
 * A node is lost once Slurm says that its pilot's job is over, requeued or suspended. Nothing of
 * its jobs is left once the pilot has said so; or once the node itself has told Slurm that the
 * pilot ended (completed, failed, out of memory); or else once the pilot has been silent for longer
 * than it would have lived without the spool (slurm_pilot.h).
 *
 * A job whose program has a scale command can be resized on its node while it runs; one whose
 * program has a door can gain and lose nodes, if its ranks open the door. Any other rescale is
 * refused, and the core starts the job anew. All calls come from one thread, the loop's.
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

/* Resources of a node as Slurm reports them, or the resources asked of a node; 0: none. */
struct slurm_size {
	uint32_t cpus;
	uint64_t memory_bytes;
	uint64_t disk_bytes; /* size of the node's TmpFS, used space included */
};

/* The start of a job on one of its nodes. task, cluster and engine of place are not set. */
struct slurm_start {
	const char *node;              /* Slurm's name of the node */
	const struct slurm_size *size; /* resources of the node; NULL: Slurm has not said */
	uint64_t scratch_bytes;        /* bytes free on the node for jobs' scratch files; 0: none */
	uint64_t generation;
	bool elastic;    /* an earlier start has shown that the ranks can join and leave */
	bool joins;      /* the job has a door, and this is not its first node */
	uint32_t number; /* number among the job's nodes, unique at any time; 0: the first one */
	char token[SLURM_TOKEN_CHARS + 1]; /* random; the same on all nodes of this start only */
	const struct vars_place *place;
};

struct slurm_pool {
	struct core_pool pool; /* the pool as the core was opened with it */
	/* More options for sbatch, as "--partition=gpu"; NULL-terminated. Unless they say how much
	 * of a node is meant, the pilot gets all of it. */
	const char *const *args;
	/* Directories on the pool's nodes for jobs' scratch files: see scratch.h; NULL-terminated.
	 * NULL: the pilots' TMPDIR. */
	const char *const *scratch;
};

/* All that the options point to stays the caller's and unchanged until the engine is closed. */
struct slurm_options {
	struct loop *loop;
	const char *spool;   /* absolute path; see slurm_spool.h */
	const char *program; /* path of pawl on the nodes */
	const struct slurm_pool *pools;
	uint32_t pools_n;
	int64_t poll_ns;  /* time between two polls of Slurm */
	int64_t fence_ns; /* see slurm_pilot.h */
	/* Returns the core's time. */
	int64_t (*now_ns)(void *user);
	/* Takes an event, whose now_ns is not set and whose pointers are valid until tell returns.
	 * Never called from within a call of the engine. */
	void (*post)(void *user, const struct core_event *event);
	/* Fills in what a job runs on a node. program is zero before; the engine frees its lists,
	 * and what its strings point to must stay until release is called. An error refuses the
	 * start. */
	int (*describe)(void *user, const struct slurm_start *start, struct slurm_program *program,
		struct pawl_err *err);
	void (*release)(void *user, struct slurm_program *program); /* NULL: nothing to release */
	void *user;
};

/* Opens the engine; *slurm is the self of the table below. PAWL_EINVAL: the spool, or a pool's name
 * or words; PAWL_EBUSY: another scheduler has the spool; PAWL_EIO and its like. */
int sched_slurm_open(struct sched_slurm **slurm, const struct slurm_options *options,
	struct pawl_err *err);
/* Closes the engine. The pilots and what runs in them go on. NULL is fine. */
void sched_slurm_close(struct sched_slurm *slurm);

/* Whether size has at least what least asks for. */
bool slurm_size_at_least(const struct slurm_size *size, const struct slurm_size *least);
/* Whether pilots of the pool (its index) can get a node with at least that much; also true while
 * Slurm has not said what its nodes have. */
bool sched_slurm_fits(const struct sched_slurm *slurm, uint32_t pool,
	const struct slurm_size *least);

/* One of a job's nodes. */
struct slurm_host {
	const char *address; /* reached by other nodes; the engine's, until the loop runs on */
	uint32_t replicas;
};

/* Lists a job's nodes by rank: fills hosts with the first ones, at most cap, and returns how many
 * the job has. Returns 0 if the job does not run in full as the core's generation asks: it starts,
 * changes or ends, or has lost a node. */
uint32_t sched_slurm_hosts(struct sched_slurm *slurm, uint64_t id, uint64_t generation,
	struct slurm_host *hosts, uint32_t cap);

extern const struct sched_engine sched_slurm_engine;

#endif
