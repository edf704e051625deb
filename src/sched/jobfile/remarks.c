/* Remarks on a file: see remarks.h. */
#include "sched/jobfile/remarks.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CUT "…" /* replaces what is left out */

_Static_assert(sizeof(CUT) < REMARK_SHOW_MAX && sizeof(CUT) < REMARK_TEXT_MAX, "it fits");

static bool is_inside_character(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

void remarks_add(struct remarks *remarks, uint32_t line, uint32_t column, const char *fmt, ...)
{
	struct remark *remark;
	va_list args;
	size_t len;
	int rv;

	if (remarks->n == REMARKS_MAX) {
		remarks->dropped++;
		return;
	}
	remark = &remarks->at[remarks->n++];
	remark->line = line;
	remark->column = column;
	va_start(args, fmt);
	rv = vsnprintf(remark->text, sizeof(remark->text), fmt, args);
	va_end(args);
	if (rv < 0 || (size_t)rv >= sizeof(remark->text)) { /* cut, perhaps in mid-character */
		len = sizeof(remark->text) - sizeof(CUT);
		while (len > 0 && is_inside_character(remark->text[len])) {
			len--;
		}
		memcpy(remark->text + len, CUT, sizeof(CUT));
	}
}

static bool is_before(const struct remark *a, const struct remark *b)
{
	return a->line != b->line ? a->line < b->line : a->column < b->column;
}

void remarks_sort(struct remarks *remarks)
{
	for (uint32_t i = 1; i < remarks->n; i++) {
		struct remark moving = remarks->at[i];
		uint32_t to = i;

		for (; to > 0 && is_before(&moving, &remarks->at[to - 1]); to--) {
			remarks->at[to] = remarks->at[to - 1];
		}
		remarks->at[to] = moving;
	}
}

const char *remark_show(char *buf, const char *text, size_t len_bytes)
{
	bool cut = len_bytes >= REMARK_SHOW_MAX;
	size_t len = cut ? REMARK_SHOW_MAX - sizeof(CUT) : len_bytes;

	while (cut && len > 0 && is_inside_character(text[len])) {
		len--;
	}
	for (size_t i = 0; i < len; i++) {
		bool plain = (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;

		/* C1 controls are U+0080 to U+009F, two bytes from C2 80 on. */
		if ((unsigned char)text[i] == 0xc2 && i + 1 < len &&
			(unsigned char)text[i + 1] < 0xa0) {
			buf[i++] = '?';
			plain = false;
		}
		buf[i] = '?';
		if (plain) {
			buf[i] = text[i];
		}
	}
	snprintf(buf + len, REMARK_SHOW_MAX - len, "%s", cut ? CUT : "");
	return buf;
}
