/*
 * The agent: one a node and job. Owns the memory tier, keeps the ledger of every root its workers
 * save to, makes durable what was committed, and outlives the workers. Runs on the loop of its
 * process: `pawl run` itself, or `pawl agent` when the library spawned it.
 *
 * All functions are for the loop's thread. Storage is touched by one thread a root (persist.c), so
 * a hung disk never blocks the loop.
 */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_TOLD_MAX 16u

struct pawl_err;
struct loop;
struct agent;

struct agent_options {
	const char *job;    /* job id, at most CKPT_JOB_MAX - 1 bytes */
	const char *socket; /* path to listen on, made 0600; see socket_path.h */
	uint32_t attempt;   /* first attempt's number; workers of another attempt are refused */
	bool any_attempt;   /* a spawned agent: takes the attempt its workers bring (torchrun counts
			       for it) */
	int64_t idle_exit_ns; /* loop_stop after so long without workers and with nothing left to
				 make durable; 0: never */
	bool heard;           /* people see this process's log: ranks need not say what is in it */
	bool lets_go; /* of a root that no worker has any more, once all is durable: others may
			 take it on elsewhere */
};

/* Binds the socket (PAWL_EBUSY naming the pid when an agent of this job lives) and adds itself to
 * the loop. */
int agent_open(struct agent **out, struct loop *loop, const struct agent_options *options,
	struct pawl_err *err);
void agent_close(struct agent *agent); /* closes connections, frees the arenas, removes the socket;
					  loses what is not durable */

/* The workers' group was restarted: connections of older attempts are dropped, their uncommitted
 * saves forgotten, committed ones kept; the notice was not for the new ones. */
void agent_set_attempt(struct agent *agent, uint32_t attempt);
/* Tells every worker to stop: finish the step, save, leave (their ckpt.stopping turns true).
 * Workers that connect later hear it too. */
void agent_notice(struct agent *agent, const char *why);
/* Makes the newest committed step of every root durable and calls drained(user, ok) once, from the
 * loop; ok=false when storage failed. */
void agent_drain(struct agent *agent, void (*drained)(void *user, bool ok), void *user);
/* Whether a worker of this attempt has left on purpose though its newest save was not durable, as
 * it says by its exit code, too (RUN_EXIT_UNSAVED). */
bool agent_left_owing(const struct agent *agent);
/* For logs: "runs/gpt: step 1200 durable, step 1260 committed" (newest of each root). Returns
 * buf. */
const char *agent_summary(const struct agent *agent, char *buf, size_t cap_bytes);
/* Newline-separated names of the Python modules that a worker of the last attempt reported as
 * imported; NULL if none did yet. The agent's. */
const char *agent_imports(const struct agent *agent);
/* Called (if set) when a worker reports its imports, once an attempt. */
void agent_on_imports(struct agent *agent, void (*imported)(void *user), void *user);

/* Called (if set) when ranks of this host begin (anew) in a root, rank 0 among them, in a job whose
 * ranks span hosts: its path, and a random number that is written there. */
void agent_on_begun(struct agent *agent,
	void (*begun)(void *user, const char *path, uint64_t nonce), void *user);
/* That was said on another host. A root of that path here in which the number does not soon appear
 * is another directory, and refused. Of AGENT_TOLD_MAX roots the newest is known. */
void agent_told(struct agent *agent, const char *path, uint64_t nonce);

/* How many ranks a job has. */
struct agent_scale {
	uint32_t alive;       /* that run */
	uint32_t wanted;      /* that are to */
	uint32_t least, most; /* that may */
};

/* Who can start and end ranks: asked by `pawl scale`. wanted 0 only asks. Without it, and with
 * PAWL_ENOTSUP from it, a job's ranks are fixed. */
void agent_on_scale(struct agent *agent,
	int (*scale)(void *user, uint32_t wanted, struct agent_scale *now, struct pawl_err *err),
	void *user);

#endif
