/* The scheduler's core: stops, failures, and nodes that go away, by example. The test acts as the
 * engine. */
#include "test_sched_one.h"

/* ---- stops ---- */

static void who_ignores_stop_is_killed(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2});
	runs(a);
	assert_int_equal(job_event(CORE_CANCEL, a), 0);
	assert_int_equal(core_wake_ns(t.core), t.now_ns + 10 * S_NS);
	assert_true(explains(a, "10.0 s to save and end; then it is cancelled"));
	pass(9 * S_NS);
	assert_null(update(CORE_DO_KILL, a));
	pass(S_NS);
	assert_non_null(update(CORE_DO_KILL, a));
	is(a, CORE_STOPPING, 2); /* nobody gets the slots until the job is gone */
	pass(5 * S_NS);
	assert_non_null(update(CORE_DO_KILL, a)); /* repeated: the first may be lost */
	ends(a, CORE_END_STOPPED, 137);
	is(a, CORE_CANCELLED, 0);
}

static void pause_and_resume(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2});
	runs(a);
	assert_int_equal(job_event(CORE_PAUSE, a), 0);
	is(a, CORE_STOPPING, 2);
	ends(a, CORE_END_STOPPED, 143);
	is(a, CORE_PAUSED, 0);
	pass(500 * S_NS);
	is(a, CORE_PAUSED, 0);
	assert_int_equal(job_event(CORE_PAUSE, a), 0);
	assert_int_equal(job_event(CORE_RESUME, a), 0);
	pass(S_NS);
	is(a, CORE_STARTING, 2);
	assert_int_equal(job_event(CORE_RESUME, a), PAWL_EINVAL);
	assert_int_equal(job_event(CORE_CANCEL, a), 0); /* while the job starts */
	ends(a, CORE_END_STOPPED, 143);
	is(a, CORE_CANCELLED, 0);
}

static void an_end_while_stopping_is_an_end(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2});
	runs(a);
	assert_int_equal(job_event(CORE_PAUSE, a), 0);
	ends(a, CORE_END_EXITED, 0);
	is(a, CORE_DONE, 0);
}

static void a_time_limit_ends_it(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2, .time_limit_ns = 100 * S_NS});
	pass(90 * S_NS);
	runs(a); /* the time to start does not count */
	pass(99 * S_NS);
	is(a, CORE_RUNNING, 2);
	assert_int_equal(core_wake_ns(t.core), t.now_ns + S_NS);
	pass(S_NS);
	is(a, CORE_STOPPING, 2);
	ends(a, CORE_END_STOPPED, 143);
	is(a, CORE_FAILED, 0);
	assert_int_equal(job(a)->reason, CORE_WHY_TIME);
}

/* ---- failures ---- */

static void failures_are_tried_again_ever_later_but_not_for_ever(void **state)
{
	static const int64_t waits_s[] = {1, 2, 4, 8};
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2, .retries = 4});
	for (uint32_t i = 0; i < 4; i++) {
		runs(a);
		ends(a, CORE_END_EXITED, 3);
		is(a, CORE_QUEUED, 0);
		assert_int_equal(job(a)->due_ns, t.now_ns + waits_s[i] * S_NS);
		assert_true(explains(a, "back-off after"));
		pass(waits_s[i] * S_NS - 1);
		is(a, CORE_QUEUED, 0);
		pass(1 + CORE_ROUND_MIN_NS);
		is(a, CORE_STARTING, 2);
	}
	runs(a);
	ends(a, CORE_END_EXITED, 3);
	is(a, CORE_FAILED, 0);
	assert_int_equal(job(a)->exit_code, 3);
}

static void having_run_well_the_wait_is_short_again(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2, .retries = 9});
	for (uint32_t i = 0; i < 4; i++) {
		runs(a);
		pass(CORE_BACKOFF_RESET_NS);
		ends(a, CORE_END_EXITED, 3);
		assert_int_equal(job(a)->due_ns, t.now_ns + S_NS);
		pass(S_NS);
		is(a, CORE_STARTING, 2);
	}
}

