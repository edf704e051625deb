/*
 * Pawl's policy. Pure.
 *
 * A job's speedup is its goodput, compared with what it would have on its fair share of the
 * cluster. The policy maximizes the mean of the speedups with the exponent -1: Pollux's objective
 * (OSDI 2021, 4.2), which starves no job; sched_view.fairness can set another exponent. So each
 * size has a cost. The solver finds the least sum of costs exactly, or nearly and with a bound
 * (solve.h), where Pollux searches at random. In addition,
 *
 * - a job with little left to do counts more, since the average completion time is better if short
 *   jobs do not wait for long ones; but no job counts less than half, so that long ones do not
 *   wait;
 * - a change of size must pay off: restarts reduce a speedup by the part of the job's life that
 *   they took so far, as in Pollux, and by what this one will take of the next minutes, or of what
 *   is left to do;
 * - a job may have four times as many replicas as were measured, not twice: it needs fewer restarts
 *   until it has its best size;
 * - the policy does not wait for a job that has run for a while and reported nothing: it assumes
 *   that each replica adds goodput, but less each time, so that free slots are used.
 *
 * The constants below were chosen on Pollux's six published workloads at load 1, and are round.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "sched/policy/place.h"
#include "sched/policy/policy.h"
#include "sched/policy/solve.h"
#include "sched/policy/worth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPEEDUP_LEAST     1e-3 /* added to each speedup, so that waiting has a cost (Pollux) */
#define REMAINING_POWER   0.5  /* exponent of median / own remaining time: a job's weight */
#define REMAINING_LEAST_S 60.0 /* both times count as at least this, about a round */
#define WEIGHT_LEAST      0.5
#define WEIGHT_MOST       10.0
#define PAYBACK_S         600.0 /* seconds in which a change must pay off */
#define GROWTH            4u    /* replicas allowed, as a multiple of those that were measured */
#define SILENT_S          60.0  /* seconds of running after which a job should have reported */
#define SILENT_POWER      0.7   /* exponent of a silent job's replicas: its speedup */

#define WORTHS 2u /* a round may see the cluster with two numbers of types (core_round.c) */

_Static_assert(WORTHS == 2, "the other one is newest ^ 1");

struct pawl_policy {
	struct sched_worth *worths[WORTHS]; /* owned; each for another cluster */
	uint32_t newest;                    /* index of the newest in worths */
};

/* A round: its arrays, and values that hold for all jobs. */
struct round {
	const struct sched_view *view;
	struct sched_worth *worth;
	struct sched_sizes sizes[SCHED_TYPES_MAX];
	uint32_t slots;                     /* slots of all nodes */
	uint32_t slots_of[SCHED_TYPES_MAX]; /* slots by type of nodes */
	uint32_t fair;                      /* replicas of a fair share */
	double part;                        /* nodes that a replica takes: nodes over slots */
	double fairness;                    /* fairness of the view, or 1 */
	bool *kept;           /* by job: whether it keeps its replicas; owned, as are the others */
	uint32_t *room;       /* by node: slots that kept jobs leave */
	double *fair_goodput; /* by job: goodput on its fair share; 0: not known */
	double *remaining_s;  /* by job: seconds left on its fair share; NaN: not known */
	double *known_s;      /* entries of remaining_s that are known */
	struct sched_choice *choices;
	size_t choices_max; /* choices that there is room for */
	uint32_t *first;
	uint32_t *chosen;
};

/* ---- the goodput and weight of a job ---- */

static bool may_be_on(const struct round *round, uint32_t job, uint32_t type)
{
	uint32_t types = round->view->jobs[job].types;

	return round->sizes[type].all > 0 && (types == 0 || (types >> type & 1) != 0);
}

/* Returns the job's goodput on its fair share: the mean over the types that it may be on, weighted
 * by slots. Most clusters have one type. */
