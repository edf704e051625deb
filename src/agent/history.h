/* checkpointHistories.csv in the root: a row for each time a checkpoint became durable, for people
 * and tools. Nothing of ours reads it but to see what is missing. */
#ifndef AGENT_HISTORY_H
#define AGENT_HISTORY_H

#include <stdint.h>

struct pawl_err;
struct store;

/* How long it took. */
struct history_times {
	uint64_t stall_ns;   /* save() of the slowest rank */
	uint64_t stage_ns;   /* until all was copied, likewise */
	uint64_t persist_ns; /* until it was durable; over 0 */
};

/* What was saved. */
struct history_save {
	int64_t at_s;        /* when it became durable, since 1970 */
	const char *job;     /* who saved */
	uint32_t attempt;    /* of the job */
	uint64_t step;       /* of training */
	uint32_t files;      /* of the tag */
	uint64_t size_bytes; /* of them */
};

/* times NULL: not known, the fields stay empty. */
int history_append(struct store *store, const struct history_save *save,
	const struct history_times *times, struct pawl_err *err);
/* At start, by the one owner of the root: appends rows for complete tags that have none (a crash
 * came between publishing and the row), by step, from their manifests. PAWL_ELIMIT: the file is
 * over HISTORY_MAX_BYTES, and left alone. */
int history_recover(struct store *store, struct pawl_err *err);

#define HISTORY_MAX_BYTES (64u << 20) /* of the file, to be read at start: half a million rows */

#endif
