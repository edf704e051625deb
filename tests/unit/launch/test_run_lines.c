/* Lines of several ranks never mix, and no byte is lost: by example, then in random pieces. */
#include "base/rng.h"
#include "launch/run_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OUT_MAX (4u << 20)

static char out[OUT_MAX];
static size_t out_len;
static struct run_lines a, b;
static struct run_text text;

static void put(void *user, const char *bytes, size_t len_bytes)
{
	assert_true(out_len + len_bytes < OUT_MAX);
	if (len_bytes > 0) {
		memcpy(out + out_len, bytes, len_bytes);
	}
	out_len += len_bytes;
	out[out_len] = '\0';
}

static int setup(void **state)
{
	a = (struct run_lines){.prefix = "[a] "};
	b = (struct run_lines){.prefix = "[b] "};
	text = (struct run_text){.put = put};
	out_len = 0;
	out[0] = '\0';
	return 0;
}

static void feed(struct run_lines *lines, const char *bytes)
{
	run_lines_feed(lines, &text, bytes, strlen(bytes));
}

static void whole_lines_get_their_prefix(void **state)
{
	feed(&a, "one\ntwo\n\n");
	feed(&b, "three\n");
	assert_string_equal(out, "[a] one\n[a] two\n[a] \n[b] three\n");
}

static void a_line_comes_when_it_is_finished(void **state)
{
	feed(&a, "on");
	feed(&b, "other\n");
	feed(&a, "e\n");
	assert_string_equal(out, "[b] other\n[a] one\n");
}

static void a_flushed_line_goes_on(void **state)
{
	feed(&a, "10%");
	run_lines_flush(&a, &text);
	assert_string_equal(out, "[a] 10%");
	feed(&a, " 20%");
	run_lines_flush(&a, &text);
	feed(&a, "\n");
	assert_string_equal(out, "[a] 10% 20%\n");
	run_lines_flush(&a, &text); /* nothing is pending */
	assert_string_equal(out, "[a] 10% 20%\n");
}

static void others_end_a_flushed_line(void **state)
{
	feed(&a, "10%");
	run_lines_flush(&a, &text);
	feed(&b, "hey\n");
	feed(&a, "20%\n");
	assert_string_equal(out, "[a] 10%\n[b] hey\n[a] 20%\n");
}

/* Returns what a terminal shows of out, line by line: \r goes to the beginning of the line, ESC [ 2
 * K erases it, other sequences (ESC [ m) change nothing. */
static const char *shown(void)
{
	static char seen[OUT_MAX];
	size_t begin = 0;
	size_t end = 0;
	size_t at = 0;

	for (const char *c = out; *c != '\0'; c++) {
		if (*c == '\n') {
			seen[end++] = '\n';
			begin = at = end;
		} else if (*c == '\r') {
			at = begin;
		} else if (c[0] == '\x1b' && c[1] == '[') {
			c += 2 + strspn(c + 2, "0123456789;");
			if (*c == 'K') {
				memset(seen + begin, ' ', end - begin);
			}
		} else {
			seen[at++] = *c;
			end = at > end ? at : end;
		}
	}
	seen[end] = '\0';
	return seen;
}

static void a_bar_does_not_paint_over_the_prefix(void **state)
{
	const char *bars[] = {
		"  0%\r 50%\r100%\n", "\r  0%\r 50%\r100%\n",    /* tqdm */
		"\r  0%\r\r100%\n",                              /* nothing in between */
		"\r  0%\r\x1b[2K 50%\r\x1b[2K100%\n",            /* rich */
		"  0%\x1b[2K\r 50%\x1b[2K\r100%\n",              /* the other way round */
		"\r\x1b[32m  0%\x1b[0m\r\x1b[1;32m100%\x1b[m\n", /* in colours */
		"100%\r\n",                                      /* a line end of another system */
	};

	for (size_t i = 0; i < sizeof(bars) / sizeof(bars[0]); i++) {
		size_t len = strlen(bars[i]);

		for (size_t step = 1; step <= len; step++) { /* in pieces, each shown at once */
			setup(state);
			for (size_t k = 0; k < len; k += step) {
				size_t most = len - k;

				run_lines_feed(&a, &text, bars[i] + k, step < most ? step : most);
				run_lines_flush(&a, &text);
			}
			feed(&a, "next\n");
			assert_string_equal(shown(), "[a] 100%\n[a] next\n");
		}
	}
}

static void bars_of_two_ranks(void **state)
{
	for (int i = 0; i < 3; i++) {
		feed(&a, "\r 50%");
		run_lines_flush(&a, &text);
		feed(&b, i == 1 ? "\r 70%\n" : "\r 70%");
		run_lines_flush(&b, &text);
	}
	assert_string_equal(shown(), "[a]  50%\n[b]  70%\n[a]  50%\n[b]  70%\n[a]  50%\n[b]  70%");
}

/* A terminal shows each line as it does without a prefix, and the prefix in front, whatever is
 * painted over what. */
