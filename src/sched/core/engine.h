/*
 * The engine carries out what the scheduler's core decides: on this machine, on Slurm, or nowhere
 * (the tests' engine_sim). One table of calls. All calls return at once; results come later, as
 * events of the core, never from within a call.
 *
 * What each engine guarantees:
 *   - A start is answered by CORE_RUNS once all replicas run, by CORE_REFUSED if none was started,
 *     or by CORE_ENDED. A rescale is answered by CORE_RUNS; by CORE_REFUSED: the job runs, as
 *     before or changed in part, until it is stopped; or by CORE_ENDED. If told again of the same
 *     generation, the engine answers again, and does nothing twice.
 *   - stop and kill mean the generation told and all before. From then on no start or rescale of
 *     those generations has any effect, however late it comes. Both are answered by CORE_ENDED once
 *     nothing of the job is left, at once if nothing was there, and not before. So is a start or
 *     rescale of those generations that comes while the job is still ending. The core takes no job
 *     for ended on its own, even if all the job's nodes are lost.
 *   - A node that was lost may come back only without what ran on it.
 *   - list: first the engine reports all nodes again (CORE_NODE_REPORTED, or CORE_NODE_GONE of nodes
 *     reported before), then the ends of jobs that were not known to be over, then CORE_LISTED with
 *     all that is starting or running. Ends are kept over restarts of the scheduler, until a newer
 *     generation starts, or for a day.
 *   - ask: each node comes as CORE_NODE_REPORTED with the pool's name, or CORE_POOL_EXHAUSTED is said.
 *     After a restart of the scheduler the core asks again for nodes that have not come by the
 *     first list: an engine that began with the first request counts what still waits.
 *   - give_back: CORE_NODE_GONE, also of a node that is not there: the core may have heard of the
 *     node's end and been killed before that was stored, and asks again until it is told.
 */
#ifndef SCHED_CORE_ENGINE_H
#define SCHED_CORE_ENGINE_H

#include "sched/core/core.h"

struct sched_engine {
	const char *name;
	/* job is one of the core's, and place is on the core's nodes (core_job_find,
	 * core_node_find); both for the call only. */
	void (*start)(void *self, const struct sched_core *core, uint64_t job, uint64_t generation,
		const struct core_placement *place);
	void (*rescale)(void *self, const struct sched_core *core, uint64_t job,
		uint64_t generation, const struct core_placement *place);
	/* Stops the job within grace_ns; 0: kills it. */
	void (*stop)(void *self, uint64_t job, uint64_t generation, int64_t grace_ns);
	void (*list)(void *self);
	void (*request_nodes)(void *self, const char *pool, uint32_t count);
	void (*return_node)(void *self, const char *node);
	void (*log)(void *self, const char *text); /* writes text to people: the log */
	/* Writes what people must know about a job (0: all jobs) beside what the core says, in
	 * lines; "": nothing. NULL: there never is anything. */
	void (*remark)(void *self, uint64_t job, char *text, size_t cap_bytes);
};

/* Carries an update out. pools: those that the core was opened with. */
void sched_engine_do(const struct sched_engine *engine, void *self, const struct sched_core *core,
	const struct core_pool *pools, const struct core_update *update);

#endif
