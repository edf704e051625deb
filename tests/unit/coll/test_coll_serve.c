/* Servers: what they add has the bits that the ranks alone would have; a rank or server that ends
 * badly is named; strangers get nothing. Ranks and servers are threads, each on a host of its own
 * by its settings, over TCP. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "coll/group/group.h"
#include "each_fault.h"
#include "seed.h"
#include "test_coll_heartbeat.h"
#include "test_coll_host.h"
#include "within.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS   4
#define SERVERS 4
#define LONG_NS within_ns(WITHIN_LONG_S)
#define GROUP   77

/* ---- ranks ---- */

struct world;

struct member {
	struct world *world;
	pthread_t thread;
	uint32_t rank;
	struct pawl_group *group;
	struct coll_transport *transport;
	float *in, *out; /* owned */
	int rv;          /* result of the last call */
	struct pawl_err err;
};

struct world {
	uint32_t servers;
	struct host hosts[SERVERS];
	struct member members[RANKS];
	char names[RANKS][COLL_TCP_NAME];
	uint64_t numbers; /* elements of a vector */
	bool mean;
};

static const uint32_t where[RANKS] = {0, 1, 2, 3};

static void *join(void *user)
{
	struct member *m = user;
	struct world *w = m->world;
	struct coll_ask ask = {.group = GROUP,
		.rank = m->rank,
		.ranks = RANKS,
		.servers = w->servers,
		.where = where};
	char sides[SERVERS][COLL_TCP_NAME];
	const char *names[RANKS + SERVERS];

	for (uint32_t r = 0; r < RANKS; r++) {
		names[r] = w->names[r];
	}
	for (; ask.server < w->servers; ask.server++) {
		assert_int_equal(IN_TIME(coll_serve_ask(w->hosts[ask.server].name, &ask, LONG_NS,
					 sides[ask.server], NULL)),
			0);
		names[RANKS + ask.server] = sides[ask.server];
	}
	assert_int_equal(IN_TIME(coll_tcp_join(m->transport, names, LONG_NS, NULL, NULL)), 0);
	assert_int_equal(coll_group_start(m->group, m->transport, where, NULL), 0);
	return NULL;
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

static void open_world(struct world *w, uint32_t servers)
{
	w->servers = servers;
	for (uint32_t s = 0; s < servers; s++) {
		open_host(&w->hosts[s]);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		struct member *m = &w->members[r];

		m->world = w;
		m->rank = r;
		assert_int_equal(coll_group_make(&m->group, r, RANKS, servers, NULL), 0);
		assert_int_equal(coll_tcp_open(&m->transport, r, RANKS + servers, "127.0.0.1",
					 w->names[r], NULL),
			0);
	}
	run_world(w, join);
}

static void *leave(void *user)
{
	pawl_group_leave(((struct member *)user)->group);
	return NULL;
}

static void close_world(struct world *w)
{
	run_world(w, leave);
	for (uint32_t r = 0; r < RANKS; r++) {
		pawl_group_close(w->members[r].group);
		free(w->members[r].in);
		free(w->members[r].out);
	}
	for (uint32_t s = 0; s < w->servers; s++) {
		close_host(&w->hosts[s]);
	}
	free(w);
}

static struct world *new_world(uint32_t servers)
{
	struct world *w = calloc(1, sizeof(*w));

	open_world(w, servers);
	return w;
}

static struct pawl_coll_call sum_of(const struct member *m)
{
	return (struct pawl_coll_call){.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_FLOAT32,
		.mean = m->world->mean,
		.len_bytes = m->world->numbers * sizeof(float),
		.in = m->in,
		.out = m->out};
}

static void *sum(void *user)
{
	struct member *m = user;
	struct pawl_coll_call call = sum_of(m);
	struct pawl_work work;

	m->rv = pawl_group_submit(m->group, &work, &call, &m->err);
	if (m->rv == 0) {
		m->rv = IN_TIME(pawl_group_wait(m->group, &work, LONG_NS, &m->err));
	}
	return NULL;
}

static void fill(struct world *w, uint64_t numbers, struct rng *rng)
{
	w->numbers = numbers;
	for (uint32_t r = 0; r < RANKS; r++) {
		struct member *m = &w->members[r];

		free(m->in);
		free(m->out);
		m->in = malloc(numbers * sizeof(float) + 1);
		m->out = malloc(numbers * sizeof(float) + 1);
		for (uint64_t i = 0; i < numbers; i++) {
			m->in[i] = (float)rng_below(rng, 1u << 20) / 1e3F;
		}
	}
}

/* Returns (0 + 1) + (2 + 3): the tree's order. */
static float tree(const struct world *w, uint64_t i)
{
	const struct member *m = w->members;
	float all = (m[0].in[i] + m[1].in[i]) + (m[2].in[i] + m[3].in[i]);

	return w->mean ? all / RANKS : all;
}

static void check_sums(const struct world *w)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(w->members[r].rv, 0);
		for (uint64_t i = 0; i < w->numbers; i++) {
			float want = tree(w, i);

			assert_memory_equal(&w->members[r].out[i], &want, sizeof(want));
		}
	}
}

