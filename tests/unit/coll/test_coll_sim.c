/*
 * Groups of ranks in a simulated world (tests/lib/sim.h): random histories of collectives and
 * messages, in each of which something may happen. Then every rank ends, in time, with the right
 * results or an error that names the culprit; and nobody is blamed without cause.
 */
#include "base/err.h"
#include "coll/group/group_impl.h"
#include "seed.h"
#include "test_coll_story.h"

#include <stdio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* Virtual time; a rank that has not ended by then never will. */
#define HISTORY_NS (2000 * NS_PER_S)
#define TIMEOUT_NS (2 * NS_PER_S) /* timeout of operations, where a rank's program is wrong */

static uint64_t first_seed;

struct actor {
	struct world *world;
	uint32_t rank;
	struct pawl_group *group;    /* NULL: none any more */
	struct pawl_work works[OPS]; /* as many as were begun … */
	uint32_t ops[OPS];           /* … of these operations */
	uint32_t begun, waited;      /* number of works begun, and waited for */
	uint8_t *in[OPS], *out[OPS]; /* owned; one per operation */
	uint64_t at[2][RANKS + 1];   /* offsets of the parts of an all-to-all */
	struct pawl_err err;         /* first error; code 0: none */
	int64_t err_ns;              /* virtual time of err */
};

struct world {
	struct story story;
	struct sim *sim;
	struct actor actors[PEERS];
	int64_t struck_ns; /* time when fate struck; SIM_NEVER: not yet */
	atomic_bool stop;  /* for servers; never set */
	char wrong[600];   /* first thing that went wrong; empty: nothing */
};

#define BLAME(w, ...)                                                                              \
	do {                                                                                       \
		if ((w)->wrong[0] == '\0') {                                                       \
			snprintf((w)->wrong, sizeof((w)->wrong), __VA_ARGS__);                     \
		}                                                                                  \
	} while (0)

/* ---- fate ---- */

static void cut_network(struct world *w, int64_t until_ns)
{
	const struct story *s = &w->story;

	for (uint32_t i = 0; i < PEERS * PEERS; i++) {
		uint32_t from = i / PEERS;
		uint32_t to = i % PEERS;

		if (from < s->hosts + s->servers && to < s->hosts + s->servers &&
			(s->one_way ? s->side[from] > s->side[to] : s->side[from] != s->side[to])) {
			sim_cut(w->sim, from, to, until_ns);
		}
	}
}

static void strike(void *user)
{
	struct world *w = user;
	const struct story *s = &w->story;
	int64_t now_ns = sim_now_ns(w->sim);
	int64_t until_ns = s->for_ns == SIM_NEVER ? SIM_NEVER : now_ns + s->for_ns;
	uint32_t host = s->host_of[s->victim];

	w->struck_ns = now_ns;
	switch (s->fate) {
	case FATE_PAUSE:
	case FATE_FREEZE:
		sim_freeze(w->sim, s->victim, until_ns);
		break;
	case FATE_CUT:
	case FATE_PART:
		cut_network(w, until_ns);
		break;
	case FATE_SLOW:
		sim_slow(w->sim, host, s->net.bytes_per_s / s->slow, s->for_ns / 4);
		break;
	case FATE_CLOSED:
		sim_kill(w->sim, s->victim, SIM_CLOSED);
		break;
	case FATE_RESET:
		sim_kill(w->sim, s->victim, SIM_RESET);
		break;
	case FATE_SILENT:
		for (uint32_t p = 0; p < s->peers; p++) {
			if (s->host_of[p] == host) {
				sim_kill(w->sim, p, SIM_SILENT);
			}
		}
		break;
	default:
		break;
	}
}

/* ---- a rank ---- */

/* Does something else for that long, as the group sees it. */
static void compute(struct actor *a, int64_t for_ns)
{
	int64_t end_ns = sim_now_ns(a->world->sim) + for_ns;

	pthread_mutex_lock(&a->group->driving);
	while (sim_now_ns(a->world->sim) < end_ns) {
		group_drive(a->group, end_ns - sim_now_ns(a->world->sim));
	}
	pthread_mutex_unlock(&a->group->driving);
}

