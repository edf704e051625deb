/* Groups of ranks on one host: their results are right. How they end: test_coll_ends.c. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "coll/group/group.h"
#include "coll/transport/shm.h"
#include "each_fault.h"
#include "seed.h"
#include "test_coll_heartbeat.h"
#include "test_coll_world.h"
#include "within.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define CALLS   120
#define FLYING  7            /* under way at a time */
#define LEN_MAX (200u << 10) /* bytes */

static uint64_t first_seed;

/* ---- calls: numbers that every rank can compute for every other ---- */

static int32_t number_of(uint32_t call, uint32_t rank, uint64_t i)
{
	struct rng rng = {((uint64_t)call << 40) + ((uint64_t)rank << 32) + i};

	return (int32_t)(rng_u64(&rng) % 1000000);
}

struct job {
	struct pawl_work work;
	struct pawl_coll_call call;
	uint32_t number;
	int32_t *in, *out;                            /* owned */
	uint64_t in_at[RANKS + 1], out_at[RANKS + 1]; /* offsets of the parts of an all-to-all */
};

/* Returns call number c, equal at all ranks. */
static struct pawl_coll_call call_of(uint32_t c)
{
	struct rng rng = {first_seed + c};
	uint64_t most = rng_below(&rng, 3) == 0 ? LEN_MAX : 400;

	return (struct pawl_coll_call){.kind = (enum pawl_coll)rng_below(&rng, PAWL_BARRIER + 1),
		.op = PAWL_SUM,
		.dtype = PAWL_INT32,
		.root = (uint32_t)rng_below(&rng, RANKS),
		.len_bytes = rng_below(&rng, most) / 4 * 4};
}

static uint64_t blocks_in(const struct pawl_coll_call *call, uint32_t rank)
{
	bool root = rank == call->root;

	switch (call->kind) {
	case PAWL_REDUCE_SCATTER:
		return RANKS;
	case PAWL_SCATTER:
		return root ? RANKS : 0;
	case PAWL_BROADCAST:
		return root ? 1 : 0;
	case PAWL_BARRIER:
		return 0;
	default:
		return 1;
	}
}

static uint64_t blocks_out(const struct pawl_coll_call *call, uint32_t rank)
{
	bool root = rank == call->root;

	switch (call->kind) {
	case PAWL_ALL_GATHER:
		return RANKS;
	case PAWL_GATHER:
		return root ? RANKS : 0;
	case PAWL_REDUCE:
		return root ? 1 : 0;
	case PAWL_BROADCAST:
		return root ? 0 : 1;
	case PAWL_BARRIER:
		return 0;
	default:
		return 1;
	}
}

/* Returns how many numbers one rank has for another in an all-to-all. */
static uint64_t part_of(uint32_t number, uint32_t from, uint32_t to)
{
	struct rng rng = {first_seed + 31 * number + RANKS * from + to};

	return rng_below(&rng, 3) == 0 ? 0 : rng_below(&rng, 5000);
}

static void set_parts(struct job *job, uint32_t rank)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		job->in_at[r + 1] = job->in_at[r] + 4 * part_of(job->number, rank, r);
		job->out_at[r + 1] = job->out_at[r] + 4 * part_of(job->number, r, rank);
	}
	job->call.in_at = job->in_at;
	job->call.out_at = job->out_at;
	job->call.len_bytes = 0;
}

/* Return the length of IN, and of OUT, in numbers. */
static uint64_t count_in(const struct job *job, uint32_t rank)
{
	return job->call.kind == PAWL_ALL_TO_ALL
		? job->in_at[RANKS] / 4
		: blocks_in(&job->call, rank) * job->call.len_bytes / 4;
}

static uint64_t count_out(const struct job *job, uint32_t rank)
{
	return job->call.kind == PAWL_ALL_TO_ALL
		? job->out_at[RANKS] / 4
		: blocks_out(&job->call, rank) * job->call.len_bytes / 4;
}

static void submit(struct member *member, struct job *job, uint32_t number)
{
	*job = (struct job){.call = call_of(number), .number = number};
	if (job->call.kind == PAWL_ALL_TO_ALL) {
		set_parts(job, member->rank);
	}
	job->in = malloc(4 * count_in(job, member->rank) + 1);
	job->out = malloc(4 * count_out(job, member->rank) + 1);
	for (uint64_t i = 0; i < count_in(job, member->rank); i++) {
		job->in[i] = number_of(number, member->rank, i);
	}
	job->call.in = job->in;
	job->call.out = job->out;
	assert_int_equal(pawl_group_submit(member->group, &job->work, &job->call, NULL), 0);
}

