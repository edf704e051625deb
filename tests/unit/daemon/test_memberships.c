/* Memberships over HTTP: what launchers report to each other by way of the scheduler, by example,
 * over restarts of the scheduler in all orders, and where memory is short. */
#include "../lib/each_fault.h"
#include "base/clock.h"
#include "base/rng.h"
#include "daemon/memberships.h"
#include "pawl/err.h"
#include "seed.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define S         NS_PER_S
#define LAUNCHERS 4u
#define HISTORIES 2000u

static struct memberships *memberships;
static struct pawl_err err;
static int64_t now_ns;
static bool changed;

static int begin(void **state)
{
	now_ns = 1000 * S;
	memberships = memberships_open(7);
	assert_non_null(memberships);
	return 0;
}

static int end(void **state)
{
	memberships_close(memberships);
	return 0;
}

static int say(const char *key, const char *json)
{
	struct launcher_report report;
	int rv = launcher_report_read(&report, json, strlen(json), &err);

	rv = rv == 0 ? memberships_take(memberships, key, &report, now_ns, &changed, &err) : rv;
	launcher_report_deinit(&report);
	return rv;
}

/* Checks what a launcher is answered. */
static void check(const char *key, uint32_t launcher, uint64_t version, const char *text,
	const char *alive)
{
	char *answer = memberships_answer(memberships, key, launcher, now_ns);
	json_t *json = json_loads(answer, 0, NULL);
	char *shown = json_dumps(json_object_get(json, "alive"), JSON_COMPACT | JSON_SORT_KEYS);

	assert_string_equal(json_string_value(json_object_get(json, "membership")), text);
	assert_string_equal(shown, alive);
	assert_int_equal(json_integer_value(json_object_get(json, "version")), version);
	free(shown);
	json_decref(json);
	free(answer);
}

static void launchers_hear_of_each_other(void **state)
{
	assert_true(memberships_has_news(memberships, "j", 0, 0));
	assert_int_equal(say("j", "{\"launcher\": 0, \"fresh\": true, \"alive\": \"\"}"), 0);
	assert_true(changed);
	check("j", 0, 1, "", "{}");
	assert_false(memberships_has_news(memberships, "j", 7, 1));
	assert_int_equal(say("j",
				 "{\"launcher\": 0, \"membership\": \"a:1:f 0\\n\", "
				 "\"alive\": \"12 1 0\\n\", \"instance\": \"7\", \"version\": 1}"),
		0);
	assert_true(changed && memberships_has_news(memberships, "j", 7, 1));
	check("j", 0, 2, "a:1:f 0\n", "{}");
	check("j", 1, 2, "a:1:f 0\n", "{\"0\":\"12 1 0\\n\"}");
	/* A heartbeat is no news: others hear of it when they next ask. */
	assert_int_equal(say("j", "{\"launcher\": 0, \"alive\": \"13 1 0\\n\"}"), 0);
	assert_false(changed);
	check("j", 1, 2, "a:1:f 0\n", "{\"0\":\"13 1 0\\n\"}");
	/* A rank that has ended is. */
	assert_int_equal(say("j", "{\"launcher\": 0, \"alive\": \"14 3 0\\n\"}"), 0);
	assert_true(changed);
	/* Another launcher is, and its end. */
	assert_int_equal(say("j", "{\"launcher\": 1, \"alive\": \"5 1 0\\n\"}"), 0);
	assert_true(changed);
	check("j", 0, 4, "a:1:f 0\n", "{\"1\":\"5 1 0\\n\"}");
	assert_int_equal(say("j", "{\"launcher\": 1, \"alive\": \"\"}"), 0);
	assert_true(changed);
	check("j", 0, 5, "a:1:f 0\n", "{}");
	assert_int_equal(say("j", "{\"launcher\": 1, \"membership\": \"over\\n\"}"), 0);
	check("j", 0, 6, "over\n", "{}");
	/* A new start forgets all. */
	assert_int_equal(say("j", "{\"launcher\": 0, \"fresh\": true}"), 0);
	check("j", 1, 7, "", "{}");
	check("other", 1, 0, "", "{}");
}

static void who_is_silent_is_shown_no_more(void **state)
{
	say("j", "{\"launcher\": 2, \"alive\": \"1 1 0\"}");
	now_ns += 80 * S;
	check("j", 0, 1, "", "{\"2\":\"1 1 0\"}");
	now_ns += 20 * S;
	check("j", 0, 1, "", "{}");
	memberships_forget(memberships, now_ns - 200 * S);
	check("j", 0, 1, "", "{}");
	memberships_forget(memberships, now_ns);
	check("j", 0, 0, "", "{}");
	/* A launcher that knows what was forgotten is told that there is another instance now. */
	assert_int_equal(say("j", "{\"launcher\": 2, \"instance\": \"7\", \"version\": 1}"), 0);
	assert_true(memberships_has_news(memberships, "j", 7, 1));
}

