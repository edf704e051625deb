/* The gradient's noise: pawl/adapt.h has the formulas and their sources. Pure. */
#include "pawl/adapt.h"

#include <math.h>

#define WINDOW_LEAST 32       /* shortest averaging window, in initial batches */
#define WINDOW_MOST  1000     /* longest one */
#define WINDOWS      3        /* window: training so far divided by this, within both limits */
#define VAR_LEAST    1e-6     /* least average variance that is reported */
#define NORMAL_95    1.959964 /* the two-sided 95 % point of the normal distribution */
#define STEPS_MIN    5        /* independent steps needed for an interval, at least */

/* Returns the averaging window: the initial batches after which a weight has fallen to e^-1. */
static double window(const struct pawl_gns *gns)
{
	return fmin(fmax(gns->age / WINDOWS, WINDOW_LEAST), WINDOW_MOST);
}

void pawl_gns_age(struct pawl_gns *gns, double scale)
{
	double kept;

	gns->age += scale;
	kept = exp(-scale / window(gns));
	gns->weight *= kept;
	gns->weight2 *= kept * kept;
	gns->sqr *= kept;
	gns->var *= kept;
	gns->sqr2 *= kept;
	gns->var2 *= kept;
	gns->cross *= kept;
}

bool pawl_gns_add(struct pawl_gns *gns, const struct pawl_gns_step *step)
{
	double n = step->count;
	double sqr = (n * step->total - step->local) / (n - 1);
	double var = (step->local - step->total) * step->scale / (n - 1);
	double now = -expm1(-step->scale / window(gns));

	if (!isfinite(sqr) || !isfinite(var)) {
		return false;
	}
	gns->weight += now;
	gns->weight2 += now * now;
	gns->sqr += now * sqr;
	gns->var += now * var;
	gns->sqr2 += now * sqr * sqr;
	gns->var2 += now * var * var;
	gns->cross += now * sqr * var;
	return true;
}

void pawl_gns_noise(const struct pawl_gns *gns, struct pawl_noise *noise)
{
	*noise = (struct pawl_noise){.sqr = 1, .var = 0};
	if (gns->weight > 0) {
		noise->sqr = fmax(gns->sqr / gns->weight, 0);
		noise->var = fmax(gns->var / gns->weight, VAR_LEAST);
	}
}

/* Returns the two-sided 95 % point of Student's t: the expansion by Goldberg and Levine (1946), to
 * a thousandth from 4 degrees of freedom on. */
static double student_95(double freedom)
{
	double z = NORMAL_95;
	double z3 = z * z * z;
	double z5 = z3 * z * z;
	double z7 = z5 * z * z;

	return z + (z3 + z) / (4 * freedom) +
		(5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
		(3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

/* Solves (var - r sqr)^2 = t^2 (v_var - 2 r v_cross + r^2 v_sqr) for r, a quadratic equation. v_
 * are variances and the covariance of the averages. */
bool pawl_gns_interval(const struct pawl_gns *gns, double *low, double *high)
{
	double weight = gns->weight;
	double share = gns->weight2 / (weight * weight); /* 1 / number of equally weighted steps */
	double sqr = gns->sqr / weight;
	double var = gns->var / weight;
	double a;
	double b;
	double c;
	double root;
	double t2;

	if (weight <= 0 || share * STEPS_MIN > 1) {
		return false;
	}
	t2 = student_95(1 / share - 1);
	/* Converts a biased variance to an unbiased one, then to the variance of the average. */
	t2 *= t2 * share / (1 - share);
	a = sqr * sqr - t2 * (gns->sqr2 / weight - sqr * sqr);
	b = sqr * var - t2 * (gns->cross / weight - sqr * var);
	c = var * var - t2 * (gns->var2 / weight - var * var);
	root = sqrt(fmax(b * b - a * c, 0));
	if (a > 0 && sqr > 0) {
		*low = fmax((b - root) / a, 0);
		*high = fmax((b + root) / a, *low);
	} else {
		*low = a < 0 && c > 0 ? (b - root) / a : 0;
		*high = INFINITY;
	}
	return true;
}
