/* Worker and agent together, saving by tag: ranks of which not all save, which come late, leave,
 * die or disagree; and a root in which nothing unfinished may lie. */
#include "test_session_tags.h"

#include <sched.h>

/* ---- several ranks ---- */

static void a_rank_that_never_saves_is_not_waited_for(void **unused)
{
	struct pawl_ckpt *one = join_named(1, 2, 0, NULL);
	struct pawl_ckpt *zero = join_named(0, 2, 0, NULL);

	must_wait(zero, save(zero, "t", "a"), PAWL_CKPT_COMMITTED);
	expect(one, "t", true, FILES("a"));                    /* rank 1 can read it */
	must_wait(one, save(one, "t", "b"), PAWL_CKPT_STAGED); /* rank 1 comes late */
	must_wait(zero, save(zero, "u", "a"), PAWL_CKPT_STAGED);
	expect(zero, "t", false, FILES("a", "b"));
	assert_int_equal(pawl_ckpt_wait(zero, 2, PAWL_CKPT_COMMITTED, 200, NULL), PAWL_ETIMEDOUT);
	/* Rank 1 saves, as is known now. */
	must_wait(one, save(one, "u", "b"), PAWL_CKPT_COMMITTED);
	expect(one, "u", true, FILES("a", "b"));
	leave(one);
	leave(zero);
}

static void a_rank_that_left_is_not_waited_for(void **unused)
{
	struct pawl_ckpt *zero = join_named(0, 2, 0, NULL);
	struct pawl_ckpt *one = join_named(1, 2, 0, NULL);
	uint64_t id;

	save(zero, "t", "a");
	must_wait(one, save(one, "t", "b"), PAWL_CKPT_COMMITTED);
	id = save(zero, "u", "a");
	leave(one);
	must_wait(zero, id, PAWL_CKPT_DURABLE);
	must_wait(zero, save(zero, "v", "a"), PAWL_CKPT_DURABLE);
	expect(zero, NULL, true, FILES("a"));
	leave(zero);
}

static void a_tag_without_a_dead_rank_never_was(void **unused)
{
	struct pawl_ckpt *zero = join_named(0, 2, 0, NULL);
	struct pawl_ckpt *one = join_named(1, 2, 0, NULL);
	struct pawl_ckpt_pending pending[PAWL_CKPT_PENDING_MAX];
	uint64_t id;
	uint32_t n;

	save(zero, "t", "a");
	must_wait(one, save(one, "t", "b"), PAWL_CKPT_DURABLE);
	for (int begun = 0; begun < 2; begun++) {
		id = save(zero, "u", "a");
		if (begun) {
			begin(one, "u");
			must_add(one, "u", "b", 5000);
		}
		die(one);
		assert_int_equal(
			pawl_ckpt_wait(zero, id, PAWL_CKPT_COMMITTED, begun ? WAIT_MS : 300, NULL),
			begun ? PAWL_ECANCELED : PAWL_ETIMEDOUT);
		expect(zero, NULL, true, FILES("a", "b"));
		expect_none(zero, "u");
		assert_int_equal(pawl_ckpt_pending(zero, pending, &n, NULL), 0);
		assert_int_equal(n, 0);
		die(zero);
		assert_false(is_there("u"));
		zero = join_named(0, 2, 0, NULL);
		one = join_named(1, 2, 0, NULL);
		expect_newest(zero, "t");
		expect_newest(one, "t");
		save(zero, "t", "a");
		must_wait(one, save(one, "t", "b"), PAWL_CKPT_DURABLE);
	}
	leave(zero);
	leave(one);
}

static void two_ranks_cannot_share_a_name(void **unused)
{
	struct pawl_ckpt *zero = join_named(0, 2, 0, NULL);
	struct pawl_ckpt *one = join_named(1, 2, 0, NULL);
	uint64_t a = save(zero, "t", "same");
	uint64_t b = save(one, "t", "same");

	must_fail(zero, a, PAWL_EMISMATCH, "ranks 0 and 1 both saved");
	must_fail(one, b, PAWL_EMISMATCH, "ranks 0 and 1 both saved");
	save(zero, "t", "a");
	must_wait(one, save(one, "t", "b"), PAWL_CKPT_DURABLE);
	a = save(zero, "t", "c"); /* the other rank's file, of the round before */
	b = save(one, "t", "a");
	must_fail(zero, a, PAWL_EMISMATCH, "ranks 0 and 1 both saved");
	must_fail(one, b, PAWL_EMISMATCH, "ranks 0 and 1 both saved");
	expect(zero, "t", true, FILES("a", "b"));
	for (int i = 0; i < 3; i++) { /* Nobody waits for what cannot be. */
		save(zero, "u", "a");
		must_wait(one, save(one, "u", "b"), PAWL_CKPT_DURABLE);
	}
	leave(zero);
	leave(one);
}