static void record_error(struct actor *a, const struct pawl_err *err)
{
	if (a->err.code == 0) {
		a->err = *err;
		a->err_ns = sim_now_ns(a->world->sim);
	}
}

static void check_result(struct actor *a, uint32_t i)
{
	struct world *w = a->world;
	struct story *s = &w->story;
	const struct pawl_coll_call *call = &s->ops[i].call;
	bool to_root =
		call->kind == PAWL_REDUCE || call->kind == PAWL_GATHER || call->kind == PAWL_SEND;
	bool half = call->dtype == PAWL_BFLOAT16;

	if (call->kind == PAWL_BARRIER || (to_root && a->rank != call->root) ||
		(call->kind == PAWL_BROADCAST && a->rank == call->root)) {
		return;
	}
	/* 16-bit sums need only agree. */
	if (half && call->kind == PAWL_ALL_REDUCE && !s->want[i]) {
		s->want[i] = malloc(call->len_bytes);
		memcpy(s->want[i], a->out[i], call->len_bytes);
	} else if ((!half || call->kind == PAWL_ALL_REDUCE) &&
		memcmp(story_want(s, i, a->rank), a->out[i], story_bytes(s, i, a->rank, true)) !=
			0) {
		BLAME(w, "rank %u got a wrong result of operation %u, kind %d", a->rank, i,
			(int)call->kind);
	}
}

/* Returns whether operation i is the one that this rank calls wrongly. */
static bool is_odd(const struct actor *a, uint32_t i)
{
	const struct story *s = &a->world->story;

	return s->fate == FATE_ODD && a->rank == s->victim && i == s->at;
}

static void await_all(struct actor *a)
{
	struct pawl_err err;

	for (; a->waited < a->begun; a->waited++) {
		int rv = pawl_group_wait(a->group, &a->works[a->waited], -1, &err);

		if (rv != 0) {
			record_error(a, &err);
		} else if (!sim_died(a->world->sim, a->rank) && !is_odd(a, a->ops[a->waited])) {
			check_result(a, a->ops[a->waited]);
		}
	}
}

/* Lays the parts of an all-to-all out one behind the other. */
static void set_parts(struct actor *a, uint32_t i, struct pawl_coll_call *call)
{
	const struct op *op = &a->world->story.ops[i];

	for (uint32_t r = 0; r < a->world->story.ranks; r++) {
		a->at[0][r + 1] = a->at[0][r] + op->parts[a->rank][r];
		a->at[1][r + 1] = a->at[1][r] + op->parts[r][a->rank];
	}
	call->in_at = a->at[0];
	call->out_at = a->at[1];
}

/* Makes the rank's call, with its memory. Returns false if the message is another rank's. */
static bool make_call(struct actor *a, uint32_t i, struct pawl_coll_call *call)
{
	const struct story *s = &a->world->story;
	uint64_t in = story_bytes(s, i, a->rank, false);
	uint64_t out = story_bytes(s, i, a->rank, true);
	bool message = s->ops[i].call.kind == PAWL_SEND;

	*call = s->ops[i].call;
	if (message && a->rank == call->root) {
		call->kind = PAWL_RECEIVE;
		call->root = s->ops[i].from;
	} else if (message && a->rank != s->ops[i].from) {
		return false;
	}
	if (call->kind == PAWL_ALL_TO_ALL) {
		set_parts(a, i, call);
	}
	a->in[i] = calloc(1, in + 8);
	a->out[i] = calloc(1, out + 8);
	story_fill(s, i, a->rank, a->in[i], in);
	call->in = a->in[i];
	call->out = a->out[i];
	if (call->kind == PAWL_ALL_REDUCE && (s->seed + i + a->rank) % 2 == 0) {
		memcpy(a->out[i], a->in[i], in);
		call->in = a->out[i];
	}
	call->timeout_ns = s->fate >= FATE_ODD ? TIMEOUT_NS : 0;
	return true;
}

