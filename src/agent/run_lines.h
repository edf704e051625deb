/*
 * The lines of several ranks, woven into one text: each whole line with its rank in front. Pure.
 *
 * A line that is not finished may be shown as far as it is (run_lines_flush). It is then open: what
 * its own stream adds goes on behind it, anybody else first ends it with a newline.
 *
 * What stands behind a \r in a line, as progress bars have it, has the rank in front, too: a
 * terminal paints it over what stood there.
 */
#ifndef AGENT_RUN_LINES_H
#define AGENT_RUN_LINES_H

#include <stdbool.h>
#include <stddef.h>

#define RUN_LINE_MAX                                                                               \
	(64u << 10)        /* bytes shown as one line; longer ones are cut into such pieces        \
			    */
#define RUN_PREFIX_MAX 24u /* bytes of a prefix, terminator included */

struct run_lines;

/* Where the text goes. Caller's; zero-initialise, set put and user. */
struct run_text {
	void (*put)(void *user, const char *bytes, size_t len_bytes); /* takes them all */
	void *user;                                                   /* passed to put */
	const struct run_lines *open; /* whose unfinished line the text ends with, or NULL */
};

/* Where a terminal's cursor is in a line. */
enum run_at {
	RUN_AT_BEGIN, /* in front of where the prefix is to be */
	RUN_AT_BARE,  /* behind the prefix, with nothing seen behind it yet */
	RUN_AT_TEXT,  /* behind what is seen */
};

/* What a terminal has heard of an escape sequence. */
enum run_escape {
	RUN_ESCAPE_NONE,
	RUN_ESCAPE_BEGUN, /* ESC */
	RUN_ESCAPE_OPEN,  /* ESC [, and what it is to do */
};

/* One stream of a rank. Caller's; zero-initialise. */
struct run_lines {
	char prefix[RUN_PREFIX_MAX]; /* "[rank0] " */
	size_t held_bytes;           /* of the unfinished line, in held */
	size_t shown_bytes;          /* of that line, put already because it was flushed */
	enum run_at at;              /* these three: of the line that is open, as it was put */
	enum run_escape escape;      /* a sequence that is not at its end */
	bool has_prefix;             /* the prefix was put, and not erased */
	char held[RUN_LINE_MAX];     /* not yet put */
};

/* Takes bytes as they came; puts every line they finish. */
void run_lines_feed(struct run_lines *lines, struct run_text *text, const char *bytes,
	size_t len_bytes);
/* Puts what is held. */
void run_lines_flush(struct run_lines *lines, struct run_text *text);
/* At the end of the stream: puts what is held, and ends the line. */
void run_lines_end(struct run_lines *lines, struct run_text *text);

#endif
