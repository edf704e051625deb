/*
 * A job whose ranks span hosts: its agents agree through small messages (agree_notes.h), which lie
 * in the store, or in the memory of rank 0's host where the agents have links to each other.
 *
 * Each host's agent serves its own ranks. The agent of rank 0's host, the leader, owns the root: it
 * alone takes the lock, cleans up, publishes, retains and deletes tags. The other agents write
 * their ranks' files into the directory of the tag that is being built, and report them in a
 * message, a note that one agent writes for the others.
 *
 * The members of a run are settled once. When its ranks begin, a host's agent sends a new random
 * number, its nonce. Once the ranks of all hosts that did so make up the job, the leader names them
 * and the run's own number. A host that begins anew ends the run for all: every host that did
 * something in it must begin anew too, and all work in progress fails, with the reason, on all
 * hosts. Messages and directories carry the run's number, so nothing of one run is ever taken for
 * another's.
 *
 * A run consists of rounds. In a round each host sends its part, the leader waits for all parts and
 * sends the result, and the others wait for the result. Saves are rounds, and so are restores, in
 * two halves: the offer, and the vote on it. All hosts reach the rounds in one order, because their
 * ranks do, and one storage thread a host carries them out.
 *
 * All waiting polls the notes, with pauses, and ends: after the time-out, when the run is over, or
 * when the agent leaves. While a link to the leader is broken, nothing is there yet: the launcher
 * ends the ranks of all hosts when one is lost, and else the time-out ends the wait.
 *
 * For the storage thread, which may wait.
 */
#ifndef AGENT_PERSIST_AGREE_H
#define AGENT_PERSIST_AGREE_H

#include "agent/persist/agree_msg.h"
#include "agent/persist/agree_notes.h"
#include "ckpt/root.h"

#define AGREE_DIR         ".pawl-hosts"
#define AGREE_PATH_MAX    192u /* bytes of a path in AGREE_DIR, terminator included */
#define AGREE_KEPT        32u  /* rounds of each type that are kept: no host is further behind */
#define AGREE_TIMEOUT_ENV "PAWL_HOSTS_TIMEOUT" /* environment variable: seconds, from 1 to 86400 */

/* Waits pause_ns between two polls. Returns false if the caller is to give up: the agent leaves or
 * its ranks began anew. */
typedef bool agree_pause_fn(void *user, int64_t pause_ns);

/* What a round is for; the value is the letter in its file names. */
enum agree_round {
	AGREE_ROUND_SAVE = 's',
	AGREE_ROUND_RESTORE = 'r', /* the offer of what to restore */
	AGREE_ROUND_VOTE = 'v',    /* the vote on that offer */
};

struct agree_options {
	const char *job;       /* job id */
	const char *root_path; /* name that all hosts know the root by */
	uint32_t first_rank;   /* lowest rank here */
	uint32_t ranks;        /* number of ranks here */
	uint32_t world;        /* ranks of the job */
	uint32_t replicas;     /* as in struct peer_host, like parity */
	bool parity;
	struct peers *peers;   /* links between the hosts; NULL: none. Used until agree_deinit */
	agree_pause_fn *pause; /* waits between two polls */
	/* Called when a run was entered, or is over (agree_get_map says which); NULL: nobody is. */
	void (*changed)(void *user);
	void *user; /* passed to both */
};

struct agree {
	struct tags_root *root;    /* where the hosts save; the caller owns it */
	struct agree_notes notes;  /* where the messages lie */
	char job[CKPT_JOB_MAX];    /* job id */
	char base[AGREE_PATH_MAX]; /* directory of the job's messages */
	uint32_t world;            /* ranks of the job */
	struct agree_member own;   /* this host */
	int64_t timeout_ns;        /* time-out of waits for the other hosts */
	/* Longest wait for a host that restores while others save: had its ranks begun anew, its
	 * message would have come by then. */
	int64_t mismatch_wait_ns;
	agree_pause_fn *pause;       /* see agree_options */
	void (*changed)(void *user); /* see agree_options */
	void *user;                  /* passed to both */
	/* The run that this host is in; run.run 0: none. At the leader also a run that is over, for
	 * its members. */
	struct agree_msg_run run;
	bool in_run; /* run is in force, as far as is known */
	/* Something was done in the run: when the run ends, this host's ranks must begin anew. */
	bool run_used;
	struct tag_draft draft; /* what this host's newest save is written into */
	uint64_t draft_n;       /* number of that save; 0: none has begun */
	uint64_t last_save;     /* newest save whose round is over */
	uint64_t last_durable;  /* newest save that is durable */
	uint64_t restores;      /* number of restore rounds that are over */
	/* The leader chooses which saves become durable, and may come back to an older one when one
	 * has failed. Each host sends its part of what is chosen, and of nothing else. */
	bool chosen;
	uint64_t over[AGREE_KEPT]; /* leader, with chosen: newest saves that are over, a ring */
	uint32_t over_n;           /* saves put into over so far */
	_Atomic uint64_t
		expected_nonce; /* nonce of rank 0's host, see agree_expect_nonce; 0: none */
	_Atomic int64_t expected_since_ns; /* when agree_expect_nonce was called, monotonic ns */
	char why_waiting[AGREE_WHY_MAX];   /* reason for the current wait, as text for users */
	struct wire_out out;               /* buffer in which messages are built */
};

