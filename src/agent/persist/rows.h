/*
 * A file of comma-separated rows (RFC 4180) in a root; rows are only appended. Queueing a row never
 * waits for a disk; the storage thread writes the queued rows.
 *
 * A line without an end was torn by a crash or a full disk: it is ignored, and the next row begins
 * on a line of its own. A file whose first line is not the header, or that is over ROWS_FILE_MAX,
 * is put aside as <name>.old.csv, replacing an earlier one, and begun anew.
 */
#ifndef AGENT_PERSIST_ROWS_H
#define AGENT_PERSIST_ROWS_H

#include "base/wire.h"

struct alerts;
struct pawl_err;
struct tags_root;

#define ROWS_FILE_MAX (64u << 20) /* bytes of a file: some 300,000 rows */
#define ROWS_QUEUED_MAX                                                                            \
	(256u << 10)      /* bytes that wait to be written; rows beyond are lost, and              \
			     counted */
#define ROWS_TIME_MAX 32u /* bytes of a time, terminator included */

struct rows {
	const char *file;       /* static; ends in ".csv" */
	const char *header;     /* static; includes the end of line */
	struct wire_out queued; /* rows not yet taken; guarded by the user's lock */
	struct wire_out row;    /* the row being built; guarded by the user's lock */
	struct wire_out taken;  /* rows being written; the writer's alone */
	uint64_t lost;          /* rows that did not fit; guarded by the user's lock */
	bool torn;              /* the file ends in half a row; the writer's alone */
	struct alerts *alerts;  /* the user's; gets an alert when a file is put aside; NULL: none */
};

/* ---- building rows: pure ---- */

/* Appends a field, quoted where it must be, and the comma behind it (last: the end of the line).
 * Control characters become spaces. */
void rows_put_text(struct wire_out *row, const char *text, bool last);
/* Appends text that needs no quotes, such as digits. */
__attribute__((format(printf, 2, 3))) void rows_put(struct wire_out *row, const char *fmt, ...);
/* Formats a time as "2026-11-20T12:34:56Z", with milliseconds if ms; "" for 0. Returns buf, of
 * ROWS_TIME_MAX bytes. */
const char *rows_time(char *buf, int64_t wall_ns, bool ms);
/* Parses what rows_time wrote; returns 0 for any other text. */
int64_t rows_time_ns(const char *text);
/* Splits a line in place into at most most fields. Returns how many fields the line has, which may
 * be more. */
size_t rows_split(char *line, char **fields, size_t most);

/* ---- writing ---- */

/* Allocates all that queueing needs, so that it never waits for memory. file and header stay the
 * caller's. */
int rows_init(struct rows *rows, const char *file, const char *header, struct pawl_err *err);
/* Both are called with the user's lock held: rows_queue queues the row that was built; rows_take
 * moves the queued rows to where rows_write finds them. */
void rows_queue(struct rows *rows);
void rows_take(struct rows *rows);
/* Appends the taken rows in one write, durable on return if sync. Begins the file if need be. On
 * error, the rows that did not get into the file stay taken. */
int rows_write(struct rows *rows, struct tags_root *root, bool sync, struct pawl_err *err);
/* Puts the file aside, durably, and reports that with the reason why, which may lie in err. */
int rows_put_aside(const struct rows *rows, struct tags_root *root, const char *why,
	struct pawl_err *err);
void rows_deinit(struct rows *rows);

#endif
