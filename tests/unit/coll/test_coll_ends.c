/* How groups end: a rank dies, freezes, leaves, comes late, or calls something other than the
 * others; every other rank learns which one it was. Ranks that are killed are processes, all others
 * threads. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "coll/group/group_call.h"
#include "test_coll_begun.h"
#include "test_coll_endpoints.h"
#include "test_coll_heartbeat.h"
#include "test_coll_world.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- processes ---- */

#define PROCESSES 3

struct shared {
	struct test_endpoints endpoints;
	uint32_t done; /* atomic: ranks other than 2 that have done the first sum, or begun it */
};

static float numbers[2 << 20];

static struct pawl_coll_call big_sum(void)
{
	return (struct pawl_coll_call){.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_FLOAT32,
		.len_bytes = sizeof(numbers),
		.in = numbers,
		.out = numbers};
}

static int sum_once(struct pawl_group *group, struct pawl_err *err)
{
	struct pawl_coll_call call = big_sum();
	struct pawl_work work;
	int rv = pawl_group_submit(group, &work, &call, err);

	return rv == 0 ? pawl_group_wait(group, &work, LONG_NS, err) : rv;
}

/* Rank 2 ends after one sum, by calling last. Rank 1 goes on until a sum fails, and must learn of
 * rank 2 too. */
static void be_process(struct shared *shared, uint32_t rank, void (*last)(void))
{
	struct pawl_group *group = join_by_endpoints(&shared->endpoints, rank, PROCESSES);
	struct pawl_err err;
	int rv = sum_once(group, &err);

	while (rank == 2 && __atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) < 2) {
		sched_yield();
	}
	if (rank == 2) {
		last();
		_exit(0);
	}
	__atomic_fetch_add(&shared->done, 1, __ATOMIC_RELEASE);
	while (rv == 0) {
		rv = sum_once(group, &err);
	}
	_exit(rv == PAWL_EPEER && strstr(err.msg, "rank 2 is lost") ? 0 : 1);
}

static void kill_me(void)
{
	raise(SIGKILL);
}

static void stop_me(void)
{
	raise(SIGSTOP);
}

static void lose_rank_2(void (*last)(void), const char *why)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct pawl_group *group;
	struct pawl_err err;
	pid_t pids[PROCESSES];
	int status;

	for (uint32_t r = 1; r < PROCESSES; r++) {
		pids[r] = fork();
		if (pids[r] == 0) {
			be_process(shared, r, last);
		}
	}
	group = join_by_endpoints(&shared->endpoints, 0, PROCESSES);
	assert_int_equal(sum_once(group, &err), 0);
	__atomic_fetch_add(&shared->done, 1, __ATOMIC_RELEASE);
	assert_int_equal(sum_once(group, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, why));
	assert_non_null(strstr(err.msg, "all_reduce(sum) of 2097152 float32 (number 1)"));
	/* Later calls fail with the reason, too. */
	assert_int_equal(sum_once(group, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, why));
	assert_int_equal(waitpid(pids[1], &status, 0), pids[1]);
	assert_int_equal(status, 0);
	kill(pids[2], SIGKILL);
	assert_int_equal(waitpid(pids[2], NULL, 0), pids[2]);
	pawl_group_close(group);
	munmap(shared, sizeof(*shared));
}

static void a_dead_rank_is_named(void **state)
{
	lose_rank_2(kill_me, "rank 2 is lost: its process ended");
}

static void a_stopped_rank_is_named(void **state)
{
	lose_rank_2(stop_me, "rank 2 is lost: not a sign of it for");
}

/* Rank 2 does not come, and rank 1's process ends as soon as its timeout is over, which begins when
 * rank 0 has come. */
static void be_impatient(struct shared *shared, uint32_t rank)
{
	struct pawl_group *group = join_by_endpoints(&shared->endpoints, rank, PROCESSES);
	struct pawl_coll_call call = big_sum();
	struct pawl_work work;

	if (rank == 1) {
		while (__atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) == 0) {
			sched_yield();
		}
		call.timeout_ns = NS_PER_S / 2;
		fault_arm("coll.failed", 1, FAULT_DIES, false);
		pawl_group_submit(group, &work, &call, NULL);
	}
	for (;;) {
		pause();
	}
}

