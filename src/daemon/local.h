/*
 * The engine local: jobs are processes of this machine, its nodes names for parts of it. One
 * process a run keeps it going (shepherd.h) and outlives the scheduler, which finds it again by the
 * directory that both know (order.h).
 *
 * All functions are for the loop's thread. Events are posted, and read by the daemon later.
 */
#ifndef DAEMON_LOCAL_H
#define DAEMON_LOCAL_H

#include "sched/engine.h"

#include <sys/types.h>

struct devices;
struct local;
struct loop;
struct order;

struct local_options {
	const char *root;               /* of the scheduler: it has runs/ and jobs/ */
	const struct core_offer *nodes; /* that there are */
	uint32_t nodes_n;
	const struct devices *devices; /* of nodes; each has none, or one for each slot */
	const char *scratch; /* directory for what jobs write for a while; NULL: the root's */
	bool as_owner;       /* jobs run as their owners: we are root */
	int64_t grace_ns;    /* for what a job leaves behind at its end */
	struct loop *loop;
	/* An event for the core; copied. */
	void (*post)(void *user, const struct core_event *event);
	/* What was submitted, to be freed. */
	int (*submission)(void *user, uint64_t job, uint8_t **bytes, size_t *len_bytes,
		struct pawl_err *err);
	/* Where the job finds the scheduler over HTTP: into the order, where it does. */
	void (*supervisor)(void *user, const struct core_job *job, struct order *order);
	void *user; /* of all three */
};

extern const struct sched_engine engine_local; /* self is a struct local */

/* Finds all runs that there are, and were. options and what it points to outlive it. PAWL_EIO and
 * others of reading directories. */
int local_open(struct local **out, const struct local_options *options, struct pawl_err *err);
void local_close(struct local *local); /* runs go on; NULL is fine */
/* The end of that run is stored: what was kept of it is not needed any more. */
void local_settled(struct local *local, uint64_t job, uint64_t generation);
/* A run that it has found, or started. */
struct local_kept {
	uint64_t job;
	uint64_t born;       /* generation of its start */
	uint64_t generation; /* that runs */
	bool over;           /* its end is written down */
	const char *dir;     /* of the run; until the call returns */
};
void local_each(const struct local *local, void (*told)(void *user, const struct local_kept *kept),
	void *user);
/* What may be left of children of ours that have ended is waited for. */
void local_reap(void);

#endif
