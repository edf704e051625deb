/* On a full machine jobs of one priority take turns, and each ends: in virtual time, minute by
 * minute. A job that does not save starts over after a stop. */
#include "test_sched_one.h"

#include "sched/baseline/policies.h"

#define MINUTE_NS (60 * S_NS)
#define JOBS_MAX  32u

/* A scripted job, and its progress. */
struct script {
	uint64_t id;
	uint32_t slots;   /* slots that the job needs */
	uint32_t minutes; /* minutes that the job takes */
	bool saves;       /* keeps its progress when it is stopped */
	uint32_t done;    /* minutes done */
	uint32_t stops;   /* number of stops */
	uint32_t brief;   /* number of stops within an hour of a start */
	uint32_t since;   /* minute of the newest start */
	uint32_t begun;   /* minute of the first start; 0: none */
	uint32_t ended;   /* minute in which the job ended; 0: not yet */
};

static struct script scripts[JOBS_MAX];
static uint32_t minute; /* minutes that have passed */

/* Begins with one node of so many slots. */
static void begin_slots(uint32_t slots, const struct sched_policy *policy)
{
	begin(0, 0);
	if (policy) {
		core_close(t.core);
		t.options.policy = policy;
		assert_int_equal(core_open(&t.core, &t.options, &t.err), 0);
	}
	memset(scripts, 0, sizeof(scripts));
	minute = 0;
	add_node("a", slots);
	pass(S_NS);
}

static void begin_turns(const struct sched_policy *policy)
{
	begin_slots(1, policy);
}

/* Adds a job. One that saves changes in place, and reports hints, as jobs with pawl.elastic do. */
static void add_large(uint32_t n, uint32_t slots, uint32_t minutes, bool saves)
{
	struct sched_hints hints = {.progress_end = 1000};

	scripts[n] = (struct script){.slots = slots, .minutes = minutes, .saves = saves};
	scripts[n].id =
		submit((struct core_request){.least = slots, .most = slots, .in_place = saves});
	if (saves) {
		assert_int_equal(step((struct core_event){.kind = CORE_HINTS,
					 .job = scripts[n].id,
					 .hints = &hints}),
			0);
	}
}

static void add_script(uint32_t n, uint32_t minutes, bool saves)
{
	add_large(n, 1, minutes, saves);
}

static void live_a_minute(struct script *script)
{
	const struct core_job *job = core_job_find(t.core, script->id);

	if (script->ended > 0 || !job) {
		return;
	}
	if (job->state == CORE_STARTING) {
		runs(script->id);
		script->since = minute;
		script->begun = script->begun > 0 ? script->begun : minute;
	} else if (job->state == CORE_STOPPING) {
		script->stops++;
		script->brief += minute - script->since < 60;
		script->done = script->saves ? script->done : 0;
		ends(script->id, CORE_END_STOPPED, 143);
	} else if (job->state == CORE_RUNNING && ++script->done >= script->minutes) {
		script->ended = minute;
		ends(script->id, CORE_END_EXITED, 0);
	}
}

static void live_minutes(uint32_t n, uint32_t minutes)
{
	for (uint32_t i = 0; i < minutes; i++) {
		minute++;
		pass(MINUTE_NS);
		for (uint32_t j = 0; j < n; j++) {
			live_a_minute(&scripts[j]);
		}
	}
}

static void live(uint32_t n, uint32_t hours)
{
	live_minutes(n, 60 * hours);
}

static void two_scripts_of_ninety_minutes_on_one_slot_both_end(void **state)
{
	begin_turns(NULL);
	add_script(0, 90, false);
	add_script(1, 90, false);
	live(2, 6);
	for (uint32_t j = 0; j < 2; j++) {
		assert_true(scripts[j].ended > 0);
		assert_int_equal(scripts[j].stops, 1); /* each has had its hour once */
	}
}

/* A job that starts over costs at most its own time once more, and as much for the others. */
static void scripts_however_long_all_end(void **state)
{
	for (uint32_t hours = 2; hours <= 50; hours *= 5) {
		begin_turns(NULL);
		for (uint32_t j = 0; j < 4; j++) {
			add_script(j, hours * 60, false);
		}
		live(4, 4 * 4 * hours);
		for (uint32_t j = 0; j < 4; j++) {
			assert_true(scripts[j].ended > 0);
			assert_int_equal(scripts[j].brief, 0);
		}
	}
}

/* Jobs that wait for their first turn have it before those that had one. */
static void who_saves_gives_way_each_hour(void **state)
{
	begin_turns(NULL);
	for (uint32_t j = 0; j < 4; j++) {
		add_script(j, 30 * 60, true);
	}
	live(4, 5);
	for (uint32_t j = 0; j < 4; j++) {
		assert_true(scripts[j].begun > 0);
		assert_in_range(scripts[j].done, 50, 130);
	}
	live(4, 40);
	for (uint32_t j = 0; j < 4; j++) {
		assert_int_equal(scripts[j].brief, 0);
		assert_in_range(scripts[j].stops, 9, 13);
	}
}

