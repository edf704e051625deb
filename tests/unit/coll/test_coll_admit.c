/* Newcomers to a running group: processes that ask to join, are admitted, and die at any time; and
 * strangers that connect to the join listener. */
#include "base/err.h"
#include "base/rng.h"
#include "coll/group/join_listener.h"
#include "coll/transport/dial.h"
#include "coll/transport/tcp.h"
#include "seed.h"
#include "test_coll_heartbeat.h"
#include "test_coll_procs.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>

#define MOST       6 /* ranks */
#define HISTORIES  5
#define GROUPS_MAX 64 /* groups of one rank, one after the other */
#define TURNED_OFF 8  /* exit status of a newcomer that was not admitted */

static uint64_t first_seed;

/* ---- processes ---- */

/* Groups of one rank, oldest first. A shrunk group is linked to its successor; an admission makes a
 * group that stands alone. */
struct groups {
	struct pawl_group *at[GROUPS_MAX];
	uint32_t n;
};

static struct pawl_group *last_of(const struct groups *groups)
{
	return groups->at[groups->n - 1];
}

static void close_all(struct groups *groups)
{
	while (groups->n > 0) {
		pawl_group_close(groups->at[--groups->n]);
	}
}

static void publish_listener(struct shared *shared, struct pawl_join_listener **listener)
{
	if (pawl_join_listener_open(listener, NULL, shared->listener_name, NULL) != 0) {
		_exit(9);
	}
	__atomic_add_fetch(&shared->listeners_opened, 1, __ATOMIC_RELEASE);
}

static int admit(struct groups *groups, struct pawl_join_listener *listener, struct pawl_err *err)
{
	uint32_t rank = pawl_group_rank(last_of(groups));
	struct pawl_group *next;
	int rv = pawl_group_admit(&next, last_of(groups), listener, MOST, LONG_NS, err);

	if (rv == 0 && next) {
		if (pawl_group_rank(next) != rank) {
			_exit(10);
		}
		close_all(groups);
		groups->at[groups->n++] = next;
	}
	return rv;
}

static void shrink(struct groups *groups, struct pawl_err *err)
{
	uint32_t ranks[MOST];
	uint32_t n;
	struct pawl_group *next;
	uint32_t least = pawl_group_ranks(last_of(groups)) / 2 + 1;
	int rv = pawl_group_shrink(&next, last_of(groups), least, ranks, &n, LONG_NS, err);

	if (rv != 0) {
		_exit(rv == PAWL_EPEER || rv == PAWL_EINVAL ? LEFT_OUT : 6);
	}
	if (groups->n == GROUPS_MAX) {
		_exit(5);
	}
	groups->at[groups->n++] = next;
}

/* Sums, admits newcomers that wait, and goes on without ranks that are gone, until all want to
 * end. */
static void run_steps(struct shared *shared, struct groups *groups)
{
	struct pawl_join_listener *listener = NULL;
	struct pawl_err err;
	bool over = false;

	while (!over) {
		int rv;

		if (!listener && pawl_group_rank(last_of(groups)) == 0) {
			publish_listener(shared, &listener);
		}
		rv = sum(shared, last_of(groups), &over, &err);
		if (rv == 0 && !over) {
			rv = admit(groups, listener, &err);
		}
		if (rv != 0) {
			shrink(groups, &err);
		}
	}
	pawl_join_listener_close(listener);
	close_all(groups);
	_exit(0);
}

static void run_alone(struct shared *shared, uint32_t rank)
{
	run_steps(shared, &(struct groups){{join_by_endpoints(&shared->endpoints, rank, 1)}, 1});
}

static void run_three(struct shared *shared, uint32_t rank)
{
	run_steps(shared, &(struct groups){{join_by_endpoints(&shared->endpoints, rank, 3)}, 1});
}

static void run_newcomer(struct shared *shared)
{
	struct groups groups = {.n = 1};
	struct pawl_err err;

	while (__atomic_load_n(&shared->listeners_opened, __ATOMIC_ACQUIRE) == 0) {
		sched_yield();
	}
	if (pawl_group_request_join(&groups.at[0], shared->listener_name, LONG_NS, &err) != 0) {
		_exit(TURNED_OFF);
	}
	run_steps(shared, &groups);
}

static pid_t add(struct shared *shared)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		run_newcomer(shared);
	}
	return pid;
}

