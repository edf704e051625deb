/*
 * Real measurements: servers and rank 0 are threads, and the network is this host's loopback, whose
 * speed is not known. The tests check that all of it was measured, that a link follows, and which
 * requests are refused.
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/times.h"
#include "coll/group/group.h"
#include "coll/plan/fold.h"
#include "coll/probe/probe.h"
#include "seed.h"
#include "test_coll_heartbeat.h"
#include "test_coll_host.h"
#include "times.h"
#include "within.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define HOSTS_MAX 9u
#define LONG_NS   within_ns(WITHIN_LONG_S)

static void ignore(void *user, const char *line)
{
}

/* Opens all hosts but the first, which is this thread. */
static void open_hosts(struct host *hosts, const char **names, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		open_host(&hosts[i]);
		names[i] = hosts[i].name;
	}
}

static void close_hosts(struct host *hosts, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		close_host(&hosts[i]);
	}
}

/* ---- measuring ---- */

static void check_survey(const struct coll_survey *survey)
{
	struct coll_link link;

	for (uint32_t i = 0; i < survey->n * survey->n; i++) {
		bool own = i / survey->n == i % survey->n;
		bool pinged = survey->n <= 8 || i / survey->n == 0 || i % survey->n == 0;

		assert_int_equal(survey->bytes_per_s[i] > 0, !own);
		assert_int_equal(survey->latency_s[i] > 0, !own && pinged);
	}
	coll_survey_link(survey, &link);
	assert_true(coll_link_valid(&link));
}

static void all_is_measured(void **state)
{
	static const uint32_t ns[] = {2, 3, HOSTS_MAX};

	for (uint32_t i = 0; i < sizeof(ns) / sizeof(*ns); i++) {
		struct host hosts[HOSTS_MAX];
		const char *names[HOSTS_MAX];
		struct coll_survey survey;
		struct pawl_group *group;
		double seconds = 0;

		open_hosts(hosts, names, ns[i]);
		assert_int_equal(coll_probe_open(&group, "127.0.0.1", names, ns[i], LONG_NS, NULL),
			0);
		assert_int_equal(coll_survey_init(&survey, ns[i], NULL), 0);
		assert_int_equal(coll_probe_survey(group, &survey, ignore, NULL, NULL), 0);
		check_survey(&survey);
		assert_int_equal(coll_probe_sum(group, &coll_link_default, PAWL_FLOAT32, 100000,
					 0.05, &seconds, NULL),
			0);
		assert_true(seconds > 0);
		coll_probe_end(group);
		pawl_group_close(group);
		coll_survey_deinit(&survey);
		close_hosts(hosts, ns[i]);
	}
}

/* ---- an operation that ends just after a wait for it has ended ---- */

static atomic_uint waits_cut; /* number of waits that were cut short */
static atomic_bool cuts;      /* whether waits that look now and then for a stop are cut short */

int __real_pawl_group_wait(struct pawl_group *group, struct pawl_work *work, int64_t timeout_ns,
	struct pawl_err *err);
int __wrap_pawl_group_wait(struct pawl_group *group, struct pawl_work *work, int64_t timeout_ns,
	struct pawl_err *err);

/* meson.build redirects all calls of pawl_group_wait here. */
int __wrap_pawl_group_wait(struct pawl_group *group, struct pawl_work *work, int64_t timeout_ns,
	struct pawl_err *err)
{
	int rv;

	if (!cuts || timeout_ns != times_ns(TIME_PROBE_LOOK)) {
		return __real_pawl_group_wait(group, work, timeout_ns, err);
	}
	rv = __real_pawl_group_wait(group, work, LONG_NS, err);
	waits_cut += rv == 0;
	return rv == 0 ? PAWL_ETIMEDOUT : rv;
}

static void who_waited_too_short_does_not_leave(void **state)
{
	struct host hosts[2];
	const char *names[HOSTS_MAX];
	struct pawl_group *group;
	double seconds;

	open_hosts(hosts, names, 2);
	cuts = true;
	assert_int_equal(coll_probe_open(&group, "127.0.0.1", names, 2, LONG_NS, NULL), 0);
	assert_int_equal(
		coll_probe_sum(group, &coll_link_default, PAWL_FLOAT32, 64, 0, &seconds, NULL), 0);
	assert_true(waits_cut > 0);
	coll_probe_end(group);
	pawl_group_close(group);
	close_hosts(hosts, 2);
	cuts = false;
}

