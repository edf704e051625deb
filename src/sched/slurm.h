/*
 * The engine slurm: Slurm stays the owner of the nodes. One pilot a node is asked for by sbatch and
 * given back by scancel; jobs run inside of the pilots (slurm_pilot.h), which are the core's nodes.
 * Engine and pilots know of each other by files (slurm_spool.h).
 *
 * squeue tells which pilots there are, sinfo whose node is drained; what runs, the pilots tell. So
 * while Slurm's controller does not answer, jobs go on, start and end in the pilots that there are.
 *
 * A node is lost once Slurm says that its pilot's job is over, requeued or suspended. Of its jobs
 * nothing is left when the pilot has said so; or when the node itself has told Slurm that it ended
 * (completed, failed, out of memory); or else when the pilot has not been heard of for
 * longer than it would have lived without the spool (slurm_pilot.h).
 *
 * A job whose program has a scale gets another size on its node while it runs; one whose program
 * has a door gets nodes more and fewer, if its ranks open the door. Any other rescale is refused:
 * the core starts the job anew. One thread, the loop's.
 */
#ifndef SCHED_SLURM_H
#define SCHED_SLURM_H

#include "sched/engine.h"
#include "sched/slurm_form.h"
#include "sched/vars.h"

struct loop;
struct sched_slurm;

#define SLURM_POOL_WORDS  32u /* of sbatch, for a pool */
#define SLURM_TOKEN_CHARS 32u /* of a start's token: hexadecimal */

/* What a node has, as Slurm says; what is asked of one: 0 is nothing. */
struct slurm_size {
	uint32_t cpus;
	uint64_t memory_bytes;
	uint64_t disk_bytes; /* of its TmpFS, all of it */
};

/* A start, on one of its nodes. task, cluster and engine of place are not set. */
struct slurm_start {
	const char *node;              /* Slurm's name */
	const struct slurm_size *size; /* of it; NULL: Slurm has not said */
	uint64_t scratch_bytes;        /* free there for what jobs write for a while; 0: nowhere */
	uint64_t generation;
	bool elastic;    /* of an earlier start it is known that its ranks can join and leave */
	bool joins;      /* others of the job are there, or come: it has a door */
	uint32_t number; /* among the nodes of the job, no two alike at a time; 0: of the first */
	char token[SLURM_TOKEN_CHARS + 1]; /* random; of all its nodes, and of no other start */
	const struct vars_place *place;
};

struct slurm_pool {
	struct core_pool pool;   /* as the core was opened with */
	const char *const *args; /* more for sbatch, as "--partition=gpu"; NULL-terminated; unless
				    they say how much of a node is meant, it is all */
	const char *const *scratch; /* directories on its nodes for what jobs write for a while:
				       see scratch.h; NULL-terminated; NULL: the pilots' TMPDIR */
};

/* All stays the caller's, and as it is, until the engine is closed. */
struct slurm_options {
	struct loop *loop;
	const char *spool;   /* absolute; see slurm_spool.h */
	const char *program; /* path of pawl on the nodes */
	const struct slurm_pool *pools;
	uint32_t pools_n;
	int64_t poll_ns;  /* between two looks at Slurm */
	int64_t fence_ns; /* see slurm_pilot.h */
	/* The core's clock. */
	int64_t (*now_ns)(void *user);
	/* An event, but for its now_ns; its pointers are good until it returns. Not from within a
	 * call of the engine. */
	void (*tell)(void *user, const struct core_event *event);
	/* What a job runs on a node; program is zero before, its lists are given back by the
	 * engine, and what its strings point to must stay until release is called. An error refuses
	 * the start. */
	int (*describe)(void *user, const struct slurm_start *start, struct slurm_program *program,
		struct pawl_err *err);
	void (*release)(void *user, struct slurm_program *program); /* NULL: nothing is to be */
	void *user;
};

/* self of the table below. PAWL_EINVAL: the spool, or a pool's name or words; PAWL_EBUSY: another
 * scheduler has the spool; PAWL_EIO and its like. */
int sched_slurm_open(struct sched_slurm **slurm, const struct slurm_options *options,
	struct pawl_err *err);
/* The pilots and what runs in them go on. NULL is fine. */
void sched_slurm_close(struct sched_slurm *slurm);

/* Whether least is what a node has. */
bool sched_slurm_has(const struct slurm_size *size, const struct slurm_size *least);
/* Whether a node has that much which pilots of the pool (its index) can get; also true if Slurm has
 * not said yet what there is. */
bool sched_slurm_fits(const struct sched_slurm *slurm, uint32_t pool,
	const struct slurm_size *least);

/* One of a job's nodes. */
struct slurm_host {
	const char *address; /* by which others reach it; the engine's, until the loop runs on */
	uint32_t replicas;
};

/* Where a job is, by rank: fills hosts with the first of them, cap at most, and returns how many
 * there are. 0: it is not all there as the core's generation is to be: it starts, changes, ends, or
 * has lost a node. */
uint32_t sched_slurm_hosts(struct sched_slurm *slurm, uint64_t id, uint64_t generation,
	struct slurm_host *hosts, uint32_t cap);

extern const struct sched_engine sched_slurm_engine;

#endif
