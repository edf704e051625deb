/* Hints from JSON: see hints.h. */
#include "daemon/hints.h"

#include "base/err.h"

#include <jansson.h>
#include <math.h>

/* Reads the number of that name; otherwise: its value if it is missing. False: it is no number. */
static bool get(const json_t *object, const char *name, double otherwise, double *into)
{
	const json_t *value = json_object_get(object, name);

	if (!value || json_is_null(value)) {
		*into = otherwise;
		return true;
	}
	*into = json_number_value(value);
	return json_is_number(value) && isfinite(*into);
}

static bool get_size(const json_t *value, uint32_t *into)
{
	double x = json_number_value(value);

	if (!json_is_number(value) || !(x >= 0 && x <= UINT32_MAX)) {
		return false;
	}
	*into = (uint32_t)x;
	return true;
}

/* Reads Pawl's own figures, or those that AdaptDL's jobs have. */
static bool get_perf(const json_t *all, struct pawl_perf *p)
{
	const json_t *from = json_object_get(all, "stepParams");

	from = json_is_object(from) ? from : json_object_get(all, "perfParams");
	return json_is_object(from) && get(from, "alpha_c", 0, &p->alpha_c) &&
		get(from, "beta_c", 0, &p->beta_c) && get(from, "alpha_r", 0, &p->alpha_r) &&
		get(from, "beta_r", 0, &p->beta_r) && get(from, "alpha_n", 0, &p->alpha_n) &&
		get(from, "beta_n", 0, &p->beta_n) && get(from, "delta_n", 0, &p->delta_n) &&
		get(from, "gamma", 1, &p->gamma);
}

static bool get_bounds(const json_t *all, struct pawl_batch_bounds *b)
{
	const json_t *local = json_object_get(all, "localBszBounds");
	const json_t *max = json_object_get(all, "maxBatchSize");
	const json_t *accumulate = json_object_get(all, "gradientAccumulation");

	*b = (struct pawl_batch_bounds){.accumulate = json_is_true(accumulate)};
	if (!get_size(json_object_get(all, "initBatchSize"), &b->init)) {
		return false;
	}
	b->max = b->init;
	b->atomic_min = 1;
	b->atomic_max = b->init;
	return (!max || json_is_null(max) || get_size(max, &b->max)) &&
		(!local || json_is_null(local) ||
			(get_size(json_array_get(local, 0), &b->atomic_min) &&
				get_size(json_array_get(local, 1), &b->atomic_max)));
}

int hints_decode(struct sched_hints *hints, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	struct sched_hints found = {.fitted = true};
	const char *wrong = NULL;
	const json_t *noise;
	const json_t *profiled;
	double remaining = -1;
	json_error_t why;
	json_t *all = json_loadb(bytes, len_bytes, JSON_REJECT_DUPLICATES, &why);

	if (!json_is_object(all)) {
		json_decref(all);
		return pawl_err_set(err, PAWL_EINVAL, "hints: %s",
			all ? "not an object" : why.text);
	}
	noise = json_object_get(all, "gradParams");
	profiled = json_object_get(all, "maxProfiledReplicas");
	if (!get_perf(all, &found.perf)) {
		wrong = "stepParams";
	} else if (!get_bounds(all, &found.bounds)) {
		wrong = "initBatchSize, maxBatchSize or localBszBounds";
	} else if (!get(noise, "norm", 0, &found.noise.sqr) ||
		!get(noise, "var", 1, &found.noise.var)) {
		wrong = "gradParams";
	} else if (profiled && !get_size(profiled, &found.replicas_profiled)) {
		wrong = "maxProfiledReplicas";
	} else if (!get(all, "progress", 0, &found.progress) ||
		!get(all, "remaining", -1, &remaining)) {
		wrong = "progress, or remaining";
	}
	json_decref(all);
	if (wrong) {
		return pawl_err_set(err, PAWL_EINVAL, "hints: %s is missing, or not a number",
			wrong);
	}
	found.progress_end = remaining >= 0 ? found.progress + remaining : 0;
	*hints = found;
	return 0;
}