static void sums_have_the_bits_that_ranks_alone_have(void **state)
{
	static const uint64_t lens[] = {1, 5000, 4097, 300001, 1 << 20};
	struct rng rng = {test_seed()};

	for (uint32_t servers = 1; servers <= SERVERS; servers++) {
		struct world *w = new_world(servers);

		for (uint32_t round = 0; round < 4 * sizeof(lens) / sizeof(*lens); round++) {
			fill(w, lens[round % 5], &rng);
			w->mean = round % 3 == 0;
			run_world(w, sum);
			check_sums(w);
		}
		close_world(w);
	}
}

static void *sum_of_another_length(void *user)
{
	struct member *m = user;
	struct pawl_coll_call call = sum_of(m);
	struct pawl_work work;

	call.len_bytes -= m->rank == 2 ? sizeof(float) : 0;
	m->rv = pawl_group_submit(m->group, &work, &call, &m->err);
	if (m->rv == 0) {
		m->rv = IN_TIME(pawl_group_wait(m->group, &work, LONG_NS, &m->err));
	}
	return NULL;
}

/* With as many servers as ranks, the ranks exchange bytes only with servers. */
static void who_disagrees_is_named(void **state)
{
	struct rng rng = {test_seed()};
	struct world *w = new_world(SERVERS);

	fill(w, 300001, &rng);
	run_world(w, sum_of_another_length);
	for (uint32_t r = 0; r < RANKS; r++) {
		const char *msg = w->members[r].err.msg;

		assert_int_equal(w->members[r].rv, PAWL_EMISMATCH);
		assert_non_null(strstr(msg, "rank 2 calls all_reduce(sum) of 300000 float32"));
		assert_non_null(strstr(msg, " all_reduce(sum) of 300001 float32"));
	}
	close_world(w);
}

static void a_server_that_leaves_is_named(void **state)
{
	struct rng rng = {test_seed()};
	struct world *w = new_world(2);

	fill(w, 300001, &rng);
	run_world(w, sum);
	close_host(&w->hosts[1]);
	run_world(w, sum);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(w->members[r].rv, PAWL_EPEER);
		assert_non_null(strstr(w->members[r].err.msg, "server 1 has left the group"));
	}
	close_world(w);
}

/* Returns whether the host's last line has this text. */
static bool has_logged(struct host *host, const char *what)
{
	bool logged;

	pthread_mutex_lock(&host->mutex);
	logged = strstr(host->logged, what) != NULL;
	pthread_mutex_unlock(&host->mutex);
	return logged;
}

static void a_server_logs_when_all_have_left(void **state)
{
	struct world *w = new_world(1);

	run_world(w, leave);
	WITHIN(WITHIN_LONG_S, has_logged(&w->hosts[0], "all have left"));
	close_world(w);
}

/* ---- requests ---- */

static void who_asks_wrongly_is_refused(void **state)
{
	struct coll_ask ask = {.group = 1, .ranks = 2, .servers = 1, .where = where};
	char side[COLL_TCP_NAME];
	char other[COLL_TCP_NAME];
	char wrong[COLL_TCP_NAME];
	char *last;
	struct pawl_err err;
	struct host host;

	open_host(&host);
	snprintf(wrong, sizeof(wrong), "%s", host.name);
	last = &wrong[strlen(wrong) - 1];
	*last = *last == '0' ? '1' : '0';
	assert_int_equal(coll_serve_ask(wrong, &ask, LONG_NS, side, &err), PAWL_EPEER);
	assert_int_equal(coll_serve_ask("10.0.0.1", &ask, LONG_NS, side, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "PAWL_SERVERS"));
	assert_int_equal(coll_serve_ask("127.0.0.1:1:5", &ask, LONG_NS, side, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, "server 0 cannot be reached at 127.0.0.1:1:5"));
	ask.server = 1; /* server 1 of one server */
	assert_int_equal(coll_serve_ask(host.name, &ask, LONG_NS, side, &err), PAWL_EPEER);
	ask.server = 0;
	assert_int_equal(coll_serve_ask(host.name, &ask, LONG_NS, side, NULL), 0);
	ask.rank = 1;
	assert_int_equal(coll_serve_ask(host.name, &ask, LONG_NS, other, NULL), 0);
	assert_string_equal(side, other);
	ask.servers = 2;
	assert_int_equal(coll_serve_ask(host.name, &ask, LONG_NS, other, &err), PAWL_EPEER);
	assert_non_null(strstr(err.msg, "ranks 0 and 1 differ in servers"));
	close_host(&host); /* while the server waits for its ranks */
}

