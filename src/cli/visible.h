/*
 * Text of other people's on a terminal, which obeys what it is told: it would move the cursor over
 * what was printed before, set its title, or answer as if the user had typed.
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

#define VISIBLE_HELD 48u /* bytes of a colour that are read; longer is none */

/* Zero-initialise, set to. */
struct visible {
	FILE *to;
	unsigned char
		held[VISIBLE_HELD]; /* a character, or a colour, that has not come whole yet */
	size_t held_bytes;
	bool coloured; /* since it was begun */
};

/* Whether it could be printed; errno says why not. */
bool visible_put(struct visible *visible, const char *bytes, size_t len_bytes);
/* What is held, and the terminal's own colours. */
bool visible_end(struct visible *visible);

#endif