static void random_bars_keep_their_prefix(void **state)
{
	static const char *const words[] = {"\n", "\r", "\x1b[2K\r", "\r\x1b[2K", "\x1b[36m", "0",
		"1", "2", "345", " "};
	static char plain[OUT_MAX];
	const char *given = getenv("PAWL_TEST_SEED");
	struct rng rng = {given != NULL ? strtoull(given, NULL, 10) : 20261127};
	struct rng again;
	const char *line = plain;

	print_message("seed %llu\n", (unsigned long long)rng.state);
	again = rng;
	for (int prefixed = 0; prefixed < 2; prefixed++) {
		setup(state);
		a.prefix[0] = prefixed ? '[' : '\0';
		rng = again;
		for (int i = 0; i < 20000; i++) {
			feed(&a, words[rng_below(&rng, sizeof(words) / sizeof(words[0]))]);
			if (rng_below(&rng, 3) == 0) {
				run_lines_flush(&a, &text);
			}
		}
		run_lines_end(&a, &text);
		if (!prefixed) {
			memcpy(plain, shown(), sizeof(plain));
		}
	}
	for (const char *c = shown(); *c != '\0'; c++) {
		const char *end = strchr(c, '\n');
		size_t len = strcspn(line, "\n");

		assert_non_null(end);
		assert_memory_equal(c, "[a] ", 4);
		assert_int_equal(end - c, 4 + len);
		assert_memory_equal(c + 4, line, len);
		line += len + 1;
		c = end;
	}
	assert_int_equal(*line, '\0');
}

static void colours_begin_behind_the_prefix(void **state)
{
	feed(&a, "\x1b[31mred\x1b[0m\n\x1b[31mred\x1b[0m\r\n\r\n\n");
	assert_string_equal(out,
		"[a] \x1b[31mred\x1b[0m\n[a] \x1b[31mred\x1b[0m\r\n\r[a] \n[a] \n");
}

static void the_end_ends_the_line(void **state)
{
	feed(&a, "no newline");
	run_lines_end(&a, &text);
	assert_string_equal(out, "[a] no newline\n");
	run_lines_end(&a, &text);
	assert_string_equal(out, "[a] no newline\n");
	setup(state);
	feed(&a, "shown");
	run_lines_flush(&a, &text);
	run_lines_end(&a, &text);
	assert_string_equal(out, "[a] shown\n");
}

static void long_lines_are_cut(void **state)
{
	static char big[2 * RUN_LINE_MAX + 3];

	memset(big, 'x', sizeof(big) - 1);
	feed(&a, big);
	feed(&a, "\n");
	assert_int_equal(out_len, 2 * RUN_LINE_MAX + 2 + 3 * strlen("[a] \n"));
	assert_int_equal(out[4 + RUN_LINE_MAX], '\n');
	/* exactly the limit is one line, fed at once or with its newline later */
	for (int at_once = 0; at_once < 2; at_once++) {
		setup(state);
		memset(big, 'y', RUN_LINE_MAX);
		big[RUN_LINE_MAX] = at_once ? '\n' : '\0';
		big[RUN_LINE_MAX + 1] = '\0';
		feed(&a, big);
		feed(&a, at_once ? "" : "\n");
		assert_int_equal(out_len, RUN_LINE_MAX + strlen("[a] \n"));
	}
}

/* Without prefixes and added newlines the text is, stream by stream, what was fed. */
static void random_pieces_lose_nothing(void **state)
{
	static char sent[2][1 << 17];
	static char got[2][1 << 17];
	struct run_lines *const streams[2] = {&a, &b};
	const char *given = getenv("PAWL_TEST_SEED");
	struct rng rng = {given != NULL ? strtoull(given, NULL, 10) : 20261121};
	size_t len[2] = {0, 0};
	size_t got_len[2] = {0, 0};

	print_message("seed %llu\n", (unsigned long long)rng.state);
	for (int i = 0; i < 20000; i++) {
		uint64_t which = rng_below(&rng, 2);
		char piece[8];
		size_t n = rng_below(&rng, sizeof(piece));

		for (size_t k = 0; k < n; k++) {
			piece[k] =
				(char)(rng_below(&rng, 6) == 0 ? '\n' : 'a' + rng_below(&rng, 26));
			if (piece[k] != '\n') {
				sent[which][len[which]++] = piece[k];
			}
		}
		run_lines_feed(streams[which], &text, piece, n);
		if (rng_below(&rng, 10) == 0) {
			run_lines_flush(streams[which], &text);
		}
	}
	run_lines_end(&a, &text);
	run_lines_end(&b, &text);
	for (char *line = out; *line != '\0';) {
		char *end = strchr(line, '\n');
		int which = line[1] - 'a';

		assert_non_null(end);
		assert_true(line[0] == '[' && line[2] == ']' && line[3] == ' ');
		assert_true(which == 0 || which == 1);
		for (char *c = line + 4; c < end; c++) {
			got[which][got_len[which]++] = *c;
		}
		line = end + 1;
	}
	for (int which = 0; which < 2; which++) {
		assert_int_equal(got_len[which], len[which]);
		assert_memory_equal(got[which], sent[which], len[which]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(whole_lines_get_their_prefix, setup),
		cmocka_unit_test_setup(a_line_comes_when_it_is_finished, setup),
		cmocka_unit_test_setup(a_flushed_line_goes_on, setup),
		cmocka_unit_test_setup(others_end_a_flushed_line, setup),
		cmocka_unit_test_setup(a_bar_does_not_paint_over_the_prefix, setup),
		cmocka_unit_test_setup(bars_of_two_ranks, setup),
		cmocka_unit_test_setup(random_bars_keep_their_prefix, setup),
		cmocka_unit_test_setup(colours_begin_behind_the_prefix, setup),
		cmocka_unit_test_setup(the_end_ends_the_line, setup),
		cmocka_unit_test_setup(long_lines_are_cut, setup),
		cmocka_unit_test_setup(random_pieces_lose_nothing, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