/* ---- algorithms ---- */

#define RANKS   4u
#define NUMBERS 20001u

struct member {
	struct pawl_group *group;
	struct coll_transport *transport;
	pthread_t thread;
	char name[COLL_TCP_NAME];
	const char **names; /* names of all ranks; owned by the test */
	float in[NUMBERS], out[NUMBERS];
};

static void *sum(void *user)
{
	static const uint32_t where[RANKS] = {0, 1, 2, 3};
	static const struct coll_link links[] = {
		{1e9, 1e-6, 1e-3}, /* messages are dear: doubling */
		{1e6, 0, 1.33e-2}, /* bytes and messages are dear: halving */
		{1e3, 1e-6, 0},    /* bytes are dear: direct */
	};
	static const enum coll_algorithm algorithms[] = {COLL_DOUBLING, COLL_HALVING, COLL_DIRECT};
	struct member *m = user;
	float before[NUMBERS];

	assert_int_equal(IN_TIME(coll_tcp_join(m->transport, m->names, LONG_NS, NULL, NULL)), 0);
	assert_int_equal(coll_group_start(m->group, m->transport, where, NULL), 0);
	for (uint32_t i = 0; i < 3; i++) {
		struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
			.dtype = PAWL_FLOAT32,
			.len_bytes = sizeof(m->in),
			.in = m->in,
			.out = m->out};
		struct pawl_work work;

		assert_int_equal(coll_choose_algorithm(&links[i], &(struct coll_hosts){RANKS, 0},
					 call.len_bytes),
			algorithms[i]);
		coll_group_set_link(m->group, &links[i]);
		memset(m->out, 0, sizeof(m->out));
		assert_int_equal(pawl_group_submit(m->group, &work, &call, NULL), 0);
		assert_int_equal(IN_TIME(pawl_group_wait(m->group, &work, LONG_NS, NULL)), 0);
		assert_true(i == 0 || memcmp(before, m->out, call.len_bytes) == 0);
		memcpy(before, m->out, sizeof(before));
	}
	return NULL;
}

static void all_algorithms_give_the_same_bits(void **state)
{
	struct member *members = calloc(RANKS, sizeof(*members));
	struct rng rng = {test_seed()};
	const char *names[RANKS];

	for (uint32_t r = 0; r < RANKS; r++) {
		struct member *m = &members[r];

		assert_int_equal(coll_group_make(&m->group, r, RANKS, 0, NULL), 0);
		assert_int_equal(coll_tcp_open(&m->transport, r, RANKS, "127.0.0.1", m->name, NULL),
			0);
		names[r] = m->name;
		m->names = names;
		for (uint32_t i = 0; i < NUMBERS; i++) {
			m->in[i] = (float)rng_below(&rng, 1u << 20) / 1e3F;
		}
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_create(&members[r].thread, NULL, sum, &members[r]);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pthread_join(members[r].thread, NULL);
		assert_memory_equal(members[r].out, members[0].out, sizeof(members[0].out));
	}
	for (uint32_t i = 0; i < NUMBERS; i++) {
		float want = (members[0].in[i] + members[1].in[i]) +
			(members[2].in[i] + members[3].in[i]);

		assert_memory_equal(&members[0].out[i], &want, sizeof(want));
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pawl_group_leave(members[r].group);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		pawl_group_close(members[r].group);
	}
	free(members);
}

/* ---- requests ---- */

