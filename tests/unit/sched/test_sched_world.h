/*
 * A scheduler without a machine: a core, the rows it stored, and an engine of numbers, with checks
 * of what must be true after each event. Time is a number; a seed replays it.
 */
#ifndef TEST_SCHED_WORLD_H
#define TEST_SCHED_WORLD_H

#include "engine_sim.h"
#include "equal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define S_NS      1000000000LL
#define MS_NS     1000000LL
#define SAVED_MAX 4096u
#define KNOWN_MAX 131072u /* jobs of a run, at most */
#define OPEN_MAX  4096u   /* jobs of a run that have not ended, at most */
#define STOP_S    1800    /* seconds in which a stop is answered, whatever is lost */
/* Crashes in one minute, at most: each makes a hundred events, and each of these may be another
 * crash. */
#define CRASHES 3u

/* A record, as a database would have it. */
struct saved {
	enum core_row_kind kind;
	uint64_t id;
	uint8_t *bytes;
	size_t len_bytes;
};

/* State of a job, as its user knows it. */
struct known {
	uint64_t generation;
	enum core_state end;       /* CORE_QUEUED: no end yet */
	enum core_reason reason;   /* reason of the end */
	bool cancelled;            /* the user has cancelled the job */
	bool changed;              /* may have what it had before its bounds changed */
	bool up;                   /* up after the last step */
	uint64_t start_generation; /* the job's start_generation after the last step */
};

struct world {
	struct sched_core *core;
	struct core_options options;
	struct engine_sim sim;
	struct rng rng; /* randomness of users and of crashes */
	struct saved saved[SAVED_MAX];
	uint32_t saved_n;
	struct known *known;     /* by id */
	uint64_t jobs;           /* ids up to this one were given to users */
	uint64_t open[OPEN_MAX]; /* jobs that have not ended: one may pause for months */
	uint32_t open_n;
	uint64_t events;                /* number of events so far */
	uint64_t decisions;             /* number of decisions seen */
	uint32_t returning[ESIM_NODES]; /* ids of nodes, after the last step */
	uint32_t returning_n;
	uint32_t crash; /* thousandths of events at which the core crashes */
	/* Thousandths of events after which a restored core is compared with the live one. */
	uint32_t compare;
	uint64_t crashes;
	int64_t minute_ns;  /* begin of the newest minute in which there was a crash */
	uint32_t in_minute; /* crashes in that minute */
};

static struct world w;

/* ---- the store ---- */

static struct saved *find_saved(enum core_row_kind kind, uint64_t id)
{
	for (uint32_t i = 0; i < w.saved_n; i++) {
		if (w.saved[i].kind == kind && w.saved[i].id == id) {
			return &w.saved[i];
		}
	}
	return NULL;
}

static void save_row(const struct core_row *row)
{
	struct saved *saved = find_saved(row->kind, row->id);
	bool over = row->job && row->job->state >= CORE_DONE;

	if (!saved && (row->gone || over)) {
		return;
	}
	if (!saved) {
		assert_true(w.saved_n < SAVED_MAX);
		saved = &w.saved[w.saved_n++];
		*saved = (struct saved){.kind = row->kind, .id = row->id};
	}
	free(saved->bytes);
	if (row->gone || over) {
		*saved = w.saved[--w.saved_n];
		return;
	}
	saved->bytes = malloc(row->len_bytes);
	assert_non_null(saved->bytes);
	memcpy(saved->bytes, row->bytes, row->len_bytes);
	saved->len_bytes = row->len_bytes;
}

static void save_rows(void)
{
	struct core_row row;

	while (core_row_next(w.core, &row, NULL) == 1) {
		save_row(&row);
	}
	core_rows_done(w.core);
}

static struct sched_core *restore(void)
{
	static struct core_row rows[SAVED_MAX];
	struct sched_core *core = NULL;
	struct pawl_err err = {0};

	for (uint32_t i = 0; i < w.saved_n; i++) {
		rows[i] = (struct core_row){.kind = w.saved[i].kind,
			.id = w.saved[i].id,
			.bytes = w.saved[i].bytes,
			.len_bytes = w.saved[i].len_bytes};
	}
	if (core_restore(&core, &w.options, rows, w.saved_n, w.sim.now_ns, &err) != 0) {
		fail_msg("restore: %s", err.msg);
	}
	return core;
}

/* ---- what must be true ---- */

static uint32_t replicas_on(const struct core_placement *place, uint32_t node)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < place->n; i++) {
		n += place->entries[i].node == node ? place->entries[i].replicas : 0;
	}
	return n;
}

static uint32_t slots_on(const struct core_job *job, uint32_t node)
{
	uint32_t at = replicas_on(&job->current, node);
	uint32_t old = replicas_on(&job->old, node);

	return at > old ? at : old;
}

