/* pawl explain: why steps were slow, from the traces that PAWL_TRACE left. */
#include "cli/explain.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "coll/group/group_call.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_SHOWN 3u    /* groups shown without --group */
#define RANKS_SHOWN  12u   /* ranks shown, the latest ones */
#define STEPS_SHOWN  3u    /* steps shown, the slowest ones */
#define LINKS_SHOWN  6u    /* links shown, the slowest ones */
#define BLAMED_SHARE 0.5   /* share of all lateness that a rank must have to be called late */
#define BLAMED_TIME  0.02  /* share of the whole time that its lateness must have, too */
#define CLOCKED      20000 /* records written to measure the cost of one */

enum option { TRACE, GROUP };

static const struct cli_option options[] = {
	[TRACE] = {"--trace", 0, "FILE", "write the whole trace for chrome://tracing or Perfetto"},
	[GROUP] = {"--group", 0, "ID", "explain only this group (the three that took longest)"},
	{NULL},
};

static double ms_of(int64_t ns)
{
	return (double)ns / 1e6;
}

static double percent(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

/* ---- what was slow ---- */

static int compare_ns(const void *a, const void *b)
{
	int64_t x = ((const struct explain_step *)a)->ns;
	int64_t y = ((const struct explain_step *)b)->ns;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Prints the operation that made a step longer than the usual one. */
static void print_cause(const struct explain_sum *sum, const struct explain_step *step,
	int64_t usual_ns)
{
	size_t n = sum->step_ops > 0 ? sum->step_ops : 1;
	const struct explain_op *latest = &sum->ops[step->first];
	const struct explain_op *longest = latest;
	int64_t most_ns = (step->ns - usual_ns) / 2;
	char name[GROUP_CALL_TEXT];

	for (size_t i = step->first; i < step->first + n; i++) {
		const struct explain_op *op = &sum->ops[i];

		latest = op->late_ns > latest->late_ns ? op : latest;
		longest = op->end_ns - op->together_ns > longest->end_ns - longest->together_ns
			? op
			: longest;
	}
	if (latest->late_ns >= most_ns && latest->late_ns >= EXPLAIN_LATE_NS) {
		explain_name(latest->record, name);
		cli_print(stdout, "rank %u came %.1f ms late to operation %" PRIu64 ", %s\n",
			latest->last, ms_of(latest->late_ns), latest->record->number, name);
	} else if (longest->end_ns - longest->together_ns >= most_ns) {
		explain_name(longest->record, name);
		cli_print(stdout,
			"operation %" PRIu64 ", %s, took %.1f ms once all ranks had begun it\n",
			longest->record->number, name,
			ms_of(longest->end_ns - longest->together_ns));
	} else {
		cli_print(stdout,
			"between the operations: all ranks computed, or waited for data\n");
	}
}

static void print_steps(const struct explain_sum *sum)
{
	struct explain_step *sorted = calloc(sum->steps_n + 1, sizeof(*sorted));
	int64_t usual_ns;

	if (!sorted || sum->steps_n == 0) {
		free(sorted);
		return;
	}
	memcpy(sorted, sum->steps, sum->steps_n * sizeof(*sorted));
	qsort(sorted, sum->steps_n, sizeof(*sorted), compare_ns);
	usual_ns = sorted[sum->steps_n / 2].ns;
	if (sum->step_ops > 0) {
		cli_print(stdout,
			"\n%zu steps, of %zu operations that repeat; median %.1f ms, slowest:\n",
			sum->steps_n, sum->step_ops, ms_of(usual_ns));
	} else {
		cli_print(stdout,
			"\nno steps: operations do not repeat; median %.1f ms from one to the "
			"next, "
			"slowest:\n",
			ms_of(usual_ns));
	}
	for (size_t i = 0; i < sum->steps_n && i < STEPS_SHOWN; i++) {
		cli_print(stdout, "%10.1f ms  from operation %" PRIu64 " on: ", ms_of(sorted[i].ns),
			sum->ops[sorted[i].first].record->number);
		print_cause(sum, &sorted[i], usual_ns);
	}
	free(sorted);
}

static void print_phases(const struct explain_sum *sum, const struct explain_group *group)
{
	static const char *const words[EXPLAIN_PHASES] = {
		[EXPLAIN_QUEUED] = "queued behind other operations",
		[EXPLAIN_IDLE] = "idle: no thread waited yet, and none moved bytes",
		[EXPLAIN_LATE] = "waiting until the last rank had begun",
		[EXPLAIN_NETWORK] = "then: bytes between hosts",
		[EXPLAIN_MEMORY] = "then: bytes inside a host",
	};
	double all_s = 0;

	for (int p = 0; p < EXPLAIN_PHASES; p++) {
		all_s += sum->phase_s[p];
	}
	cli_print(stdout,
		"\nwhere the time of an operation went, of %.3f ms from submit to done:\n",
		1e3 * all_s / (double)sum->ops_n / group->traced_ranks);
	for (int p = 0; p < EXPLAIN_PHASES; p++) {
		if (p != EXPLAIN_NETWORK || group->hosts > 1) {
			cli_print(stdout, "%10.1f %%  %s\n", percent(sum->phase_s[p], all_s),
				words[p]);
		}
	}
	cli_print(stdout, "%10.1f %%  of the whole was adding, as far as it was measured\n",
		percent(sum->adding_s, all_s));
}

/* ---- late ranks ---- */

/* Returns the latest rank of those not shown yet; ranks: there is none. */
static uint32_t find_next(const struct explain_sum *sum, uint32_t ranks, const bool *shown)
{
	uint32_t next = ranks;

	for (uint32_t r = 0; r < ranks; r++) {
		if (!shown[r] &&
			(next == ranks || sum->ranks[r].late_s > sum->ranks[next].late_s)) {
			next = r;
		}
	}
	return next;
}

static void print_verdict(const struct explain_sum *sum, const struct explain_group *group,
	uint32_t worst)
{
	const struct explain_rank *rank = &sum->ranks[worst];
	const struct trace_header *header = &group->traces[worst].header;
	double all_s = 0;

	for (uint32_t r = 0; r < group->ranks; r++) {
		all_s += sum->ranks[r].late_s;
	}
	if (rank->late_s >= BLAMED_SHARE * all_s && rank->late_s >= BLAMED_TIME * sum->elapsed_s &&
		rank->last_n > 1) {
		cli_print(stdout,
			"rank %u (%s, process %u) is late again and again: that is %.0f %% of all "
			"lateness, and %.0f %% of the time\n",
			worst, header->hostname, header->pid, percent(rank->late_s, all_s),
			percent(rank->late_s, sum->elapsed_s));
	} else {
		cli_print(stdout, "no rank is late again and again\n");
	}
}

static void print_ranks(const struct explain_sum *sum, const struct explain_group *group)
{
	bool *shown = calloc(group->ranks, sizeof(*shown));
	uint32_t worst = group->ranks;

	cli_print(stdout, "\nranks that came last, by %.1f ms or more, and how late they came:\n",
		ms_of(EXPLAIN_LATE_NS));
	cli_print(stdout, "%6s  %-20s  %9s  %11s  %11s  %9s\n", "RANK", "HOST", "LAST", "MEDIAN",
		"MOST", "IN ALL");
	for (uint32_t i = 0; i < group->ranks && i < RANKS_SHOWN && shown; i++) {
		uint32_t r = find_next(sum, group->ranks, shown);
		const struct explain_rank *rank = &sum->ranks[r];
		const struct trace_header *header = &group->traces[r].header;

		worst = i == 0 ? r : worst;
		shown[r] = true;
		cli_print(stdout, "%6u  %-20s  %7.1f %%  %8.1f ms  %8.1f ms  %7.2f s\n", r,
			header->ranks > 0 ? header->hostname : "(no trace)",
			percent((double)rank->last_n, (double)sum->ops_n),
			ms_of(rank->late_median_ns), ms_of(rank->late_most_ns), rank->late_s);
	}
	if (worst < group->ranks) {
		print_verdict(sum, group, worst);
	}
	free(shown);
}

/* ---- links ---- */

static void print_host(const struct explain_group *group, uint32_t host)
{
	for (uint32_t r = 0; r < group->ranks; r++) {
		const struct trace_header *header = &group->traces[r].header;

		if (header->ranks > 0 && header->host == host) {
			cli_print(stdout, "%-20s", header->hostname);
			return;
		}
	}
	cli_print(stdout, "server %-13u", host - group->hosts);
}

static void print_links(const struct explain_sum *sum, const struct explain_group *group)
{
	if (sum->links_n == 0) {
		return;
	}
	cli_print(stdout,
		"\nrates between hosts, each while it was that host's turn to receive; "
		"slowest first:\n");
	for (size_t i = 0; i < sum->links_n && i < LINKS_SHOWN; i++) {
		const struct explain_link *link = &sum->links[i];

		cli_print(stdout, "  ");
		print_host(group, link->from);
		cli_print(stdout, " to ");
		print_host(group, link->to);
		cli_print(stdout, "%10.1f MB/s%s\n", link->bytes / link->s / 1e6,
			explain_link_slow(sum, i)
				? "  slow: the median link is twice as fast, or more"
				: "");
	}
}

/* ---- pipelines ---- */

static void print_slow_stage(const struct explain_stages *stages, const struct explain_group *group)
{
	struct explain_verdict verdict = explain_stages_judge(stages);
	const struct trace_header *header = &group->traces[verdict.stage].header;

	if (verdict.kind == EXPLAIN_EVEN) {
		cli_print(stdout,
			"no stage is slow: what they wait is the pipeline's bubble, which more "
			"microbatches make smaller, and transfers\n");
		return;
	}
	cli_print(stdout, "stage %u (%s, process %u) is the slow one: ", verdict.stage,
		header->hostname, header->pid);
	cli_print(stdout,
		verdict.kind == EXPLAIN_DELAYED
			? "beside its plan, it takes %.0f %% more than the others: its host is "
			  "slower, or does something else\n"
			: "it has %.0f %% more to do than the others, which wait for it; finer "
			  "units, or another number of stages, can be cut more evenly\n",
		100 * verdict.more);
}

static void print_stages(const struct explain_stages *stages, const struct explain_group *group)
{
	cli_print(stdout,
		"group %016llx: a pipeline of %u stages on %u host%s; %zu steps, median "
		"%.1f ms\n",
		(unsigned long long)group->id, group->ranks, group->hosts,
		group->hosts == 1 ? "" : "s", stages->steps, (double)stages->length_ns / 1e6);
	cli_print(stdout, "%6s  %-20s  %11s  %9s  %12s\n", "STAGE", "HOST", "BUSY", "OF A STEP",
		"BY ITS PLAN");
	for (uint32_t s = 0; s < stages->n; s++) {
		const struct explain_stage *stage = &stages->at[s];
		char planned[32] = "not known";

		if (stage->steps == 0) {
			cli_print(stdout, "%6u  (no steps)\n", s);
			continue;
		}
		if (stage->planned_ns > 0) {
			snprintf(planned, sizeof(planned), "%.1f ms",
				(double)stage->planned_ns / 1e6);
		}
		cli_print(stdout, "%6u  %-20s  %8.1f ms  %7.1f %%  %12s\n", s,
			group->traces[s].header.hostname, (double)stage->busy_ns / 1e6,
			100 * (double)stage->busy_ns / (double)stage->length_ns, planned);
	}
	print_slow_stage(stages, group);
}

/* ---- a group ---- */

/* Returns what writing n records costs on this machine, in ns. */
static double clock_records(uint64_t n)
{
	uint8_t bytes[TRACE_RECORD_BYTES];
	struct trace_record record = {0};
	int64_t from_ns = clock_mono_ns();

	for (uint64_t i = 0; i < CLOCKED; i++) {
		record.number = i;
		trace_record_encode(bytes, &record, i);
		__asm__ volatile("" : : "r"(bytes) : "memory");
	}
	return (double)(clock_mono_ns() - from_ns) / CLOCKED * (double)n;
}

static void print_summary(const struct explain_sum *sum, const struct explain_group *group)
{
	uint64_t written = 0;
	uint64_t gone = 0;

	for (uint32_t r = 0; r < group->ranks; r++) {
		const struct trace *trace = &group->traces[r];

		written = trace->written > written ? trace->written : written;
		gone = trace->written - trace->n > gone ? trace->written - trace->n : gone;
	}
	cli_print(stdout,
		"group %016" PRIx64 ": %u ranks on %u host%s; %zu collectives in %.2f s\n",
		group->id, group->ranks, group->hosts, group->hosts == 1 ? "" : "s", sum->ops_n,
		sum->elapsed_s);
	cli_print(stdout,
		"a rank's threads waited for operations %.2f s; recording took about %.2f ms\n",
		sum->blocked_s / group->traced_ranks, clock_records(written) / 1e6);
	if (group->traced_ranks < group->ranks) {
		cli_print(stdout, "%u of %u ranks left no trace: their part is not known\n",
			group->ranks - group->traced_ranks, group->ranks);
	}
	if (gone > 0) {
		cli_print(stdout,
			"%" PRIu64 " older records of a rank are gone: a trace keeps %u\n", gone,
			TRACE_CAP);
	}
	if (group->skew_ns > 0) {
		cli_print(stdout,
			"clocks of hosts differed by %.1f ms or more, and were corrected by the "
			"order of events\n",
			ms_of(group->skew_ns));
	}
}

static void print_group(const struct explain_sum *sum, const struct explain_stages *stages,
	const struct explain_group *group)
{
	if (stages->steps > 0) {
		print_stages(stages, group);
		return;
	}
	print_summary(sum, group);
	if (sum->ops_n == 0) {
		cli_print(stdout, "no collective is in all traces\n");
		return;
	}
	print_phases(sum, group);
	print_steps(sum);
	print_ranks(sum, group);
	print_links(sum, group);
}

/* ---- all groups ---- */

/* A group in the files, and how long threads waited for it. */
struct row {
	size_t first;     /* index of its first file */
	double blocked_s; /* seconds that threads waited, in all; infinite: a pipeline */
	bool shown;       /* printed already */
};

struct explain {
	struct explain_files files;
	struct row *rows;  /* owned; one for each group */
	size_t rows_n;     /* number of entries in rows */
	int64_t begin_ns;  /* time of the first record in any group; CLOCK_REALTIME */
	const char *only;  /* --group; NULL: none */
	const char *trace; /* --trace; NULL: none */
};

/* Loads a group, and corrects the clocks. */
static int load(const struct explain *explain, size_t first, struct explain_group *group, size_t *n,
	struct pawl_err *err)
{
	int rv = explain_group_load(group, &explain->files, first, n, err);

	if (rv == 0) {
		explain_align(group);
	}
	return rv;
}

static int list_groups(struct explain *explain, struct pawl_err *err)
{
	size_t n = 0;
	int rv = 0;

	explain->begin_ns = INT64_MAX;
	explain->rows = calloc(explain->files.n, sizeof(*explain->rows));
	if (!explain->rows) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu traces", explain->files.n);
	}
	for (size_t first = 0; first < explain->files.n && rv == 0; first += n) {
		struct explain_stages stages = {0};
		struct explain_group group;
		struct explain_sum sum;
		char id[32];

		rv = load(explain, first, &group, &n, err);
		if (rv != 0) {
			break;
		}
		snprintf(id, sizeof(id), "%016" PRIx64, group.id);
		rv = explain_sum_init(&sum, &group, err);
		rv = rv ? rv : explain_stages_init(&stages, &group, err);
		if (rv == 0 && (!explain->only || strcmp(id, explain->only) == 0)) {
			int64_t begin_ns = explain_group_begin(&group);

			explain->rows[explain->rows_n++] = (struct row){first,
				stages.steps > 0 ? INFINITY : sum.blocked_s, false};
			explain->begin_ns =
				begin_ns < explain->begin_ns ? begin_ns : explain->begin_ns;
		}
		explain_stages_deinit(&stages);
		explain_sum_deinit(&sum);
		explain_group_deinit(&group);
	}
	if (rv == 0 && explain->rows_n == 0) {
		rv = pawl_err_set(err, PAWL_ENOENT, "no group %s", explain->only);
	}
	return rv;
}

static int print_all(struct explain *explain, struct pawl_err *err)
{
	int rv = 0;

	for (size_t i = 0; i < explain->rows_n && i < GROUPS_SHOWN && rv == 0; i++) {
		struct row *most = NULL;
		struct explain_stages stages = {0};
		struct explain_group group;
		struct explain_sum sum;
		size_t n;

		for (size_t k = 0; k < explain->rows_n; k++) {
			struct row *row = &explain->rows[k];

			most = !row->shown && (!most || row->blocked_s > most->blocked_s) ? row
											  : most;
		}
		ASSERT(most != NULL); /* fewer groups have been shown than there are */
		most->shown = true;
		rv = load(explain, most->first, &group, &n, err);
		if (rv != 0) {
			break;
		}
		rv = explain_sum_init(&sum, &group, err);
		rv = rv ? rv : explain_stages_init(&stages, &group, err);
		if (rv == 0) {
			if (i > 0) {
				cli_print(stdout, "\n");
			}
			print_group(&sum, &stages, &group);
		}
		explain_stages_deinit(&stages);
		explain_sum_deinit(&sum);
		explain_group_deinit(&group);
	}
	if (rv == 0 && explain->rows_n > GROUPS_SHOWN) {
		cli_print(stdout,
			"\n%zu more groups, for which threads waited less: --group shows one\n",
			explain->rows_n - GROUPS_SHOWN);
	}
	return rv;
}

static int write_trace(const struct explain *explain, struct pawl_err *err)
{
	struct explain_json json = {.to = fopen(explain->trace, "we"),
		.begin_ns = explain->begin_ns};
	int rv = 0;

	if (!json.to) {
		return pawl_err_sys(err, "%s", explain->trace);
	}
	explain_json_begin(&json);
	for (size_t i = 0; i < explain->rows_n && rv == 0; i++) {
		struct explain_group group;
		size_t n;

		rv = load(explain, explain->rows[i].first, &group, &n, err);
		if (rv == 0) {
			explain_json_group(&json, &group);
			explain_group_deinit(&group);
		}
	}
	if (!explain_json_end(&json) && rv == 0) {
		rv = pawl_err_sys(err, "write %s", explain->trace);
	}
	fclose(json.to);
	return rv;
}

static int explain_folder(struct explain *explain, const char *path, struct pawl_err *err)
{
	int rv = explain_files_open(&explain->files, path, err);

	if (rv != 0) {
		return rv;
	}
	if (explain->files.bad_n > 0) {
		cli_print(stderr, "pawl explain: ignored %zu file%s: %s\n", explain->files.bad_n,
			explain->files.bad_n == 1 ? "" : "s", explain->files.bad);
	}
	rv = list_groups(explain, err);
	if (rv == 0) {
		rv = print_all(explain, err);
	}
	if (rv == 0 && explain->trace) {
		rv = write_trace(explain, err);
	}
	free(explain->rows);
	explain_files_close(&explain->files);
	return rv;
}

int explain_print(const char *path, struct pawl_err *err)
{
	struct explain explain = {.files = {.folder = -1}};

	return explain_folder(&explain, path, err);
}

static int main_explain(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct explain explain = {.files = {.folder = -1}};
	const char *path = NULL;
	struct pawl_err err;
	int what;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_ARG && path) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		if (what < 0 && what != CLI_ARG) {
			return cli_read_exit_code(what);
		}
		if (what == CLI_ARG) {
			path = reader.value;
		} else if (what == TRACE) {
			explain.trace = reader.value;
		} else {
			explain.only = reader.value;
		}
	}
	if (!path) {
		return cli_usage(command, "DIR is needed: the directory that PAWL_TRACE named");
	}
	if (explain_folder(&explain, path, &err) != 0) {
		return cli_fail(command, &err);
	}
	return CLI_OK;
}

const struct cli_command cli_explain = {
	.name = "explain",
	.args = "DIR",
	.summary = "Explain slow steps: the late rank, the phase, the link, the slow stage",
	.details =
		"DIR holds the traces of a job that runs or ran with PAWL_TRACE=DIR: the last\n"
		"operations of all ranks. Copy the traces of several hosts into one directory.\n",
	.options = options,
	.main = main_explain,
};
