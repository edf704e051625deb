/*
 * The cost model against plans carried out in virtual time: hosts send one message after the other,
 * and receive one after the other, at the link's rate.
 */
#include "coll/cost.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANKS 16

static const struct coll_link gigabit = {125e6, 50e-6, 5e-6};

/* One rank a host. */
struct world {
	struct coll_topo topo;
	struct coll_plan plans[RANKS]; /* of each */
	size_t at[RANKS];              /* next step */
	double now[RANKS];             /* when the steps before are over */
	double out_free[RANKS];        /* when the network takes the next message */
	double in_free[RANKS];         /* when it has brought the last one */
	double *sent[RANKS][RANKS];    /* owned; when each message to a rank has left */
	size_t sent_n[RANKS][RANKS];   /* of them */
	size_t taken[RANKS][RANKS];    /* received */
};

static void send_at(struct world *w, uint32_t rank, const struct coll_step *step)
{
	size_t *n = &w->sent_n[rank][step->peer];
	double start = w->now[rank] > w->out_free[rank] ? w->now[rank] : w->out_free[rank];

	w->out_free[rank] =
		start + gigabit.message_s + (double)step->len_bytes / gigabit.bytes_per_s;
	w->sent[rank][step->peer] = realloc(w->sent[rank][step->peer], (*n + 1) * sizeof(double));
	w->sent[rank][step->peer][(*n)++] = w->out_free[rank];
}

/* False: it was not sent yet. Its bytes come while they are sent, unless others' do. */
static bool receive_at(struct world *w, uint32_t rank, const struct coll_step *step)
{
	double left;
	double busy;

	if (w->taken[step->peer][rank] == w->sent_n[step->peer][rank]) {
		return false;
	}
	left = w->sent[step->peer][rank][w->taken[step->peer][rank]++] + gigabit.latency_s;
	busy = w->in_free[rank] + (double)step->len_bytes / gigabit.bytes_per_s;
	w->in_free[rank] = left > busy ? left : busy;
	w->now[rank] = w->now[rank] > w->in_free[rank] ? w->now[rank] : w->in_free[rank];
	return true;
}

/* Seconds until the last rank is done; each does its list in order, but does not wait for what it
 * sends. */
static double carry_out(uint32_t ranks, enum coll_way way, uint64_t len)
{
	struct world *w = calloc(1, sizeof(*w));
	uint32_t where[RANKS];
	double last = 0;
	bool more = true;

	for (uint32_t r = 0; r < ranks; r++) {
		where[r] = r;
	}
	assert_int_equal(coll_topo_init(&w->topo, where, ranks, 0, NULL), 0);
	for (uint32_t r = 0; r < ranks; r++) {
		assert_int_equal(coll_plan_all_reduce(&w->plans[r], &w->topo, r, way, len, NULL),
			0);
	}
	while (more) {
		more = false;
		for (uint32_t r = 0; r < ranks; r++) {
			const struct coll_step *step = &w->plans[r].steps[w->at[r]];

			if (w->at[r] == w->plans[r].steps_n ||
				(step->op == COLL_RECV && !receive_at(w, r, step))) {
				continue;
			}
			if (step->op == COLL_SEND) {
				send_at(w, r, step);
			}
			w->at[r]++;
			more = true;
		}
	}
	for (uint32_t r = 0; r < ranks; r++) {
		assert_int_equal(w->at[r], w->plans[r].steps_n);
		last = w->now[r] > last ? w->now[r] : last;
		for (uint32_t q = 0; q < ranks; q++) {
			free(w->sent[r][q]);
		}
		coll_plan_deinit(&w->plans[r]);
	}
	coll_topo_deinit(&w->topo);
	free(w);
	return last;
}

/* The model is not far from what comes of it, by all ways. */
static void check_predictions(uint32_t n, uint64_t len)
{
	struct coll_hosts hosts = {n, 0};

	for (enum coll_way way = 0; way < COLL_WAYS; way++) {
		double took;
		double said;

		if (!coll_way_fits(way, n)) {
			continue;
		}
		took = carry_out(n, way, len);
		said = coll_cost_s(&gigabit, &hosts, way, len);
		if (took > 1.3 * said || said > 1.3 * took) {
			fail_msg("%u hosts, %llu bytes, %s: %g s, predicted %g s", n,
				(unsigned long long)len, coll_way_name(way), took, said);
		}
		assert_true(took >= 0.999 * coll_bound_s(&gigabit, &hosts, len));
		assert_true(said >= 0.999 * coll_bound_s(&gigabit, &hosts, len));
	}
}

static void predictions(void **state)
{
	for (uint32_t n = 2; n <= RANKS; n++) {
		check_predictions(n, 64);
		check_predictions(n, 64 << 10);
		check_predictions(n, 25 << 20);
	}
}

/* The best of what is ours; direct, if it is within a tenth of that. */
static void check_choice(const struct coll_link *link, uint32_t n, uint64_t len)
{
	struct coll_hosts hosts = {n, 0};
	enum coll_way best = coll_choose(link, &hosts, len);
	double best_s = coll_cost_s(link, &hosts, best, len);

	assert_int_not_equal(best, COLL_RING);
	assert_true(
		best == COLL_DIRECT || best_s < 0.9 * coll_cost_s(link, &hosts, COLL_DIRECT, len));
	for (enum coll_way way = 0; way < COLL_RING; way++) {
		if (coll_way_fits(way, n)) {
			double least_s = best == COLL_DIRECT ? 0.9 * best_s : best_s;

			assert_true(least_s <= coll_cost_s(link, &hosts, way, len));
		}
	}
}

/* Few bytes in few messages, many bytes once. */
static void choices(void **state)
{
	static const struct coll_link dear = {125e6, 10e-6, 20e-6}; /* messages are */

	for (uint32_t n = 1; n <= 64; n++) {
		for (uint64_t len = 64; len <= 1ULL << 30; len *= 4) {
			check_choice(&gigabit, n, len);
			check_choice(&coll_link_default, n, len);
		}
	}
	assert_int_equal(coll_choose(&gigabit, &(struct coll_hosts){4, 0}, 64), COLL_DOUBLING);
	assert_int_equal(coll_choose(&gigabit, &(struct coll_hosts){4, 0}, 25 << 20), COLL_DIRECT);
	assert_int_equal(coll_choose(&gigabit, &(struct coll_hosts){1, 0}, 25 << 20), COLL_DIRECT);
	assert_int_equal(coll_choose(&dear, &(struct coll_hosts){64, 0}, 16 << 10), COLL_HALVING);
}

/* Servers are asked for what is long enough: the rest has other ways. */
static void choices_with_servers(void **state)
{
	for (uint32_t n = 2; n <= 64; n *= 2) {
		struct coll_hosts hosts = {n, n / 2};
		struct coll_hosts alone = {n, 0};

		assert_int_equal(coll_choose(&gigabit, &hosts, 64), COLL_DOUBLING);
		assert_int_equal(coll_choose(&gigabit, &hosts, 25 << 20), COLL_DIRECT);
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

	assert_int_equal(coll_choose(&coll_link_default, &four, 24000), COLL_DOUBLING);
	assert_int_equal(coll_choose(&coll_link_default, &four, 25000), COLL_DIRECT);
	for (uint32_t n = 2; n <= 16; n++) {
		const struct coll_hosts hosts = {n, 0};

		assert_int_equal(coll_choose(&coll_link_default, &hosts, 1 << 10), COLL_DOUBLING);
		assert_int_equal(coll_choose(&coll_link_default, &hosts, 256 << 10), COLL_DIRECT);
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
	assert_true(link.bytes_per_s == 118e6); /* as it was */
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
