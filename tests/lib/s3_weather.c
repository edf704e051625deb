/* Ways in which requests go wrong: see s3_weather.h. */
#include "s3_weather.h"

#include <stddef.h>
#include <string.h>

static const struct s3_weather_way ways[] = {
	{"error", {.kind = S3_ANSWER, .status = 500, .code = "InternalError"}},
	{"gateway", {.kind = S3_ANSWER, .status = 502, .text = "<html>bad gateway</html>"}},
	{"slow_down", {.kind = S3_ANSWER, .status = 503, .code = "SlowDown"}},
	{"retry_after", {.kind = S3_ANSWER, .status = 503, .headers = "Retry-After: 0\r\n"}},
	{"too_many", {.kind = S3_ANSWER, .status = 429}},
	{"page", {.kind = S3_ANSWER, .status = 200, .text = "<html><body>log in</body></html>"}},
	{"error_200", {.kind = S3_ANSWER, .status = 200, .code = "InternalError"}},
	{"reset_early", {.kind = S3_RESET_REQUEST, .n = 3}},
	{"reset_late", {.kind = S3_RESET_REQUEST, .n = 5000}},
	{"lose", {.kind = S3_LOSE}},
	{"torn_early", {.kind = S3_RESET_ANSWER, .n = 10}},
	{"torn_late", {.kind = S3_RESET_ANSWER, .n = 100000}},
	{"short", {.kind = S3_TRUNCATE, .n = 1}},
	{"end", {.kind = S3_TRUNCATE, .n = 0}},
	{"long", {.kind = S3_LONGER, .n = 10}},
	{"shift", {.kind = S3_SHIFT_RANGE, .n = 1}},
	{"no_etag", {.kind = S3_NO_ETAG}},
	{"flip_request", {.kind = S3_FLIP_REQUEST, .n = 2}},
	{"huge", {.kind = S3_HUGE_BODY, .status = 500, .n = 1000000}},
	{"continue", {.kind = S3_CONTINUE, .n = 5}},
	{"blanks", {.kind = S3_BLANKS, .n = 3}},
	{"zipped", {.kind = S3_FINE, .headers = "Content-Encoding: gzip\r\n"}},
	{"stall", {.kind = S3_STALL}, .named_only = true},
	{"slow", {.kind = S3_SLOW, .n = 100}, .named_only = true},
	{"flip_answer", {.kind = S3_FLIP_ANSWER, .n = 2}, .named_only = true},
};

#define WAYS_N (sizeof(ways) / sizeof(ways[0]))

const struct s3_weather_way *s3_weather_way(unsigned i)
{
	return i < WAYS_N ? &ways[i] : NULL;
}

const struct s3_weather_way *s3_weather_find(const char *name)
{
	for (unsigned i = 0; i < WAYS_N; i++) {
		if (strcmp(ways[i].name, name) == 0) {
			return &ways[i];
		}
	}
	return NULL;
}

/* Returns whether the client of a request can notice the fault. */
static bool is_noticed(const struct s3_ask *ask, const struct s3_fault *fault)
{
	bool is_silent = ask->kind == S3_DELETE || ask->kind == S3_ABORT;
	bool takes_blanks = ask->kind == S3_COMPLETE || ask->kind == S3_LIST;
	/* Files of checkpoints: a manifest has the sums of all their bytes. */
	bool has_sums = ask->kind == S3_GET && strstr(ask->path, "/save-") != NULL;

	switch (fault->kind) {
	case S3_ANSWER:
		return fault->status != 200 || !is_silent;
	case S3_BLANKS:
		return takes_blanks;
	case S3_FLIP_ANSWER:
		return has_sums;
	default:
		return true;
	}
}

void s3_weather_blow(void *user, const struct s3_ask *ask, struct s3_fault *fault)
{
	struct s3_weather *weather = user;
	const struct s3_weather_way *way = weather->way;

	while (way == NULL || (weather->way == NULL && way->named_only)) {
		way = &ways[rng_below(&weather->rng, WAYS_N)];
	}
	if (rng_below(&weather->rng, 100) < weather->percent && is_noticed(ask, &way->fault)) {
		*fault = way->fault;
	}
}
