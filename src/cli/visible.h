/*
 * Text of other people on a terminal, which would obey control characters in it: the text could
 * move the cursor over what was printed before, set the title, or answer as if the user had typed.
 *
 * Let through are characters that can be shown as they are (base/text.h), line ends, tabs, carriage
 * returns (a progress bar's) and colours (ESC [ … m), which are off again at the end. All else is
 * shown: "\x1b".
 */
#ifndef CLI_VISIBLE_H
#define CLI_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define VISIBLE_PENDING_MAX 48u /* bytes of a colour that are read; a longer one is none */

/* Zero-initialise; the caller sets to. */
struct visible {
	FILE *to;
	unsigned char pending
		[VISIBLE_PENDING_MAX]; /* a character, or a colour, that is not complete yet */
	size_t pending_bytes;
	bool coloured; /* a colour was let through, and is to be switched off */
};

/* Prints bytes. False: they could not be printed; errno says why. */
bool visible_put(struct visible *visible, const char *bytes, size_t len_bytes);
/* Prints what is held, and restores the terminal's own colours. */
bool visible_end(struct visible *visible);

#endif
