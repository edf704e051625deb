/* The first of several hosts chooses what all make durable: the others learn its choice, and the
 * first learns what they want. */
#include "agent/peer/chooser.h"
#include "agent/peer/rounds.h"
#include "base/fault.h"
#include "each_fault.h"
#include "peer_hosts.h"
#include "seed.h"
#include "times.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RUN   7u
#define HOSTS 3u

/* Hosts, each with a chooser. */
struct job {
	struct host hosts[HOSTS];
	struct chooser *choosers[HOSTS];
	struct peer_map map;
	struct peer_save taken[HOSTS]; /* what each host has taken last */
};

static struct job *job_open(void)
{
	struct job *job = calloc(1, sizeof(*job));

	assert_non_null(job);
	hosts_open(job->hosts, HOSTS, RUN, &job->map);
	for (uint32_t i = 0; i < HOSTS; i++) {
		OK(chooser_start(&job->choosers[i], job->hosts[i].peers, job->hosts[i].loop, ROOT,
			i == 0, &err));
		chooser_set_run(job->choosers[i], RUN);
	}
	return job;
}

static void job_close(struct job *job)
{
	for (uint32_t i = HOSTS; i-- > 0;) {
		chooser_stop(job->choosers[i]);
	}
	for (uint32_t i = 0; i < HOSTS; i++) {
		if (job->hosts[i].peers) {
			host_close(&job->hosts[i]);
		}
	}
	free(job);
}

static struct peer_save save_of(uint64_t run, uint64_t number)
{
	return (struct peer_save){.run = run, .number = number};
}

static void choose(struct job *job, uint64_t run, uint64_t number)
{
	struct peer_save save = save_of(run, number);

	chooser_choose(job->choosers[0], &save);
}

static void want(struct job *job, uint32_t host, uint64_t run, uint64_t number)
{
	struct peer_save save = save_of(run, number);

	chooser_want(job->choosers[host], &save);
}

/* Whether the last that a host has taken is this save. */
static bool has_taken(struct job *job, uint32_t host, uint64_t run, uint64_t number)
{
	struct peer_save save = save_of(run, number);
	struct peer_save news;

	if (chooser_take(job->choosers[host], &news)) {
		job->taken[host] = news;
	}
	return peer_save_is(&job->taken[host], &save);
}

static void all_learn_the_choice(void **state)
{
	/* The last one is older: what was chosen before has failed. */
	static const uint64_t numbers[] = {3, 4, 9, 8};
	struct job *job = job_open();

	for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++) {
		choose(job, RUN, numbers[n]);
		for (uint32_t i = 1; i < HOSTS; i++) {
			WITHIN(WITHIN_LONG_S, has_taken(job, i, RUN, numbers[n]));
		}
	}
	assert_int_equal(job->taken[0].run, 0);
	job_close(job);
}

static void the_leader_learns_what_is_wanted_until_it_is_not(void **state)
{
	const struct peer_save none = {0};
	struct job *job = job_open();

	want(job, 1, RUN, 5);
	WITHIN(WITHIN_LONG_S, has_taken(job, 0, RUN, 5));
	job->taken[0] = none;
	WITHIN(WITHIN_LONG_S, has_taken(job, 0, RUN, 5)); /* again */
	want(job, 2, RUN, 4);
	WITHIN(WITHIN_LONG_S, has_taken(job, 0, RUN, 4));
	WITHIN(WITHIN_LONG_S, has_taken(job, 0, RUN, 5));
	chooser_want(job->choosers[1], &none);
	chooser_want(job->choosers[2], &none);
	within_pace(2 * (double)times_ns(TIME_PEER_CHOICE) / NS_PER_S); /* the last requests */
	has_taken(job, 0, RUN, 5);
	job->taken[0] = none;
	within_pace(2 * (double)times_ns(TIME_PEER_CHOICE) / NS_PER_S);
	has_taken(job, 0, RUN, 5);
	assert_int_equal(job->taken[0].run, 0);
	job_close(job);
}

static void a_new_run_forgets_the_choice(void **state)
{
	struct job *job = job_open();

	choose(job, RUN, 9);
	WITHIN(WITHIN_LONG_S, has_taken(job, 1, RUN, 9));
	for (uint32_t i = 0; i < HOSTS; i++) {
		chooser_set_run(job->choosers[i], 0);
	}
	choose(job, RUN, 10); /* too late */
	for (uint32_t i = HOSTS; i-- > 0;) {
		chooser_set_run(job->choosers[i], RUN + 1);
	}
	choose(job, RUN, 11);
	choose(job, RUN + 1, 1);
	WITHIN(WITHIN_LONG_S, has_taken(job, 1, RUN + 1, 1));
	WITHIN(WITHIN_LONG_S, has_taken(job, 2, RUN + 1, 1));
	want(job, 2, RUN, 3); /* a save of the run before */
	want(job, 1, RUN + 1, 2);
	WITHIN(WITHIN_LONG_S, has_taken(job, 0, RUN + 1, 2));
	job_close(job);
}

/* A host that is in the run later than the leader gets the choice all the same. */
static void who_comes_late_gets_the_choice(void **state)
{
	struct job *job = job_open();

	chooser_set_run(job->choosers[1], 0);
	choose(job, RUN, 2);
	WITHIN(WITHIN_LONG_S, has_taken(job, 2, RUN, 2));
	assert_false(has_taken(job, 1, RUN, 2));
	chooser_set_run(job->choosers[1], RUN);
	WITHIN(WITHIN_LONG_S, has_taken(job, 1, RUN, 2));
	job_close(job);
}

static void a_lost_leader_holds_nobody_up(void **state)
{
	struct job *job = job_open();

	choose(job, RUN, 1);
	WITHIN(WITHIN_LONG_S, has_taken(job, 1, RUN, 1));
	chooser_stop(job->choosers[0]);
	job->choosers[0] = NULL;
	host_close(&job->hosts[0]);
	job->hosts[0].peers = NULL;
	want(job, 1, RUN, 2);
	within_pace(0.05);
	assert_false(has_taken(job, 1, RUN, 2));
	job_close(job); /* ends at once */
}

static int try_start(void)
{
	struct host hosts[HOSTS];
	struct chooser *chooser = NULL;
	struct peer_map map;
	int rv;

	hosts_open(hosts, 1, RUN, &map);
	rv = chooser_start(&chooser, hosts[0].peers, hosts[0].loop, ROOT, true, &err);
	chooser_stop(chooser);
	host_close(&hosts[0]);
	return rv;
}

static void a_start_that_fails_leaves_nothing(void **state)
{
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		fault_arm("chooser.", nth, ENOMEM, false);
		rv = try_start();
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && fault_reached(nth)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_learn_the_choice),
		cmocka_unit_test(the_leader_learns_what_is_wanted_until_it_is_not),
		cmocka_unit_test(a_new_run_forgets_the_choice),
		cmocka_unit_test(who_comes_late_gets_the_choice),
		cmocka_unit_test(a_lost_leader_holds_nobody_up),
		cmocka_unit_test(a_start_that_fails_leaves_nothing),
	};

	test_times("peer_choice=0.05,peer_retry=0.03,peer_connect=600,peer_answer=600");
	rng.state = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
