/* Groups of ranks on one host: threads of one process here, processes where they are killed. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "coll/group.h"
#include "coll/shm.h"
#include "seed.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANKS   4
#define CALLS   120
#define FLYING  7            /* under way at a time */
#define LEN_MAX (200u << 10) /* bytes */
#define LONG_NS (60 * NS_PER_S)

static uint64_t first_seed;

/* ---- a world of threads ---- */

struct member {
	pthread_t thread;
	uint32_t rank;
	struct coll_group *group;
};

struct world {
	struct coll_topo topo;
	struct member members[RANKS];
};

static void open_world(struct world *w)
{
	const uint32_t where[RANKS] = {0};
	struct coll_port *ports[RANKS];
	char names[RANKS][COLL_SHM_NAME];
	const char *all[RANKS];

	assert_int_equal(coll_topo_init(&w->topo, where, RANKS, 0, NULL), 0);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(coll_shm_open(&ports[r], r, RANKS, names[r], NULL), 0);
		all[r] = names[r];
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(coll_shm_join(ports[r], all, NULL), 0);
		w->members[r].rank = r;
		assert_int_equal(coll_group_open(&w->members[r].group, &w->topo, r, ports[r], NULL),
			0);
	}
}

static void close_world(struct world *w)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		coll_group_close(w->members[r].group);
	}
	coll_topo_deinit(&w->topo);
}

static void run_world(struct world *w, void *(*run)(void *member))
{
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_create(&w->members[r].thread, NULL, run, &w->members[r]);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_join(w->members[r].thread, NULL);
	}
}

/* ---- calls: numbers that every rank can tell of every other ---- */

static int32_t number_of(uint32_t call, uint32_t rank, uint64_t i)
{
	struct rng rng = {((uint64_t)call << 40) + ((uint64_t)rank << 32) + i};

	return (int32_t)(rng_u64(&rng) % 1000000);
}

struct job {
	struct coll_work work;
	struct coll_call call;
	uint32_t number;
	int32_t *in, *out; /* owned; in may be out */
};

/* Call number c, the same at all ranks. */
static struct coll_call call_of(uint32_t c)
{
	struct rng rng = {first_seed + c};
	uint64_t most = rng_below(&rng, 3) == 0 ? LEN_MAX : 400;

	return (struct coll_call){.kind = (enum coll_kind)rng_below(&rng, COLL_SCATTER + 1),
		.way = rng_below(&rng, 2) == 0 ? COLL_DIRECT : COLL_TREE,
		.fold = COLL_ADD,
		.type = COLL_I32,
		.root = (uint32_t)rng_below(&rng, RANKS),
		.len_bytes = rng_below(&rng, most) / 4 * 4};
}

static uint64_t blocks_in(const struct coll_call *call, uint32_t rank)
{
	bool root = rank == call->root;

	switch (call->kind) {
	case COLL_REDUCE_SCATTER:
		return RANKS;
	case COLL_SCATTER:
		return root ? RANKS : 0;
	case COLL_BROADCAST:
		return root ? 1 : 0;
	default:
		return 1;
	}
}

static uint64_t blocks_out(const struct coll_call *call, uint32_t rank)
{
	bool root = rank == call->root;

	switch (call->kind) {
	case COLL_ALL_GATHER:
		return RANKS;
	case COLL_GATHER:
		return root ? RANKS : 0;
	case COLL_REDUCE:
		return root ? 1 : 0;
	case COLL_BROADCAST:
		return root ? 0 : 1;
	default:
		return 1;
	}
}

static void submit(struct member *member, struct job *job, uint32_t number)
{
	*job = (struct job){.call = call_of(number), .number = number};
	job->in = malloc(blocks_in(&job->call, member->rank) * job->call.len_bytes + 1);
	job->out = malloc(blocks_out(&job->call, member->rank) * job->call.len_bytes + 1);
	for (uint64_t i = 0; i < blocks_in(&job->call, member->rank) * job->call.len_bytes / 4;
		i++) {
		job->in[i] = number_of(number, member->rank, i);
	}
	job->call.in = job->in;
	job->call.out = job->out;
	assert_int_equal(coll_group_submit(member->group, &job->work, &job->call, NULL), 0);
}