static bool is_up(const struct core_job *job)
{
	return job->state == CORE_STARTING || job->state == CORE_RUNNING ||
		job->state == CORE_RESCALING;
}

/* Checks that no node, queue or user has more slots in use than it may. */
static void check_slots(void)
{
	const struct core_job *const *jobs;
	const struct core_node *nodes;
	uint32_t jobs_n = core_jobs(w.core, &jobs);
	uint32_t nodes_n = core_nodes(w.core, &nodes);
	uint32_t of_queue[CORE_QUEUES_MAX] = {0};
	uint32_t of_owner[8] = {0};

	for (uint32_t n = 0; n < nodes_n; n++) {
		uint32_t used = 0;

		for (uint32_t j = 0; j < jobs_n; j++) {
			uint32_t slots = slots_on(jobs[j], nodes[n].id);

			used += slots;
			of_queue[jobs[j]->queue] += slots;
			of_owner[jobs[j]->request.owner % 8] += slots;
		}
		assert_int_equal(used, nodes[n].used);
		assert_true(used <= nodes[n].offer.slots);
		assert_true(used == 0 || nodes[n].state != CORE_NODE_LOST);
	}
	for (uint32_t q = 0; q < w.options.queues_n; q++) {
		uint32_t most = w.options.queues[q].slots_max;

		assert_true(most == 0 || of_queue[q] <= most);
	}
	for (uint32_t o = 0; o < 8; o++) {
		assert_true(
			w.options.owner_slots_max == 0 || of_owner[o] <= w.options.owner_slots_max);
	}
}

static void check_job(const struct core_job *job, int64_t now_ns)
{
	bool has_slots = job->current.n > 0 || job->old.n > 0;
	bool bounded = job->current.replicas <= job->request.most &&
		(!is_up(job) || job->current.replicas >= job->request.least);

	assert_true(is_up(job) || job->state == CORE_STOPPING || !has_slots);
	assert_true(job->current.replicas <= job->place_max);
	assert_true(bounded || (job->id <= w.jobs && w.known[job->id].changed));
	assert_true(job->start_generation <= job->generation);
	if (job->state == CORE_STOPPING) {
		assert_true(now_ns - job->since_ns < job->request.grace_ns + STOP_S * S_NS);
	}
	if (job->id <= w.jobs) {
		struct known *known = &w.known[job->id];

		assert_true(job->generation >= known->generation);
		assert_int_equal(known->end, CORE_QUEUED); /* otherwise it had ended */
		known->generation = job->generation;
		known->changed = known->changed && !bounded;
	}
}

/* Returns whether the job is up as before the step, and may not be stopped: it keeps its
 * replicas. */
static bool is_fixed(const struct core_job *job)
{
	return job->request.pinned && job->id <= w.jobs && w.known[job->id].up &&
		job->start_generation == w.known[job->id].start_generation;
}

/* Returns whether the decision could give the node's slots. Pools are adjusted after it: nodes that
 * they keep after all count from the next decision on, those that they drain still count. */
static bool was_given(const struct core_node *node, const struct core_event *event)
{
	bool back = event->kind == CORE_NODE_RESUME && strcmp(event->node, node->offer.name) == 0;
	bool was = false;

	for (uint32_t i = 0; i < w.returning_n; i++) {
		was = was || w.returning[i] == node->id;
	}
	return node->state == CORE_NODE_UP
		? !was || back
		: node->state == CORE_NODE_DRAINED && node->returning && !was;
}

/* Slots that a job may have, of firm nodes, and of spot nodes. */
struct class_slots {
	int64_t firm;
	int64_t spot;
};

static void count_rooms(const struct core_event *event, struct class_slots *by_class)
{
	const struct core_job *const *jobs;
	const struct core_node *nodes;
	uint32_t jobs_n = core_jobs(w.core, &jobs);
	uint32_t nodes_n = core_nodes(w.core, &nodes);

	*by_class = (struct class_slots){0};
	for (uint32_t n = 0; n < nodes_n; n++) {
		int64_t left = was_given(&nodes[n], event) ? nodes[n].offer.slots : 0;

		for (uint32_t j = 0; j < jobs_n && left > 0; j++) {
			const struct core_job *job = jobs[j];

			if (job->state == CORE_STOPPING && job->after != CORE_THEN_QUEUED) {
				left -= slots_on(job, nodes[n].id);
			} else if (is_fixed(job)) {
				left -= replicas_on(&job->want, nodes[n].id);
			}
		}
		assert_true(left >= 0);
		*(nodes[n].offer.spot ? &by_class->spot : &by_class->firm) += left;
	}
}

/* Returns whether the job, and all those of no lower priority that are to have slots, can have
 * their least together: each with as many on spot nodes as it may, if there are so many, and as
 * many as it must. */
