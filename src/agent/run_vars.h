/*
 * The environment of a worker: torchrun's variables and ours, laid over what `pawl run` was given.
 * Pure.
 *
 * A set of variables is a wire_out of "NAME=value" strings, each with its NUL.
 */
#ifndef AGENT_RUN_VARS_H
#define AGENT_RUN_VARS_H

#include "base/wire.h"

/* What they say. Strings stay the caller's. */
struct run_place {
	uint32_t workers;      /* on this node */
	uint32_t first;        /* the lowest rank of them */
	uint32_t world;        /* ranks of the job */
	uint32_t node;         /* this one's rank */
	uint32_t nodes;        /* of the job */
	uint32_t max_restarts; /* as asked for */
	uint32_t restarts;     /* of those, so far */
	uint32_t attempt;      /* of the job, restarts included */
	uint32_t port;         /* MASTER_PORT, another one each attempt */
	uint32_t adaptdl_port; /* ADAPTDL_MASTER_PORT; 0: AdaptDL's variables are not set */
	const char *master;    /* MASTER_ADDR: of the node with rank 0 */
	const char *servers;   /* PAWL_SERVERS, if it is not empty */
	const char *job;       /* id */
	const char *agent;     /* path of its socket */
	const char *door;      /* PAWL_ELASTIC_DOOR; NULL: ranks do not come and go */
	uint32_t least;        /* PAWL_ELASTIC_MIN, likewise; 0: it is as it was */
	uint32_t number;       /* PAWL_ELASTIC_JOIN, if it joins */
	bool joins;            /* it is one more, of a group that runs */
	bool one_thread;       /* OMP_NUM_THREADS is to be 1, as torchrun has it */
	bool our_backend;      /* PAWL_BACKEND is to be pawl */
	bool nccl_async;       /* TORCH_NCCL_ASYNC_ERROR_HANDLING is to be 1, likewise */
};

/* Names of those that differ between ranks or attempts, but for AdaptDL's, which outside of the
 * scheduler's jobs are another's; NULL-terminated. */
extern const char *const run_vars_varying[];

/* Adds the variables that are the same for every rank and attempt; then those that vary. */
void run_vars_put_common(struct wire_out *set, const struct run_place *place);
void run_vars_put_varying(struct wire_out *set, const struct run_place *place, uint32_t local);

/*
 * An environ for exec: base without what set sets, what varies, PAWL_RANK (it would outrank
 * torchrun's) and PAWL_TOKEN (it is not for them); then set. A NULL-terminated array that points
 * into base and set, which must outlive it; the caller frees the array alone. NULL if memory is
 * short, or set has failed.
 */
char **run_vars_merge(char *const *base, const struct wire_out *set);

#endif