static int32_t sum_of(uint32_t number, uint64_t i)
{
	int32_t sum = 0;

	for (uint32_t r = 0; r < RANKS; r++) {
		sum += number_of(number, r, i);
	}
	return sum;
}

/* What number i of a rank's OUT must be. */
static int32_t wanted(const struct job *job, uint32_t rank, uint64_t i)
{
	const struct coll_call *call = &job->call;
	uint64_t block = call->len_bytes / 4;

	switch (call->kind) {
	case COLL_ALL_REDUCE:
	case COLL_REDUCE:
		return sum_of(job->number, i);
	case COLL_REDUCE_SCATTER:
		return sum_of(job->number, rank * block + i);
	case COLL_BROADCAST:
		return number_of(job->number, call->root, i);
	case COLL_SCATTER:
		return number_of(job->number, call->root, rank * block + i);
	default:
		return number_of(job->number, (uint32_t)(i / block), i % block);
	}
}

static void finish(struct member *member, struct job *job)
{
	uint64_t n = blocks_out(&job->call, member->rank) * job->call.len_bytes / 4;

	assert_int_equal(coll_group_wait(member->group, &job->work, LONG_NS, NULL), 0);
	for (uint64_t i = 0; i < n; i++) {
		assert_int_equal(job->out[i], wanted(job, member->rank, i));
	}
	free(job->in);
	free(job->out);
}

/* ---- tests ---- */

/* Many under way at a time; each rank waits for them in an order of its own. */
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

/* Nobody waits: the group's own threads do it. */
static void *do_unattended(void *user)
{
	struct member *member = user;
	struct job job;
	int64_t end_ns = clock_mono_ns() + LONG_NS;
	const struct timespec pause = {.tv_nsec = 1000000};

	for (uint32_t number = 0; number < 8; number++) {
		submit(member, &job, number);
		while (!__atomic_load_n(&job.work.done, __ATOMIC_ACQUIRE)) {
			assert_true(clock_mono_ns() < end_ns);
			nanosleep(&pause, NULL);
		}
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

/* A rank that does not come: the others can stop waiting, and wait again. */
static void late_ranks_are_waited_for(void **state)
{
	struct world w;
	struct job jobs[RANKS];
	struct pawl_err err;
	uint32_t number = 0;

	while (call_of(number).kind != COLL_ALL_REDUCE || call_of(number).len_bytes == 0) {
		number++;
	}
	open_world(&w);
	submit(&w.members[0], &jobs[0], number);
	assert_int_equal(coll_group_wait(w.members[0].group, &jobs[0].work, 30000000, &err),
		PAWL_ETIMEDOUT);
	assert_non_null(strstr(err.msg, "operation 0 is not done"));
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
	struct coll_work work;
	struct coll_call call = {.kind = COLL_ALL_REDUCE, .type = COLL_F32, .len_bytes = 400};
	float numbers[100] = {0};

	open_world(&w);
	call.in = call.out = numbers;
	assert_int_equal(coll_group_submit(w.members[2].group, &work, &call, NULL), 0);
	close_world(&w);
	assert_true(work.done);
	assert_int_equal(work.code, PAWL_ECANCELED);
	coll_group_close(NULL);
}

static void what_cannot_be_is_refused(void **state)
{
	struct world w;
	struct coll_work work;
	struct pawl_err err;
	struct coll_call call = {.kind = COLL_ALL_REDUCE, .type = COLL_F32, .len_bytes = 401};

	open_world(&w);
	assert_int_equal(coll_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "401 bytes"));
	call = (struct coll_call){.fold = COLL_XOR, .type = COLL_F32, .len_bytes = 400};
	assert_int_equal(coll_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "floating-point"));
	call = (struct coll_call){.kind = COLL_GATHER, .root = RANKS, .len_bytes = 400};
	assert_int_equal(coll_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "root 4 of 4 ranks"));
	close_world(&w);
}

