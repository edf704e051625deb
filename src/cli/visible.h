/*
 * Prints foreign text on a terminal. Control characters in the text could overwrite earlier output,
 * set the title, or send input as if the user had typed it.
 *
 * Characters that can be shown as they are (base/text.h), line ends, tabs, carriage returns (of
 * progress bars) and colours (ESC [ … m) pass; colours are switched off at the end. All other bytes
 * are escaped: "\x1b".
 */
#ifndef CLI_VISIBLE_H
#define CLI_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define VISIBLE_PENDING_MAX 48u /* bytes of a colour, at most; a longer one is escaped */

/* Zero-initialise; the caller sets to. */
struct visible {
	FILE *to;
	/* first bytes of a character or colour that is not complete yet */
	unsigned char pending[VISIBLE_PENDING_MAX];
	size_t pending_bytes;
	bool coloured; /* a colour was printed: visible_end switches it off */
};

/* Prints bytes. False: they could not be printed; errno is set. */
bool visible_put(struct visible *visible, const char *bytes, size_t len_bytes);
/* Prints pending bytes, and restores the terminal's own colours. */
bool visible_end(struct visible *visible);

#endif
