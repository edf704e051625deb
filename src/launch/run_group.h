/*
 * The worker processes of `pawl run`: started by exec or by the template, killed, and reaped.
 *
 * The process must be a child subreaper and block SIGCHLD; whoever reads that signal calls
 * run_group_reap. All functions are for the loop's thread; exited is called from the loop or from
 * run_group_reap, and may start the next attempt.
 */
#ifndef LAUNCH_RUN_GROUP_H
#define LAUNCH_RUN_GROUP_H

#include "io/address.h"
#include "launch/nodes/run_policy.h"
#include "launch/run_plan.h"

#include <sys/types.h>

struct loop;
struct run_group;
struct run_output;

#define RUN_TEMPLATES_MAX                                                                          \
	4u /* templates of one `pawl run`, at most: each further one might die as well */

/* The end of a worker. */
struct run_end {
	uint32_t rank;        /* rank in the job */
	uint32_t number;      /* number in the job: see run_group_has */
	pid_t pid;            /* process id; 0: the worker could not be started */
	struct run_exit exit; /* how it ended; run_group leaves outside and verdict as zero */
};

/* The place of this node's workers in the job. Strings stay the caller's. */
struct run_start {
	uint32_t workers;    /* workers of this node */
	bool joins;          /* the workers join a job that runs */
	uint32_t first;      /* lowest rank of this node's workers */
	uint32_t world;      /* ranks of the job */
	uint32_t node;       /* rank of this node */
	uint32_t nodes;      /* nodes of the job */
	uint32_t attempt;    /* number of the attempt */
	uint32_t restarts;   /* restarts counted so far */
	uint32_t port;       /* MASTER_PORT */
	const char *master;  /* MASTER_ADDR */
	const char *servers; /* PAWL_SERVERS, if it is not empty */
};

struct run_group_options {
	const struct run_options *run; /* as given; all pointers here outlive the group */
	const struct run_plan *plan;   /* interpreter, job, socket */
	struct loop *loop;             /* loop of the calling thread */
	struct run_output *output;     /* takes the workers' pipes */
	void (*exited)(void *user, const struct run_end *end); /* once for each worker */
	void *user;                                            /* passed to exited */
};

int run_group_open(struct run_group **group, const struct run_group_options *options,
	struct pawl_err *err);
void run_group_close(struct run_group *group); /* kills what is left; NULL is fine */

/* Starts all workers of this node. A worker that cannot be started is reported as exited with 1.
 * Call only when no worker of the attempt before is left. */
void run_group_start(struct run_group *group, const struct run_start *start);
/* Starts n more workers, in free places; they join the others. Errors are reported as in
 * run_group_start. */
void run_group_add(struct run_group *group, uint32_t n);
/* Returns whether the worker with this number lives. The number of a worker is its place in the
 * attempt; of one that joined, the value of its PAWL_ELASTIC_JOIN. */
bool run_group_has(const struct run_group *group, uint32_t number);
/* Sends SIGUSR1 to n workers, from the last place down: they are to leave the others. */
void run_group_retire(struct run_group *group, uint32_t n);
/* Sends a signal to every worker that lives: SIGKILL to its whole Unix process group. */
void run_group_kill(struct run_group *group, int signal);
/* Reaps every child that has died, without blocking. */
void run_group_reap(struct run_group *group);
/* Starts a template that imports these modules, in place of one with the default imports. imports
 * NULL: the default imports, torch, and pawl.elastic in an elastic run. Does nothing if there is
 * such a template already. */
void run_group_open_template(struct run_group *group, const char *imports);

#endif
