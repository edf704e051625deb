/*
 * Has all hosts of a job make the same save durable: rank 0's host, the leader, chooses one of its
 * committed saves, and the others follow (rounds.h). A thread for each root, beside the one that
 * sends replicas, since a part may take long to send.
 *
 * At the leader the thread waits for saves that other hosts want; elsewhere it asks the leader for
 * its choice, and passes on what this host wants. Functions are for the loop's thread; none waits.
 */
#ifndef AGENT_PEER_CHOOSER_H
#define AGENT_PEER_CHOOSER_H

#include "agent/peer/peer_msg.h"

struct chooser;
struct loop;
struct peers;

/* Starts the thread. It calls loop_wake(loop) when chooser_take has news. */
int chooser_start(struct chooser **out, struct peers *peers, struct loop *loop, uint64_t root,
	bool leads, struct pawl_err *err);
/* Ends the thread; the loop may be closed. NULL is fine. */
void chooser_stop(struct chooser *chooser);
/* The run that is in force; 0: none. The leader begins its rounds: what was announced, chosen and
 * wanted before is forgotten. */
void chooser_set_run(struct chooser *chooser, uint64_t run);
/* Leader: all hosts make this save durable now. */
void chooser_choose(struct chooser *chooser, const struct peer_save *save);
/* Other hosts: asks the leader, again and again, to make this save durable. run 0: asks no more. */
void chooser_want(struct chooser *chooser, const struct peer_save *save);
/* Takes the news; returns whether there were any. Leader: a save that another host wants, and will
 * ask for again. Other hosts: the save that the leader has chosen. */
bool chooser_take(struct chooser *chooser, struct peer_save *save);

#endif