static int32_t sum_of(uint32_t number, uint64_t i)
{
	int32_t sum = 0;

	for (uint32_t r = 0; r < RANKS; r++) {
		sum += number_of(number, r, i);
	}
	return sum;
}

/* Returns number i of a rank's OUT in an all-to-all; it comes from the rank whose part it lies
 * in. */
static int32_t swapped(const struct job *job, uint32_t rank, uint64_t i)
{
	uint32_t from = 0;
	uint64_t off;

	while (job->out_at[from + 1] <= 4 * i) {
		from++;
	}
	off = i - job->out_at[from] / 4;
	for (uint32_t r = 0; r < rank; r++) {
		off += part_of(job->number, from, r);
	}
	return number_of(job->number, from, off);
}

/* Returns what number i of a rank's OUT must be. */
static int32_t wanted(const struct job *job, uint32_t rank, uint64_t i)
{
	const struct pawl_coll_call *call = &job->call;
	uint64_t block = call->len_bytes / 4;

	switch (call->kind) {
	case PAWL_ALL_REDUCE:
	case PAWL_REDUCE:
		return sum_of(job->number, i);
	case PAWL_REDUCE_SCATTER:
		return sum_of(job->number, rank * block + i);
	case PAWL_BROADCAST:
		return number_of(job->number, call->root, i);
	case PAWL_SCATTER:
		return number_of(job->number, call->root, rank * block + i);
	case PAWL_ALL_TO_ALL:
		return swapped(job, rank, i);
	default:
		return number_of(job->number, (uint32_t)(i / block), i % block);
	}
}

static void finish(struct member *member, struct job *job)
{
	uint64_t n = count_out(job, member->rank);

	assert_int_equal(pawl_group_wait(member->group, &job->work, LONG_NS, NULL), 0);
	for (uint64_t i = 0; i < n; i++) {
		assert_int_equal(job->out[i], wanted(job, member->rank, i));
	}
	free(job->in);
	free(job->out);
}

/* ---- tests ---- */

/* Keeps many operations under way; each rank waits for them in an order of its own. */
static void *do_many(void *user)
{
	struct member *member = user;
	struct job *jobs = calloc(FLYING, sizeof(*jobs));
	struct rng rng = {first_seed + 1000 + member->rank};
	uint32_t begun = 0;

	while (begun < CALLS) {
		uint32_t n = 1 + (uint32_t)rng_below(&rng, FLYING);
		uint32_t first = (uint32_t)rng_below(&rng, n);

		n = n < CALLS - begun ? n : CALLS - begun;
		for (uint32_t i = 0; i < n; i++) {
			submit(member, &jobs[i], begun + i);
		}
		for (uint32_t i = 0; i < n; i++) {
			finish(member, &jobs[(first + i) % n]);
		}
		begun += n;
	}
	free(jobs);
	return NULL;
}

static void many_at_a_time(void **state)
{
	struct world w;

	open_world(&w);
	run_world(&w, do_many);
	close_world(&w);
}

#define SLICES  8
#define SLICE   20000 /* numbers */
#define BETWEEN 3000  /* numbers between the beginnings of two slices */

/* Slices of one vector, each summed in place while those that it overlaps are under way. */
static void *do_slices(void *user)
{
	struct member *member = user;
	int32_t *numbers = malloc(sizeof(*numbers) * (SLICES * BETWEEN + SLICE));
	struct pawl_work works[SLICES];

	for (uint32_t i = 0; i < SLICES * BETWEEN + SLICE; i++) {
		numbers[i] = 1;
	}
	for (uint32_t s = 0; s < SLICES; s++) {
		struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
			.dtype = PAWL_INT32,
			.len_bytes = sizeof(*numbers) * SLICE,
			.in = numbers + s * BETWEEN,
			.out = numbers + s * BETWEEN};

		assert_int_equal(pawl_group_submit(member->group, &works[s], &call, NULL), 0);
	}
	for (uint32_t s = 0; s < SLICES; s++) {
		struct pawl_work *work = &works[(s + member->rank) % SLICES];

		assert_int_equal(pawl_group_wait(member->group, work, LONG_NS, NULL), 0);
	}
	for (uint32_t i = 0; i < SLICES * BETWEEN + SLICE; i++) {
		int32_t wanted = 1;

		for (uint32_t s = 0; s < SLICES; s++) {
			bool within = i >= s * BETWEEN && i < s * BETWEEN + SLICE;

			wanted *= within ? RANKS : 1;
		}
		assert_int_equal(numbers[i], wanted);
	}
	free(numbers);
	return NULL;
}

