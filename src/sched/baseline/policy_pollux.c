/*
 * Pollux as published: the baseline to compare policies with (Qiao and others, OSDI 2021; what the
 * paper leaves open is as in the authors' simulator).
 *
 * In a round, jobs in order of attained service are the rows of a matrix, and nodes its columns.
 * NSGA-II searches allocations, starting from the front that it found in the round before. The
 * allocation of the best fitness is granted. Types of nodes, weights and what users asked for have
 * no effect. Pure.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "sched/baseline/policies.h"
#include "sched/baseline/pollux_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The last round's solutions. */
struct found {
	uint32_t n;         /* number of solutions; 0: there was no round */
	uint32_t jobs_n;    /* rows of each solution */
	uint32_t nodes_n;   /* nodes in a row */
	uint32_t row_bytes; /* bytes of a row */
	uint64_t *ids;      /* owned; ids of the rows' jobs */
	uint8_t *matrices;  /* owned */
};

struct pollux {
	struct rng rng;
	struct pollux_worth *worths; /* owned; worths of the last round's jobs, in order of ids */
	uint32_t worths_n;
	struct found found;
};

static void *open_pollux(uint64_t seed)
{
	struct pollux *p = FAULT_MEM("sched.pollux", calloc(1, sizeof(*p)));

	if (p) {
		p->rng.state = seed;
	}
	return p;
}

static void drop_worths(struct pollux_worth *worths, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		pollux_worth_deinit(&worths[i]);
	}
	free(worths);
}

static void close_pollux(void *self)
{
	struct pollux *p = self;

	if (p) {
		drop_worths(p->worths, p->worths_n);
		free(p->found.ids);
		free(p->found.matrices);
		free(p);
	}
}

/* ---- jobs ---- */

static int fail_no_memory(const struct sched_view *view, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u jobs on %u nodes", view->jobs_n,
		view->nodes_n);
}

/* Keeps the worths of this round's jobs, and drops those of others. */
static int keep_worths(struct pollux *p, const struct sched_view *view, struct pawl_err *err)
{
	uint32_t from = 0;
	struct pollux_worth *worths =
		FAULT_MEM("sched.pollux", calloc(view->jobs_n, sizeof(*worths)));

	if (!worths) {
		return fail_no_memory(view, err);
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		while (from < p->worths_n && p->worths[from].id < view->jobs[j].id) {
			from++;
		}
		if (from < p->worths_n && p->worths[from].id == view->jobs[j].id) {
			worths[j] = p->worths[from];
			p->worths[from].goodputs = NULL;
		}
		worths[j].id = view->jobs[j].id;
	}
	drop_worths(p->worths, p->worths_n);
	p->worths = worths;
	p->worths_n = view->jobs_n;
	return 0;
}

/* Returns the job's hints of any type, as Pollux knows one type of nodes. */
static const struct sched_hints *find_hints(const struct sched_job *job)
{
	const struct sched_hints *hints = NULL;

	for (uint32_t t = 0; t < SCHED_TYPES_MAX && !hints; t++) {
		hints = job->hints[t];
	}
	return hints;
}

/* Returns the most replicas of a job: at most twice what was measured, since the fit does not cover
 * more; and each replica needs a batch. */
static uint32_t bound_replicas(const struct sched_job *job, const struct sched_hints *hints)
{
	uint64_t most = 1;

	if (hints && hints->replicas_profiled > 0) {
		most = 2ull * hints->replicas_profiled;
	}
	if (hints && hints->bounds.atomic_min > 0 &&
		most > hints->bounds.max / hints->bounds.atomic_min) {
		most = hints->bounds.max / hints->bounds.atomic_min;
	}
	most = most > job->least ? most : job->least;
	return most < job->most ? (uint32_t)most : job->most;
}

/* Whether a pinned job's replicas can stay where they are; if so, takes them out of room. */
static bool stays(const struct sched_job *job, uint32_t *room)
{
	uint32_t fit = 0;

	if (!job->pinned || job->replicas == 0) {
		return false;
	}
	while (fit < job->replicas && room[job->nodes[fit]] > 0) {
		room[job->nodes[fit++]]--;
	}
	if (fit == job->replicas) {
		return true;
	}
	while (fit > 0) {
		room[job->nodes[--fit]]++;
	}
	return false;
}

static int compare_rows(const void *left, const void *right)
{
	const struct pollux_row *a = left;
	const struct pollux_row *b = right;

	if (a->pinned != b->pinned) {
		return a->pinned ? -1 : 1;
	}
	if (a->job->attained != b->job->attained) {
		return a->job->attained < b->job->attained ? -1 : 1;
	}
	return (a->job->id > b->job->id) - (a->job->id < b->job->id);
}

