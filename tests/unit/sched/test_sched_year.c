/*
 * The history of a cluster: hours with seeded faults, and with PAWL_LONG in the environment a year.
 * test_sched_world.h checks after each event what must be true. At the end, once nothing is broken
 * any more, each job that nobody cancelled has ended.
 */
#include "test_sched_world.h"

#include "sched/baseline/policies.h"
#include "seed.h"

#define LIVES         40u
#define LIVES_OF_PAWL 4u
#define HOUR_NS       (3600 * S_NS)
#define YEAR_NS       (365 * 24 * HOUR_NS)
#define RETRIES       100000u
#define DRAIN_H       200
#define GOES_S        120 /* seconds from a notice to the node's end, at most */
#define JOBS_MANY     24u /* jobs that are not over, at most: then users wait */
#define SLOTS         4u  /* slots of a node to which nothing has happened */

static uint64_t first_seed;

static const struct core_queue queues[] = {{.name = "main", .weight = 1},
	{.name = "small", .weight = 2, .slots_max = 6}};
static const struct core_pool pools[] = {
	{.name = "spot", .slots = 4, .price = 0.3, .spot = true, .most = 3},
	{.name = "firm", .slots = 4, .price = 1, .most = 3}};

static struct core_options usual(void)
{
	return (struct core_options){.queues = queues,
		.queues_n = 2,
		.round_ns = 60 * S_NS,
		.start_timeout_ns = 120 * S_NS,
		.kill_interval_ns = 10 * S_NS,
		.backoff_ns = 2 * S_NS,
		.backoff_max_ns = 300 * S_NS,
		.owner_slots_max = 12,
		.policy = &equal_policy};
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)rng_below(&w.rng, n);
}

/* Reports the hints of a job; each job's differ a little. */
static void report_hints(uint64_t job)
{
	struct sched_hints hints = {.fitted = true,
		.perf = {.alpha_c = 0.05,
			.beta_c = 0.001 * (1 + below(4)),
			.alpha_r = 0.01,
			.beta_r = 0.001 * (1 + below(8)),
			.alpha_n = 0.05,
			.beta_n = 0.002,
			.gamma = 2},
		.noise = {.sqr = 1, .var = 1 + below(40)},
		.bounds = {.init = 64,
			.max = 1024,
			.atomic_min = 8,
			.atomic_max = 256,
			.accumulate = true},
		.replicas_profiled = 1 + below(4),
		.progress = below(1000),
		.progress_end = 5000};

	user((struct core_event){.kind = CORE_HINTS, .job = job, .hints = &hints});
}

static void submit(void)
{
	const struct core_job *const *jobs;
	struct core_request request = {.owner = below(3),
		.retries = RETRIES,
		.grace_ns = 10 * S_NS};
	uint64_t id;

	if (core_jobs(w.core, &jobs) >= JOBS_MANY || w.jobs + 1 >= KNOWN_MAX) {
		return;
	}
	snprintf(request.queue, sizeof(request.queue), "%s", queues[below(2)].name);
	request.least = 1 + below(below(4) == 0 ? 6 : 2);
	request.most = request.least + below(8);
	request.priority = (int32_t)below(3);
	request.in_place = below(2) == 0;
	request.pinned = below(8) == 0;
	request.spot_most = below(2) == 0 ? request.most : below(3);
	request.spot_least = below(3) == 0 ? below(request.spot_most + 1) : 0;
	if (take(&(struct core_event){.kind = CORE_SUBMIT,
			 .now_ns = w.sim.now_ns,
			 .request = &request},
		    &id) == 0 &&
		below(2) == 0) {
		report_hints(id);
	}
}

static void command_some(void)
{
	static const enum core_event_kind kinds[] = {CORE_CANCEL, CORE_PAUSE, CORE_RESUME,
		CORE_RESUME, CORE_RESUME};
	enum core_event_kind kind = kinds[below(5)];
	uint64_t id =
		w.jobs > JOBS_MANY ? w.jobs - below(JOBS_MANY) : 1 + below((uint32_t)w.jobs + 1);

	if (user((struct core_event){.kind = kind, .job = id}) == 0 && kind == CORE_CANCEL) {
		w.known[id].cancelled = true;
	}
}

/* Gives a job other bounds, and another priority. */
static void change_some(void)
{
	uint64_t id =
		w.jobs > JOBS_MANY ? w.jobs - below(JOBS_MANY) : 1 + below((uint32_t)w.jobs + 1);
	struct core_change change = {.least = 1 + below(below(4) == 0 ? 6 : 2),
		.priority = (int32_t)below(3)};

	change.most = change.least + below(8);
	w.known[id].changed = true; /* until the job is within its bounds */
	user((struct core_event){.kind = CORE_CHANGE, .job = id, .change = change});
}

static void disturb_node(void)
{
	uint32_t n = below(ESIM_NODES);
	struct core_event event = {.node = w.sim.nodes[n].name};

	switch (below(8)) {
	case 0:
		esim_node_dies(&w.sim, n);
		break;
	case 1:
		esim_node_goes(&w.sim, n, (int64_t)below(GOES_S) * S_NS);
		break;
	case 2:
		event.kind = CORE_NODE_DRAIN;
		user(event);
		break;
	case 3:
		event.kind = CORE_NODE_RESUME;
		user(event);
		break;
	case 4:
	case 5:
		esim_node_resize(&w.sim, n, 1 + below(SLOTS));
		break;
	default:
		esim_node_returns(&w.sim, n);
	}
}

