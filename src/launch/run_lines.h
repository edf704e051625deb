/*
 * Interleaves the lines of several ranks in one text, each whole line behind its rank. Pure.
 *
 * An unfinished line may be printed as far as it goes (run_lines_flush). The line is then open: its
 * own stream continues it; any other stream first ends it with a newline.
 *
 * Text behind a \r in a line, as progress bars print it, has the rank in front, too: a terminal
 * paints it over the text before.
 */
#ifndef LAUNCH_RUN_LINES_H
#define LAUNCH_RUN_LINES_H

#include <stdbool.h>
#include <stddef.h>

#define RUN_LINE_MAX                                                                               \
	(64u << 10) /* bytes shown as one line; longer lines are cut into pieces of that size */
#define RUN_PREFIX_MAX 24u /* bytes of a prefix, terminator included */

struct run_lines;

/* The interleaved text, and where it goes. Caller's; zero-initialise, set put and user. */
struct run_text {
	void (*put)(void *user, const char *bytes, size_t len_bytes); /* takes all bytes */
	void *user;                                                   /* passed to put */
	const struct run_lines *open; /* stream whose open line ends the text, or NULL */
};

/* Position of a terminal's cursor in a line. */
enum run_at {
	RUN_AT_BEGIN, /* in front of the prefix, which is to be put */
	RUN_AT_BARE,  /* behind the prefix, with nothing visible behind it yet */
	RUN_AT_TEXT,  /* behind visible text */
};

/* How far a terminal is in an escape sequence. */
enum run_escape {
	RUN_ESCAPE_NONE,
	RUN_ESCAPE_BEGUN, /* ESC */
	RUN_ESCAPE_OPEN,  /* ESC [ and parameters */
};

/* One stream of a rank. Caller's; zero-initialise. */
struct run_lines {
	char prefix[RUN_PREFIX_MAX]; /* "[rank0] " */
	size_t pending_bytes;        /* bytes of the unfinished line that are in pending */
	size_t shown_bytes;          /* bytes of the unfinished line that a flush has put */
	enum run_at at;              /* cursor in the open line, as it was put */
	enum run_escape escape;      /* escape sequence in progress */
	bool has_prefix;             /* the prefix was put, and not erased */
	char pending[RUN_LINE_MAX];  /* bytes not yet put */
};

/* Takes bytes as they came, and puts every line that they finish. */
void run_lines_feed(struct run_lines *lines, struct run_text *text, const char *bytes,
	size_t len_bytes);
/* Puts the pending bytes. */
void run_lines_flush(struct run_lines *lines, struct run_text *text);
/* Ends the stream: puts the pending bytes, and ends the line. */
void run_lines_end(struct run_lines *lines, struct run_text *text);

#endif
