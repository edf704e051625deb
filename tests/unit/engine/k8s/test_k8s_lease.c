/* Leases in virtual time: several processes, a server whose answers are late or lost, and processes
 * that stand still. Never do two act at one time. */
#include "../lib/seed.h"
#include "base/err.h"
#include "base/rng.h"
#include "engine/k8s/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MS        1000000LL
#define S         (1000 * MS)
#define DURATION  (15 * S)
#define TICK      (20 * MS)
#define SEEDS     200u
#define RUN       (300 * S)
#define PROCESSES 3u

/* The server's Lease. */
static struct {
	bool there;
	unsigned version;
	json_t *object;
} server;

struct process {
	struct lease lease;
	bool asks; /* a request is on its way */
	enum lease_step step;
	json_t *body;
	int64_t sent_ns;
	int64_t arrives_ns;  /* at the server; INT64_MAX: it never does */
	int64_t answered_ns; /* INT64_MAX: the answer is lost; then it times out */
	bool carried_out;
	int rv;
	json_t *answer;
	int64_t stands_until_ns; /* stands still, as by SIGSTOP */
	bool gone;               /* has ended for good */
};

static struct rng rng;

static int64_t any(int64_t from, int64_t to)
{
	return from + (int64_t)(rng_u64(&rng) % (uint64_t)(to - from));
}

static bool happens(unsigned percent)
{
	return rng_u64(&rng) % 100 < percent;
}

/* ---- the server ---- */

static int serve(const struct process *p, json_t **answer)
{
	const char *asked = p->body == NULL
		? NULL
		: json_string_value(
			  json_object_get(json_object_get(p->body, "metadata"), "resourceVersion"));
	char version[16];

	*answer = NULL;
	snprintf(version, sizeof(version), "%u", server.version);
	if (p->step == LEASE_CREATE && server.there) {
		return PAWL_EEXIST;
	}
	if (p->step != LEASE_CREATE && !server.there) {
		return PAWL_ENOENT;
	}
	if (p->step == LEASE_WRITE && (asked == NULL || strcmp(asked, version) != 0)) {
		return PAWL_EBUSY;
	}
	if (p->step != LEASE_READ) {
		json_decref(server.object);
		server.object = json_deep_copy(p->body);
		server.there = true;
		snprintf(version, sizeof(version), "%u", ++server.version);
		json_object_set_new(json_object_get(server.object, "metadata"), "resourceVersion",
			json_string(version));
	}
	*answer = json_deep_copy(server.object);
	return 0;
}

/* ---- processes ---- */

static void begin_process(struct process *p, unsigned i)
{
	memset(p, 0, sizeof(*p));
	snprintf(p->lease.self, sizeof(p->lease.self), "process-%u", i);
	p->lease.duration_ns = DURATION;
}

static void send_step(struct process *p, enum lease_step step, int64_t now_ns, bool weather)
{
	p->asks = true;
	p->step = step;
	p->body = step == LEASE_READ ? NULL : lease_body(&p->lease, "l", "n", now_ns, false);
	p->sent_ns = now_ns;
	p->arrives_ns =
		weather && happens(7) ? INT64_MAX : now_ns + any(MS, weather ? 3 * S : 20 * MS);
	p->answered_ns = p->arrives_ns == INT64_MAX || (weather && happens(7))
		? INT64_MAX
		: p->arrives_ns + any(MS, weather ? 2 * S : 20 * MS);
	p->carried_out = false;
}

static void receive(struct process *p, int rv, json_t *answer, int64_t now_ns)
{
	lease_answered(&p->lease, p->step, rv, answer, p->sent_ns, now_ns);
	json_decref(answer);
	json_decref(p->body);
	p->body = NULL;
	p->answer = NULL;
	p->asks = false;
}

static void tick(struct process *p, int64_t now_ns, bool weather)
{
	if (p->asks && !p->carried_out && now_ns >= p->arrives_ns) { /* also while it stands */
		p->rv = serve(p, &p->answer);
		p->carried_out = true;
	}
	if (p->gone || now_ns < p->stands_until_ns) {
		return;
	}
	if (p->asks && p->answered_ns != INT64_MAX && now_ns >= p->answered_ns) {
		receive(p, p->rv, p->answer, now_ns);
	} else if (p->asks && p->answered_ns == INT64_MAX && now_ns >= p->sent_ns + 5 * S &&
		(p->arrives_ns == INT64_MAX || p->carried_out)) {
		json_decref(p->answer);
		receive(p, PAWL_ETIMEDOUT, NULL, now_ns);
	}
	{
		enum lease_step step = lease_step(&p->lease, now_ns);

		if (!p->asks && step != LEASE_NOTHING) {
			send_step(p, step, now_ns, weather);
		}
	}
}

static bool acts(const struct process *p, int64_t now_ns)
{
	return !p->gone && now_ns >= p->stands_until_ns && p->lease.state == LEASE_HELD &&
		now_ns < lease_good_until(&p->lease);
}

static void end_process(struct process *p)
{
	json_decref(p->body);
	json_decref(p->answer);
	memset(p, 0, sizeof(*p));
	p->gone = true;
}