static void await_ranks(const struct shared *shared, uint32_t n)
{
	WITHIN_DOING(WITHIN_LONG_S, __atomic_load_n(&shared->ranks, __ATOMIC_RELAXED) == n,
		within_pace(0.0002));
	await_steps(shared, 10 * n);
}

static void newcomers_become_ranks(void **state)
{
	pid_t pids[MOST + 1];
	struct shared *shared = start(pids, 1, 1, run_alone);

	pids[1] = add(shared);
	await_ranks(shared, 2);
	pids[2] = add(shared);
	pids[3] = add(shared);
	await_ranks(shared, 4);
	kill(pids[0], SIGKILL); /* the rank with the join listener: another rank opens a new one */
	assert_int_equal(status_of(pids[0]), 128 + SIGKILL);
	await_ranks(shared, 3);
	for (uint32_t i = 4; i < 7; i++) {
		pids[i] = add(shared);
	}
	await_ranks(shared, MOST);
	pids[0] = add(shared); /* one more than the group admits */
	await_steps(shared, 100);
	assert_int_equal(shared->ranks, MOST);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
	assert_int_equal(status_of(pids[0]), TURNED_OFF);
	for (uint32_t i = 1; i < 7; i++) {
		assert_int_equal(status_of(pids[i]), 0);
	}
	munmap(shared, sizeof(*shared));
}

/* Newcomers die at any time: while asking, while joining and afterwards. No other rank is
 * affected. */
static void newcomers_that_die_hurt_nobody(void **state)
{
	for (uint32_t h = 0; h < HISTORIES; h++) {
		struct rng rng = {first_seed + h};
		pid_t pids[3];
		struct shared *shared = start(pids, 3, 1, run_three);

		await_steps(shared, 10);
		for (uint32_t i = 0; i < 6; i++) {
			pid_t one = add(shared);
			pid_t other = rng_below(&rng, 2) == 0 ? add(shared) : 0;

			within_pace((double)rng_below(&rng, 12000) / 1e6);
			kill(one, SIGKILL);
			status_of(one);
			await_steps(shared, 10);
			if (other) {
				kill(other, SIGKILL);
				status_of(other);
			}
		}
		__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
		for (uint32_t r = 0; r < 3; r++) {
			assert_int_equal(status_of(pids[r]), 0);
		}
		munmap(shared, sizeof(*shared));
	}
}

/* Ranks die too, at any time while admitting others. None hangs, and no sum is wrong. Newcomers may
 * be left out, and all ranks if too few remain. */
static void ranks_that_die_hang_nobody(void **state)
{
	unsetenv("PAWL_HEARTBEAT"); /* default heartbeat: a silent rank may be left out here */
	for (uint32_t h = 0; h < HISTORIES; h++) {
		struct rng rng = {first_seed + 1000 + h};
		pid_t pids[MOST];
		bool dead[MOST] = {false};
		struct shared *shared = start(pids, 3, 1, run_three);

		await_steps(shared, 10);
		for (uint32_t i = 3; i < MOST; i++) {
			pids[i] = add(shared);
			within_pace((double)rng_below(&rng, 6000) / 1e6);
			if (rng_below(&rng, 2) == 0) {
				uint32_t victim = (uint32_t)rng_below(&rng, 3);

				kill(pids[victim], SIGKILL);
				dead[victim] = true;
			}
		}
		within_pace(0.02);
		__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
		for (uint32_t r = 0; r < MOST; r++) {
			int status = status_of(pids[r]);

			if (dead[r]) {
				assert_true(status == 128 + SIGKILL || status == 0 ||
					status == LEFT_OUT);
			} else {
				assert_true(
					status == 0 || status == LEFT_OUT || status == TURNED_OFF);
			}
		}
		munmap(shared, sizeof(*shared));
	}
	bear_silence();
}

/* ---- at the join listener ---- */

static int connect_to(const char *name, uint64_t *key)
{
	struct addrinfo *at;
	int fd;

	assert_int_equal(coll_tcp_parse(name, &at, key), 0);
	fd = dial_connect(at, clock_mono_ns() + LONG_NS);
	freeaddrinfo(at);
	assert_true(fd >= 0);
	return fd;
}

static void await_count(struct pawl_join_listener *listener, uint32_t n)
{
	WITHIN(WITHIN_LONG_S, pawl_join_listener_waiting(listener) == n);
}

