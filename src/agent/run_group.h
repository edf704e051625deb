/*
 * The worker processes of `pawl run`: started by exec or by the template, killed, and waited for.
 *
 * The process must be a child subreaper and block SIGCHLD; whoever reads that signal calls
 * run_group_reap. All functions are for the loop's thread; exited is called from the loop or from
 * run_group_reap, and may start the next attempt.
 */
#ifndef AGENT_RUN_GROUP_H
#define AGENT_RUN_GROUP_H

#include "agent/run_plan.h"
#include "base/address.h"

#include <sys/types.h>

struct loop;
struct run_group;
struct run_output;

#define RUN_TEMPLATES_MAX                                                                          \
	4u /* templates started by one `pawl run`: the next might die like these */

/* How a worker ended. */
struct run_end {
	uint32_t rank;     /* whose end, in the job */
	uint32_t number;   /* its place, or PAWL_ELASTIC_JOIN */
	pid_t pid;         /* it was; 0 if it could not be started */
	int status;        /* exit code, or 128 + signal */
	int signal;        /* 0 if it exited */
	bool parted;       /* it was told to leave the others */
	int64_t lasted_ns; /* since its start */
};

/* Where in the job the workers of this node are. Strings stay the caller's. */
struct run_start {
	uint32_t workers;    /* of this node */
	bool joins;          /* they are more, of a job that runs */
	uint32_t first;      /* the lowest of their ranks */
	uint32_t world;      /* ranks of the job */
	uint32_t node;       /* this one's rank */
	uint32_t nodes;      /* of the job */
	uint32_t attempt;    /* its number */
	uint32_t restarts;   /* counted so far */
	uint32_t port;       /* MASTER_PORT */
	const char *master;  /* MASTER_ADDR */
	const char *servers; /* PAWL_SERVERS, if it is not empty */
};

struct run_group_options {
	const struct run_options *run;                         /* all of these outlive the group */
	const struct run_plan *plan;                           /* interpreter, job, socket */
	struct loop *loop;                                     /* of the calling thread */
	struct run_output *output;                             /* takes the workers' pipes */
	void (*exited)(void *user, const struct run_end *end); /* each started worker, once */
	void *user;                                            /* passed to it */
};

int run_group_open(struct run_group **group, const struct run_group_options *options,
	struct pawl_err *err);
void run_group_close(struct run_group *group); /* kills what is left; NULL is fine */

/* Starts all workers of this node. What cannot be started is reported as
 * exited with 1. Only when none of the attempt before is left. */
void run_group_start(struct run_group *group, const struct run_start *start);
/* Starts so many workers more, in places that are free, which join the others. Errors as of
 * run_group_start. */
void run_group_add(struct run_group *group, uint32_t n);
/* Whether a worker lives that was given this number: its place, or PAWL_ELASTIC_JOIN. */
bool run_group_has(const struct run_group *group, uint32_t number);
/* Tells so many, from the last place down, to leave the others: SIGUSR1. */
void run_group_part(struct run_group *group, uint32_t n);
/* Sends a signal to every worker that lives: SIGKILL to its whole process group. */
void run_group_kill(struct run_group *group, int signal);
/* Waits for whoever has died, without blocking. */
void run_group_reap(struct run_group *group);
/* Starts a template that imports these modules, in place of one that was started without knowing
 * them (imports NULL: torch alone, and pawl.elastic of an elastic run). Does nothing when one is
 * there already. */
void run_group_prepare(struct run_group *group, const char *imports);

#endif
