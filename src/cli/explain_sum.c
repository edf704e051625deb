/* pawl explain: sums up a group's traces. Pure. */
#include "cli/explain.h"

#include "base/err.h"
#include "coll/group/group_call.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_S       1e9
#define SKEW_MAX_NS    (1LL << 50) /* a larger skew is not corrected */
#define STEP_OPS_MAX   2048u       /* operations of a step, at most */
#define STEPS_MIN      4u          /* fewest repetitions that make a step */
#define ODD_SHARE      20u         /* one operation of this many may differ from the step before */
#define LINK_HOSTS_MAX 1024u       /* hosts, at most, whose links are compared */
#define SLOW_LINK      0.5         /* share of the median link's speed below which a link is slow */

void explain_name(const struct trace_record *record, char *text)
{
	const struct pawl_coll_call call = {.kind = record->kind,
		.op = record->op,
		.dtype = record->dtype,
		.mean = record->mean,
		.root = record->root,
		.len_bytes = record->bytes};

	group_call_name(&call, text);
}

/* ---- the collectives that all ranks have ---- */

/* The collectives of one rank, by number. */
struct table {
	const struct trace_record **at; /* owned; NULL: the rank has none of this number */
	uint64_t from;                  /* number of the first entry */
	size_t n;                       /* number of entries in at */
};

static bool is_collective(const struct trace_record *record)
{
	return record->type == TRACE_OPERATION && record->kind < PAWL_SEND;
}

/* Finds the range of numbers that every rank's trace has, from the first and last one of each. */
static void find_range(const struct explain_group *group, uint64_t *from, uint64_t *to)
{
	*from = 0;
	*to = UINT64_MAX;
	for (uint32_t r = 0; r < group->ranks; r++) {
		const struct trace *trace = &group->traces[r];
		uint64_t least = UINT64_MAX;
		uint64_t most = 0;

		for (size_t i = 0; i < trace->n; i++) {
			const struct trace_record *record = &trace->records[i];

			if (is_collective(record)) {
				least = record->number < least ? record->number : least;
				most = record->number > most ? record->number : most;
			}
		}
		if (trace->header.ranks != 0) {
			*from = least > *from ? least : *from;
			*to = most < *to ? most : *to;
		}
	}
	if (*to >= *from && *to - *from >= TRACE_CAP) {
		*from = *to - TRACE_CAP + 1;
	}
}

static struct table *make_tables(const struct explain_group *group)
{
	struct table *tables = calloc(group->ranks, sizeof(*tables));
	uint64_t from;
	uint64_t to;

	find_range(group, &from, &to);
	for (uint32_t r = 0; r < group->ranks && tables && to >= from; r++) {
		const struct trace *trace = &group->traces[r];
		struct table *table = &tables[r];

		table->from = from;
		table->n = (size_t)(to - from) + 1;
		table->at = calloc(table->n, sizeof(struct trace_record *));
		for (size_t i = 0; i < trace->n && table->at; i++) {
			const struct trace_record *record = &trace->records[i];

			if (is_collective(record) && record->number >= from &&
				record->number <= to) {
				table->at[record->number - from] = record;
			}
		}
	}
	return tables;
}

static void free_tables(struct table *tables, uint32_t n)
{
	for (uint32_t r = 0; r < n && tables; r++) {
		free(tables[r].at);
	}
	free(tables);
}

static bool tables_whole(const struct table *tables, uint32_t n)
{
	bool whole = tables != NULL;

	for (uint32_t r = 0; r < n && whole; r++) {
		whole = tables[r].n == 0 || tables[r].at != NULL;
	}
	return whole;
}

/* Returns whether all ranks that left a trace have entry i. */
static bool all_have(const struct explain_group *group, const struct table *tables, size_t i)
{
	for (uint32_t r = 0; r < group->ranks; r++) {
		if (group->traces[r].header.ranks != 0 && tables[r].at[i] == NULL) {
			return false;
		}
	}
	return true;
}

/* ---- clocks ---- */

static bool waits_for_all(enum pawl_coll kind)
{
	return kind == PAWL_ALL_REDUCE || kind == PAWL_ALL_GATHER || kind == PAWL_REDUCE_SCATTER ||
		kind == PAWL_BARRIER;
}

/* Returns by how much clock b is ahead of clock a: an operation is not done at one rank before the
 * other has begun it. */
