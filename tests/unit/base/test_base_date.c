/* Moments of RFC 3339, as the system's own calendar has them. */
#include "../lib/seed.h"
#include "base/clock.h"
#include "base/date.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#define ROUNDS 100000u

static void the_calendar_is_the_systems(void **state)
{
	struct rng rng = {test_seed()};

	for (unsigned i = 0; i < ROUNDS; i++) {
		/* The years 1678 to 2261. */
		time_t s = (time_t)(rng_u64(&rng) % 18400000000u) - 9200000000;
		char text[64], again[DATE_TEXT_MAX];
		int64_t wall_ns = 0;
		struct tm tm;

		gmtime_r(&s, &tm);
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
		assert_true(date_read(text, &wall_ns));
		assert_int_equal(wall_ns, s * NS_PER_S);
		wall_ns += (int64_t)(rng_u64(&rng) % 1000000) * 1000;
		assert_true(date_read(date_write(wall_ns, again), &s));
		assert_int_equal(s, wall_ns);
	}
}

static void forms_are_understood(void **state)
{
	static const struct {
		const char *text;
		int64_t wall_ns;
	} rows[] = {
		{"1970-01-01T00:00:00Z", 0},
		{"1970-01-01T00:00:00", 0},
		{"1970-01-01t00:00:01z", NS_PER_S},
		{"2262-01-01T00:00:00Z", 9214646400 * NS_PER_S},
		{"1970-01-01T00:00:00.25Z", 250000000},
		{"1970-01-01T00:00:00.000000001Z", 1},
		{"1970-01-01T00:00:00.0000000019999Z", 1},
		{"1970-01-01T02:00:00+02:00", 0},
		{"1969-12-31T22:30:00-01:30", 0},
		{"1969-12-31T22:30:00-0130", 0},
		{"1969-12-31T23:59:60Z", 0},
		{"9999-12-31T23:59:59Z", INT64_MAX},
		{"0001-01-01T00:00:00Z", INT64_MIN},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int64_t wall_ns = 7;

		if (!date_read(rows[i].text, &wall_ns) || wall_ns != rows[i].wall_ns) {
			fail_msg("%s is %lld", rows[i].text, (long long)wall_ns);
		}
	}
}

static void anything_else_is_no_moment(void **state)
{
	static const char *const texts[] = {"", "now", "1970", "1970-1-1T00:00:00Z", "1970-01-01",
		"1970-01-01T00:00Z", "1970-13-01T00:00:00Z", "1970-00-01T00:00:00Z",
		"1970-01-32T00:00:00Z", "1970-01-01T25:00:00Z", "1970-01-01T00:61:00Z",
		"1970-01-01T00:00:00.Z", "1970-01-01T00:00:00+", "1970-01-01T00:00:00+2",
		"1970-01-01T00:00:00+02:", "1970-01-01T00:00:00+02:60", "1970-01-01 00:00:01Z",
		"1970-01-01T00:00:00Zx", " 1970-01-01T00:00:00Z", "-970-01-01T00:00:00Z",
		"1970-01-01T00:00:00 Z"};
	int64_t wall_ns;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (date_read(texts[i], &wall_ns)) {
			fail_msg("\"%s\" is taken for a moment", texts[i]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_calendar_is_the_systems),
		cmocka_unit_test(forms_are_understood),
		cmocka_unit_test(anything_else_is_no_moment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