/* Bytes that nobody asked for, and silence, do not keep others from being served. */
static void strangers_do_not_disturb(void **state)
{
	struct rng rng = {test_seed()};
	int fds[300];
	struct world *w = calloc(1, sizeof(*w));
	struct addrinfo *at;
	uint64_t key;

	open_world(w, 1);
	assert_int_equal(coll_tcp_parse(w->hosts[0].name, &at, &key), 0);
	for (uint32_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
		uint8_t bytes[64];
		size_t n = rng_below(&rng, sizeof(bytes));

		for (size_t b = 0; b < n; b++) {
			bytes[b] = (uint8_t)rng_u64(&rng);
		}
		fds[i] = socket(at->ai_family, SOCK_STREAM, 0);
		assert_int_equal(connect(fds[i], at->ai_addr, at->ai_addrlen), 0);
		(void)!send(fds[i], bytes, n, MSG_NOSIGNAL);
	}
	freeaddrinfo(at);
	fill(w, 300001, &rng);
	run_world(w, sum);
	assert_int_equal(w->members[0].rv, 0);
	for (uint32_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
		close(fds[i]);
	}
	close_world(w);
}

static bool was_closed(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN);
}

/* Without descriptors a server does not spin on ranks that it cannot accept, and accepts them once
 * it can. */
static void without_descriptors_it_rests(void **state)
{
	const uint8_t wrong[ASK_BYTES] = {0};
	struct host host = {.mutex = PTHREAD_MUTEX_INITIALIZER};
	struct addrinfo *at;
	uint64_t key;
	int fd;

	assert_int_equal(coll_server_open(&host.server, "127.0.0.1", 0, host.name, record_line,
				 &host, coll_probe_obey, NULL),
		0);
	assert_int_equal(coll_tcp_parse(host.name, &at, &key), 0);
	fault_arm("coll.asker", 1, EMFILE, true);
	fd = socket(at->ai_family, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, at->ai_addr, at->ai_addrlen), 0);
	assert_int_equal(send(fd, wrong, sizeof(wrong), MSG_NOSIGNAL), sizeof(wrong));
	for (uint32_t turn = 0; turn < 1000; turn++) {
		assert_int_equal(coll_server_poll(host.server, 0, NULL), 0);
	}
	assert_in_range(fault_count(), 1, 500); /* tries once a second */
	assert_true(has_logged(&host, "a rank cannot be heard, and is tried again: Too many open"));
	fault_disarm();
	WITHIN(WITHIN_LONG_S,
		coll_server_poll(host.server, NS_PER_S / 100, NULL) == 0 && was_closed(fd));
	freeaddrinfo(at);
	close(fd);
	coll_server_close(host.server);
}

static void faults(void **state)
{
	struct coll_ask ask = {.group = 1, .ranks = 2, .servers = 1, .where = where};
	uint64_t nth;
	int rv;

	for (nth = 1; each_fault(nth); nth++) {
		struct coll_server *server;
		char name[COLL_TCP_NAME];

		fault_arm("coll.serve", nth, EIO, false);
		rv = coll_server_open(&server, "127.0.0.1", 0, name, record_line, NULL,
			coll_probe_obey, NULL);
		fault_disarm();
		if (rv == 0) {
			coll_server_close(server);
		}
		assert_true(rv == 0 || fault_reached(nth));
	}
	assert_true(nth > 2);
	for (nth = 1; each_fault(nth); nth++) {
		char side[COLL_TCP_NAME];
		struct host host;

		open_host(&host);
		fault_arm("coll.serve", nth, EIO, false);
		rv = coll_serve_ask(host.name, &ask, LONG_NS, side, NULL);
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_EPEER && fault_reached(nth)));
		assert_int_equal(coll_serve_ask(host.name, &ask, LONG_NS, side, NULL), 0);
		close_host(&host);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_have_the_bits_that_ranks_alone_have),
		cmocka_unit_test(who_disagrees_is_named),
		cmocka_unit_test(a_server_that_leaves_is_named),
		cmocka_unit_test(a_server_logs_when_all_have_left),
		cmocka_unit_test(who_asks_wrongly_is_refused),
		cmocka_unit_test(strangers_do_not_disturb),
		cmocka_unit_test(without_descriptors_it_rests),
		cmocka_unit_test(faults),
	};

	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