/* A job whose processes were killed is no worse than one that failed. */
static void having_run_well_the_wait_of_the_gone_is_short_again(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2});
	for (int64_t wait_ns = S_NS; wait_ns <= 4 * S_NS; wait_ns *= 2) {
		runs(a);
		ends(a, CORE_END_UNKNOWN, 0);
		assert_int_equal(job(a)->due_ns, t.now_ns + wait_ns);
		pass(wait_ns);
		is(a, CORE_STARTING, 2);
	}
	runs(a);
	pass(CORE_BACKOFF_RESET_NS);
	ends(a, CORE_END_UNKNOWN, 0);
	assert_int_equal(job(a)->due_ns, t.now_ns + S_NS);
}

static void refused_starts_end_some_time(void **state)
{
	uint64_t a;
	uint32_t tries = 0;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2});
	while (job(a)->state != CORE_FAILED) {
		assert_true(tries++ <= CORE_REFUSED_MAX);
		is(a, CORE_STARTING, 2);
		job_event(CORE_REFUSED, a);
		if (job(a)->state == CORE_QUEUED) {
			pass(60 * S_NS);
		}
	}
	assert_int_equal(tries, CORE_REFUSED_MAX + 1);
	assert_int_equal(job(a)->failures, 0);
}

static void a_start_that_is_not_answered_is_killed(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2});
	pass(100 * S_NS);
	is(a, CORE_STOPPING, 2);
	assert_non_null(update(CORE_DO_KILL, a));
	runs(a); /* too late */
	is(a, CORE_STOPPING, 2);
	ends(a, CORE_END_UNKNOWN, 0);
	is(a, CORE_QUEUED, 0);
	pass(60 * S_NS);
	is(a, CORE_STARTING, 2);
	assert_int_equal(job(a)->generation, 2);
	assert_int_equal(step((struct core_event){.kind = CORE_ENDED, .job = a, .generation = 1}),
		0); /* the end of the first start */
	is(a, CORE_STARTING, 2);
}

/* The time-out of a start does not begin anew with each list, even if the start takes longer than
 * the time between lists, none of which shows it running. */
static void a_start_is_not_awaited_anew_with_each_list(void **state)
{
	struct core_run run;
	uint32_t lists = 0;

	begin(0, 0);
	core_close(t.core);
	t.options.start_timeout_ns = 3 * CORE_LIST_NS + S_NS;
	assert_int_equal(core_open(&t.core, &t.options, &t.err), 0);
	add_node("a", 2);
	pass(S_NS);
	run = (struct core_run){.job = submit((struct core_request){.least = 2, .most = 2})};
	run.generation = job(run.job)->generation;
	while (job(run.job)->state == CORE_STARTING) {
		pass(S_NS);
		if (update(CORE_DO_LIST, 0)) {
			lists++;
			assert_int_equal(step((struct core_event){.kind = CORE_LISTED,
						 .runs = &run,
						 .runs_n = 1}),
				0);
			/* Repeated, as the first may be lost. */
			assert_non_null(update(CORE_DO_START, run.job));
		}
		assert_true(lists <= 3);
	}
	assert_int_equal(lists, 3);
	is(run.job, CORE_STOPPING, 2);
	assert_int_equal(job(run.job)->reason, CORE_WHY_SILENT);
	assert_non_null(update(CORE_DO_KILL, run.job));
}

/* The job still runs, and may save. */
static void an_unanswered_rescale_is_stopped(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 1, .most = 2, .in_place = true});
	runs(a);
	pass(S_NS);
	submit((struct core_request){.least = 1, .most = 1});
	is(a, CORE_RESCALING, 1);
	pass(100 * S_NS);
	is(a, CORE_STOPPING, 1);
	assert_int_equal(update(CORE_DO_STOP, a)->grace_ns, 10 * S_NS);
	pass(10 * S_NS);
	assert_non_null(update(CORE_DO_KILL, a));
	ends(a, CORE_END_STOPPED, 137);
	is(a, CORE_QUEUED, 0);
	assert_int_equal(job(a)->reason, CORE_WHY_SILENT);
}

/* ---- nodes ---- */

