/* The cost model against plans that are executed in virtual time. */
#include "carry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANKS 16

static const struct coll_link gigabit = {125e6, 50e-6, 5e-6};

/* Checks for every algorithm that the predicted cost is close to that of its plan. */
static void check_predictions(uint32_t n, uint64_t len)
{
	struct coll_hosts hosts = {n, 0};

	for (enum coll_algorithm algorithm = 0; algorithm < COLL_ALGORITHMS; algorithm++) {
		double took;
		double predicted;

		if (!coll_algorithm_fits(algorithm, n)) {
			continue;
		}
		carry_all_reduce(&took, &gigabit, 1, n, algorithm, len);
		predicted = coll_cost_s(&gigabit, &hosts, algorithm, len);
		if (took > 1.3 * predicted || predicted > 1.3 * took) {
			fail_msg("%u hosts, %llu bytes, %s: %g s, predicted %g s", n,
				(unsigned long long)len, coll_algorithm_name(algorithm), took,
				predicted);
		}
		assert_true(took >= 0.999 * coll_bound_s(&gigabit, &hosts, len));
		assert_true(predicted >= 0.999 * coll_bound_s(&gigabit, &hosts, len));
	}
}

static void predictions(void **state)
{
	for (uint32_t n = 2; n <= RANKS; n++) {
		check_predictions(n, 64);
		check_predictions(n, 64 << 10);
		check_predictions(n, 25 << 20);
	}
	for (uint32_t n = 64; n <= 256; n *= 2) {
		check_predictions(n, 64 << 10);
		check_predictions(n, 1 << 20);
	}
}

/* Checks the choice: the cheapest algorithm, or direct if that is within a tenth of it. */
static void check_choice(const struct coll_link *link, uint32_t n, uint64_t len)
{
	struct coll_hosts hosts = {n, 0};
	enum coll_algorithm best = coll_choose_algorithm(link, &hosts, len);
	double best_s = coll_cost_s(link, &hosts, best, len);

	assert_int_not_equal(best, COLL_RING);
	assert_true(
		best == COLL_DIRECT || best_s < 0.9 * coll_cost_s(link, &hosts, COLL_DIRECT, len));
	for (enum coll_algorithm algorithm = 0; algorithm < COLL_RING; algorithm++) {
		if (coll_algorithm_fits(algorithm, n)) {
			double least_s = best == COLL_DIRECT ? 0.9 * best_s : best_s;

			assert_true(least_s <= coll_cost_s(link, &hosts, algorithm, len));
		}
	}
}

/* Few bytes use few messages; many bytes are sent only once. */
static void choices(void **state)
{
	static const struct coll_link dear = {125e6, 10e-6, 20e-6}; /* messages are expensive */

	for (uint32_t n = 1; n <= 64; n++) {
		for (uint64_t len = 64; len <= 1ULL << 30; len *= 4) {
			check_choice(&gigabit, n, len);
			check_choice(&coll_link_default, n, len);
		}
	}
	assert_int_equal(coll_choose_algorithm(&gigabit, &(struct coll_hosts){4, 0}, 64),
		COLL_DOUBLING);
	assert_int_equal(coll_choose_algorithm(&gigabit, &(struct coll_hosts){4, 0}, 25 << 20),
		COLL_DIRECT);
	assert_int_equal(coll_choose_algorithm(&gigabit, &(struct coll_hosts){1, 0}, 25 << 20),
		COLL_DIRECT);
	assert_int_equal(coll_choose_algorithm(&dear, &(struct coll_hosts){64, 0}, 16 << 10),
		COLL_HALVING);
}

/* Servers are used for long vectors only; short ones use other algorithms. */
static void choices_with_servers(void **state)
{
	for (uint32_t n = 2; n <= 64; n *= 2) {
		struct coll_hosts hosts = {n, n / 2};
		struct coll_hosts alone = {n, 0};

		assert_int_equal(coll_choose_algorithm(&gigabit, &hosts, 64), COLL_DOUBLING);
		assert_int_equal(coll_choose_algorithm(&gigabit, &hosts, 25 << 20), COLL_DIRECT);
		assert_true(coll_cost_s(&gigabit, &hosts, COLL_DOUBLING, 64) ==
			coll_cost_s(&gigabit, &alone, COLL_DOUBLING, 64));
		assert_true(n == 2 ||
			coll_cost_s(&gigabit, &hosts, COLL_DIRECT, 25 << 20) <
				0.95 * coll_cost_s(&gigabit, &alone, COLL_DIRECT, 25 << 20));
	}
}

static void changes_without_a_measured_link(void **state)
{
	const struct coll_hosts four = {4, 0};

	assert_int_equal(coll_choose_algorithm(&coll_link_default, &four, 24000), COLL_DOUBLING);
	assert_int_equal(coll_choose_algorithm(&coll_link_default, &four, 25000), COLL_DIRECT);
	for (uint32_t n = 2; n <= 16; n++) {
		const struct coll_hosts hosts = {n, 0};

		assert_int_equal(coll_choose_algorithm(&coll_link_default, &hosts, 1 << 10),
			COLL_DOUBLING);
		assert_int_equal(coll_choose_algorithm(&coll_link_default, &hosts, 256 << 10),
			COLL_DIRECT);
	}
}

/* ---- links ---- */

static void links_are_read(void **state)
{
	static const char *const none[] = {"", "1e8", "1e8:1e-4", "1e8:1e-4:", "1e8:1e-4:1e-5:1",
		"1e8:1e-4:1e-5 ", "0:1e-4:1e-5", "-1e8:1e-4:1e-5", "1e8:-1e-4:1e-5", "1e8:11:1e-5",
		"1e8:1e-4:2", "nan:1e-4:1e-5", "1e8:nan:1e-5", "inf:1e-4:1e-5", "1e99:1e-4:1e-5"};
	char text[COLL_LINK_TEXT];
	struct coll_link link;

	assert_true(coll_link_parse("118000000:8.5e-05:2.1e-05", &link));
	assert_true(
		link.bytes_per_s == 118e6 && link.latency_s == 8.5e-5 && link.message_s == 2.1e-5);
	coll_link_print(&link, text);
	assert_string_equal(text, "1.18e+08:8.5e-05:2.1e-05");
	assert_true(coll_link_parse(text, &link));
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
		assert_false(coll_link_parse(none[i], &link));
	}
	assert_true(link.bytes_per_s == 118e6); /* a refused text leaves link unchanged */
	assert_true(coll_link_valid(&coll_link_default));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(predictions),
		cmocka_unit_test(choices),
		cmocka_unit_test(choices_with_servers),
		cmocka_unit_test(changes_without_a_measured_link),
		cmocka_unit_test(links_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