static double find_fair(const struct round *round, uint32_t job)
{
	uint32_t types = round->view->jobs[job].types;
	uint32_t most = round->view->jobs[job].most;
	uint32_t fair = round->fair < most ? round->fair : most;
	uint32_t slots = 0;
	double sum = 0;

	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		slots += types == 0 || (types >> t & 1) != 0 ? round->slots_of[t] : 0;
		if (may_be_on(round, job, t)) {
			sum += sched_worth_get_fair(round->worth, job, t, fair) *
				round->sizes[t].all;
		}
	}
	return slots > 0 ? sum / slots : 0;
}

/* Returns the seconds that are left at the fair share's goodput; NaN: not known. */
static double find_remaining(const struct round *round, uint32_t job)
{
	const struct sched_hints *hints = sched_hints_newest(round->view->jobs[job].hints);

	if (hints == NULL || !(hints->progress_end > 0) || !(round->fair_goodput[job] > 0)) {
		return NAN;
	}
	return (hints->progress_end - hints->progress) * hints->bounds.init /
		round->fair_goodput[job];
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the median; NaN of none. Sorts numbers. */
static double median(double *numbers, uint32_t n)
{
	qsort(numbers, n, sizeof(*numbers), compare);
	return n > 0 ? (numbers[(n - 1) / 2] + numbers[n / 2]) / 2 : NAN;
}

static void find_all_remaining(struct round *round, double *middle_s)
{
	uint32_t n = 0;

	for (uint32_t job = 0; job < round->view->jobs_n; job++) {
		round->fair_goodput[job] = find_fair(round, job);
		round->remaining_s[job] = find_remaining(round, job);
		if (!isnan(round->remaining_s[job])) {
			round->known_s[n++] = round->remaining_s[job];
		}
	}
	*middle_s = median(round->known_s, n);
}

static double find_weight(const struct round *round, uint32_t job, double middle_s)
{
	double remaining_s = round->remaining_s[job];
	double weight = 1;

	if (!isnan(remaining_s)) {
		remaining_s = fmax(remaining_s, REMAINING_LEAST_S);
		weight = pow(fmax(middle_s, REMAINING_LEAST_S) / remaining_s, REMAINING_POWER);
	}
	return fmin(fmax(weight, WEIGHT_LEAST), WEIGHT_MOST) * round->view->jobs[job].weight;
}

/* ---- choices ---- */

/* Whether the job has reported nothing on any type, in a time in which it should have. */
static bool is_silent(const struct sched_job *job)
{
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		if (job->hints[t] != NULL) {
			return false;
		}
	}
	return job->attained >= SILENT_S * job->least;
}

/* Returns the most replicas that the job may have of a type. A size far beyond those measured is
 * not trusted (Pollux, 4.1), unless none will ever be measured. */
static uint32_t find_most(const struct sched_job *job, const struct sched_hints *hints)
{
	uint64_t trusted = hints != NULL ? (uint64_t)GROWTH * hints->replicas_profiled
		: is_silent(job)         ? job->most
					 : 0;
	uint32_t most = job->most;

	trusted = trusted > 1 ? trusted : 1;
	most = trusted < most ? (uint32_t)trusted : most;
	return most > job->least ? most : job->least;
}

/*
 * Returns what a change leaves of a running job's speedup. It is the product of two parts: Pollux's
 * REALLOC_FACTOR, which falls as restarts take more of the job's life; and the part that remains of
 * the time in which this change must pay off. A job that waits must start in any case, and loses
 * nothing by it.
 */
static double find_factor(const struct round *round, uint32_t j, double speedup)
{
	const struct sched_job *job = &round->view->jobs[j];
	double worked_s = fmax(job->age_s - job->restarts * job->restart_s, 0);
	double left_s = round->remaining_s[j] / speedup;
	double payback_s =
		left_s < PAYBACK_S ? left_s : PAYBACK_S; /* also if left_s is not known */
	double whole_s = (job->age_s + job->restart_s) * (payback_s + job->restart_s);

	return whole_s > 0 ? worked_s * payback_s / whole_s : 1;
}

static bool has_now(const struct round *round, uint32_t job, uint32_t type, uint32_t replicas)
{
	const struct sched_job *now = &round->view->jobs[job];

	return now->replicas == replicas && round->view->nodes[now->nodes[0]].type == type &&
		round->view->nodes[now->nodes[0]].slots > 0;
}

