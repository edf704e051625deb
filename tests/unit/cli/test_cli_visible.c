/* Text that others have printed cannot control the terminal, however it is cut into pieces. */
#include "cli/visible.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct {
	const char *bytes;
	const char *shown;
} texts[] = {
	{"plain text\n\tand\r\n", "plain text\n\tand\r\n"},
	{"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\xbe",
		"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\xbe"},
	{"\033[1;31mred\033[0m", "\033[1;31mred\033[0m\033[0m"},
	{"\033[mx\033[38:5:9my", "\033[mx\033[38:5:9my\033[0m"},
	{"\033]0;title\007", "\\x1b]0;title\\x07"},
	{"\033[2J\033[1A\033[6n", "\\x1b[2J\\x1b[1A\\x1b[6n"},
	{"\033[31\033[1m", "\\x1b[31\033[1m\033[0m"},
	{"\033P1$r\033\\", "\\x1bP1$r\\x1b\\"},
	{"\033", "\\x1b"},
	{"\033[1", "\\x1b[1"},
	{"\b\177\0013", "\\x08\\x7f\\x013"},
	{"\x9b"
	 "31m",
		"\\x9b31m"}, /* ESC [ in one byte */
	{"\xc2\x9b"
	 "2J",
		"\\xc2\\x9b2J"},             /* U+009B, ESC [ in UTF-8 */
	{"\xe0\x82\x9b", "\\xe0\\x82\\x9b"}, /* U+009B in an overlong encoding */
	{"\xc0\x9b\xf5\xff", "\\xc0\\x9b\\xf5\\xff"},
	{"\xed\xa0\x80", "\\xed\\xa0\\x80"},
	{"\xe2\x80\xaetxt", "\\xe2\\x80\\xaetxt"}, /* U+202E turns the text after it */
	{"\xe2\x82\033[2K\xe2\x82", "\\xe2\\x82\\x1b[2K\\xe2\\x82"},
	{"\xc3\xc3\xbc", "\\xc3\xc3\xbc"},
};

static void check(const char *bytes, size_t piece, const char *shown)
{
	char *out = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&out, &len);
	struct visible v = {.to = to};

	for (size_t at = 0; at < strlen(bytes); at += piece) {
		size_t n = strlen(bytes) - at;

		assert_true(visible_put(&v, bytes + at, n < piece ? n : piece));
	}
	assert_true(visible_end(&v));
	fclose(to);
	assert_string_equal(out, shown);
	free(out);
}

static void orders_are_shown_and_text_is_not(void **state)
{
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		for (size_t piece = 1; piece < 6; piece++) {
			check(texts[i].bytes, piece, texts[i].shown);
		}
		check(texts[i].bytes, 1000, texts[i].shown);
	}
}

static void a_colour_has_an_end(void **state)
{
	char bytes[200];
	char shown[300];

	memset(bytes, '1', sizeof(bytes));
	memcpy(bytes, "\033[", 2);
	bytes[sizeof(bytes) - 1] = '\0';
	snprintf(shown, sizeof(shown), "\\x1b%s", bytes + 1);
	check(bytes, 7, shown);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(orders_are_shown_and_text_is_not),
		cmocka_unit_test(a_colour_has_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
