/*
 * What the history was told last of each node that is there and each job that is not over. Zeroed:
 * nothing. One thread.
 */
#ifndef DAEMON_HISTORY_KNOWN_H
#define DAEMON_HISTORY_KNOWN_H

#include "daemon/history_row.h"

struct history_known {
	struct history_node **nodes; /* owned; by name */
	uint32_t nodes_n, nodes_max;
	struct history_job **jobs; /* owned; by ascending id */
	uint32_t jobs_n, jobs_max;
};

/* NULL: it is not known. Until the next change. */
const struct history_node *history_known_node(const struct history_known *known, const char *name);
const struct history_job *history_known_job(const struct history_known *known, uint64_t id);
/* In place of what was told before; one that is gone, or over, is forgotten. The job's spots are
 * taken. False: no memory. */
bool history_know_node(struct history_known *known, const struct history_node *node);
bool history_know_job(struct history_known *known, struct history_job *job);
void history_known_clear(struct history_known *known); /* nothing is known any more */
void history_known_deinit(struct history_known *known);

#endif
