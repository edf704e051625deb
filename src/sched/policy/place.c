/*
 * Placement: see place.h. Pure.
 *
 * Nodes of one type are in lists by their room, so that the node with the least sufficient room is
 * found without a search of all. Types are placed one after another. An attempt places all jobs of
 * one type; attempts differ in how many jobs stay.
 */
#include "sched/policy/place.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

#define NONE       UINT32_MAX
#define ROUNDS_MAX 4 /* rounds of making jobs smaller, before the last attempt */

/* A job that is to be placed. */
struct candidate {
	uint32_t job;
	uint32_t replicas;
	bool stays; /* the job takes as many replicas as it has, where it has them */
};

struct place {
	const struct sched_view *view;
	const struct sched_problem *problem;
	const uint32_t *base;       /* room of each node when no job is placed */
	uint32_t *chosen;           /* the caller's */
	struct sched_grant *grants; /* the caller's */
	uint32_t type;              /* type that is being placed */
	uint32_t largest;           /* room of the largest node of the type */
	/* Arrays by node; all owned. */
	uint32_t *room;
	bool *kept_spread;     /* a kept job is on this node and others */
	uint32_t *prior;       /* replicas on the node now, of jobs that are to be placed anew */
	bool *spread;          /* a job on several nodes is on this one */
	uint32_t *next, *prev; /* neighbours in the node's list; NONE: none */
	uint32_t *heads; /* first nodes of lists, by 2 * room, plus 1 if no job is on the node */
	/* Jobs of the type; owned. */
	struct candidate *candidates; /* in falling order of size; on ties, jobs that stay first */
	uint32_t candidates_n;
	uint32_t stays_n; /* number of candidates that stay */
};

/* ---- nodes by room ---- */

static uint32_t list_of(const struct place *place, uint32_t node)
{
	return 2 * place->room[node] + (place->room[node] == place->base[node]);
}

static void link_node(struct place *place, uint32_t node)
{
	uint32_t *head = &place->heads[list_of(place, node)];

	ASSERT(place->room[node] <= place->base[node] && place->base[node] <= place->largest);
	place->next[node] = *head;
	place->prev[node] = NONE;
	if (*head != NONE) {
		place->prev[*head] = node;
	}
	*head = node;
}

static void unlink_node(struct place *place, uint32_t node)
{
	uint32_t next = place->next[node];
	uint32_t prev = place->prev[node];

	if (next != NONE) {
		place->prev[next] = prev;
	}
	*(prev != NONE ? &place->next[prev] : &place->heads[list_of(place, node)]) = next;
}

/* Takes all jobs off the nodes of the type. */
static void clear(struct place *place)
{
	for (uint32_t i = 0; i < 2 * (place->largest + 1); i++) {
		place->heads[i] = NONE;
	}
	for (uint32_t node = place->view->nodes_n; node-- > 0;) {
		if (place->view->nodes[node].type == place->type) {
			place->room[node] = place->base[node];
			place->prior[node] = 0;
			place->spread[node] = place->kept_spread[node];
			link_node(place, node);
		}
	}
}

/* Flags of a search for a node: which nodes it leaves out. */
enum {
	FIND_PRIOR = 1,    /* nodes without room for the wanted slots and all prior replicas */
	FIND_UNSPREAD = 2, /* nodes with a job that is on several nodes */
};

/* Finds the node of a list where a job may be, with the fewest prior replicas; the first among
 * equals. flags: FIND_PRIOR, FIND_UNSPREAD. */
static uint32_t find_in(const struct place *place, uint32_t list, uint32_t wanted, unsigned flags)
{
	uint32_t best = NONE;

	for (uint32_t node = place->heads[list]; node != NONE; node = place->next[node]) {
		bool may = !((flags & FIND_UNSPREAD) && place->spread[node]) &&
			(!(flags & FIND_PRIOR) || place->room[node] >= wanted + place->prior[node]);

		if (may && (best == NONE || place->prior[node] < place->prior[best])) {
			best = node;
		}
		if (best != NONE && place->prior[best] == 0) {
			break;
		}
	}
	return best;
}

/* Finds the node with the least sufficient room; NONE: there is none. flags: as in
 * find_in. */
static uint32_t find_least(const struct place *place, uint32_t wanted, unsigned flags)
{
	for (uint32_t list = 2 * wanted; list < 2 * (place->largest + 1); list++) {
		uint32_t node = find_in(place, list, wanted, flags);

		if (node != NONE) {
			return node;
		}
	}
	return NONE;
}

