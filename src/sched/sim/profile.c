/* Reads profiles and workloads: see profile.h. */
#include "sched/sim/profile.h"

#include "base/assert.h"
#include "base/err.h"
#include "sched/sim/csv.h"
#include "sched/sim/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a grid is read without conversion");

#define ROWS_MAX 100000u /* rows of a workload, at most */

/* A row of placements.csv, before rows are sorted. */
struct placed {
	uint32_t code; /* code as written */
	struct app_row row;
};

/* ---- placements ---- */

static int read_code(const struct csv *csv, uint32_t *code, struct pawl_err *err)
{
	const char *digits = csv->fields[0];
	size_t len = strlen(digits);

	if (len < 1 || len > 4 || strspn(digits, "1234") != len) {
		return csv_fail(csv, err, "placement %.40s: it needs 1 to 4 digits from 1 to 4",
			digits);
	}
	*code = 0;
	for (size_t i = 0; i < len; i++) {
		*code = *code * APP_DIGITS + (uint32_t)(digits[i] - '0');
	}
	return 0;
}

static int read_placed(struct csv *csv, struct placed *placed, struct pawl_err *err)
{
	int rv = read_code(csv, &placed->code, err);

	rv = rv ? rv : csv_whole(csv, 1, 1, &placed->row.atomic, err);
	rv = rv ? rv : csv_double(csv, 2, 0, &placed->row.times.step_s, err);
	rv = rv ? rv : csv_double(csv, 3, 0, &placed->row.times.sync_s, err);
	if (rv == 0 && placed->row.times.sync_s >= placed->row.times.step_s) {
		rv = csv_fail(csv, err, "step_time is not longer than sync_time");
	}
	return rv;
}

static int by_code(const void *a, const void *b)
{
	const struct placed *x = a;
	const struct placed *y = b;

	if (x->code != y->code) {
		return x->code < y->code ? -1 : 1;
	}
	return (x->row.atomic > y->row.atomic) - (x->row.atomic < y->row.atomic);
}

/* Returns the code with the last digit moved to the front. */
static uint32_t rotate(uint32_t code)
{
	uint32_t high = 1;

	while (high * APP_DIGITS <= code) {
		high *= APP_DIGITS;
	}
	return code / APP_DIGITS + code % APP_DIGITS * high;
}

/* Indexes rows by code. A placement's rows also hold for all its rotations. */
static void index_rows(struct sched_app *app, const struct placed *placed, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		ASSERT(placed[i].code < APP_CODES); /* read_code allows no others */
		app->rows[i] = placed[i].row;
		if (app->rows_of[placed[i].code].n++ == 0) {
			app->rows_of[placed[i].code].first = i;
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t code = placed[i].code;

		for (int turn = 0; turn < 3; turn++) {
			uint32_t next = rotate(code);

			ASSERT(next < APP_CODES);
			if (app->rows_of[next].n == 0) {
				app->rows_of[next] = app->rows_of[code];
			}
			code = next;
		}
	}
}

static bool has_zero(uint32_t code)
{
	while (code >= APP_DIGITS && code % APP_DIGITS != 0) {
		code /= APP_DIGITS;
	}
	return code % APP_DIGITS == 0;
}

static int load_placements(struct sched_app *app, struct csv *csv, struct pawl_err *err)
{
	uint32_t room = csv_count(csv);
	struct placed *placed = calloc(room + 1, sizeof(*placed));
	uint32_t n = 0;
	int rv = 1;

	app->rows = calloc(room + 1, sizeof(*app->rows));
	if (placed == NULL || app->rows == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "read %s: out of memory", csv->path);
	}
	while (rv > 0 && n < room) {
		rv = csv_next(csv, err);
		if (rv > 0 && read_placed(csv, &placed[n++], err) != 0) {
			rv = PAWL_ECORRUPT;
		}
	}
	if (rv >= 0) {
		rv = 0;
		qsort(placed, n, sizeof(*placed), by_code);
		index_rows(app, placed, n);
	}
	for (uint32_t i = 1; i < n && rv == 0; i++) {
		if (by_code(&placed[i - 1], &placed[i]) == 0) {
			rv = csv_fail(csv, err, "a placement has a batch of %u twice",
				placed[i].row.atomic);
		}
	}
	for (uint32_t code = 1; code < APP_CODES && rv == 0; code++) {
		if (!has_zero(code) && app->rows_of[code].n == 0) {
			rv = csv_fail(csv, err,
				"not all placements of 1 to 4 on 1 to 4 nodes are there");
		}
	}
	free(placed);
	return rv;
}

