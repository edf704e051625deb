/* The scheduler's core with many jobs: what it computes once for all of them equals a plain
 * computation, which is here. */
#include "base/rng.h"
#include "equal.h"
#include "sched/core/core_impl.h"
#include "seed.h"

#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define S_NS       1000000000LL
#define NODES      40u
#define SLOTS      8u
#define JOBS_MAX   400u
#define OWNERS     30u
#define TURNS      20u
#define OWNER_MOST 20u

static const struct core_queue queues[] = {{.name = "main", .weight = 1},
	{.name = "large", .weight = 1, .slots_max = 100},
	{.name = "small", .weight = 1, .slots_max = 12}};

static struct {
	struct sched_core *core;
	int64_t now_ns;
	struct rng rng;
} t;

static uint32_t below(uint32_t n)
{
	return (uint32_t)rng_below(&t.rng, n);
}

static uint64_t step(struct core_event event)
{
	uint64_t id = 0;

	event.now_ns = t.now_ns;
	assert_int_equal(core_step(t.core, &event, &id, NULL), 0);
	core_rows_done(t.core);
	return id;
}

static void begin(uint32_t owner_slots_max)
{
	struct core_options options = {.queues = queues,
		.queues_n = 3,
		.owner_slots_max = owner_slots_max,
		.round_ns = 60 * S_NS,
		.start_timeout_ns = 100 * S_NS,
		.kill_interval_ns = 5 * S_NS,
		.backoff_ns = S_NS,
		.backoff_max_ns = 60 * S_NS,
		.policy = &equal_policy};

	core_close(t.core);
	t.core = NULL;
	t.now_ns = S_NS;
	equal_wrong = EQUAL_RIGHT;
	assert_int_equal(core_open(&t.core, &options, NULL), 0);
	for (uint32_t n = 0; n < NODES; n++) {
		struct core_offer offer = {.slots = SLOTS};

		snprintf(offer.name, sizeof(offer.name), "node%u", n);
		step((struct core_event){.kind = CORE_NODE_REPORTED, .offer = &offer});
	}
}

static void submit(void)
{
	struct core_request request = {.least = 1 + below(3), .owner = OWNERS * below(OWNERS)};

	snprintf(request.queue, sizeof(request.queue), "%s", queues[below(3)].name);
	request.most = request.least + below(30);
	request.priority = (int32_t)below(3);
	request.pinned = below(2) == 0;
	step((struct core_event){.kind = CORE_SUBMIT, .request = &request});
}

/* Makes steps until each job runs or waits, and nothing is pending. */
static void settle(void)
{
	const struct core_job *const *jobs;
	bool all = false;

	for (uint32_t turn = 0; !all; turn++) {
		all = true;
		assert_true(turn < 100);
		t.now_ns += S_NS;
		step((struct core_event){.kind = CORE_TIMER});
		for (uint32_t j = 0; j < core_jobs(t.core, &jobs); j++) {
			struct core_event event = {.job = jobs[j]->id,
				.generation = jobs[j]->generation,
				.end_cause = CORE_END_STOPPED};

			if (jobs[j]->state == CORE_STARTING || jobs[j]->state == CORE_STOPPING) {
				event.kind =
					jobs[j]->state == CORE_STARTING ? CORE_RUNS : CORE_ENDED;
				step(event);
				all = false;
			}
		}
	}
}

/* Cancels a quarter of the jobs, or fewer: one may be drawn twice. */
static void cancel_some(void)
{
	const struct core_job *const *jobs;

	for (uint32_t i = core_jobs(t.core, &jobs) / 4; i > 0; i--) {
		const struct core_job *job = jobs[below(core_jobs(t.core, &jobs))];

		if (job->state < CORE_DONE) {
			step((struct core_event){.kind = CORE_CANCEL, .job = job->id});
		}
	}
}

/* ---- the plain way ---- */

/* A job before a decision. */
struct plain {
	struct core_request request;
	uint64_t id;
	uint32_t queue;
	uint32_t now; /* replicas that the job has */
	uint32_t cap; /* replicas that the job may have, at most */
};

static struct plain plain[JOBS_MAX];

/* Returns whether the job keeps its replicas in any case. */
static bool is_kept(const struct plain *job)
{
	return job->request.pinned && job->now > 0;
}

static int compare(const void *a, const void *b)
{
	const struct plain *x = a;
	const struct plain *y = b;

	if (is_kept(x) != is_kept(y)) {
		return is_kept(x) ? -1 : 1;
	}
	if (x->request.priority != y->request.priority) {
		return x->request.priority > y->request.priority ? -1 : 1;
	}
	if ((x->now > 0) != (y->now > 0)) {
		return x->now > 0 ? -1 : 1;
	}
	return x->id < y->id ? -1 : 1;
}

/* Returns whether the limits of the job's queue and of its owner leave room for more. */
static bool has_quota(uint32_t n, const struct plain *job, uint32_t more, uint32_t owner_slots_max)
{
	uint32_t of_queue = more;
	uint32_t of_owner = more;
	uint32_t most = queues[job->queue].slots_max;

	for (uint32_t i = 0; i < n; i++) {
		of_queue += plain[i].queue == job->queue ? plain[i].cap : 0;
		of_owner += plain[i].request.owner == job->request.owner ? plain[i].cap : 0;
	}
	return (most == 0 || of_queue <= most) &&
		(owner_slots_max == 0 || of_owner <= owner_slots_max);
}