/* Finds the node with the least sufficient room, if possible one with room for all prior replicas,
 * too; NONE: there is none. spread: the job is on several nodes, and avoids nodes of other such
 * jobs. */
static uint32_t find_fit(const struct place *place, uint32_t wanted, bool spread)
{
	unsigned flags = spread ? FIND_UNSPREAD : 0;
	uint32_t node = find_least(place, wanted, flags | FIND_PRIOR);

	return node != NONE ? node : find_least(place, wanted, flags);
}

/* Finds the largest node without a job, of at most so many slots, for a job on several nodes; NONE:
 * there is none. */
static uint32_t find_whole(const struct place *place, uint32_t most)
{
	for (uint32_t room = most < place->largest ? most : place->largest; room > 0; room--) {
		uint32_t node = find_in(place, 2 * room + 1, room, FIND_UNSPREAD);

		if (node != NONE) {
			return node;
		}
	}
	return NONE;
}

/* ---- one job ---- */

static void take(struct place *place, struct sched_grant *grant, uint32_t node, uint32_t replicas)
{
	ASSERT(place->room[node] >= replicas);
	unlink_node(place, node);
	place->room[node] -= replicas;
	link_node(place, node);
	for (uint32_t i = 0; i < replicas; i++) {
		grant->nodes[grant->replicas++] = node;
	}
}

/* Takes a job off its nodes. The job must not have marked them as spread. */
static void leave(struct place *place, struct sched_grant *grant)
{
	for (uint32_t i = 0; i < grant->replicas; i++) {
		uint32_t node = grant->nodes[i];

		ASSERT(place->room[node] < place->base[node]); /* the replica was taken from it */
		unlink_node(place, node);
		place->room[node]++;
		link_node(place, node);
	}
	grant->replicas = 0;
}

static void mark_spread(struct place *place, const struct sched_grant *grant)
{
	for (uint32_t i = 0; i < grant->replicas; i++) {
		place->spread[grant->nodes[i]] = true;
	}
}

static bool is_spread(const struct sched_job *job)
{
	for (uint32_t i = 1; i < job->replicas; i++) {
		if (job->nodes[i] != job->nodes[0]) {
			return true;
		}
	}
	return false;
}

/* Whether the job is on as few nodes as can hold it. */
static bool is_packed(const struct place *place, const struct sched_job *job)
{
	uint32_t nodes = 1;

	for (uint32_t i = 1; i < job->replicas; i++) {
		nodes += job->nodes[i] != job->nodes[i - 1];
	}
	return (uint64_t)(nodes - 1) * place->largest < job->replicas;
}

/* Places the job where it is now. Returns false if that is not possible. */
static bool stay(struct place *place, uint32_t job)
{
	const struct sched_job *now = &place->view->jobs[job];
	struct sched_grant *grant = &place->grants[job];
	bool spread = is_spread(now);

	for (uint32_t i = 0; i < now->replicas; i++) {
		uint32_t node = now->nodes[i];

		if (place->room[node] == 0 || (spread && place->spread[node])) {
			leave(place, grant);
			return false;
		}
		take(place, grant, node, 1);
	}
	if (spread) {
		mark_spread(place, grant);
	}
	return true;
}

/* Places the job anywhere. Returns false if there is no room. */
static bool place_anywhere(struct place *place, uint32_t job, uint32_t replicas)
{
	struct sched_grant *grant = &place->grants[job];
	bool spread = replicas > place->largest;
	uint32_t rest = replicas;

	ASSERT(grant->replicas == 0);
	while (rest > 0) {
		uint32_t node = spread ? find_whole(place, rest) : NONE;
		bool whole = node != NONE && place->room[node] == place->largest;
		uint32_t fit = whole ? NONE : find_fit(place, rest, spread);

		node = fit != NONE ? fit : node;
		if (node == NONE) {
			leave(place, grant);
			return false;
		}
		rest -= place->room[node] < rest ? place->room[node] : rest;
		take(place, grant, node, replicas - rest - grant->replicas);
	}
	if (spread) {
		mark_spread(place, grant);
	}
	ASSERT(grant->replicas == replicas);
	return true;
}

/* ---- all of one type ---- */

static void count_prior(struct place *place, uint32_t job, int more)
{
	const struct sched_job *now = &place->view->jobs[job];

	for (uint32_t i = 0; i < now->replicas; i++) {
		place->prior[now->nodes[i]] += (uint32_t)more;
	}
}

