/* See visible.h. A byte is printed at once, or is pending until the bytes after it show whether it
 * begins a character or a colour. */
#include "cli/visible.h"

#include "base/text.h"

#include <string.h>

#define ESCAPE        0x1b
#define CHARACTER_MAX 4u /* bytes of a character, at most */

enum verdict { MORE, GOOD, BAD };

/* ---- pending bytes ---- */

/* Judges whether the pending bytes are a colour: ESC [ … m, with digits between. */
static enum verdict judge_colour(const unsigned char *pending, size_t n)
{
	unsigned char last = pending[n - 1];

	if (n == 1) {
		return MORE;
	}
	if (n == 2) {
		return last == '[' ? MORE : BAD;
	}
	if (last == 'm') {
		return GOOD;
	}
	return ((last >= '0' && last <= '9') || last == ';' || last == ':') &&
			n < VISIBLE_PENDING_MAX
		? MORE
		: BAD;
}

/* Returns the bytes of a character that begins with first; 0: no character does. */
static size_t character_bytes(unsigned char first)
{
	return first >= 0xc2 && first < 0xe0    ? 2
		: first >= 0xe0 && first < 0xf0 ? 3
		: first >= 0xf0 && first < 0xf5 ? 4
						: 0;
}

/* Judges whether the pending bytes are a character that can be shown as it is; all but the last
 * byte were judged before. */
static enum verdict judge_character(const unsigned char *pending, size_t n)
{
	size_t whole = character_bytes(pending[0]);
	char text[CHARACTER_MAX + 1] = "";

	if (n > 1 && (pending[n - 1] & 0xc0) != 0x80) {
		return BAD;
	}
	if (n < whole) {
		return MORE;
	}
	memcpy(text, pending, whole);
	return text_printable(text) == whole ? GOOD : BAD;
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

/* Shows the pending bytes escaped. */
static bool show_pending(struct visible *v)
{
	bool good = true;

	for (size_t i = 0; i < v->pending_bytes; i++) {
		good = show(v->to, v->pending[i]) && good;
	}
	v->pending_bytes = 0;
	return good;
}

static bool put_byte(struct visible *v, unsigned char c)
{
	enum verdict verdict;
	size_t n;

	if (v->pending_bytes == 0 && c != ESCAPE && character_bytes(c) == 0) {
		return show(v->to, c);
	}
	v->pending[v->pending_bytes++] = c;
	n = v->pending_bytes;
	verdict = v->pending[0] == ESCAPE ? judge_colour(v->pending, n)
					  : judge_character(v->pending, n);
	if (verdict == MORE) {
		return true;
	}
	if (verdict == GOOD) {
		v->coloured = v->coloured || v->pending[0] == ESCAPE;
		v->pending_bytes = 0;
		return fwrite(v->pending, 1, n, v->to) == n;
	}
	if (n == 1) {
		return show_pending(v);
	}
	v->pending_bytes--; /* the last byte may begin something itself */
	return show_pending(v) && put_byte(v, c);
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
	bool good = show_pending(v);

	if (v->coloured) {
		v->coloured = false;
		good = fwrite("\033[0m", 1, 4, v->to) == 4 && good;
	}
	return good;
}