/* Runs a job that can be rescaled on all four slots of two nodes. */
static uint64_t run_on_two_nodes(void)
{
	uint64_t a;

	begin(0, 0);
	add_node("a", 2);
	add_node("b", 2);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 4, .in_place = true});
	runs(a);
	return a;
}

static void a_lost_node_costs_only_what_was_there(void **state)
{
	uint64_t a;
	uint64_t b;

	a = run_on_two_nodes();
	is(a, CORE_RUNNING, 4);
	assert_int_equal(node_event(CORE_NODE_GONE, "b", 0), 0);
	is(a, CORE_RESCALING, 2); /* the other replicas go on */
	assert_int_equal(update(CORE_DO_RESCALE, a)->place->replicas, 2);
	runs(a);
	assert_int_equal(node_event(CORE_NODE_GONE, "a", 0), 0);
	is(a, CORE_STOPPING, 0);
	assert_non_null(update(CORE_DO_KILL, a)); /* a start under way may reach "b" */
	add_node("b", 2);
	pass(S_NS);
	is(a, CORE_STOPPING, 0);
	ends(a, CORE_END_NODE_LOST, 0);
	assert_int_equal(job(a)->failures, 0);
	pass(S_NS);
	is(a, CORE_STARTING, 2);
	b = submit((struct core_request){.least = 3, .most = 3});
	pass(S_NS);
	assert_true(explains(b, "all nodes that it may be on have fewer"));
}

static void a_job_that_loses_all_nodes_at_once_is_not_rescaled(void **state)
{
	uint64_t a = run_on_two_nodes();

	assert_int_equal(node_event(CORE_NODE_NOTICE, "a", 1), 0);
	is(a, CORE_RUNNING, 4);
	t.now_ns++; /* one step: "b" goes without notice, and the deadline of "a" has come */
	assert_int_equal(node_event(CORE_NODE_GONE, "b", 0), 0);
	is(a, CORE_STOPPING, 0);
	assert_null(update(CORE_DO_RESCALE, a));
	assert_non_null(update(CORE_DO_KILL, a));
	ends(a, CORE_END_NODE_LOST, 0);
	is(a, CORE_QUEUED, 0);
}

static void a_script_that_lost_a_node_is_started_again(void **state)
{
	uint64_t a;

	begin(0, 0);
	add_node("a", 2);
	add_node("b", 2);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 4});
	runs(a);
	assert_int_equal(node_event(CORE_NODE_GONE, "b", 0), 0);
	is(a, CORE_STOPPING, 2);
	assert_non_null(update(CORE_DO_KILL, a)); /* the rest of the job is useless */
	ends(a, CORE_END_STOPPED, 137);
	is(a, CORE_STARTING, 2);
	assert_int_equal(job(a)->failures, 0);
}

static void nodes_that_go_are_left_in_time(void **state)
{
	uint64_t a = run_on_two_nodes();

	pass(S_NS);
	assert_int_equal(node_event(CORE_NODE_NOTICE, "a", 30 * S_NS), 0);
	is(a, CORE_RESCALING, 2);
	runs(a);
	assert_int_equal(job(a)->current.entries[0].node, 2);
	pass(40 * S_NS); /* the deadline has passed: the node counts as lost */
	assert_int_equal(core_node_find(t.core, 1)->state, CORE_NODE_LOST);
	is(a, CORE_RUNNING, 2);
}

static void one_moves_so_that_another_has_slots_that_it_may_have(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node("firm", 2);
	pass(S_NS);
	a = submit((struct core_request){.least = 2, .most = 2, .spot_most = 2});
	runs(a);
	add_node_of("spot", 2, 0, "", true);
	b = submit((struct core_request){.least = 2, .most = 2});
	pass(S_NS);
	is(a, CORE_STOPPING, 2);
	is(b, CORE_QUEUED, 0);
	ends(a, CORE_END_STOPPED, 143);
	is(a, CORE_STARTING, 2);
	is(b, CORE_STARTING, 2);
	assert_int_equal(job(a)->current.entries[0].node, 2);
	assert_int_equal(job(b)->current.entries[0].node, 1);
}