/* Takes a job's next smaller choice of this type, or lets the job wait. Returns its replicas. */
static uint32_t shrink(struct place *place, uint32_t job)
{
	const struct sched_choice *choices = place->problem->choices;
	uint32_t *at = &place->chosen[job];

	ASSERT(*at > place->problem->first[job]); /* a job that waits needs no place */
	*at = choices[*at - 1].type == place->type ? *at - 1 : place->problem->first[job];
	return choices[*at].replicas;
}

/*
 * Places all jobs of the type. All jobs that can stay do, except the last leave_n. Those are placed
 * with the others, but where they are now if they still fit there and are packed. Returns false if
 * a job found no place; or, with smaller, if one took less.
 */
static bool attempt(struct place *place, uint32_t leave_n, bool smaller)
{
	uint32_t stay_n = place->stays_n - leave_n;
	uint32_t seen = 0;
	bool all = true;

	ASSERT(leave_n <= place->stays_n);
	clear(place);
	for (uint32_t i = 0; i < place->candidates_n; i++) {
		const struct candidate *candidate = &place->candidates[i];

		place->grants[candidate->job].replicas = 0;
		if (candidate->stays && (seen++ >= stay_n || !stay(place, candidate->job))) {
			count_prior(place, candidate->job, 1);
		}
	}
	for (uint32_t i = 0; i < place->candidates_n; i++) {
		struct candidate *candidate = &place->candidates[i];
		bool placed = place->grants[candidate->job].replicas > 0;

		if (!placed && candidate->stays) {
			count_prior(place, candidate->job, -1);
			placed = is_packed(place, &place->view->jobs[candidate->job]) &&
				stay(place, candidate->job);
		}
		placed = placed || place_anywhere(place, candidate->job, candidate->replicas);
		if (!placed && !smaller) {
			return false;
		}
		for (; !placed; all = false) {
			candidate->replicas = shrink(place, candidate->job);
			placed = place_anywhere(place, candidate->job, candidate->replicas);
		}
	}
	return all;
}

/* Finds the fewest jobs that must leave so that all find a place. Returns false if some find none
 * even if all leave. */
static bool try_stays(struct place *place)
{
	uint32_t low = 0; /* known to be too few */
	uint32_t high = 1;

	if (attempt(place, 0, false)) {
		return true;
	}
	for (; high < place->stays_n && !attempt(place, high, false); high *= 2) {
		low = high;
	}
	if (high >= place->stays_n) {
		high = place->stays_n;
		if (!attempt(place, high, false)) {
			return false;
		}
	}
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		*(attempt(place, middle, false) ? &high : &low) = middle;
	}
	return attempt(place, high, false);
}

static int compare(const void *a, const void *b)
{
	const struct candidate *x = a;
	const struct candidate *y = b;

	if (x->replicas != y->replicas) {
		return x->replicas < y->replicas ? 1 : -1;
	}
	if (x->stays != y->stays) {
		return x->stays ? -1 : 1;
	}
	return (x->job > y->job) - (x->job < y->job);
}

static bool may_stay(const struct place *place, uint32_t job, uint32_t replicas)
{
	const struct sched_job *now = &place->view->jobs[job];

	for (uint32_t i = 0; i < now->replicas; i++) {
		if (place->view->nodes[now->nodes[i]].type != place->type) {
			return false;
		}
	}
	return now->replicas == replicas;
}

static void list_candidates(struct place *place, const bool *kept)
{
	place->candidates_n = 0;
	place->stays_n = 0;
	for (uint32_t job = 0; job < place->view->jobs_n; job++) {
		const struct sched_choice *choice = &place->problem->choices[place->chosen[job]];

		if (!kept[job] && choice->replicas > 0 && choice->type == place->type) {
			bool stays = may_stay(place, job, choice->replicas);

			place->candidates[place->candidates_n++] =
				(struct candidate){job, choice->replicas, stays};
			place->stays_n += stays;
		}
	}
	qsort(place->candidates, place->candidates_n, sizeof(*place->candidates), compare);
}

static void place_type(struct place *place, const bool *kept)
{
	list_candidates(place, kept);
	for (int round = 0; round < ROUNDS_MAX; round++) {
		if (try_stays(place)) {
			return;
		}
		attempt(place, place->stays_n, true);
		list_candidates(place, kept);
	}
	attempt(place, place->stays_n, true);
}

/* ---- entry ---- */

