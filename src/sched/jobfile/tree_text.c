/* Characters and plain scalars of YAML: see tree.h. */
#include "sched/jobfile/tree.h"

#include <string.h>

/* ---- characters ---- */

/* Decodes the character at `at`. Returns its bytes and sets its number; 0: it is invalid. */
static size_t decode_character(const uint8_t *at, size_t left_bytes, uint32_t *number)
{
	/* By length: a longer form of a lower number is not valid. */
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = at[0] < 0x80 ? 1
		: at[0] < 0xc2  ? 0
		: at[0] < 0xe0  ? 2
		: at[0] < 0xf0  ? 3
		: at[0] < 0xf5  ? 4
				: 0;

	if (n == 0 || n > left_bytes) {
		return 0;
	}
	*number = n == 1 ? at[0] : at[0] & (0xffu >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((at[i] & 0xc0) != 0x80) {
			return 0;
		}
		*number = *number << 6 | (at[i] & 0x3fu);
	}
	return *number >= least[n] && *number <= 0x10ffff && (*number < 0xd800 || *number > 0xdfff)
		? n
		: 0;
}

static bool is_allowed(uint32_t number, size_t off)
{
	return number == '\t' || number == '\n' || number == '\r' || number == 0x85 ||
		(number >= 0x20 && number <= 0x7e) || (number == 0xfeff && off == 0) ||
		(number >= 0xa0 && number != 0xfeff && number != 0xfffe && number != 0xffff);
}

bool tree_text_check(const uint8_t *bytes, size_t len_bytes, struct remarks *remarks)
{
	uint32_t line = 1;
	uint32_t column = 1;
	uint32_t number;
	size_t n;

	for (size_t off = 0; off < len_bytes; off += n) {
		n = decode_character(bytes + off, len_bytes - off, &number);
		if (n == 0) {
			remarks_add(remarks, line, column,
				"byte 0x%02x is not UTF-8: a job file is text in UTF-8",
				bytes[off]);
			return false;
		}
		if (!is_allowed(number, off)) {
			remarks_add(remarks, line, column,
				"the character U+%04X is not allowed in YAML: is this a job file?",
				number);
			return false;
		}
		column++;
		if (number == '\n' ||
			(number == '\r' && (off + 1 == len_bytes || bytes[off + 1] != '\n'))) {
			line++;
			column = 1;
		}
	}
	return true;
}

/* ---- plain scalars ---- */

static bool is_one_of(const char *text, const char *const *words)
{
	while (*words && strcmp(*words, text) != 0) {
		words++;
	}
	return *words != NULL;
}

/* Returns the end of the leading characters that are in set. */
static const char *skip(const char *at, const char *set)
{
	return at + strspn(at, set);
}

/* Whether text is a whole number: 12, 1_000, 0x1f, 0b11, 017, 1:30. */
static bool is_whole(const char *at)
{
	const char *digits = skip(at, "0123456789_");

	if (at[0] == '0' && (at[1] == 'x' || at[1] == 'b')) {
		const char *set = at[1] == 'x' ? "0123456789abcdefABCDEF_" : "01_";

		return at[2] != '\0' && *skip(at + 2, set) == '\0';
	}
	if (at[0] < '0' || at[0] > '9') {
		return false;
	}
	while (digits[0] == ':' && strspn(digits + 1, "0123456789") - 1 < 2) { /* one or two */
		digits = skip(digits + 1, "0123456789");
	}
	return digits[0] == '\0';
}

/* Whether text is a fraction: 1.5, .5, 1., 1.5e+3, 1:30.5. */
static bool is_fraction(const char *at)
{
	const char *point = skip(at, "0123456789_:");
	const char *end;

	if (*point != '.' || (point > at && (at[0] < '0' || at[0] > '9')) ||
		(point == at && (at[1] < '0' || at[1] > '9'))) {
		return false;
	}
	end = skip(point + 1, "0123456789_");
	if ((*end == 'e' || *end == 'E') && (end[1] == '+' || end[1] == '-') && end[2] != '\0') {
		end = skip(end + 2, "0123456789");
	}
	return *end == '\0';
}

enum tree_kind tree_text_kind(const char *text, size_t len_bytes)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
	static const char *const bools[] = {"yes", "Yes", "YES", "no", "No", "NO", "true", "True",
		"TRUE", "false", "False", "FALSE", "on", "On", "ON", "off", "Off", "OFF", NULL};
	static const char *const odd[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN", NULL};
	const char *number = text[0] == '-' || text[0] == '+' ? text + 1 : text;

	if (strlen(text) != len_bytes) {
		return TREE_TEXT;
	}
	return is_one_of(text, nulls)                                               ? TREE_NULL
		: is_one_of(text, bools)                                            ? TREE_BOOL
		: is_whole(number) || is_fraction(number) || is_one_of(number, odd) ? TREE_NUMBER
										    : TREE_TEXT;
}