static int64_t find_skew(const struct explain_group *group, const struct table *tables, uint32_t a,
	uint32_t b)
{
	int64_t least = -SKEW_MAX_NS;
	int64_t most = SKEW_MAX_NS;

	for (size_t i = 0; i < tables[a].n; i++) {
		const struct trace_record *x = tables[a].at[i];
		const struct trace_record *y = tables[b].at[i];
		int64_t base_ns = group->base_ns[b] - group->base_ns[a];

		if (x && y && waits_for_all(x->kind) && y->kind == x->kind) {
			int64_t lo = base_ns + y->at_ns[TRACE_BEGUN] - x->at_ns[TRACE_DONE];
			int64_t hi = base_ns + y->at_ns[TRACE_DONE] - x->at_ns[TRACE_BEGUN];

			least = lo > least ? lo : least;
			most = hi < most ? hi : most;
		}
	}
	if (least > most || (least <= 0 && most >= 0)) {
		return 0; /* the clocks may be right, or the records contradict each other */
	}
	return least / 2 + most / 2;
}

void explain_align(struct explain_group *group)
{
	struct table *tables = make_tables(group);
	uint32_t first = 0;

	while (first < group->ranks && group->traces[first].header.ranks == 0) {
		first++;
	}
	for (uint32_t r = first + 1; r < group->ranks && tables_whole(tables, group->ranks); r++) {
		int64_t skew_ns;

		if (group->traces[r].header.ranks == 0 ||
			group->traces[r].header.host == group->traces[first].header.host) {
			continue;
		}
		skew_ns = find_skew(group, tables, first, r);
		group->base_ns[r] -= skew_ns;
		skew_ns = skew_ns < 0 ? -skew_ns : skew_ns;
		group->skew_ns = skew_ns > group->skew_ns ? skew_ns : group->skew_ns;
	}
	free_tables(tables, group->ranks);
}

/* ---- operations ---- */

