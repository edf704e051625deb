/* The worth of replicas to jobs: see worth.h. Pure. */
#include "sched/policy/worth.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIZES_MAX  (sizeof(((struct sched_sizes *)NULL)->replicas) / sizeof(uint32_t))
#define SIZE_RATIO 1.25 /* ratio of the nodes of a large size to those of the one before */

/* Goodputs remembered for a job on a type of nodes. */
struct memo {
	bool known; /* the fields below are valid */
	struct pawl_perf perf;
	struct pawl_noise noise;
	struct pawl_batch_bounds bounds;
	double goodput[SIZES_MAX]; /* goodput of each size; NaN: not computed yet */
	uint32_t other_replicas;   /* newest number of replicas that is no size; 0: none */
	double other;              /* goodput of other_replicas */
	uint32_t fair_replicas;    /* replicas of the newest fair share; 0: none */
	double fair;               /* goodput of fair_replicas */
};

struct sched_worth {
	const struct sched_view *view; /* view of the round; the caller's */
	struct sched_sizes sizes[SCHED_TYPES_MAX];
	uint32_t types;     /* types with nodes are below this one */
	uint64_t *ids;      /* ids of the jobs; owned */
	struct memo *memos; /* types memos for each job; owned */
	uint32_t jobs_n;
};

/* ---- sizes ---- */

void sched_sizes_fill(struct sched_sizes *sizes, uint32_t slots, uint32_t all)
{
	uint32_t nodes = 1;

	ASSERT(slots <= all); /* the largest node is one of all */
	*sizes = (struct sched_sizes){.slots = slots, .all = all};
	for (uint32_t r = 1; r < slots; r *= 2) {
		sizes->replicas[sizes->n++] = r;
	}
	while (slots > 0 && (uint64_t)nodes * slots <= all && sizes->n < SIZES_MAX) {
		sizes->replicas[sizes->n++] = nodes * slots;
		nodes = nodes < SCHED_NODES_EVERY ? nodes + 1 : (uint32_t)(nodes * SIZE_RATIO);
	}
	ASSERT(sizes->n <= SIZES_MAX && (sizes->n > 0) == (all > 0));
}

/* ---- hints ---- */

/* Finds the newest hints of those with a fit, or of all. */
static const struct sched_hints *find_newest(const struct sched_hints *const *hints, bool fitted)
{
	const struct sched_hints *newest = NULL;

	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		if (hints[t] != NULL && (hints[t]->fitted || !fitted) &&
			(newest == NULL || hints[t]->progress > newest->progress)) {
			newest = hints[t];
		}
	}
	return newest;
}

const struct sched_hints *sched_hints_of(const struct sched_hints *const *hints, uint32_t type)
{
	const struct sched_hints *own;
	const struct sched_hints *other;

	ASSERT(type < SCHED_TYPES_MAX);
	own = hints[type];
	if (own != NULL && own->fitted) {
		return own;
	}
	other = find_newest(hints, true);
	other = other == NULL ? own : other;
	return other == NULL ? find_newest(hints, false) : other;
}

const struct sched_hints *sched_hints_newest(const struct sched_hints *const *hints)
{
	return find_newest(hints, false);
}

/* ---- memory ---- */

struct sched_worth *sched_worth_open(void)
{
	return FAULT_MEM("sched.worth", calloc(1, sizeof(struct sched_worth)));
}

static void forget(struct sched_worth *worth)
{
	free(worth->ids);
	free(worth->memos);
	worth->ids = NULL;
	worth->memos = NULL;
	worth->jobs_n = 0;
}

void sched_worth_close(struct sched_worth *worth)
{
	if (worth != NULL) {
		forget(worth);
		free(worth);
	}
}

static bool are_equal(const struct memo *memo, const struct sched_hints *hints)
{
	const struct pawl_perf *a = &memo->perf;
	const struct pawl_perf *b = &hints->perf;
	const struct pawl_batch_bounds *c = &memo->bounds;
	const struct pawl_batch_bounds *d = &hints->bounds;

	return a->alpha_c == b->alpha_c && a->beta_c == b->beta_c && a->alpha_r == b->alpha_r &&
		a->beta_r == b->beta_r && a->alpha_n == b->alpha_n && a->beta_n == b->beta_n &&
		a->delta_n == b->delta_n && a->gamma == b->gamma &&
		memo->noise.sqr == hints->noise.sqr && memo->noise.var == hints->noise.var &&
		c->init == d->init && c->max == d->max && c->atomic_min == d->atomic_min &&
		c->atomic_max == d->atomic_max && c->accumulate == d->accumulate;
}

