/*
 * A file of comma-separated rows (RFC 4180) in a root, that is only ever appended to: noting a row
 * never waits for a disk, writing what was noted is the storage thread's.
 *
 * A line without its end is one that was torn by a crash or a full disk: it counts as nothing, and
 * the next row begins on a line of its own. A file whose first line is not ours, or that is over
 * ROWS_FILE_MAX, is put aside as <name>.old.csv, replacing an earlier one, and begun anew.
 */
#ifndef AGENT_ROWS_H
#define AGENT_ROWS_H

#include "base/wire.h"

struct news;
struct pawl_err;
struct store;

#define ROWS_FILE_MAX (64u << 20) /* bytes of a file: some 300,000 rows */
#define ROWS_NOTED_MAX                                                                             \
	(256u << 10)      /* bytes that wait to be written; rows beyond are lost, and              \
			     counted */
#define ROWS_TIME_MAX 32u /* bytes of a time, terminator included */

struct rows {
	const char *file;      /* static; ends in ".csv" */
	const char *header;    /* static; with its end of line */
	struct wire_out noted; /* rows nobody has taken; its user's lock guards it */
	struct wire_out row;   /* for building one in; lock */
	struct wire_out taken; /* rows that are being written; the writer's */
	uint64_t lost;         /* rows that found no room; lock */
	bool torn;             /* the file ends in half a row; the writer's */
	struct news *news; /* its user's: hears of a file that was put aside; NULL: nobody does */
};

/* ---- building rows: pure ---- */

/* A field, quoted where it must be, and the comma (last: the end of the line) behind it. Control
 * characters become spaces. */
void rows_put_text(struct wire_out *row, const char *text, bool last);
/* Digits and such: nothing to quote. */
__attribute__((format(printf, 2, 3))) void rows_put(struct wire_out *row, const char *fmt, ...);
/* "2026-11-20T12:34:56Z", with milliseconds if asked to; "" for 0. Returns buf, of ROWS_TIME_MAX
 * bytes. */
const char *rows_time(char *buf, int64_t wall_ns, bool ms);
/* What rows_time wrote; 0 if it is none. */
int64_t rows_time_ns(const char *text);
/* Takes a line apart in place; at most most fields. Returns how many there are, also if there are
 * more. */
size_t rows_split(char *line, char **fields, size_t most);

/* ---- writing ---- */

/* Allocates what noting needs: none of that waits for memory. file and header stay the caller's. */
int rows_init(struct rows *rows, const char *file, const char *header, struct pawl_err *err);
/* With its user's lock: notes the row that was built; moves what was noted to where rows_write
 * finds it. */
void rows_note(struct rows *rows);
void rows_take(struct rows *rows);
/* Appends what was taken, one write; sync: durable on return. The file is begun if need be. On
 * error, what did not get into the file stays taken. */
int rows_write(struct rows *rows, struct store *store, bool sync, struct pawl_err *err);
/* Puts the file aside, durably, and says so with the reason, which may lie in err. */
int rows_put_aside(const struct rows *rows, struct store *store, const char *why,
	struct pawl_err *err);
void rows_deinit(struct rows *rows);

#endif
