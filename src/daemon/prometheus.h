/*
 * Prometheus' text format 0.0.4: lines "name{label="value",…} number", each family of lines after
 * its HELP and TYPE. Where memory runs out, out->failed is set.
 *   https://prometheus.io/docs/instrumenting/exposition_formats/
 */
#ifndef DAEMON_PROMETHEUS_H
#define DAEMON_PROMETHEUS_H

#include "base/wire.h"

#define METRICS_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_BOUNDS    8u /* buckets of a histogram, but for the last, which has no bound */

struct metrics_label {
	const char *name;
	const char *value; /* any bytes: those that would end the value are escaped */
};

/* A histogram of durations. */
struct metrics_times {
	const double *bounds_s; /* METRICS_BOUNDS bounds, ascending */
	uint64_t counts[METRICS_BOUNDS + 1];
	double sum_s;
};

void metrics_times_add(struct metrics_times *times, double seconds);

/* Writes the HELP and TYPE lines of a family. type: counter, gauge, summary or histogram. */
void metrics_put_family(struct wire_out *out, const char *name, const char *type, const char *help);
void metrics_put(struct wire_out *out, const char *name, const struct metrics_label *labels,
	uint32_t labels_n, double value);
/* Writes a family with one line without labels. */
void metrics_put_one(struct wire_out *out, const char *name, const char *type, const char *help,
	double value);
/* Writes a histogram, with its family. */
void metrics_put_times(struct wire_out *out, const char *name, const char *help,
	const struct metrics_times *times);

#endif
