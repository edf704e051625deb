/*
 * checkpointHistories.csv in the root: a row for each save, once its fate is known. For people and
 * tools, and for the next agent, which adds the rows that are missing.
 *
 * The first save that becomes durable begins the file; rows queued before are written with it, so
 * that a root without a checkpoint has no such file either.
 *
 * The history of a cluster's jobs is another one: daemon/history/history.h.
 */
#ifndef AGENT_PERSIST_HISTORY_H
#define AGENT_PERSIST_HISTORY_H

#include "agent/persist/rows.h"
#include "ckpt/format/manifest.h"

#define HISTORY_FILE "checkpointHistories.csv"
#define HISTORY_HEADER                                                                             \
	"time,job,attempt,step,tag,level,files,bytes,stall_ms,stage_ms,persist_ms,mib_per_s,"      \
	"begun,ranks,partitions,why\n"
#define HISTORY_TEXT_MAX 256u /* bytes of partitions and of why, terminator included */

enum history_level {
	HISTORY_FAILED,    /* never whole in memory */
	HISTORY_COMMITTED, /* whole in memory, but never durable */
	HISTORY_DURABLE,
};

/* What is known of a save. A time or size of 0 is "not known": its field stays empty. */
struct history_row {
	enum history_level level; /* highest level that the save reached */
	uint64_t step;            /* training step */
	char tag[CKPT_TAG_MAX];   /* name of the checkpoint */
	uint32_t attempt;         /* attempt number of the job */
	uint32_t ranks;           /* number of ranks that save */
	int64_t begun_ns;         /* wall-clock time when the first rank began */
	uint64_t stall_ns;        /* duration of save() in the slowest rank */
	uint64_t stage_ns;        /* time until all was copied, in the slowest rank */
	uint64_t persist_ns;      /* from the storage thread's beginning until durable */
	uint32_t files;           /* number of files of the tag */
	uint64_t size_bytes;      /* total size of the files */
	/* Partition names of rank 0, joined by spaces; a list that was cut ends in "…". */
	char partitions[HISTORY_TEXT_MAX];
	char why[HISTORY_TEXT_MAX]; /* why it failed or is not durable; "": no reason */
};

/* Appends the row and its line end. at_ns: wall-clock time when the save's fate became known.
 * Pure. */
void history_put(struct wire_out *out, const struct history_row *row, const char *job,
	int64_t at_ns);
/* Appends a line of the older header's format, brought to this one. Returns false if line is none.
 * Changes line. Pure. */
bool history_upgrade(struct wire_out *out, char *line);

/*
 * Called at start by the one owner of the root. Brings the file to this header, or puts it aside;
 * appends rows for complete tags that have none (a crash came between publishing and the row), by
 * step, from their manifests. *latest_ns gets the latest time in the file, 0 if there is none.
 */
int history_recover(struct rows *rows, struct tags_root *root, int64_t *latest_ns,
	struct pawl_err *err);
/* Recovers the history in a root that has no agent, and writes the rows at once. The caller owns
 * the root. */
int history_mend(struct tags_root *root, struct pawl_err *err);

#endif
