/* Weaves streams into lines: see run_lines.h.
 */
#include "agent/run_lines.h"

#include <stdbool.h>
#include <string.h>

/* What stands between what the text ends with and more of this stream's line. */
static void put_lead(struct run_lines *lines, struct run_text *text)
{
	if (text->open == lines) {
		return;
	}
	if (text->open != NULL) {
		text->put(text->user, "\n", 1);
	}
	text->put(text->user, lines->prefix, strlen(lines->prefix));
	text->open = lines;
}

/* Puts what is held and then bytes; a newline behind them if ends. */
static void put_piece(struct run_lines *lines, struct run_text *text, const char *bytes,
	size_t len_bytes, bool ends)
{
	put_lead(lines, text);
	text->put(text->user, lines->held, lines->held_bytes);
	text->put(text->user, bytes, len_bytes);
	lines->shown_bytes += lines->held_bytes + len_bytes;
	lines->held_bytes = 0;
	if (ends) {
		text->put(text->user, "\n", 1);
		text->open = NULL;
		lines->shown_bytes = 0;
	}
}

void run_lines_feed(struct run_lines *lines, struct run_text *text, const char *bytes,
	size_t len_bytes)
{
	while (len_bytes > 0) {
		size_t room = RUN_LINE_MAX - lines->shown_bytes - lines->held_bytes;
		size_t look = len_bytes <= room ? len_bytes : room + 1;
		const char *end = memchr(bytes, '\n', look);

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
			memcpy(lines->held + lines->held_bytes, bytes, look);
			lines->held_bytes += look;
			return;
		}
	}
}

void run_lines_flush(struct run_lines *lines, struct run_text *text)
{
	if (lines->held_bytes > 0) {
		put_piece(lines, text, NULL, 0, false);
	}
}

void run_lines_end(struct run_lines *lines, struct run_text *text)
{
	run_lines_flush(lines, text);
	if (text->open == lines) {
		text->put(text->user, "\n", 1);
		text->open = NULL;
	}
	lines->shown_bytes = 0;
}