/* ---- more nodes ---- */

static int load_grid(struct sched_app *app, const char *dir, struct pawl_err *err)
{
	size_t wide = app->bounds.atomic_max - app->bounds.atomic_min + 1;
	size_t places = 0;
	size_t len;
	char path[512];
	char *bytes;
	int rv;

	for (size_t nodes = APP_GRID_LOW; nodes <= APP_GRID_HIGH; nodes++) {
		places += 3 * nodes + 1;
	}
	snprintf(path, sizeof(path), "%s/grid/%s.f64", dir, app->name);
	rv = csv_read_file(path, &bytes, &len, err);
	if (rv != 0) {
		return rv;
	}
	app->grid = (struct sched_times *)(void *)bytes;
	if (len != places * wide * sizeof(*app->grid)) {
		return pawl_err_set(err, PAWL_ECORRUPT, "read %s: %zu bytes, not %zu", path, len,
			places * wide * sizeof(*app->grid));
	}
	for (size_t i = 0; i < places * wide; i++) {
		const struct sched_times *at = &app->grid[i];
		bool measured = isfinite(at->step_s);
		bool right = measured && at->sync_s >= 0 && at->step_s > at->sync_s;

		/* Where nothing was measured, the next smaller batch counts. */
		if (!right && (measured || i % wide == 0)) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"read %s: placement %zu: no valid times", path, i / wide);
		}
	}
	return 0;
}

/* ---- training ---- */

static int load_epochs(struct sched_app *app, struct app_size *size, struct csv *csv,
	struct pawl_err *err)
{
	double before = 0;

	for (uint32_t e = 0; e < app->epochs; e++) {
		double progress;
		int rv = csv_next(csv, err);

		if (rv == 0) {
			return csv_fail(csv, err, "%u epochs, not %u", e, app->epochs);
		}
		rv = rv < 0 ? rv : csv_double(csv, 0, 0, &progress, err);
		rv = rv < 0 ? rv : csv_double(csv, 1, 0, &size->iterations[e], err);
		rv = rv < 0 ? rv : csv_double(csv, 3, 0, &size->noise[e].sqr, err);
		rv = rv < 0 ? rv : csv_double(csv, 4, 0, &size->noise[e].var, err);
		if (rv < 0) {
			return rv;
		}
		if (size->noise[e].sqr + size->noise[e].var <= 0) {
			return csv_fail(csv, err, "grad_sqr and grad_var are both 0");
		}
		if (progress <= before ||
			size->iterations[e] <= (e > 0 ? size->iterations[e - 1] : 0)) {
			return csv_fail(csv, err,
				"progress or iteration is not beyond the epoch before");
		}
		before = progress;
		if (size == app->sizes || progress < app->progress[e + 1]) {
			app->progress[e + 1] = progress;
		}
	}
	return csv_next(csv, err) == 0 ? 0 : csv_fail(csv, err, "over %u epochs", app->epochs);
}

static int load_training(struct sched_app *app, const char *dir, struct pawl_err *err)
{
	int rv = sched_app_reserve(app)
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "read %s: out of memory", dir);

	for (uint32_t s = 0; s < app->sizes_n && rv == 0; s++) {
		struct csv csv;

		rv = csv_open(&csv, "progress,iteration,metric,grad_sqr,grad_var", err,
			"%s/traces/%s/validation-%u.csv", dir, app->name, app->sizes[s].total);
		rv = rv ? rv : load_epochs(app, &app->sizes[s], &csv, err);
		csv_close(&csv);
	}
	return rv;
}

