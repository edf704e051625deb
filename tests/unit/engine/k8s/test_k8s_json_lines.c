/* Streams that are cut into lines, however they come in pieces. */
#include "../lib/seed.h"
#include "base/rng.h"
#include "engine/k8s/json_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define ROUNDS 2000u

static struct json_lines lines;
static char all[4096];      /* the lines that were reported, each with '|' behind it */
static unsigned ends_after; /* lines, then each returns false; 0: never */

static int begin(void **state)
{
	all[0] = '\0';
	ends_after = 0;
	return 0;
}

static int end(void **state)
{
	json_lines_deinit(&lines);
	return 0;
}

/* Fits json_line_fn. */
static bool note(void *user, char *line, size_t len_bytes)
{
	size_t n = strlen(all);

	assert_int_equal(strlen(line), len_bytes);
	snprintf(all + n, sizeof(all) - n, "%s|", line);
	return ends_after == 0 || --ends_after > 0;
}

static bool add(const char *text)
{
	return json_lines_add(&lines, text, strlen(text), note, NULL);
}

static void lines_are_reported_once_they_end(void **state)
{
	assert_true(add("{\"a\":1}\n{\"b\""));
	assert_string_equal(all, "{\"a\":1}|");
	assert_true(add(":2}"));
	assert_string_equal(all, "{\"a\":1}|");
	assert_true(add("\n\n\n{}\n"));
	assert_string_equal(all, "{\"a\":1}|{\"b\":2}|{}|");
}

static void any_pieces_give_the_same_lines(void **state)
{
	static const char text[] = "one\ntwo two\n\nthree\nfour four four\n5\n";
	struct rng rng = {test_seed()};

	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t off = 0;

		all[0] = '\0';
		while (off < sizeof(text) - 1) {
			size_t left = sizeof(text) - 1 - off;
			size_t n = 1 + rng_u64(&rng) % 9;

			n = n < left ? n : left;
			assert_true(json_lines_add(&lines, text + off, n, note, NULL));
			off += n;
		}
		assert_string_equal(all, "one|two two|three|four four four|5|");
	}
}

static void who_reads_may_end_it(void **state)
{
	ends_after = 2;
	assert_false(add("1\n2\n3\n"));
	assert_string_equal(all, "1|2|");
}

static void half_a_line_is_forgotten(void **state)
{
	assert_true(add("{\"half"));
	json_lines_reset(&lines);
	assert_true(add("{}\n"));
	assert_string_equal(all, "{}|");
}

static void a_line_has_a_limit(void **state)
{
	char *piece = malloc(JSON_LINE_MAX);

	memset(piece, 'x', JSON_LINE_MAX);
	assert_true(json_lines_add(&lines, piece, JSON_LINE_MAX, note, NULL));
	assert_false(json_lines_add(&lines, piece, 1, note, NULL));
	free(piece);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(lines_are_reported_once_they_end, begin, end),
		cmocka_unit_test_setup_teardown(any_pieces_give_the_same_lines, begin, end),
		cmocka_unit_test_setup_teardown(who_reads_may_end_it, begin, end),
		cmocka_unit_test_setup_teardown(half_a_line_is_forgotten, begin, end),
		cmocka_unit_test_setup_teardown(a_line_has_a_limit, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
