/* Alerts of a root: reported once, on a change, rarely again, and when resolved. */
#include "agent/persist/alerts.h"
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

static struct alert make(int sys, const char *text)
{
	struct pawl_err err;
	struct alert alert;

	pawl_err_set(&err, PAWL_EIO, "%s", text);
	err.sys = sys;
	alert_fill(&alert, ALERT_SAVE, &err, "global_step5 is not durable");
	return alert;
}

static void what_lasts_is_reported_rarely(void **state)
{
	struct alert_state known = {.active = false};
	struct alert full = make(ENOSPC, "No space left; 5 KiB are free");
	struct alert fuller = make(ENOSPC, "No space left; 4 KiB are free");
	struct alert good;
	int64_t now_ns = 7;

	assert_string_equal(full.text,
		"global_step5 is not durable: No space left; 5 KiB are free");
	assert_int_equal(alert_decide(&known, &full, now_ns, AGAIN), ALERT_BEGINS);
	for (int i = 0; i < 299; i++) {
		now_ns += NS_PER_S;
		assert_int_equal(alert_decide(&known, &fuller, now_ns, AGAIN), ALERT_NONE);
	}
	assert_string_equal(known.text, fuller.text); /* a query gets the present text */
	assert_int_equal(alert_decide(&known, &full, now_ns + NS_PER_S, AGAIN), ALERT_REPEATS);
	assert_int_equal(known.count, 301);
	assert_int_equal(known.since_ns, 7);
	assert_int_equal(alert_decide(&known, &full, now_ns + 2 * NS_PER_S, AGAIN), ALERT_NONE);
	alert_fill(&good, ALERT_SAVE, NULL, "it is");
	assert_int_equal(alert_decide(&known, &good, now_ns, AGAIN), ALERT_ENDS);
	assert_int_equal(alert_decide(&known, &good, now_ns, AGAIN), ALERT_NONE);
	assert_int_equal(alert_decide(&known, &full, now_ns, AGAIN), ALERT_BEGINS);
	assert_int_equal(known.count, 1);
}

static void another_cause_is_reported_at_once(void **state)
{
	struct alert_state known = {.active = false};
	struct alert full = make(ENOSPC, "No space left");
	struct alert quota = make(EDQUOT, "Disk quota exceeded");
	struct alert other = make(0, "it differs");

	assert_int_equal(alert_decide(&known, &full, 0, AGAIN), ALERT_BEGINS);
	assert_int_equal(alert_decide(&known, &quota, 1, AGAIN), ALERT_BEGINS);
	assert_int_equal(alert_decide(&known, &quota, 2, AGAIN), ALERT_NONE);
	assert_int_equal(alert_decide(&known, &other, 3, AGAIN), ALERT_BEGINS);
	assert_int_equal(known.key, PAWL_EIO);
	assert_int_equal(known.count, 4);
}

static void what_happens_once_is_reported_each_time(void **state)
{
	struct alert_state known = {.active = false};
	struct alert alert;

	alert_fill(&alert, ALERT_ONCE, NULL, "%s is damaged", "t");
	assert_int_equal(alert_decide(&known, &alert, 0, AGAIN), ALERT_BEGINS);
	assert_int_equal(alert_decide(&known, &alert, 0, AGAIN), ALERT_BEGINS);
	assert_false(known.active);
}

static void the_newest_are_kept(void **state)
{
	struct alert alert;
	struct alerts alerts;
	char text[16];

	alerts_init(&alerts);
	for (unsigned i = 0; i < ALERTS_MAX + 3; i++) {
		alerts_put(&alerts, ALERT_ONCE, NULL, "%u", i);
	}
	for (unsigned i = 3; i < ALERTS_MAX + 3; i++) {
		assert_true(alerts_take(&alerts, &alert));
		snprintf(text, sizeof(text), "%u", i);
		assert_string_equal(alert.text, text);
	}
	assert_false(alerts_take(&alerts, &alert));
	alerts_deinit(&alerts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_lasts_is_reported_rarely),
		cmocka_unit_test(another_cause_is_reported_at_once),
		cmocka_unit_test(what_happens_once_is_reported_each_time),
		cmocka_unit_test(the_newest_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
