/* Interleaves streams by lines: see run_lines.h. */
#include "launch/run_lines.h"

#include "base/assert.h"

#include <stdbool.h>
#include <string.h>

#define ESCAPE '\x1b'

/* Opens a line of this stream, unless one is open; ends another stream's open line first. */
static void open_line(struct run_lines *lines, struct run_text *text)
{
	if (text->open == lines) {
		return;
	}
	if (text->open != NULL) {
		text->put(text->user, "\n", 1);
	}
	text->open = lines;
	lines->at = RUN_AT_BEGIN;
	lines->escape = RUN_ESCAPE_NONE;
	lines->has_prefix = false;
}

static void put_prefix(struct run_lines *lines, struct run_text *text)
{
	text->put(text->user, lines->prefix, strlen(lines->prefix));
	lines->has_prefix = true;
}

/* Takes one byte of an escape sequence. Returns whether the byte ended "erase the line", or the
 * screen. */
static bool step_escape(struct run_lines *lines, char byte)
{
	if (lines->escape == RUN_ESCAPE_BEGUN) {
		lines->escape = byte == '[' ? RUN_ESCAPE_OPEN : RUN_ESCAPE_NONE;
		return false;
	}
	if (byte >= '@' && byte <= '~') {
		lines->escape = RUN_ESCAPE_NONE;
	}
	return byte == 'K' || byte == 'J';
}

/* Puts bytes of the line, with the prefix in front of the first, and in front of the first after
 * each \r: a progress bar paints over all of its line. */
static void put_bytes(struct run_lines *lines, struct run_text *text, const char *bytes,
	size_t len_bytes)
{
	size_t done = 0;

	for (size_t i = 0; i < len_bytes; i++) {
		if (lines->escape != RUN_ESCAPE_NONE) {
			if (!step_escape(lines, bytes[i])) {
				continue;
			}
			lines->has_prefix = false;
			if (lines->at == RUN_AT_BARE) {
				text->put(text->user, bytes + done, i + 1 - done);
				text->put(text->user, "\r", 1);
				done = i + 1;
				lines->at = RUN_AT_BEGIN;
			}
			continue;
		}
		if (bytes[i] == '\r') {
			lines->at = RUN_AT_BEGIN;
			continue;
		}
		if (lines->at == RUN_AT_BEGIN) {
			text->put(text->user, bytes + done, i - done);
			put_prefix(lines, text);
			done = i;
			lines->at = RUN_AT_BARE;
		}
		if (bytes[i] == ESCAPE) {
			lines->escape = RUN_ESCAPE_BEGUN;
		} else {
			lines->at = RUN_AT_TEXT;
		}
	}
	text->put(text->user, bytes + done, len_bytes - done);
}

/* Puts the pending bytes, then bytes, then a newline if ends. */
static void put_piece(struct run_lines *lines, struct run_text *text, const char *bytes,
	size_t len_bytes, bool ends)
{
	open_line(lines, text);
	put_bytes(lines, text, lines->pending, lines->pending_bytes);
	put_bytes(lines, text, bytes, len_bytes);
	lines->shown_bytes += lines->pending_bytes + len_bytes;
	lines->pending_bytes = 0;
	if (ends) {
		if (!lines->has_prefix && lines->at != RUN_AT_TEXT) {
			put_prefix(lines, text);
		}
		text->put(text->user, "\n", 1);
		text->open = NULL;
		lines->shown_bytes = 0;
	}
}

void run_lines_feed(struct run_lines *lines, struct run_text *text, const char *bytes,
	size_t len_bytes)
{
	while (len_bytes > 0) {
		size_t room = RUN_LINE_MAX - lines->shown_bytes - lines->pending_bytes;
		size_t look = len_bytes <= room ? len_bytes : room + 1;
		const char *end = memchr(bytes, '\n', look);

		ASSERT(room <= RUN_LINE_MAX);
		if (end != NULL) {
			size_t len = (size_t)(end - bytes);

			put_piece(lines, text, bytes, len, true);
			bytes += len + 1;
			len_bytes -= len + 1;
		} else if (look > room) {
			put_piece(lines, text, bytes, room, true);
			bytes += room;
			len_bytes -= room;
		} else {
			memcpy(lines->pending + lines->pending_bytes, bytes, look);
			lines->pending_bytes += look;
			return;
		}
	}
}

void run_lines_flush(struct run_lines *lines, struct run_text *text)
{
	if (lines->pending_bytes > 0) {
		put_piece(lines, text, "", 0, false);
	}
}

void run_lines_end(struct run_lines *lines, struct run_text *text)
{
	if (lines->pending_bytes > 0 || text->open == lines) {
		put_piece(lines, text, "", 0, true);
	}
	lines->shown_bytes = 0;
}