void sched_place_keep(const struct sched_view *view, bool *kept, uint32_t *room)
{
	for (uint32_t node = 0; node < view->nodes_n; node++) {
		ASSERT(view->nodes[node].type < SCHED_TYPES_MAX);
		room[node] = view->nodes[node].slots;
	}
	for (uint32_t j = 0; j < view->jobs_n; j++) {
		const struct sched_job *job = &view->jobs[j];
		uint32_t n = 0;

		while (job->pinned && n < job->replicas && room[job->nodes[n]] > 0) {
			room[job->nodes[n++]]--;
		}
		kept[j] = n > 0 && n == job->replicas;
		while (!kept[j] && n > 0) {
			room[job->nodes[--n]]++;
		}
	}
}

void sched_place_sum(const struct sched_view *view, const uint32_t *room, uint32_t *all,
	uint32_t *largest)
{
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		all[t] = 0;
		largest[t] = 0;
	}
	for (uint32_t node = 0; node < view->nodes_n; node++) {
		uint32_t t = view->nodes[node].type;

		ASSERT(t < SCHED_TYPES_MAX && room[node] <= view->nodes[node].slots);
		all[t] += room[node];
		largest[t] = room[node] > largest[t] ? room[node] : largest[t];
	}
}

static void grant_kept(struct place *place, const bool *kept)
{
	for (uint32_t j = 0; j < place->view->jobs_n; j++) {
		const struct sched_job *job = &place->view->jobs[j];
		struct sched_grant *grant = &place->grants[j];

		grant->replicas = kept[j] ? job->replicas : 0;
		for (uint32_t i = 0; i < grant->replicas; i++) {
			grant->nodes[i] = job->nodes[i];
			place->kept_spread[job->nodes[i]] |= is_spread(job);
		}
	}
}

/* Checks that each job has as many replicas as was chosen, or as it keeps. */
static void check_grants(const struct place *place, const bool *kept)
{
	for (uint32_t j = 0; j < place->view->jobs_n; j++) {
		uint32_t wanted = kept[j] ? place->view->jobs[j].replicas
					  : place->problem->choices[place->chosen[j]].replicas;

		ASSERT(place->grants[j].replicas == wanted);
	}
}

static bool allocate(struct place *place, uint32_t largest)
{
	size_t nodes = place->view->nodes_n + 1ull;

	place->room = FAULT_MEM("sched.place", calloc(nodes, sizeof(uint32_t)));
	place->prior = FAULT_MEM("sched.place", calloc(nodes, sizeof(uint32_t)));
	place->kept_spread = FAULT_MEM("sched.place", calloc(nodes, sizeof(bool)));
	place->spread = FAULT_MEM("sched.place", calloc(nodes, sizeof(bool)));
	place->next = FAULT_MEM("sched.place", calloc(nodes, sizeof(uint32_t)));
	place->prev = FAULT_MEM("sched.place", calloc(nodes, sizeof(uint32_t)));
	place->heads = FAULT_MEM("sched.place", calloc(largest + 1ull, 2 * sizeof(uint32_t)));
	place->candidates = FAULT_MEM("sched.place",
		calloc(place->view->jobs_n + 1ull, sizeof(*place->candidates)));
	return place->room && place->prior && place->kept_spread && place->spread && place->next &&
		place->prev && place->heads && place->candidates;
}

int sched_place(const struct sched_view *view, const bool *kept, const uint32_t *room,
	const struct sched_problem *problem, uint32_t *chosen, struct sched_grant *grants,
	struct pawl_err *err)
{
	struct place place = {.view = view,
		.problem = problem,
		.base = room,
		.chosen = chosen,
		.grants = grants};
	uint32_t all[SCHED_TYPES_MAX];
	uint32_t largest[SCHED_TYPES_MAX];
	uint32_t most = 0;
	int rv = 0;

	sched_place_sum(view, room, all, largest);
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		most = largest[t] > most ? largest[t] : most;
	}
	if (!allocate(&place, most)) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to place %u jobs", view->jobs_n);
		goto out;
	}
	grant_kept(&place, kept);
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		place.type = t;
		place.largest = largest[t];
		if (all[t] > 0) {
			place_type(&place, kept);
		}
	}
	check_grants(&place, kept);
out:
	free(place.room);
	free(place.prior);
	free(place.kept_spread);
	free(place.spread);
	free(place.next);
	free(place.prev);
	free(place.heads);
	free(place.candidates);
	return rv;
}
