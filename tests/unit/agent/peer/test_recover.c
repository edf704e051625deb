/* The choice of the save that the hosts restore from memory: small cases at random, compared with
 * the rule as it is written down, and a few by hand. */
#include "agent/peer/recover.h"
#include "base/rng.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the standard headers above. */
#include <cmocka.h>

#define HELD_MAX 200u

static struct rng rng;
static struct recover_held held[HELD_MAX];
static uint32_t held_n;
static struct recover_plan plan;

static void add(uint32_t host, uint64_t run, uint64_t number, uint32_t first_rank, uint32_t ranks)
{
	struct peer_part part = {.save = {.run = run, .number = number},
		.step = 100 * number,
		.world = 4,
		.first_rank = first_rank,
		.ranks = ranks};

	snprintf(part.tag, sizeof(part.tag), "step%u", (unsigned)part.step);
	assert_true(held_n < HELD_MAX);
	held[held_n++] = (struct recover_held){.host = host, .part = part};
}

/* A host holds a sum: its parts are listed. */
static void add_sum(uint32_t host, const struct peer_parity *sum, const uint32_t *first_ranks,
	uint32_t world)
{
	for (uint32_t i = 0; i < sum->k; i++) {
		add(host, 1, 1, first_ranks[i], 1);
		held[held_n - 1].part.world = world;
		held[held_n - 1].part.parity = *sum;
		held[held_n - 1].part.parity.index = i;
	}
}

/* ---- the rule, literally ---- */

static bool is_same_save(const struct peer_part *a, const struct peer_part *b)
{
	return a->save.run == b->save.run && a->save.number == b->save.number;
}

static bool is_valid(const struct peer_part *part, uint32_t world)
{
	return part->save.run != 0 && part->world == world && part->ranks > 0 &&
		(uint64_t)part->first_rank + part->ranks <= world;
}

static bool has_rank(const struct peer_part *part, uint32_t rank)
{
	return rank >= part->first_rank && rank - part->first_rank < part->ranks;
}

static bool counts(const struct peer_part *part, uint32_t world)
{
	for (uint32_t i = 0; i < held_n; i++) {
		const struct peer_part *other = &held[i].part;
		bool overlaps = false;

		if (!is_valid(other, world) || !is_same_save(part, other)) {
			continue;
		}
		for (uint32_t r = 0; r < world; r++) {
			overlaps |= has_rank(part, r) && has_rank(other, r);
		}
		if (overlaps &&
			(part->first_rank != other->first_rank || part->ranks != other->ranks)) {
			return false;
		}
	}
	return is_valid(part, world);
}

static bool is_candidate(const struct peer_part *part, uint32_t world)
{
	for (uint32_t i = 0; i < held_n; i++) {
		const struct peer_part *other = &held[i].part;

		if (is_valid(other, world) && is_same_save(part, other) &&
			(part->step != other->step || strcmp(part->tag, other->tag) != 0)) {
			return false;
		}
	}
	for (uint32_t r = 0; r < world; r++) {
		bool found = false;

		for (uint32_t i = 0; i < held_n; i++) {
			const struct peer_part *other = &held[i].part;

			found |= is_same_save(part, other) && has_rank(other, r) &&
				counts(other, world);
		}
		if (!found) {
			return false;
		}
	}
	return is_valid(part, world);
}

static const struct peer_part *choose(uint32_t world, bool has_step, uint64_t step)
{
	const struct peer_part *best = NULL;

	for (uint32_t i = 0; i < held_n; i++) {
		const struct peer_part *part = &held[i].part;

		if (!is_candidate(part, world) || (has_step && part->step != step)) {
			continue;
		}
		if (best == NULL || part->step > best->step ||
			(part->step == best->step &&
				(part->save.number > best->save.number ||
					(part->save.number == best->save.number &&
						part->save.run > best->save.run)))) {
			best = part;
		}
	}
	return best;
}

static bool is_source(uint32_t host, uint32_t first_rank, uint32_t ranks)
{
	for (uint32_t i = 0; i < plan.sources_n; i++) {
		if (plan.sources[i].host == host && plan.sources[i].first_rank == first_rank &&
			plan.sources[i].ranks == ranks) {
			return true;
		}
	}
	return false;
}

