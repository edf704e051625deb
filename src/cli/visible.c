/* See visible.h. A byte is either through at once, or begins something that is held until it is
 * known what it is. */
#include "cli/visible.h"

#include <stdint.h>
#include <string.h>

#define ESCAPE 0x1b

enum verdict { MORE, GOOD, BAD };

/* ---- what is held ---- */

/* Whether it is ESC [ … m, digits between. */
static enum verdict judge_colour(const unsigned char *held, size_t n)
{
	unsigned char last = held[n - 1];

	if (n == 1) {
		return MORE;
	}
	if (n == 2) {
		return last == '[' ? MORE : BAD;
	}
	if (last == 'm') {
		return GOOD;
	}
	return ((last >= '0' && last <= '9') || last == ';' || last == ':') && n < VISIBLE_HELD
		? MORE
		: BAD;
}

/* Bytes of the character that begins so; 0: none does. */
static size_t character_bytes(unsigned char first)
{
	return first >= 0xc2 && first < 0xe0    ? 2
		: first >= 0xe0 && first < 0xf0 ? 3
		: first >= 0xf0 && first < 0xf5 ? 4
						: 0;
}

/* Whether it is a character of UTF-8, in its shortest form, and none of U+0080 to U+009F, which are
 * orders as well. */
static enum verdict judge_character(const unsigned char *held, size_t n)
{
	static const uint32_t least[] = {0, 0, 0xa0, 0x800, 0x10000};
	size_t whole = character_bytes(held[0]);
	uint32_t code = held[0] & (0x7fu >> whole);

	for (size_t i = 1; i < n; i++) {
		if ((held[i] & 0xc0) != 0x80) {
			return BAD;
		}
		code = code << 6 | (held[i] & 0x3fu);
	}
	if (n < whole) {
		return MORE;
	}
	return code >= least[whole] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? GOOD
											    : BAD;
}

/* ---- printing ---- */

static bool is_plain(unsigned char c)
{
	return (c >= ' ' && c < 0x7f) || c == '\n' || c == '\t' || c == '\r';
}

static bool show(FILE *to, unsigned char c)
{
	char text[8] = {(char)c};

	if (!is_plain(c)) {
		snprintf(text, sizeof(text), "\\x%02x", c);
	}
	return fwrite(text, 1, strlen(text), to) == strlen(text);
}

/* What is held is nothing that is let through. */
static bool show_held(struct visible *v)
{
	bool good = true;

	for (size_t i = 0; i < v->held_bytes; i++) {
		good = show(v->to, v->held[i]) && good;
	}
	v->held_bytes = 0;
	return good;
}

static bool put_byte(struct visible *v, unsigned char c)
{
	enum verdict verdict;
	size_t n;

	if (v->held_bytes == 0 && c != ESCAPE && character_bytes(c) == 0) {
		return show(v->to, c);
	}
	v->held[v->held_bytes++] = c;
	n = v->held_bytes;
	verdict = v->held[0] == ESCAPE ? judge_colour(v->held, n) : judge_character(v->held, n);
	if (verdict == MORE) {
		return true;
	}
	if (verdict == GOOD) {
		v->coloured = v->coloured || v->held[0] == ESCAPE;
		v->held_bytes = 0;
		return fwrite(v->held, 1, n, v->to) == n;
	}
	if (n == 1) {
		return show_held(v);
	}
	v->held_bytes--; /* the last one may begin something itself */
	return show_held(v) && put_byte(v, c);
}

bool visible_put(struct visible *v, const char *bytes, size_t len_bytes)
{
	bool good = true;

	for (size_t i = 0; i < len_bytes && good; i++) {
		good = put_byte(v, (unsigned char)bytes[i]);
	}
	return good;
}

bool visible_end(struct visible *v)
{
	bool good = show_held(v);

	if (v->coloured) {
		v->coloured = false;
		good = fwrite("\033[0m", 1, 4, v->to) == 4 && good;
	}
	return good;
}