static bool could_have(const struct core_job *job, const struct class_slots *by_class)
{
	const struct core_job *const *jobs;
	uint32_t jobs_n = core_jobs(w.core, &jobs);
	int64_t all = 0;
	int64_t spot = 0;
	int64_t must = 0;

	for (uint32_t o = 0; o < jobs_n; o++) {
		const struct core_request *request = &jobs[o]->request;
		bool first = jobs[o]->want.n > 0 && !is_fixed(jobs[o]) &&
			request->priority >= job->request.priority;

		if (first || jobs[o] == job) {
			all += request->least;
			spot += request->spot_most < request->least ? request->spot_most
								    : request->least;
			must += request->spot_least < request->least ? request->spot_least
								     : request->least;
		}
	}
	return must <= by_class->spot &&
		all - (spot < by_class->spot ? spot : by_class->spot) <= by_class->firm;
}

static void check_spot(const struct core_job *job)
{
	uint32_t spot = 0;

	for (uint32_t i = 0; i < job->want.n; i++) {
		const struct core_node *node = core_node_find(w.core, job->want.entries[i].node);

		assert_non_null(node);
		spot += node->offer.spot ? job->want.entries[i].replicas : 0;
	}
	assert_true(spot <= job->request.spot_most);
	assert_true(is_fixed(job) || spot >= job->request.spot_least || spot == job->want.replicas);
}

/* Checks right after a decision that no job waits if others could shrink, move, or be stopped for
 * its higher priority. */
static void check_decision(const struct core_event *event)
{
	const struct core_job *const *jobs;
	uint32_t jobs_n = core_jobs(w.core, &jobs);
	struct class_slots by_class;

	count_rooms(event, &by_class);
	for (uint32_t j = 0; j < jobs_n; j++) {
		const struct core_job *job = jobs[j];
		bool waits = job->state == CORE_QUEUED && job->due_ns <= w.sim.now_ns &&
			job->want.n == 0 && job->wait != CORE_WHY_QUEUE_QUOTA &&
			job->wait != CORE_WHY_OWNER_QUOTA;

		check_spot(job);
		if (waits && could_have(job, &by_class)) {
			fail_msg("job %llu of %u waits, and could have them: %s",
				(unsigned long long)job->id, job->request.least,
				core_reason_text(job->wait));
		}
	}
}

/* Records what is true before the next step. */
static void record_before(void)
{
	const struct core_job *const *jobs;
	const struct core_node *nodes;
	uint32_t jobs_n = core_jobs(w.core, &jobs);
	uint32_t nodes_n = core_nodes(w.core, &nodes);

	for (uint32_t j = 0; j < jobs_n; j++) {
		if (jobs[j]->id <= w.jobs) {
			w.known[jobs[j]->id].up = is_up(jobs[j]);
			w.known[jobs[j]->id].start_generation = jobs[j]->start_generation;
		}
	}
	w.returning_n = 0;
	for (uint32_t n = 0; n < nodes_n; n++) {
		if (nodes[n].returning) {
			assert_true(w.returning_n < ESIM_NODES);
			w.returning[w.returning_n++] = nodes[n].id;
		}
	}
}

/* Compares the jobs themselves, to find what the writer of records may have left out. */
static void compare_jobs(struct sched_core *other)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(w.core, &jobs);

	for (uint32_t j = 0; j < n; j++) {
		const struct core_job *a = jobs[j];
		const struct core_job *b = core_job_find(other, a->id);

		if (a->state >= CORE_DONE) {
			assert_null(b);
			continue;
		}
		assert_non_null(b);
		assert_memory_equal(&a->state, &b->state,
			offsetof(struct core_job, current) - offsetof(struct core_job, state));
		assert_memory_equal(&a->submitted_ns, &b->submitted_ns,
			offsetof(struct core_job, hints) - offsetof(struct core_job, submitted_ns));
		assert_int_equal(a->current.replicas, b->current.replicas);
		assert_int_equal(a->old.replicas, b->old.replicas);
		assert_int_equal(a->want.replicas, b->want.replicas);
	}
}

static void compare_with_stored(void)
{
	struct sched_core *other = restore();
	uint8_t *a;
	uint8_t *b;
	size_t a_len;
	size_t b_len;

	assert_int_equal(core_dump(w.core, &a, &a_len, NULL), 0);
	assert_int_equal(core_dump(other, &b, &b_len, NULL), 0);
	assert_int_equal(a_len, b_len);
	assert_memory_equal(a, b, a_len);
	compare_jobs(other);
	free(a);
	free(b);
	core_close(other);
}

