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

void clock_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}
