/*
 * The engine carries out what the scheduler's core decides: on this machine, on Slurm, or nowhere
 * (the tests' engine_sim). It is one table of calls. All calls return at once. Results come later,
 * as events of the core, never from within a call. All engines pass one suite of tests
 * (tests/unit/engine/test_sched_engine.h). The calls up to log are required. What else an engine
 * cannot do, its table says: by a call that is NULL, or by a flag.
 *
 * What each engine guarantees:
 *   - The engine answers a start with CORE_RUNS once all replicas run, with CORE_REFUSED if it
 *     started none, or with CORE_ENDED. It answers a rescale with CORE_RUNS, CORE_REFUSED or
 *     CORE_ENDED. After CORE_REFUSED the job runs, as before or changed in part, until it is
 *     stopped. If a call repeats a generation, the engine answers again, and does nothing twice.
 *   - A stop or kill covers the given generation and all before. From then on no start or rescale
 *     of those generations has any effect, however late it comes. The engine answers with
 *     CORE_ENDED once nothing of the job is left, not before; at once if nothing was there. It
 *     answers in the same way a start or rescale of those generations that comes while the job is
 *     still ending. The core never takes a job for ended on its own, even if all its nodes are
 *     lost.
 *   - A node that was lost may come back only without what ran on it. A node that is reported with
 *     fewer slots goes on with what runs on it, until the core rescales or stops what no longer
 *     fits (core.h).
 *   - list: first the engine reports all nodes again (CORE_NODE_REPORTED, or CORE_NODE_GONE of
 *     nodes reported before), then the ends of jobs that were not known to be over, then
 *     CORE_LISTED with all that is starting or running. It keeps ends across restarts of the
 *     scheduler, until a newer generation starts, or for a day.
 *   - request_nodes: each node comes as CORE_NODE_REPORTED with the pool's name; or the engine
 *     reports CORE_POOL_EXHAUSTED. After a restart of the scheduler the core repeats its request
 *     for the nodes that have not come by the first list. An engine that has begun on the first
 *     request counts those that are still on their way.
 *   - return_node: the engine answers with CORE_NODE_GONE, also of a node that is not there. The
 *     scheduler may have been killed before it stored the node's end, and then calls again until it
 *     gets the answer.
 */
#ifndef SCHED_CORE_ENGINE_H
#define SCHED_CORE_ENGINE_H

#include "sched/core/core.h"

/* One of the hosts on which a job runs. */
struct sched_engine_host {
	const char *address; /* address for other hosts; valid until the loop runs again */
	uint32_t replicas;
};

/* A run that an engine has found or started. */
struct sched_engine_run {
	uint64_t job;
	uint64_t start_generation; /* generation of its start */
	uint64_t generation;       /* generation that runs, at least start_generation */
	bool over;                 /* the end is recorded */
	const char *dir;           /* directory of the run; valid until visit returns */
};

struct sched_engine {
	const char *name;
	bool remote;      /* jobs run on other machines than the scheduler's */
	bool loses_nodes; /* nodes can be lost; false: they are parts of the scheduler's machine */
	/* job is one of the core's, and place is on the core's nodes (core_job_find,
	 * core_node_find); both are valid during the call only. */
	void (*start)(void *self, const struct sched_core *core, uint64_t job, uint64_t generation,
		const struct core_placement *place);
	void (*rescale)(void *self, const struct sched_core *core, uint64_t job,
		uint64_t generation, const struct core_placement *place);
	/* Stops the job within grace_ns; 0: kills it. */
	void (*stop)(void *self, uint64_t job, uint64_t generation, int64_t grace_ns);
	void (*list)(void *self);
	void (*request_nodes)(void *self, const char *pool, uint32_t count);
	void (*return_node)(void *self, const char *node);
	void (*log)(void *self, const char *text); /* writes a message to the log */
	/* Writes what people must know about a job (0: all jobs) beside the core's explanation, in
	 * lines; "": nothing. NULL: the engine has no remarks. */
	void (*remark)(void *self, uint64_t job, char *text, size_t cap_bytes);

	/* What only the scheduler's process asks. NULL: an engine has no need of the call, or no
	 * answer. */

	/* Closes the engine. The runs go on. self may be NULL. */
	void (*close)(void *self);
	/* Returns whether a node is one of the engine's. NULL: nodes come and go, and only list
	 * reports which there are. */
	bool (*has_node)(void *self, const char *node);
	/* Returns whether the pool with that index can get a node with at least these resources;
	 * also true while that is not known. NULL: every pool can. */
	bool (*fits)(void *self, uint32_t pool, uint32_t cpus, uint64_t memory_bytes,
		uint64_t disk_bytes);
	/* Lists a job's hosts by rank: fills hosts with the first ones, at most cap, and returns
	 * their total number. Returns 0 if the job does not run in full as the core's generation
	 * requires: it starts, changes or ends, or has lost a node. NULL: all jobs run on this
	 * machine. */
	uint32_t (*hosts)(void *self, uint64_t job, uint64_t generation,
		struct sched_engine_host *hosts, uint32_t cap);
	/* Calls visit for every run. NULL: runs cannot be taken over from their directories. */
	void (*each_run)(void *self, void (*visit)(void *user, const struct sched_engine_run *run),
		void *user);
	/* Forgets a run whose end is stored. NULL: the engine forgets by itself. */
	void (*forget)(void *self, uint64_t job, uint64_t generation);
	/* Reaps all children of this process that have ended. Does not block. NULL: the engine
	 * waits for its own children. */
	void (*reap)(void *self);
};

/* Carries an update out. pools: those that the core was opened with. */
void sched_engine_do(const struct sched_engine *engine, void *self, const struct sched_core *core,
	const struct core_pool *pools, const struct core_update *update);

#endif
