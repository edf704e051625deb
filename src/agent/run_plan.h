/* What `pawl run` finds out before it starts anything: interpreter, job, attempt, socket. */
#ifndef AGENT_RUN_PLAN_H
#define AGENT_RUN_PLAN_H

#include "agent/node_tls.h"
#include "agent/run.h"
#include "agent/run_places.h"
#include "ckpt/manifest.h"

#include <limits.h>

struct run_plan {
	char python[PATH_MAX];    /* path of the interpreter; no_python: of the program */
	char job[CKPT_JOB_MAX];   /* id */
	char socket[PATH_MAX];    /* of the agent */
	char door[PATH_MAX];      /* of an elastic job, for who joins it; empty: it is none */
	bool shared;              /* that is options->door: others have launchers of their own */
	bool joins;               /* all ranks here join there */
	uint32_t first;           /* shared: the lowest number of a rank here */
	uint32_t attempt;         /* number of the first attempt */
	uint32_t nodes;           /* of the job */
	uint32_t node_rank;       /* of this one, or NODE_NONE: any */
	struct run_places places; /* where several nodes meet */
	char token[NODE_TOKEN_MAX + 1]; /* of the job; empty: none */
};

/* The interpreter: asked, a path or a name in PATH; without it (NULL) the one beside this program
 * if that is in a virtual environment, else the first python3, then python, in PATH.
 * PAWL_ENOENT. */
int run_python_find(char *path, size_t cap_bytes, const char *asked, struct pawl_err *err);
/* A program, as a shell finds it: a path, or a name for PATH. PAWL_ENOENT. */
int run_program_find(char *path, size_t cap_bytes, const char *asked, struct pawl_err *err);

/*
 * The interpreter: run_python_find of options->python. The job: options->job; else what the
 * environment says (pawl/env.h); else run_job_derive. The nodes: options->nodes; else those of a
 * launcher that starts one process a node. Makes options->log_dir. Errors as run_main.
 */
int run_plan_make(struct run_plan *plan, const struct run_options *options, struct pawl_err *err);

/* Of a file, or (NULL) PAWL_TOKEN; "" without one. token: NODE_TOKEN_MAX + 1 bytes. PAWL_EINVAL,
 * PAWL_ENOENT and others of opening it. */
int run_token_read(char *token, const char *path, struct pawl_err *err);

/* The id of a job that nobody named: the same whenever the same user starts the same script (its
 * real path) or module in the same directory. "train-0123456789abcdef". Pure. */
void run_job_derive(char *job, size_t cap_bytes, const char *script, const char *cwd, uint32_t uid);

#endif
