/*
 * Measurements between hosts, and what follows from them: the link of the cost model, and which
 * host or pair is slow. Pure.
 */
#ifndef COLL_PLAN_SURVEY_H
#define COLL_PLAN_SURVEY_H

#include "coll/plan/cost.h"

#define SURVEY_HOSTS_MAX  64u
#define SURVEY_VECTOR_MAX (64ull << 20) /* bytes of the largest all-reduce that is tried */

/* Figures of hosts 0..n-1; 0 was not measured. */
struct coll_survey {
	uint32_t n;          /* number of hosts, at least 2 */
	double *latency_s;   /* owned; n * n: one way of a small message, from row to column */
	double *bytes_per_s; /* owned; n * n: from row to column, while no other host sends there */
	double all_bytes_per_s; /* rate out of and into the slowest host, when all send to all */
	double all_small_s;     /* time for each host to send a small message to each other one */
};

/* How a host differs from the others. */
enum survey_metric {
	SURVEY_SEND_RATE,    /* bytes a second out of the host */
	SURVEY_RECEIVE_RATE, /* bytes a second into the host */
	SURVEY_LATENCY,      /* latency to the host */
	SURVEY_METRICS
};

/* n: 2 .. SURVEY_HOSTS_MAX. PAWL_ENOMEM. */
int coll_survey_init(struct coll_survey *survey, uint32_t n, struct pawl_err *err);
void coll_survey_deinit(struct coll_survey *survey);

/* Returns the median of n numbers, which it sorts; 0 if n is 0. */
double coll_median(double *numbers, uint32_t n);
/* Returns the seconds from one end to the next, of the n ends of rounds that follow each other: the
 * line of least squares, without the first quarter, in which a connection and its queues find their
 * pace. n: at least 4. */
double coll_fit_round_s(const double *ends_s, uint32_t n);

/* Gives the link for the cost model. One message takes its latency and its cost; n - 1 messages at
 * once take n - 1 times the cost: the difference is the cost of n - 2. (With two hosts there is
 * none, and half is taken to be cost: they always send one.) The rate is that of all to all, as
 * fast as its slowest host. */
void coll_survey_link(const struct coll_survey *survey, struct coll_link *link);
/* Returns the best that a host does with any other, in one respect: the effect of its own link
 * rather than of the others' links. */
double coll_survey_host(const struct coll_survey *survey, uint32_t host, enum survey_metric what);
/* Returns whether a host is worse than the median host by a quarter, or twice as far and by 0.1 ms.
 * Of two hosts, never. */
bool coll_survey_is_outlier(const struct coll_survey *survey, uint32_t host,
	enum survey_metric what);
/* Returns whether a pair is slower by a quarter than the median pair, or was not measured. */
bool coll_survey_slow(const struct coll_survey *survey, uint32_t from, uint32_t to);
/* Returns whether a pair is slower by a quarter than each of its hosts is with others: the way
 * between them is slow. */
bool coll_survey_narrow(const struct coll_survey *survey, uint32_t from, uint32_t to);

#endif
