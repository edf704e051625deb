/* Quantities: what the API documents, what its server rounds, and what is none. */
#include "engine/k8s/quantity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

struct row {
	const char *text;
	uint32_t per;
	uint64_t value;
};

static void check_rows(const struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t value = 0;

		if (!quantity_read(rows[i].text, rows[i].per, &value) || value != rows[i].value) {
			fail_msg("%s in 1/%u is %llu, not %llu", rows[i].text, rows[i].per,
				(unsigned long long)value, (unsigned long long)rows[i].value);
		}
	}
}

#define CHECK(rows) check_rows(rows, sizeof(rows) / sizeof(rows[0]))

static void suffixes_are_read(void **state)
{
	static const struct row rows[] = {
		{"0", 1, 0},
		{"8", 1, 8},
		{"+8", 1, 8},
		{"500m", 1000, 500},
		{"1", 1000, 1000},
		{"1.5", 1000, 1500},
		{"0.1", 1000, 100},
		{".5", 1000, 500},
		{"5.", 1000, 5000},
		{"16Gi", 1, (uint64_t)16 << 30},
		{"1.5Gi", 1, (uint64_t)3 << 29},
		{"128974848", 1, 128974848},
		{"129e6", 1, 129000000},
		{"129E6", 1, 129000000},
		{"129M", 1, 129000000},
		{"123Mi", 1, (uint64_t)123 << 20},
		{"1e3", 1, 1000},
		{"1e-3", 1000, 1},
		{"1E", 1, 1000000000000000000},
		{"1Ei", 1, (uint64_t)1 << 60},
		{"2k", 1, 2000},
		{"3T", 1, 3000000000000},
		{"3P", 1, 3000000000000000},
	};

	CHECK(rows);
}

static void what_is_between_two_units_is_rounded_up(void **state)
{
	static const struct row rows[] = {
		{"1m", 1, 1},
		{"100u", 1000, 1},
		{"1n", 1, 1},
		{"1001m", 1, 2},
		{"1000m", 1, 1},
		{"0.0000000000000000000001", 1, 1},
		{"1.00000000000000000000000000000001", 1, 2},
		{"0.001234567890123456789Ei", 1000, 1423359869420436338},
		{"0.001234567890123456789Ei", 1, 1423359869420437},
	};

	CHECK(rows);
}

static void what_is_too_large_is_as_large_as_can_be(void **state)
{
	static const struct row rows[] = {
		{"16Ei", 1, UINT64_MAX},
		{"99999999999999999999999999999999999999", 1, UINT64_MAX},
		{"1e60", 1, UINT64_MAX},
		{"1e999999999999999999999", 1, UINT64_MAX},
		{"18446744073709551615", 1, UINT64_MAX},
		{"0e999999", 1, 0},
	};

	CHECK(rows);
}

static void anything_else_is_none(void **state)
{
	static const char *const texts[] = {"", " 1", "1 ", "-1", "+-1", ".", "Gi", "1K", "1ki",
		"1Mb", "1mi", "1Gi1", "1e", "1e+", "1e1.5", "1ee3", "0x10", "1_000", "1,5", "NaN",
		"1..5", "1.5.5",
		"0000000000000000000000000000000000000000000000000000000000000000000001"};
	uint64_t value;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (quantity_read(texts[i], 1, &value)) {
			fail_msg("\"%s\" is taken for %llu", texts[i], (unsigned long long)value);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(suffixes_are_read),
		cmocka_unit_test(what_is_between_two_units_is_rounded_up),
		cmocka_unit_test(what_is_too_large_is_as_large_as_can_be),
		cmocka_unit_test(anything_else_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
