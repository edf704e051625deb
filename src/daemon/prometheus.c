/* Prometheus' text format: see prometheus.h. */
#include "daemon/prometheus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX 32u
#define TEXT_MAX   128u

static void put_text(struct wire_out *out, const char *text)
{
	wire_put_raw(out, text, strlen(text));
}

/* Writes text with escapes. quote: the text stands in quotation marks. */
static void put_escaped(struct wire_out *out, const char *text, bool quote)
{
	for (; *text != '\0'; text++) {
		if (*text == '\\') {
			put_text(out, "\\\\");
		} else if (*text == '\n') {
			put_text(out, "\\n");
		} else if (*text == '"' && quote) {
			put_text(out, "\\\"");
		} else {
			wire_put_u8(out, (uint8_t)*text);
		}
	}
}

/* Formats a number with 15 digits or, where these do not read back as the same, with 17. */
static const char *print_number(char text[NUMBER_MAX], double value)
{
	if (isnan(value)) {
		return "NaN";
	}
	if (isinf(value)) {
		return value > 0 ? "+Inf" : "-Inf";
	}
	snprintf(text, NUMBER_MAX, "%.15g", value);
	if (strtod(text, NULL) != value) {
		snprintf(text, NUMBER_MAX, "%.17g", value);
	}
	return text;
}

void metrics_put_family(struct wire_out *out, const char *name, const char *type, const char *help)
{
	put_text(out, "# HELP ");
	put_text(out, name);
	put_text(out, " ");
	put_escaped(out, help, false);
	put_text(out, "\n# TYPE ");
	put_text(out, name);
	put_text(out, " ");
	put_text(out, type);
	put_text(out, "\n");
}

void metrics_put(struct wire_out *out, const char *name, const struct metrics_label *labels,
	uint32_t labels_n, double value)
{
	char number[NUMBER_MAX];

	put_text(out, name);
	for (uint32_t i = 0; i < labels_n; i++) {
		put_text(out, i == 0 ? "{" : ",");
		put_text(out, labels[i].name);
		put_text(out, "=\"");
		put_escaped(out, labels[i].value, true);
		put_text(out, i + 1 == labels_n ? "\"}" : "\"");
	}
	put_text(out, " ");
	put_text(out, print_number(number, value));
	put_text(out, "\n");
}

void metrics_put_one(struct wire_out *out, const char *name, const char *type, const char *help,
	double value)
{
	metrics_put_family(out, name, type, help);
	metrics_put(out, name, NULL, 0, value);
}

void metrics_times_add(struct metrics_times *times, double seconds)
{
	uint32_t i = 0;

	while (i < METRICS_BOUNDS && seconds > times->bounds_s[i]) {
		i++;
	}
	times->counts[i]++;
	times->sum_s += seconds;
}

void metrics_put_times(struct wire_out *out, const char *name, const char *help,
	const struct metrics_times *times)
{
	char full[TEXT_MAX];
	char number[NUMBER_MAX];
	uint64_t count = 0;

	metrics_put_family(out, name, "histogram", help);
	snprintf(full, sizeof(full), "%s_bucket", name);
	for (uint32_t i = 0; i <= METRICS_BOUNDS; i++) {
		const struct metrics_label le = {"le",
			print_number(number, i < METRICS_BOUNDS ? times->bounds_s[i] : INFINITY)};

		count += times->counts[i];
		metrics_put(out, full, &le, 1, (double)count);
	}
	snprintf(full, sizeof(full), "%s_sum", name);
	metrics_put(out, full, NULL, 0, times->sum_s);
	snprintf(full, sizeof(full), "%s_count", name);
	metrics_put(out, full, NULL, 0, (double)count);
}
