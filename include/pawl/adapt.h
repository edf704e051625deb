/*
 * How much work per step, and how often to save it: arithmetic without clock, I/O or state,
 * callable from any thread. Times are in seconds, rates in 1/s.
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

/* ---- the gradient's noise ---- */

/*
 * What a step tells: of count gradients, each the mean of as many samples, by all replicas. Where
 * they are of unequal numbers, s_i the share of each in all: count is 1 / sum s_i^2, total the
 * squared norm of sum s_i g_i, and local is count times the sum of s_i^2 |g_i|^2.
 */
struct pawl_gns_step {
	double local; /* mean of their squared norms */
	double total; /* squared norm of their mean */
	double count; /* over 1 */
	double scale; /* samples of all of them, to those of an initial batch; over 0 */
};

/*
 * Running averages of what steps tell. What was told counts e^-1 of what is told now when training
 * has gone on for a window: a third of what it has done by then, as in Shamir's averages, 32
 * initial batches at least and 1000 at most, which is AdaptDL's 0.999^scale from 3000 on. (With
 * that alone all of the first 1000 count alike, and the gradient's norm, which falls fast at first,
 * is too large for long.) All zero at first. Whoever has several (of groups of parameters) adds
 * what they say.
 */
struct pawl_gns {
	double age;               /* initial batches that were trained with */
	double weight, weight2;   /* sum of weights; of their squares */
	double sqr, var;          /* weighted sums of the two moments */
	double sqr2, var2, cross; /* of their squares, and of their product */
};

/*
 * McCandlish (A.1): both moments that it adds are unbiased, whatever count is,
 *   sqr = (count total - local) / (count - 1),  var = (local - total) scale / (count - 1),
 * the second one as of a gradient of an initial batch. False: a norm is not finite (a step that a
 * loss scaler will skip), and nothing is added.
 */
bool pawl_gns_add(struct pawl_gns *gns, const struct pawl_gns_step *step);
/* A step was made, of so many initial batches, whether or not it tells something: before it
 * does. */
void pawl_gns_age(struct pawl_gns *gns, double scale);

struct pawl_noise;

/* The averages; sqr at least 0, var at least 1e-6, as AdaptDL has it. 1 and 0 of no step. */
void pawl_gns_noise(const struct pawl_gns *gns, struct pawl_noise *noise);
/* Where var / sqr lies, with a probability of 95 % if steps are independent: Fieller's limits.
 * *high is infinite where sqr cannot be told from 0. False: there are too few steps. */
bool pawl_gns_interval(const struct pawl_gns *gns, double *low, double *high);

/* ---- goodput ---- */

/* Where replicas are. */
struct pawl_place {
	uint32_t nodes;    /* at least 1 */
	uint32_t replicas; /* of all nodes together, at least as many */
	uint32_t most;     /* of the node with most of them; 0: they are spread evenly */
};

/*
 * What a step takes: Pollux (8) to (11), and a term for how full the fullest node is. A gradient of
 * m samples takes alpha_c + beta_c m; to reduce it takes nothing where there is one replica, else
 *   alpha_r + beta_r (replicas - 2)                          on one node,
 *   alpha_n + beta_n (replicas - 2) + delta_n (most - 1)     on several;
 * both together, of which some overlaps, (grad^gamma + reduce^gamma)^(1 / gamma).
 */
struct pawl_perf {
	double alpha_c, beta_c; /* s; s/sample */
	double alpha_r, beta_r; /* s; s/replica */
	double alpha_n, beta_n; /* the same */
	double delta_n;         /* s/replica */
	double gamma;           /* from 1, nothing overlaps, to 10, nearly all */
};

/* What was measured of steps with a place and an atomic batch: means, over 0. */
struct pawl_profile {
	struct pawl_place place;
	uint32_t atomic; /* samples */
	double grad_s;   /* of a gradient, without reducing */
	double step_s; /* of the last gradient of a step and its reducing, overlapping as they do */
};

/*
 * Pollux's fit: the least sum of the root mean square errors of the logarithms of both times, with
 * its penalties for gamma and the betas, and its optimistic priors: what no profile tells of is
 * taken for free, or, for several nodes, for a tenth more than on one. perf: where to begin, the
 * last fit mostly; gamma 0: anew. PAWL_EINVAL: a time is none, or n is 0; PAWL_ENOMEM; PAWL_EIO:
 * the search failed; perf is as it was then.
 */
int pawl_perf_fit(struct pawl_perf *perf, const struct pawl_profile *profiles, uint32_t n,
	struct pawl_err *err);

/* Each replica adds accum gradients of atomic samples to one more, and then all reduce. */
struct pawl_batch {
	uint32_t atomic; /* samples, at least 1 */
	uint32_t accum;
};

/* The gradient's squared norm, and the trace of the covariance of one that is made of init samples:
 * as estimated. var / sqr is the noise scale, in batches of init. */
struct pawl_noise {
	double sqr;
	double var;
};

/* Which batches may be. */
struct pawl_batch_bounds {
	uint32_t init; /* samples of all replicas for which the user chose the learning rate */
	uint32_t max;  /* the same at most, at least init */
	uint32_t least, most; /* of an atomic batch */
	bool accumulate;      /* accum may be over 0 */
};

/* Samples of a step, of all replicas. */
uint64_t pawl_batch_total(const struct pawl_place *place, const struct pawl_batch *batch);
/* Seconds of a step. */
double pawl_step_s(const struct pawl_perf *perf, const struct pawl_place *place,
	const struct pawl_batch *batch);
/* Steps of init samples that one of scale * init is worth: AdaScale's gain, 1 to scale. */
double pawl_gain(const struct pawl_noise *noise, double scale);
/*
 * How much larger the learning rate is, where steps are of scale * init samples:
 *   x^power min(1, progress / (warmup scale)),   x: the gain if by_gain, else scale.
 *   AdaScale        gain, power 1      (Johnson and others)
 *   AdamScale       gain, power 0.5    for Adam, and all that divide by a root of squares:
 * AdaptDL's; where noise is all, the square root of scale (Malladi) linear          scale, power 1
 * (Goyal) square root     scale, power 0.5   (Krizhevsky) LEGW            scale, power 0.5, warmup
 * (You and others)
 */
struct pawl_lr_rule {
	bool by_gain;
	double power;
	double warmup; /* steps of init samples in which it rises at scale 1; 0: it does not */
};

/* progress: steps of init samples that those so far were worth. */
double pawl_lr_factor(const struct pawl_lr_rule *rule, const struct pawl_noise *noise, double scale,
	double progress);
/* Samples a second, times what each is worth beside one of a step of init: Pollux (6) and (7). */
double pawl_goodput(const struct pawl_perf *perf, const struct pawl_noise *noise, uint32_t init,
	const struct pawl_place *place, const struct pawl_batch *batch);
/*
 * The batch whose goodput is best, of PAWL_BATCHES totals from init to max, each as much larger
 * than the one before, divided into as few atomic batches as bounds allow. One replica takes more
 * than init samples in two at least, since the noise is told from the difference of gradients; and
 * never does without accumulating. False: no batch fits the bounds.
 */
bool pawl_batch_choose(const struct pawl_perf *perf, const struct pawl_noise *noise,
	const struct pawl_batch_bounds *bounds, const struct pawl_place *place,
	struct pawl_batch *batch, double *goodput);
#define PAWL_BATCHES 50

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