/* Expects the join listener to close the connection as soon as its bytes have come. */
static void assert_closed(struct pawl_join_listener *listener, int fd)
{
	uint8_t byte;

	errno = ETIMEDOUT;
	WITHIN_DOING(WITHIN_LONG_S, errno != ETIMEDOUT, {
		assert_int_equal(pawl_join_listener_waiting(listener), 0);
		assert_false(dial_receive(fd, &byte, 1, clock_mono_ns() + 10 * NS_PER_MS));
	});
	assert_int_equal(errno, ECONNRESET);
	close(fd);
}

static void strangers_do_not_get_in(void **state)
{
	char name[PAWL_JOIN_LISTENER_NAME];
	uint64_t words[2] = {htole64(JOIN_REQUEST_MAGIC)};
	int silent[JOIN_WAITERS_MAX];
	struct pawl_join_listener *listener;
	uint64_t key;
	int fd;

	assert_int_equal(pawl_join_listener_open(&listener, NULL, name, NULL), 0);
	for (uint32_t i = 0; i < JOIN_WAITERS_MAX; i++) {
		silent[i] = connect_to(name, &key);
	}
	assert_int_equal(pawl_join_listener_waiting(listener), 0);
	fd = connect_to(name, &key);
	words[1] = htole64(key + 1);
	assert_true(dial_send(fd, words, sizeof(words), clock_mono_ns() + LONG_NS));
	assert_closed(listener, fd);
	fd = connect_to(name, &key);
	assert_true(dial_send(fd, "GET / HTTP/1.1\r\n\r\n", 18, clock_mono_ns() + LONG_NS));
	assert_closed(listener, fd);
	fd = connect_to(name, &key);
	words[1] = htole64(key);
	assert_true(dial_send(fd, words, 7, clock_mono_ns() + LONG_NS));
	assert_int_equal(pawl_join_listener_waiting(listener), 0);
	assert_true(dial_send(fd, (uint8_t *)words + 7, 9, clock_mono_ns() + LONG_NS));
	await_count(listener, 1);
	close(fd);
	await_count(listener, 0);
	for (uint32_t i = 0; i < JOIN_WAITERS_MAX; i++) {
		close(silent[i]);
	}
	pawl_join_listener_close(listener);
}

/* A newcomer whose join request is complete keeps its place, however many connect after it before
 * the listener is polled. */
static void who_has_asked_keeps_its_place(void **state)
{
	char name[PAWL_JOIN_LISTENER_NAME];
	uint64_t words[2] = {htole64(JOIN_REQUEST_MAGIC)};
	int silent[JOIN_WAITERS_MAX];
	struct pawl_join_listener *listener;
	uint64_t key;
	int fd;

	assert_int_equal(pawl_join_listener_open(&listener, NULL, name, NULL), 0);
	fd = connect_to(name, &key);
	words[1] = htole64(key);
	assert_true(dial_send(fd, words, sizeof(words), clock_mono_ns() + LONG_NS));
	for (uint32_t i = 0; i < JOIN_WAITERS_MAX; i++) {
		silent[i] = connect_to(name, &key);
	}
	assert_int_equal(pawl_join_listener_waiting(listener), 1);
	for (uint32_t i = 0; i < JOIN_WAITERS_MAX; i++) {
		close(silent[i]);
	}
	await_count(listener, 1);
	close(fd);
	await_count(listener, 0);
	pawl_join_listener_close(listener);
}

static void malformed_listener_names_are_refused(void **state)
{
	char name[PAWL_JOIN_LISTENER_NAME];
	struct pawl_join_listener *listener;
	struct pawl_group *group;

	assert_int_equal(pawl_group_request_join(&group, "somewhere", NS_PER_S, NULL), PAWL_EINVAL);
	assert_int_equal(pawl_join_listener_open(&listener, NULL, name, NULL), 0);
	assert_int_equal(pawl_group_request_join(&group, name, NS_PER_S / 100, NULL),
		PAWL_ETIMEDOUT);
	pawl_join_listener_close(listener);
	assert_int_equal(pawl_group_request_join(&group, name, LONG_NS, NULL), PAWL_EPEER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(newcomers_become_ranks),
		cmocka_unit_test(newcomers_that_die_hurt_nobody),
		cmocka_unit_test(ranks_that_die_hang_nobody),
		cmocka_unit_test(strangers_do_not_get_in),
		cmocka_unit_test(who_has_asked_keeps_its_place),
		cmocka_unit_test(malformed_listener_names_are_refused),
	};

	first_seed = test_seed();
	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