static bool has_root(enum pawl_coll kind)
{
	return kind == PAWL_REDUCE || kind == PAWL_BROADCAST || kind == PAWL_GATHER ||
		kind == PAWL_SCATTER;
}

/* Changes the call as a rank does whose program is wrong. */
static void make_odd(struct actor *a, struct pawl_coll_call *call)
{
	uint32_t how = (uint32_t)(a->world->story.seed / 3 % 3);

	if (how == 0 && call->len_bytes > 0) {
		call->len_bytes = 0;
	} else if (how == 1 && has_root(call->kind)) {
		call->root = (call->root + 1) % a->world->story.ranks;
	} else if (call->kind == PAWL_ALL_REDUCE && a->world->story.one_way) {
		call->op = call->op == PAWL_SUM ? PAWL_MAX : PAWL_SUM;
		call->mean = false;
	} else if (call->kind == PAWL_BARRIER) {
		call->kind = PAWL_ALL_REDUCE;
		call->len_bytes = 8;
	} else {
		call->kind = PAWL_BARRIER;
		call->len_bytes = 0;
	}
}

static void do_op(struct actor *a, uint32_t i, bool odd)
{
	struct pawl_coll_call call;
	struct pawl_err err;

	if (a->world->story.ops[i].call.kind == PAWL_ALL_TO_ALL) {
		await_all(a); /* earlier all-to-alls use a->at */
	}
	if (!make_call(a, i, &call)) {
		return;
	}
	if (odd) {
		make_odd(a, &call);
	}
	if (pawl_group_submit(a->group, &a->works[a->begun], &call, &err) != 0) {
		record_error(a, &err);
		return;
	}
	a->ops[a->begun++] = i;
}

static void act_rank(struct actor *a)
{
	struct world *w = a->world;
	const struct story *s = &w->story;
	bool wrong = s->fate >= FATE_ODD && a->rank == s->victim;

	for (uint32_t i = 0; i < s->ops_n && a->err.code == 0; i++) {
		bool now = a->rank == s->teller && i == s->at;

		if (now && w->struck_ns == SIM_NEVER) {
			sim_at(w->sim, sim_now_ns(w->sim) + s->after_ns, strike, w);
		}
		compute(a, s->ops[i].pause_ns[a->rank]);
		if (now && wrong && s->fate == FATE_EARLY) {
			break;
		}
		if (now && wrong && s->fate == FATE_LATE) {
			compute(a, 2 * TIMEOUT_NS);
		}
		if (!now || !wrong || s->fate != FATE_SKIP) {
			do_op(a, i, is_odd(a, i));
		}
		if (s->ops[i].last) {
			await_all(a);
		}
	}
	await_all(a);
}

static void act(void *user)
{
	struct actor *a = user;
	struct world *w = a->world;
	struct coll_transport *transport = sim_transport(w->sim, a->rank);
	const struct story *s = &w->story;
	struct pawl_err err;

	if (coll_group_make(&a->group, a->rank, s->ranks, s->servers, &err) != 0 ||
		coll_group_start(a->group, transport, s->host_of, &err) != 0) {
		BLAME(w, "rank %u: %s", a->rank, err.msg);
		return;
	}
	if (a->rank < s->ranks) {
		act_rank(a);
	} else if (coll_group_serve(a->group, &w->stop, &err) != 0) {
		record_error(a, &err);
	}
	pawl_group_close(a->group);
	for (uint32_t i = 0; i < OPS; i++) {
		free(a->in[i]);
		free(a->out[i]);
	}
}

/* ---- outcomes ---- */

/* Returns whether the text names "rank 3" or "server 0", followed by what, and not "rank 31". */
static bool names(const struct story *s, const char *text, uint32_t peer, const char *what)
{
	char name[64];
	size_t n =
		(size_t)snprintf(name, sizeof(name), "%s %u%s", peer < s->ranks ? "rank" : "server",
			peer < s->ranks ? peer : peer - s->ranks, what);
	const char *at = strstr(text, name);

	while (at && at[n] >= '0' && at[n] <= '9') {
		at = strstr(at + 1, name);
	}
	return at != NULL;
}

