/*
 * How much work per step, and how often to save it: arithmetic without clock, I/O or state,
 * callable from any thread. Times are in seconds, rates in 1/s.
 *
 * Young: J. W. Young, A first order approximation to the optimum checkpoint interval,
 *   Communications of the ACM 17(9), 530-531, 1974.
 * Daly: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps,
 *   Future Generation Computer Systems 22(3), 303-312, 2006.
 * Garwood: F. Garwood, Fiducial limits for the Poisson distribution, Biometrika 28, 437-442, 1936.
 */
#ifndef PAWL_ADAPT_H
#define PAWL_ADAPT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Work between two saves that costs least, to first order, if a save costs cost_s and failures come
 * mtbf_s apart on average: sqrt(2 cost mtbf), Young's result. Both are over 0. */
double pawl_interval_young(double cost_s, double mtbf_s);
/* The same to higher order: Daly (37). At costs of 2 mtbf and more, mtbf. */
double pawl_interval_daly(double cost_s, double mtbf_s);
/*
 * Time lost per second of work, expected, when a save that costs cost_s is made after each
 * interval_s of work, failures come at random (Poisson) mtbf_s apart on average, also while saving
 * and restarting, and each is followed by restart_s without work: Daly (20), divided by the time of
 * the work, less 1.
 */
double pawl_interval_overhead(double interval_s, double cost_s, double restart_s, double mtbf_s);

/* What is believed of a failure rate before any was seen: as if so many failures had come in that
 * time. The Gamma distribution of that shape and rate, conjugate to the Poisson. */
struct pawl_rate_prior {
	double failures; /* over 0 */
	double time_s;   /* over 0 */
};

/* The mean of the rate, after failures were seen in time_s: (prior + seen) / (prior + time). */
double pawl_rate_mean(const struct pawl_rate_prior *prior, uint64_t failures, double time_s);
/*
 * Bounds of the rate that failures in time_s tell, without a prior: the exact ones of Garwood. Both
 * together are wrong with a probability of at most 1 - confidence (0 < confidence < 1), however few
 * failures there are. *low_s is 0 if there are none; both are infinite if time_s is 0.
 */
void pawl_rate_bounds(uint64_t failures, double time_s, double confidence, double *low_s,
	double *high_s);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
