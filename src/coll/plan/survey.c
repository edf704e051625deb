/* Conclusions from measurements: see survey.h for the contract. Pure. */
#include "coll/plan/survey.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdlib.h>

#define SLOW 0.75 /* share of the others' rate below which a host or pair is slow */
/* A host is an outlier if its latency exceeds both this multiple of the median, and the median plus
 * this many seconds. */
#define LATENCY_FACTOR   2.0
#define LATENCY_MARGIN_S 100e-6

int coll_survey_init(struct coll_survey *survey, uint32_t n, struct pawl_err *err)
{
	size_t all = (size_t)n * n;

	ASSERT(n >= 2 && n <= SURVEY_HOSTS_MAX);
	*survey = (struct coll_survey){.n = n};
	survey->latency_s = FAULT_MEM("coll.survey", calloc(all, sizeof(double)));
	survey->bytes_per_s = FAULT_MEM("coll.survey", calloc(all, sizeof(double)));
	if (survey->latency_s && survey->bytes_per_s) {
		return 0;
	}
	coll_survey_deinit(survey);
	return pawl_err_set(err, PAWL_ENOMEM, "no memory to measure %u hosts", n);
}

void coll_survey_deinit(struct coll_survey *survey)
{
	free(survey->latency_s);
	free(survey->bytes_per_s);
	*survey = (struct coll_survey){0};
}

/* ---- numbers ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

double coll_median(double *numbers, uint32_t n)
{
	if (n == 0) {
		return 0;
	}
	qsort(numbers, n, sizeof(*numbers), compare);
	return (numbers[(n - 1) / 2] + numbers[n / 2]) / 2;
}

double coll_fit_round_s(const double *ends_s, uint32_t n)
{
	uint32_t first = n / 4;
	double middle = (double)(n - 1 + first) / 2;
	double over = 0;
	double under = 0;

	ASSERT(n >= 4);
	for (uint32_t i = first; i < n; i++) {
		over += (i - middle) * (ends_s[i] - ends_s[first]);
		under += (i - middle) * (i - middle);
	}
	ASSERT(under > 0); /* three points or more are left */
	return over / under;
}

/* ---- the model ---- */

/* Returns the median of the figures of all pairs that were measured. */
static double median_pair(const struct coll_survey *survey, const double *figures)
{
	double known[SURVEY_HOSTS_MAX * SURVEY_HOSTS_MAX];
	uint32_t n = 0;

	ASSERT(survey->n <= SURVEY_HOSTS_MAX);
	for (uint32_t i = 0; i < survey->n * survey->n; i++) {
		if (figures[i] > 0) {
			known[n++] = figures[i];
		}
	}
	return coll_median(known, n);
}

void coll_survey_link(const struct coll_survey *survey, struct coll_link *link)
{
	double one_s = median_pair(survey, survey->latency_s);
	double message_s =
		survey->n > 2 ? (survey->all_small_s - one_s) / (survey->n - 2) : one_s / 2;

	message_s = message_s < one_s ? message_s : one_s;
	*link = (struct coll_link){.bytes_per_s = survey->all_bytes_per_s,
		.message_s = message_s > 0 ? message_s : 0};
	link->latency_s = one_s - link->message_s;
}

/* ---- slow hosts and pairs ---- */

static bool is_better(enum survey_metric metric, double a, double b)
{
	return metric == SURVEY_LATENCY ? a < b : a > b;
}

double coll_survey_host(const struct coll_survey *survey, uint32_t host, enum survey_metric metric)
{
	const double *figures = metric == SURVEY_LATENCY ? survey->latency_s : survey->bytes_per_s;
	double best = 0;

	ASSERT(host < survey->n);
	for (uint32_t peer = 0; peer < survey->n; peer++) {
		double out = figures[host * survey->n + peer];
		double in = figures[peer * survey->n + host];
		double figure = metric == SURVEY_RECEIVE_RATE ? in : out;

		if (figure > 0 && (best == 0 || is_better(metric, figure, best))) {
			best = figure;
		}
	}
	return best;
}

bool coll_survey_is_outlier(const struct coll_survey *survey, uint32_t host,
	enum survey_metric metric)
{
	double hosts[SURVEY_HOSTS_MAX];
	double own = coll_survey_host(survey, host, metric);
	double middle;

	for (uint32_t h = 0; h < survey->n; h++) {
		hosts[h] = coll_survey_host(survey, h, metric);
	}
	middle = coll_median(hosts, survey->n);
	if (survey->n == 2) {
		return false;
	}
	return metric == SURVEY_LATENCY
		? own > LATENCY_FACTOR * middle && own > middle + LATENCY_MARGIN_S
		: own < SLOW * middle;
}

bool coll_survey_slow(const struct coll_survey *survey, uint32_t from, uint32_t to)
{
	double own;

	ASSERT(from < survey->n && to < survey->n);
	own = survey->bytes_per_s[from * survey->n + to];
	return own == 0 || own < SLOW * median_pair(survey, survey->bytes_per_s);
}

bool coll_survey_narrow(const struct coll_survey *survey, uint32_t from, uint32_t to)
{
	double own;

	ASSERT(from < survey->n && to < survey->n);
	own = survey->bytes_per_s[from * survey->n + to];
	return own > 0 && own < SLOW * coll_survey_host(survey, from, SURVEY_SEND_RATE) &&
		own < SLOW * coll_survey_host(survey, to, SURVEY_RECEIVE_RATE);
}