static void who_has_the_wrong_key_is_refused(void **state)
{
	struct host hosts[3];
	const char *names[HOSTS_MAX];
	char changed[COLL_TCP_NAME];
	char *last;
	struct pawl_group *group;
	struct pawl_err err;

	open_hosts(hosts, names, 3);
	snprintf(changed, sizeof(changed), "%s", names[1]);
	last = &changed[strlen(changed) - 1];
	*last = *last == '0' ? '1' : '0';
	names[1] = changed;
	assert_int_equal(coll_probe_open(&group, "127.0.0.1", names, 3, LONG_NS, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, changed));
	assert_non_null(strstr(err.msg, "does pawl serve run there"));
	names[1] = "10.0.0.1";
	assert_int_equal(coll_probe_open(&group, "127.0.0.1", names, 3, LONG_NS, &err),
		PAWL_EINVAL);
	close_hosts(hosts, 3);
}

static void one_measures_at_a_time(void **state)
{
	struct host hosts[2];
	const char *names[HOSTS_MAX];
	struct pawl_group *group;
	struct pawl_group *other;
	struct pawl_err err;
	double seconds;

	open_hosts(hosts, names, 2);
	assert_int_equal(coll_probe_open(&group, "127.0.0.1", names, 2, LONG_NS, NULL), 0);
	assert_int_equal(
		coll_probe_sum(group, &coll_link_default, PAWL_FLOAT32, 64, 0, &seconds, NULL),
		0); /* now the other host has begun, too */
	assert_int_equal(coll_probe_open(&other, "127.0.0.1", names, 2, LONG_NS, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, "another measurement uses it now"));
	pawl_group_close(group);
	close_hosts(hosts, 2);
}

/* Rank 0 leaves in the middle of a measurement, and the server serves the next one. */
static void who_dies_is_forgotten(void **state)
{
	struct host hosts[2];
	const char *names[HOSTS_MAX];
	struct pawl_group *group;
	int rv;

	open_hosts(hosts, names, 2);
	assert_int_equal(coll_probe_open(&group, "127.0.0.1", names, 2, LONG_NS, NULL), 0);
	pawl_group_close(group);
	WITHIN(WITHIN_LONG_S,
		(rv = coll_probe_open(&group, "127.0.0.1", names, 2, LONG_NS, NULL)) != PAWL_EPEER);
	assert_int_equal(rv, 0);
	close_hosts(hosts, 2); /* the server leaves while it waits for an order */
	pawl_group_close(group);
}

static void asks_that_are_nonsense(void **state)
{
	static const struct coll_ask wrong[] = {
		{.probe = true, .rank = 0, .ranks = 3}, /* rank 0 is the one that asks */
		{.probe = true, .rank = 3, .ranks = 3},
		{.probe = true, .rank = 1, .ranks = SURVEY_HOSTS_MAX + 1},
		{.probe = true, .rank = UINT32_MAX - 1, .ranks = UINT32_MAX},
		{.probe = true, .rank = 1, .ranks = 1},
		{.probe = true, .rank = 1, .ranks = 2, .server = 1},
		{.probe = true, .rank = 1, .ranks = 2, .servers = 1},
	};
	struct coll_ask right = {.probe = true, .group = 5, .rank = 1, .ranks = 2};
	struct coll_ask ask;
	uint8_t bytes[ASK_BYTES];

	assert_int_equal(serve_encode_ask(bytes, 77, &right), ASK_BYTES);
	assert_int_equal(serve_decode_ask(bytes, 78, &ask), -1);
	assert_int_equal(serve_decode_ask(bytes, 77, &ask), 0);
	assert_true(ask.probe && ask.group == 5 && ask.rank == 1 && ask.ranks == 2);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		uint32_t numbers[4] = {htole32(wrong[i].rank), htole32(wrong[i].ranks),
			htole32(wrong[i].server), htole32(wrong[i].servers)};

		memcpy(bytes + 24, numbers, sizeof(numbers));
		assert_int_equal(serve_decode_ask(bytes, 77, &ask), -1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_is_measured),
		cmocka_unit_test(who_waited_too_short_does_not_leave),
		cmocka_unit_test(all_algorithms_give_the_same_bits),
		cmocka_unit_test(who_has_the_wrong_key_is_refused),
		cmocka_unit_test(one_measures_at_a_time),
		cmocka_unit_test(who_dies_is_forgotten),
		cmocka_unit_test(asks_that_are_nonsense),
	};

	bear_silence();
	test_times("probe_pair=0.03,probe_all=0.06,probe_ping=0.01"); /* how much is measured */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
