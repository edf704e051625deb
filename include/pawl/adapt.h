/*
 * How much work per step, and how often to save it: arithmetic without clock, I/O or state. Any
 * thread may call it. Times are in seconds, rates in 1/s.
 *
 * Young: J. W. Young, A first order approximation to the optimum checkpoint interval,
 *   Communications of the ACM 17(9), 530-531, 1974.
 * Daly: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps,
 *   Future Generation Computer Systems 22(3), 303-312, 2006.
 * Garwood: F. Garwood, Fiducial limits for the Poisson distribution, Biometrika 28, 437-442, 1936.
 * Pollux: A. Qiao and others, Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
 *   Learning, OSDI 2021.
 * AdaScale: T. Johnson and others, AdaScale SGD, ICML 2020.
 * McCandlish: S. McCandlish and others, An Empirical Model of Large-Batch Training, 2018.
 * Shamir: O. Shamir and T. Zhang, Stochastic Gradient Descent for Non-smooth Optimization, ICML
 *   2013.
 * Goyal: P. Goyal and others, Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
 * Krizhevsky: A. Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014.
 * Malladi: S. Malladi and others, On the SDEs and Scaling Rules for Adaptive Gradient Algorithms,
 *   NeurIPS 2022.
 * You: Y. You and others, Large-Batch Training for LSTM and Beyond, SC 2019.
 * Fieller: E. C. Fieller, Some problems in interval estimation, Journal of the Royal Statistical
 *   Society B 16(2), 175-185, 1954.
 */
#ifndef PAWL_ADAPT_H
#define PAWL_ADAPT_H

#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Returns the work between two saves that costs least, to first order: sqrt(2 cost mtbf), Young's
 * result. A save costs cost_s, and failures come mtbf_s apart on average; both are over 0. */
double pawl_interval_young(double cost_s, double mtbf_s);
/* Returns that interval to higher order: Daly (37). At costs of 2 mtbf and more, mtbf. */
double pawl_interval_daly(double cost_s, double mtbf_s);
/*
 * Returns the expected time lost per second of work. A save that costs cost_s is made after each
 * interval_s of work. Failures come at random (Poisson), mtbf_s apart on average, also while saving
 * and restarting. Each is followed by restart_s without work. It is Daly (20), divided by the time
 * of the work, less 1.
 */
double pawl_interval_overhead(double interval_s, double cost_s, double restart_s, double mtbf_s);

/* A belief about a failure rate before any failure was seen: as if that many failures had come in
 * that time. It is the Gamma distribution with that shape and rate, conjugate to the Poisson. */
struct pawl_rate_prior {
	double failures; /* over 0 */
	double time_s;   /* over 0 */
};

/* Returns the mean of the rate after failures in time_s: (prior.failures + failures) /
 * (prior.time_s + time_s). */
double pawl_rate_mean(const struct pawl_rate_prior *prior, uint64_t failures, double time_s);
/*
 * Computes bounds of the rate from failures in time_s, without a prior: Garwood's exact ones. The
 * rate lies outside them with a probability of at most 1 - confidence (0 < confidence < 1), however
 * few failures there are. *low_s is 0 if there are none. If time_s is 0, *high_s is infinite, and
 * so is *low_s unless failures is 0.
 */
void pawl_rate_bounds(uint64_t failures, double time_s, double confidence, double *low_s,
	double *high_s);

/* ---- the gradient's noise ---- */

/*
 * What one step measures: count gradients, each the mean of equally many samples, of all replicas.
 * If the numbers of samples differ, let s_i be the share of gradient i in all samples. Then count
 * is 1 / sum s_i^2, total is the squared norm of sum s_i g_i, and local is count times the sum of
 * s_i^2 |g_i|^2.
 */
struct pawl_gns_step {
	double local; /* mean of the gradients' squared norms */
	double total; /* squared norm of the gradients' mean */
	double count; /* number of gradients; over 1 */
	double scale; /* samples of all gradients, in initial batches; over 0 */
};

/*
 * Running averages of what steps measure. The weight of a step has fallen to e^-1 of that of a new
 * one after a window of training. The window is a third of all training so far, as in Shamir's
 * averages, but at least 32 and at most 1000 initial batches. From 3000 on this is AdaptDL's
 * 0.999^scale. (By AdaptDL's rule alone all of the first 1000 have nearly equal weight, and the
 * gradient's norm, which falls fast at first, stays too large for long.) All zero at first. A
 * caller that has several (one per group of parameters) adds their results.
 */
struct pawl_gns {
	double age;               /* training so far, in initial batches */
	double weight, weight2;   /* sum of weights; sum of their squares */
	double sqr, var;          /* weighted sums of the two moments */
	double sqr2, var2, cross; /* weighted sums of the moments' squares and product */
};

/*
 * Adds a step's measurement, as in McCandlish (A.1). Both moments are unbiased, whatever count is:
 *   sqr = (count total - local) / (count - 1),  var = (local - total) scale / (count - 1);
 * var is that of a gradient of an initial batch. Returns false, and adds nothing, if a norm is not
 * finite (a step that a loss scaler will skip).
 */
bool pawl_gns_add(struct pawl_gns *gns, const struct pawl_gns_step *step);
/* Counts a step of scale initial batches, whether or not it is measured. Call it before
 * pawl_gns_add. */
void pawl_gns_age(struct pawl_gns *gns, double scale);

struct pawl_noise;

/* Returns the averages in *noise; sqr is at least 0, var at least 1e-6, as in AdaptDL. Before any
 * step: 1 and 0. */
