/* Texts that somebody else has chosen, made safe to show: see text.h. */
#include "base/text.h"

#include "base/assert.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ESCAPE_MAX 8u /* bytes of "\u202e", terminator included */

/* Characters beyond ASCII that affect the display: C1 controls; marks, embeddings, overrides and
 * isolates of direction; ends of lines and paragraphs. */
static const struct {
	uint32_t first, last;
} unsafe_ranges[] = {
	{0x80, 0x9f},
	{0x61c, 0x61c},
	{0x200e, 0x200f},
	{0x2028, 0x202e},
	{0x2066, 0x2069},
};

/* Decodes the character at at, and its length in bytes; length 0: no valid character. */
static uint32_t decode(const unsigned char *at, size_t *len_bytes)
{
	static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
	size_t more = *at < 0x80 ? 0 : *at < 0xc2 ? 4 : *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : 3;
	uint32_t code = more == 0 ? *at : *at & (0x3fu >> more);

	*len_bytes = 0;
	if (more == 4 || *at > 0xf4) {
		return 0;
	}
	for (size_t i = 1; i <= more; i++) {
		if ((at[i] & 0xc0) != 0x80) { /* also true for the terminator */
			return 0;
		}
		code = code << 6 | (at[i] & 0x3f);
	}
	if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
		return 0;
	}
	*len_bytes = more + 1;
	return code;
}

static bool is_unsafe(uint32_t code)
{
	if (code < 0x20 || code == 0x7f) {
		return true;
	}
	for (size_t i = 0; i < sizeof(unsafe_ranges) / sizeof(*unsafe_ranges); i++) {
		if (code >= unsafe_ranges[i].first && code <= unsafe_ranges[i].last) {
			return true;
		}
	}
	return false;
}

size_t text_printable(const char *at)
{
	size_t len;
	uint32_t code = decode((const unsigned char *)at, &len);

	return len > 0 && !is_unsafe(code) ? len : 0;
}

/* Writes the escape of a character that is not printable. Returns the number of bytes of the text
 * that it stands for. */
static size_t escape(const char *at, char shown[ESCAPE_MAX])
{
	size_t len;
	uint32_t code = decode((const unsigned char *)at, &len);

	if (*at == '\n') {
		snprintf(shown, ESCAPE_MAX, "\\n");
	} else if (len < 2) {
		snprintf(shown, ESCAPE_MAX, "\\x%02x", (unsigned)(unsigned char)*at);
	} else {
		snprintf(shown, ESCAPE_MAX, "\\u%04x", (unsigned)(code & 0xffff));
	}
	return len > 0 ? len : 1;
}

const char *text_size(char *buf, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(buf, TEXT_SIZE_MAX, "%u B", (unsigned)bytes);
		return buf;
	}
	while (value >= 1023.95) { /* 1023.95 and more would be shown as 1024.0 */
		value /= 1024;
		unit++;
	}
	ASSERT(unit < sizeof(units) / sizeof(*units)); /* 2^64 bytes are 16 EiB */
	snprintf(buf, TEXT_SIZE_MAX, "%.1f %s", value, units[unit]);
	return buf;
}

size_t text_escape(char *out, size_t cap_bytes, const char *text)
{
	size_t all = 0;
	size_t used = 0;

	while (*text != '\0') {
		char shown[ESCAPE_MAX];
		size_t plain = text_printable(text);
		size_t taken = plain > 0 ? plain : escape(text, shown);
		size_t len = plain > 0 ? plain : strlen(shown);

		if (used == all && used + len < cap_bytes) {
			memcpy(out + used, plain > 0 ? text : shown, len);
			used += len;
		}
		all += len;
		text += taken;
	}
	ASSERT(used <= all && (used == 0 || used < cap_bytes));
	if (cap_bytes > 0) {
		out[used] = '\0';
	}
	return all;
}