/* The others receive a failure before the waiting rank goes on. That rank may end its process,
 * which would otherwise be taken for the cause. */
static void others_learn_of_a_failure_first(void **state)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct pawl_coll_call call = big_sum();
	struct pawl_group *group;
	struct pawl_work work;
	struct pawl_err err;
	pid_t pids[PROCESSES];
	int status;

	for (uint32_t r = 1; r < PROCESSES; r++) {
		pids[r] = fork();
		if (pids[r] == 0) {
			be_impatient(shared, r);
		}
	}
	group = join_by_endpoints(&shared->endpoints, 0, PROCESSES);
	assert_int_equal(pawl_group_submit(group, &work, &call, NULL), 0);
	await_headers(group, 0, 2);
	__atomic_fetch_add(&shared->done, 1, __ATOMIC_RELEASE);
	assert_int_equal(pawl_group_wait(group, &work, LONG_NS, &err), PAWL_ETIMEDOUT);
	assert_non_null(strstr(err.msg,
		"not done within the timeout of 0.5 s at rank 1: rank 2 has not begun it"));
	assert_int_equal(waitpid(pids[1], &status, 0), pids[1]);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == FAULT_EXIT);
	kill(pids[2], SIGKILL);
	assert_int_equal(waitpid(pids[2], NULL, 0), pids[2]);
	pawl_group_close(group);
	munmap(shared, sizeof(*shared));
}

