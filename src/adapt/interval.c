/* How often to save: pawl/adapt.h has the formulas and their sources. Pure. */
#include "pawl/adapt.h"

#include "base/assert.h"

#include <math.h>

#define TERM_LEAST 1e-18 /* relative size of a term that does not change a sum */
#define BISECTIONS 200   /* halvings of an interval: more than a double has bits */

double pawl_interval_young(double cost_s, double mtbf_s)
{
	return sqrt(2 * cost_s * mtbf_s);
}

double pawl_interval_daly(double cost_s, double mtbf_s)
{
	double half = cost_s / (2 * mtbf_s);

	if (half >= 1) {
		return mtbf_s;
	}
	return pawl_interval_young(cost_s, mtbf_s) * (1 + sqrt(half) / 3 + half / 9) - cost_s;
}

double pawl_interval_overhead(double interval_s, double cost_s, double restart_s, double mtbf_s)
{
	return mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + cost_s) / mtbf_s) /
		interval_s -
		1;
}

double pawl_rate_mean(const struct pawl_rate_prior *prior, uint64_t failures, double time_s)
{
	return (prior->failures + (double)failures) / (prior->time_s + time_s);
}

/* Returns the probability of at most n events if mean are expected. Sums from the largest term in
 * both directions, so that rounding loses no term that counts. */
static double poisson_at_most(uint64_t n, double mean)
{
	uint64_t top = mean < (double)n ? (uint64_t)mean : n;
	double largest = exp((double)top * log(mean) - mean - lgamma((double)top + 1));
	double sum = largest;
	double term = largest;

	ASSERT(mean > 0 && top <= n);
	for (uint64_t k = top; k > 0 && term > sum * TERM_LEAST; k--) {
		term *= (double)k / mean;
		sum += term;
	}
	term = largest;
	for (uint64_t k = top + 1; k <= n && term > sum * TERM_LEAST; k++) {
		term *= mean / (double)k;
		sum += term;
	}
	return sum < 1 ? sum : 1;
}

/* Returns the mean for which at most n events have this probability. */
static double mean_where(uint64_t n, double probability)
{
	double low = 0;
	double high = (double)n + 1;

	while (poisson_at_most(n, high) > probability) {
		high *= 2;
	}
	for (int i = 0; i < BISECTIONS; i++) {
		double mid = (low + high) / 2;

		if (poisson_at_most(n, mid) > probability) {
			low = mid;
		} else {
			high = mid;
		}
	}
	return high;
}

void pawl_rate_bounds(uint64_t failures, double time_s, double confidence, double *low_s,
	double *high_s)
{
	double tail = (1 - confidence) / 2;

	ASSERT(confidence > 0 && confidence < 1);
	*low_s = failures > 0 ? mean_where(failures - 1, 1 - tail) / time_s : 0;
	*high_s = mean_where(failures, tail) / time_s;
}