static void a_tag_fails_for_all(void **unused)
{
	struct pawl_ckpt *zero = join_named(0, 2, 0, NULL);
	struct pawl_ckpt *one = join_named(1, 2, 0, NULL);
	struct pawl_ckpt_pending pending[PAWL_CKPT_PENDING_MAX];
	struct pawl_err err;
	uint64_t a, b;
	uint32_t n;

	a = begin(zero, "t");
	must_add(zero, "t", "a", 5000);
	b = begin(one, "t");
	must_add(one, "t", "b", 5000);
	pawl_ckpt_drop(one, "rank 1 gave up");
	must_fail(one, b, PAWL_ECANCELED, "rank 1 gave up");
	WITHIN_DOING(WITHIN_LONG_S, level_of(zero, a) == PAWL_CKPT_FAILED, sched_yield());
	/* Rank 0 needs more room, which it would get as the first of a new attempt. */
	assert_int_equal(add(zero, "t", "more", 8u << 20, &err), PAWL_ECANCELED);
	assert_non_null(strstr(err.msg, "rank 1 gave up"));
	begin(one, "u");
	pawl_ckpt_drop(one, "and once more, before it asked");
	assert_int_equal(pawl_ckpt_pending(one, pending, &n, NULL), 0); /* the agent knows */
	assert_int_equal(add(zero, "u", "a", 1, &err), PAWL_EINVAL);
	begin(zero, "u");
	assert_int_equal(add(zero, "u", "a", 1, &err), PAWL_ECANCELED);
	assert_non_null(strstr(err.msg, "once more"));
	save(zero, "u", "a");
	must_wait(one, save(one, "u", "b"), PAWL_CKPT_COMMITTED);
	expect(one, NULL, true, FILES("a", "b"));
	leave(zero);
	leave(one);
}

/* One rank's part outgrows memory when the other's lies in it already. */
static void one_rank_outgrows_memory(void **unused)
{
	struct pawl_ckpt *zero = join_named(0, 2, MEMORY, NULL);
	struct pawl_ckpt *one = join_named(1, 2, MEMORY, NULL);
	struct pawl_restore *restore;
	uint64_t id = save(zero, "t", "a");

	begin(one, "t");
	must_add(one, "t", "b", 5000);
	must_add(one, "t", "large", LARGE);
	must_commit(one);
	must_wait(zero, id, PAWL_CKPT_DURABLE);
	restore = must_find(zero, "t");
	expect_file(restore, "a", 5000);
	expect_file(restore, "b", 5000);
	expect_file(restore, "large", LARGE);
	pawl_restore_close(restore);
	leave(zero);
	leave(one);
}

/* ---- a root in which nothing unfinished may lie ---- */

static void nothing_unfinished_lies_in_root(void **unused)
{
	char hidden[PATH_MAX];
	struct pawl_ckpt *ckpt;

	snprintf(hidden, sizeof(hidden), "%s/.hidden", dir);
	ckpt = join_named(0, 1, MEMORY, hidden);
	begin(ckpt, "t");
	must_add(ckpt, "t", "a", 5000);
	must_add(ckpt, "t", "large", LARGE); /* is being written */
	assert_int_equal(count_names(root), 0);
	kill_agent();
	assert_int_equal(count_names(root), 0);
	assert_true(count_names(hidden) > 1);
	pawl_ckpt_close(ckpt, 0, NULL);
	start_agent();
	ckpt = join_named(0, 1, 0, hidden);
	assert_int_equal(count_names(root), 0);
	assert_int_equal(count_names(hidden), 1); /* the lock */
	must_wait(ckpt, save(ckpt, "t", "a"), PAWL_CKPT_DURABLE);
	must_wait(ckpt, save(ckpt, "t", "b"), PAWL_CKPT_DURABLE);
	expect(ckpt, "t", false, FILES("a", "b"));
	assert_int_equal(pawl_ckpt_pin(ckpt, "t", true, NULL), 0);
	leave(ckpt);
	assert_true(is_there("t/complete.txt"));
	assert_false(is_there(".pins") || is_there(".pawl-lock"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_rank_that_never_saves_is_not_waited_for, setup,
			teardown),
		cmocka_unit_test_setup_teardown(a_rank_that_left_is_not_waited_for, setup,
			teardown),
		cmocka_unit_test_setup_teardown(a_tag_without_a_dead_rank_never_was, setup,
			teardown),
		cmocka_unit_test_setup_teardown(two_ranks_cannot_share_a_name, setup, teardown),
		cmocka_unit_test_setup_teardown(a_tag_fails_for_all, setup, teardown),
		cmocka_unit_test_setup_teardown(one_rank_outgrows_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_unfinished_lies_in_root, setup, teardown),
	};

	return argc > 1 ? run_agent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
