/*
 * Measures the network: see probe.h for the contract, docs/net.md for what is measured and why.
 *
 * Rank 0 broadcasts orders. All ranks carry an order out, and rank 0 gathers what each measured.
 * Bytes go from host to host by an all-to-all in which most parts are empty: ranks without a part
 * are done with a round at once, and wait in the gather. Of a pair's rounds, as many are under way
 * as a group has channels. Of the rounds of all hosts, only one is under way, as in an all-reduce:
 * so hosts stay in step, and only one host at a time sends to each.
 */
#include "coll/probe/probe.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/group/group.h"
#include "coll/probe/probe_impl.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW              COLL_CHANNELS /* rounds under way */
#define SERIAL_HOSTS_MAX    8u /* with at most this many hosts, pairs are measured one at a time */
#define FIRST_BYTES         (16u << 10) /* bytes of a message in the first attempt */
#define PACE_ROUNDS         32u         /* rounds to which the time of a round is fitted */
#define TRIES               3u  /* attempts for a slow pair, at most; attempts for an all-to-all */
#define SMALL_MESSAGE_BYTES 64u /* bytes of a small message: a granule of a vector */
#define GROWTH              8.0 /* largest growth of the length from one attempt to the next */

_Static_assert(PACE_ROUNDS >= 4 && PACE_ROUNDS <= ORDER_ROUNDS_MAX, "rounds that may be ordered");
_Static_assert(FIRST_BYTES <= ORDER_STREAM_MAX / (SURVEY_HOSTS_MAX - 1),
	"a first attempt may be ordered, however many the hosts");
_Static_assert(sizeof(double) == sizeof(uint64_t), "doubles are sent as their bits");

/* One rank in a measurement. */
struct probe {
	struct pawl_group *group; /* the caller's */
	uint32_t rank, ranks;     /* number of this rank, and of ranks */
	const atomic_bool *stop;  /* the caller's; NULL: never */
	uint8_t *in, *out;        /* owned; buffers */
	uint64_t cap_bytes;       /* size of in, and of out */
	uint64_t *in_at, *out_at; /* owned; limits of an all-to-all's parts; ranks + 1 each */
	uint64_t *gathered;       /* owned; per rank: bits of a double, little endian */
	double ends_s[ORDER_ROUNDS_MAX]; /* per round: when it ended, or its duration */
};

static double seconds_of(enum times_name name)
{
	return (double)times_ns(name) / (double)NS_PER_S;
}

static int probe_init(struct probe *probe, struct pawl_group *group, const atomic_bool *stop,
	struct pawl_err *err)
{
	uint32_t ranks = pawl_group_ranks(group);

	ASSERT(ranks >= 2 && ranks <= SURVEY_HOSTS_MAX && pawl_group_rank(group) < ranks);
	*probe = (struct probe){.group = group,
		.rank = pawl_group_rank(group),
		.ranks = ranks,
		.stop = stop};
	probe->in_at = FAULT_MEM("coll.probe", calloc(ranks + 1, sizeof(uint64_t)));
	probe->out_at = FAULT_MEM("coll.probe", calloc(ranks + 1, sizeof(uint64_t)));
	probe->gathered = FAULT_MEM("coll.probe", calloc(ranks, sizeof(uint64_t)));
	return probe->in_at && probe->out_at && probe->gathered
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "no memory to measure %u hosts", ranks);
}

static void probe_deinit(struct probe *probe)
{
	free(probe->in);
	free(probe->out);
	free(probe->in_at);
	free(probe->out_at);
	free(probe->gathered);
}

/* Makes room for len_bytes in each direction, and touches it, so that no page fault is measured. */
static int make_room(struct probe *probe, uint64_t len_bytes, struct pawl_err *err)
{
	if (len_bytes <= probe->cap_bytes) {
		return 0;
	}
	free(probe->in);
	free(probe->out);
	probe->cap_bytes = 0;
	probe->in = FAULT_MEM("coll.probe", malloc(len_bytes));
	probe->out = FAULT_MEM("coll.probe", malloc(len_bytes));
	if (!probe->in || !probe->out) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to measure with: %llu bytes",
			2 * (unsigned long long)len_bytes);
	}
	memset(probe->in, 0, len_bytes);
	memset(probe->out, 0, len_bytes);
	probe->cap_bytes = len_bytes;
	return 0;
}