/* Returns whether a rank's error blames the culprit. */
static bool is_just(const struct world *w, const struct actor *a)
{
	const struct story *s = &w->story;
	const char *text = a->err.msg;
	uint32_t host = s->host_of[s->victim];
	bool just = false;

	switch (s->fate) {
	case FATE_FREEZE:
		just = a->rank == s->victim; /* the frozen rank finds all others gone */
					     /* fall through */
	case FATE_CLOSED:
	case FATE_RESET:
		return just || names(s, text, s->victim, " is lost: ");
	case FATE_SILENT:
	case FATE_PART:
		for (uint32_t p = 0; p < s->peers; p++) {
			bool theirs = s->fate == FATE_SILENT ? s->host_of[p] == host
				: s->one_way                 ? s->side[s->host_of[p]] == 1
				: s->for_ns != SIM_NEVER
				? true
				: s->side[s->host_of[p]] != s->side[s->host_of[a->rank]];

			just |= theirs && names(s, text, p, " is lost: ");
		}
		return just;
	case FATE_ODD:
	case FATE_SKIP:
		return a->rank == s->victim || names(s, text, s->victim, "") ||
			/* About one in 5,000: the rank goes on to a message that another rank waits
			 * for in what it left out. No header prefix differs, and the message might
			 * still come: so a timeout must pass, first that of the rank that began to
			 * wait first. */
			(s->fate == FATE_SKIP && a->err.code == PAWL_ETIMEDOUT &&
				strstr(text, " s at rank "));
	case FATE_EARLY:
		return names(s, text, s->victim, " has left the group");
	case FATE_LATE:
		return a->err.code == PAWL_ETIMEDOUT &&
			strstr(text, "not done within the timeout of 2.0 s");
	default:
		return false;
	}
}

/* Returns how long after the fate struck a rank may take to learn of it. */
static int64_t most_ns(const struct story *s)
{
	bool silent = s->fate == FATE_SILENT || s->fate == FATE_FREEZE || s->fate == FATE_PART;
	int64_t frozen_ns = s->fate == FATE_FREEZE && s->for_ns != SIM_NEVER ? s->for_ns : 0;
	int64_t ns = 100 * NS_PER_MS;

	ns += silent ? 5 * s->heartbeat_interval_ns : 0;
	ns += s->fate >= FATE_ODD ? 3 * TIMEOUT_NS : 0;
	return ns + frozen_ns;
}

static void check_end(struct world *w, const struct actor *a)
{
	const struct story *s = &w->story;
	int64_t took_ns = a->err_ns - w->struck_ns;

	if (a->err.code == 0 || sim_died(w->sim, a->rank)) {
		return;
	}
	if (w->struck_ns == SIM_NEVER || !is_just(w, a)) {
		BLAME(w, "rank %u says: %s", a->rank, a->err.msg);
	}
	if (took_ns > most_ns(s)) {
		BLAME(w, "rank %u says after %.3f s, where %.3f should do: %s", a->rank,
			(double)took_ns / NS_PER_S, (double)most_ns(s) / NS_PER_S, a->err.msg);
	}
}

static void blame_stuck(struct world *w)
{
	for (uint32_t p = 0; p < w->story.peers; p++) {
		const struct actor *a = &w->actors[p];

		if (a->err.code != 0 && a->err_ns >= HISTORY_NS) {
			BLAME(w, "rank %u has not ended: %s", p, a->err.msg);
		}
	}
	BLAME(w, "not all have ended");
}

/* Descriptions of the fates, for reports of what went wrong. */
static const char *const fates[FATES] = {"nothing happens", "a rank pauses", "a short cut",
	"a slow network", "a process ends", "a process ends and its connections break",
	"a host is gone", "a rank freezes", "the network parts", "a rank calls something else",
	"a rank leaves one out", "a rank leaves", "a rank is late"};

