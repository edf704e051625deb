/* Files of rows: see rows.h. A failed append may have left some rows and a part of one; the size of
 * the file before and after tells which, so that none is written twice. */
#include "agent/persist/rows.h"

#include "agent/persist/alerts.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "ckpt/root.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIELD_MAX 128u        /* bytes that one rows_put prints */
#define ROW_MAX   (16u << 10) /* bytes of a row, more than any has */

_Static_assert(ROW_MAX <= ROWS_QUEUED_MAX && ROWS_QUEUED_MAX < ROWS_FILE_MAX, "a row fits");

void rows_put_text(struct wire_out *row, const char *text, bool last)
{
	bool quoted = strpbrk(text, ",\"") != NULL;

	if (quoted) {
		wire_put_u8(row, '"');
	}
	for (; *text != '\0'; text++) {
		if (*text == '"') {
			wire_put_u8(row, '"');
		}
		wire_put_u8(row, (uint8_t)*text < ' ' ? ' ' : (uint8_t)*text);
	}
	if (quoted) {
		wire_put_u8(row, '"');
	}
	wire_put_u8(row, last ? '\n' : ',');
}

void rows_put(struct wire_out *row, const char *fmt, ...)
{
	char text[FIELD_MAX];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	ASSERT(len >= 0 && (size_t)len < sizeof(text)); /* digits and the like, never long */
	wire_put_raw(row, text, (size_t)len);
}