static void a_fork_is_refused(void **state)
{
	char endpoint[PAWL_ENDPOINT_MAX];
	const char *endpoints[] = {endpoint};
	struct pawl_group *group;
	struct pawl_err err;
	int status;
	pid_t pid;

	assert_int_equal(pawl_group_open(&group, 0, 1, NULL, endpoint, NULL), 0);
	assert_int_equal(pawl_group_join(group, endpoints, LONG_NS, NULL), 0);
	pid = fork();
	if (pid == 0) {
		_exit(sum_once(group, &err) == PAWL_ENOTSUP && strstr(err.msg, "fork") ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	pawl_group_close(group);
}

/* ---- threads ---- */

struct other {
	struct pawl_coll_call usual, odd; /* calls of the others, and of rank 2 */
	const char *text;                 /* text in the error of at least one rank */
};

static struct other other; /* calls of the current test */
static uint8_t bytes[RANKS][RANKS * 4000];
static uint8_t out_bytes[RANKS][RANKS * 4000];

static void *call_other(void *user)
{
	struct member *member = user;
	struct pawl_coll_call call = member->rank == 2 ? other.odd : other.usual;
	struct pawl_work works[5];
	uint32_t n = 0;

	call.in = call.out = bytes[member->rank];
	member->rv = 0;
	while (n < 5 && member->rv == 0) { /* A rank that only sends learns of it by the fifth. */
		member->rv = pawl_group_submit(member->group, &works[n], &call, &member->err);
		n += member->rv == 0;
		if (member->rv == 0) {
			member->rv = pawl_group_wait(member->group, &works[n - 1], LONG_NS,
				&member->err);
		}
	}
	return NULL;
}

static void one_does_something_else(void **state)
{
	const struct pawl_coll_call usual = {.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_FLOAT32,
		.len_bytes = 4000};
	struct pawl_coll_call longer = usual;
	struct pawl_coll_call max = usual;
	struct pawl_coll_call doubles = usual;
	struct pawl_coll_call root = {.kind = PAWL_BROADCAST, .root = 1, .len_bytes = 4000};
	struct pawl_coll_call barrier = {.kind = PAWL_BARRIER};
	const struct other others[] = {
		{usual, longer, "all_reduce(sum) of 1000 float32"},
		{usual, max, "all_reduce(max) of 1000 float32"},
		{usual, doubles, "all_reduce(sum) of 500 float64"},
		{usual, root, "broadcast of 4000 uint8 from rank 1"},
		{usual, barrier, "calls barrier"},
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		bool found = false;
		struct world w;

		other = others[i];
		other.odd.len_bytes += i == 0 ? 4 : 0;
		other.odd.op = i == 1 ? PAWL_MAX : PAWL_SUM;
		other.odd.dtype = i == 2 ? PAWL_FLOAT64 : other.odd.dtype;
		open_world(&w);
		run_world(&w, call_other);
		for (uint32_t r = 0; r < RANKS; r++) {
			assert_int_equal(w.members[r].rv, PAWL_EMISMATCH);
			assert_non_null(strstr(w.members[r].err.msg, "rank 2 "));
			found |= strstr(w.members[r].err.msg, other.text) != NULL;
		}
		assert_true(found);
		close_world(&w);
	}
}

/* Nothing but heartbeats goes between the two. */
static void two_that_wait_for_each_other_are_named(void **state)
{
	struct world w;

	other = (struct other){{.kind = PAWL_GATHER, .root = 1, .len_bytes = 4000},
		{.kind = PAWL_SCATTER, .root = 1, .len_bytes = 4000}, NULL};
	open_world(&w);
	run_world(&w, call_other);
	for (uint32_t r = 1; r < 3; r++) {
		assert_int_equal(w.members[r].rv, PAWL_EMISMATCH);
		assert_non_null(strstr(w.members[r].err.msg, "calls gather"));
		assert_non_null(strstr(w.members[r].err.msg, "rank 2 calls scatter"));
	}
	close_world(&w);
}

/* ---- mismatches that only heartbeats show ---- */

/* The second collective, as rank 2 and the others call it. */
struct odd_call {
	struct pawl_coll_call call; /* call of the others */
	bool own_root;              /* each rank is its own root; otherwise rank 2 has no bytes */
	bool silent;                /* all ranks finish the call */
	const char *texts[2];       /* texts in the error of each rank */
};

/* A world for each call, all at once: they spend their time waiting for heartbeats. */
struct odd_world {
	struct world w; /* first: members find their odd_world by it */
	const struct odd_call *call;
	bool goes_on; /* the next collective finds the mismatch; otherwise heartbeats do */
	bool leaves;  /* rank 2 leaves after the call */
	uint8_t bytes[RANKS][RANKS * 4000];
};

static bool odd_leaves; /* rank 2 sends nothing to rank 1; otherwise it expects nothing */

static int call_once(struct member *member, struct pawl_coll_call call, uint8_t *in, uint8_t *out)
{
	struct pawl_work work;
	int rv;

	call.in = in;
	call.out = out;
	rv = pawl_group_submit(member->group, &work, &call, &member->err);
	return rv == 0 ? pawl_group_wait(member->group, &work, LONG_NS, &member->err) : rv;
}

static void *call_odd(void *user)
{
	struct member *member = user;
	struct odd_world *odd = (struct odd_world *)(void *)(member - member->rank);
	uint8_t *own = odd->bytes[member->rank];
	struct pawl_coll_call barrier = {.kind = PAWL_BARRIER};
	struct pawl_coll_call call = odd->call->call;

	member->rv = call_once(member, barrier, own, own);
	if (member->rv != 0) {
		return NULL; /* another rank is further, and has found it */
	}
	if (odd->call->own_root) {
		call.root = member->rank;
	} else if (member->rank == 2) {
		call.len_bytes = 0;
	}
	member->rv = call_once(member, call, own, own);
	if (member->rank == 2 && odd->leaves) {
		pawl_group_close(member->group);
		member->group = NULL;
	} else if (member->rv == 0 && !odd->goes_on) {
		await_failure(member->group, LONG_NS);
		member->rv = pawl_group_submit(member->group, &(struct pawl_work){0}, &barrier,
			&member->err);
	} else if (member->rv == 0) {
		member->rv = call_once(member, barrier, own, own);
	}
	return NULL;
}

static void begin_odd(struct odd_world *odd, const char *heartbeat)
{
	setenv("PAWL_HEARTBEAT", heartbeat, 1);
	open_world(&odd->w);
	bear_silence();
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_create(&odd->w.members[r].thread, NULL, call_odd, &odd->w.members[r]);
	}
}

static void await_odd(struct odd_world *odd)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_join(odd->w.members[r].thread, NULL);
	}
}

