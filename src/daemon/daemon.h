/*
 * The scheduler of this machine, `pawl sched`: the core, its store, an engine, and a socket for
 * users.
 *
 * Each event goes the same way: core_step, then what has changed is written as one transaction,
 * then the engine carries out what follows. So what the engine is told of is known after any crash,
 * and what users are told has happened is stored. If it cannot be stored, the daemon ends and says
 * why; jobs go on without it, and the next one finds them.
 *
 * The kernel says who is at the other end of the socket. A job is its owner's: only they, root and
 * the scheduler's own user may touch it. Run by root, jobs run as their owners.
 */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include "daemon/devices.h"
#include "daemon/http.h"
#include "sched/core.h"
#include "sched/slurm.h"

#define DAEMON_NODES_MAX 256u

struct pawl_err;

struct daemon_options {
	const char *root;         /* directory, made if there is none */
	const char *spool;        /* that nodes of Slurm's see, for what they need; NULL: root */
	bool rebuild;             /* jobs that run and are not in the database are taken over */
	const char *group;        /* that may talk to it beside its own user; NULL: nobody else */
	int64_t grace_ns;         /* of each job: from SIGTERM to SIGKILL */
	uint64_t user_jobs_max;   /* that are not over; another one of that user is refused */
	struct core_offer *nodes; /* of this machine; none with pools of Slurm's */
	uint32_t nodes_n;
	const struct devices *devices; /* of those nodes: see local.h */
	const char *const
		*scratch;   /* directories for what jobs write for a while: see sched/scratch.h */
	uint32_t scratch_n; /* 0: root's */
	struct slurm_pool *pools; /* the engine slurm runs the jobs; NULL: local does */
	uint32_t pools_n;
	int64_t poll_ns; /* between two looks at Slurm */
	/* Names of types of nodes, by number; "": none. Room for SCHED_TYPES_MAX: while it runs,
	 * all that nodes and jobs have had are there, and numbers are those of the store, in nodes
	 * and pools, too. */
	char (*types)[CORE_NAME_MAX];
	uint32_t types_n;
	uint32_t types_here; /* bit t: nodes or pools have it; set while it runs */
	struct http_options http;
	struct core_options core; /* its policy, queues, quotas, round; its pools are those above */
};

/* Runs until a signal (SIGTERM, SIGINT, SIGHUP). PAWL_EBUSY: another scheduler has the directory,
 * which is named; else as of opening a store (sched/store.h), and PAWL_EINVAL: there is no such
 * group. */
int daemon_main(struct daemon_options *options, struct pawl_err *err);

#endif