static void live(uint64_t seed, uint32_t bits)
{
	struct world *w = calloc(1, sizeof(*w));
	struct story *s = &w->story;
	char heartbeat[32];

	story_make(s, seed, bits);
	snprintf(heartbeat, sizeof(heartbeat), "%.3f", (double)s->heartbeat_interval_ns / NS_PER_S);
	setenv("PAWL_HEARTBEAT", heartbeat, 1);
	w->struck_ns = SIM_NEVER;
	w->sim = sim_open(&s->net, s->host_of, s->peers, seed);
	for (uint32_t p = 0; p < s->peers; p++) {
		w->actors[p] = (struct actor){.world = w, .rank = p};
		sim_spawn(w->sim, p, act, &w->actors[p]);
	}
	if (!sim_run(w->sim, HISTORY_NS)) {
		blame_stuck(w);
	}
	for (uint32_t p = 0; p < s->peers; p++) {
		check_end(w, &w->actors[p]);
	}
	if (w->wrong[0] != '\0') {
		fail_msg("PAWL_TEST_SEED=%llu: %u ranks on %u hosts, %u servers, %u operations; "
			 "%s (%u, when %u comes to %u): %s",
			(unsigned long long)seed, s->ranks, s->hosts, s->servers, s->ops_n,
			fates[s->fate], s->victim, s->teller, s->at, w->wrong);
	}
	sim_close(w->sim);
	story_drop(s);
	free(w);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FEW 1
#endif
#endif
#ifdef FEW
#define HISTORIES 30
#else
#define HISTORIES 300
#endif

static void histories(void **state)
{
	uint64_t n = getenv("PAWL_LONG") ? 10000 : HISTORIES;

	for (uint64_t i = 0; i < n; i++) {
		live(first_seed + i, (first_seed + i) % 8 == 0 ? 18 : 14);
	}
}

/* ---- a rank that stands still as it leaves ---- */

static int64_t (*sim_clock)(struct coll_transport *transport);
static int64_t stood_ns; /* how long the transport has been stopped so far */

/* now_ns of a transport whose rank is stopped for an hour before it reads the clock. */
static int64_t stand_still(struct coll_transport *transport)
{
	stood_ns += 3600 * NS_PER_S;
	return sim_clock(transport) + stood_ns;
}

static struct pawl_group *start_one_of_two(struct sim *sim, uint32_t rank)
{
	static const uint32_t hosts[] = {0, 1};
	struct pawl_group *group;

	assert_int_equal(coll_group_make(&group, rank, 2, 0, NULL), 0);
	assert_int_equal(coll_group_start(group, sim_transport(sim, rank), hosts, NULL), 0);
	return group;
}

static void leave_slowly(void *user)
{
	struct pawl_group *group = start_one_of_two(user, 1);

	sim_clock = group->transport->now_ns;
	group->transport->now_ns = stand_still;
	pawl_group_close(group);
}

static void await_who_leaves(void *user)
{
	struct pawl_group *group = start_one_of_two(user, 0);
	const struct pawl_coll_call call = {.kind = PAWL_BARRIER};
	struct pawl_work work;
	struct pawl_err err;

	assert_int_equal(pawl_group_submit(group, &work, &call, NULL), 0);
	assert_int_equal(pawl_group_wait(group, &work, -1, &err), PAWL_EPEER);
	if (!strstr(err.msg, "rank 1 has left the group")) {
		fail_msg("%s", err.msg);
	}
	pawl_group_close(group);
}

/* A rank notifies its peers that it leaves, even if the time for that has passed by then. */
static void leaving_is_announced_however_late(void **state)
{
	static const struct sim_net net = {1e9, 50000, 0, 0, 0, 64u << 10, 100000};
	static const uint32_t hosts[] = {0, 1};
	struct sim *sim = sim_open(&net, hosts, 2, first_seed);

	sim_spawn(sim, 0, await_who_leaves, sim);
	sim_spawn(sim, 1, leave_slowly, sim);
	assert_true(sim_run(sim, HISTORY_NS));
	sim_close(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(histories),
		cmocka_unit_test(leaving_is_announced_however_late),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
