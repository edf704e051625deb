/* Fuzzes the parts of an HTTP request that we parse ourselves: paths, numbers, addresses, hints and
 * reports of launchers; and prints the input as a label of a metric. Accepted values hold what the
 * headers promise. */
#include "fuzz.h"

#include "base/assert.h"
#include "daemon/hints.h"
#include "daemon/http/http_listen.h"
#include "daemon/http/http_route.h"
#include "daemon/memberships.h"
#include "daemon/prometheus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_part(const char *part)
{
	ASSERT(strlen(part) < HTTP_PART_MAX && !strchr(part, '/'));
	ASSERT(strcmp(part, ".") != 0 && strcmp(part, "..") != 0);
	for (; *part != '\0'; part++) {
		ASSERT((unsigned char)*part >= 0x20 && *part != 0x7f);
	}
}

static void parse_path(const char *text)
{
	struct http_route route;

	if (!http_route_parse(&route, text)) {
		return;
	}
	check_part(route.space);
	check_part(route.name);
	check_part(route.group);
	ASSERT(route.secret[0] == '\0' || strlen(route.secret) == HTTP_SECRET_CHARS);
	ASSERT((route.resource == HTTP_NOTHING) == (route.allow == NULL));
	if (route.allow) {
		ASSERT(!http_route_allows(&route, "TRACE"));
	}
}

static void parse_rest(const char *text)
{
	struct http_address address;
	uint64_t number;
	char again[24];

	if (http_number(text, UINT64_MAX, &number)) {
		while (text[0] == '0' && text[1] != '\0') {
			text++;
		}
		snprintf(again, sizeof(again), "%llu", (unsigned long long)number);
		ASSERT(strcmp(again, text) == 0);
	}
	if (http_address_parse(&address, text, NULL) == 0) {
		ASSERT(address.len > 0 && strchr(text, ':'));
	}
}

static void decode_hints(const uint8_t *bytes, size_t len_bytes)
{
	struct sched_hints hints;

	if (hints_decode(&hints, bytes, len_bytes, NULL) == 0) {
		ASSERT(isfinite(hints.progress) && isfinite(hints.progress_end));
		ASSERT(isfinite(hints.perf.alpha_c) && isfinite(hints.perf.gamma));
		ASSERT(isfinite(hints.noise.sqr) && isfinite(hints.noise.var));
	}
}

static void read_report(const uint8_t *bytes, size_t len_bytes)
{
	struct launcher_report report;

	if (launcher_report_read(&report, bytes, len_bytes, NULL) == 0) {
		ASSERT(report.launcher < MEMBERSHIPS_LAUNCHERS_MAX);
		ASSERT(report.text == NULL || strlen(report.text) < MEMBERSHIPS_TEXT_MAX);
		ASSERT(report.alive == NULL || strlen(report.alive) < MEMBERSHIPS_ALIVE_MAX);
	}
	launcher_report_deinit(&report);
}

/* Checks that a label is printed on one line, whatever it contains. */
static void print_label(const char *text)
{
	const struct metrics_label label = {"a", text};
	struct wire_out out = {NULL};

	metrics_put(&out, "m", &label, 1, (double)strlen(text));
	ASSERT(!out.failed);
	ASSERT(memchr(out.bytes, '\n', out.len_bytes) == out.bytes + out.len_bytes - 1);
	wire_out_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	char *text = malloc(len_bytes + 2);

	ASSERT(text);
	text[0] = '/'; /* most inputs would be no path */
	memcpy(text + 1, bytes, len_bytes);
	text[len_bytes + 1] = '\0';
	parse_path(text);
	parse_path(text + 1);
	parse_rest(text + 1);
	print_label(text + 1);
	decode_hints(bytes, len_bytes);
	read_report(bytes, len_bytes);
	free(text);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const char hints[] =
		"{\"initBatchSize\": 32, \"maxBatchSize\": 256, \"localBszBounds\": [8, 64], "
		"\"gradParams\": {\"norm\": 1, \"var\": 2}, \"progress\": 1, \"remaining\": 9, "
		"\"maxProfiledReplicas\": 2, \"gradientAccumulation\": true, \"perfParams\": "
		"{\"alpha_c\": 0.1, \"beta_c\": 1e-3, \"gamma\": 1.5}}";
	static const char report[] =
		"{\"launcher\": 3, \"instance\": \"1f\", \"version\": 7, \"restates\": true, "
		"\"membership\": \"10.0.0.1:4711:ff 0 64\\n\", \"alive\": \"12 1 0\\n\"}";
	static const char *const seeds[] = {
		"/job/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/hints/a/7",
		"/discover/%c3%a4/b%20c/3",
		"/jobs/x/cancel",
		"[::1]:8080",
		"127.0.0.1:65535",
		"18446744073709551615",
		hints,
		report,
	};

	if (i >= sizeof(seeds) / sizeof(*seeds)) {
		return 0;
	}
	memcpy(buf, seeds[i], strlen(seeds[i]));
	return strlen(seeds[i]);
}
