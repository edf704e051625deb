/* Stages of several ranks: random programs whose results are known beforehand, with values, notes
 * and steps that overtake each other. */
#include "base/crc.h"
#include "base/rng.h"
#include "expect.h"
#include "seed.h"
#include "test_stage_world.h"

#define STEPS        12u
#define MICROBATCHES 5u
#define CALLS        24u /* calls of a microbatch */
#define NEEDS        3u
#define VALUES       (MICROBATCHES * CALLS * 2u)
#define BYTES_MAX    200000u

static uint64_t first_seed;
static struct pawl_err err;

/* What a call does, in its blob. */
struct job {
	uint64_t seed;             /* content of the first value; the second has the next */
	uint32_t len[2];           /* bytes of the values it makes */
	uint32_t outs;             /* values it makes */
	uint32_t notes;            /* notes that the rank got before */
	uint32_t needs_crc[NEEDS]; /* checksums of what it needs */
};

/* A value, as the driver knows it. */
struct known {
	uint64_t id;
	uint32_t crc;   /* checksum of the content */
	bool freed;     /* freed everywhere */
	bool at[RANKS]; /* ranks at which the value is, or will be */
};

static void fill(uint8_t *bytes, uint32_t len, uint64_t seed)
{
	struct rng rng = {seed};

	for (uint32_t i = 0; i + 8 <= len; i += 8) {
		uint64_t word = rng_u64(&rng);

		memcpy(bytes + i, &word, 8);
	}
	memset(bytes + len / 8 * 8, (int)seed, len % 8);
}

static uint32_t crc_of(uint32_t len, uint64_t seed)
{
	static __thread uint8_t bytes[BYTES_MAX];

	fill(bytes, len, seed);
	return crc32c(0, bytes, len);
}

static void drain(struct pawl_stage *stage)
{
	void *held;

	while ((held = pawl_stage_released(stage)) != NULL) {
		free(held);
	}
}

/* ---- every rank ---- */

struct rank {
	uint32_t notes;                 /* notes that came in this step */
	struct pawl_stage_memory *kept; /* memory of a value, held on */
	const void *kept_data;          /* the bytes in it */
	uint32_t kept_len, kept_crc;    /* number and checksum of these */
};

static struct rank ranks[RANKS];

static bool check_need(struct rank *self, struct pawl_stage *stage, struct pawl_stage_value *value,
	uint32_t crc)
{
	if (!EXPECT(crc32c(0, value->data, value->len_bytes) == crc)) {
		return false;
	}
	if (!value->held && !self->kept && value->len_bytes > 5000) {
		self->kept = pawl_stage_keep(stage, value, malloc(1));
		self->kept_data = value->data;
		self->kept_len = (uint32_t)value->len_bytes;
		self->kept_crc = crc;
		return EXPECT(self->kept != NULL);
	}
	return true;
}

/* Makes a value whose object is its memory. */
static struct pawl_stage_value make(uint64_t id, uint32_t len, uint64_t seed)
{
	uint8_t *bytes = calloc(1, len + 1);

	if (EXPECT(bytes != NULL)) {
		fill(bytes, len, seed);
	}
	return (struct pawl_stage_value){.id = id, .data = bytes, .len_bytes = len, .held = bytes};
}

static bool run_job(struct rank *self, struct pawl_stage *stage,
	const struct pawl_stage_event *event)
{
	struct pawl_stage_value made[2];
	struct pawl_err why;
	struct job job;

	memcpy(&job, event->call.blob, sizeof(job));
	if (!EXPECT(event->call.outs == job.outs) || !EXPECT(self->notes >= job.notes)) {
		return false;
	}
	for (uint32_t i = 0; i < event->call.needs_n; i++) {
		if (!check_need(self, stage, event->values[i], job.needs_crc[i])) {
			return false;
		}
	}
	for (uint32_t i = 0; i < job.outs; i++) {
		made[i] = make(event->call.id + i, job.len[i], job.seed + i);
	}
	if (!DOES(pawl_stage_done(stage, event->call.id, made, job.outs, &why))) {
		for (uint32_t i = 0; i < job.outs; i++) {
			free(made[i].held);
		}
		return false;
	}
	return true;
}

/* Carries out an event. False: the step has ended, or something is wrong. */
static bool handle(struct rank *self, struct pawl_stage *stage,
	const struct pawl_stage_event *event)
{
	drain(stage);
	switch (event->kind) {
	case PAWL_STAGE_CALL:
		return run_job(self, stage, event);
	case PAWL_STAGE_NOTE:
		self->notes++;
		return EXPECT(event->len_bytes == *(const uint32_t *)event->bytes);
	case PAWL_STAGE_NOTHING:
		return true;
	default:
		return event->kind == PAWL_STAGE_END ? false
						     : EXPECT(event->kind == PAWL_STAGE_CALL);
	}
}