/* Returns Qiao's REALLOC_FACTOR. */
static double find_factor(const struct sched_job *job)
{
	double worked = job->age_s - job->restarts * job->restart_s;
	double whole = job->age_s + job->restart_s;

	return worked > 0 && whole > 0 ? worked / whole : 0;
}

/* Fills a job's row, except pinned, which must be set. slots: those of all nodes. */
static int fill_row(struct pollux_row *row, const struct sched_job *job, struct pollux_worth *worth,
	uint64_t slots, uint32_t jobs_n, struct pawl_err *err)
{
	const struct sched_hints *hints = find_hints(job);
	uint32_t most = bound_replicas(job, hints);
	uint32_t share = (uint32_t)((slots + jobs_n - 1) / jobs_n);
	double fair;
	int rv;

	most = most < slots ? most : (uint32_t)slots;
	rv = pollux_worth_set(worth, hints,
		row->pinned && most < job->replicas ? job->replicas : most, err);
	if (rv != 0) {
		return rv;
	}
	fair = pollux_worth_fair(worth, share);
	row->job = job;
	row->worth = worth;
	row->least = job->least;
	row->most = most;
	row->per_goodput = fair > 0 ? 1 / fair : 0;
	row->factor = find_factor(job);
	return 0;
}

/* ---- a round ---- */

static void end_round(struct pollux_round *round)
{
	free(round->rows);
	free(round->slots);
	free(round->base);
	free(round->filled);
}

/* Fills slots, and the scale of speedups: the share of the cluster that a replica has, times the
 * cluster's nodes. Returns the slots of all nodes. */
static uint64_t fill_slots(struct pollux_round *round, const struct sched_view *view)
{
	uint64_t slots = 0;
	uint32_t nodes = 0;

	for (uint32_t n = 0; n < view->nodes_n; n++) {
		uint32_t of = view->nodes[n].slots;

		round->slots[n] = (uint8_t)(of < POLLUX_SLOTS_MAX ? of : POLLUX_SLOTS_MAX);
		round->filled[n] = round->slots[n];
		slots += round->slots[n];
		nodes += of > 0;
	}
	round->scale = slots > 0 ? (double)nodes / (double)slots : 0;
	return slots;
}

static void fill_base(struct pollux_round *round)
{
	for (uint32_t r = 0; r < round->rows_n; r++) {
		const struct sched_job *job = round->rows[r].job;
		uint8_t *row = round->base + (size_t)r * round->row_bytes;

		for (uint32_t i = 0; i < job->replicas; i++) {
			row[job->nodes[i]] += row[job->nodes[i]] < POLLUX_SLOTS_MAX;
		}
	}
}

static int start_round(struct pollux *p, struct pollux_round *round, const struct sched_view *view,
	struct pawl_err *err)
{
	const uint32_t word = sizeof(uint64_t);
	uint64_t slots;
	int rv = 0;

	round->rows_n = view->jobs_n;
	round->nodes_n = view->nodes_n;
	round->row_bytes = (view->nodes_n + word - 1) / word * word;
	round->rows = FAULT_MEM("sched.pollux", calloc(view->jobs_n, sizeof(*round->rows)));
	round->slots = FAULT_MEM("sched.pollux", calloc(3, round->row_bytes));
	round->base = FAULT_MEM("sched.pollux", calloc(view->jobs_n, round->row_bytes));
	round->filled = FAULT_MEM("sched.pollux", calloc(view->nodes_n, sizeof(*round->filled)));
	if (!round->rows || !round->slots || !round->base || !round->filled) {
		return fail_no_memory(view, err);
	}
	round->room = round->slots + round->row_bytes;
	round->taken = round->room + round->row_bytes;
	slots = fill_slots(round, view);
	for (uint32_t j = 0; j < view->jobs_n && rv == 0; j++) {
		round->rows[j].pinned = stays(&view->jobs[j], round->filled);
		rv = fill_row(&round->rows[j], &view->jobs[j], &p->worths[j], slots, view->jobs_n,
			err);
	}
	if (rv == 0) {
		qsort(round->rows, round->rows_n, sizeof(*round->rows), compare_rows);
		fill_base(round);
	}
	return rv;
}

/* ---- solutions ---- */

/* Returns the matrices to begin with: the last solutions, for the present jobs and nodes; or the
 * present allocation. Owned by the caller. */