/* ---- processes ---- */

struct shared {
	char names[2][COLL_SHM_NAME];
	uint32_t ready[2]; /* atomic: the name is there */
};

static struct coll_group *join_two(struct shared *shared, uint32_t rank, struct coll_topo *topo)
{
	const uint32_t where[2] = {0};
	const char *all[] = {shared->names[0], shared->names[1]};
	struct coll_port *port;
	struct coll_group *group;

	if (coll_topo_init(topo, where, 2, 0, NULL) != 0 ||
		coll_shm_open(&port, rank, 2, shared->names[rank], NULL) != 0) {
		abort();
	}
	__atomic_store_n(&shared->ready[rank], 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&shared->ready[!rank], __ATOMIC_ACQUIRE) == 0) {
		sched_yield();
	}
	if (coll_shm_join(port, all, NULL) != 0 ||
		coll_group_open(&group, topo, rank, port, NULL) != 0) {
		abort();
	}
	return group;
}

/* The other one's process is killed in the middle: whoever waits hears which rank it was, and so
 * does whoever comes later. */
static void a_dead_rank_is_named(void **state)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t len = 8 << 20;
	float *numbers = calloc(1, len);
	struct coll_call call = {.kind = COLL_ALL_REDUCE,
		.type = COLL_F32,
		.len_bytes = len,
		.in = numbers,
		.out = numbers};
	struct coll_work works[3];
	struct coll_topo topo;
	struct coll_group *group;
	struct pawl_err err;
	pid_t pid = fork();

	if (pid == 0) {
		group = join_two(shared, 1, &topo);
		if (coll_group_submit(group, &works[0], &call, NULL) == 0) {
			coll_group_wait(group, &works[0], LONG_NS, NULL);
		}
		raise(SIGKILL);
	}
	group = join_two(shared, 0, &topo);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(coll_group_submit(group, &works[i], &call, NULL), 0);
	}
	assert_int_equal(coll_group_wait(group, &works[0], LONG_NS, &err), 0);
	assert_int_equal(coll_group_wait(group, &works[1], LONG_NS, &err), PAWL_EPEER);
	assert_string_equal(err.msg, "collectives: rank 1 is lost: its process ended");
	assert_int_equal(coll_group_submit(group, &works[2], &call, &err), PAWL_EPEER);
	assert_string_equal(err.msg, "collectives: rank 1 is lost: its process ended");
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	coll_group_close(group);
	coll_topo_deinit(&topo);
	munmap(shared, sizeof(*shared));
	free(numbers);
}

static void faults(void **state)
{
	const uint32_t where[1] = {0};
	struct coll_topo topo;
	struct pawl_err err;

	assert_int_equal(coll_topo_init(&topo, where, 1, 0, NULL), 0);
	for (uint64_t nth = 1; nth <= 3; nth++) {
		struct coll_port *port;
		struct coll_group *group;
		char name[COLL_SHM_NAME];
		int rv;

		assert_int_equal(coll_shm_open(&port, 0, 1, name, NULL), 0);
		fault_arm("coll.group", nth, EAGAIN, false);
		rv = coll_group_open(&group, &topo, 0, port, &err);
		fault_disarm();
		assert_int_equal(rv, nth == 1 ? PAWL_ENOMEM : nth == 2 ? PAWL_EIO : 0);
		if (rv == 0) {
			coll_group_close(group);
		}
	}
	coll_topo_deinit(&topo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_at_a_time),
		cmocka_unit_test(unattended),
		cmocka_unit_test(late_ranks_are_waited_for),
		cmocka_unit_test(closing_gives_up),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(a_dead_rank_is_named),
		cmocka_unit_test(faults),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