static void list_tasks(struct pawl_pipe_task *tasks, uint32_t rank)
{
	for (uint32_t b = 0; b < MICROBATCHES; b++) {
		tasks[b] = (struct pawl_pipe_task){PAWL_PIPE_FORWARD, (uint16_t)rank, b};
	}
}

static void serve(uint32_t rank, struct rng *rng)
{
	struct pawl_stage *stage = all.stage[rank];
	struct rank *self = &ranks[rank];
	struct pawl_pipe_task tasks[MICROBATCHES];
	struct pawl_stage_event event;
	struct pawl_err why;

	list_tasks(tasks, rank);
	for (uint32_t s = 0; s < STEPS && !atomic_load(&is_wrong); s++) {
		self->notes = 0;
		if (rng_below(rng, 2) == 0) {
			within_pace(0.002); /* frames of the step wait */
		}
		if (!DOES(pawl_stage_begin(stage, tasks, MICROBATCHES, &why))) {
			return;
		}
		do {
			if (!DOES(IN_TIME(pawl_stage_next(stage, LONG_NS, &event, &why)))) {
				return;
			}
		} while (handle(self, stage, &event));
	}
}

/* ---- the driver ---- */

struct driver {
	struct pawl_stage *stage;
	struct known values[VALUES];
	uint32_t values_n;
	uint64_t next_id;
	uint32_t notes[RANKS]; /* notes sent to each rank in this step */
	uint32_t watched;      /* values that are to arrive */
	struct rng *rng;
};

static bool free_everywhere(struct driver *d, struct known *value)
{
	struct pawl_err why;
	bool right = true;

	value->freed = true;
	for (uint32_t r = 0; r < RANKS && right; r++) {
		right = !value->at[r] || DOES(pawl_stage_free(d->stage, r, value->id, &why));
	}
	return right;
}

/* Makes a value be at a rank. */
static bool bring(struct driver *d, struct known *value, uint32_t rank)
{
	struct pawl_err why;
	uint32_t from = 0;

	while (!value->at[from]) {
		from++;
	}
	if (value->at[rank]) {
		return true;
	}
	value->at[rank] = true;
	return DOES(pawl_stage_push(d->stage, from, value->id, rank, &why));
}

static bool issue(struct driver *d, uint32_t microbatch)
{
	uint32_t rank = (uint32_t)rng_below(d->rng, RANKS);
	struct job job = {.seed = rng_u64(d->rng),
		.outs = (uint32_t)rng_below(d->rng, 3),
		.notes = d->notes[rank]};
	uint64_t needs[NEEDS];
	struct pawl_stage_call call = {.id = d->next_id,
		.outs = job.outs,
		.task = {PAWL_PIPE_FORWARD, (uint16_t)rank, microbatch},
		.needs = needs,
		.blob = &job,
		.blob_len = sizeof(job)};
	struct pawl_err why;

	for (uint32_t i = 0; i < NEEDS && d->values_n > 0; i++) {
		struct known *need = &d->values[rng_below(d->rng, d->values_n)];

		if (!need->freed && !bring(d, need, rank)) {
			return false;
		}
		if (!need->freed) {
			job.needs_crc[call.needs_n] = need->crc;
			needs[call.needs_n++] = need->id;
		}
	}
	for (uint32_t i = 0; i < job.outs; i++) {
		struct known *made = &d->values[d->values_n++];

		job.len[i] = (uint32_t)rng_below(d->rng, 1ull << rng_below(d->rng, 18));
		job.len[i] = job.len[i] < BYTES_MAX ? job.len[i] : BYTES_MAX;
		*made = (struct known){d->next_id + i, crc_of(job.len[i], job.seed + i), .at = {0}};
		made->at[rank] = true;
	}
	d->next_id += job.outs + 1;
	return DOES(pawl_stage_call(d->stage, rank, &call, &why));
}

static bool say(struct driver *d)
{
	struct known *value = d->values_n > 0 ? &d->values[rng_below(d->rng, d->values_n)] : NULL;
	uint32_t rank = (uint32_t)rng_below(d->rng, RANKS);
	uint32_t len = 4 + (uint32_t)rng_below(d->rng, 20000);
	static uint32_t note[5001];
	struct pawl_err why;

	switch (rng_below(d->rng, 6)) {
	case 0:
		return !value || value->freed || free_everywhere(d, value);
	case 1:
		note[0] = len;
		d->notes[rank]++;
		return DOES(pawl_stage_note(d->stage, rank, note, len, &why));
	case 2:
		if (!value || value->freed || !bring(d, value, 0)) {
			return !atomic_load(&is_wrong);
		}
		d->watched++;
		return DOES(pawl_stage_watch(d->stage, value->id, &why));
	case 3:
		return DOES(pawl_stage_send(d->stage, &why));
	default:
		return true;
	}
}

