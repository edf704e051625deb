/*
 * Who carries out what the scheduler's core decides: on this machine, on Slurm, or nowhere (the
 * tests' engine_sim). One table; all its calls return at once, and what became of them comes as an
 * event of the core, later, never from within a call.
 *
 * What each engine keeps:
 *   - A start is answered by CORE_RUNS once all replicas run, by CORE_REFUSED if none was started,
 *     or by CORE_ENDED. A rescale by CORE_RUNS; by CORE_REFUSED: the job runs, as before or
 *     changed in part, until it is stopped; or by CORE_ENDED. Told again of the same generation,
 *     it answers again, and does nothing twice.
 *   - stop and kill mean the generation told and all before. From then on no start or rescale of
 *     those has any effect, however late it comes. Both are answered by CORE_ENDED once nothing of
 *     the job is left, at once if nothing was there, and not before: also a start or rescale of
 *     those that comes while it is still ending. The core takes no job for ended on its own, even
 *     if all its nodes are lost.
 *   - A node that was lost may come back only without what ran on it.
 *   - list: first all nodes that there are are told again (CORE_NODE_COMES, or CORE_NODE_GONE of
 *     those told before), then the ends of what was not known to be over, then CORE_LISTED with all
 *     that is starting or running. Ends are kept over restarts of the scheduler, until a newer
 *     generation starts, or for a day.
 *   - ask: each node comes as CORE_NODE_COMES with the pool's name, or CORE_POOL_DRY is said.
 *     After a restart of the scheduler what has not come by the first list is asked for again: an
 *     engine that began with it counts what still waits.
 *   - give_back: CORE_NODE_GONE, also of one that is not there: the core may have heard of its end
 *     and been killed before that was stored, and asks again until it is told.
 */
#ifndef SCHED_ENGINE_H
#define SCHED_ENGINE_H

#include "sched/core.h"

struct sched_engine {
	const char *name;
	/* job is one of the core, and place of its nodes (core_job_find, core_node_find); both for
	 * the call only. */
	void (*start)(void *self, const struct sched_core *core, uint64_t job, uint64_t generation,
		const struct core_place *place);
	void (*rescale)(void *self, const struct sched_core *core, uint64_t job,
		uint64_t generation, const struct core_place *place);
	/* grace_ns 0: kill. */
	void (*stop)(void *self, uint64_t job, uint64_t generation, int64_t grace_ns);
	void (*list)(void *self);
	void (*ask)(void *self, const char *pool, uint32_t count);
	void (*give_back)(void *self, const char *node);
	void (*say)(void *self, const char *text); /* to people: the log */
	/* What people must know beside what the core says, of a job (0: of all), in lines; "":
	 * nothing. NULL: there never is anything. */
	void (*remark)(void *self, uint64_t job, char *text, size_t cap_bytes);
};

/* Carries an update out. pools: those that the core was opened with. */
void sched_engine_do(const struct sched_engine *engine, void *self, const struct sched_core *core,
	const struct core_pool *pools, const struct core_update *update);

#endif
