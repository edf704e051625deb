/*
 * The lines of several ranks, woven into one text: each whole line with its rank in front. Pure.
 *
 * A line that is not finished may be shown as far as it is (run_lines_flush). It is then open: what
 * its own stream adds goes on behind it, anybody else first ends it with a newline.
 */
#ifndef AGENT_RUN_LINES_H
#define AGENT_RUN_LINES_H

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

/* One stream of a rank. Caller's; zero-initialise. */
struct run_lines {
	char prefix[RUN_PREFIX_MAX]; /* "[rank0] " */
	size_t held_bytes;           /* of the unfinished line, in held */
	size_t shown_bytes;          /* of that line, put already because it was flushed */
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