static void check_odd(struct odd_world *odd)
{
	const struct odd_call *call = odd->call;

	for (uint32_t r = 0; r < RANKS; r++) {
		const struct member *member = &odd->w.members[r];
		const char *msg = member->err.msg;
		const char *at;

		if (member->group == NULL) {
			continue;
		}
		assert_int_equal(member->rv, PAWL_EMISMATCH);
		assert_non_null(strstr(msg, "ranks disagree in collective 1: "));
		at = strstr(msg, call->texts[0]);
		assert_non_null(at);
		assert_non_null(strstr(call->own_root ? at + 1 : msg, call->texts[1]));
	}
	close_world(&odd->w);
}

#define FLOATS(KIND, ROOT)                                                                         \
	{                                                                                          \
		.kind = KIND, .root = ROOT, .dtype = PAWL_FLOAT32, .len_bytes = 4000               \
	}

static const struct odd_call odd_calls[] = {
	{FLOATS(PAWL_ALL_REDUCE, 0), false, false,
		{"rank 2 calls all_reduce(sum) of 0 float32", "all_reduce(sum) of 1000 float32"}},
	{FLOATS(PAWL_ALL_GATHER, 0), false, false,
		{"rank 2 calls all_gather of 0 float32", "all_gather of 1000 float32"}},
	{FLOATS(PAWL_REDUCE_SCATTER, 0), false, false,
		{"rank 2 calls reduce_scatter(sum) of 0 float32",
			"reduce_scatter(sum) of 1000 float32"}},
	{FLOATS(PAWL_BROADCAST, 1), false, true,
		{"rank 2 calls broadcast of 0 float32 from rank 1",
			"calls broadcast of 1000 float32 from rank 1"}},
	{FLOATS(PAWL_BROADCAST, 0), true, true,
		{"calls broadcast of 1000 float32 from rank",
			"calls broadcast of 1000 float32 from rank"}},
	{FLOATS(PAWL_SCATTER, 0), true, true,
		{"calls scatter of 1000 float32 from rank",
			"calls scatter of 1000 float32 from rank"}},
	{FLOATS(PAWL_GATHER, 0), true, false,
		{"calls gather of 1000 float32 to rank", "calls gather of 1000 float32 to rank"}},
	{FLOATS(PAWL_REDUCE, 0), true, false,
		{"calls reduce(sum) of 1000 float32 to rank",
			"calls reduce(sum) of 1000 float32 to rank"}},
};

#define ODD_CALLS (sizeof(odd_calls) / sizeof(*odd_calls))

/* silent: the heartbeat interval of worlds whose call all ranks finish; heartbeat: that of the
 * others. */
static void check_odds(bool goes_on, bool leaves, const char *silent, const char *heartbeat)
{
	struct odd_world *odds = calloc(ODD_CALLS, sizeof(*odds));
	size_t n = 0;

	assert_non_null(odds);
	for (size_t i = 0; i < ODD_CALLS; i++) {
		if (!leaves || !odd_calls[i].own_root) {
			odds[n].call = &odd_calls[i];
			odds[n].goes_on = goes_on;
			odds[n].leaves = leaves;
			begin_odd(&odds[n++], odd_calls[i].silent ? silent : heartbeat);
		}
	}
	for (size_t i = 0; i < n; i++) {
		await_odd(&odds[i]);
	}
	for (size_t i = 0; i < n; i++) {
		check_odd(&odds[i]);
	}
	free(odds);
}

/* Some ranks wait for what will not come; others are done, and do nothing more. */
static void heartbeats_show_who_called_something_else(void **state)
{
	check_odds(false, false, "1", "1");
}

static void the_next_collective_shows_who_called_something_else(void **state)
{
	check_odds(true, false, "0", "1");
}

static void leaving_ranks_report_what_they_called(void **state)
{
	check_odds(true, true, "100", "100");
}

/* Rank 2 has nothing for rank 1, which expects something, or the other way round. */
static void *call_parts(void *user)
{
	struct member *member = user;
	uint64_t at[RANKS + 1] = {0, 1000, 2000, 3000, 4000};
	uint64_t less[RANKS + 1] = {0, 1000, 1000, 2000, 3000};
	struct pawl_coll_call call = {.kind = PAWL_ALL_TO_ALL, .in_at = at, .out_at = at};
	uint8_t *in = bytes[member->rank];

	if (member->rank == 2) {
		*(odd_leaves ? &call.in_at : &call.out_at) = less;
	}
	member->rv = call_once(member, call, in, out_bytes[member->rank]);
	if (member->rv == 0) { /* This rank's part was complete. */
		call = (struct pawl_coll_call){.kind = PAWL_BARRIER};
		member->rv = call_once(member, call, in, in);
	}
	return NULL;
}

