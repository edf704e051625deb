/* The application model: see app.h. Pure. */
#include "sched/baseline/app.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDING 1e-8 /* slack for a quotient that should be whole */

_Static_assert(APP_CODES == APP_DIGITS * APP_DIGITS * APP_DIGITS * APP_DIGITS, "four digits");
_Static_assert(APP_MEASURED == (APP_DIGITS - 1) * APP_GRID_HIGH, "the grid's largest placement");

/* ---- applications ---- */

static void deinit_app(struct sched_app *app)
{
	for (uint32_t s = 0; s < APP_SIZES_MAX; s++) {
		free(app->sizes[s].iterations);
		free(app->sizes[s].noise);
	}
	free(app->progress);
	free(app->rows);
	free(app->grid);
}

void sched_apps_deinit(struct sched_apps *apps)
{
	for (uint32_t a = 0; a < apps->n; a++) {
		deinit_app(&apps->apps[a]);
	}
	free(apps->apps);
	*apps = (struct sched_apps){0};
}

const struct sched_app *sched_apps_find(const struct sched_apps *apps, const char *name)
{
	for (uint32_t a = 0; a < apps->n; a++) {
		if (strcmp(apps->apps[a].name, name) == 0) {
			return &apps->apps[a];
		}
	}
	return NULL;
}

bool sched_app_reserve(struct sched_app *app)
{
	bool all;

	app->progress = calloc(app->epochs + 1, sizeof(*app->progress));
	all = app->progress != NULL;
	for (uint32_t s = 0; s < app->sizes_n; s++) {
		struct app_size *size = &app->sizes[s];

		size->iterations = calloc(app->epochs, sizeof(*size->iterations));
		size->noise = calloc(app->epochs, sizeof(*size->noise));
		all = all && size->iterations && size->noise;
	}
	return all;
}

/* ---- where replicas are ---- */

/* Adds a run of so many replicas on one node. */
static void add_run(struct sched_app_placement *placement, uint32_t replicas)
{
	bool fits = replicas < APP_DIGITS && placement->place.nodes < 4 &&
		(placement->code > 0 || placement->place.nodes == 0);

	ASSERT(replicas > 0);
	placement->code = fits ? placement->code * APP_DIGITS + replicas : 0;
	placement->place.nodes++;
	placement->place.replicas += replicas;
	placement->place.max_per_node =
		replicas > placement->place.max_per_node ? replicas : placement->place.max_per_node;
	ASSERT(placement->code < APP_CODES);
}

void sched_app_placement_fill(struct sched_app_placement *placement, const uint32_t *nodes,
	uint32_t n)
{
	uint32_t run = 0;

	*placement = (struct sched_app_placement){0};
	for (uint32_t i = 0; i < n; i++) {
		run++;
		if (i + 1 == n || nodes[i + 1] != nodes[i]) {
			add_run(placement, run);
			run = 0;
		}
	}
	ASSERT(placement->place.replicas == n && placement->place.nodes <= n);
}

void sched_app_placement_pack(struct sched_app_placement *placement, uint32_t replicas,
	uint32_t slots)
{
	ASSERT(slots > 0);
	*placement = (struct sched_app_placement){0};
	while (replicas > 0) {
		uint32_t here = replicas < slots ? replicas : slots;

		add_run(placement, here);
		replicas -= here;
	}
}

/* ---- time ---- */

static void blend(const struct sched_times *low, const struct sched_times *high, double share,
	struct sched_times *times)
{
	times->step_s = low->step_s + (high->step_s - low->step_s) * share;
	times->sync_s = low->sync_s + (high->sync_s - low->sync_s) * share;
}

static void scale(const struct sched_times *from, double ratio, struct sched_times *times)
{
	times->step_s = from->step_s * ratio;
	times->sync_s = from->sync_s * ratio;
}

/* Interpolates between the rows of a placement on up to 4 nodes. */
static bool look_rows(const struct sched_app *app, const struct app_row_range *of, uint32_t atomic,
	struct sched_times *times)
{
	const struct app_row *rows = app->rows + of->first;
	uint32_t low = 0;
	uint32_t high = of->n - 1;

	if (atomic < rows[low].atomic || atomic > rows[high].atomic) {
		const struct app_row *near = &rows[atomic < rows[low].atomic ? low : high];

		scale(&near->times, (double)atomic / near->atomic, times);
		return false;
	}
	while (high - low > 1) {
		uint32_t mid = (low + high) / 2;

		if (rows[mid].atomic <= atomic) {
			low = mid;
		} else {
			high = mid;
		}
	}
	blend(&rows[low].times, &rows[high].times,
		rows[high].atomic == rows[low].atomic ? 0
						      : (double)(atomic - rows[low].atomic) /
				(rows[high].atomic - rows[low].atomic),
		times);
	return true;
}

