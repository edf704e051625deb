/* An admission whose end some ranks learned of and others did not: all that remain come to one
 * group, or end, whichever rank is lost or taken for lost meanwhile. */
#include "base/err.h"
#include "coll/group/group_impl.h"
#include "test_coll_endpoints.h"
#include "test_coll_heartbeat.h"
#include "within.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANKS   4 /* the last one is a newcomer */
#define OLD     (RANKS - 1)
#define LONG_NS within_ns(WITHIN_LONG_S)

/* What a rank does with the group that it was in, and with the one that all have joined. */
enum fate {
	NOTIFIED, /* goes on in the next group, and has sent a notice of that */
	UNSURE,   /* has received no notice, and shrinks the old group */
	LOST,     /* ends, and has sent no notice */
	AWAKE,    /* knows that all have joined, but is taken for lost; later goes on in next */
};

struct rank {
	uint32_t number;
	enum fate fate;
	struct test_endpoints *endpoints[2]; /* endpoints of the old group, and of the next */
	struct pawl_group *old, *next;       /* owned; old: NULL at the newcomer */
	struct pawl_group *left; /* owned; group that the rank is in at the end; NULL: none */
	uint32_t ranks[RANKS];   /* ranks of left, numbered as in the group that was shrunk */
	uint32_t n;              /* number of entries in ranks */
	int rv;
	struct pawl_err err;
};

static void *join_both(void *user)
{
	struct rank *r = user;

	r->old = r->number < OLD ? join_by_endpoints(r->endpoints[0], r->number, OLD) : NULL;
	r->next = join_by_endpoints(r->endpoints[1], r->number, RANKS);
	return NULL;
}

static void *go_on(void *user)
{
	struct rank *r = user;
	struct pawl_group *from = r->fate == UNSURE ? r->old : r->next;

	r->rv = IN_TIME(pawl_group_shrink(&r->left, from, 1, r->ranks, &r->n, LONG_NS, &r->err));
	return NULL;
}

static void run_all(struct rank *all, uint32_t n, enum fate first, enum fate last,
	void *(*act)(void *))
{
	pthread_t threads[RANKS];
	bool runs[RANKS] = {false};

	for (uint32_t r = 0; r < n; r++) {
		runs[r] = all[r].fate >= first && all[r].fate <= last;
		if (runs[r]) {
			assert_int_equal(pthread_create(&threads[r], NULL, act, &all[r]), 0);
		}
	}
	for (uint32_t r = 0; r < n; r++) {
		if (runs[r]) {
			pthread_join(threads[r], NULL);
		}
	}
}

/* Leaves the old group, once the others have received this rank's notice. */
static void leave_old(struct rank *r)
{
	pawl_group_close(r->old);
	r->old = NULL;
}

static void begin(struct rank *all, const enum fate *fates)
{
	static struct test_endpoints endpoints[2];

	memset(endpoints, 0, sizeof(endpoints));
	for (uint32_t r = 0; r < RANKS; r++) {
		all[r] = (struct rank){.number = r, .endpoints = {&endpoints[0], &endpoints[1]}};
	}
	run_all(all, RANKS, NOTIFIED, AWAKE, join_both);
	for (uint32_t r = 0; r < OLD; r++) {
		all[r].fate = fates[r];
		if (fates[r] == UNSURE) {
			all[r].old->lineage.grown = all[r].next;
			all[r].next = NULL; /* owned by old */
		}
		if (fates[r] == LOST || fates[r] == AWAKE) {
			leave_old(&all[r]);
		}
		if (fates[r] == LOST) {
			pawl_group_close(all[r].next);
			all[r].next = NULL;
		}
		if (fates[r] == NOTIFIED) {
			assert_int_equal(group_notify_moved(all[r].old, NULL), 0);
			leave_old(&all[r]);
		}
	}
}

static void end(struct rank *all)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		pawl_group_close(all[r].left);
		pawl_group_close(all[r].next);
		pawl_group_close(all[r].old);
	}
}

static void assert_left(const struct rank *r, uint32_t n, const uint32_t *ranks)
{
	assert_int_equal(r->rv, 0);
	assert_int_equal(r->n, n);
	assert_memory_equal(r->ranks, ranks, n * sizeof(*ranks));
}

/* Ranks that have received a notice and ranks that have not come to one group, without the
 * newcomer, which ends. */
static void unnotified_ranks_follow(void **state)
{
	const uint32_t left[] = {0, 1};

	for (uint32_t who = 0; who < 2; who++) {
		enum fate fates[OLD] = {who == 0 ? NOTIFIED : UNSURE, who == 0 ? UNSURE : NOTIFIED,
			LOST};
		struct rank all[RANKS];

		begin(all, fates);
		run_all(all, RANKS, NOTIFIED, UNSURE, go_on);
		assert_left(&all[0], 2, left);
		assert_left(&all[1], 2, left);
		assert_int_equal(all[OLD].rv, PAWL_EPEER);
		end(all);
	}
}

/* If no rank has received a notice, the old group goes on. */
static void who_is_alone_with_it_stays(void **state)
{
	const enum fate fates[OLD] = {UNSURE, LOST, UNSURE};
	const uint32_t left[] = {0, 2};
	struct rank all[RANKS];

	begin(all, fates);
	run_all(all, OLD, UNSURE, UNSURE, go_on);
	assert_left(&all[0], 2, left);
	assert_left(&all[2], 2, left);
	assert_null(all[0].old->lineage.grown);
	run_all(all + OLD, 1, NOTIFIED, NOTIFIED, go_on);
	assert_int_equal(all[OLD].rv, PAWL_EPEER);
	end(all);
}

/* The others went on in the old group while the rank was stopped: it does not train on with
 * newcomers. */
static void a_notified_rank_taken_for_lost_ends(void **state)
{
	const enum fate fates[OLD] = {UNSURE, AWAKE, UNSURE};
	const uint32_t left[] = {0, 2};
	struct rank all[RANKS];

	begin(all, fates);
	run_all(all, OLD, UNSURE, UNSURE, go_on);
	assert_left(&all[0], 2, left);
	assert_left(&all[2], 2, left);
	run_all(all, OLD, AWAKE, AWAKE, go_on);
	assert_int_equal(all[1].rv, PAWL_EPEER);
	assert_non_null(strstr(all[1].err.msg, "goes on without this rank"));
	end(all);
}

/* A rank that was stopped before it received a notice, and has not joined, ends too. */
static void who_stood_still_before_ends(void **state)
{
	const enum fate fates[OLD] = {NOTIFIED, NOTIFIED, UNSURE};
	struct rank all[RANKS];

	begin(all, fates);
	pawl_group_close(all[2].old->lineage.grown);
	all[2].old->lineage.grown = NULL;
	run_all(all, RANKS, UNSURE, UNSURE, go_on);
	assert_int_equal(all[2].rv, PAWL_EPEER);
	assert_non_null(strstr(all[2].err.msg, "goes on without this rank"));
	end(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unnotified_ranks_follow),
		cmocka_unit_test(who_is_alone_with_it_stays),
		cmocka_unit_test(a_notified_rank_taken_for_lost_ends),
		cmocka_unit_test(who_stood_still_before_ends),
	};

	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
