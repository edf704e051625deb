/*
 * checkpointHistories.csv in the root: a row for each save, once it is known what became of it. For
 * people and tools, and for the next agent, which sees what is missing.
 *
 * The file is begun by the first save that becomes durable: what was noted before goes in with it,
 * so that a root holds nothing of the kind while it holds no checkpoint.
 */
#ifndef AGENT_HISTORY_H
#define AGENT_HISTORY_H

#include "agent/rows.h"
#include "ckpt/manifest.h"

#define HISTORY_FILE "checkpointHistories.csv"
#define HISTORY_HEADER                                                                             \
	"time,job,attempt,step,tag,level,files,bytes,stall_ms,stage_ms,persist_ms,mib_per_s,"      \
	"begun,ranks,partitions,why\n"
#define HISTORY_TEXT_MAX 256u /* bytes of partitions and of why, terminator included */

enum history_level {
	HISTORY_FAILED,    /* it was not whole in memory, ever */
	HISTORY_COMMITTED, /* it was, and a later save took its place */
	HISTORY_DURABLE,
};

/* What is known of a save. Of times and sizes 0 is "not known": the field stays empty. */
struct history_row {
	enum history_level level;          /* that it reached */
	uint64_t step;                     /* of training */
	char tag[CKPT_TAG_MAX];            /* its name */
	uint32_t attempt;                  /* of the job */
	uint32_t ranks;                    /* that save */
	int64_t begun_ns;                  /* wall clock: the first rank began */
	uint64_t stall_ns;                 /* save() of the slowest rank */
	uint64_t stage_ns;                 /* until all was copied, likewise */
	uint64_t persist_ns;               /* from the storage thread's beginning to durable */
	uint32_t files;                    /* of the tag */
	uint64_t size_bytes;               /* of them */
	char partitions[HISTORY_TEXT_MAX]; /* rank 0's, joined by spaces; cut: "…" at the end */
	char why[HISTORY_TEXT_MAX];        /* it failed, or is not durable */
};

/* Appends the row, its end included. at_ns: wall clock, when it became known. Pure. */
void history_put(struct wire_out *out, const struct history_row *row, const char *job,
	int64_t at_ns);
/* A line of the header before this one, made one of this; false: it is none. Changes line. Pure. */
bool history_upgrade(struct wire_out *out, char *line);

/*
 * At start, by the one owner of the root. Brings the file to this header, or puts it aside; appends
 * rows for complete tags that have none (a crash came between publishing and the row), by step,
 * from their manifests. *latest_ns gets the latest time in the file, 0 if there is none.
 */
int history_recover(struct rows *rows, struct store *store, int64_t *latest_ns,
	struct pawl_err *err);
/* The same by whoever owns the root without an agent, written at once. */
int history_mend(struct store *store, struct pawl_err *err);

#endif
