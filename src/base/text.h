/*
 * Texts that somebody else has chosen, such as names, paths and reasons, made fit for a terminal, a
 * log or a page: what would steer a terminal, or turn the direction of what is read, is shown as an
 * escape. And what people read of numbers. Pure.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_SIZE_MAX 16u /* bytes of a size as text, terminator included */

/* "248.0 KiB", in buf of TEXT_SIZE_MAX bytes. Returns buf. */
const char *text_size(char *buf, uint64_t bytes);

/* Bytes of the character that begins there (UTF-8, RFC 3629) if it can be shown as it is; 0: it is
 * a control character, one that turns direction or ends a line, or no character. */
size_t text_plain(const char *at);

/*
 * Writes text as it can be shown: "\n" for a line's end, "\x1b" for other control characters and
 * for bytes that are no UTF-8, "\u202e" for a character beyond ASCII that steers. Like snprintf:
 * cut (between characters) to cap_bytes with the terminator, and returns the bytes that all of it
 * needs, without one. out may be NULL if cap_bytes is 0.
 */
size_t text_show(char *out, size_t cap_bytes, const char *text);

#endif