/* Every host that holds a part is a source, once; and nothing else is. */
static void assert_sources(void)
{
	uint32_t pairs = 0; /* different pairs of host and part */

	for (uint32_t i = 0; i < held_n; i++) {
		const struct peer_part *part = &held[i].part;
		bool seen = false;

		if (!is_valid(part, part->world) || part->world != 4 ||
			part->save.run != plan.save.run || part->save.number != plan.save.number) {
			continue;
		}
		assert_true(is_source(held[i].host, part->first_rank, part->ranks));
		for (uint32_t j = 0; j < i; j++) {
			seen |= held[j].host == held[i].host &&
				held[j].part.first_rank == part->first_rank &&
				held[j].part.world == 4 && is_same_save(&held[j].part, part);
		}
		pairs += !seen;
	}
	assert_int_equal(plan.sources_n, pairs);
	for (uint32_t i = 1; i < plan.sources_n; i++) {
		const struct recover_source *a = &plan.sources[i - 1];
		const struct recover_source *b = &plan.sources[i];

		assert_true(a->first_rank <= b->first_rank);
		if (a->first_rank == b->first_rank) {
			assert_true(b->host != b->first_rank);
			assert_true(a->host == a->first_rank || a->host < b->host);
		}
	}
}

static void the_rule_holds_for_any_parts(void **state)
{
	unsigned found = 0;

	for (int round = 0; round < 40000; round++) {
		const struct peer_part *best;
		bool has_step = rng_below(&rng, 3) == 0;
		uint64_t step = 100 * rng_below(&rng, 4);

		held_n = 0;
		for (uint32_t n = (uint32_t)rng_below(&rng, 24); n > 0; n--) {
			uint32_t first = (uint32_t)rng_below(&rng, 4);

			add((uint32_t)rng_below(&rng, 4), rng_below(&rng, 16) ? 1 + n % 2 : 0,
				1 + rng_below(&rng, 2), first & ~1u, 2);
			if (rng_below(&rng, 8) == 0) {
				held[held_n - 1].part.first_rank = first;
				held[held_n - 1].part.ranks = (uint32_t)rng_below(&rng, 5);
			}
			held[held_n - 1].part.step += rng_below(&rng, 60) == 0 ? 100 : 0;
			held[held_n - 1].part.tag[0] = rng_below(&rng, 60) == 0 ? 'x' : 's';
			held[held_n - 1].part.world += rng_below(&rng, 20) == 0;
		}
		best = choose(4, has_step, step);
		if (best != NULL) {
			struct peer_part expected = *best;

			recover_choose(held, held_n, 4, has_step, step, &plan);
			assert_true(plan.found);
			assert_int_equal(plan.save.run, expected.save.run);
			assert_int_equal(plan.save.number, expected.save.number);
			assert_int_equal(plan.step, expected.step);
			assert_string_equal(plan.tag, expected.tag);
			assert_sources();
			found++;
		} else {
			recover_choose(held, held_n, 4, has_step, step, &plan);
			assert_false(plan.found);
			assert_int_equal(plan.sources_n, 0);
		}
	}
	assert_true(found > 4000 && found < 36000); /* both happen often */
}

/* ---- sums ---- */

#define WORLD 7u /* hosts, of one rank each: groups of 4 and 3 */
#define M     2u

/* Where a sum of a group is held in the test below. */
struct test_sum {
	uint32_t group;   /* 0 or 1 */
	uint32_t row;     /* number of the sum */
	uint32_t missing; /* index that is not listed; UINT32_MAX: all are */
};

static struct test_sum sums[8];
static uint32_t sums_n;
static bool is_held[WORLD];

/* Whether what is held is enough: the rule, counted. */
static bool is_enough(void)
{
	for (uint32_t group = 0; group < 2; group++) {
		uint32_t k = group == 0 ? 4 : 3;
		uint32_t data = 0;
		uint32_t rows = 0; /* bit set */

		for (uint32_t i = 0; i < k; i++) {
			data += is_held[4 * group + i];
		}
		for (uint32_t i = 0; i < sums_n; i++) {
			if (sums[i].group == group && sums[i].missing >= k) {
				rows |= 1u << sums[i].row;
			}
		}
		if (data < k && data + (rows & 1) + (rows >> 1) < k) {
			return false;
		}
	}
	return true;
}