static void empty_parts_are_reported(void **state)
{
	const char *const texts[] = {"rank 1 sends 1000 bytes to rank 2, which expects 0",
		"rank 2 sends 0 bytes to rank 1, which expects 1000"};

	setenv("PAWL_HEARTBEAT", "0", 1);
	for (int i = 0; i < 2; i++) {
		struct world w;

		odd_leaves = i == 1;
		open_world(&w);
		run_world(&w, call_parts);
		for (uint32_t r = 0; r < RANKS; r++) {
			assert_int_equal(w.members[r].rv, PAWL_EMISMATCH);
			assert_non_null(strstr(w.members[r].err.msg, texts[i]));
		}
		close_world(&w);
	}
	bear_silence();
}

static void headers_show_the_call_before(void **state)
{
	struct pawl_work works[2] = {{.call = FLOATS(PAWL_BROADCAST, 0), .number = 8},
		{.call = FLOATS(PAWL_ALL_REDUCE, 0), .number = 9}};
	uint8_t headers[4][GROUP_HEADER_BYTES];
	struct pawl_err err;

	group_header_encode(headers[0], &works[0], 5, NULL);
	works[0].call.root = 1;
	group_header_encode(headers[1], &works[0], 5, NULL);
	group_header_encode(headers[2], &works[1], 6, headers[0]);
	group_header_encode(headers[3], &works[1], 7, headers[1]);
	assert_int_equal(group_header_check(headers[2], headers[2], &works[1].call, 0, 1, &err), 0);
	assert_int_equal(group_header_check(headers[3], headers[2], &works[1].call, 0, 1, &err),
		PAWL_EMISMATCH);
	assert_non_null(strstr(err.msg,
		"in collective 8: rank 0 calls broadcast of 1000 float32 from rank 0, rank 1 "
		"calls broadcast of 1000 float32 from rank 1"));
	group_header_encode(headers[3], &works[1], 7, NULL);
	assert_int_equal(group_header_check(headers[3], headers[2], &works[1].call, 0, 1, &err),
		PAWL_EMISMATCH);
	assert_non_null(strstr(err.msg,
		"before collective 9: rank 0 and rank 1 both call all_reduce(sum) of 1000 "
		"float32 now, but their earlier calls differ"));
}

/* Ranks 0 to 2 meet here: a rank that learns of the one that left reports it to those that lag
 * behind. */
static pthread_barrier_t stay;

/* Ranks 0 to 2 do three sums; rank 3 does two and leaves. */
static void *leave_early(void *user)
{
	struct member *member = user;
	struct pawl_coll_call call = {.dtype = PAWL_FLOAT32, .len_bytes = 4000};
	struct pawl_work work;

	call.in = call.out = bytes[member->rank];
	for (uint32_t n = 0; n < (member->rank == 3 ? 2 : 3); n++) {
		if (n == 2) {
			pthread_barrier_wait(&stay);
		}
		member->rv = pawl_group_submit(member->group, &work, &call, &member->err);
		if (member->rv == 0) { /* Otherwise another rank has reported it before. */
			member->rv = pawl_group_wait(member->group, &work, LONG_NS, &member->err);
		}
		assert_int_equal(member->rv, n < 2 ? 0 : PAWL_EPEER);
	}
	if (member->rank == 3) {
		pawl_group_close(member->group);
		member->group = NULL;
	} else {
		assert_non_null(strstr(member->err.msg, "rank 3 has left the group"));
	}
	return NULL;
}

static void one_leaves_early(void **state)
{
	struct world w;

	assert_int_equal(pthread_barrier_init(&stay, NULL, RANKS - 1), 0);
	open_world(&w);
	run_world(&w, leave_early);
	close_world(&w);
	pthread_barrier_destroy(&stay);
}