static void share(uint32_t n, bool to_now, uint32_t owner_slots_max)
{
	for (bool more = true; more;) {
		more = false;
		for (uint32_t i = 0; i < n; i++) {
			struct plain *job = &plain[i];
			uint32_t most = to_now ? job->now : job->request.most;

			if (job->cap > 0 && job->cap < most && !is_kept(job) &&
				has_quota(n, job, 1, owner_slots_max)) {
				job->cap++;
				more = true;
			}
		}
	}
}

/* Returns the id of the last job admitted before i that has a higher priority; 0: none. */
static uint64_t find_above(uint32_t i)
{
	for (uint32_t k = i; k-- > 0;) {
		if (plain[k].cap > 0 && plain[k].request.priority > plain[i].request.priority) {
			return plain[k].id;
		}
	}
	return 0;
}

static void decide_and_compare(uint32_t owner_slots_max)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(t.core, &jobs);
	uint32_t room = NODES * SLOTS;

	assert_true(n <= JOBS_MAX);
	for (uint32_t j = 0; j < n; j++) {
		plain[j] = (struct plain){.request = jobs[j]->request,
			.id = jobs[j]->id,
			.queue = jobs[j]->queue,
			.now = jobs[j]->current.replicas};
	}
	qsort(plain, n, sizeof(*plain), compare);
	t.now_ns += 61 * S_NS;
	step((struct core_event){.kind = CORE_TIMER});
	for (uint32_t i = 0; i < n; i++) {
		const struct core_job *job = core_job_find(t.core, plain[i].id);
		bool fits = has_quota(n, &plain[i], plain[i].request.least, owner_slots_max);

		if (is_kept(&plain[i]) || (fits && plain[i].request.least <= room)) {
			plain[i].cap = is_kept(&plain[i]) ? plain[i].now : plain[i].request.least;
			room -= plain[i].cap;
		} else if (fits) {
			assert_int_equal(job->wait_for, find_above(i));
		}
	}
	share(n, true, owner_slots_max);
	share(n, false, owner_slots_max);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(core_job_find(t.core, plain[i].id)->scratch->cap, plain[i].cap);
	}
}

static void quotas_are_shared_as_a_plain_model_shares_them(void **state)
{
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		uint32_t owner_slots_max = turn % 2 == 0 ? OWNER_MOST : 0;

		begin(owner_slots_max);
		for (uint32_t round = 0; round < 4; round++) {
			for (uint32_t i = 0; i < JOBS_MAX / 4; i++) {
				submit();
			}
			settle();
			decide_and_compare(owner_slots_max);
			settle();
			cancel_some();
			settle();
		}
	}
}

/* ---- lists ---- */

static void shuffle(struct core_run *runs, uint32_t n)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t k = below(i);
		struct core_run run = runs[i - 1];

		runs[i - 1] = runs[k];
		runs[k] = run;
	}
}

/* Lists runs in any order: of each job the generation before its start, and of two in three also
 * the present one. */
static void runs_are_found_in_any_order(void **state)
{
	struct core_run runs[2 * JOBS_MAX + 1];
	const struct core_job *const *jobs;
	const struct core_update *updates;
	uint32_t runs_n = 0;
	uint32_t kills = 0;
	uint32_t n;

	begin(0);
	for (uint32_t i = 0; i < JOBS_MAX / 4; i++) {
		submit();
	}
	settle();
	t.now_ns += CORE_LIST_NS;
	step((struct core_event){.kind = CORE_TIMER});
	settle();
	n = core_jobs(t.core, &jobs);
	for (uint32_t j = 0; j < n; j++) {
		if (jobs[j]->state == CORE_RUNNING) {
			runs[runs_n++] =
				(struct core_run){jobs[j]->id, jobs[j]->start_generation - 1, true};
		}
		if (jobs[j]->state == CORE_RUNNING && j % 3 != 0) {
			runs[runs_n++] = (struct core_run){jobs[j]->id, jobs[j]->generation, true};
		}
	}
	runs[runs_n++] = (struct core_run){1000000, 1, true};
	shuffle(runs, runs_n);
	step((struct core_event){.kind = CORE_LISTED, .runs = runs, .runs_n = runs_n});
	for (uint32_t j = 0; j < n; j++) {
		bool gone = jobs[j]->start_generation > 0 && j % 3 == 0;

		assert_int_equal(jobs[j]->reason == CORE_WHY_GONE, gone);
	}
	updates = core_updates(t.core, &n);
	for (uint32_t i = 0; i < runs_n; i++) {
		const struct core_job *job = core_job_find(t.core, runs[i].job);

		/* Kills come in the order of the list. */
		if (!job || runs[i].generation < job->start_generation) {
			assert_true(kills < n);
			assert_int_equal(updates[kills].kind, CORE_DO_KILL);
			assert_int_equal(updates[kills].job, runs[i].job);
			assert_int_equal(updates[kills++].generation, runs[i].generation);
		}
	}
	assert_true(kills > runs_n / 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quotas_are_shared_as_a_plain_model_shares_them),
		cmocka_unit_test(runs_are_found_in_any_order),
	};
	int rv;

	t.rng.state = test_seed();
	rv = cmocka_run_group_tests(tests, NULL, NULL);
	core_close(t.core);
	return rv;
}