static void what_leaves_a_node_that_goes_takes_no_slots_elsewhere(void **state)
{
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node("a", 2);
	add_node("b", 2);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 4, .pinned = true});
	pass(S_NS);
	runs(a);
	is(a, CORE_RUNNING, 4);
	add_node("c", 2);
	assert_int_equal(node_event(CORE_NODE_NOTICE, "a", 300 * S_NS), 0);
	b = submit((struct core_request){.least = 2, .most = 2});
	pass(S_NS);
	is(b, CORE_STARTING, 2); /* "a" has no replica on "c" */
}

static void a_ring_is_opened(void **state)
{
	static const struct core_placement_entry a_on = {.node = 2, .replicas = 1};
	static const struct core_placement_entry b_on = {.node = 1, .replicas = 1};
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node("a", 1);
	add_node("b", 1);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 1, .in_place = true});
	b = submit((struct core_request){.least = 1, .most = 1, .in_place = true});
	pass(S_NS);
	runs(a);
	runs(b);
	/* Each job is to be where the other one is. */
	job(a)->want.entries[0] = a_on;
	job(b)->want.entries[0] = b_on;
	pass(S_NS);
	is(a, CORE_STOPPING, 1);
	is(b, CORE_RUNNING, 1);
	ends(a, CORE_END_STOPPED, 143);
	is(b, CORE_RUNNING, 1); /* by then there was another decision */
	is(a, CORE_STARTING, 1);
}

/* ---- restart ---- */

static void stray_runs_are_killed_and_lost_updates_are_repeated(void **state)
{
	struct core_run list[2];
	uint64_t a;
	uint64_t b;

	begin(0, 0);
	add_node("a", 4);
	pass(S_NS);
	a = submit((struct core_request){.least = 1, .most = 1});
	b = submit((struct core_request){.least = 1, .most = 1});
	pass(S_NS);
	runs(b);
	pass(CORE_LIST_NS);
	is(a, CORE_STOPPING, 1); /* never answered */
	ends(a, CORE_END_UNKNOWN, 0);
	pass(60 * S_NS);
	is(a, CORE_STARTING, 1);
	pass(S_NS);
	list[0] = (struct core_run){.job = 77, .generation = 3, .running = true};
	list[1] = (struct core_run){.job = a, .generation = 1, .running = true};
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED, .runs = list, .runs_n = 2}),
		0);
	assert_int_equal(update(CORE_DO_KILL, 77)->generation, 3);
	assert_int_equal(update(CORE_DO_KILL, a)->generation, 1);
	is(b, CORE_STOPPING, 1); /* the run is no longer listed: a kill makes sure */
	assert_non_null(update(CORE_DO_KILL, b));
	is(a, CORE_STARTING, 1); /* began after the request for the list */
	runs(a);
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED}), 0);
	is(a, CORE_RUNNING, 1); /* the list may not have the run */
}

/* ---- another scheduler ---- */

/* Restarts the core from the stored rows, downtime_ns after the last of them. */
static void restart(int64_t downtime_ns)
{
	struct core_row rows[KEPT_MAX];

	for (uint32_t i = 0; i < t.kept_n; i++) {
		rows[i] = (struct core_row){.kind = t.kept[i].kind,
			.id = t.kept[i].id,
			.bytes = t.kept[i].bytes,
			.len_bytes = t.kept[i].len_bytes};
	}
	core_close(t.core);
	t.core = NULL;
	assert_int_equal(core_restore(&t.core, &t.options, rows, t.kept_n, t.now_ns, &t.err), 0);
	t.now_ns += downtime_ns;
}

/* Makes the record of an earlier version: 2 has no room of placements, and 1 no number of spot
 * nodes that the job must have either. marks: the bytes of both limits on spot nodes. */
static void make_older(struct kept *row, const uint8_t marks[8], uint8_t version)
{
	uint8_t *at = memmem(row->bytes, row->len_bytes, marks, 8);
	uint8_t *end = row->bytes + row->len_bytes;

	if (at != NULL) {
		row->bytes[0] = version;
		memmove(at + 42, at + 46, (size_t)(end - (at + 46)));
		row->len_bytes -= 4;
	}
	if (at != NULL && version == 1) {
		memmove(at + 4, at + 8, (size_t)(end - (at + 8)));
		row->len_bytes -= 4;
	}
}