static void what_shares_memory_is_done_in_order(void **state)
{
	struct world w;

	open_world(&w);
	run_world(&w, do_slices);
	close_world(&w);
}

/* pawl_group_find_using finds the last collective that uses the memory and is not done. None is
 * done here: the other ranks have not called them. */
static void memory_in_use(void **state)
{
	struct world w;
	struct pawl_group *group;
	struct pawl_work works[3];
	int32_t in[10] = {0};
	int32_t out[10 * RANKS];
	int32_t more[2 * RANKS];
	const struct pawl_coll_call calls[3] = {
		{.kind = PAWL_BROADCAST, .len_bytes = 40, .root = 1, .in = in, .out = out},
		{.kind = PAWL_ALL_GATHER, .len_bytes = 40, .in = in, .out = out},
		{.kind = PAWL_ALL_GATHER, .len_bytes = 8, .in = in + 2, .out = more},
	};

	open_world(&w);
	group = w.members[0].group;
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pawl_group_submit(group, &works[i], &calls[i], NULL), 0);
	}
	assert_ptr_equal(pawl_group_find_using(group, in, sizeof(in)), &works[2]);
	assert_ptr_equal(pawl_group_find_using(group, in, 8), &works[1]);
	assert_ptr_equal(pawl_group_find_using(group, in + 4, 24), &works[1]);
	assert_ptr_equal(pawl_group_find_using(group, out + 10 * RANKS - 1, 4), &works[1]);
	assert_ptr_equal(pawl_group_find_using(group, out, 1), &works[1]);
	assert_null(pawl_group_find_using(group, out + 10 * RANKS, 4));
	assert_null(pawl_group_find_using(group, out, 0));
	for (uint32_t r = 1; r < RANKS; r++) {
		pawl_group_leave(w.members[r].group);
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pawl_group_wait(group, &works[i], LONG_NS, NULL), PAWL_EPEER);
	}
	assert_null(pawl_group_find_using(group, in, sizeof(in)));
	close_world(&w);
}

/* Nobody waits: the group's own threads carry it out. */
static void *do_unattended(void *user)
{
	struct member *member = user;
	struct job job;

	for (uint32_t number = 0; number < 8; number++) {
		submit(member, &job, number);
		WITHIN(WITHIN_LONG_S, __atomic_load_n(&job.work.done, __ATOMIC_ACQUIRE));
		finish(member, &job);
	}
	return NULL;
}

static void unattended(void **state)
{
	struct world w;

	open_world(&w);
	run_world(&w, do_unattended);
	close_world(&w);
}

static void wait_for_nothing(const char *heartbeat)
{
	struct world w;
	struct pawl_work work;
	struct pawl_coll_call call = {.kind = PAWL_BARRIER};
	struct timespec before;
	struct timespec after;
	double used_s;

	setenv("PAWL_HEARTBEAT", heartbeat, 1);
	open_world(&w);
	bear_silence();
	assert_int_equal(pawl_group_submit(w.members[0].group, &work, &call, NULL), 0);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	assert_int_equal(pawl_group_wait(w.members[0].group, &work, 3 * NS_PER_S, NULL),
		PAWL_ETIMEDOUT);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	used_s = (double)(after.tv_sec - before.tv_sec) +
		(double)(after.tv_nsec - before.tv_nsec) / 1e9;
	assert_true(used_s < 0.4);
	close_world(&w);
}

/* A rank that waits longer than the heartbeat interval, or without heartbeats, does not spin. */
static void waiting_costs_nothing(void **state)
{
	wait_for_nothing("2");
	wait_for_nothing("0");
}

/* A rank comes late: the others can stop waiting, and wait again. */
static void late_ranks_are_waited_for(void **state)
{
	struct world w;
	struct job jobs[RANKS];
	struct pawl_err err;
	uint32_t number = 0;

	while (call_of(number).kind != PAWL_ALL_REDUCE || call_of(number).len_bytes == 0) {
		number++;
	}
	open_world(&w);
	submit(&w.members[0], &jobs[0], number);
	assert_int_equal(pawl_group_wait(w.members[0].group, &jobs[0].work, 30000000, &err),
		PAWL_ETIMEDOUT);
	assert_string_equal(err.msg,
		"collectives: number 0 is not done within the timeout of 0.0 s");
	for (uint32_t r = 1; r < RANKS; r++) {
		submit(&w.members[r], &jobs[r], number);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		finish(&w.members[r], &jobs[r]);
	}
	close_world(&w);
}

