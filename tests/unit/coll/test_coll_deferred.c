/* Deferred operations, whose data a device has yet to deliver: they keep their place, and wait for
 * the data. */
#include "base/err.h"
#include "test_coll_heartbeat.h"
#include "test_coll_world.h"

#include <string.h>

#define NUMBERS  5000
#define SHORT_NS (20 * NS_PER_MS)

struct sum {
	struct pawl_work work;
	int32_t numbers[NUMBERS];
};

static void fill(struct sum *sum, uint32_t rank)
{
	for (uint32_t i = 0; i < NUMBERS; i++) {
		sum->numbers[i] = (int32_t)(i + rank);
	}
}

static void check(const struct sum *sum)
{
	for (uint32_t i = 0; i < NUMBERS; i++) {
		assert_int_equal(sum->numbers[i], (int32_t)(RANKS * i + RANKS * (RANKS - 1) / 2));
	}
}

static void begin(struct pawl_group *group, struct sum *sum, bool deferred, int64_t timeout_ns)
{
	const struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_INT32,
		.len_bytes = sizeof(sum->numbers),
		.in = sum->numbers,
		.out = sum->numbers,
		.timeout_ns = timeout_ns,
		.deferred = deferred};

	assert_int_equal(pawl_group_submit(group, &sum->work, &call, NULL), 0);
}

/* Rank 1's third sum is ready last; other channels go on meanwhile, later sums of its channel do
 * not. */
static void *sum_with_one_late(void *user)
{
	struct member *m = user;
	struct sum sums[7];
	bool late = m->rank == 1;

	for (uint32_t i = 0; i < 7; i++) {
		bool deferred = late && i == 2;

		if (!deferred) {
			fill(&sums[i], m->rank);
		}
		begin(m->group, &sums[i], deferred, LONG_NS);
	}
	for (uint32_t i = 0; i < 6; i++) {
		if (i != 2) {
			assert_int_equal(
				IN_TIME(pawl_group_wait(m->group, &sums[i].work, LONG_NS, NULL)),
				0);
			check(&sums[i]);
		}
	}
	if (late) {
		assert_int_equal(pawl_group_wait(m->group, &sums[2].work, SHORT_NS, NULL),
			PAWL_ETIMEDOUT);
		assert_false(pawl_work_done(&sums[2].work) || pawl_work_done(&sums[6].work));
		fill(&sums[2], m->rank);
		pawl_group_release(m->group, &sums[2].work);
	}
	for (uint32_t i = 2; i < 7; i += 4) {
		assert_int_equal(IN_TIME(pawl_group_wait(m->group, &sums[i].work, LONG_NS, NULL)),
			0);
		check(&sums[i]);
	}
	return NULL;
}

static void it_keeps_its_place(void **state)
{
	struct world w;

	open_world(&w);
	run_world(&w, sum_with_one_late);
	close_world(&w);
}

/* Nobody waits where the sum is released: the group's thread carries it out. */
static void *sum_unattended(void *user)
{
	struct member *m = user;
	struct sum sum;

	begin(m->group, &sum, true, LONG_NS);
	within_pace(0.001 * m->rank);
	fill(&sum, m->rank);
	pawl_group_release(m->group, &sum.work);
	WITHIN_DOING(WITHIN_LONG_S, pawl_work_done(&sum.work), within_pace(0.0001));
	check(&sum);
	return NULL;
}

static void the_groups_thread_begins_it(void **state)
{
	struct world w;

	open_world(&w);
	run_world(&w, sum_unattended);
	close_world(&w);
}