static uint8_t *initial_solutions(const struct pollux *p, const struct pollux_round *round,
	uint32_t *n)
{
	const struct found *found = &p->found;
	size_t bytes = (size_t)round->rows_n * round->row_bytes;
	uint32_t nodes_n = found->nodes_n < round->nodes_n ? found->nodes_n : round->nodes_n;
	uint8_t *given;

	ASSERT(found->n <= NSGA_POPULATION);
	*n = found->n > 0 ? found->n : 1;
	given = FAULT_MEM("sched.pollux", calloc(*n, bytes));
	if (given && found->n == 0) {
		memcpy(given, round->base, bytes);
	}
	for (uint32_t r = 0; r < round->rows_n && given; r++) {
		uint32_t from = 0;

		while (from < found->jobs_n && found->ids[from] != round->rows[r].job->id) {
			from++;
		}
		for (uint32_t i = 0; i < found->n && from < found->jobs_n; i++) {
			memcpy(given + i * bytes + (size_t)r * round->row_bytes,
				found->matrices +
					((size_t)i * found->jobs_n + from) * found->row_bytes,
				nodes_n);
		}
	}
	return given;
}

/* Stores the front for the next round. Takes ownership of the front's matrices, and of ids. */
static void save_front(struct pollux *p, const struct pollux_round *round,
	const struct nsga_front *front, uint64_t *ids)
{
	for (uint32_t r = 0; r < round->rows_n; r++) {
		ids[r] = round->rows[r].job->id;
	}
	free(p->found.ids);
	free(p->found.matrices);
	p->found = (struct found){.n = front->n,
		.jobs_n = round->rows_n,
		.nodes_n = round->nodes_n,
		.row_bytes = round->row_bytes,
		.ids = ids,
		.matrices = front->matrices};
}

/* Grants a row. A job that does not change also keeps the order of its replicas. */
static void grant_row(const struct pollux_round *round, const struct sched_job *job,
	const uint8_t *row, const uint8_t *base, struct sched_grant *grant)
{
	if (memcmp(row, base, round->row_bytes) == 0) {
		for (uint32_t i = 0; i < job->replicas; i++) {
			grant->nodes[i] = job->nodes[i];
		}
		grant->replicas = job->replicas;
		return;
	}
	for (uint32_t n = 0; n < round->nodes_n; n++) {
		for (uint32_t i = 0; i < row[n]; i++) {
			grant->nodes[grant->replicas++] = n;
		}
	}
}

static int solve(struct pollux *p, struct pollux_round *round, const struct sched_view *view,
	struct sched_grant *grants, struct sched_verdict *verdict, struct pawl_err *err)
{
	const struct nsga_problem problem = {.rows = round->rows_n,
		.row_bytes = round->row_bytes,
		.context = round,
		.mutate = pollux_mutate,
		.repair = pollux_repair,
		.evaluate = pollux_evaluate};
	struct nsga_front front;
	uint64_t *ids = FAULT_MEM("sched.pollux", calloc(round->rows_n, sizeof(*ids)));
	uint32_t given_n;
	uint8_t *given = initial_solutions(p, round, &given_n);
	int rv = ids && given ? nsga_run(&problem, &p->rng, given, given_n, &front, err)
			      : fail_no_memory(view, err);

	free(given);
	if (rv != 0) {
		free(ids);
		return rv;
	}
	save_front(p, round, &front, ids);
	verdict->cost = front.best_costs[0];
	for (uint32_t r = 0; r < round->rows_n; r++) {
		const struct sched_job *job = round->rows[r].job;
		size_t at = (size_t)r * round->row_bytes;

		grant_row(round, job,
			front.matrices + ((size_t)front.best * round->rows_n * round->row_bytes) +
				at,
			round->base + at, &grants[job - view->jobs]);
	}
	return 0;
}

static int decide_pollux(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	struct pollux *p = self;
	struct pollux_round round = {0};
	int rv;

	*verdict = (struct sched_verdict){.cost = NAN, .bound = NAN};
	if (view->jobs_n == 0 || view->nodes_n == 0) {
		return 0;
	}
	rv = keep_worths(p, view, err);
	rv = rv == 0 ? start_round(p, &round, view, err) : rv;
	rv = rv == 0 ? solve(p, &round, view, grants, verdict, err) : rv;
	end_round(&round);
	return rv;
}

const struct sched_policy sched_pollux = {
	.name = "pollux",
	.open = open_pollux,
	.close = close_pollux,
	.decide = decide_pollux,
};