static void closing_gives_up(void **state)
{
	struct world w;
	struct pawl_work work;
	struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_FLOAT32,
		.len_bytes = 400};
	float numbers[100] = {0};

	open_world(&w);
	call.in = call.out = numbers;
	assert_int_equal(pawl_group_submit(w.members[2].group, &work, &call, NULL), 0);
	pawl_group_leave(w.members[2].group);
	assert_int_equal(pawl_group_wait(w.members[2].group, &work, 0, NULL), PAWL_ECANCELED);
	assert_int_equal(pawl_group_submit(w.members[2].group, &work, &call, NULL), PAWL_ECANCELED);
	close_world(&w);
	pawl_group_close(NULL);
}

/* ---- messages ---- */

#define MESSAGES 40 /* messages to each other rank */

struct letter {
	struct pawl_work work;
	struct pawl_coll_call call;
	int32_t numbers[3000];
};

static struct pawl_coll_call letter_of(uint32_t from, uint32_t to, uint32_t n)
{
	struct rng rng = {first_seed + 1000 * from + 100 * to + n};

	return (struct pawl_coll_call){.dtype = PAWL_INT32,
		.tag = (uint32_t)rng_below(&rng, 3),
		.len_bytes = 4 * rng_below(&rng, 3000)};
}

static void post(struct member *member, struct letter *letter, uint32_t peer, uint32_t n, bool send)
{
	uint32_t from = send ? member->rank : peer;
	uint32_t to = send ? peer : member->rank;

	letter->call = letter_of(from, to, n);
	letter->call.kind = send ? PAWL_SEND : PAWL_RECEIVE;
	letter->call.root = peer;
	letter->call.in = letter->call.out = letter->numbers;
	for (uint64_t i = 0; i < letter->call.len_bytes / 4 && send; i++) {
		letter->numbers[i] = number_of(n, from, i);
	}
	assert_int_equal(pawl_group_submit(member->group, &letter->work, &letter->call, NULL), 0);
}

static void check_letter(struct member *member, struct letter *letter, uint32_t n)
{
	assert_int_equal(pawl_group_wait(member->group, &letter->work, LONG_NS, NULL), 0);
	assert_int_equal(letter->work.from, letter->call.root);
	for (uint64_t i = 0; i < letter->call.len_bytes / 4; i++) {
		assert_int_equal(letter->numbers[i], number_of(n, letter->call.root, i));
	}
}

/* Every rank sends to all others: receives come before or after the sends, tags are received in
 * another order than they are sent in, and collectives run beside them. */
static void *do_messages(void *user)
{
	struct member *member = user;
	struct letter *sent = calloc((size_t)RANKS * MESSAGES, sizeof(*sent));
	struct letter *got = calloc((size_t)RANKS * MESSAGES, sizeof(*got));
	struct job job;

	for (uint32_t i = 0; i < 2; i++) {
		bool send = (i + member->rank) % 2 == 0;

		for (uint32_t n = 0; n < RANKS * MESSAGES; n++) {
			uint32_t peer = n % RANKS;

			if (peer != member->rank) {
				post(member, send ? &sent[n] : &got[n], peer, n / RANKS, send);
			}
		}
		submit(member, &job, i);
		finish(member, &job);
	}
	for (uint32_t n = RANKS * MESSAGES; n-- > 0;) {
		if (n % RANKS != member->rank) {
			check_letter(member, &got[n], n / RANKS);
			assert_int_equal(
				pawl_group_wait(member->group, &sent[n].work, LONG_NS, NULL), 0);
		}
	}
	free(sent);
	free(got);
	return NULL;
}

static void messages(void **state)
{
	struct world w;

	open_world(&w);
	run_world(&w, do_messages);
	close_world(&w);
}

