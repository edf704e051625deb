/* Checks the numbers that a caller gives for a model and a pipeline: see cost.h. Pure. */
#include "base/err.h"
#include "pipe/cost.h"
#include "pipe/plan.h"

#include <stddef.h>

#define SPEED_MOST 1e6          /* a speed, and its inverse, at most */
#define STATE_MOST (1ull << 53) /* bytes of all parameters with their state */

/* A condition, and the name of what it is about. */
struct test {
	const char *what;
	bool holds;
};

/* Returns the name of the first test that fails, or NULL. */
static const char *find_failed(const struct test *tests, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!tests[i].holds) {
			return tests[i].what;
		}
	}
	return NULL;
}

/* Returns whether x is a number from least to most. */
static bool is_within(double x, double least, double most)
{
	return x >= least && x <= most; /* false for NaN */
}

static int check_times(const struct pawl_pipe_unit *unit, struct pawl_err *err)
{
	const struct test tests[] = {
		{"forward", is_within(unit->forward_s, 0, PAWL_PIPE_SECONDS_MAX)},
		{"backward", is_within(unit->backward_s, 0, PAWL_PIPE_SECONDS_MAX)},
	};
	const char *what = find_failed(tests, 2);

	if (what) {
		return pawl_err_set(err, PAWL_EINVAL, "unit %s: its %s time is not from 0 to %g s",
			unit->name, what, PAWL_PIPE_SECONDS_MAX);
	}
	if (!is_within(unit->weight_s, 0, unit->backward_s)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"unit %s: the time for gradients of parameters is not from 0 to its whole "
			"backward time",
			unit->name);
	}
	return 0;
}

static int check_sizes(const struct pawl_pipe_unit *unit, struct pawl_err *err)
{
	const struct test tests[] = {
		{"parameters", unit->param_bytes <= PAWL_PIPE_BYTES_MAX},
		{"activations", unit->saved_bytes <= PAWL_PIPE_BYTES_MAX},
		{"inputs", unit->cut_bytes <= PAWL_PIPE_BYTES_MAX},
	};
	const char *what = find_failed(tests, 3);

	if (what) {
		return pawl_err_set(err, PAWL_ELIMIT, "unit %s: its %s have more than %llu bytes",
			unit->name, what, PAWL_PIPE_BYTES_MAX);
	}
	if (unit->tied_bytes > unit->param_bytes) {
		return pawl_err_set(err, PAWL_EINVAL,
			"unit %s: it shares more bytes of parameters than it has", unit->name);
	}
	return 0;
}

static int check_unit(const struct pawl_pipe_unit *unit, uint32_t i, uint32_t stages,
	struct pawl_err *err)
{
	int rv;

	if (!unit->name || unit->name[0] == '\0') {
		return pawl_err_set(err, PAWL_EINVAL, "unit %u has no name", i);
	}
	rv = check_times(unit, err);
	rv = rv ? rv : check_sizes(unit, err);
	if (rv != 0) {
		return rv;
	}
	if (unit->tied > PAWL_PIPE_TIED_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"unit %s: there are more than %u sets of tied units", unit->name,
			PAWL_PIPE_TIED_MAX);
	}
	if (unit->stage != PAWL_PIPE_ANY_STAGE && unit->stage >= stages) {
		return pawl_err_set(err, PAWL_EINVAL,
			"unit %s is wanted on stage %u, but the last stage is %u", unit->name,
			unit->stage, stages - 1);
	}
	return 0;
}

/* Checks that units of one tied set share the same number of bytes. */
static int check_tied(const struct pawl_pipe_unit *units, uint32_t units_n, struct pawl_err *err)
{
	const struct pawl_pipe_unit *first[PAWL_PIPE_TIED_MAX + 1] = {0};
	uint32_t holders = 0;

	for (uint32_t u = 0; u < units_n; u++) {
		const struct pawl_pipe_unit **seen = &first[units[u].tied];

		if (units[u].tied == 0) {
			continue;
		}
		*seen = *seen ? *seen : &units[u];
		if ((*seen)->tied_bytes != units[u].tied_bytes) {
			return pawl_err_set(err, PAWL_EINVAL,
				"units %s and %s are tied, but share %llu and %llu bytes",
				(*seen)->name, units[u].name,
				(unsigned long long)(*seen)->tied_bytes,
				(unsigned long long)units[u].tied_bytes);
		}
		if (++holders > PAWL_PIPE_HOLDERS_MAX) {
			return pawl_err_set(err, PAWL_ELIMIT, "more than %u units are tied",
				PAWL_PIPE_HOLDERS_MAX);
		}
	}
	return 0;
}