static int compare_times(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a;
	int64_t y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

/* Describes operation i. times: room for one entry for each rank. */
static struct explain_op describe(const struct explain_group *group, const struct table *tables,
	size_t i, int64_t *times)
{
	struct explain_op op = {.begin_ns = INT64_MAX, .together_ns = INT64_MIN};
	uint32_t n = 0;

	for (uint32_t r = 0; r < group->ranks; r++) {
		const struct trace_record *record = tables[r].at[i];
		int64_t base_ns = group->base_ns[r];

		if (!record) {
			continue;
		}
		op.record = op.record ? op.record : record;
		times[n] = base_ns + record->at_ns[TRACE_BEGUN];
		if (times[n] > op.together_ns) {
			op.together_ns = times[n];
			op.last = r;
		}
		if (base_ns + record->at_ns[TRACE_SUBMITTED] < op.begin_ns) {
			op.begin_ns = base_ns + record->at_ns[TRACE_SUBMITTED];
		}
		if (base_ns + record->at_ns[TRACE_DONE] > op.end_ns) {
			op.end_ns = base_ns + record->at_ns[TRACE_DONE];
		}
		n++;
	}
	qsort(times, n, sizeof(*times), compare_times);
	op.late_ns = op.together_ns - times[(n - 1) / 2];
	return op;
}

static int64_t clamp_ns(int64_t ns, int64_t least, int64_t most)
{
	return ns < least ? least : ns > most ? most : ns;
}

/* Adds one rank's part of an operation; together_ns is by that rank's clock. */
static void add_phases(struct explain_sum *sum, const struct trace_record *record,
	int64_t together_ns)
{
	const int64_t *at = record->at_ns;
	int64_t all_ns = clamp_ns(together_ns, at[TRACE_ALL_BEGUN], at[TRACE_DONE]);
	int64_t remote_ns = clamp_ns(at[TRACE_REMOTE], all_ns, at[TRACE_DONE]);

	sum->phase_s[EXPLAIN_QUEUED] += (double)(at[TRACE_FIRST] - at[TRACE_SUBMITTED]) / NS_PER_S;
	sum->phase_s[EXPLAIN_IDLE] += (double)(at[TRACE_BEGUN] - at[TRACE_FIRST]) / NS_PER_S;
	sum->phase_s[EXPLAIN_LATE] += (double)(all_ns - at[TRACE_BEGUN]) / NS_PER_S;
	sum->phase_s[EXPLAIN_NETWORK] += (double)(remote_ns - all_ns) / NS_PER_S;
	sum->phase_s[EXPLAIN_MEMORY] += (double)(at[TRACE_DONE] - remote_ns) / NS_PER_S;
	sum->adding_s += (double)record->busy_ns / NS_PER_S;
}

int64_t explain_median(int64_t *ns, size_t n)
{
	qsort(ns, n, sizeof(*ns), compare_times);
	return ns[n / 2];
}

static int list_ops(struct explain_sum *sum, const struct explain_group *group,
	const struct table *tables, struct pawl_err *err)
{
	int64_t *times = calloc(group->ranks, sizeof(*times));
	size_t most = 0;

	for (uint32_t r = 0; r < group->ranks; r++) {
		most = tables[r].n > most ? tables[r].n : most;
	}
	sum->ops = calloc(most + 1, sizeof(*sum->ops));
	if (!times || !sum->ops) {
		free(times);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu operations", most);
	}
	for (size_t i = 0; i < most; i++) {
		struct explain_op op;

		if (!all_have(group, tables, i)) {
			continue;
		}
		op = describe(group, tables, i, times);
		sum->ops[sum->ops_n++] = op;
		for (uint32_t r = 0; r < group->ranks; r++) {
			if (tables[r].at[i]) {
				add_phases(sum, tables[r].at[i],
					op.together_ns - group->base_ns[r]);
			}
		}
	}
	free(times);
	return 0;
}

/* ---- steps ---- */

static bool is_alike(const struct explain_op *a, const struct explain_op *b)
{
	const struct trace_record *x = a->record;
	const struct trace_record *y = b->record;

	return x->kind == y->kind && x->op == y->op && x->dtype == y->dtype && x->bytes == y->bytes;
}

/* Returns the number of operations after which the sequence repeats; 0: it does not. */
static size_t find_period(const struct explain_sum *sum)
{
	for (size_t n = 1; n <= STEP_OPS_MAX && n * STEPS_MIN <= sum->ops_n; n++) {
		size_t odd = 0;

		for (size_t i = n; i < sum->ops_n && odd * ODD_SHARE <= sum->ops_n; i++) {
			odd += !is_alike(&sum->ops[i], &sum->ops[i - n]);
		}
		if (odd * ODD_SHARE <= sum->ops_n) {
			return n;
		}
	}
	return 0;
}

/* Finds a step's first operation: the one that most often follows the longest pause. */
static size_t find_first(const struct explain_sum *sum, size_t period)
{
	size_t *votes = calloc(period, sizeof(*votes));
	size_t best = 0;

	for (size_t i = 1; i + period <= sum->ops_n && votes; i += period) {
		size_t longest = i;

		for (size_t k = i; k < i + period; k++) {
			int64_t pause = sum->ops[k].begin_ns - sum->ops[k - 1].end_ns;

			if (pause > sum->ops[longest].begin_ns - sum->ops[longest - 1].end_ns) {
				longest = k;
			}
		}
		votes[longest % period]++;
	}
	for (size_t k = 1; k < period && votes; k++) {
		best = votes[k] > votes[best] ? k : best;
	}
	free(votes);
	return best;
}

static int list_steps(struct explain_sum *sum, struct pawl_err *err)
{
	size_t period = find_period(sum);
	size_t n = period > 0 ? period : 1;
	size_t first = find_first(sum, n);

	sum->step_ops = period;
	sum->steps = calloc(sum->ops_n / n + 1, sizeof(*sum->steps));
	if (!sum->steps) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for steps");
	}
	for (size_t i = first > 0 ? first : n; i + n <= sum->ops_n; i += n) {
		struct explain_step *step = &sum->steps[sum->steps_n++];

		step->first = i;
		step->ns = sum->ops[i + n - 1].end_ns - sum->ops[i - 1].end_ns;
	}
	return 0;
}

/* ---- ranks ---- */

static int list_ranks(struct explain_sum *sum, const struct explain_group *group,
	struct pawl_err *err)
{
	int64_t *late = calloc(sum->ops_n + 1, sizeof(*late));

	sum->ranks = calloc(group->ranks, sizeof(*sum->ranks));
	if (!late || !sum->ranks) {
		free(late);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", group->ranks);
	}
	for (uint32_t r = 0; r < group->ranks; r++) {
		struct explain_rank *rank = &sum->ranks[r];

		for (size_t i = 0; i < sum->ops_n; i++) {
			if (sum->ops[i].last == r && sum->ops[i].late_ns >= EXPLAIN_LATE_NS) {
				late[rank->last_n++] = sum->ops[i].late_ns;
				rank->late_s += (double)sum->ops[i].late_ns / NS_PER_S;
			}
		}
		if (rank->last_n > 0) {
			rank->late_median_ns = explain_median(late, rank->last_n);
			rank->late_most_ns = late[rank->last_n - 1];
		}
	}
	free(late);
	return 0;
}

