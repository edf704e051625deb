/*
 * Rounds of replication, kept at rank 0's host: all hosts replicate the same save at a time, so
 * that there is always one of which every part is at its peers. The leader announces a save, every
 * host sends its part to its peers and reports it as done; once all are done the save is global.
 * Only then another one is announced.
 *
 * Rounds also carry which save all hosts make durable: the leader chooses it, the other hosts wait
 * for the choice, and may ask for a save (want). All functions may be called by any thread.
 */
#ifndef AGENT_PEER_ROUNDS_H
#define AGENT_PEER_ROUNDS_H

#include "agent/peer/peer_msg.h"

struct rounds;

#define ROUNDS_ROOTS_MAX 64u /* roots with a run in force, at most; others have no rounds */

int rounds_open(struct rounds **out, struct pawl_err *err);
void rounds_close(struct rounds *rounds); /* NULL is fine; nobody may wait */

/* Leader: a run begins (0: ends): what was announced before is over. */
void rounds_begin(struct rounds *rounds, uint64_t root, uint64_t run);
/* Leader: announces a save of the run in force, of which part is the leader's own: its step, tag
 * and world are those of the save. before: the newest global save of earlier runs, which is global
 * until one of this run is; run 0: none. What was announced before and is not global is given up.
 * Announcing a save again goes on with its round if that has failed: parts that are done stay so.
 * PAWL_EINVAL: another run is in force, or none. PAWL_ENOMEM. */
int rounds_announce(struct rounds *rounds, uint64_t root, const struct peer_part *part,
	const struct peer_save *before, struct pawl_err *err);
/* A host's part of a save is done, or failed (code, text), which ends the round. A part that is
 * done and has another step or tag than the save ends it with PAWL_EMISMATCH, also when the save is
 * announced again: hosts that count saves differently do not have this save in common. Reports on
 * another save than the one announced are ignored, and so are failures once the round is over. */
void rounds_done(struct rounds *rounds, uint64_t root, const struct peer_part *part, int code,
	const char *text);
/* Waits until there is another announced or global save than the caller knows, or for timeout_ns,
 * and updates both; run 0: there is none. PAWL_ECANCELED: rounds_cancel was called. */
int rounds_next(struct rounds *rounds, uint64_t root, struct peer_save *announced,
	struct peer_save *global, int64_t timeout_ns, struct pawl_err *err);
/* Leader: waits until the save is global (0), or failed (code of a host's report, its text), or is
 * given up (PAWL_ECANCELED), or for timeout_ns (PAWL_ETIMEDOUT, the ranks that are missing are
 * named). The result of the round that ended last is remembered. */
int rounds_await(struct rounds *rounds, uint64_t root, const struct peer_save *save,
	int64_t timeout_ns, struct pawl_err *err);
/* Leader: all hosts make this save of the run in force durable now. */
void rounds_choose(struct rounds *rounds, uint64_t root, const struct peer_save *save);
/* Waits until another save is chosen than the caller knows, or for timeout_ns, and updates it. It
 * may be an older one: what was chosen before has failed. PAWL_ECANCELED as above. */
int rounds_next_chosen(struct rounds *rounds, uint64_t root, struct peer_save *chosen,
	int64_t timeout_ns, struct pawl_err *err);
/* A host wants a save of the run in force to be made durable. */
void rounds_want(struct rounds *rounds, uint64_t root, const struct peer_save *save);
/* Leader: waits until a host wants a save, or for timeout_ns, and takes the oldest one that is
 * wanted; the others are forgotten, since their hosts ask again and again. run 0: none.
 * PAWL_ECANCELED as above. */
int rounds_take_wanted(struct rounds *rounds, uint64_t root, struct peer_save *wanted,
	int64_t timeout_ns, struct pawl_err *err);
/* Ends all waits of a root, now and until the next rounds_begin; root 0: of all roots. */
void rounds_cancel(struct rounds *rounds, uint64_t root);

#endif