/* ---- profiles ---- */

static int load_app(struct sched_app *app, const char *dir, struct pawl_err *err)
{
	struct csv csv;
	int rv = csv_open(&csv, "placement,local_bsz,step_time,sync_time", err,
		"%s/traces/%s/placements.csv", dir, app->name);

	rv = rv ? rv : load_placements(app, &csv, err);
	csv_close(&csv);
	rv = rv ? rv : load_training(app, dir, err);
	app->slots_most = APP_DIGITS - 1;
	if (app->replicas_most < APP_GRID_LOW) {
		app->nodes_most = APP_GRID_LOW - 1;
		return rv;
	}
	return rv ? rv : load_grid(app, dir, err);
}

int sched_profiles_load(struct sched_apps *apps, const char *dir, struct pawl_err *err)
{
	int rv = 0;

	apps->apps = calloc(MODELS_N, sizeof(*apps->apps));
	if (apps->apps == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "read %s: out of memory", dir);
	}
	for (uint32_t a = 0; a < MODELS_N && rv == 0; a++) {
		struct sched_app *app = &apps->apps[apps->n++];

		sched_model_begin(app, &sched_models[a]);
		rv = load_app(app, dir, err);
	}
	return rv;
}

/* ---- workloads ---- */

static int read_submission(struct sched_workload *workload, const struct sched_apps *apps,
	struct csv *csv, struct pawl_err *err)
{
	struct sched_submission *job = &workload->jobs[workload->n];
	int rv = csv_double(csv, 1, 0, &job->at_s, err);

	rv = rv ? rv : csv_whole(csv, 3, 1, &job->replicas, err);
	rv = rv ? rv : csv_whole(csv, 4, 1, &job->batch, err);
	if (rv != 0) {
		return rv;
	}
	if (workload->n > 0 && job->at_s < (job - 1)->at_s) {
		return csv_fail(csv, err,
			"submitted before the line above: sort the lines by time");
	}
	job->app = sched_apps_find(apps, csv->fields[2]);
	if (job->app == NULL) {
		return csv_fail(csv, err, "unknown application %.40s", csv->fields[2]);
	}
	if (job->batch < job->app->bounds.init || job->batch > job->app->bounds.max) {
		return csv_fail(csv, err, "batch size %u: %s allows %u to %u", job->batch,
			job->app->name, job->app->bounds.init, job->app->bounds.max);
	}
	if (strlen(csv->fields[0]) >= sizeof(job->name)) {
		return csv_fail(csv, err, "column 1: a name of over %zu bytes",
			sizeof(job->name) - 1);
	}
	snprintf(job->name, sizeof(job->name), "%s", csv->fields[0]);
	workload->n++;
	return 0;
}

int sched_workload_load(struct sched_workload *workload, const struct sched_apps *apps,
	const char *path, struct pawl_err *err)
{
	struct csv csv;
	int rv = csv_open(&csv, "name,time,application,num_replicas,batch_size", err, "%s", path);
	uint32_t room = rv == 0 ? csv_count(&csv) : 0;

	if (rv == 0 && room > ROWS_MAX) {
		rv = csv_fail(&csv, err, "over %u jobs", ROWS_MAX);
	}
	workload->jobs = calloc(room + 1, sizeof(*workload->jobs));
	if (rv == 0 && workload->jobs == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "read %s: out of memory", path);
	}
	rv = rv ? rv : 1;
	while (rv > 0) {
		rv = csv_next(&csv, err);
		if (rv > 0 && read_submission(workload, apps, &csv, err) != 0) {
			rv = PAWL_ECORRUPT;
		}
	}
	if (rv == 0 && workload->n == 0) {
		rv = csv_fail(&csv, err, "no jobs");
	}
	csv_close(&csv);
	return rv;
}