static void end_all(struct process *all)
{
	for (unsigned i = 0; i < PROCESSES; i++) {
		end_process(&all[i]);
	}
	json_decref(server.object);
	memset(&server, 0, sizeof(server));
}

/* ---- tests ---- */

/* Moves all processes on, which may stand still, end and begin anew. Returns how many act. */
static unsigned tick_all(struct process *all, unsigned *born, int64_t now_ns)
{
	unsigned acting = 0;

	for (unsigned i = 0; i < PROCESSES; i++) {
		struct process *p = &all[i];

		tick(p, now_ns, true);
		acting += acts(p, now_ns);
		if (p->lease.state == LEASE_LOST || rng_u64(&rng) % 20000 == 0) {
			end_process(p);
			begin_process(p, (*born)++);
		} else if (rng_u64(&rng) % 3000 == 0) {
			p->stands_until_ns = now_ns + any(S, 60 * S);
		}
	}
	return acting;
}

static void never_do_two_act(void **state)
{
	uint64_t first = test_seed();
	unsigned held_ticks = 0;

	for (uint64_t seed = first; seed < first + SEEDS; seed++) {
		struct process all[PROCESSES];
		unsigned born = PROCESSES;

		rng = (struct rng){seed};
		for (unsigned i = 0; i < PROCESSES; i++) {
			begin_process(&all[i], i);
		}
		for (int64_t now_ns = S; now_ns < RUN; now_ns += TICK) {
			unsigned acting = tick_all(all, &born, now_ns);

			held_ticks += acting > 0;
			if (acting > 1) {
				fail_msg("seed %llu: %u act at %lld ms", (unsigned long long)seed,
					acting, (long long)(now_ns / MS));
			}
		}
		end_all(all);
	}
	/* Nobody acting at all would be safe, too. */
	assert_true(held_ticks > SEEDS * (RUN / TICK) / 4);
}

/* Runs until somebody acts; returns who, and when. */
static unsigned run_until_acts(struct process *all, int64_t *now_ns, unsigned but)
{
	for (; *now_ns < RUN; *now_ns += TICK) {
		for (unsigned i = 0; i < PROCESSES; i++) {
			tick(&all[i], *now_ns, false);
			if (i != but && acts(&all[i], *now_ns)) {
				return i;
			}
		}
	}
	fail_msg("nobody acts");
	return 0;
}

static void another_one_takes_over(void **state)
{
	struct process all[PROCESSES];
	int64_t now_ns = S, died_ns;
	unsigned first, second;

	rng = (struct rng){1};
	for (unsigned i = 0; i < PROCESSES; i++) {
		begin_process(&all[i], i);
	}
	first = run_until_acts(all, &now_ns, PROCESSES);
	assert_true(now_ns < 2 * S);
	for (int64_t end_ns = now_ns + 60 * S; now_ns < end_ns; now_ns += TICK) {
		for (unsigned i = 0; i < PROCESSES; i++) {
			tick(&all[i], now_ns, false);
		}
		assert_true(acts(&all[first], now_ns)); /* without a gap */
	}
	all[first].gone = true;
	died_ns = now_ns;
	second = run_until_acts(all, &now_ns, first);
	assert_int_not_equal(second, first);
	assert_true(now_ns - died_ns <= DURATION + 2 * S);
	end_all(all);
}

static void what_is_given_back_is_taken_at_once(void **state)
{
	struct process all[PROCESSES];
	struct process *holder;
	int64_t now_ns = S, back_ns;
	unsigned first;

	rng = (struct rng){2};
	for (unsigned i = 0; i < PROCESSES; i++) {
		begin_process(&all[i], i);
	}
	first = run_until_acts(all, &now_ns, PROCESSES);
	holder = &all[first];
	json_decref(holder->body);
	holder->step = LEASE_WRITE;
	holder->body = lease_body(&holder->lease, "l", "n", now_ns, true);
	assert_int_equal(serve(holder, &holder->answer), 0);
	holder->gone = true;
	back_ns = now_ns;
	run_until_acts(all, &now_ns, first);
	assert_true(now_ns - back_ns <= DURATION / 6 + S);
	end_all(all);
}

static void a_lease_that_somebody_removes_is_lost(void **state)
{
	struct process all[PROCESSES];
	int64_t now_ns = S;
	unsigned first;

	rng = (struct rng){3};
	for (unsigned i = 0; i < PROCESSES; i++) {
		begin_process(&all[i], i);
	}
	first = run_until_acts(all, &now_ns, PROCESSES);
	server.there = false;
	for (; all[first].lease.state == LEASE_HELD; now_ns += TICK) {
		tick(&all[first], now_ns, false);
	}
	assert_int_equal(all[first].lease.state, LEASE_LOST);
	assert_int_equal(lease_step(&all[first].lease, now_ns), LEASE_NOTHING);
	run_until_acts(all, &now_ns, first);
	end_all(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(never_do_two_act),
		cmocka_unit_test(another_one_takes_over),
		cmocka_unit_test(what_is_given_back_is_taken_at_once),
		cmocka_unit_test(a_lease_that_somebody_removes_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
