/*
 * The latest row of the history for each node that is not gone, and each job that is not over.
 * Zeroed: none. One thread.
 */
#ifndef DAEMON_HISTORY_HISTORY_LATEST_H
#define DAEMON_HISTORY_HISTORY_LATEST_H

#include "daemon/history/history_row.h"

struct history_latest {
	struct history_node **nodes; /* owned; by name */
	uint32_t nodes_n, nodes_max;
	struct history_job **jobs; /* owned; by ascending id */
	uint32_t jobs_n, jobs_max;
};

/* Returns the latest row; NULL: there is none. Valid until the next change. */
const struct history_node *history_latest_node(const struct history_latest *known,
	const char *name);
const struct history_job *history_latest_job(const struct history_latest *known, uint64_t id);
/* Replaces the latest row; that of a node that is gone, or of a job that is over, is dropped. Takes
 * ownership of the job's entries. False: no memory. */
bool history_latest_put_node(struct history_latest *known, const struct history_node *node);
bool history_latest_put_job(struct history_latest *known, struct history_job *job);
void history_latest_clear(struct history_latest *known); /* forgets all rows */
void history_latest_deinit(struct history_latest *known);

#endif
