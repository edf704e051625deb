/*
 * The engine local: jobs are processes of this machine, its nodes names for parts of it. One
 * process for each run keeps the run going (shepherd.h) and outlives the scheduler, which finds it
 * again by the directory that both know (order.h).
 *
 * All functions are for the loop's thread. Events are posted, and read by the daemon later.
 */
#ifndef ENGINE_LOCAL_LOCAL_H
#define ENGINE_LOCAL_LOCAL_H

#include "sched/core/engine.h"

#include <sys/types.h>

struct devices;
struct local;
struct loop;
struct order;

struct local_options {
	const char *root;               /* directory of the scheduler, with runs/ and jobs/ */
	const struct core_offer *nodes; /* nodes of this machine */
	uint32_t nodes_n;
	const struct devices *devices; /* devices of nodes; each has none, or one for each slot */
	const char *scratch; /* directory for what jobs write for a while; NULL: the root's */
	bool as_owner;       /* jobs run as their owners: we are root */
	int64_t grace_ns;    /* time for processes that a job leaves behind at its end */
	struct loop *loop;
	/* Posts an event to the core; copied. */
	void (*post)(void *user, const struct core_event *event);
	/* Fetches a submission; the caller frees *bytes. */
	int (*get_submission)(void *user, uint64_t job, uint8_t **bytes, size_t *len_bytes,
		struct pawl_err *err);
	/* Writes into the order where the job finds the scheduler over HTTP, if it does. */
	void (*set_supervisor)(void *user, const struct core_job *job, struct order *order);
	void *user; /* argument of all three */
};

extern const struct sched_engine engine_local; /* self is a struct local */

/* Opens the engine, and finds all runs that there are, and were. options and what it points to
 * outlive the engine. PAWL_EIO and others of reading directories. */
int local_open(struct local **out, const struct local_options *options, struct pawl_err *err);
void local_close(struct local *local); /* runs go on; NULL is fine */
/* Forgets a run, and removes its directory, once its end is stored. */
void local_forget(struct local *local, uint64_t job, uint64_t generation);
/* A run that the engine has found, or started. */
struct local_run_info {
	uint64_t job;
	uint64_t start_generation; /* generation of its start */
	uint64_t generation;       /* generation that runs */
	bool over;                 /* the end is written down */
	const char *dir;           /* directory of the run; until the call returns */
};
/* Tells of every run. */
void local_each(const struct local *local,
	void (*visit)(void *user, const struct local_run_info *info), void *user);
/* Waits for children of ours that have ended, if any are left. */
void local_reap(void);

#endif
