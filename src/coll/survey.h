/*
 * What was measured between hosts, and what follows from it: the link of the cost model, and which
 * host or pair is slow. Pure.
 */
#ifndef COLL_SURVEY_H
#define COLL_SURVEY_H

#include "coll/cost.h"

#define SURVEY_HOSTS_MAX  64u
#define SURVEY_VECTOR_MAX (64ull << 20) /* bytes of an all-reduce that is tried */

/* Of hosts 0..n-1; a figure of 0 was not measured. */
struct coll_survey {
	uint32_t n;             /* hosts, at least 2 */
	double *latency_s;      /* owned; n * n: one way of a small message, from row to column */
	double *bytes_per_s;    /* owned; n * n: from row to column, while no other sends to it */
	double all_bytes_per_s; /* out of and into the slowest host, when all send to all */
	double all_small_s;     /* that it takes all to send all a small message */
};

/* What of a host is not as of the others. */
enum survey_flaw {
	SURVEY_SENDS,    /* bytes a second out of it */
	SURVEY_RECEIVES, /* into it */
	SURVEY_FAR,      /* latency to it */
	SURVEY_FLAWS
};

/* n: 2 .. SURVEY_HOSTS_MAX. PAWL_ENOMEM. */
int coll_survey_init(struct coll_survey *survey, uint32_t n, struct pawl_err *err);
void coll_survey_deinit(struct coll_survey *survey);

/* The middle of n numbers, which are sorted; 0 of none. */
double coll_median(double *numbers, uint32_t n);
/* Seconds from one end to the next, of the n ends of rounds that follow each other: the line of
 * least squares, without the first quarter, in which a connection and its queues find their pace.
 * n: at least 4. */
double coll_pace(const double *ends_s, uint32_t n);

/* For the cost model. To send one message takes its latency and its cost; to send n - 1 at once,
 * n - 1 times the cost: the difference is that of n - 2. (Of two hosts there is none, and half is
 * taken to be cost: they always send one.) The rate is that of all to all, as fast as its slowest
 * host. */
void coll_survey_link(const struct coll_survey *survey, struct coll_link *link);
/* The best that a host does with any other, in one respect: its own link rather than theirs. */
double coll_survey_host(const struct coll_survey *survey, uint32_t host, enum survey_flaw what);
/* Whether that is worse than the median host's by a quarter, or twice as far and 0.1 ms. Of two
 * hosts it is never said which one it is. */
bool coll_survey_flawed(const struct coll_survey *survey, uint32_t host, enum survey_flaw what);
/* Whether a pair is slower by a quarter than the median pair, or was not measured. */
bool coll_survey_slow(const struct coll_survey *survey, uint32_t from, uint32_t to);
/* Whether a pair is slower by a quarter than each of the two is with others: the way between. */
bool coll_survey_narrow(const struct coll_survey *survey, uint32_t from, uint32_t to);

#endif
