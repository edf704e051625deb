/*
 * A job whose ranks span hosts: its agents agree through the store, since they share nothing else.
 *
 * Each host's agent serves its own ranks. That of rank 0 has the root: it alone takes the lock,
 * cleans up, publishes, keeps and deletes tags. The others write their ranks' files into the
 * directory of the tag that is being built, and say so in a note of their own.
 *
 * Who takes part is settled once for a run. When its ranks begin, a host's agent says so with a new
 * random number (its nonce); once the ranks of all who said so make up the job, rank 0's names them
 * and the run's own number. A host that begins anew ends the run for all: whoever did something in
 * it must begin anew too, and whatever is under way fails, with the reason, on all hosts. Notes and
 * directories carry the run's number, so nothing of one run is ever taken for another's.
 *
 * In a run everything is a round: each host says its part, rank 0's waits for all parts and says
 * what came of it, the others wait for that. Saves are rounds, and so are restores, in two halves
 * (what is offered, what all think of it). All hosts come to the rounds in one order, because their
 * ranks do, and one storage thread a host carries them out.
 *
 * All waiting is by looking again, with pauses, and ends: after the time-out, when the run is over,
 * or when the agent leaves. For the storage thread, which may wait.
 */
#ifndef AGENT_HOSTS_H
#define AGENT_HOSTS_H

#include "agent/hosts_note.h"

struct store;

#define HOSTS_DIR     ".pawl-hosts"
#define HOSTS_PATH    192u                 /* bytes of a path in it, terminator included */
#define HOSTS_TIMEOUT "PAWL_HOSTS_TIMEOUT" /* environment: seconds, from 1 to 86400 */

/* Waits so long between two looks; false: give up, the agent leaves or its ranks began
 * anew. */
typedef bool hosts_pause_fn(void *user, int64_t pause_ns);

struct hosts {
	struct store *store;     /* the root's; the caller's */
	char job[CKPT_JOB_MAX];  /* id */
	char base[HOSTS_PATH];   /* directory of the job's notes */
	uint32_t world;          /* ranks of the job */
	struct hosts_member own; /* this host */
	int64_t timeout_ns;      /* for the other hosts */
	int64_t astray_ns;       /* for one that does something else: if its ranks began anew, it
				    says so by then */
	hosts_pause_fn *pause;   /* see above */
	void *user;              /* for pause */
	struct note_run run;     /* that we are in; run.run 0: none. Host of rank 0: of the one
				    before too, for its members */
	bool in;                 /* run is in force, as far as is known */
	bool used;               /* something was done in it: its end means to begin anew */
	uint64_t saves;          /* newest save whose round is over */
	uint64_t durable;        /* newest that is */
	uint64_t restores;       /* rounds of restoring that are over */
	_Atomic uint64_t told_nonce; /* of rank 0's host, see hosts_told; 0: none */
	_Atomic int64_t told_ns;     /* when */
	char late[HOSTS_WHY_MAX];    /* what is being waited for, for people */
	struct wire_out out;         /* notes are built here */
};

/* Zeroed before. Fills in what is fixed; no store yet. */
void hosts_init(struct hosts *hosts, const char *job, uint32_t first, uint32_t ranks,
	uint32_t world, hosts_pause_fn *pause, void *user);
void hosts_deinit(struct hosts *hosts);
/* The root is open (and, for rank 0's host, locked): what earlier runs left is removed by that
 * one. */
int hosts_open(struct hosts *hosts, struct store *store, struct pawl_err *err);
/* This host's ranks begin (anew). */
int hosts_begin(struct hosts *hosts, struct pawl_err *err);
/* Rank 0's host says by another way than the store that its ranks began, with this nonce, in a root
 * of this name. If that is not seen here soon, this is another root: PAWL_EINVAL. Any thread. */
void hosts_told(struct hosts *hosts, uint64_t nonce);
/* In a run that is in force, waiting for it if need be. PAWL_EPEER: the one we were in is over, and
 * something was done in it; PAWL_ETIMEDOUT: ranks are missing, and which. */
int hosts_enter(struct hosts *hosts, struct pawl_err *err);
bool hosts_lead(const struct hosts *hosts); /* this is the host of rank 0 */

/* ---- rounds; kind is a letter ---- */

/* Says hosts->out in round n: as this host's part, or (said) as what came of it. */
int hosts_say(struct hosts *hosts, char kind, uint64_t n, bool said, struct pawl_err *err);
/* Rank 0's: waits until all others have said their part, or gone past it. */
int hosts_gather(struct hosts *hosts, char kind, uint64_t n, struct pawl_err *err);
/* What member m of the run said. PAWL_ENOENT: it has gone past it. The caller frees *bytes. */
int hosts_read(struct hosts *hosts, char kind, uint64_t n, uint32_t m, void **bytes,
	size_t *len_bytes, struct pawl_err *err);
/* The others: waits for what came of it. A failure that it tells is the error, and word is
 * filled. */
int hosts_hear(struct hosts *hosts, char kind, uint64_t n, struct note_word *word,
	struct pawl_err *err);
/* Rank 0's: rounds so long ago that nobody asks for them any more are forgotten. */
void hosts_forget(struct hosts *hosts, char kind, uint64_t n);

/* ---- restoring ---- */

/* All hosts get the tag in *word, filled by rank 0's: found, step, tag, or code and why. What each
 * asked for (has_step, asked) is in it before and must be the same. */
typedef int hosts_find_fn(void *user, struct note_word *word);
int hosts_offer(struct hosts *hosts, struct note_word *word, hosts_find_fn *find, void *user,
	struct pawl_err *err);
/* word->verdict and why: of this host's ranks before, of all ranks after. condemn is called on rank
 * 0's host before the others hear of it, if all are to ask again. PAWL_EPEER: all are to ask
 * again, since a host began anew. */
typedef void hosts_condemn_fn(void *user, const char *why);
int hosts_vote(struct hosts *hosts, struct note_word *word, hosts_condemn_fn *condemn, void *user,
	struct pawl_err *err);

#endif
