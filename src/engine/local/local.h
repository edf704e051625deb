/*
 * The engine local. Jobs are processes of this machine; nodes are named parts of it. Each run has a
 * shepherd (shepherd.h), a process that outlives the scheduler. A new scheduler finds the shepherd
 * again through the directory of the run (order.h).
 *
 * All functions are for the loop's thread. Events are posted to the core, which handles them later.
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
	const struct devices *devices; /* devices of the nodes: a node has none, or one per slot */
	const char *scratch; /* directory for scratch files; NULL: the jobs' directories */
	bool as_owner;       /* jobs run as their owners; this process must be root */
	int64_t grace_ns;    /* time to end for processes that a job leaves behind */
	struct loop *loop;
	/* Posts an event to the core, which copies it. */
	void (*post)(void *user, const struct core_event *event);
	/* Fetches a submission; the caller frees *bytes. */
	int (*get_submission)(void *user, uint64_t job, uint8_t **bytes, size_t *len_bytes,
		struct pawl_err *err);
	/* Sets the order's supervisor and space, if the job can reach the scheduler over HTTP. */
	void (*set_supervisor)(void *user, const struct core_job *job, struct order *order);
	void *user; /* argument of all three */
};

/* self is a struct local. forget also removes the run's directory; each_run's has the run's order
 * (order.h). */
extern const struct sched_engine engine_local;

/* Opens the engine and finds all runs that exist, or have ended and are not forgotten. options and
 * what it points to must outlive the engine. PAWL_EINVAL: the root's path is too long; PAWL_EIO and
 * other errors of reading: it is not known which runs there are. */
int local_open(struct local **out, const struct local_options *options, struct pawl_err *err);
void local_close(struct local *local); /* the runs go on; NULL is allowed */

#endif
