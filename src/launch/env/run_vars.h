/*
 * The environment of a worker: that of `pawl run`, with torchrun's variables and ours set. Pure.
 *
 * A set of variables is a wire_out of "NAME=value" strings, each with its NUL.
 */
#ifndef LAUNCH_ENV_RUN_VARS_H
#define LAUNCH_ENV_RUN_VARS_H

#include "base/wire.h"

/* The values of the variables. Strings stay the caller's. */
struct run_place {
	uint32_t workers;            /* workers on this node */
	uint32_t first;              /* lowest rank on this node */
	uint32_t world;              /* ranks of the job */
	uint32_t node;               /* rank of this node */
	uint32_t nodes;              /* nodes of the job */
	uint32_t max_restarts;       /* restarts, at most */
	uint32_t restarts;           /* restarts so far */
	uint32_t attempt;            /* attempt of the job, restarts included */
	uint32_t port;               /* MASTER_PORT, a new one for each attempt */
	uint32_t adaptdl_port;       /* ADAPTDL_MASTER_PORT; 0: AdaptDL's variables are not set */
	const char *master;          /* MASTER_ADDR: address of the node with rank 0 */
	const char *servers;         /* PAWL_SERVERS, if it is not empty */
	const char *job;             /* job id */
	const char *agent;           /* path of the agent's socket */
	const char *membership_path; /* PAWL_ELASTIC_DOOR; NULL: the job is not elastic */
	uint32_t min_workers; /* PAWL_ELASTIC_MIN, with membership_path; 0: left as inherited */
	uint32_t number;      /* PAWL_ELASTIC_JOIN, with joins */
	bool joins;           /* the worker joins a group that runs */
	bool one_thread;      /* OMP_NUM_THREADS is to be 1, as torchrun sets it */
	bool our_backend;     /* PAWL_BACKEND is to be pawl */
	bool nccl_async;      /* TORCH_NCCL_ASYNC_ERROR_HANDLING is to be 1, as torchrun sets it */
};

/* Names of the variables that differ between ranks or attempts; NULL-terminated. AdaptDL's are not
 * among them: outside of the scheduler's jobs another program sets those. */
extern const char *const run_vars_varying[];

/* run_vars_put_common adds the variables that are the same for every rank and attempt,
 * run_vars_put_varying those that vary. */
void run_vars_put_common(struct wire_out *set, const struct run_place *place);
void run_vars_put_varying(struct wire_out *set, const struct run_place *place, uint32_t local);

/*
 * Returns an environ for exec: base, then set. Of base it leaves out the variables of set, those
 * that vary, PAWL_RANK (it would take precedence over torchrun's) and PAWL_TOKEN (not for workers).
 * The array is NULL-terminated and points into base and set, which must outlive it; the caller
 * frees the array alone. NULL if memory is short, or set has failed.
 */
char **run_vars_merge(char *const *base, const struct wire_out *set);

#endif
