/* The clocks: see clock.h. */
#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts); /* cannot fail for these ids */
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t clock_mono_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_wall_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

int64_t clock_boot_ns(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

int64_t clock_add_ns(int64_t now_ns, int64_t span_ns)
{
	return span_ns < INT64_MAX - now_ns ? now_ns + span_ns : INT64_MAX;
}

int64_t clock_ns_of(double s)
{
	double ns = s * NS_PER_S;

	if (!(ns > 0)) {
		return 0;
	}
	return ns < (double)INT64_MAX /* 2^63 */ ? (int64_t)ns : INT64_MAX;
}

void clock_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}