const char *rows_time(char *buf, int64_t wall_ns, bool ms)
{
	time_t s = (time_t)(wall_ns / NS_PER_S);
	struct tm tm;
	size_t len;

	buf[0] = '\0';
	if (wall_ns <= 0 || !gmtime_r(&s, &tm)) {
		return buf;
	}
	len = strftime(buf, ROWS_TIME_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
	if (ms) {
		len += (size_t)snprintf(buf + len, ROWS_TIME_MAX - len, ".%03d",
			(int)(wall_ns % NS_PER_S / NS_PER_MS));
	}
	snprintf(buf + len, ROWS_TIME_MAX - len, "Z");
	return buf;
}

int64_t rows_time_ns(const char *text)
{
	struct tm tm = {0};
	int ms = 0;
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

	if (!end || (end[0] == '.' && sscanf(end, ".%3dZ", &ms) != 1)) {
		return 0;
	}
	return timegm(&tm) * NS_PER_S + ms * NS_PER_MS;
}

size_t rows_split(char *line, char **fields, size_t most)
{
	size_t n = 0;
	char *at = line;
	char *to;
	bool more = true;

	while (more) {
		bool quoted = *at == '"';

		at += quoted;
		to = at;
		if (n < most) {
			fields[n] = at;
		}
		n++;
		while (*at != '\0' && (quoted || *at != ',')) {
			if (quoted && at[0] == '"' && at[1] != '"') {
				quoted = false;
				at++;
				continue;
			}
			at += quoted && at[0] == '"';
			*to++ = *at++;
		}
		more = *at == ',';
		at += more;
		*to = '\0';
	}
	return n;
}

static bool reserve(struct wire_out *out, size_t cap_bytes)
{
	out->bytes = malloc(cap_bytes);
	out->cap_bytes = out->bytes ? cap_bytes : 0;
	return out->bytes != NULL;
}

int rows_init(struct rows *rows, const char *file, const char *header, struct pawl_err *err)
{
	ASSERT(strlen(file) > strlen(".csv") && header[strlen(header) - 1] == '\n');
	*rows = (struct rows){.file = file, .header = header};
	if (!reserve(&rows->queued, ROWS_QUEUED_MAX) || !reserve(&rows->row, ROW_MAX)) {
		rows_deinit(rows);
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for its rows", file);
	}
	return 0;
}

void rows_queue(struct rows *rows)
{
	const struct wire_out *row = &rows->row;

	ASSERT(rows->queued.len_bytes <= ROWS_QUEUED_MAX);
	if (row->failed || rows->queued.len_bytes + row->len_bytes > ROWS_QUEUED_MAX) {
		rows->lost++;
	} else {
		wire_put_raw(&rows->queued, row->bytes, row->len_bytes);
		ASSERT(!rows->queued.failed); /* rows_init has reserved the memory */
	}
	wire_out_reset(&rows->row);
}

void rows_take(struct rows *rows)
{
	if (rows->taken.len_bytes > ROWS_QUEUED_MAX) {
		return; /* The queued rows stay queued, up to ROWS_QUEUED_MAX bytes. */
	}
	wire_put_raw(&rows->taken, rows->queued.bytes, rows->queued.len_bytes);
	if (rows->taken.failed) {
		rows->taken.failed = false;
		return;
	}
	wire_out_reset(&rows->queued);
}

int rows_put_aside(const struct rows *rows, struct tags_root *root, const char *why,
	struct pawl_err *err)
{
	char aside[STORE_NAME_MAX];
	struct alert alert;
	int rv;

	alert_fill(&alert, ALERT_ONCE, NULL,
		"%s: %.256s: put aside as *.old.csv, a new file is begun", rows->file, why);
	snprintf(aside, sizeof(aside), "%.*s.old.csv", (int)(strlen(rows->file) - strlen(".csv")),
		rows->file);
	rv = tags_root_put_aside(root, rows->file, aside, err);
	if (rv == 0 && rows->alerts) {
		alerts_put(rows->alerts, ALERT_ONCE, NULL, "%s", alert.text);
	}
	return rv;
}

/* Makes sure that there is a file to append to. *size_bytes gets its size. */
static int begin_file(const struct rows *rows, struct tags_root *root, uint64_t *size_bytes,
	struct pawl_err *err)
{
	struct store *store = tags_root_store(root);
	enum store_kind kind;
	int rv = store_stat(store, rows->file, &kind, size_bytes, err);

	if (rv == 0 && (kind != STORE_FILE || *size_bytes > ROWS_FILE_MAX)) {
		rv = rows_put_aside(rows, root,
			kind != STORE_FILE ? "it is no regular file" : "it is too long", err);
		rv = rv == 0 ? PAWL_ENOENT : rv;
	}
	if (rv != PAWL_ENOENT) {
		return rv;
	}
	*size_bytes = strlen(rows->header);
	rv = tags_root_append(root, rows->file, rows->header, *size_bytes, false, err);
	if (rv != 0) {
		store_remove(store, rows->file, NULL); /* The file holds at most half a header. */
	}
	return rv;
}

/* Drops the taken rows that are in the file, which has their first len_bytes. A row that is there
 * only in part is kept. */
static void drop_written(struct rows *rows, size_t len_bytes)
{
	struct wire_out *out = &rows->taken;
	const uint8_t *end = len_bytes > 0 ? memrchr(out->bytes, '\n', len_bytes) : NULL;
	size_t whole = end ? (size_t)(end - out->bytes) + 1 : 0;

	rows->torn = rows->torn || whole < len_bytes;
	if (whole > 0) {
		memmove(out->bytes, out->bytes + whole, out->len_bytes - whole);
		out->len_bytes -= whole;
	}
}

int rows_write(struct rows *rows, struct tags_root *root, bool sync, struct pawl_err *err)
{
	struct wire_out *out = &rows->taken;
	uint64_t before;
	uint64_t after;
	int rv;

	if (out->len_bytes == 0) {
		return 0;
	}
	rv = begin_file(rows, root, &before, err);
	if (rv == 0 && rows->torn) {
		rv = tags_root_append(root, rows->file, "\n", 1, false, err);
		rows->torn = rv != 0;
		before += rv == 0;
	}
	if (rv != 0) {
		return rv;
	}
	rv = tags_root_append(root, rows->file, out->bytes, out->len_bytes, sync, err);
	if (rv == 0) {
		wire_out_reset(out);
	} else if (store_stat(tags_root_store(root), rows->file, NULL, &after, NULL) == 0 &&
		after > before) {
		drop_written(rows,
			after - before < out->len_bytes ? after - before : out->len_bytes);
	}
	return rv;
}

void rows_deinit(struct rows *rows)
{
	wire_out_deinit(&rows->queued);
	wire_out_deinit(&rows->row);
	wire_out_deinit(&rows->taken);
}