/* ---- collectives ---- */

static int begin_call(struct probe *probe, struct pawl_work *work, struct pawl_coll_call call,
	struct pawl_err *err)
{
	return pawl_group_submit(probe->group, work, &call, err);
}

/* Waits until a work is done, and no longer in use. Asks for its result only then: a wait may time
 * out just before. */
static int end_call(struct probe *probe, struct pawl_work *work, struct pawl_err *err)
{
	while (probe->stop && !pawl_work_done(work)) {
		(void)pawl_group_wait(probe->group, work, times_ns(TIME_PROBE_LOOK), NULL);
		if (atomic_load(probe->stop)) {
			pawl_group_leave(probe->group);
		}
	}
	return pawl_group_wait(probe->group, work, -1, err);
}

static int do_call(struct probe *probe, struct pawl_coll_call call, struct pawl_err *err)
{
	struct pawl_work work;
	int rv = begin_call(probe, &work, call, err);

	return rv == 0 ? end_call(probe, &work, err) : rv;
}

static int do_barrier(struct probe *probe, struct pawl_err *err)
{
	return do_call(probe,
		(struct pawl_coll_call){.kind = PAWL_BARRIER,
			.timeout_ns = times_ns(TIME_PROBE_CALL)},
		err);
}

static double seconds_since(int64_t start_ns)
{
	return (double)(clock_mono_ns() - start_ns) / NS_PER_S;
}

/* ---- orders ---- */

/* Returns the call for one round of an order. */
static struct pawl_coll_call round_call(struct probe *probe, const struct probe_order *order)
{
	for (uint32_t p = 0; p < probe->ranks; p++) {
		probe->in_at[p + 1] =
			probe->in_at[p] + probe_bytes(order, probe->ranks, probe->rank, p);
		probe->out_at[p + 1] =
			probe->out_at[p] + probe_bytes(order, probe->ranks, p, probe->rank);
	}
	ASSERT(probe->in_at[probe->ranks] <= probe->cap_bytes &&
		probe->out_at[probe->ranks] <= probe->cap_bytes);
	return (struct pawl_coll_call){.kind = PAWL_ALL_TO_ALL,
		.dtype = PAWL_UINT8,
		.in = probe->in,
		.out = probe->out,
		.in_at = probe->in_at,
		.out_at = probe->out_at,
		.timeout_ns = times_ns(TIME_PROBE_CALL)};
}

/* Measures the one-way latency: half of the median round trip. */
static int ping(struct probe *probe, struct probe_order *order, double *seconds,
	struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 0; i < 2 * order->rounds && rv == 0; i++) {
		uint32_t a = order->a;
		int64_t start_ns = clock_mono_ns();

		rv = do_call(probe, round_call(probe, order), err);
		order->a = order->b;
		order->b = a;
		probe->ends_s[i / 2] =
			(i % 2 == 0 ? 0 : probe->ends_s[i / 2]) + seconds_since(start_ns);
	}
	*seconds = coll_median(probe->ends_s, order->rounds) / 2;
	return rv;
}

/* Measures the seconds of a round of a stream. */
static int stream(struct probe *probe, const struct probe_order *order, double *seconds,
	struct pawl_err *err)
{
	struct pawl_coll_call call = round_call(probe, order);
	int64_t start_ns = clock_mono_ns();
	struct pawl_work works[WINDOW];
	uint32_t window = order->kind == PROBE_ALL ? 1 : WINDOW;
	uint32_t begun = 0;
	uint32_t ended = 0;
	int rv = 0;

	while (ended < begun || (rv == 0 && begun < order->rounds)) {
		bool more = rv == 0 && begun < order->rounds && begun - ended < window;
		int code = more ? begin_call(probe, &works[begun % WINDOW], call, err)
				: end_call(probe, &works[ended % WINDOW], rv == 0 ? err : NULL);

		rv = rv == 0 ? code : rv;
		if (more && code == 0) {
			begun++;
		} else if (!more) {
			probe->ends_s[ended++] = seconds_since(start_ns);
		}
	}
	*seconds = rv == 0 ? coll_fit_round_s(probe->ends_s, order->rounds) : 0;
	return rv;
}

