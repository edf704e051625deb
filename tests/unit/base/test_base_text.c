/* Text that others have chosen is shown so that it cannot control the reader's terminal, or hide
 * what it is. */
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const struct {
	const char *text, *shown;
} texts[] = {
	{"", ""},
	{"a name/of_a-file.pt ~", "a name/of_a-file.pt ~"},
	{"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x90\xbe", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x90\xbe"},
	{"\xd7\xa9\xd7\x9c", "\xd7\xa9\xd7\x9c"}, /* Hebrew does not turn its neighbours */
	/* Control characters that terminals obey. */
	{"a\nb\r\tc\x7f", "a\\nb\\x0d\\x09c\\x7f"},
	{"\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"},
	{"\xc2\x9b"
	 "31m\xc2\x80\xc2\x9f\xc2\xa0",
		"\\u009b31m\\u0080\\u009f\xc2\xa0"},
	/* Characters that turn the direction of reading, or end a line. */
	{"\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f", "\\u061c\\u200e\\u200f"},
	{"a\xe2\x80\xaa\xe2\x80\xab\xe2\x80\xac\xe2\x80\xad\xe2\x80\xae",
		"a\\u202a\\u202b\\u202c\\u202d\\u202e"},
	{"\xe2\x81\xa6\xe2\x81\xa7\xe2\x81\xa8\xe2\x81\xa9"
	 "a",
		"\\u2066\\u2067\\u2068\\u2069a"},
	{"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029"},
	{"\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa",
		/* The neighbours of those code points. */
		"\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa"},
	/* Invalid UTF-8, byte by byte: cut, overlong, surrogates, beyond the last. */
	{"\xff"
	 "a\x80",
		"\\xffa\\x80"},
	{"\xe2\x82", "\\xe2\\x82"},
	{"\xe2\x82"
	 "b",
		"\\xe2\\x82b"},
	{"\xc0\xaf\xc1\xbf", "\\xc0\\xaf\\xc1\\xbf"},
	{"\xe0\x80\x9b", "\\xe0\\x80\\x9b"},
	{"\xf0\x80\x80\x9b", "\\xf0\\x80\\x80\\x9b"},
	{"\xed\xa0\x80", "\\xed\\xa0\\x80"},
	{"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
	{"\xf4\x8f\xbf\xbd", "\xf4\x8f\xbf\xbd"},
	{"\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80"},
};

static void what_steers_is_an_escape(void **state)
{
	char shown[128];

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		size_t n = text_escape(shown, sizeof(shown), texts[i].text);

		assert_string_equal(shown, texts[i].shown);
		assert_int_equal(n, strlen(shown));
		assert_int_equal(text_escape(NULL, 0, texts[i].text), n);
	}
}

/* However little room there is, the text shown is a prefix of the whole, and no character or escape
 * is cut. */
static void it_is_cut_between_characters(void **state)
{
	static const char text[] = "a\xc3\xa4\x1b\xe2\x80\xae\xe2\x82\xac\xff";
	static const char all[] = "a\xc3\xa4\\x1b\\u202e\xe2\x82\xac\\xff";
	static const size_t ends[] = {0, 1, 3, 7, 13, 16, 20};
	char shown[32];

	for (size_t cap = 1; cap <= sizeof(all); cap++) {
		size_t want = 0;

		for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
			want = ends[i] < cap ? ends[i] : want;
		}
		memset(shown, 'x', sizeof(shown));
		assert_int_equal(text_escape(shown, cap, text), strlen(all));
		assert_int_equal(strlen(shown), want);
		assert_memory_equal(shown, all, want);
		assert_int_equal(shown[cap], 'x');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_steers_is_an_escape),
		cmocka_unit_test(it_is_cut_between_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
