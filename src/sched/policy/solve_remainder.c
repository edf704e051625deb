/* The exact part of the solver: dynamic programming over the slots that are taken of each type.
 * Pure. */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "sched/policy/solve_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SCHED_CHOICES_MAX <= UINT16_MAX + 1u, "a choice of a job in 16 bits");

/*
 * The jobs that have more than one choice left. The slots that a job takes with any of its choices
 * are set aside. So few slots remain to be divided if the choices differ little.
 */
struct remainder {
	struct solve *solve;
	const uint32_t *chosen; /* choices so far; each job may keep its own */
	double reduced_max;     /* largest reduced cost of a choice that is searched */
	uint32_t jobs_n;
	uint64_t choices_n;
	uint64_t states;                  /* number of states: slots taken of each type */
	uint32_t slots[SCHED_TYPES_MAX];  /* slots to divide, of each type */
	uint64_t stride[SCHED_TYPES_MAX]; /* difference in a state's number for a slot of a type */
};

static bool is_in(const struct remainder *remainder, uint32_t job, uint32_t choice)
{
	return remainder->solve->reduced[choice] <= remainder->reduced_max ||
		remainder->chosen[job] == choice;
}

/* The choices that a job may take: how many there are, and the least slots of one type that each of
 * them takes. */
struct range {
	uint32_t n;
	uint32_t type;
	uint32_t least;
	uint32_t most[SCHED_TYPES_MAX]; /* most slots of each type that one choice takes */
};

static struct range find_range(const struct remainder *remainder, uint32_t job)
{
	const struct sched_problem *problem = remainder->solve->problem;
	struct range range = {.least = UINT32_MAX};

	for (uint32_t c = problem->first[job]; c < problem->first[job + 1]; c++) {
		const struct sched_choice *choice = &problem->choices[c];

		if (!is_in(remainder, job, c)) {
			continue;
		}
		if (range.n > 0 && choice->type != range.type) {
			range.least = 0;
		}
		range.n++;
		range.type = choice->type;
		range.least = choice->replicas < range.least ? choice->replicas : range.least;
		if (choice->replicas > range.most[choice->type]) {
			range.most[choice->type] = choice->replicas;
		}
	}
	ASSERT(range.n > 0); /* the job may keep its own */
	return range;
}

/* Counts jobs, choices and states. Returns false if there are too many. */
static bool measure(struct remainder *remainder)
{
	const struct sched_problem *problem = remainder->solve->problem;
	uint64_t set_aside[SCHED_TYPES_MAX] = {0};
	uint64_t wanted[SCHED_TYPES_MAX] = {0};

	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		struct range range = find_range(remainder, job);

		set_aside[range.type] += range.least;
		remainder->jobs_n += range.n > 1;
		remainder->choices_n += range.n > 1 ? range.n : 0;
		for (uint32_t t = 0; t < remainder->solve->types && range.n > 1; t++) {
			wanted[t] += range.most[t] - (t == range.type ? range.least : 0);
		}
	}
	remainder->states = 1;
	for (uint32_t t = 0; t < remainder->solve->types; t++) {
		uint64_t slots = problem->capacity[t] - set_aside[t];

		ASSERT(problem->capacity[t] >= set_aside[t]); /* chosen fits, and takes as much */
		remainder->slots[t] = (uint32_t)(wanted[t] < slots ? wanted[t] : slots);
		remainder->stride[t] = remainder->states;
		remainder->states *= remainder->slots[t] + 1ull;
		if (remainder->choices_n > 0 &&
			remainder->states > problem->steps_max / remainder->choices_n) {
			return false;
		}
	}
	return true;
}

/* Applies one choice of one job to all states: to[state] = min(to[state], from[state - slots] +
 * cost). */
static void relax(const struct remainder *remainder, uint32_t type, uint32_t slots, double cost,
	const double *from, double *to, uint16_t *taken, uint16_t name)
{
	uint64_t shift = slots * remainder->stride[type];
	uint64_t block = remainder->stride[type] * (remainder->slots[type] + 1ull);

	for (uint64_t begin = 0; begin < remainder->states && slots <= remainder->slots[type];
		begin += block) {
		for (uint64_t i = begin + shift; i < begin + block; i++) {
			double sum = from[i - shift] + cost;

			taken[i] = sum < to[i] ? name : taken[i];
			to[i] = sum < to[i] ? sum : to[i];
		}
	}
}