static void records_of_an_earlier_version_are_read(void **state)
{
	static const uint8_t marks[] = {9, 9, 9, 0, 7, 7, 7, 0};

	for (uint8_t version = 1; version <= 2; version++) {
		size_t before = 0;
		size_t after = 0;
		uint64_t a;

		begin_with_one_node();
		a = submit((struct core_request){.least = 2,
			.most = 2,
			.spot_most = 0x090909,
			.spot_least = 0x070707,
			.retries = 5});
		for (uint32_t i = 0; i < t.kept_n; i++) {
			before += t.kept[i].len_bytes;
			make_older(&t.kept[i], marks, version);
			after += t.kept[i].len_bytes;
		}
		assert_int_equal(before - after, version == 1 ? 8 : 4);
		restart(S_NS);
		assert_int_equal(job(a)->request.spot_most, 0x090909);
		assert_int_equal(job(a)->request.spot_least, version == 1 ? 0 : 0x070707);
		assert_int_equal(job(a)->request.retries, 5);
		assert_int_equal(job(a)->place_max, 2);
	}
}

static int find(uint64_t id, uint64_t generation, const struct core_found *found)
{
	return step((struct core_event){.kind = CORE_FOUND,
		.job = id,
		.generation = generation,
		.found = found});
}

/* The records are lost, but not the runs. */
static void what_runs_and_is_not_known_is_taken_over(void **state)
{
	struct core_placement_entry entry = {1, 2};
	struct core_found found = {.request = {.name = "found", .least = 1, .most = 3, .owner = 7},
		.start_generation = 4,
		.entries = &entry,
		.entries_n = 1,
		.restarts = 6};
	const struct core_run list[] = {{.job = 12, .generation = 5, .running = true},
		{.job = 9, .generation = 1, .running = true}};
	const struct core_placement_entry twice[] = {{1, 2}, {1, 1}};
	uint64_t next;

	begin_with_one_node();
	t.kept_n = 0;
	restart(S_NS);
	add_node("a", 4);
	assert_int_equal(find(12, 5, &found), 0);
	is(12, CORE_STARTING, 2);
	assert_int_equal(find(12, 5, &found), PAWL_EEXIST);
	entry.replicas = 3;
	assert_int_equal(find(9, 1, &found), PAWL_EINVAL); /* older than the job's first start */
	found.start_generation = 1;
	assert_int_equal(find(9, 1, &found), PAWL_EINVAL); /* two slots are left */
	found.entries = twice;
	found.entries_n = 2;
	assert_int_equal(find(9, 1, &found), PAWL_EINVAL);
	found.entries = &entry;
	found.entries_n = 1;
	entry.replicas = 2;
	assert_int_equal(find(9, 1, &found), 0);
	entry.replicas = 1;
	assert_int_equal(find(9, 3, &found), 0); /* the job was known by an earlier start */
	is(9, CORE_STARTING, 1);
	entry.node = 2;
	assert_int_equal(find(8, 1, &found), PAWL_EINVAL); /* no such node */
	assert_int_equal(step((struct core_event){.kind = CORE_IDS_USED, .job = 20}), 0);
	restart(S_NS);
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED, .runs = list, .runs_n = 1}),
		0);
	is(12, CORE_RUNNING, 2);
	is(9, CORE_STARTING, 1);
	/* Repeated: the start is answered with the end. */
	assert_non_null(update(CORE_DO_START, 9));
	assert_int_equal(job(12)->restarts, 6);
	assert_int_equal(job(12)->start_generation, 4);
	assert_int_equal(job(12)->request.owner, 7);
	entry = (struct core_placement_entry){1, 1};
	assert_int_equal(find(8, 1, &found), PAWL_EINVAL); /* the engine has listed what runs */
	next = submit((struct core_request){.least = 1, .most = 1});
	assert_int_equal(next, 21);
}