/* Sets what is fixed; there is no root yet. The caller has zeroed *agree. Strings are copied. */
void agree_init(struct agree *agree, const struct agree_options *options);
void agree_deinit(struct agree *agree);
/* The root is open and, at the leader, locked. The leader removes what earlier runs left. A host
 * that does not lead, and has links, asks a root of objects nothing. */
int agree_open(struct agree *agree, struct tags_root *root, struct pawl_err *err);
/* As agree_notes_cancel and agree_notes_resume: for when the agent leaves, or ranks begin anew. Any
 * thread. */
void agree_cancel(struct agree *agree);
void agree_resume(struct agree *agree);
/* This host's ranks begin (anew). */
int agree_begin(struct agree *agree, struct pawl_err *err);
/* Rank 0's host began with this nonce in a root of this name, known by another way than the store.
 * If its message with that nonce does not soon appear here, this is another root, and waits return
 * PAWL_EINVAL. Any thread. */
void agree_expect_nonce(struct agree *agree, uint64_t nonce);
/* Enters the run in force, or waits for one. PAWL_EPEER: the run that this host was in is over, and
 * something was done in it. PAWL_ETIMEDOUT: ranks are missing, err says which. */
int agree_enter(struct agree *agree, struct pawl_err *err);
/* Enters a run to do something in it: when that ends, this host's ranks must begin anew. If the run
 * that this host was in has ended: PAWL_EPEER. If no run comes in time, this host stays ready to be
 * a member of the next one: beginning anew would delay the leader, which may be about to name
 * it. */
int agree_take_part(struct agree *agree, struct pawl_err *err);
/* Fills in the hosts of the run that is in force; map->run is 0 if there is none. */
void agree_get_map(const struct agree *agree, struct peer_map *map);
bool agree_is_leader(const struct agree *agree); /* whether this is the host of rank 0 */

/* ---- rounds; n is the number of the round ---- */

/* Writes agree->out as this host's part of a round or, with is_result, as the round's result. While
 * the leader cannot be reached, waits for it. */
int agree_send(struct agree *agree, enum agree_round round, uint64_t n, bool is_result,
	struct pawl_err *err);
/* Leader: waits until all others have sent their part, or are past the round. */
int agree_gather(struct agree *agree, enum agree_round round, uint64_t n, struct pawl_err *err);
/* Reads the part of member m. PAWL_ENOENT: the member is past the round without a part. The caller
 * frees *bytes. */
int agree_read_part(struct agree *agree, enum agree_round round, uint64_t n, uint32_t m,
	void **bytes, size_t *len_bytes, struct pawl_err *err);
/* Other hosts: waits for the result of a round, and fills *status, whose pointers the caller has
 * set. If the result is a failure, returns its code. */
int agree_await_result(struct agree *agree, enum agree_round round, uint64_t n,
	struct agree_msg_status *status, struct pawl_err *err);
/* Leader: once round n is over, removes the messages of a round so old that no host reads them any
 * more. */
void agree_remove_old(struct agree *agree, enum agree_round round, uint64_t n);

/* ---- restoring ---- */

/* Finds the tag to offer; called at the leader. status->plan has what the hosts hold in memory, if
 * that is whole (found). Fills in *status found, step, tag and memory, or returns an error and
 * fills why. */
typedef int agree_find_fn(void *user, struct agree_msg_status *status);
/* A round in which all hosts get one offer. *status has what this host's ranks asked for (has_step,
 * asked_step), which must be the same on all hosts; what the host has in memory (held); and where a
 * plan may be put (plan, not NULL). On return it has the offer. PAWL_EPEER: as agree_enter. */
int agree_offer(struct agree *agree, struct agree_msg_status *status, agree_find_fn *find,
	void *user, struct pawl_err *err);
/* Puts the offered tag aside; called at the leader. */
typedef void agree_condemn_fn(void *user, const char *why);
/* A round of voting. status->verdict and why are those of this host's ranks; on return, of all
 * ranks. If all are to ask again, the leader calls condemn before it sends the verdict. PAWL_EPEER:
 * all are to ask again, since a host began anew. */
int agree_vote(struct agree *agree, struct agree_msg_status *status, agree_condemn_fn *condemn,
	void *user, struct pawl_err *err);

#endif