static void what_is_malformed_is_refused(void **state)
{
	static const char too_long[] =
		"{\"launcher\": 1, \"alive\": "
		"\"1234567812345678123456781234567812345678123456781234567812345678\"}";
	static const char *const texts[] = {too_long, "", "{", "[]", "{}", "{\"launcher\": -1}",
		"{\"launcher\": 1024}", "{\"launcher\": \"1\"}", "{\"launcher\": 1.5}",
		"{\"launcher\": 1, \"launcher\": 2}", "{\"launcher\": 1, \"version\": -1}",
		"{\"launcher\": 1, \"version\": \"1\"}", "{\"launcher\": 1, \"instance\": \"x\"}",
		"{\"launcher\": 1, \"instance\": \"12345678123456781\"}",
		"{\"launcher\": 1, \"instance\": 3}", "{\"launcher\": 1, \"membership\": 3}",
		"{\"launcher\": 1, \"membership\": \"a\\u0000b\"}",
		"{\"launcher\": 1, \"membership\": \"\\u001b\"}"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (say("j", texts[i]) != PAWL_EINVAL) {
			fail_msg("%s is taken", texts[i]);
		}
	}
	check("j", 0, 0, "", "{}");
}

static void there_are_only_so_many(void **state)
{
	char key[32];

	for (uint32_t i = 0; i < MEMBERSHIPS_MAX; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(say(key, "{\"launcher\": 1}"), 0);
	}
	assert_int_equal(say("one more", "{\"launcher\": 1}"), PAWL_ELIMIT);
	assert_int_equal(say("0", "{\"launcher\": 1, \"alive\": \"1 1 0\"}"), 0);
	memberships_forget(memberships, now_ns + 1);
	assert_int_equal(say("one more", "{\"launcher\": 1}"), 0);
}

/* The scheduler was restarted: launchers say again what they know, in any order. The newest of that
 * counts, and a change by one of them counts more. */
static void what_was_lost_is_said_again(void **state)
{
	uint64_t seed = test_seed();

	for (uint64_t i = 0; i < HISTORIES; i++) {
		struct rng rng = {seed + i};
		uint64_t newest = 0;
		bool written = false;
		char text[160], wanted[16] = "";

		memberships_close(memberships);
		memberships = memberships_open(8);
		for (uint32_t n = 0; n < LAUNCHERS; n++) {
			/* A scheduler, 6 or 7, and a version there. */
			uint64_t version = (6 + rng_below(&rng, 2)) * 100 + 1 + rng_below(&rng, 9);
			bool writes = rng_below(&rng, 6) == 0;

			snprintf(text, sizeof(text),
				"{\"launcher\": %u, \"instance\": \"%u\", \"version\": %u, "
				"\"restates\": %s, \"membership\": \"%s%u\"}",
				n, (unsigned)version / 100, (unsigned)version % 100,
				writes ? "false" : "true", writes ? "new" : "v",
				writes ? n : (unsigned)version);
			assert_int_equal(say("j", text), 0);
			if (writes || (!written && version > newest)) {
				snprintf(wanted, sizeof(wanted), "%s%u", writes ? "new" : "v",
					writes ? n : (unsigned)version);
			}
			newest = version > newest ? version : newest;
			written = written || writes;
		}
		/* A launcher that has this scheduler's answer has nothing to report again. */
		assert_int_equal(say("j",
					 "{\"launcher\": 9, \"instance\": \"8\", \"version\": 99, "
					 "\"restates\": true, \"membership\": \"wrong\"}"),
			0);
		{
			char *answer = memberships_answer(memberships, "j", 0, now_ns);
			json_t *json = json_loads(answer, 0, NULL);

			assert_string_equal(json_string_value(json_object_get(json, "membership")),
				wanted);
			json_decref(json);
			free(answer);
		}
	}
}

/* Without memory, a launcher is told so, and may say everything again. */
static void memory_is_short(void **state)
{
	static const char text[] =
		"{\"launcher\": 0, \"membership\": \"a 0\", \"alive\": \"1 1 0\"}";
	uint32_t refused = 0;

	for (uint64_t nth = 1; each_fault(nth); nth++) {
		char key[24];
		char *answer;
		int rv;

		snprintf(key, sizeof(key), "%llu", (unsigned long long)nth);
		fault_arm("memberships", nth, ENOMEM, false);
		rv = say(key, text);
		answer = rv == 0 ? memberships_answer(memberships, key, 1, now_ns) : NULL;
		fault_disarm();
		assert_true(rv == 0 || rv == PAWL_ENOMEM);
		refused += answer == NULL;
		free(answer);
		assert_int_equal(say(key, text), 0);
		answer = memberships_answer(memberships, key, 1, now_ns);
		assert_non_null(strstr(answer, "\"a 0\""));
		assert_non_null(strstr(answer, "\"1 1 0\""));
		free(answer);
	}
	assert_int_equal(refused, 4); /* membership, text, launcher, answer */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(launchers_hear_of_each_other, begin, end),
		cmocka_unit_test_setup_teardown(who_is_silent_is_shown_no_more, begin, end),
		cmocka_unit_test_setup_teardown(what_is_malformed_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(there_are_only_so_many, begin, end),
		cmocka_unit_test_setup_teardown(what_was_lost_is_said_again, begin, end),
		cmocka_unit_test_setup_teardown(memory_is_short, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