/* A start may have been answered long ago: nothing counts as late before the first list. */
static void nothing_is_late_before_it_is_known_what_runs(void **state)
{
	uint64_t a;
	uint64_t b;
	const struct core_update *updates;
	struct core_run run;
	uint32_t n;

	begin_with_one_node();
	add_node("other", 2);
	a = submit((struct core_request){.least = 2, .most = 2});
	b = submit((struct core_request){.least = 2, .most = 2, .time_limit_ns = 100 * S_NS});
	pass(S_NS);
	runs(b);
	is(a, CORE_STARTING, 2);
	restart(1000 * S_NS);
	pass(0);
	updates = core_updates(t.core, &n);
	assert_true(n == 1 && updates->kind == CORE_DO_LIST); /* the core requests the list again */
	is(a, CORE_STARTING, 2);
	is(b, CORE_RUNNING, 2);
	assert_true(core_wake_ns(t.core) >
		t.now_ns); /* the core does not wake without pause for the list */
	run = (struct core_run){a, job(a)->generation, true};
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED, .runs = &run, .runs_n = 1}),
		0);
	is(a, CORE_RUNNING, 2);
}

/* The job did not run for a while, as if the machine was off: its time limit covers only the time
 * that it ran. */
static void time_away_is_none_that_the_gone_have_run(void **state)
{
	uint64_t a;

	begin_with_one_node();
	a = submit((struct core_request){.least = 2, .most = 2, .time_limit_ns = 100 * S_NS});
	pass(S_NS);
	runs(a);
	pass(60 * S_NS);
	restart(1000 * S_NS);
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED}), 0);
	is(a, CORE_STOPPING, 2);
	ends(a, CORE_END_UNKNOWN, 0);
	assert_int_equal(job(a)->ran_ns, 60 * S_NS);
	pass(10 * S_NS);
	is(a, CORE_STARTING, 2);
	runs(a);
	pass(39 * S_NS);
	is(a, CORE_RUNNING, 2);
	pass(S_NS);
	is(a, CORE_STOPPING, 2);
}

/* A run that is dying, as after a loss of power, is listed, but did not run all the time. */
static void time_away_is_none_that_the_dying_have_run(void **state)
{
	struct core_run run = {.generation = 1};

	begin_with_one_node();
	run.job = submit((struct core_request){.least = 2, .most = 2, .time_limit_ns = 100 * S_NS});
	pass(S_NS);
	runs(run.job);
	pass(60 * S_NS);
	restart(1000 * S_NS);
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED, .runs = &run, .runs_n = 1}),
		0);
	is(run.job, CORE_RUNNING, 2);
	ends(run.job, CORE_END_UNKNOWN, 0);
	is(run.job, CORE_QUEUED, 0);
	assert_int_equal(job(run.job)->ran_ns, 60 * S_NS);
	assert_true(job(run.job)->attained_s < 2 * 65); /* slots times seconds */
}

static void end_by_exit(uint64_t id)
{
	ends(id, CORE_END_EXITED, 3);
}

static void end_with_its_node(uint64_t id)
{
	assert_int_equal(node_event(CORE_NODE_GONE, "a", 0), 0);
	ends(id, CORE_END_NODE_LOST, 0);
}

static void end_by_its_user(uint64_t id)
{
	assert_int_equal(job_event(CORE_PAUSE, id), 0);
	ends(id, CORE_END_STOPPED, 143);
}

/* An end that is reported before the list: nobody knows when it was. */
static void time_away_is_none_that_those_have_run_who_end_before_the_list(void **state)
{
	static void (*const end[])(uint64_t) = {end_by_exit, end_with_its_node, end_by_its_user};

	for (uint32_t i = 0; i < sizeof(end) / sizeof(*end); i++) {
		uint64_t a;

		begin_with_one_node();
		a = submit((struct core_request){.least = 2,
			.most = 2,
			.retries = 1,
			.time_limit_ns = 100 * S_NS});
		pass(S_NS);
		runs(a);
		pass(60 * S_NS);
		restart(1000 * S_NS);
		pass(S_NS); /* the list is still missing */
		end[i](a);
		is(a, i == 2 ? CORE_PAUSED : CORE_QUEUED, 0);
		assert_int_equal(job(a)->ran_ns, 60 * S_NS);
	}
}

