/*
 * The scheduler of this machine, `pawl sched`: the core, its database, an engine, and a socket for
 * users.
 *
 * Each event is handled in three steps: core_step decides, one transaction stores what has changed,
 * and the engine carries out what follows. So after any crash the database has all that was sent to
 * the engine, and all that was reported to users. If a change cannot be stored, the daemon ends
 * with an error. Jobs go on without it, and the next daemon finds them.
 *
 * The kernel reports which user is at the other end of the socket. Only a job's owner, root and the
 * scheduler's own user may change a job. If root runs the scheduler, jobs run as their owners.
 */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include "daemon/http.h"
#include "engine/local/devices.h"
#include "engine/slurm/slurm.h"
#include "sched/core/core.h"

#define DAEMON_NODES_MAX 256u

struct pawl_err;

struct daemon_options {
	const char *root;  /* directory, made if there is none */
	const char *spool; /* directory that nodes of Slurm's see, for what they need; NULL: root */
	bool rebuild;      /* take over jobs that run and are not in the database */
	const char *group; /* group that may use the socket, beside the daemon's user; NULL: none */
	int64_t grace_ns;  /* time from SIGTERM to SIGKILL, for each job */
	uint64_t user_jobs_max;   /* jobs of one user that are not over; another one is refused */
	struct core_offer *nodes; /* nodes of this machine; none with pools of Slurm's */
	uint32_t nodes_n;
	const struct devices *devices; /* devices of nodes: see local.h */
	const char *const *scratch;    /* scratch directories for jobs: see engine/scratch.h */
	uint32_t scratch_n;            /* 0: root is used */
	struct slurm_pool *pools;      /* pools of the engine slurm; NULL: the engine is local */
	uint32_t pools_n;
	int64_t poll_ns; /* interval of queries to Slurm */
	/* Names of node types, by number; "": none. Room for SCHED_TYPES_MAX. While the daemon
	 * runs, it has all types that nodes and jobs have had, with their numbers in the database;
	 * nodes and pools have these numbers, too. */
	char (*types)[CORE_NAME_MAX];
	uint32_t types_n;
	uint32_t types_here; /* bit t: a node or a pool has type t; set while the daemon runs */
	struct http_options http;
	struct core_options core; /* policy, queues, quotas, round; its pools come from pools */
};

/* Runs until a signal (SIGTERM, SIGINT, SIGHUP). PAWL_EBUSY: another scheduler, which the error
 * names, has the directory; PAWL_EINVAL: there is no such group; other errors as of opening a
 * database (sched/database/database.h). */
int daemon_main(struct daemon_options *options, struct pawl_err *err);

#endif
