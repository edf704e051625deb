/*
 * Fits the parameters of step times to measured profiles: see pawl/adapt.h. Pure, except that NLopt
 * allocates memory.
 *
 * The search is over the logarithms of all parameters but gamma: so all stay above 0, and search
 * steps match their magnitudes. It uses L-BFGS (Nocedal 1980; Luksan's implementation in NLopt)
 * with the exact gradient.
 */
#include "adapt/perf.h"
#include "base/assert.h"
#include "base/err.h"

#include <math.h>
#include <nlopt.h>
#include <string.h>

#define TIME_MIN       1e-8 /* s; cost of something that takes no time */
#define TIME_MAX       1e6  /* s; above any real parameter */
#define GAMMA_MAX      10
#define EVALS_MAX      500
#define LOSS_TOLERANCE 1e-7 /* relative change of the loss at which a search ends */
#define LOSS_GAIN_MIN  1e-3 /* relative change of the loss that is worth another search */
#define ERROR_FLOOR    1e-3 /* relative error that counts as none: the root has no slope at 0 */
#define PENALTY_G      1e-3 /* weight of the penalty (gamma - 1)^2 */
#define PENALTY_B      1e-2 /* weight of the penalty (beta / alpha)^2, for reductions */
#define NODES_RATIO                                                                                \
	1.1 /* least cost between nodes relative to one node, if only one node was measured */

struct fit {
	const struct pawl_profile *profiles; /* the caller's */
	uint32_t n;
	double best;                   /* least loss of all points tried */
	double best_value[PARAMETERS]; /* parameters at the point of the least loss */
};

/* Sums over profiles: of squared errors, and of errors times their derivatives. */
struct errors {
	double squares;
	double slopes[PARAMETERS];
};

static const double initial_guess[PARAMETERS] = {0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 0.01, 1.001};

/* Returns the search's coordinate of parameter i. */
static double to_search(const double *value, int i)
{
	return i == GAMMA ? fmin(fmax(value[i], 1), GAMMA_MAX)
			  : log(fmin(fmax(value[i], TIME_MIN), TIME_MAX));
}

/* ---- the loss ---- */

static void add_error(struct errors *errors, double error, const double *slopes)
{
	errors->squares += error * error;
	for (int i = 0; i < PARAMETERS; i++) {
		errors->slopes[i] += error * slopes[i];
	}
}

/* Adds both errors of a profile. value holds the parameters themselves; slopes are by their
 * logarithms. */
static void add_profile(const struct pawl_profile *profile, const double *value,
	struct errors *grads, struct errors *steps)
{
	double times[PARAMETERS];
	double slopes[PARAMETERS] = {0};
	double grad = value[ALPHA_C] + value[BETA_C] * profile->atomic;
	double reduce = TIME_MIN;
	double gamma = value[GAMMA];
	double ratio;
	double share; /* the gradient's part of grad^gamma + reduce^gamma */
	double log_sum;

	adapt_weigh_reduce(&profile->place, times);
	for (int i = ALPHA_R; i <= DELTA_N; i++) {
		reduce += times[i] * value[i];
	}
	slopes[ALPHA_C] = value[ALPHA_C] / grad;
	slopes[BETA_C] = value[BETA_C] * profile->atomic / grad;
	add_error(grads, log(grad / profile->grad_s), slopes);

	ratio = log(reduce / grad);
	share = 1 / (1 + exp(gamma * ratio));
	/* log(grad^gamma + reduce^gamma) - gamma log(grad) */
	log_sum =
		ratio > 0 ? gamma * ratio + log1p(exp(-gamma * ratio)) : log1p(exp(gamma * ratio));
	slopes[ALPHA_C] *= share;
	slopes[BETA_C] *= share;
	for (int i = ALPHA_R; i <= DELTA_N; i++) {
		slopes[i] = (1 - share) * times[i] * value[i] / reduce;
	}
	slopes[GAMMA] = ((1 - share) * ratio - log_sum / gamma) / gamma;
	add_error(steps, log(grad / profile->step_s) + log_sum / gamma, slopes);
}

/* Returns the penalty of beta / alpha, and adds its derivatives by both logarithms to slopes. */
static double penalize(const double *value, int alpha, int beta, double *slopes)
{
	double ratio = value[beta] / value[alpha];
	double penalty = PENALTY_B * ratio * ratio;

	slopes[beta] += 2 * penalty;
	slopes[alpha] -= 2 * penalty;
	return penalty;
}

static double loss(unsigned int n, const double *x, double *slopes, void *user)
{
	struct fit *fit = user;
	struct errors grads = {0};
	struct errors steps = {0};
	double value[PARAMETERS];
	double unused[PARAMETERS];
	double *to = slopes ? slopes : unused;
	double of_grads;
	double of_steps;
	double sum;

	ASSERT(n == PARAMETERS && fit->n > 0);
	for (int i = 0; i < PARAMETERS; i++) {
		value[i] = i == GAMMA ? x[i] : exp(x[i]);
	}
	for (uint32_t p = 0; p < fit->n; p++) {
		add_profile(&fit->profiles[p], value, &grads, &steps);
	}
	of_grads = sqrt(grads.squares / fit->n + ERROR_FLOOR * ERROR_FLOOR);
	of_steps = sqrt(steps.squares / fit->n + ERROR_FLOOR * ERROR_FLOOR);
	for (int i = 0; i < PARAMETERS; i++) {
		to[i] = grads.slopes[i] / (fit->n * of_grads) +
			steps.slopes[i] / (fit->n * of_steps);
	}
	sum = of_grads + of_steps + PENALTY_G * (value[GAMMA] - 1) * (value[GAMMA] - 1);
	to[GAMMA] += 2 * PENALTY_G * (value[GAMMA] - 1);
	sum += penalize(value, ALPHA_R, BETA_R, to);
	sum += penalize(value, ALPHA_N, BETA_N, to);
	if (sum < fit->best) {
		fit->best = sum;
		memcpy(fit->best_value, value, sizeof(value));
	}
	return sum;
}