/* The scheduler was down, and the job has gone on. */
static void time_away_is_what_those_have_run_who_run_on(void **state)
{
	struct core_run run = {.generation = 1, .running = true};

	begin_with_one_node();
	run.job = submit((struct core_request){.least = 2, .most = 2, .time_limit_ns = 100 * S_NS});
	pass(S_NS);
	runs(run.job);
	pass(60 * S_NS);
	restart(39 * S_NS);
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED, .runs = &run, .runs_n = 1}),
		0);
	is(run.job, CORE_RUNNING, 2);
	pass(S_NS);
	is(run.job, CORE_STOPPING, 2);
	assert_int_equal(job(run.job)->ran_ns, 100 * S_NS);
}

/* An engine repeats each end for a day: an end that changes nothing costs no transaction. */
static void an_end_is_new_once(void **state)
{
	struct core_event event = {.kind = CORE_ENDED,
		.end_cause = CORE_END_NODE_LOST,
		.generation = 1};

	begin_with_one_node();
	event.job = 9;
	assert_false(core_event_is_new(t.core, &event));
	event.job = submit((struct core_request){.least = 2, .most = 2});
	pass(S_NS);
	is(event.job, CORE_STARTING, 2);
	assert_true(core_event_is_new(t.core, &event));
	runs(event.job);
	assert_true(core_event_is_new(t.core, &event));
	assert_int_equal(step(event), 0);
	is(event.job, CORE_STARTING, 2);
	assert_false(core_event_is_new(t.core, &event)); /* the end of the start before */
	event.generation = job(event.job)->generation;
	assert_int_equal(step((struct core_event){.kind = CORE_CANCEL, .job = event.job}), 0);
	is(event.job, CORE_STOPPING, 2);
	assert_true(core_event_is_new(t.core, &event));
	assert_int_equal(step(event), 0);
	assert_false(core_event_is_new(t.core, &event));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_end_is_new_once),
		cmocka_unit_test(who_ignores_stop_is_killed),
		cmocka_unit_test(pause_and_resume),
		cmocka_unit_test(an_end_while_stopping_is_an_end),
		cmocka_unit_test(a_time_limit_ends_it),
		cmocka_unit_test(failures_are_tried_again_ever_later_but_not_for_ever),
		cmocka_unit_test(having_run_well_the_wait_is_short_again),
		cmocka_unit_test(having_run_well_the_wait_of_the_gone_is_short_again),
		cmocka_unit_test(refused_starts_end_some_time),
		cmocka_unit_test(a_start_that_is_not_answered_is_killed),
		cmocka_unit_test(a_start_is_not_awaited_anew_with_each_list),
		cmocka_unit_test(an_unanswered_rescale_is_stopped),
		cmocka_unit_test(a_lost_node_costs_only_what_was_there),
		cmocka_unit_test(a_job_that_loses_all_nodes_at_once_is_not_rescaled),
		cmocka_unit_test(a_script_that_lost_a_node_is_started_again),
		cmocka_unit_test(nodes_that_go_are_left_in_time),
		cmocka_unit_test(one_moves_so_that_another_has_slots_that_it_may_have),
		cmocka_unit_test(what_leaves_a_node_that_goes_takes_no_slots_elsewhere),
		cmocka_unit_test(a_ring_is_opened),
		cmocka_unit_test(stray_runs_are_killed_and_lost_updates_are_repeated),
		cmocka_unit_test(records_of_an_earlier_version_are_read),
		cmocka_unit_test(what_runs_and_is_not_known_is_taken_over),
		cmocka_unit_test(nothing_is_late_before_it_is_known_what_runs),
		cmocka_unit_test(time_away_is_none_that_the_gone_have_run),
		cmocka_unit_test(time_away_is_none_that_the_dying_have_run),
		cmocka_unit_test(time_away_is_none_that_those_have_run_who_end_before_the_list),
		cmocka_unit_test(time_away_is_what_those_have_run_who_run_on),
	};
	int rv = cmocka_run_group_tests(tests, NULL, NULL);

	core_close(t.core);
	return rv;
}