/* Rank 0 receives from any rank; all others send it their number. */
static void *do_any(void *user)
{
	struct member *member = user;
	struct pawl_work work;
	uint32_t seen = 0;
	int32_t number = (int32_t)member->rank;
	struct pawl_coll_call call = {.kind = member->rank == 0 ? PAWL_RECEIVE : PAWL_SEND,
		.dtype = PAWL_INT32,
		.root = member->rank == 0 ? PAWL_ANY_RANK : 0,
		.len_bytes = 4,
		.in = &number,
		.out = &number};

	for (uint32_t n = 0; n < (member->rank == 0 ? RANKS - 1 : 1); n++) {
		assert_int_equal(pawl_group_submit(member->group, &work, &call, NULL), 0);
		assert_int_equal(pawl_group_wait(member->group, &work, LONG_NS, NULL), 0);
		assert_int_equal(work.from, member->rank == 0 ? (uint32_t)number : 0);
		seen |= 1u << work.from;
	}
	assert_int_equal(seen, member->rank == 0 ? (1u << RANKS) - 2 : 1);
	return NULL;
}

static void from_any(void **state)
{
	struct world w;

	open_world(&w);
	run_world(&w, do_any);
	close_world(&w);
}

/* ---- the rest ---- */

static void *do_mean(void *user)
{
	struct member *member = user;
	const uint16_t half[] = {0x3c00, 0x4000, 0x4200, 0x4400}; /* 1, 2, 3, 4 */
	float f = (float)member->rank;
	double d = (double)member->rank;
	uint16_t h = half[member->rank];
	struct pawl_coll_call calls[] = {
		{.dtype = PAWL_FLOAT32, .mean = true, .len_bytes = 4, .in = &f, .out = &f},
		{.dtype = PAWL_FLOAT64, .mean = true, .len_bytes = 8, .in = &d, .out = &d},
		{.dtype = PAWL_FLOAT16, .mean = true, .len_bytes = 2, .in = &h, .out = &h}};
	struct pawl_work works[3];

	for (int i = 0; i < 3; i++) {
		assert_int_equal(pawl_group_submit(member->group, &works[i], &calls[i], NULL), 0);
	}
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pawl_group_wait(member->group, &works[i], LONG_NS, NULL), 0);
	}
	assert_true(f == 1.5F && d == 1.5);
	assert_int_equal(h, 0x4100); /* 2.5 */
	return NULL;
}

static void means(void **state)
{
	struct world w;

	open_world(&w);
	run_world(&w, do_mean);
	close_world(&w);
}

/* An operation that is done is handed out once, to the caller that asked for it. */
static void *take_completions(void *user)
{
	struct member *member = user;
	struct job jobs[5];
	uint32_t given = 0;
	uint32_t asked = 0;

	for (uint32_t i = 0; i < 5; i++) {
		submit(member, &jobs[i], i);
		asked += pawl_group_watch(member->group, &jobs[i].work) ? 1u << i : 0;
	}
	while (given != asked) {
		struct pawl_work *work = pawl_group_next_completion(member->group);

		for (uint32_t i = 0; i < 5; i++) {
			if (work == &jobs[i].work) {
				assert_int_equal(given & 1u << i, 0);
				given |= 1u << i;
			}
		}
	}
	for (uint32_t i = 0; i < 5; i++) {
		finish(member, &jobs[i]);
		assert_false(pawl_group_watch(member->group, &jobs[i].work));
	}
	return NULL;
}

static void *await_next(void *user)
{
	struct member *member = user;

	assert_null(
		pawl_group_next_completion(member->group)); /* waits until the group is closed */
	return NULL;
}

static void completions_are_handed_out(void **state)
{
	struct world w;
	pthread_t thread;

	open_world(&w);
	run_world(&w, take_completions);
	pthread_create(&thread, NULL, await_next, &w.members[0]);
	within_pace(0.02);
	pawl_group_leave(w.members[0].group);
	pthread_join(thread, NULL);
	close_world(&w);
}

/* A group of one has nobody to wait for. */
static void alone(void **state)
{
	char endpoint[PAWL_ENDPOINT_MAX];
	const char *endpoints[] = {endpoint};
	struct pawl_group *group;
	struct pawl_work work;
	uint64_t at[] = {0, 8};
	int32_t in[2] = {3, 4};
	int32_t out[2] = {0};
	struct pawl_coll_call call = {.dtype = PAWL_INT32,
		.len_bytes = 8,
		.in = in,
		.out = out,
		.in_at = at,
		.out_at = at};

	assert_int_equal(pawl_group_open(&group, 0, 1, NULL, endpoint, NULL), 0);
	assert_int_equal(pawl_group_join(group, endpoints, LONG_NS, NULL), 0);
	for (call.kind = 0; call.kind < PAWL_SEND; call.kind++) {
		memset(out, 0, sizeof(out));
		assert_int_equal(pawl_group_submit(group, &work, &call, NULL), 0);
		assert_true(pawl_work_done(&work));
		assert_int_equal(pawl_group_wait(group, &work, 0, NULL), 0);
		assert_int_equal(out[1],
			call.kind == PAWL_BROADCAST || call.kind == PAWL_BARRIER ? 0 : 4);
	}
	pawl_group_close(group);
}