static void disturb(void)
{
	switch (below(10)) {
	case 0:
	case 1:
		command_some();
		break;
	case 8:
		change_some();
		break;
	case 2:
	case 3:
		for (uint32_t i = 0; i < 8; i++) {
			disturb_node();
		}
		break;
	default:
		submit();
	}
}

/* Ends all faults: every node is back. */
static void heal(void)
{
	w.sim.faults = (struct esim_faults){.slow_ms = 100};
	w.crash = 0;
	run_until(w.sim.now_ns + GOES_S * S_NS); /* nodes with a notice have gone */
	for (uint32_t n = 0; n < ESIM_NODES; n++) {
		esim_node_returns(&w.sim, n);
		esim_node_resize(&w.sim, n, SLOTS);
	}
	run_until(w.sim.now_ns + 60 * S_NS);
	for (uint32_t n = 0; n < ESIM_NODES; n++) {
		if (w.sim.nodes[n].known && w.sim.nodes[n].pool[0] == '\0') {
			user((struct core_event){.kind = CORE_NODE_RESUME,
				.node = w.sim.nodes[n].name});
		}
	}
	for (uint64_t id = 1; id <= w.jobs; id++) {
		user((struct core_event){.kind = CORE_RESUME, .job = id});
	}
}

static void print_left(uint64_t seed)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(w.core, &jobs);
	char text[CORE_TEXT_MAX];

	print_error("life %llu\n", (unsigned long long)seed);
	for (uint32_t j = 0; j < n; j++) {
		core_explain(w.core, jobs[j]->id, 0, text, NULL);
		print_error("job %llu, %u to %u: %s", (unsigned long long)jobs[j]->id,
			jobs[j]->request.least, jobs[j]->request.most, text);
	}
}

static uint32_t count_left(void)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(w.core, &jobs);
	uint32_t left = 0;

	for (uint32_t j = 0; j < n; j++) {
		left += jobs[j]->state < CORE_DONE;
	}
	return left;
}

static void all_have_ended(uint64_t seed)
{
	for (uint32_t h = 0; h < DRAIN_H && count_left() > 0; h++) {
		run_until(w.sim.now_ns + HOUR_NS);
	}
	if (count_left() > 0) {
		print_left(seed);
	}
	assert_int_equal(count_left(), 0);
	for (uint64_t id = 1; id <= w.jobs; id++) {
		enum core_state end = w.known[id].end;

		if (end != CORE_DONE && !(end == CORE_CANCELLED && w.known[id].cancelled)) {
			fail_msg("job %llu is %s: %s", (unsigned long long)id, core_state_name(end),
				core_reason_text(w.known[id].reason));
		}
	}
}

static void live(uint64_t seed, int64_t for_ns, struct core_options options)
{
	print_message("life %llu\n", (unsigned long long)seed); /* before all that may abort */
	begin_world(seed, options);
	w.sim.faults = (struct esim_faults){.refused = 20,
		.lost = below(2) * 20,
		.slow_ms = 1 + below(3) * 1500,
		.ignores_stop = 100,
		.fails = 100,
		.hangs = 30,
		.dry = 300};
	w.crash = below(2) * 10;
	if (for_ns == YEAR_NS) { /* all there is; crashes seldom: each reads all records again */
		w.sim.faults.lost = 20;
		w.crash = 1;
	}
	w.compare = 50;
	for (uint32_t n = 0; n < 4; n++) {
		add_node(SLOTS, options.pools_n == 0 && n % 2 == 1);
	}
	while (w.sim.now_ns < for_ns) {
		run_until(w.sim.now_ns + (int64_t)below(240) * S_NS);
		disturb();
	}
	heal();
	all_have_ended(seed);
}

static void hours_of_a_cluster_of_its_own_nodes(void **state)
{
	for (uint32_t i = 0; i < LIVES; i++) {
		live(first_seed + i, HOUR_NS, usual());
	}
}

static void hours_of_a_cluster_that_grows_and_shrinks(void **state)
{
	struct core_options options = usual();

	options.pools = pools;
	options.pools_n = 2;
	for (uint32_t i = 0; i < LIVES; i++) {
		live(first_seed + i, HOUR_NS, options);
	}
}

static void hours_under_the_policy_that_users_have(void **state)
{
	struct core_options options = usual();

	options.pools = pools;
	options.pools_n = 2;
	options.policy = &sched_pawl;
	for (uint32_t i = 0; i < LIVES_OF_PAWL; i++) {
		live(first_seed + i, HOUR_NS, options);
	}
}

static void a_year(void **state)
{
	struct core_options options = usual();

	if (getenv("PAWL_LONG") == NULL) {
		printf("skipped: a year takes minutes: make test-long\n");
		skip();
	}
	options.pools = pools;
	options.pools_n = 2;
	live(first_seed, YEAR_NS, options);
	print_message("%llu jobs, %llu events, %llu crashes\n", (unsigned long long)w.jobs,
		(unsigned long long)w.events, (unsigned long long)w.crashes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hours_of_a_cluster_of_its_own_nodes),
		cmocka_unit_test(hours_of_a_cluster_that_grows_and_shrinks),
		cmocka_unit_test(hours_under_the_policy_that_users_have),
		cmocka_unit_test(a_year),
	};
	int rv;

	first_seed = test_seed();
	rv = cmocka_run_group_tests(tests, NULL, NULL);
	end_world();
	return rv;
}
