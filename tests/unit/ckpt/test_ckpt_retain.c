/* Retention keeps what it must: the rule by example, then the invariant over every small
 * history. */
#include "ckpt/format/retain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define HISTORY 5u /* tags of a small history */

static void keeps_last_every_and_pinned(void **state)
{
	const struct retain_tag tags[] = {
		{100, true, false},
		{200, true, true},
		{300, true, false},
		{350, false, false},
		{400, true, false},
		{500, false, false},
	};
	const struct retain_rule rule = {.keep_last = 1, .keep_every = 300};
	bool keep[6];

	retain_plan(&rule, tags, 6, keep);
	assert_false(keep[0]);
	assert_true(keep[1]); /* pinned */
	assert_true(keep[2]); /* a multiple of 300 */
	assert_true(keep[3]); /* incomplete: shows what went wrong */
	assert_true(keep[4]); /* the newest complete one */
	assert_true(keep[5]); /* incomplete: being written, or shows what went wrong */
}

static void zero_keeps_all(void **state)
{
	const struct retain_tag tags[] = {{1, true, false}, {2, true, false}, {3, true, false}};
	const struct retain_rule rule = {.keep_last = 0, .keep_every = 2};
	bool keep[3];

	retain_plan(&rule, tags, 3, keep);
	assert_true(keep[0] && keep[1] && keep[2]);
	retain_plan(&rule, NULL, 0, NULL);
}

/* The rule again, plainly and slowly: counts the complete tags that are newer. */
static bool keeps(const struct retain_rule *rule, const struct retain_tag *tags, unsigned i)
{
	unsigned newer = 0;

	for (unsigned j = i + 1; j < HISTORY; j++) {
		newer += tags[j].complete;
	}
	if (!tags[i].complete || tags[i].pinned || rule->keep_last == 0) {
		return true;
	}
	return newer < rule->keep_last ||
		(rule->keep_every != 0 && tags[i].step % rule->keep_every == 0);
}

/* All 4^5 histories under all rules up to keep_last 6 and keep_every 3. */
static void newest_complete_always_stays(void **state)
{
	for (unsigned h = 0; h < 1u << (2 * HISTORY); h++) {
		struct retain_tag tags[HISTORY];
		bool keep[HISTORY];
		int newest = -1;

		for (unsigned i = 0; i < HISTORY; i++) {
			tags[i] =
				(struct retain_tag){i, (h >> (2 * i)) & 1, (h >> (2 * i + 1)) & 1};
			newest = tags[i].complete ? (int)i : newest;
		}
		for (unsigned r = 0; r < 7 * 4; r++) {
			const struct retain_rule rule = {r % 7, r / 7};

			retain_plan(&rule, tags, HISTORY, keep);
			assert_true(newest < 0 || keep[newest]);
			for (unsigned i = 0; i < HISTORY; i++) {
				assert_int_equal(keep[i], keeps(&rule, tags, i));
			}
		}
	}
}

/* Marks every tag for which retain_needs_complete is false as incomplete. Returns how many were
 * complete. */
static unsigned forget_unasked(const struct retain_rule *rule, struct retain_tag *tags)
{
	unsigned forgotten = 0;
	uint32_t newer = 0;

	for (unsigned i = HISTORY; i-- > 0;) {
		if (!retain_needs_complete(rule, &tags[i], newer)) {
			forgotten += tags[i].complete;
			tags[i].complete = false;
		}
		newer += tags[i].complete;
	}
	return forgotten;
}

/* The plan does not depend on tags for which retain_needs_complete is false. */
static void what_is_not_asked_for_changes_nothing(void **state)
{
	unsigned forgotten = 0;

	for (unsigned h = 0; h < 1u << (2 * HISTORY); h++) {
		for (unsigned r = 0; r < 7 * 4; r++) {
			const struct retain_rule rule = {r % 7, r / 7};
			struct retain_tag tags[HISTORY];
			bool whole[HISTORY];
			bool keep[HISTORY];

			for (unsigned i = 0; i < HISTORY; i++) {
				tags[i] = (struct retain_tag){i, (h >> (2 * i)) & 1,
					(h >> (2 * i + 1)) & 1};
			}
			retain_plan(&rule, tags, HISTORY, whole);
			forgotten += forget_unasked(&rule, tags);
			retain_plan(&rule, tags, HISTORY, keep);
			assert_memory_equal(keep, whole, sizeof(keep));
		}
	}
	assert_true(forgotten > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_last_every_and_pinned),
		cmocka_unit_test(zero_keeps_all),
		cmocka_unit_test(newest_complete_always_stays),
		cmocka_unit_test(what_is_not_asked_for_changes_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