static int check_totals(const struct pawl_pipe_unit *units, uint32_t units_n, double state_factor,
	struct pawl_err *err)
{
	double time_s = 0;
	double params = 0;
	double saved = 0;

	for (uint32_t u = 0; u < units_n; u++) {
		time_s += units[u].forward_s + units[u].backward_s;
		params += (double)units[u].param_bytes;
		saved += (double)units[u].saved_bytes;
	}
	if (time_s <= 0) {
		return pawl_err_set(err, PAWL_EINVAL, "no unit takes any time");
	}
	if (params * state_factor > STATE_MOST || saved > PAWL_PIPE_BYTES_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"the %s of all units have more than %llu bytes",
			saved > PAWL_PIPE_BYTES_MAX ? "activations" : "parameters and their state",
			saved > PAWL_PIPE_BYTES_MAX ? PAWL_PIPE_BYTES_MAX : STATE_MOST);
	}
	return 0;
}

static int check_stages(const struct pawl_pipe_setting *setting, struct pawl_err *err)
{
	for (uint32_t s = 0; s < setting->stages; s++) {
		double speed = setting->speeds ? setting->speeds[s] : 1;

		if (!is_within(speed, 1 / SPEED_MOST, SPEED_MOST)) {
			return pawl_err_set(err, PAWL_EINVAL,
				"stage %u: its speed %g is not from %g to %g", s, speed,
				1 / SPEED_MOST, SPEED_MOST);
		}
		if (setting->caps_bytes && setting->caps_bytes[s] == 0) {
			return pawl_err_set(err, PAWL_EINVAL, "stage %u has no memory", s);
		}
		if (setting->memory_weight > 0 && setting->speeds &&
			setting->speeds[s] != setting->speeds[0]) {
			return pawl_err_set(err, PAWL_EINVAL,
				"memory_weight %g: stages %u and 0 have different speeds, but "
				"this objective knows none",
				setting->memory_weight, s);
		}
	}
	return 0;
}

/* Checks the fields of a setting that are choices or factors. */
static int check_wishes(const struct pawl_pipe_setting *setting, struct pawl_err *err)
{
	const struct pawl_pipe_link *link = &setting->link;
	const struct test tests[] = {
		{"schedule", (unsigned)setting->schedule < PAWL_PIPE_SCHEDULES},
		{"tied", (unsigned)setting->tied < PAWL_PIPE_TIED_MODES},
		{"each", setting->each != 1 && setting->each <= PAWL_PIPE_EACH_MAX},
		{"inflight", setting->inflight <= PAWL_PIPE_MICROBATCHES_MAX},
		{"memory_weight", is_within(setting->memory_weight, 0, 1)},
		{"state_factor", is_within(setting->state_factor, 1, PAWL_PIPE_STATE_MAX)},
		{"link.bytes_per_s", pipe_is_rate(link->bytes_per_s)},
		{"link.latency_s", is_within(link->latency_s, 0, PAWL_PIPE_SECONDS_MAX)},
	};
	const char *what = find_failed(tests, sizeof(tests) / sizeof(*tests));

	return what ? pawl_err_set(err, PAWL_EINVAL, "%s is out of range", what) : 0;
}

static int check_counts(uint32_t units_n, const struct pawl_pipe_setting *setting,
	struct pawl_err *err)
{
	if (setting->stages < 1 || setting->stages > PAWL_PIPE_STAGES_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "%u stages: 1 to %u are possible",
			setting->stages, PAWL_PIPE_STAGES_MAX);
	}
	if (setting->microbatches < 1 || setting->microbatches > PAWL_PIPE_MICROBATCHES_MAX) {
		return pawl_err_set(err, PAWL_EINVAL, "%u microbatches: 1 to %u are possible",
			setting->microbatches, PAWL_PIPE_MICROBATCHES_MAX);
	}
	if (units_n < 1 || units_n > PAWL_PIPE_UNITS_MAX) {
		return pawl_err_set(err, units_n < 1 ? PAWL_EINVAL : PAWL_ELIMIT,
			"%u units: 1 to %u are possible", units_n, PAWL_PIPE_UNITS_MAX);
	}
	return 0;
}

int pipe_check(const struct pawl_pipe_unit *units, uint32_t units_n,
	const struct pawl_pipe_setting *setting, struct pawl_err *err)
{
	int rv = check_counts(units_n, setting, err);

	rv = rv ? rv : check_wishes(setting, err);
	rv = rv ? rv : check_stages(setting, err);
	for (uint32_t u = 0; u < units_n && rv == 0; u++) {
		rv = check_unit(&units[u], u, setting->stages, err);
	}
	rv = rv ? rv : check_tied(units, units_n, err);
	return rv ? rv : check_totals(units, units_n, setting->state_factor, err);
}