void pawl_gns_noise(const struct pawl_gns *gns, struct pawl_noise *noise);
/* Returns in *low and *high the 95 % confidence interval of var / sqr, if steps are independent:
 * Fieller's limits. *high is infinite if sqr cannot be distinguished from 0. Returns false if there
 * are too few steps. */
bool pawl_gns_interval(const struct pawl_gns *gns, double *low, double *high);

/* ---- goodput ---- */

/* How replicas are spread over nodes. */
struct pawl_placement {
	uint32_t nodes;        /* at least 1 */
	uint32_t replicas;     /* replicas of all nodes together; at least nodes */
	uint32_t max_per_node; /* replicas on the node with most of them; 0: spread evenly */
};

/*
 * The time of a step: Pollux (8) to (11), and a term for the number of replicas on the fullest
 * node. A gradient of m samples takes alpha_c + beta_c m. Reducing it takes nothing with one
 * replica, else
 *   alpha_r + beta_r (replicas - 2)                                on one node,
 *   alpha_n + beta_n (replicas - 2) + delta_n (max_per_node - 1)   on several;
 * the two overlap in part, and together take (grad^gamma + reduce^gamma)^(1 / gamma).
 */
struct pawl_perf {
	double alpha_c, beta_c; /* gradient: s; s/sample */
	double alpha_r, beta_r; /* reducing on one node: s; s/replica */
	double alpha_n, beta_n; /* reducing on several nodes: s; s/replica */
	double delta_n;         /* reducing, per further replica on the fullest node: s/replica */
	double gamma;           /* overlap: from 1, none, to 10, nearly all */
};

/* Measured means of steps with one placement and one atomic batch; all over 0. */
struct pawl_profile {
	struct pawl_placement place;
	uint32_t atomic; /* samples */
	double grad_s;   /* seconds for a gradient, without reducing */
	double step_s;   /* seconds for a step's last gradient and its reducing, as they overlap */
};

/*
 * Fits perf as Pollux does: by the least sum of the root mean square errors of the logarithms of
 * both times, with Pollux's penalties for gamma and the betas, and its optimistic priors. A cost
 * that no profile shows counts as zero, or, for several nodes, as a tenth more than on one. perf:
 * the starting point, usually the last fit; gamma 0: none. PAWL_EINVAL: a time is not valid, or n
 * is 0; PAWL_ENOMEM; PAWL_EIO: the search failed. On error perf is unchanged.
 */
int pawl_perf_fit(struct pawl_perf *perf, const struct pawl_profile *profiles, uint32_t n,
	struct pawl_err *err);

/* One step of a replica: it accumulates accum gradients of atomic samples, computes one more, and
 * then all replicas reduce. */
struct pawl_batch {
	uint32_t atomic; /* samples, at least 1 */
	uint32_t accum;
};

/* Estimates of the squared norm of the gradient, and of the trace of the covariance of a gradient
 * of init samples. var / sqr is the noise scale, in batches of init. */
struct pawl_noise {
	double sqr;
	double var;
};

/* Limits of the batches to choose from. */
struct pawl_batch_bounds {
	uint32_t init; /* samples of all replicas for which the user chose the learning rate */
	uint32_t max;  /* largest number of samples of all replicas; at least init */
	uint32_t atomic_min, atomic_max; /* limits of an atomic batch, in samples */
	bool accumulate;                 /* accum may be over 0 */
};

/* Returns the samples of a step, of all replicas. */
uint64_t pawl_batch_total(const struct pawl_placement *place, const struct pawl_batch *batch);
/* Returns the seconds of a step. */
double pawl_step_s(const struct pawl_perf *perf, const struct pawl_placement *place,
	const struct pawl_batch *batch);
/* Returns how many steps of init samples one step of scale * init is worth: AdaScale's gain, 1 to
 * scale. */
double pawl_gain(const struct pawl_noise *noise, double scale);
/*
 * A rule for the learning rate with steps of scale * init samples. Its factor is
 *   x^power min(1, progress / (warmup scale)),   x: the gain if by_gain, else scale.
 *
 * Known rules:
 *   AdaScale       gain, power 1               (Johnson and others)
 *   AdamScale      gain, power 0.5             AdaptDL's rule for Adam, and all that divide by a
 *                                              root of squares; if noise dominates, the square
 *                                              root of scale (Malladi)
 *   linear         scale, power 1              (Goyal)
 *   square root    scale, power 0.5            (Krizhevsky)
 *   LEGW           scale, power 0.5, warmup    (You and others)
 */
struct pawl_lr_rule {
	bool by_gain;
	double power;
	double warmup; /* length of the warmup at scale 1, in steps of init samples; 0: none */
};

/* Returns the factor of the learning rate. progress: how many steps of init samples the steps so
 * far were worth. */
double pawl_lr_factor(const struct pawl_lr_rule *rule, const struct pawl_noise *noise, double scale,
	double progress);
/* Returns the goodput: samples per second, each worth as much as one in a step of init samples.
 * Pollux (6) and (7). */
double pawl_goodput(const struct pawl_perf *perf, const struct pawl_noise *noise, uint32_t init,
	const struct pawl_placement *place, const struct pawl_batch *batch);
/*
 * Chooses the batch with the best goodput, of PAWL_BATCH_CANDIDATES totals from init to max, each
 * larger than the one before by the same factor, divided into as few atomic batches as bounds
 * allow. One replica takes more than init samples in at least two atomic batches, since the noise
 * is measured from the difference of gradients; so never without accumulation. Returns false if no
 * batch fits the bounds.
 */
bool pawl_batch_choose(const struct pawl_perf *perf, const struct pawl_noise *noise,
	const struct pawl_batch_bounds *bounds, const struct pawl_placement *place,
	struct pawl_batch *batch, double *goodput);
#define PAWL_BATCH_CANDIDATES 50

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
