/* Turns what jobs take at the best prices into a solution that fits, and then into a cheaper one.
 * Pure. */
#include "base/assert.h"
#include "sched/policy/solve_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PASSES_MAX 32 /* passes over all jobs, at most */

/* Counts the slots of each type that are left; below 0: too many are taken. */
static void count_room(const struct solve *solve, const uint32_t *chosen, int64_t *room)
{
	const struct sched_problem *problem = solve->problem;

	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		room[t] = problem->capacity[t];
	}
	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		const struct sched_choice *choice = &problem->choices[chosen[job]];

		room[choice->type] -= choice->replicas;
	}
}

/* Returns how many more slots of to's type a move from one choice to the other takes. */
static int64_t count_more(const struct sched_choice *from, const struct sched_choice *to)
{
	return (int64_t)to->replicas - (from->type == to->type ? from->replicas : 0);
}

static int compare(const void *a, const void *b)
{
	const struct solve_move *x = a;
	const struct solve_move *y = b;
	int order = (x->score > y->score) - (x->score < y->score);

	return order ? order : (x->job > y->job) - (x->job < y->job);
}

/*
 * Returns a move's score, less is better: the reduced cost that it adds, per slot that it frees of
 * a type of which too many are taken, or per slot that it takes where there is room. INFINITY: the
 * move is not allowed.
 */
static double score_move(const struct solve *solve, const int64_t *room, uint32_t from, uint32_t to)
{
	const struct sched_choice *a = &solve->problem->choices[from];
	const struct sched_choice *b = &solve->problem->choices[to];
	int64_t more = count_more(a, b);
	bool fits = b->replicas == 0 || more <= room[b->type];
	bool over = room[a->type] < 0 && a->replicas > 0;
	int64_t slots = over ? count_more(b, a) : more;

	if (over ? slots <= 0 || (a->type != b->type && !fits) : b->cost >= a->cost || !fits) {
		return INFINITY;
	}
	return (solve->reduced[to] - solve->reduced[from]) / (double)(slots > 1 ? slots : 1);
}

/* Lists the best move of each job, the best first. Returns how many there are. */
static uint32_t list_moves(const struct solve *solve, const uint32_t *chosen, const int64_t *room)
{
	const struct sched_problem *problem = solve->problem;
	uint32_t n = 0;

	for (uint32_t job = 0; job < problem->jobs_n; job++) {
		struct solve_move best = {.job = job, .score = INFINITY};

		for (uint32_t c = problem->first[job]; c < problem->first[job + 1]; c++) {
			double score = c == chosen[job] ? INFINITY
							: score_move(solve, room, chosen[job], c);

			best.choice = score < best.score ? c : best.choice;
			best.score = score < best.score ? score : best.score;
		}
		if (best.score < INFINITY) {
			solve->moves[n++] = best;
		}
	}
	qsort(solve->moves, n, sizeof(*solve->moves), compare);
	return n;
}

/* Makes those of the moves that are still allowed. Returns how many it made. */
static uint32_t make_moves(const struct solve *solve, uint32_t n, uint32_t *chosen, int64_t *room)
{
	const struct sched_choice *choices = solve->problem->choices;
	uint32_t made = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct solve_move *move = &solve->moves[i];
		uint32_t *at = &chosen[move->job];

		if (score_move(solve, room, *at, move->choice) < INFINITY) {
			room[choices[*at].type] += choices[*at].replicas;
			room[choices[move->choice].type] -= choices[move->choice].replicas;
			*at = move->choice;
			made++;
		}
	}
	return made;
}

/* Lets jobs wait, the last submitted first, if too many slots are still taken after all passes. */
static void make_wait(const struct solve *solve, uint32_t *chosen, int64_t *room)
{
	const struct sched_problem *problem = solve->problem;

	for (uint32_t job = problem->jobs_n; job-- > 0;) {
		const struct sched_choice *choice = &problem->choices[chosen[job]];

		if (room[choice->type] < 0) {
			room[choice->type] += choice->replicas;
			chosen[job] = problem->first[job];
		}
	}
}

void solve_repair(struct solve *solve, struct sched_solution *solution)
{
	const struct sched_problem *problem = solve->problem;
	int64_t room[SCHED_TYPES_MAX];
	uint32_t made = 1;

	memcpy(solution->chosen, solve->best.taken, problem->jobs_n * sizeof(uint32_t));
	count_room(solve, solution->chosen, room);
	for (int pass = 0; pass < PASSES_MAX && made > 0; pass++) {
		/* Only the better half: two moves of the others may do better than one. */
		made = make_moves(solve, (list_moves(solve, solution->chosen, room) + 1) / 2,
			solution->chosen, room);
	}
	make_wait(solve, solution->chosen, room);
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		ASSERT(room[t] >= 0);
	}
}