/* Returns the cost of a speedup: the less speedup, the higher the cost. */
static double speedup_cost(const struct round *round, double speedup)
{
	double x = round->part * speedup + SPEEDUP_LEAST;

	return round->fairness == 1 ? 1 / x : pow(x, -round->fairness);
}

static double find_cost(const struct round *round, uint32_t job, uint32_t type, uint32_t replicas,
	double weight)
{
	double fair = round->fair_goodput[job];
	double speedup = (double)replicas / round->fair;

	if (fair > 0) {
		speedup = sched_worth_get(round->worth, job, type, replicas) / fair;
	} else if (is_silent(&round->view->jobs[job])) {
		speedup = pow(speedup, SILENT_POWER);
	}
	if (speedup > 0 && round->view->jobs[job].replicas > 0 &&
		!has_now(round, job, type, replicas)) {
		speedup *= find_factor(round, job, speedup);
	}
	return weight * speedup_cost(round, speedup);
}

/* Appends a job's choices of one type. Returns the new number of choices. */
static uint32_t list_type(struct round *round, uint32_t j, uint32_t type, double weight, uint32_t n)
{
	const struct sched_job *job = &round->view->jobs[j];
	const struct sched_sizes *sizes = &round->sizes[type];
	double waits = weight * speedup_cost(round, 0);
	uint32_t most = find_most(job, sched_hints_of(job->hints, type));

	most = most < sizes->all ? most : sizes->all;
	for (uint32_t i = 0, r = job->least; r <= most;) {
		double cost = find_cost(round, j, type, r, weight);

		if (cost < waits) {
			round->choices[n++] = (struct sched_choice){type, r, cost};
		}
		while (i < sizes->n && sizes->replicas[i] <= r) {
			i++;
		}
		if (r == most) {
			break;
		}
		r = i < sizes->n && sizes->replicas[i] < most ? sizes->replicas[i] : most;
	}
	return n;
}

static void list_choices(struct round *round, double middle_s)
{
	uint32_t n = 0;

	for (uint32_t job = 0; job < round->view->jobs_n; job++) {
		double weight = find_weight(round, job, middle_s);

		round->first[job] = n;
		round->choices[n++] = (struct sched_choice){0, 0, weight * speedup_cost(round, 0)};
		for (uint32_t t = 0; t < SCHED_TYPES_MAX && !round->kept[job]; t++) {
			if (may_be_on(round, job, t)) {
				n = list_type(round, job, t, weight, n);
			}
		}
		ASSERT(n <= round->choices_max && n - round->first[job] <= SCHED_CHOICES_MAX);
	}
	round->first[round->view->jobs_n] = n;
}

/* ---- a round ---- */

static void measure_cluster(struct round *round)
{
	uint32_t all[SCHED_TYPES_MAX];
	uint32_t largest[SCHED_TYPES_MAX];
	uint32_t nodes = 0;

	ASSERT(round->view->jobs_n > 0);
	sched_place_keep(round->view, round->kept, round->room);
	sched_place_sum(round->view, round->room, all, largest);
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		sched_sizes_fill(&round->sizes[t], largest[t], all[t]);
	}
	for (uint32_t node = 0; node < round->view->nodes_n; node++) {
		round->slots += round->view->nodes[node].slots;
		round->slots_of[round->view->nodes[node].type] += round->view->nodes[node].slots;
		nodes += round->view->nodes[node].slots > 0;
	}
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		ASSERT(all[t] <= round->slots_of[t]); /* kept jobs only take */
	}
	round->fair = (round->slots + round->view->jobs_n - 1) / round->view->jobs_n;
	round->part = (double)nodes / round->slots;
}

