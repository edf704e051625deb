/* Requests to object stores: how paths, queries and headers are written, and what becomes of a part
 * that does not fit. */
#include "../lib/seed.h"
#include "base/rng.h"
#include "io/http_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TEXT_MAX 64u    /* bytes of a random text, terminator included */
#define ROUNDS   20000u /* random texts */

static struct http_request request;

static int begin(void **state)
{
	request_init(&request, "GET", "http://127.0.0.1:9000");
	return 0;
}

/* ---- encoding ---- */

static void all_but_plain_characters_are_encoded(void **state)
{
	static const struct {
		const char *text;
		bool slash;
		const char *encoded;
	} cases[] = {
		{"", false, ""},
		{"azAZ09-._~", false, "azAZ09-._~"},
		{"a b+c", false, "a%20b%2Bc"},
		{"a/b", false, "a%2Fb"},
		{"a/b", true, "a/b"},
		{"100%", true, "100%25"},
		{"!\"#$&'()*,:;<=>?@[\\]^`{|}", true,
			"%21%22%23%24%26%27%28%29%2A%2C%3A%3B%3C%3D%3E%3F%40%5B%5C%5D%5E%60%7B%7C"
			"%7D"},
		{"\x01\x7f\xe2\x82\xac\xff", true, "%01%7F%E2%82%AC%FF"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char out[128];

		assert_true(request_encode(cases[i].text, cases[i].slash, out, sizeof(out)));
		assert_string_equal(out, cases[i].encoded);
	}
}

static void a_text_is_cut_between_characters(void **state)
{
	static const char *const cut[] = {"", "a", "a", "a", "a%20", "a%20b"};

	for (size_t size_bytes = 1; size_bytes <= 6; size_bytes++) {
		char *out = malloc(size_bytes); /* a sanitizer sees a byte too many */

		assert_non_null(out);
		assert_int_equal(request_encode("a b", false, out, size_bytes), size_bytes == 6);
		assert_string_equal(out, cut[size_bytes - 1]);
		free(out);
	}
}

static void decode(const char *text, char out[TEXT_MAX])
{
	size_t n = 0;

	while (*text != '\0') {
		unsigned byte = (unsigned char)*text;

		if (*text == '%') {
			assert_int_equal(sscanf(text, "%%%2X", &byte), 1);
			text += 2;
		}
		text++;
		out[n++] = (char)byte;
	}
	out[n] = '\0';
}

static void encoded_texts_can_be_decoded(void **state)
{
	struct rng rng = {test_seed()};

	for (uint32_t round = 0; round < ROUNDS; round++) {
		char text[TEXT_MAX];
		char encoded[3 * TEXT_MAX];
		char decoded[TEXT_MAX];
		size_t n = rng_below(&rng, TEXT_MAX);

		for (size_t i = 0; i < n; i++) {
			text[i] = (char)(1 + rng_below(&rng, 255));
		}
		text[n] = '\0';
		assert_true(request_encode(text, round % 2 == 0, encoded, sizeof(encoded)));
		decode(encoded, decoded);
		assert_string_equal(decoded, text);
	}
}

/* ---- the target ---- */

static void endpoints_give_scheme_and_host(void **state)
{
	static const struct {
		const char *endpoint;
		const char *host;
		bool tls;
	} cases[] = {
		{"https://s3.eu-central-1.amazonaws.com", "s3.eu-central-1.amazonaws.com", true},
		{"http://127.0.0.1:9000", "127.0.0.1:9000", false},
		{"https://[::1]:443", "[::1]:443", true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		request_init(&request, "PUT", cases[i].endpoint);
		assert_string_equal(request.method, "PUT");
		assert_string_equal(request.host, cases[i].host);
		assert_int_equal(request.tls, cases[i].tls);
		assert_string_equal(request.path, "");
		assert_string_equal(request.query, "");
		assert_int_equal(request.headers_n, 0);
		assert_false(request.full);
	}
}

static void a_host_that_is_too_long_is_left_out(void **state)
{
	char endpoint[700];

	memset(endpoint, 'h', sizeof(endpoint));
	memcpy(endpoint, "http://", 7);
	endpoint[7 + 511] = '\0';
	request_init(&request, "GET", endpoint);
	assert_int_equal(strlen(request.host), 511);
	assert_false(request.full);
	endpoint[7 + 511] = 'h';
	endpoint[7 + 512] = '\0';
	request_init(&request, "GET", endpoint);
	assert_string_equal(request.host, "");
	assert_true(request.full);
}

static void paths_keep_their_slashes(void **state)
{
	request_add_path(&request, "bucket");
	assert_string_equal(request.path, "/bucket");
	request_add_path(&request, "a b/c//d/\xe2\x82\xac?#%2F");
	assert_string_equal(request.path, "/bucket/a%20b/c//d/%E2%82%AC%3F%23%252F");
	begin(state);
	request_add_path(&request, "");
	assert_string_equal(request.path, "/");
	assert_false(request.full);
}

static void queries_are_joined(void **state)
{
	request_add_query(&request, "X-Upper", "1");
	request_add_query(&request, "list", "");
	request_add_query(&request, "list-type", "2");
	request_add_query(&request, "prefix", "a/b c&d=e");
	request_add_query(&request, "uploads", NULL);
	assert_string_equal(request.query,
		"X-Upper=1&list=&list-type=2&prefix=a%2Fb%20c%26d%3De&uploads");
	assert_false(request.full);
}

/* A name that another begins with comes first, whatever its value is. */
static void names_of_a_query_are_compared_without_values(void **state)
{
	request_add_query(&request, "a", "z");
	request_add_query(&request, "ab", NULL);
	request_add_query(&request, "b", "1&0=");
	assert_string_equal(request.query, "a=z&ab&b=1%260%3D");
}

/* ---- headers ---- */

static void headers_are_found_by_name(void **state)
{
	request_add_header(&request, "range", "bytes=%d-%d", 0, 9);
	request_add_header(&request, "x-amz-empty", "%s", "");
	assert_string_equal(request_header(&request, "range"), "bytes=0-9");
	assert_string_equal(request_header(&request, "x-amz-empty"), "");
	assert_null(request_header(&request, "rang"));
	assert_int_equal(request.headers_n, 2);
	assert_false(request.full);
}

static void headers_are_dropped(void **state)
{
	request_add_header(&request, "a", "first");
	request_add_header(&request, "b", "%s", "");
	request_add_header(&request, "c", "third");
	request_drop_header(&request, "x");
	assert_int_equal(request.headers_n, 3);
	request_drop_header(&request, "a");
	assert_null(request_header(&request, "a"));
	assert_string_equal(request_header(&request, "b"), "");
	assert_string_equal(request_header(&request, "c"), "third");
	request_drop_header(&request, "c");
	request_add_header(&request, "a", "again");
	assert_string_equal(request_header(&request, "a"), "again");
	request_drop_header(&request, "b");
	request_drop_header(&request, "a");
	assert_int_equal(request.headers_n, 0);
	assert_int_equal(request.text_n, 0);
}

/* A request is signed again before each attempt, with a token of some KiB. */
static void dropped_headers_leave_their_room(void **state)
{
	char token[4000];

	memset(token, 't', sizeof(token) - 1);
	token[sizeof(token) - 1] = '\0';
	request_add_header(&request, "range", "bytes=0-9");
	for (int i = 0; i < 1000; i++) {
		request_drop_header(&request, "date");
		request_drop_header(&request, "token");
		request_add_header(&request, "date", "%d", i);
		request_add_header(&request, "token", "%s", token);
	}
	assert_false(request.full);
	assert_string_equal(request_header(&request, "range"), "bytes=0-9");
	assert_string_equal(request_header(&request, "date"), "999");
	assert_string_equal(request_header(&request, "token"), token);
}

/* A line's end in a value, such as a token from a file, would begin another header. */
static void a_value_is_one_line(void **state)
{
	static const char *const values[] = {"a\r\nx: y", "a\n", "\tb", "\x1b", "\x7f"};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		begin(state);
		request_add_header(&request, "x", "%s", values[i]);
		assert_null(request_header(&request, "x"));
		assert_true(request.full);
	}
	begin(state);
	request_add_header(&request, "x", "%s", "\xe2\x82\xac ~");
	assert_string_equal(request_header(&request, "x"), "\xe2\x82\xac ~");
	assert_false(request.full);
}

/* ---- limits ---- */

static void fill(char *text, size_t n)
{
	memset(text, 'x', n);
	text[n] = '\0';
}

static void parts_that_do_not_fit_are_left_out(void **state)
{
	char text[REQUEST_TEXT_MAX + 1];

	fill(text, REQUEST_PATH_MAX - 2);
	request_add_path(&request, text);
	assert_int_equal(strlen(request.path), REQUEST_PATH_MAX - 1);
	assert_false(request.full);
	request_add_path(&request, "");
	assert_int_equal(strlen(request.path), REQUEST_PATH_MAX - 1);
	assert_true(request.full);

	begin(state);
	request_add_path(&request, "a");
	request_add_path(&request, text);
	assert_string_equal(request.path, "/a");
	assert_true(request.full);

	begin(state);
	fill(text, REQUEST_QUERY_MAX - 5);
	request_add_query(&request, "a", "1");
	request_add_query(&request, "b", text);
	assert_string_equal(request.query, "a=1");
	request_add_query(&request, text, "2");
	assert_string_equal(request.query, "a=1");
	assert_true(request.full);
	request_add_query(&request, "c", NULL);
	assert_string_equal(request.query, "a=1&c");

	begin(state);
	fill(text, REQUEST_TEXT_MAX - 2);
	request_add_header(&request, "a", "1");
	request_add_header(&request, "b", "%s", text);
	assert_null(request_header(&request, "b"));
	assert_true(request.full);
	begin(state);
	request_add_header(&request, "a", "1");
	request_add_header(&request, "b", "%s", text + 1);
	request_add_header(&request, "c", "%s", "");
	assert_string_equal(request_header(&request, "b"), text + 1);
	assert_true(request.full);
}

static void there_is_a_limit_of_headers(void **state)
{
	static const char names[] =
		"a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0k\0l\0m\0n\0o\0p\0q\0r\0s\0t\0u\0"
		"v\0w\0x\0y";

	for (uint32_t i = 0; i < REQUEST_HEADERS_MAX; i++) {
		request_add_header(&request, names + (size_t)2 * i, "1");
	}
	assert_int_equal(request.headers_n, REQUEST_HEADERS_MAX);
	assert_false(request.full);
	request_add_header(&request, "y", "1");
	assert_int_equal(request.headers_n, REQUEST_HEADERS_MAX);
	assert_true(request.full);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_but_plain_characters_are_encoded),
		cmocka_unit_test(a_text_is_cut_between_characters),
		cmocka_unit_test(encoded_texts_can_be_decoded),
		cmocka_unit_test(endpoints_give_scheme_and_host),
		cmocka_unit_test(a_host_that_is_too_long_is_left_out),
		cmocka_unit_test_setup(paths_keep_their_slashes, begin),
		cmocka_unit_test_setup(queries_are_joined, begin),
		cmocka_unit_test_setup(names_of_a_query_are_compared_without_values, begin),
		cmocka_unit_test_setup(headers_are_found_by_name, begin),
		cmocka_unit_test_setup(headers_are_dropped, begin),
		cmocka_unit_test_setup(dropped_headers_leave_their_room, begin),
		cmocka_unit_test_setup(a_value_is_one_line, begin),
		cmocka_unit_test_setup(parts_that_do_not_fit_are_left_out, begin),
		cmocka_unit_test_setup(there_is_a_limit_of_headers, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
