/*
 * The engine carries out what the scheduler's core decides: on this machine, on Slurm, or nowhere
 * (the tests' engine_sim). It is one table of calls. All calls return at once. Results come later,
 * as events of the core, never from within a call.
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
 *   - A node that was lost may come back only without what ran on it.
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

struct sched_engine {
	const char *name;
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
};

/* Carries an update out. pools: those that the core was opened with. */
void sched_engine_do(const struct sched_engine *engine, void *self, const struct sched_core *core,
	const struct core_pool *pools, const struct core_update *update);

#endif
