/*
 * A job whose ranks span hosts: its agents agree through the store, since they share nothing else.
 *
 * Each host's agent serves its own ranks. The agent of rank 0's host has the root: it alone takes
 * the lock, cleans up, publishes, keeps and deletes tags. The others write their ranks' files into
 * the directory of the tag that is being built, and say so in a note of their own.
 *
 * The members of a run are settled once. When its ranks begin, a host's agent says so with a new
 * random number (its nonce); once the ranks of all hosts that said so make up the job, rank 0's
 * host names them and the run's own number. A host that begins anew ends the run for all: every
 * host that did something in it must begin anew too, and all work under way fails, with the reason,
 * on all hosts. Notes and directories carry the run's number, so nothing of one run is ever taken
 * for another's.
 *
 * In a run everything is a round: each host says its part, rank 0's host waits for all parts and
 * says the result, the others wait for that. Saves are rounds, and so are restores, in two halves
 * (the offer, and the vote on it). All hosts come to the rounds in one order, because their ranks
 * do, and one storage thread a host carries them out.
 *
 * All waiting is by looking again, with pauses, and ends: after the time-out, when the run is over,
 * or when the agent leaves. For the storage thread, which may wait.
 */
#ifndef AGENT_PERSIST_AGREE_H
#define AGENT_PERSIST_AGREE_H

#include "agent/persist/agree_msg.h"

struct store;

#define AGREE_DIR         ".pawl-hosts"
#define AGREE_PATH_MAX    192u /* bytes of a path in AGREE_DIR, terminator included */
#define AGREE_TIMEOUT_ENV "PAWL_HOSTS_TIMEOUT" /* environment variable: seconds, from 1 to 86400 */

/* Waits pause_ns between two looks. Returns false if the caller is to give up: the agent leaves or
 * its ranks began anew. */
typedef bool agree_pause_fn(void *user, int64_t pause_ns);

struct agree {
	struct store *store;       /* the root's; the caller owns it */
	char job[CKPT_JOB_MAX];    /* job id */
	char base[AGREE_PATH_MAX]; /* directory of the job's notes */
	uint32_t world;            /* ranks of the job */
	struct agree_member own;   /* this host */
	int64_t timeout_ns;        /* time-out of waits for the other hosts */
	/* Longest wait for a host that restores while others save: had its ranks begun anew, it
	 * would have said so by then. */
	int64_t mismatch_wait_ns;
	agree_pause_fn *pause; /* waits between two looks */
	void *user;            /* passed to pause */
	/* The run that this host is in; run.run 0: none. On rank 0's host also a run that is over,
	 * for its members. */
	struct agree_msg_run run;
	bool in_run; /* run is in force, as far as is known */
	/* Something was done in the run: when the run ends, this host's ranks must begin anew. */
	bool run_used;
	uint64_t last_save;    /* newest save whose round is over */
	uint64_t last_durable; /* newest save that is durable */
	uint64_t restores;     /* number of rounds of restoring that are over */
	_Atomic uint64_t
		expected_nonce; /* nonce of rank 0's host, see agree_expect_nonce; 0: none */
	_Atomic int64_t expected_since_ns; /* when agree_expect_nonce was called, monotonic ns */
	char why_waiting[AGREE_WHY_MAX];   /* reason for the present wait, as text for people */
	struct wire_out out;               /* buffer in which notes are built */
};

/* Fills in what is fixed; there is no store yet. hosts is zeroed before. */
void agree_init(struct agree *agree, const char *job, uint32_t first, uint32_t ranks,
	uint32_t world, agree_pause_fn *pause, void *user);
void agree_deinit(struct agree *agree);
/* The root is open (and, on rank 0's host, locked). Rank 0's host removes what earlier runs
 * left. */
int agree_open(struct agree *agree, struct store *store, struct pawl_err *err);
/* This host's ranks begin (anew). */
int agree_begin(struct agree *agree, struct pawl_err *err);
/* Rank 0's host says by another way than the store that its ranks began, with this nonce, in a root
 * of this name. If its note with that nonce does not soon appear here, this is another root:
 * PAWL_EINVAL. Any thread. */
void agree_expect_nonce(struct agree *agree, uint64_t nonce);
/* Enters a run that is in force, waiting for it if need be. PAWL_EPEER: the run that this host was
 * in is over, and something was done in it; PAWL_ETIMEDOUT: ranks are missing, err says which. */
int agree_enter(struct agree *agree, struct pawl_err *err);
bool agree_is_leader(const struct agree *agree); /* whether this is the host of rank 0 */

/* ---- rounds; kind is a letter ---- */

/* Writes hosts->out as the note of round n: this host's part, or (said) the round's result. */
int agree_send(struct agree *agree, char kind, uint64_t n, bool is_result, struct pawl_err *err);
/* Rank 0's host: waits until all others have said their part, or gone past it. */
int agree_gather(struct agree *agree, char kind, uint64_t n, struct pawl_err *err);
/* Reads the part of member m. PAWL_ENOENT: the member has gone past the round. The caller frees
 * *bytes. */
int agree_read_part(struct agree *agree, char kind, uint64_t n, uint32_t m, void **bytes,
	size_t *len_bytes, struct pawl_err *err);
/* The other hosts: waits for the result of the round. A failure that it tells is returned, and word
 * is filled. */
int agree_await_result(struct agree *agree, char kind, uint64_t n, struct agree_msg_status *status,
	struct pawl_err *err);
/* Rank 0's host: once round n is over, removes the notes of one so long ago that nobody asks for it
 * any more. */
void agree_remove_old(struct agree *agree, char kind, uint64_t n);

/* ---- restoring ---- */

/* Fills the tag in *word on rank 0's host: found, step, tag, or code and why. What each host asked
 * for (has_step, asked) is in *word before and must be the same on all; all hosts get the
 * result. */
typedef int agree_find_fn(void *user, struct agree_msg_status *status);
int agree_offer(struct agree *agree, struct agree_msg_status *status, agree_find_fn *find,
	void *user, struct pawl_err *err);
/* word->verdict and why are those of this host's ranks before, of all ranks after. condemn is
 * called on rank 0's host before the others hear of the verdict, if all are to ask again.
 * PAWL_EPEER: all are to ask again, since a host began anew. */
typedef void agree_condemn_fn(void *user, const char *why);
int agree_vote(struct agree *agree, struct agree_msg_status *status, agree_condemn_fn *condemn,
	void *user, struct pawl_err *err);

#endif