static void under_fifo_who_runs_is_never_stopped(void **state)
{
	begin_turns(&sched_fifo);
	add_script(0, 300, false);
	add_script(1, 300, true);
	live(2, 11);
	for (uint32_t j = 0; j < 2; j++) {
		assert_true(scripts[j].ended > 0);
		assert_int_equal(scripts[j].stops, 0);
	}
}

/* A job needs many slots. Those that others release are too few each time, and go to jobs that came
 * later. */
static void who_needs_more_at_once_is_not_passed_over_for_ever(void **state)
{
	begin_slots(2, NULL);
	for (uint32_t j = 0; j < 24; j++) {
		if (j == 4) {
			add_large(j, 2, 90, false);
		} else {
			add_script(j, 40, false);
		}
		live_minutes(j + 1, 15);
	}
	assert_in_range(scripts[4].begun, 4 * 15 + 60, 4 * 15 + 70);
	live(24, 12);
	for (uint32_t j = 0; j < 24; j++) {
		assert_true(scripts[j].ended > 0);
		assert_true(scripts[j].stops <= 1);
	}
	assert_int_equal(scripts[4].brief, 0);
}

/* A job had slots that were too few for the one before it, and released them: that was no turn.
 * Each hour a job comes that needs all slots, and each time one that needs fewer, and leaves
 * some. */
static void who_is_passed_back_keeps_its_place(void **state)
{
	begin_slots(4, NULL);
	add_large(0, 4, 150, false);
	live_minutes(1, 2);
	for (uint32_t j = 1; j < 26; j++) {
		if (j == 4) {
			add_script(j, 150, false);
		} else {
			add_large(j, j % 2 == 1 ? 3 : 4, 50, false);
		}
		live_minutes(j + 1, 40);
	}
	assert_true(scripts[4].ended > 0);
}

/* A job releases its slots only for jobs that wait for their turn. */
static void who_ran_for_long_does_not_lose_its_place_to_who_has_just_begun(void **state)
{
	begin_turns(NULL);
	add_script(0, 3000, false);
	live(1, 3);
	add_node("b", 1);
	pass(S_NS);
	add_script(1, 3000, false);
	live_a_minute(&scripts[1]);
	is(scripts[1].id, CORE_RUNNING, 1);
	assert_int_equal(node_event(CORE_NODE_DRAIN, "a", 0), 0);
	pass(S_NS);
	is(scripts[1].id, CORE_STOPPING, 1);
	assert_int_equal(job(scripts[0].id)->want.replicas, 1); /* the job is moved there */
}

/* While there was no scheduler, no job could release its slots. */
static void time_without_a_scheduler_is_nobodys_patience(void **state)
{
	struct core_row rows[KEPT_MAX];
	struct core_run run = {.generation = 1, .running = true};

	begin_turns(NULL);
	add_script(0, 3000, false);
	add_script(1, 3000, false);
	runs(scripts[0].id);
	pass(MINUTE_NS);
	core_close(t.core);
	for (uint32_t i = 0; i < t.kept_n; i++) {
		rows[i] = (struct core_row){.kind = t.kept[i].kind,
			.id = t.kept[i].id,
			.bytes = t.kept[i].bytes,
			.len_bytes = t.kept[i].len_bytes};
	}
	assert_int_equal(core_restore(&t.core, &t.options, rows, t.kept_n, t.now_ns, &t.err), 0);
	store();
	t.now_ns += 600 * MINUTE_NS;
	run.job = scripts[0].id;
	assert_int_equal(step((struct core_event){.kind = CORE_LISTED, .runs = &run, .runs_n = 1}),
		0);
	for (uint32_t i = 0; i < 59; i++) {
		is(scripts[0].id, CORE_RUNNING, 1);
		pass(MINUTE_NS);
	}
	pass(2 * MINUTE_NS);
	is(scripts[0].id, CORE_STOPPING, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_scripts_of_ninety_minutes_on_one_slot_both_end),
		cmocka_unit_test(scripts_however_long_all_end),
		cmocka_unit_test(who_saves_gives_way_each_hour),
		cmocka_unit_test(under_fifo_who_runs_is_never_stopped),
		cmocka_unit_test(who_needs_more_at_once_is_not_passed_over_for_ever),
		cmocka_unit_test(who_is_passed_back_keeps_its_place),
		cmocka_unit_test(who_ran_for_long_does_not_lose_its_place_to_who_has_just_begun),
		cmocka_unit_test(time_without_a_scheduler_is_nobodys_patience),
	};
	int rv = cmocka_run_group_tests(tests, NULL, NULL);

	core_close(t.core);
	return rv;
}
