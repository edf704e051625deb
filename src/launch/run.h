/*
 * `pawl run`: supervises the workers of a job on this node, and is their agent. Together with the
 * `pawl run` of other nodes it forms the group of a job (nodes.h).
 *
 * Normal course: an agent opens, N workers start, all exit with 0, and the agent makes durable what
 * was committed. A worker that fails ends its group: the others would wait for it in a collective,
 * so they are killed at once. Nothing is lost, because their state is in the agent's memory. The
 * group is started again, from a template process if one is ready (run_template.h).
 *
 * SIGTERM, SIGINT, SIGHUP: the workers are notified (agent_notice, and SIGTERM to each). They may
 * finish their step, save and leave. What is committed by the deadline is made durable.
 *
 * A notice that the machine goes away (run_notice.c, `pawl notice`) is a SIGTERM whose grace ends a
 * moment before the machine does.
 *
 * A failure, a signal or the loss of a node on one node counts on all nodes. With leaves_on_term,
 * SIGTERM to one node or launcher says that it must go, as a notice does: the others go on.
 *
 * Several `pawl run` (launchers) may share a membership file (membership.h). Each then starts ranks
 * of one elastic job, and knows of the others only what ranks write into the file (run_joint.h).
 * SIGUSR1: the ranks of this launcher leave the others, which go on.
 *
 * When `pawl run` itself is killed, no process is left: workers and template die with it
 * (PR_SET_PDEATHSIG). What was durable stays durable; what was only in memory is lost.
 *
 * nodes.h and run_policy.h decide. run_vars.h makes the environment of the workers. run_output.h
 * prints.
 */
#ifndef LAUNCH_RUN_H
#define LAUNCH_RUN_H

#include "notice/notice.h"

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

#define RUN_WORKERS_MAX       64u   /* on a node; PROTO_RANKS_LOCAL, MEMBERSHIP_LAUNCHER_RANKS */
#define RUN_LAUNCHERS_MAX     1024u /* launchers that share a membership file */
#define RUN_RESTARTS_MAX      1000000u
#define RUN_GRACE_MAX_NS      86400000000000LL /* a day */
#define RUN_FENCE_LEAST_NS    5000000000LL
#define RUN_NODES_WAIT_MAX_NS 604800000000000LL /* a week */

/* Strings and arrays stay the caller's. */
struct run_options {
	uint32_t workers;                  /* workers of this node, 1 to RUN_WORKERS_MAX */
	uint32_t min_workers, max_workers; /* bounds of workers while the job runs; 0: fixed */
	/* Nodes of the job; 0: what the outer launcher (srun, torchrun, mpirun) says in the
	 * environment, else 1. */
	uint32_t nodes;
	/* Rank of this node; NODE_NONE: what the outer launcher says, else any. With
	 * membership_path: number of this launcher, at most RUN_LAUNCHERS_MAX - 1. */
	uint32_t node_rank;
	/* What the job's launchers share: a path, or a scheduler's URL; NULL: nothing. */
	const char *membership_path;
	int64_t fence_ns; /* as in run_fence.h; negative: run_fence_default_ns */
	bool joins;       /* with membership_path: all ranks join a job that runs */
	/* "host:port,…" where nodes meet; NULL: what the outer launcher says. */
	const char *rendezvous;
	uint32_t servers;            /* hosts that only add, at most NODE_SERVERS_MAX */
	const char *token_file;      /* file that holds the token; NULL: PAWL_TOKEN, else none */
	int64_t node_timeout_ns;     /* longest wait for nodes */
	uint32_t max_restarts;       /* at most RUN_RESTARTS_MAX */
	int64_t grace_ns;            /* time from a signal to the exit, 0 to RUN_GRACE_MAX_NS */
	struct notice_source notice; /* service that is asked whether this machine goes away */
	const char *notice_text;     /* option that notice was read from; NULL: none was given */
	bool stops_on_notice;        /* a notice at one node or launcher stops the whole job */
	bool leaves_on_term;         /* SIGTERM counts as a notice, with the grace as its time */
	uint32_t preempted_code;     /* exit status after a notice; 0: that of SIGTERM */
	const char *log_dir; /* directory of attempt<k>/rank<r>.{out,err}; NULL: no log files */
	const char *job;     /* job id; NULL: from the environment, else derived */
	const char *python;  /* interpreter, a path or a name for PATH; NULL: see run_plan.h */
	bool use_template;   /* restarts fork workers from a template process */
	/* The worker is a program and its arguments, no script: there is no template, and signals
	 * go to all processes of a worker. */
	bool no_python;
	bool our_backend; /* torch.distributed is to use ours, whatever the script asks for */
	char *const
		*worker; /* script and its arguments, or "-m", module and its; NULL-terminated */
};

/*
 * Runs the job to its end. Blocks; takes over the stderr of the process meanwhile, and its signals
 * for good: call it last. *status is the exit status for the process, as docs/exit-codes.md has it.
 * An error means that no worker was started: PAWL_ENOENT (script, interpreter), PAWL_EBUSY (an
 * agent of this job lives, or nobody answers at a membership's URL), PAWL_ECANCELED (a signal came
 * before an answer), PAWL_EINVAL (environment, rendezvous, token, URL), PAWL_ENOTSUP (started once
 * a rank instead of once a node), PAWL_EIO, PAWL_ENOMEM.
 */
int run_main(const struct run_options *options, int *status, struct pawl_err *err);

#endif