/* Looks up a placement on five nodes or more in the grid, without interpolation. */
static bool look_grid(const struct sched_app *app, const struct pawl_placement *place,
	uint32_t atomic, struct sched_times *times)
{
	uint32_t nodes = place->nodes < APP_GRID_HIGH ? place->nodes : APP_GRID_HIGH;
	/* The grid has 3 * n + 1 places for each number n of nodes, from APP_GRID_LOW on. */
	uint32_t row = 3 * (nodes - APP_GRID_LOW) * (nodes + APP_GRID_LOW - 1) / 2 + nodes -
		APP_GRID_LOW + place->replicas - nodes;
	uint32_t wide = app->bounds.atomic_max - app->bounds.atomic_min + 1;
	const struct sched_times *at = app->grid + (size_t)row * wide;
	uint32_t nearest = atomic - app->bounds.atomic_min;

	while (nearest > 0 && !isfinite(at[nearest].step_s)) {
		nearest--;
	}
	scale(&at[nearest], (double)atomic / (nearest + app->bounds.atomic_min), times);
	return nearest + app->bounds.atomic_min == atomic;
}

bool sched_app_times(const struct sched_app *app, const struct sched_app_placement *placement,
	uint32_t atomic, struct sched_times *times)
{
	if (app->perf.gamma > 0) {
		const struct pawl_batch batch = {.atomic = atomic};

		times->step_s = pawl_step_s(&app->perf, &placement->place, &batch);
		times->sync_s = times->step_s - app->perf.alpha_c - app->perf.beta_c * atomic;
		return true;
	}
	if (placement->place.nodes < APP_GRID_LOW) {
		ASSERT(app->rows_of[placement->code].n > 0);
		return look_rows(app, &app->rows_of[placement->code], atomic, times);
	}
	ASSERT(app->grid != NULL && placement->place.replicas <= APP_MEASURED);
	return look_grid(app, &placement->place, atomic, times);
}

double sched_step_s(const struct sched_times *times, uint32_t accum)
{
	return times->step_s + (times->step_s - times->sync_s) * accum;
}

/* ---- training ---- */

/* Finds the two sizes around total. Returns how far total is from low to high, from 0 to 1. */
static double find_sizes(const struct sched_app *app, double total, const struct app_size **low,
	const struct app_size **high)
{
	uint32_t s = 0;

	ASSERT(app->sizes_n > 0 && app->sizes_n <= APP_SIZES_MAX);
	while (s + 1 < app->sizes_n && app->sizes[s + 1].total <= total) {
		s++;
	}
	*low = &app->sizes[s];
	if (total <= (*low)->total || s + 1 == app->sizes_n) {
		*high = *low;
		return 0;
	}
	*high = &app->sizes[s + 1];
	return (total - (*low)->total) / ((*high)->total - (*low)->total);
}

void sched_app_noise(const struct sched_app *app, double total, uint32_t epoch,
	struct pawl_noise *noise)
{
	const struct app_size *low;
	const struct app_size *high;
	double share = find_sizes(app, total, &low, &high);
	const struct pawl_noise *a = &low->noise[epoch];
	const struct pawl_noise *b = &high->noise[epoch];

	ASSERT(epoch < app->epochs);
	noise->sqr = a->sqr + (b->sqr - a->sqr) * share;
	noise->var = a->var + (b->var - a->var) * share;
}

double sched_app_iterations(const struct sched_app *app, double total, uint32_t epoch)
{
	const struct app_size *low;
	const struct app_size *high;
	double share = find_sizes(app, total, &low, &high);

	ASSERT(epoch < app->epochs);
	return low->iterations[epoch] + (high->iterations[epoch] - low->iterations[epoch]) * share;
}

/* ---- batches ---- */

static uint32_t round_up(double number)
{
	double up = ceil(number - ROUNDING);

	return up > 1 ? (uint32_t)up : 1;
}

void sched_app_split(const struct sched_app *app, uint32_t replicas, double total,
	struct pawl_batch *batch)
{
	const struct pawl_batch_bounds *bounds = &app->bounds;
	uint32_t each = round_up(total / replicas);
	uint32_t parts = round_up((double)each / bounds->atomic_max);
	uint32_t room;

	if (replicas == 1 && total > bounds->init && parts < 2) {
		parts = 2;
	}
	batch->accum = parts - 1;
	batch->atomic = round_up((double)each / parts);
	room = bounds->max / (replicas * parts);
	batch->atomic = batch->atomic < room ? batch->atomic : room;
}