/* Rank 1 does not come, and rank 3's timeout is over first, which begins when 0 and 2 have come. */
static void *be_late(void *user)
{
	struct member *member = user;
	struct member *all = member - member->rank;
	struct pawl_coll_call call = {.dtype = PAWL_FLOAT32, .len_bytes = 4000};
	struct pawl_work work;

	call.in = call.out = bytes[member->rank];
	if (member->rank == 1) {
		return NULL;
	}
	if (member->rank == 3) {
		await_headers(all[0].group, 0, 2);
		await_headers(all[2].group, 0, 2);
		call.timeout_ns = 200 * NS_PER_MS;
	}
	assert_int_equal(pawl_group_submit(member->group, &work, &call, NULL), 0);
	assert_int_equal(pawl_group_wait(member->group, &work, LONG_NS, &member->err),
		PAWL_ETIMEDOUT);
	assert_true(pawl_work_done(&work));
	assert_non_null(
		strstr(member->err.msg, ": not done within the timeout of 0.2 s at rank 3: "));
	assert_non_null(strstr(member->err.msg, ": rank 1 has not begun it"));
	return NULL;
}

static void one_is_late(void **state)
{
	struct world w;

	open_world(&w);
	run_world(&w, be_late);
	close_world(&w);
}

static void messages_of_another_length(void **state)
{
	struct world w;
	struct pawl_work works[2];
	struct pawl_err err;
	struct pawl_coll_call call = {.kind = PAWL_SEND,
		.root = 1,
		.tag = 7,
		.len_bytes = 100,
		.in = bytes[0],
		.out = bytes[1]};

	open_world(&w);
	assert_int_equal(pawl_group_submit(w.members[0].group, &works[0], &call, NULL), 0);
	call.kind = PAWL_RECEIVE;
	call.root = 0;
	call.len_bytes = 101;
	assert_int_equal(pawl_group_submit(w.members[1].group, &works[1], &call, NULL), 0);
	for (uint32_t r = 0; r < 2; r++) {
		assert_int_equal(pawl_group_wait(w.members[r].group, &works[r], LONG_NS, &err),
			PAWL_EMISMATCH);
		assert_non_null(strstr(err.msg,
			"rank 0 sends 100 bytes with tag 7, and rank 1 receives 101"));
	}
	close_world(&w);
}

/* One rank has no memory for a plan: the others learn of it. */
static void one_has_no_memory(void **state)
{
	struct world w;
	struct pawl_work works[RANKS];
	struct pawl_coll_call call = {.dtype = PAWL_FLOAT32, .len_bytes = 4000};

	open_world(&w);
	fault_arm("coll.exec", 1, ENOMEM, false);
	for (uint32_t r = 0; r < RANKS; r++) {
		struct member *m = &w.members[r];

		call.in = call.out = bytes[r];
		m->rv = pawl_group_submit(m->group, &works[r], &call, &m->err);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		struct member *m = &w.members[r];

		if (m->rv == 0) { /* Otherwise this rank had received the failure before. */
			m->rv = pawl_group_wait(m->group, &works[r], LONG_NS, &m->err);
		}
		assert_int_equal(m->rv, PAWL_ENOMEM);
		assert_non_null(strstr(m->err.msg, "no memory for a collective"));
	}
	fault_disarm();
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dead_rank_is_named),
		cmocka_unit_test(a_stopped_rank_is_named),
		cmocka_unit_test(others_learn_of_a_failure_first),
		cmocka_unit_test(a_fork_is_refused),
		cmocka_unit_test(one_does_something_else),
		cmocka_unit_test(two_that_wait_for_each_other_are_named),
		cmocka_unit_test(heartbeats_show_who_called_something_else),
		cmocka_unit_test(the_next_collective_shows_who_called_something_else),
		cmocka_unit_test(leaving_ranks_report_what_they_called),
		cmocka_unit_test(empty_parts_are_reported),
		cmocka_unit_test(headers_show_the_call_before),
		cmocka_unit_test(one_leaves_early),
		cmocka_unit_test(one_is_late),
		cmocka_unit_test(messages_of_another_length),
		cmocka_unit_test(one_has_no_memory),
	};

	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