static bool driver_event(struct driver *d, const struct pawl_stage_event *event)
{
	if (event->kind != PAWL_STAGE_ARRIVED) {
		return handle(&ranks[0], d->stage, event);
	}
	d->watched--;
	for (uint32_t i = 0; i < d->values_n; i++) {
		if (d->values[i].id == event->values[0]->id) {
			return EXPECT(crc32c(0, event->values[0]->data,
					      event->values[0]->len_bytes) == d->values[i].crc);
		}
	}
	return EXPECT(!"a value that the driver knows");
}

static bool drive_step(struct driver *d)
{
	struct pawl_pipe_task tasks[MICROBATCHES];
	struct pawl_stage_event event;
	struct pawl_err why;

	list_tasks(tasks, 0);
	if (!DOES(pawl_stage_begin(d->stage, tasks, MICROBATCHES, &why))) {
		return false;
	}
	for (uint32_t i = 0; i < MICROBATCHES * CALLS; i++) {
		if (!issue(d, i / CALLS) || !say(d) ||
			(i % CALLS == CALLS - 1 &&
				!DOES(pawl_stage_flush(d->stage, PAWL_PIPE_FORWARD, i / CALLS,
					&why)))) {
			return false;
		}
		if (rng_below(d->rng, 4) == 0 &&
			(!DOES(pawl_stage_next(d->stage, 0, &event, &why)) ||
				!driver_event(d, &event))) {
			return false;
		}
	}
	if (!DOES(pawl_stage_end(d->stage, &why))) {
		return false;
	}
	do {
		if (!DOES(IN_TIME(pawl_stage_next(d->stage, LONG_NS, &event, &why)))) {
			return false;
		}
	} while (driver_event(d, &event));
	return event.kind == PAWL_STAGE_END && EXPECT(d->watched == 0);
}

static void drive(struct rng *rng)
{
	struct driver d = {.stage = all.stage[0], .rng = rng};

	for (uint32_t s = 0; s < STEPS; s++) {
		d.values_n = 0;
		memset(d.notes, 0, sizeof(d.notes));
		ranks[0].notes = 0;
		if (!drive_step(&d)) {
			struct pawl_err why;

			DOES(pawl_stage_fail(d.stage, "wrong", 5, &why));
			return;
		}
	}
}

static void *take_part(void *user)
{
	uint32_t rank = (uint32_t)(uintptr_t)user;
	struct rng rng = {first_seed + rank};
	struct pawl_err why;

	if (rank == 0) {
		drive(&rng);
	} else {
		serve(rank, &rng);
	}
	if (atomic_load(&is_wrong)) {
		pawl_stage_fail(all.stage[rank], "wrong", 5, &why);
	}
	return NULL;
}

static void random_programs_run(void **state)
{
	struct pawl_stage_stats stats;

	open_stages();
	memset(ranks, 0, sizeof(ranks));
	run_stages(take_part);
	expect_right();
	for (uint32_t r = 0; r < RANKS; r++) {
		drain(all.stage[r]);
		pawl_stage_stats(all.stage[r], &stats);
		assert_int_equal(stats.values_now, 0);
		assert_int_equal(stats.bytes_now, 0);
		assert_true(stats.calls_done > 0 && stats.values_sent > 0 && stats.bytes_most > 0);
		assert_int_equal(stats.calls_issued, r == 0 ? STEPS * MICROBATCHES * CALLS : 0);
	}
	close_stages(free);
	for (uint32_t r = 0; r < RANKS; r++) { /* memory that is held outlives the stage */
		if (ranks[r].kept) {
			assert_int_equal(crc32c(0, ranks[r].kept_data, ranks[r].kept_len),
				ranks[r].kept_crc);
		}
		pawl_stage_memory_release(ranks[r].kept);
	}
}