/* ---- links ---- */

static int compare_links(const void *a, const void *b)
{
	const struct explain_link *one = a;
	const struct explain_link *two = b;
	double x = one->bytes * two->s;
	double y = two->bytes * one->s;

	return x < y ? -1 : x > y;
}

/* Returns the host of a rank, or of a server; LINK_HOSTS_MAX: unknown. */
static uint32_t host_of(const struct explain_group *group, uint32_t peer)
{
	if (peer >= group->ranks) {
		return group->hosts + (peer - group->ranks);
	}
	return group->traces[peer].header.ranks != 0 ? group->traces[peer].header.host
						     : LINK_HOSTS_MAX;
}

static int list_links(struct explain_sum *sum, const struct explain_group *group,
	struct pawl_err *err)
{
	uint32_t hosts = group->hosts;
	struct explain_link *links;

	for (uint32_t r = 0; r < group->ranks; r++) {
		const struct trace_header *header = &group->traces[r].header;

		if (header->ranks != 0 && group->hosts + header->peers - group->ranks > hosts) {
			hosts = group->hosts + header->peers - group->ranks;
		}
	}
	if (hosts == 1 || hosts > LINK_HOSTS_MAX) {
		return 0;
	}
	links = calloc((size_t)hosts * hosts, sizeof(*links));
	if (!links) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u hosts", hosts);
	}
	for (uint32_t r = 0; r < group->ranks; r++) {
		const struct trace *trace = &group->traces[r];

		for (size_t i = 0; i < trace->n; i++) {
			const struct trace_record *record = &trace->records[i];
			uint32_t to = record->type == TRACE_LINK ? host_of(group, record->peer)
								 : LINK_HOSTS_MAX;

			if (to < hosts) {
				struct explain_link *link = &links[trace->header.host * hosts + to];

				link->bytes += (double)record->bytes;
				link->s += (double)record->busy_ns / NS_PER_S;
			}
		}
	}
	sum->links = links;
	for (uint32_t i = 0; i < hosts * hosts; i++) {
		if (links[i].s > 0) {
			struct explain_link link = {i / hosts, i % hosts, links[i].bytes,
				links[i].s};

			links[sum->links_n++] = link;
		}
	}
	qsort(links, sum->links_n, sizeof(*links), compare_links);
	return 0;
}

bool explain_link_slow(const struct explain_sum *sum, size_t i)
{
	const struct explain_link *link = &sum->links[i];
	const struct explain_link *middle;

	/* The middle of two links is the slower one: neither is slow. */
	middle = &sum->links[(sum->links_n - 1) / 2];
	return link->bytes / link->s < SLOW_LINK * middle->bytes / middle->s;
}

/* ---- all of it ---- */

static void add_waits(struct explain_sum *sum, const struct explain_group *group)
{
	for (uint32_t r = 0; r < group->ranks; r++) {
		const struct trace *trace = &group->traces[r];

		for (size_t i = 0; i < trace->n; i++) {
			const struct trace_record *record = &trace->records[i];
			bool wait = record->type == TRACE_WAIT;

			sum->blocked_s += wait ? (double)(record->at_ns[TRACE_DONE] -
							 record->at_ns[TRACE_SUBMITTED]) /
					NS_PER_S
					       : 0;
		}
	}
}

int explain_sum_init(struct explain_sum *sum, const struct explain_group *group,
	struct pawl_err *err)
{
	struct table *tables = make_tables(group);
	int rv = tables_whole(tables, group->ranks)
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", group->ranks);

	*sum = (struct explain_sum){0};
	if (rv == 0) {
		rv = list_ops(sum, group, tables, err);
	}
	if (rv == 0) {
		rv = list_steps(sum, err);
	}
	if (rv == 0) {
		rv = list_ranks(sum, group, err);
	}
	if (rv == 0) {
		rv = list_links(sum, group, err);
	}
	add_waits(sum, group);
	if (rv == 0 && sum->ops_n > 0) {
		sum->elapsed_s =
			(double)(sum->ops[sum->ops_n - 1].end_ns - sum->ops[0].begin_ns) / NS_PER_S;
	}
	free_tables(tables, group->ranks);
	if (rv != 0) {
		explain_sum_deinit(sum);
	}
	return rv;
}

void explain_sum_deinit(struct explain_sum *sum)
{
	free(sum->ops);
	free(sum->steps);
	free(sum->ranks);
	free(sum->links);
	*sum = (struct explain_sum){0};
}