/* Measures the median seconds of an all-reduce, each after a barrier. A first one, which makes the
 * plan and takes memory, does not count. */
static int sum(struct probe *probe, const struct probe_order *order, double *seconds,
	struct pawl_err *err)
{
	struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
		.dtype = order->dtype,
		.len_bytes = order->len_bytes,
		.in = probe->in,
		.out = probe->out,
		.timeout_ns = times_ns(TIME_PROBE_CALL)};
	int rv;

	coll_group_set_link(probe->group, &order->link);
	rv = do_call(probe, call, err);
	for (uint32_t i = 0; i < order->rounds && rv == 0; i++) {
		int64_t start_ns;

		rv = do_barrier(probe, err);
		start_ns = clock_mono_ns();
		rv = rv == 0 ? do_call(probe, call, err) : rv;
		probe->ends_s[i] = seconds_since(start_ns);
	}
	*seconds = coll_median(probe->ends_s, order->rounds);
	return rv;
}

/* Carries out an order, as all ranks do. At rank 0, gathered gets what each rank measured. */
static int carry_out(struct probe *probe, struct probe_order *order, struct pawl_err *err)
{
	bool sums = order->kind == PROBE_SUM;
	uint32_t messages = order->kind == PROBE_ALL ? probe->ranks - 1 : 1;
	uint64_t own = 0;
	double seconds = 0;
	int rv = make_room(probe, order->len_bytes * messages, err);

	ASSERT(order->kind != PROBE_END && order->rounds >= 4 && order->rounds <= ORDER_ROUNDS_MAX);
	if (rv == 0) {
		rv = do_barrier(probe, err);
	}
	if (rv == 0) {
		rv = order->kind == PROBE_PING ? ping(probe, order, &seconds, err)
			: sums                 ? sum(probe, order, &seconds, err)
					       : stream(probe, order, &seconds, err);
	}
	memcpy(&own, &seconds, sizeof(own));
	own = htole64(own);
	return rv == 0 ? do_call(probe,
				 (struct pawl_coll_call){.kind = PAWL_GATHER,
					 .dtype = PAWL_UINT8,
					 .len_bytes = sizeof(own),
					 .in = &own,
					 .out = probe->gathered,
					 .timeout_ns = times_ns(TIME_PROBE_CALL)},
				 err)
		       : rv;
}

/* Broadcasts an order from rank 0. */
static int pass_order(struct probe *probe, uint8_t *bytes, int64_t timeout_ns, struct pawl_err *err)
{
	return do_call(probe,
		(struct pawl_coll_call){.kind = PAWL_BROADCAST,
			.dtype = PAWL_UINT8,
			.len_bytes = ORDER_BYTES,
			.in = bytes,
			.out = bytes,
			.timeout_ns = timeout_ns},
		err);
}

int coll_probe_obey(struct pawl_group *group, const atomic_bool *stop, struct pawl_err *err)
{
	struct probe_order order = {.kind = PROBE_KINDS};
	uint8_t bytes[ORDER_BYTES];
	struct probe probe;
	int rv = probe_init(&probe, group, stop, err);

	while (rv == 0 && order.kind != PROBE_END) {
		rv = pass_order(&probe, bytes, 0, err);
		if (rv == 0 && probe_decode(bytes, probe.ranks, &order) != 0) {
			rv = pawl_err_set(err, PAWL_EPEER,
				"rank 0 sent a malformed order: is it another version of Pawl?");
		}
		if (rv == 0 && order.kind != PROBE_END) {
			rv = carry_out(&probe, &order, err);
		}
	}
	probe_deinit(&probe);
	return rv;
}

/* ---- rank 0 ---- */

/* Returns what a rank measured, in seconds; for PAWL_ANY_RANK, the most of all ranks. */
static double measured_by(const struct probe *probe, uint32_t rank)
{
	double most = 0;

	for (uint32_t r = 0; r < probe->ranks; r++) {
		uint64_t bits = le64toh(probe->gathered[r]);
		double seconds;

		memcpy(&seconds, &bits, sizeof(seconds));
		if ((rank == r || rank == PAWL_ANY_RANK) && seconds > most) {
			most = seconds;
		}
	}
	return most;
}

