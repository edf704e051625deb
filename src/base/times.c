/* The table of waiting times, filled once from its defaults and from the environment: see
 * times.h. */
#include "base/times.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECONDS_MAX 1e9 /* limit that keeps the sum of a time and a clock from overflowing */
#define SCALE_MAX   1e6 /* limit that keeps the product of a scale and a default from overflowing */
#define EXIT_BAD    2   /* exit status where the table cannot be read */

static const struct {
	const char *name;
	int64_t ns;
} defaults[TIMES_N] = {
#define X(name, text, ns, seen, what) [TIME_##name] = {text, ns},
	TIMES(X)
#undef X
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int64_t table[TIMES_N]; /* times in ns; written once */

/* Finds the row of a name of len bytes. Returns TIMES_N for "scale", -1 for an unknown name. */
static int find_name(const char *item, size_t len)
{
	for (int i = 0; i < TIMES_N; i++) {
		if (strlen(defaults[i].name) == len && memcmp(defaults[i].name, item, len) == 0) {
			return i;
		}
	}
	return len == strlen("scale") && memcmp(item, "scale", len) == 0 ? TIMES_N : -1;
}

/* Reads one item, which ends before end. */
static int read_item(const char *item, const char *end, double overrides[TIMES_N + 1],
	struct pawl_err *err)
{
	const char *sign = memchr(item, '=', (size_t)(end - item));
	int name = find_name(item, (size_t)((sign ? sign : end) - item));
	char *stop = NULL;
	double value = sign ? strtod(sign + 1, &stop) : 0;

	if (name < 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			TIMES_ENV ": %.*s: there is no time of this name",
			(int)((sign ? sign : end) - item), item);
	}
	if (!sign || stop == sign + 1 || stop != end ||
		!(value > 0 && value <= (name == TIMES_N ? SCALE_MAX : SECONDS_MAX))) {
		return pawl_err_set(err, PAWL_EINVAL,
			TIMES_ENV ": %.*s: not a positive number of at most %.0e",
			(int)(end - item), item, name == TIMES_N ? SCALE_MAX : SECONDS_MAX);
	}
	overrides[name] = value;
	return 0;
}

static int64_t at_least_one(double ns)
{
	return ns >= 1 ? (int64_t)ns : 1;
}

int times_read(const char *text, int64_t ns[TIMES_N], struct pawl_err *err)
{
	double overrides[TIMES_N + 1] = {0}; /* seconds by row, and scale; 0: not given */
	const char *item = text;

	while (item && *text != '\0') {
		const char *end = item + strcspn(item, ",");
		int rv = read_item(item, end, overrides, err);

		if (rv != 0) {
			return rv;
		}
		item = *end == ',' ? end + 1 : NULL;
	}
	for (int i = 0; i < TIMES_N; i++) {
		ns[i] = overrides[i] > 0 ? at_least_one(overrides[i] * NS_PER_S)
			: overrides[TIMES_N] > 0
			? at_least_one((double)defaults[i].ns * overrides[TIMES_N])
			: defaults[i].ns;
		ASSERT(ns[i] > 0); /* a timer of 0 is none */
	}
	return 0;
}

static void fill(void)
{
	struct pawl_err err;

	if (times_read(getenv(TIMES_ENV), table, &err) != 0) {
		log_line(LOG_ERROR, "%s", err.msg);
		_exit(EXIT_BAD);
	}
}

enum times_name times_find(const char *name)
{
	int found = find_name(name, strlen(name));

	return found < 0 ? TIMES_N : (enum times_name)found;
}

int64_t times_ns(enum times_name name)
{
	ASSERT((unsigned)name < TIMES_N);
	pthread_once(&once, fill);
	return table[name];
}

int times_ms(enum times_name name)
{
	int64_t ms = (times_ns(name) + NS_PER_MS - 1) / NS_PER_MS;

	return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

unsigned times_s(enum times_name name)
{
	return (unsigned)((times_ns(name) + NS_PER_S - 1) / NS_PER_S);
}

struct timeval times_timeval(enum times_name name)
{
	int64_t us = (times_ns(name) + NS_PER_MS / 1000 - 1) / (NS_PER_MS / 1000);

	return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

void times_sleep(enum times_name name)
{
	int64_t ns = times_ns(name);
	struct timespec pause = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};

	nanosleep(&pause, NULL);
}
