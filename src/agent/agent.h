/*
 * The agent: one a node and job. Owns the memory tier, keeps the ledger of every root its workers
 * save to, makes durable what was committed, and outlives the workers. Runs on the loop of its
 * process: `pawl run` itself, or `pawl agent` when the library spawned it.
 *
 * All functions are for the loop's thread. One storage thread a root (persist.h) does all
 * work on the disk, so a hung disk never blocks the loop.
 */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_NONCES_MAX 16u
#define AGENT_STOPS_MAX  16u

struct pawl_err;
struct loop;
struct agent;
struct peers;

struct agent_options {
	const char *job;    /* job id, at most CKPT_JOB_MAX - 1 bytes */
	const char *socket; /* path to listen on, made 0600; see socket_path.h */
	uint32_t attempt;   /* first attempt's number; workers of another attempt are refused */
	bool any_attempt;   /* a spawned agent: takes the attempt its workers bring (torchrun counts
			       attempts for it) */
	/* Calls loop_stop after so long without workers and with nothing left to make durable; 0:
	 * never. */
	int64_t idle_exit_ns;
	bool log_visible; /* users see this process's log: ranks need not repeat it */
	/* Closes a root once no worker uses it and all is durable: workers on another host may go
	 * on with it. */
	bool close_idle_roots;
};

/* Binds the socket (PAWL_EBUSY naming the pid when an agent of this job lives) and adds itself to
 * the loop. */
int agent_open(struct agent **out, struct loop *loop, const struct agent_options *options,
	struct pawl_err *err);
/* Closes connections, frees the arenas, removes the socket; loses what is not durable. */
void agent_close(struct agent *agent);

/* Sets the links to the agents of other hosts, which outlive this agent. Roots that are already
 * open go on without. */
void agent_set_peers(struct agent *agent, struct peers *peers);

/* The workers' group was restarted: drops connections of older attempts, forgets their uncommitted
 * saves, keeps committed ones. An earlier notice does not apply to the new workers, and a drain is
 * given up. */
void agent_set_attempt(struct agent *agent, uint32_t attempt);
/* Tells every worker to stop: finish the step, save, leave (their ckpt.stopping turns true).
 * Workers that connect later get the notice, too. */
void agent_notice(struct agent *agent, const char *why);
/* An advice that the machine may go away: makes the newest committed step of every root durable,
 * tells workers that ask ckpt.due() to save, and makes the next committed step durable at once. */
void agent_save_soon(struct agent *agent);
/* Makes the newest committed step of every root durable and calls drained(user, ok) once, from the
 * loop; ok is false when storage failed. */
void agent_drain(struct agent *agent, void (*drained)(void *user, bool ok), void *user);
/* Whether a worker of this attempt has left on purpose though its newest save was not durable. Its
 * exit code is then RUN_EXIT_UNSAVED. */
bool agent_left_not_durable(const struct agent *agent);
/* For logs, at the end: "runs/gpt: step 1260 is durable", or "runs/gpt: step 1260 could not be made
 * durable in time; step 1200 is" (newest of each root). Returns buf. */
const char *agent_summary(const struct agent *agent, char *buf, size_t cap_bytes);
/* Newline-separated names of the Python modules that a worker of the last attempt reported as
 * imported; NULL if none has yet. The agent owns the string. */
const char *agent_imports(const struct agent *agent);
/* Sets the function called when a worker reports its imports, once an attempt; NULL: none. */
void agent_on_imports(struct agent *agent, void (*imported)(void *user), void *user);

/* Sets the function called when ranks of this host begin (anew) in a root, rank 0 among them, in a
 * job whose ranks span hosts; NULL: none. path is the root's, nonce a random number written
 * there. */
void agent_on_begun(struct agent *agent,
	void (*begun)(void *user, const char *path, uint64_t nonce), void *user);
/* The agent of rank 0's host called begun with path and nonce. A root of that path here in which
 * the number does not soon appear is another directory, and is refused. The newest AGENT_NONCES_MAX
 * roots are remembered. */
void agent_expect_nonce(struct agent *agent, const char *path, uint64_t nonce);

/* A question that all ranks of a root answer alike (see root_hold), and what is known of the
 * answer. */
struct agent_poll {
	const char *path;  /* the root's; the caller's */
	uint32_t question; /* enum proto_question */
	/* Whether a save is due: the run of the hosts in which that is asked, 0: any; and the
	 * number of the last save, as all ranks count. */
	uint64_t run;
	uint64_t seq;
	/* How often a rank of this host has asked, at most. In agent_yes_at: the count from which
	 * on the answer is yes. */
	uint64_t polls;
};

/* Sets the function called once all ranks of this host have answered a question, in a job whose
 * ranks span hosts. The owner brings all hosts together: it calls agent_hold on the others, and
 * agent_yes_at on all. The function is called from the loop, never from within another function of
 * the agent. NULL: whether a save is due is not asked where ranks span hosts, and the ranks of each
 * host stop by themselves. */
void agent_on_polled(struct agent *agent, void (*polled)(void *user, const struct agent_poll *poll),
	void *user);
/* Another host's ranks are asked a question: so are those here, at once or, if a save is due, when
 * they have made the save of that number. Ranks that connect later are asked to stop, too, in the
 * newest AGENT_STOPS_MAX roots, until the next attempt. */
void agent_hold(struct agent *agent, const struct agent_poll *poll);
/* The hosts have agreed: reports it to the ranks here. An answer to another question than the last
 * one is ignored. */
void agent_yes_at(struct agent *agent, const struct agent_poll *poll);

/* How many ranks a job has. */
struct agent_scale {
	uint32_t alive;       /* ranks that run */
	uint32_t wanted;      /* ranks that are to run */
	uint32_t least, most; /* ranks that may run, at least and at most */
};

/* Sets the function that starts and ends ranks for `pawl scale`; wanted 0 only asks. Without one,
 * or if it returns PAWL_ENOTSUP, the number of a job's ranks is fixed. */
void agent_on_scale(struct agent *agent,
	int (*scale)(void *user, uint32_t wanted, struct agent_scale *now, struct pawl_err *err),
	void *user);
/* Sets the function called when `pawl notice` says that the machine goes away in left_ns. Without
 * one, the workers are told to stop (agent_notice), and what they save is made durable at once. */
void agent_on_preempt(struct agent *agent, void (*preempted)(void *user, int64_t left_ns),
	void *user);

#endif