static int give_order(struct probe *probe, const struct probe_order *order, struct pawl_err *err)
{
	struct probe_order own = *order;
	uint8_t bytes[ORDER_BYTES];
	int rv;

	ASSERT(probe->rank == 0);
	own.link = order->kind == PROBE_SUM ? order->link : coll_link_default;
	probe_encode(bytes, &own);
	rv = probe_decode(bytes, probe->ranks, &own);
	ASSERT(rv == 0); /* each rank takes the order from the same bytes */
	rv = pass_order(probe, bytes, times_ns(TIME_PROBE_CALL), err);
	return rv == 0 ? carry_out(probe, &own, err) : rv;
}

/* Measures a stream whose rounds are long enough to take about `seconds` together. *order gets the
 * length. */
static int measure_stream(struct probe *probe, struct probe_order *order, double seconds,
	struct pawl_err *err)
{
	uint64_t most = ORDER_STREAM_MAX / (probe->ranks - 1);
	double took_s = 0;
	int rv = 0;

	order->rounds = PACE_ROUNDS;
	order->len_bytes = 0;
	while (rv == 0 && took_s < seconds / 2 && order->len_bytes < most) {
		double more = took_s > 0 ? seconds / took_s : GROWTH;
		uint64_t longer =
			(uint64_t)((double)order->len_bytes * (more < GROWTH ? more : GROWTH));

		order->len_bytes = longer < FIRST_BYTES ? FIRST_BYTES
			: longer < most                 ? longer
							: most;
		rv = give_order(probe, order, err);
		took_s = measured_by(probe, PAWL_ANY_RANK) * PACE_ROUNDS;
	}
	return rv;
}

/* Returns how many rounds of one_s take all_s together, `least` at least and ORDER_ROUNDS_MAX at
 * most. */
static uint32_t count_rounds(double all_s, double one_s, uint32_t least)
{
	double most = one_s * ORDER_ROUNDS_MAX > all_s ? all_s / one_s : ORDER_ROUNDS_MAX;

	return most > least ? (uint32_t)most : least;
}

static int measure_latency(struct probe *probe, struct coll_survey *survey, uint32_t a, uint32_t b,
	struct pawl_err *err)
{
	struct probe_order order = {.kind = PROBE_PING,
		.a = a,
		.b = b,
		.rounds = 8,
		.len_bytes = SMALL_MESSAGE_BYTES};
	double seconds;
	int rv = give_order(probe, &order, err);

	if (rv == 0) {
		seconds = measured_by(probe, a);
		order.rounds = count_rounds(seconds_of(TIME_PROBE_PING), 2 * seconds, 8);
		rv = give_order(probe, &order, err);
	}
	if (rv == 0) {
		survey->latency_s[a * survey->n + b] = survey->latency_s[b * survey->n + a] =
			measured_by(probe, a);
	}
	return rv;
}

static int measure_latencies(struct probe *probe, struct coll_survey *survey, struct pawl_err *err)
{
	uint32_t firsts = survey->n <= SERIAL_HOSTS_MAX ? survey->n : 1;
	int rv = 0;

	for (uint32_t a = 0; a < firsts; a++) {
		for (uint32_t b = a + 1; b < survey->n && rv == 0; b++) {
			rv = measure_latency(probe, survey, a, b, err);
		}
	}
	return rv;
}

/* Keeps the best rate of a pair so far. */
static void record_pair(struct coll_survey *survey, const struct probe *probe,
	const struct probe_order *order, uint32_t from, uint32_t to)
{
	double *best = &survey->bytes_per_s[from * survey->n + to];
	double seconds = measured_by(probe, to);

	if (probe_bytes(order, survey->n, from, to) > 0 && seconds > 0 &&
		*best < (double)order->len_bytes / seconds) {
		*best = (double)order->len_bytes / seconds;
	}
}

/* Returns whether a pair of an order was not measured yet, or seems slow, which may be a
 * coincidence. */
static bool needs_measuring(const struct coll_survey *survey, struct probe_order order)
{
	bool doubtful = false;

	order.len_bytes = 1;
	for (uint32_t p = 0; p < survey->n * survey->n; p++) {
		doubtful |= probe_bytes(&order, survey->n, p / survey->n, p % survey->n) > 0 &&
			coll_survey_slow(survey, p / survey->n, p % survey->n);
	}
	return doubtful;
}