/* Two messages with one tag, of which the first is ready last. */
static void messages_keep_their_order(void **state)
{
	struct pawl_coll_call call = {.kind = PAWL_SEND,
		.dtype = PAWL_UINT8,
		.root = 1,
		.len_bytes = 8,
		.deferred = true};
	char sent[2][8] = {"", "second"};
	char got[2][8];
	struct pawl_work works[4];
	struct world w;
	struct pawl_group *from;
	struct pawl_group *to;

	open_world(&w);
	from = w.members[0].group;
	to = w.members[1].group;
	for (uint32_t i = 0; i < 2; i++) {
		call.in = sent[i];
		call.deferred = i == 0;
		assert_int_equal(pawl_group_submit(from, &works[i], &call, NULL), 0);
	}
	call = (struct pawl_coll_call){.kind = PAWL_RECEIVE, .dtype = PAWL_UINT8, .len_bytes = 8};
	for (uint32_t i = 0; i < 2; i++) {
		call.out = got[i];
		assert_int_equal(pawl_group_submit(to, &works[2 + i], &call, NULL), 0);
	}
	assert_int_equal(pawl_group_wait(to, &works[3], SHORT_NS, NULL), PAWL_ETIMEDOUT);
	memcpy(sent[0], "first", 6);
	pawl_group_release(from, &works[0]);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(IN_TIME(pawl_group_wait(from, &works[i], LONG_NS, NULL)), 0);
		assert_int_equal(IN_TIME(pawl_group_wait(to, &works[2 + i], LONG_NS, NULL)), 0);
		assert_string_equal(got[i], sent[i]);
	}
	close_world(&w);
}

/* An operation that is never ready ends with a timeout whose error names that. It may be released
 * afterwards. */
static void its_time_out_names_it(void **state)
{
	struct pawl_coll_call send = {.kind = PAWL_SEND,
		.dtype = PAWL_UINT8,
		.root = 1,
		.len_bytes = 1,
		.in = "x",
		.timeout_ns = SHORT_NS,
		.deferred = true};
	struct pawl_work message;

	for (uint32_t i = 0; i < 2; i++) {
		struct pawl_err err;
		struct sum sum;
		struct pawl_work *work = i == 0 ? &sum.work : &message;
		struct world w;

		open_world(&w);
		if (i == 0) {
			begin(w.members[0].group, &sum, true, SHORT_NS);
		} else {
			assert_int_equal(pawl_group_submit(w.members[0].group, work, &send, NULL),
				0);
		}
		assert_int_equal(pawl_group_wait(w.members[0].group, work, LONG_NS, &err),
			PAWL_ETIMEDOUT);
		assert_true(pawl_work_done(work));
		assert_non_null(strstr(err.msg, "this rank's data is not ready"));
		pawl_group_release(w.members[0].group, work);
		close_world(&w);
	}
}

static void leaving_ends_it(void **state)
{
	struct pawl_err err;
	struct sum sum;
	struct world w;

	open_world(&w);
	begin(w.members[0].group, &sum, true, 0);
	pawl_group_leave(w.members[0].group);
	assert_int_equal(IN_TIME(pawl_group_wait(w.members[0].group, &sum.work, LONG_NS, &err)),
		PAWL_ECANCELED);
	pawl_group_release(w.members[0].group, &sum.work);
	close_world(&w);
}

static void alone(void **state)
{
	struct pawl_coll_call call = {.kind = PAWL_ALL_GATHER,
		.dtype = PAWL_UINT8,
		.len_bytes = 6,
		.deferred = true};
	char endpoint[PAWL_ENDPOINT_MAX];
	const char *endpoints[] = {endpoint};
	char in[6] = "";
	char out[6] = "";
	struct pawl_work work;
	struct pawl_group *group;

	assert_int_equal(pawl_group_open(&group, 0, 1, NULL, endpoint, NULL), 0);
	assert_int_equal(IN_TIME(pawl_group_join(group, endpoints, LONG_NS, NULL)), 0);
	call.in = in;
	call.out = out;
	assert_int_equal(pawl_group_submit(group, &work, &call, NULL), 0);
	assert_int_equal(pawl_group_wait(group, &work, SHORT_NS, NULL), PAWL_ETIMEDOUT);
	assert_true(pawl_group_watch(group, &work));
	memcpy(in, "ready", 6);
	pawl_group_release(group, &work);
	assert_ptr_equal(pawl_group_next_completion(group), &work);
	assert_int_equal(IN_TIME(pawl_group_wait(group, &work, LONG_NS, NULL)), 0);
	assert_string_equal(out, "ready");
	pawl_group_close(group);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_keeps_its_place),
		cmocka_unit_test(the_groups_thread_begins_it),
		cmocka_unit_test(messages_keep_their_order),
		cmocka_unit_test(its_time_out_names_it),
		cmocka_unit_test(leaving_ends_it),
		cmocka_unit_test(alone),
	};

	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