/* The tables of a search, owned. */
struct tables {
	double *from, *to; /* by state: least cost of the jobs so far */
	uint16_t *taken;   /* by job and state: the job's choice at that cost */
	uint32_t *jobs;    /* jobs that have several choices */
};

static void fill(const struct remainder *remainder, struct tables *tables)
{
	const struct sched_problem *problem = remainder->solve->problem;
	uint32_t row = 0;

	for (uint64_t i = 0; i < remainder->states; i++) {
		tables->from[i] = 0;
	}
	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		struct range range = find_range(remainder, job);
		uint16_t *taken = tables->taken + row * remainder->states;
		double *swap = tables->from;

		if (range.n < 2) {
			continue;
		}
		for (uint64_t i = 0; i < remainder->states; i++) {
			tables->to[i] = INFINITY;
		}
		for (uint32_t c = problem->first[job]; c < problem->first[job + 1]; c++) {
			const struct sched_choice *choice = &problem->choices[c];

			if (is_in(remainder, job, c)) {
				relax(remainder, choice->type, choice->replicas - range.least,
					choice->cost, tables->from, tables->to, taken,
					(uint16_t)(c - problem->first[job]));
			}
		}
		tables->from = tables->to;
		tables->to = swap;
		tables->jobs[row++] = job;
	}
	ASSERT(row == remainder->jobs_n); /* the rows that were allocated */
}

/* Finds the jobs' choices, from the last job's table to the first's. */
static void trace(const struct remainder *remainder, const struct tables *tables, uint32_t *chosen)
{
	const struct sched_problem *problem = remainder->solve->problem;
	uint64_t state = remainder->states - 1;

	for (uint32_t row = remainder->jobs_n; row-- > 0;) {
		uint32_t job = tables->jobs[row];
		struct range range = find_range(remainder, job);
		uint32_t c = problem->first[job] + tables->taken[row * remainder->states + state];

		ASSERT(c < problem->first[job + 1] && problem->choices[c].replicas >= range.least);
		chosen[job] = c;
		state -= (problem->choices[c].replicas - range.least) *
			remainder->stride[problem->choices[c].type];
		ASSERT(state < remainder->states);
	}
}

int solve_remainder(struct solve *solve, double within, struct sched_solution *solution,
	bool *searched, struct pawl_err *err)
{
	struct remainder remainder = {.solve = solve,
		.chosen = solution->chosen,
		.reduced_max = within};
	struct tables tables;
	uint32_t n = solve->problem->jobs_n;
	uint32_t *chosen;
	int rv = 0;

	*searched = measure(&remainder);
	if (!*searched) {
		return 0;
	}
	tables.from = FAULT_MEM("sched.solve", malloc(remainder.states * sizeof(double)));
	tables.to = FAULT_MEM("sched.solve", malloc(remainder.states * sizeof(double)));
	tables.taken = FAULT_MEM("sched.solve",
		calloc(remainder.jobs_n * remainder.states + 1, sizeof(*tables.taken)));
	tables.jobs =
		FAULT_MEM("sched.solve", malloc((remainder.jobs_n + 1ull) * sizeof(uint32_t)));
	chosen = FAULT_MEM("sched.solve", malloc((n + 1ull) * sizeof(*chosen)));
	if (!tables.from || !tables.to || !tables.taken || !tables.jobs || !chosen) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to search %u jobs",
			remainder.jobs_n);
		goto out;
	}
	memcpy(chosen, solution->chosen, n * sizeof(*chosen));
	fill(&remainder, &tables);
	trace(&remainder, &tables, chosen); /* before remainder.chosen changes */
	memcpy(solution->chosen, chosen, n * sizeof(*chosen));
out:
	free(tables.from);
	free(tables.to);
	free(tables.taken);
	free(tables.jobs);
	free(chosen);
	return rv;
}
