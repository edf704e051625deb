/* News of a root for people: told once, when it changes, rarely again, and when it is over. */
#include "agent/persist/news.h"
#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define AGAIN (300 * NS_PER_S)

static struct news_item make(int sys, const char *text)
{
	struct pawl_err err;
	struct news_item item;

	pawl_err_set(&err, PAWL_EIO, "%s", text);
	err.sys = sys;
	news_fill(&item, NEWS_SAVE, &err, "global_step5 is not durable");
	return item;
}

static void what_lasts_is_said_rarely(void **state)
{
	struct news_state known = {.lasts = false};
	struct news_item full = make(ENOSPC, "No space left; 5 KiB are free");
	struct news_item fuller = make(ENOSPC, "No space left; 4 KiB are free");
	struct news_item good;
	int64_t now_ns = 7;

	assert_string_equal(full.text,
		"global_step5 is not durable: No space left; 5 KiB are free");
	assert_int_equal(news_decide(&known, &full, now_ns, AGAIN), NEWS_BEGINS);
	for (int i = 0; i < 299; i++) {
		now_ns += NS_PER_S;
		assert_int_equal(news_decide(&known, &fuller, now_ns, AGAIN), NEWS_NOTHING);
	}
	assert_string_equal(known.text, fuller.text); /* a query gets the present text */
	assert_int_equal(news_decide(&known, &full, now_ns + NS_PER_S, AGAIN), NEWS_LASTS);
	assert_int_equal(known.times, 301);
	assert_int_equal(known.since_ns, 7);
	assert_int_equal(news_decide(&known, &full, now_ns + 2 * NS_PER_S, AGAIN), NEWS_NOTHING);
	news_fill(&good, NEWS_SAVE, NULL, "it is");
	assert_int_equal(news_decide(&known, &good, now_ns, AGAIN), NEWS_ENDS);
	assert_int_equal(news_decide(&known, &good, now_ns, AGAIN), NEWS_NOTHING);
	assert_int_equal(news_decide(&known, &full, now_ns, AGAIN), NEWS_BEGINS);
	assert_int_equal(known.times, 1);
}

static void another_cause_is_said_at_once(void **state)
{
	struct news_state known = {.lasts = false};
	struct news_item full = make(ENOSPC, "No space left");
	struct news_item quota = make(EDQUOT, "Disk quota exceeded");
	struct news_item other = make(0, "it differs");

	assert_int_equal(news_decide(&known, &full, 0, AGAIN), NEWS_BEGINS);
	assert_int_equal(news_decide(&known, &quota, 1, AGAIN), NEWS_BEGINS);
	assert_int_equal(news_decide(&known, &quota, 2, AGAIN), NEWS_NOTHING);
	assert_int_equal(news_decide(&known, &other, 3, AGAIN), NEWS_BEGINS);
	assert_int_equal(known.key, PAWL_EIO);
	assert_int_equal(known.times, 4);
}

static void what_happens_once_is_said_each_time(void **state)
{
	struct news_state known = {.lasts = false};
	struct news_item item;

	news_fill(&item, NEWS_ONCE, NULL, "%s is damaged", "t");
	assert_int_equal(news_decide(&known, &item, 0, AGAIN), NEWS_BEGINS);
	assert_int_equal(news_decide(&known, &item, 0, AGAIN), NEWS_BEGINS);
	assert_false(known.lasts);
}

static void the_newest_are_kept(void **state)
{
	struct news_item item;
	struct news news;
	char text[16];

	news_init(&news);
	for (unsigned i = 0; i < NEWS_WAITING_MAX + 3; i++) {
		news_put(&news, NEWS_ONCE, NULL, "%u", i);
	}
	for (unsigned i = 3; i < NEWS_WAITING_MAX + 3; i++) {
		assert_true(news_take(&news, &item));
		snprintf(text, sizeof(text), "%u", i);
		assert_string_equal(item.text, text);
	}
	assert_false(news_take(&news, &item));
	news_deinit(&news);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_lasts_is_said_rarely),
		cmocka_unit_test(another_cause_is_said_at_once),
		cmocka_unit_test(what_happens_once_is_said_each_time),
		cmocka_unit_test(the_newest_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