/* Keeps a memo if the job's hints are unchanged; else clears it. */
static void renew(struct memo *memo, const struct sched_hints *hints)
{
	if (hints == NULL || !hints->fitted) {
		memo->known = false;
		return;
	}
	if (memo->known && are_equal(memo, hints)) {
		return;
	}
	*memo = (struct memo){.known = true,
		.perf = hints->perf,
		.noise = hints->noise,
		.bounds = hints->bounds};
	for (size_t i = 0; i < SIZES_MAX; i++) {
		memo->goodput[i] = NAN;
	}
}

bool sched_worth_is_of(const struct sched_worth *worth, const struct sched_sizes *sizes)
{
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		if (worth->sizes[t].slots != sizes[t].slots || worth->sizes[t].n != sizes[t].n) {
			return false;
		}
	}
	return true;
}

/* Copies the memos of jobs that are still there. Both lists are in ascending order of ids. */
static void carry_over(const struct sched_worth *worth, const struct sched_view *view,
	uint64_t *ids, struct memo *memos)
{
	uint32_t old = 0;

	for (uint32_t job = 0; job < view->jobs_n; job++) {
		ids[job] = view->jobs[job].id;
		while (old < worth->jobs_n && worth->ids[old] < ids[job]) {
			old++;
		}
		if (old < worth->jobs_n && worth->ids[old] == ids[job]) {
			memcpy(memos + (size_t)job * worth->types,
				worth->memos + (size_t)old * worth->types,
				worth->types * sizeof(*memos));
		}
	}
}

int sched_worth_begin(struct sched_worth *worth, const struct sched_view *view,
	const struct sched_sizes *sizes, struct pawl_err *err)
{
	uint64_t *ids;
	struct memo *memos;

	if (!sched_worth_is_of(worth, sizes)) {
		forget(worth);
	}
	memcpy(worth->sizes, sizes, sizeof(worth->sizes));
	worth->types = 1;
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		worth->types = sizes[t].all > 0 ? t + 1 : worth->types;
	}
	ids = FAULT_MEM("sched.worth", calloc(view->jobs_n + 1ull, sizeof(*ids)));
	memos = FAULT_MEM("sched.worth",
		calloc(((size_t)view->jobs_n + 1) * worth->types, sizeof(*memos)));
	if (!ids || !memos) {
		free(ids);
		free(memos);
		forget(worth);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the goodputs of %u jobs",
			view->jobs_n);
	}
	carry_over(worth, view, ids, memos);
	forget(worth);
	worth->view = view;
	worth->ids = ids;
	worth->memos = memos;
	worth->jobs_n = view->jobs_n;
	for (uint32_t job = 0; job < view->jobs_n; job++) {
		for (uint32_t t = 0; t < worth->types; t++) {
			renew(&memos[(size_t)job * worth->types + t],
				sched_hints_of(view->jobs[job].hints, t));
		}
	}
	return 0;
}

/* ---- goodput ---- */

static double find_best(const struct memo *memo, uint32_t nodes, uint32_t replicas, uint32_t slots)
{
	const struct pawl_placement place = {nodes, replicas, replicas < slots ? replicas : slots};
	struct pawl_batch batch;
	double goodput;

	return pawl_batch_choose(&memo->perf, &memo->noise, &memo->bounds, &place, &batch, &goodput)
		? goodput
		: 0;
}

double sched_worth_get(struct sched_worth *worth, uint32_t job, uint32_t type, uint32_t replicas)
{
	struct memo *memo = &worth->memos[(size_t)job * worth->types + type];
	const struct sched_sizes *sizes = &worth->sizes[type];
	uint32_t nodes = (replicas + sizes->slots - 1) / sizes->slots;
	uint32_t i = 0;

	ASSERT(job < worth->jobs_n && type < worth->types && replicas > 0);
	if (!memo->known) {
		return 0;
	}
	while (i < sizes->n && sizes->replicas[i] < replicas) {
		i++;
	}
	if (i == sizes->n || sizes->replicas[i] != replicas) {
		if (memo->other_replicas != replicas) {
			memo->other = find_best(memo, nodes, replicas, sizes->slots);
			memo->other_replicas = replicas;
		}
		return memo->other;
	}
	if (isnan(memo->goodput[i])) {
		memo->goodput[i] = find_best(memo, nodes, replicas, sizes->slots);
	}
	return memo->goodput[i];
}

double sched_worth_get_fair(struct sched_worth *worth, uint32_t job, uint32_t type,
	uint32_t replicas)
{
	struct memo *memo = &worth->memos[(size_t)job * worth->types + type];

	ASSERT(job < worth->jobs_n && type < worth->types && replicas > 0);
	if (memo->known && memo->fair_replicas != replicas) {
		memo->fair = find_best(memo, 1, replicas, replicas);
		memo->fair_replicas = replicas;
	}
	return memo->known ? memo->fair : 0;
}