static void check_all(const struct core_event *event)
{
	const struct core_job *const *jobs;
	uint32_t jobs_n = core_jobs(w.core, &jobs);
	uint64_t refused;
	uint64_t decisions = core_decisions(w.core, &refused);
	uint64_t next = 0;

	check_slots();
	for (uint32_t j = 0; j < jobs_n; j++) {
		assert_true(jobs[j]->id > next);
		next = jobs[j]->id;
		check_job(jobs[j], w.sim.now_ns);
	}
	if (decisions != w.decisions) {
		w.decisions = decisions;
		check_decision(event);
	}
	assert_int_equal(refused, 0);
	record_before();
	if (rng_below(&w.rng, 1000) < w.compare) {
		compare_with_stored();
	}
}

/* Records the jobs that have ended; all jobs that users know are here, or have ended. */
static void record_ends(void)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < w.open_n; i++) {
		const struct core_job *job = core_job_find(w.core, w.open[i]);

		assert_non_null(job);
		if (job->state >= CORE_DONE) {
			w.known[w.open[i]].end = job->state;
			w.known[w.open[i]].reason = job->reason;
		} else {
			w.open[left++] = w.open[i];
		}
	}
	w.open_n = left;
}

/* ---- steps ---- */

static bool crashes(void)
{
	bool fresh = w.sim.now_ns - w.minute_ns >= 60 * S_NS;

	return rng_below(&w.rng, 1000) < w.crash && (fresh || w.in_minute < CRASHES);
}

static void crash_now(void)
{
	if (w.sim.now_ns - w.minute_ns >= 60 * S_NS) {
		w.minute_ns = w.sim.now_ns;
		w.in_minute = 0;
	}
	w.in_minute++;
	w.crashes++;
	core_close(w.core);
	w.core = restore();
	w.decisions = 0;
}

static void carry_out(void)
{
	uint32_t n;
	const struct core_update *updates = core_updates(w.core, &n);
	bool dies = crashes();
	uint32_t first = dies ? (uint32_t)rng_below(&w.rng, n + 1) : n;

	for (uint32_t i = 0; i < first; i++) {
		sched_engine_do(&engine_sim, &w.sim, w.core, w.options.pools, &updates[i]);
	}
	if (dies) {
		crash_now();
		carry_out();
	}
}

static int take(const struct core_event *event, uint64_t *job)
{
	uint64_t id = 0;
	int rv = core_step(w.core, event, &id, NULL);

	w.events++;
	if (crashes()) { /* before anything of the step is stored */
		crash_now();
		carry_out();
		return PAWL_ECANCELED;
	}
	save_rows();
	if (rv == 0 && job) { /* The event was a submission. */
		w.jobs = id;
		w.known[id] = (struct known){0};
		assert_true(w.open_n < OPEN_MAX);
		w.open[w.open_n++] = id;
		*job = id;
	}
	check_all(event);
	record_ends();
	if (rv == 0) {
		carry_out();
	}
	return rv;
}

/* Runs until that time, or until nothing is left to happen. */
static void run_until(int64_t until_ns)
{
	while (w.sim.now_ns < until_ns) {
		int64_t wake_ns = core_wake_ns(w.core);
		int64_t next_ns = wake_ns > 0 && wake_ns < until_ns ? wake_ns : until_ns;
		const struct core_event *event = esim_next(&w.sim, next_ns);
		const struct core_event time = {.kind = CORE_TIMER, .now_ns = w.sim.now_ns};

		if (event) {
			take(event, NULL);
		} else if (next_ns == wake_ns) {
			take(&time, NULL);
		}
	}
}

static int user(struct core_event event)
{
	event.now_ns = w.sim.now_ns;
	return take(&event, NULL);
}

static void add_node(uint32_t slots, bool spot)
{
	struct core_offer offer = {.slots = slots, .price = 1, .spot = spot};

	snprintf(offer.name, sizeof(offer.name), "%s", esim_node_comes(&w.sim, slots, "", spot));
	user((struct core_event){.kind = CORE_NODE_REPORTED, .offer = &offer});
}

static void begin_world(uint64_t seed, struct core_options options)
{
	struct known *known = w.known ? w.known : calloc(KNOWN_MAX, sizeof(*known));

	core_close(w.core);
	for (uint32_t i = 0; i < w.saved_n; i++) {
		free(w.saved[i].bytes);
	}
	memset(&w, 0, sizeof(w));
	w.known = known;
	w.options = options;
	w.rng.state = seed ^ 0x5eed;
	esim_open(&w.sim, seed);
	equal_wrong = EQUAL_RIGHT;
	assert_int_equal(core_open(&w.core, &w.options, NULL), 0);
	save_rows();
}

static void end_world(void)
{
	core_close(w.core);
	for (uint32_t i = 0; i < w.saved_n; i++) {
		free(w.saved[i].bytes);
	}
	free(w.known);
	memset(&w, 0, sizeof(w));
}

#endif