/* The driver may be several steps ahead of a rank, whose frames wait. */
static void frames_wait_for_their_step(void **state)
{
	struct pawl_stage_event event;

	open_stages();
	for (uint64_t s = 0; s < 3; s++) {
		const struct pawl_stage_call call = {.id = 10 * s};

		OK(pawl_stage_begin(all.stage[0], NULL, 0, &err));
		OK(pawl_stage_note(all.stage[0], 1, &s, sizeof(s), &err));
		OK(pawl_stage_call(all.stage[0], 1, &call, &err));
		OK(pawl_stage_end(all.stage[0], &err));
		OK(IN_TIME(pawl_stage_next(all.stage[0], LONG_NS, &event, &err)));
		assert_int_equal(event.kind, PAWL_STAGE_END);
	}
	for (uint64_t s = 0; s < 3; s++) {
		OK(pawl_stage_next(all.stage[1], 0, &event, &err));
		assert_int_equal(event.kind, PAWL_STAGE_NOTHING);
		OK(pawl_stage_begin(all.stage[1], NULL, 0, &err));
		OK(IN_TIME(pawl_stage_next(all.stage[1], LONG_NS, &event, &err)));
		assert_int_equal(event.kind, PAWL_STAGE_NOTE);
		assert_memory_equal(event.bytes, &s, sizeof(s));
		OK(IN_TIME(pawl_stage_next(all.stage[1], LONG_NS, &event, &err)));
		assert_int_equal(event.kind, PAWL_STAGE_CALL);
		assert_int_equal(event.call.id, 10 * s);
		OK(pawl_stage_done(all.stage[1], 10 * s, NULL, 0, &err));
		OK(IN_TIME(pawl_stage_next(all.stage[1], LONG_NS, &event, &err)));
		assert_int_equal(event.kind, PAWL_STAGE_END);
	}
	FAILS(PAWL_EINVAL, pawl_stage_note(all.stage[1], 2, "x", 1, &err)); /* not the driver */
	close_stages(NULL);
}

/* ---- several threads of the driver ---- */

#define NOTES 1000u

int __real_pawl_group_submit(struct pawl_group *group, struct pawl_work *work,
	const struct pawl_coll_call *call, struct pawl_err *why);
int __wrap_pawl_group_submit(struct pawl_group *group, struct pawl_work *work,
	const struct pawl_coll_call *call, struct pawl_err *why);

static atomic_bool slow;  /* some threads lose the processor before they submit */
static atomic_uint sends; /* messages sent so far */

/* A thread that is to send waits a while whether another one sends as well, now and then. */
int __wrap_pawl_group_submit(struct pawl_group *group, struct pawl_work *work,
	const struct pawl_coll_call *call, struct pawl_err *why)
{
	if (atomic_load(&slow) && call->kind == PAWL_SEND) {
		uint32_t before = atomic_fetch_add(&sends, 1);

		for (int i = 0; i < 20 && before % 40 == 0 && atomic_load(&sends) == before + 1;
			i++) {
			within_pace(0.0001);
		}
	}
	return __real_pawl_group_submit(group, work, call, why);
}

/* Issues notes with the number of the thread and their own. */
static void *issue_notes(void *user)
{
	uint32_t note[2] = {(uint32_t)(uintptr_t)user, 0};
	struct pawl_err why;

	for (; note[1] < NOTES && !atomic_load(&is_wrong); note[1]++) {
		DOES(pawl_stage_note(all.stage[0], 1, note, sizeof(note), &why));
		if (note[1] % 3 == 0) {
			DOES(pawl_stage_send(all.stage[0], &why));
		}
		within_pace(0.00005); /* others send what this thread has issued */
	}
	return NULL;
}

/* What one thread issues arrives in its order, whatever thread sends it. */
static void threads_keep_their_order(void **state)
{
	uint32_t next[3] = {0};
	struct pawl_stage_event event;
	pthread_t threads[3];
	uint32_t note[2];

	atomic_store(&slow, true);
	open_stages();
	for (uint32_t r = 0; r < 2; r++) {
		OK(pawl_stage_begin(all.stage[r], NULL, 0, &err));
	}
	for (uint32_t t = 0; t < 3; t++) {
		pthread_create(&threads[t], NULL, issue_notes, (void *)(uintptr_t)t);
	}
	for (uint32_t i = 0; i < 3 * NOTES; i++) {
		if (i == NOTES) { /* the last may still be collected */
			for (uint32_t t = 0; t < 3; t++) {
				pthread_join(threads[t], NULL);
			}
			expect_right();
			OK(pawl_stage_end(all.stage[0], &err));
		}
		OK(IN_TIME(pawl_stage_next(all.stage[1], LONG_NS, &event, &err)));
		assert_int_equal(event.kind, PAWL_STAGE_NOTE);
		memcpy(note, event.bytes, sizeof(note));
		assert_true(note[0] < 3);
		assert_int_equal(note[1], next[note[0]]++);
	}
	OK(IN_TIME(pawl_stage_next(all.stage[1], LONG_NS, &event, &err)));
	assert_int_equal(event.kind, PAWL_STAGE_END);
	close_stages(NULL);
	atomic_store(&slow, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_programs_run),
		cmocka_unit_test(frames_wait_for_their_step),
		cmocka_unit_test(threads_keep_their_order),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