/* ---- parameters that profiles determine ---- */

/* Sets the parameters that no profile determines, and marks them as fixed. */
static void fix_unknown(const struct fit *fit, double *value, bool *fixed)
{
	bool known[PARAMETERS] = {[BETA_C] = true, [GAMMA] = true};
	double sum = 0;

	for (uint32_t p = 0; p < fit->n; p++) {
		double times[PARAMETERS];

		adapt_weigh_reduce(&fit->profiles[p].place, times);
		for (int i = ALPHA_R; i <= DELTA_N; i++) {
			known[i] |= times[i] > 0;
		}
		known[ALPHA_C] |= fit->profiles[p].atomic != fit->profiles[0].atomic;
		sum += fit->profiles[p].grad_s;
	}
	for (int i = 0; i < PARAMETERS; i++) {
		fixed[i] = !known[i];
		if (!known[i]) {
			value[i] = i == ALPHA_C ? sum / fit->n / 2 : TIME_MIN;
		}
	}
}

static double at_least(double value, double least)
{
	return value > least ? value : least;
}

/* ---- the search ---- */

static nlopt_opt open_search(struct fit *fit, const double *value, const bool *fixed)
{
	nlopt_opt opt = nlopt_create(NLOPT_LD_LBFGS, PARAMETERS);

	for (int i = 0; i < PARAMETERS && opt; i++) {
		double at = to_search(value, i);
		double low = i == GAMMA ? 1 : log(TIME_MIN);
		double high = i == GAMMA ? GAMMA_MAX : log(TIME_MAX);

		nlopt_set_lower_bound(opt, i, fixed[i] ? at : low);
		nlopt_set_upper_bound(opt, i, fixed[i] ? at : high);
	}
	if (opt) {
		nlopt_set_min_objective(opt, loss, fit);
		nlopt_set_ftol_rel(opt, LOSS_TOLERANCE);
		nlopt_set_maxeval(opt, EVALS_MAX);
	}
	return opt;
}

/* Searches from value for the least loss, and repeats from the best point found, since a search may
 * end early. A parameter that has fallen to nothing has no slope any more, and restarts from
 * initial_guess. */
static int search(struct fit *fit, double *value, const bool *fixed, struct pawl_err *err)
{
	nlopt_opt opt = open_search(fit, value, fixed);
	nlopt_result result = NLOPT_OUT_OF_MEMORY;
	double before;
	double least;

	do {
		double x[PARAMETERS];

		for (int i = 0; i < PARAMETERS; i++) {
			bool gone = value[i] <= 2 * TIME_MIN && !fixed[i];

			x[i] = to_search(gone ? initial_guess : value, i);
		}
		before = fit->best;
		result = opt ? nlopt_optimize(opt, x, &least) : result;
		memcpy(value, fit->best_value, sizeof(fit->best_value));
	} while (fit->best < before * (1 - LOSS_GAIN_MIN));
	nlopt_destroy(opt);
	if (!isfinite(fit->best)) {
		return pawl_err_set(err, result == NLOPT_OUT_OF_MEMORY ? PAWL_ENOMEM : PAWL_EIO,
			"the fit of step times failed (NLopt: %d)", (int)result);
	}
	return 0;
}

static int check(const struct pawl_profile *profiles, uint32_t n, struct pawl_err *err)
{
	for (uint32_t p = 0; p < n; p++) {
		if (!(profiles[p].grad_s > 0 && profiles[p].step_s > 0) ||
			!isfinite(profiles[p].grad_s + profiles[p].step_s)) {
			return pawl_err_set(err, PAWL_EINVAL,
				"fit of step times: profile %u has invalid times: %g s and %g s", p,
				profiles[p].grad_s, profiles[p].step_s);
		}
	}
	return n > 0 ? 0
		     : pawl_err_set(err, PAWL_EINVAL, "fit of step times: there are no profiles");
}

int pawl_perf_fit(struct pawl_perf *perf, const struct pawl_profile *profiles, uint32_t n,
	struct pawl_err *err)
{
	struct fit fit = {.profiles = profiles, .n = n, .best = INFINITY};
	double value[PARAMETERS];
	bool fixed[PARAMETERS];
	int rv = check(profiles, n, err);

	if (rv != 0) {
		return rv;
	}
	if (perf->gamma < 1) {
		memcpy(value, initial_guess, sizeof(value));
	} else {
		memcpy(value, perf, sizeof(value));
	}
	fix_unknown(&fit, value, fixed);
	rv = search(&fit, value, fixed, err);
	if (rv != 0) {
		return rv;
	}
	if (fixed[ALPHA_N]) {
		value[ALPHA_N] = at_least(value[ALPHA_N], NODES_RATIO * value[ALPHA_R]);
		value[BETA_N] = at_least(value[BETA_N], NODES_RATIO * value[BETA_R]);
	}
	memcpy(perf, value, sizeof(value));
	return 0;
}