static void malformed_endpoints(void **state)
{
	char endpoint[PAWL_ENDPOINT_MAX];
	static const struct {
		const char *endpoint;
		int code;
		const char *text;
	} bad[] = {{"", PAWL_EINVAL, "another version"},
		{"pawl-1 host 1:2 - 0 here", PAWL_EINVAL, "another version"},
		{"pawl-2 host 1:2:3 - 0", PAWL_EINVAL, "another version"},
		{"pawl-2 host 1:2 - 0 here", PAWL_ENOTSUP, "different hosts"},
		{"pawl-2 host 1:2 - 5 here", PAWL_EINVAL, "differ in servers"}};
	char texts[2][PAWL_ENDPOINT_MAX];
	const char *both[] = {texts[0], texts[1]};
	const char *endpoints[] = {endpoint, NULL};
	struct pawl_group *groups[2];
	struct pawl_group *group;
	struct pawl_err err;

	unsetenv("PAWL_HEARTBEAT"); /* the endpoints below have the default settings */
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(pawl_group_open(&group, 0, 2, NULL, endpoint, NULL), 0);
		endpoints[1] = bad[i].endpoint;
		assert_int_equal(pawl_group_join(group, endpoints, LONG_NS, &err), bad[i].code);
		assert_non_null(strstr(err.msg, bad[i].text));
		pawl_group_close(group);
	}
	assert_int_equal(pawl_group_open(&group, 2, 2, NULL, endpoint, &err), PAWL_EINVAL);
	/* Both open before either joins: otherwise the missing one would be taken for lost. */
	for (uint32_t r = 0; r < 2; r++) {
		setenv("PAWL_HEARTBEAT", r == 0 ? "0.5" : "0", 1);
		assert_int_equal(pawl_group_open(&groups[r], r, 2, NULL, texts[r], NULL), 0);
	}
	for (uint32_t r = 0; r < 2; r++) {
		assert_int_equal(pawl_group_join(groups[r], both, LONG_NS, &err), PAWL_EINVAL);
		assert_non_null(strstr(err.msg, "PAWL_HEARTBEAT must be the same"));
		pawl_group_close(groups[r]);
	}
	setenv("PAWL_HEARTBEAT", "soon", 1);
	assert_int_equal(pawl_group_open(&group, 0, 2, NULL, endpoint, &err), PAWL_EINVAL);
	bear_silence();
	assert_non_null(strstr(err.msg, "PAWL_HEARTBEAT=soon"));
}

/* The n-th allocation fails in opening and joining, for all n. */
static void faults(void **state)
{
	const char *const points[] = {"coll.group", "coll.control", "coll.shm"};

	for (size_t i = 0; i < 3; i++) {
		for (uint64_t nth = 1; each_fault(nth); nth++) {
			char endpoint[PAWL_ENDPOINT_MAX];
			const char *endpoints[] = {endpoint};
			struct pawl_group *group = NULL;
			int rv;

			fault_arm(points[i], nth, EAGAIN, false);
			rv = pawl_group_open(&group, 0, 1, NULL, endpoint, NULL);
			if (rv == 0) {
				rv = pawl_group_join(group, endpoints, LONG_NS, NULL);
			}
			fault_disarm();
			assert_true(rv == 0 || rv == PAWL_ENOMEM || rv == PAWL_EIO);
			assert_true(rv == 0 || fault_reached(nth));
			pawl_group_close(rv == 0 || group ? group : NULL);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_at_a_time),
		cmocka_unit_test(what_shares_memory_is_done_in_order),
		cmocka_unit_test(memory_in_use),
		cmocka_unit_test(unattended),
		cmocka_unit_test(waiting_costs_nothing),
		cmocka_unit_test(late_ranks_are_waited_for),
		cmocka_unit_test(closing_gives_up),
		cmocka_unit_test(messages),
		cmocka_unit_test(from_any),
		cmocka_unit_test(means),
		cmocka_unit_test(completions_are_handed_out),
		cmocka_unit_test(alone),
		cmocka_unit_test(malformed_endpoints),
		cmocka_unit_test(faults),
	};

	first_seed = test_seed();
	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