/* Each part has a source for every host that holds it, and one for each row that counts. */
static void assert_rows(void)
{
	uint32_t at = 0;

	for (uint32_t rank = 0; rank < WORLD; rank++) {
		uint32_t rows = 0;

		if (is_held[rank]) {
			assert_int_equal(plan.sources[at].host, rank);
			assert_int_equal(plan.sources[at].parity.k, 0);
			assert_int_equal(plan.sources[at++].first_rank, rank);
		}
		for (uint32_t i = 0; i < sums_n; i++) {
			if (sums[i].group == rank / 4 && sums[i].missing == UINT32_MAX) {
				rows |= 1u << sums[i].row;
			}
		}
		for (uint32_t row = 0; row < M; row++) {
			const struct recover_source *source = &plan.sources[at];

			if ((rows >> row & 1) == 0) {
				continue;
			}
			assert_int_equal(source->first_rank, rank);
			assert_int_equal(source->ranks, 1);
			assert_int_equal(source->parity.k, rank < 4 ? 4 : 3);
			assert_int_equal(source->parity.group, rank < 4 ? 0 : 4);
			assert_int_equal(source->parity.index, rank % 4);
			assert_int_equal(source->parity.row, row);
			at++;
		}
	}
	assert_int_equal(plan.sources_n, at);
}

static void make_group(uint32_t group, uint32_t first_ranks[4], struct peer_parity *sum)
{
	for (uint32_t i = 0; i < 4; i++) {
		first_ranks[i] = 4 * group + i;
	}
	*sum = (struct peer_parity){.group = 4 * group, .k = group == 0 ? 4 : 3, .m = M};
}

static void enough_rows_make_a_save_whole(void **state)
{
	unsigned found = 0;

	for (unsigned round = 0; round < 20000; round++) {
		bool whole;

		held_n = 0;
		sums_n = (uint32_t)rng_below(&rng, 8);
		for (uint32_t i = 0; i < sums_n; i++) {
			uint32_t first_ranks[4];
			struct peer_parity sum;

			sums[i] = (struct test_sum){(uint32_t)rng_below(&rng, 2),
				(uint32_t)rng_below(&rng, M), UINT32_MAX};
			make_group(sums[i].group, first_ranks, &sum);
			sum.row = sums[i].row;
			add_sum(10 + i, &sum, first_ranks, WORLD);
			if (rng_below(&rng, 8) == 0) {
				sums[i].missing = sum.k - 1; /* the last one listed */
				held_n--;
			}
		}
		for (uint32_t rank = 0; rank < WORLD; rank++) {
			is_held[rank] = rng_below(&rng, 4) > 0;
			if (is_held[rank]) {
				add(rank, 1, 1, rank, 1);
				held[held_n - 1].part.world = WORLD;
			}
		}
		for (uint32_t i = 0; i < sums_n; i++) {
			uint32_t k = sums[i].group == 0 ? 4 : 3;

			sums[i].missing = sums[i].missing < k ? 0 : UINT32_MAX;
		}
		whole = is_enough();
		recover_choose(held, held_n, WORLD, false, 0, &plan);
		assert_int_equal(plan.found, whole);
		if (whole) {
			assert_rows();
			found++;
		}
	}
	assert_true(found > 2000 && found < 18000); /* both happen often */
}