/* Measures one pair at a time, in both directions; or, with many hosts, in the rounds of a
 * tournament. */
static int measure_pairs(struct probe *probe, struct coll_survey *survey, struct pawl_err *err)
{
	bool few = survey->n <= SERIAL_HOSTS_MAX;
	uint32_t firsts = few || survey->n % 2 != 0 ? survey->n : survey->n - 1;
	uint32_t others = few ? survey->n : 2;
	uint32_t all = firsts * others;
	int rv = 0;

	for (uint32_t i = 0; i < TRIES * all && rv == 0; i++) {
		struct probe_order order = {.kind = few ? PROBE_PAIR : PROBE_PAIRS,
			.a = i / others % firsts,
			.b = i % others};

		if ((few && order.a == order.b) || !needs_measuring(survey, order)) {
			continue;
		}
		rv = measure_stream(probe, &order, seconds_of(TIME_PROBE_PAIR), err);
		for (uint32_t p = 0; p < survey->n * survey->n && rv == 0; p++) {
			record_pair(survey, probe, &order, p / survey->n, p % survey->n);
		}
	}
	return rv;
}

static int measure_all(struct probe *probe, struct coll_survey *survey, struct pawl_err *err)
{
	struct probe_order order = {.kind = PROBE_ALL,
		.rounds = ORDER_ROUNDS_MAX,
		.len_bytes = SMALL_MESSAGE_BYTES};
	double rates[TRIES];
	int rv = give_order(probe, &order, err);

	survey->all_small_s = measured_by(probe, PAWL_ANY_RANK);
	for (uint32_t i = 0; i < TRIES && rv == 0; i++) {
		rv = measure_stream(probe, &order, seconds_of(TIME_PROBE_ALL), err);
		rates[i] = (double)(survey->n - 1) * (double)order.len_bytes /
			measured_by(probe, PAWL_ANY_RANK);
	}
	survey->all_bytes_per_s = rv == 0 ? coll_median(rates, TRIES) : 0;
	return rv;
}

int coll_probe_survey(struct pawl_group *group, struct coll_survey *survey,
	coll_probe_report *report, void *user, struct pawl_err *err)
{
	struct probe probe;
	int rv = probe_init(&probe, group, NULL, err);

	if (rv == 0) {
		report(user, "latency");
		rv = measure_latencies(&probe, survey, err);
	}
	if (rv == 0) {
		report(user,
			survey->n <= SERIAL_HOSTS_MAX ? "pairs of hosts, one at a time"
						      : "pairs of hosts");
		rv = measure_pairs(&probe, survey, err);
	}
	if (rv == 0) {
		report(user, "all hosts at once");
		rv = measure_all(&probe, survey, err);
	}
	probe_deinit(&probe);
	return rv;
}

int coll_probe_sum(struct pawl_group *group, const struct coll_link *link, enum pawl_dtype dtype,
	uint64_t len_bytes, double budget_s, double *seconds, struct pawl_err *err)
{
	struct probe_order order = {.kind = PROBE_SUM,
		.rounds = 4,
		.dtype = dtype,
		.len_bytes = len_bytes,
		.link = *link};
	struct probe probe;
	int rv = probe_init(&probe, group, NULL, err);

	if (rv == 0) {
		rv = give_order(&probe, &order, err);
	}
	if (rv == 0 && 8 * measured_by(&probe, PAWL_ANY_RANK) < budget_s) {
		order.rounds = count_rounds(budget_s, measured_by(&probe, PAWL_ANY_RANK), 4);
		rv = give_order(&probe, &order, err);
	}
	if (rv == 0) {
		*seconds = measured_by(&probe, PAWL_ANY_RANK);
	}
	probe_deinit(&probe);
	return rv;
}

void coll_probe_end(struct pawl_group *group)
{
	const struct probe_order order = {.kind = PROBE_END,
		.rounds = 4,
		.len_bytes = 1,
		.link = coll_link_default};
	uint8_t bytes[ORDER_BYTES];
	struct probe probe;

	probe_encode(bytes, &order);
	if (probe_init(&probe, group, NULL, NULL) == 0) {
		(void)pass_order(&probe, bytes, times_ns(TIME_PROBE_CALL), NULL);
	}
	probe_deinit(&probe);
}
