/*
 * Makes texts from outside, such as names, paths and reasons, safe to show on a terminal, in a log
 * or on a page. Characters that control a terminal, or change the direction of text, become
 * escapes. Also formats sizes. Pure.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_SIZE_MAX 16u /* bytes of a size as text, terminator included */

/* Formats a size such as "248.0 KiB" into buf, which has TEXT_SIZE_MAX bytes. Returns buf. */
const char *text_size(char *buf, uint64_t bytes);

/* Returns the length in bytes of the character at at (UTF-8, RFC 3629) if it can be shown as it is;
 * 0: it is a control character, one that changes direction or ends a line, or no valid
 * character. */
size_t text_printable(const char *at);

/*
 * Writes text in a form that can be shown: "\n" for a line's end, "\x1b" for other control
 * characters and for bytes that are not UTF-8, "\u202e" for a character beyond ASCII that affects
 * the display. Like snprintf: cut (between characters) to cap_bytes with the terminator, and
 * returns how many bytes the whole needs, terminator excluded. out may be NULL if cap_bytes is 0.
 */
size_t text_escape(char *out, size_t cap_bytes, const char *text);

#endif
