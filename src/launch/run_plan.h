/* The plan of a `pawl run`, made before it starts anything: interpreter, job, attempt, socket. */
#ifndef LAUNCH_RUN_PLAN_H
#define LAUNCH_RUN_PLAN_H

#include "agent/peer/peer_msg.h"
#include "ckpt/format/manifest.h"
#include "io/tls.h"
#include "launch/run.h"
#include "launch/run_places.h"

#include <limits.h>

struct run_plan {
	char python[PATH_MAX];  /* path of the interpreter, or with no_python of the program */
	char job[CKPT_JOB_MAX]; /* job id */
	char socket[PATH_MAX];  /* path of the agent's socket */
	char membership_path[PATH_MAX]; /* path of the membership file; empty: not elastic */
	bool shared;                    /* the membership is shared by other launchers */
	const char *membership_url;     /* scheduler by which it is shared; NULL: by the file */
	bool joins;                     /* all ranks here join a job that runs */
	uint32_t first;                 /* shared: the lowest number of a rank here */
	uint32_t attempt;               /* number of the first attempt */
	uint32_t nodes;                 /* nodes of the job */
	uint32_t node_rank;             /* rank of this node, or NODE_NONE: any */
	struct run_places places;       /* places of the rendezvous */
	char token[TLS_TOKEN_MAX + 1];  /* token of the job; empty: none */
	char domain[PEER_DOMAIN_MAX];   /* failure domain of this node; empty: unknown */
};

/* Finds the interpreter: asked, a path or a name in PATH; without it (NULL) the one beside this
 * program if that is in a virtual environment, else the first python3, then python, in PATH.
 * PAWL_ENOENT. */
int run_python_find(char *path, size_t cap_bytes, const char *asked, struct pawl_err *err);
/* Finds a program as a shell does: asked is a path, or a name in PATH. PAWL_ENOENT. */
int run_program_find(char *path, size_t cap_bytes, const char *asked, struct pawl_err *err);

/*
 * Fills plan. The interpreter: run_python_find of options->python. The job: options->job; else what
 * the environment states (pawl/env.h); else run_job_derive. The nodes: options->nodes; else those
 * of a launcher that starts one process a node. Makes options->log_dir. Errors as in run_main.
 */
int run_plan_make(struct run_plan *plan, const struct run_options *options, struct pawl_err *err);

/* Reads the token from the file at path, or (NULL) from PAWL_TOKEN; "" if there is none. token:
 * TLS_TOKEN_MAX + 1 bytes. PAWL_EINVAL, PAWL_ENOENT, and other errors of opening the file. */
int run_token_read(char *token, const char *path, struct pawl_err *err);

/* Makes the id of a job that nobody named, such as "train-0123456789abcdef": the same whenever the
 * same user starts the same script (its real path) or module in the same directory. Pure. */
void run_job_derive(char *job, size_t cap_bytes, const char *script, const char *cwd, uint32_t uid);

#endif