/* A save of which rank 0's part is in one sum only, or two; each change makes it useless. */
static void groups_that_disagree_are_no_save(void **state)
{
	for (uint32_t wrong = 0; wrong < 6; wrong++) {
		uint32_t first_ranks[4];
		struct peer_parity sum;
		struct peer_part *last;

		held_n = 0;
		make_group(0, first_ranks, &sum);
		add_sum(10, &sum, first_ranks, 4);
		sum.row = 1;
		add_sum(11, &sum, first_ranks, 4);
		for (uint32_t rank = 1; rank < 4; rank++) {
			add(rank, 1, 1, rank, 1);
		}
		recover_choose(held, held_n, 4, false, 0, &plan);
		assert_true(plan.found);
		assert_int_equal(plan.sources[0].host, 10);
		assert_int_equal(plan.sources[1].host, 11);
		assert_int_equal(plan.sources[2].host, 1);
		last = NULL;
		for (uint32_t i = 0; i < held_n; i++) {
			if (held[i].host == 11 && held[i].part.first_rank == 3) {
				last = &held[i].part;
			}
		}
		assert_non_null(last);
		if (last == NULL) {
			return;
		}
		last->parity.k += wrong == 0;
		last->parity.m += wrong == 1;
		last->parity.index -= wrong == 2;
		last->parity.group += wrong == 3;
		last->step += wrong == 4;
		if (wrong == 5) { /* another part at the same place */
			add(11, 1, 1, 2, 1);
			held[held_n - 1].part.parity = last->parity;
		}
		recover_choose(held, held_n, 4, false, 0, &plan);
		assert_false(plan.found);
	}
}

static void the_own_host_comes_first(void **state)
{
	held_n = 0;
	add(0, 1, 5, 2, 2);
	add(3, 1, 5, 2, 2);
	add(2, 1, 5, 2, 2);
	add(2, 1, 5, 0, 2);
	add(0, 1, 5, 0, 2);
	add(2, 1, 5, 2, 2); /* as a replica, too */
	add(0, 1, 6, 0, 2); /* newer, but not whole */
	recover_choose(held, held_n, 4, false, 0, &plan);
	assert_true(plan.found);
	assert_int_equal(plan.step, 500);
	assert_string_equal(plan.tag, "step500");
	assert_int_equal(plan.sources_n, 5);
	assert_int_equal(plan.sources[0].host, 0);
	assert_int_equal(plan.sources[1].host, 2);
	assert_int_equal(plan.sources[2].host, 2);
	assert_int_equal(plan.sources[3].host, 0);
	assert_int_equal(plan.sources[4].host, 3);
	recover_choose(held, held_n, 4, true, 600, &plan);
	assert_false(plan.found);
	recover_choose(held, 0, 4, false, 0, &plan);
	assert_false(plan.found);
	recover_choose(held, held_n, 0, false, 0, &plan);
	assert_false(plan.found);
}

/* More sources than fit: every part keeps some. */
static void many_hosts_are_cut_evenly(void **state)
{
	const uint32_t world = 300;
	const uint32_t copies = 5;
	struct recover_held *many = calloc((size_t)world * copies, sizeof(*many));

	for (uint32_t i = 0; i < world * copies; i++) {
		uint32_t rank = i % world;

		many[i].host = (rank + i / world) % world;
		many[i].part = (struct peer_part){.save = {.run = 1, .number = 1},
			.world = world,
			.first_rank = rank,
			.ranks = 1};
	}
	recover_choose(many, world * copies, world, false, 0, &plan);
	assert_true(plan.found);
	assert_int_equal(plan.sources_n, world * (PEER_PARTS_MAX / world));
	for (uint32_t i = 0; i < plan.sources_n; i++) {
		assert_int_equal(plan.sources[i].first_rank, i / (PEER_PARTS_MAX / world));
	}
	assert_int_equal(plan.sources[0].host, 0);
	free(many);
	many = calloc(PEER_PARTS_MAX + 1, sizeof(*many));
	for (uint32_t i = 0; i <= PEER_PARTS_MAX; i++) {
		many[i].part = (struct peer_part){.save = {.run = 1, .number = 1},
			.world = PEER_PARTS_MAX + 1,
			.first_rank = i,
			.ranks = 1};
	}
	recover_choose(many, PEER_PARTS_MAX + 1, PEER_PARTS_MAX + 1, false, 0, &plan);
	assert_false(plan.found);
	free(many);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rule_holds_for_any_parts),
		cmocka_unit_test(the_own_host_comes_first),
		cmocka_unit_test(enough_rows_make_a_save_whole),
		cmocka_unit_test(groups_that_disagree_are_no_save),
		cmocka_unit_test(many_hosts_are_cut_evenly),
	};

	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
