/*
 * Measurements between hosts, and conclusions from them: the link of the cost model, and which
 * hosts or pairs are slow. Pure.
 */
#ifndef COLL_PLAN_SURVEY_H
#define COLL_PLAN_SURVEY_H

#include "coll/plan/cost.h"

#define SURVEY_HOSTS_MAX  64u
#define SURVEY_VECTOR_MAX (64ull << 20) /* bytes of the largest all-reduce that is measured */

/* Figures of hosts 0..n-1; 0: not measured. */
struct coll_survey {
	uint32_t n;          /* number of hosts, at least 2 */
	double *latency_s;   /* owned; n * n: of a small message, one way, from row to column */
	double *bytes_per_s; /* owned; n * n: from row to column, while no other host sends there */
	double all_bytes_per_s; /* rate out of and into the slowest host, when all send to all */
	double all_small_s;     /* time for each host to send a small message to each other one */
};

/* Metrics by which hosts are compared. */
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
/* Returns the seconds per round, fitted to the end times of n successive rounds: the slope of the
 * line of least squares. The first quarter is left out, because connections and queues are not in a
 * steady state yet. n: at least 4. */
double coll_fit_round_s(const double *ends_s, uint32_t n);

/* Sets *link to the link for the cost model. One message takes its latency and its cost; n - 1
 * messages at once take the latency and n - 1 times the cost. The difference is the cost of n - 2
 * messages. Two hosts have no such difference, so half of the time is taken to be cost. The rate is
 * that of the slowest host when all send to all. */
void coll_survey_link(const struct coll_survey *survey, struct coll_link *link);
/* Returns a host's best figure with any other host. It shows the host's own link rather than those
 * of its peers. */
double coll_survey_host(const struct coll_survey *survey, uint32_t host, enum survey_metric metric);
/* Returns whether a host's rate is below 3/4 of the median host's, or its latency is both above
 * twice the median and 0.1 ms above it. Of two hosts, none is an outlier. */
bool coll_survey_is_outlier(const struct coll_survey *survey, uint32_t host,
	enum survey_metric metric);
/* Returns whether a pair's rate is below 3/4 of the median pair's, or was not measured. */
bool coll_survey_slow(const struct coll_survey *survey, uint32_t from, uint32_t to);
/* Returns whether a pair's rate is below 3/4 of what each of its hosts reaches with another host:
 * the path between them is slow. */
bool coll_survey_narrow(const struct coll_survey *survey, uint32_t from, uint32_t to);

#endif