static bool allocate(struct round *round)
{
	size_t jobs = round->view->jobs_n + 1ull;

	round->kept = FAULT_MEM("sched.pawl", calloc(jobs, sizeof(bool)));
	round->room =
		FAULT_MEM("sched.pawl", calloc(round->view->nodes_n + 1ull, sizeof(uint32_t)));
	round->fair_goodput = FAULT_MEM("sched.pawl", calloc(jobs, sizeof(double)));
	round->remaining_s = FAULT_MEM("sched.pawl", calloc(jobs, sizeof(double)));
	round->known_s = FAULT_MEM("sched.pawl", calloc(jobs, sizeof(double)));
	round->first = FAULT_MEM("sched.pawl", calloc(jobs, sizeof(uint32_t)));
	round->chosen = FAULT_MEM("sched.pawl", calloc(jobs, sizeof(uint32_t)));
	return round->kept && round->room && round->fair_goodput && round->remaining_s &&
		round->known_s && round->first && round->chosen;
}

/* Allocates the choices, once the sizes of each type are known. */
static bool allocate_choices(struct round *round)
{
	size_t each = 1;

	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		each += round->sizes[t].n > 0 ? round->sizes[t].n + 2 : 0; /* for least and most */
	}
	round->choices_max = round->view->jobs_n * each;
	round->choices =
		FAULT_MEM("sched.pawl", calloc(round->choices_max, sizeof(*round->choices)));
	return round->choices != NULL;
}

static int solve(struct round *round, struct sched_grant *grants, struct sched_verdict *verdict,
	struct pawl_err *err)
{
	struct sched_problem problem = {.choices = round->choices,
		.first = round->first,
		.jobs_n = round->view->jobs_n,
		.steps_max = SCHED_STEPS_MAX};
	struct sched_solution solution = {.chosen = round->chosen};
	int rv;

	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		problem.capacity[t] = round->sizes[t].all;
	}
	rv = sched_solve(&problem, &solution, err);
	rv = rv == 0 ? sched_place(round->view, round->kept, round->room, &problem, round->chosen,
			       grants, err)
		     : rv;
	if (rv != 0) {
		return rv;
	}
	verdict->cost = 0;
	verdict->bound = solution.bound;
	for (uint32_t job = 0; job < problem.jobs_n; job++) {
		verdict->cost += problem.choices[round->chosen[job]].cost;
	}
	return 0;
}

static int decide(void *self, const struct sched_view *view, struct sched_grant *grants,
	struct sched_verdict *verdict, struct pawl_err *err)
{
	struct pawl_policy *policy = self;
	struct round round = {.view = view, .fairness = view->fairness > 0 ? view->fairness : 1};
	double middle_s;
	int rv = 0;

	*verdict = (struct sched_verdict){0};
	if (view->jobs_n == 0) {
		return 0;
	}
	if (!allocate(&round)) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to decide on %u jobs", view->jobs_n);
		goto out;
	}
	measure_cluster(&round);
	if (round.slots == 0) {
		goto out;
	}
	policy->newest ^= !sched_worth_is_of(policy->worths[policy->newest], round.sizes);
	round.worth = policy->worths[policy->newest];
	rv = sched_worth_begin(round.worth, view, round.sizes, err);
	if (rv == 0 && !allocate_choices(&round)) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for choices of %u jobs",
			view->jobs_n);
	}
	if (rv == 0) {
		find_all_remaining(&round, &middle_s);
		list_choices(&round, middle_s);
		rv = solve(&round, grants, verdict, err);
	}
out:
	free(round.kept);
	free(round.room);
	free(round.fair_goodput);
	free(round.remaining_s);
	free(round.known_s);
	free(round.first);
	free(round.chosen);
	free(round.choices);
	return rv;
}

static void close_policy(void *self)
{
	struct pawl_policy *policy = self;

	for (uint32_t i = 0; policy != NULL && i < WORTHS; i++) {
		sched_worth_close(policy->worths[i]);
	}
	free(policy);
}

static void *open_policy(uint64_t seed)
{
	struct pawl_policy *policy = FAULT_MEM("sched.pawl", calloc(1, sizeof(*policy)));

	for (uint32_t i = 0; policy != NULL && i < WORTHS; i++) {
		policy->worths[i] = sched_worth_open();
		if (policy->worths[i] == NULL) {
			close_policy(policy);
			return NULL;
		}
	}
	return policy;
}

const struct sched_policy sched_pawl = {.name = "pawl",
	.open = open_policy,
	.close = close_policy,
	.decide = decide,
	.chooses_sizes = true};
