/* Times of one core that a benchmark in C takes of a case, and the line that it prints of them. */
#ifndef SHARED_CPU_TIMES_H
#define SHARED_CPU_TIMES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CPU_TIMES_MAX 21 /* times taken of each case */

/* Returns the CPU time of this thread: other load on the machine does not count. */
static inline int64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline double cpu_ms_since(int64_t begin_ns)
{
	return (double)(cpu_ns() - begin_ns) / 1e6;
}

static inline int cpu_times_compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Prints what was measured, its n sizes, median and longest of CPU_TIMES_MAX milliseconds, and a
 * gap; no line end. Sorts the times. */
static inline void cpu_times_print(const char *what, const uint32_t *sizes, size_t n, double *ms,
	double gap)
{
	qsort(ms, CPU_TIMES_MAX, sizeof(*ms), cpu_times_compare);
	printf("%s", what);
	for (size_t i = 0; i < n; i++) {
		printf(" %u", sizes[i]);
	}
	printf(" %.3f %.3f %.3g", ms[CPU_TIMES_MAX / 2], ms[CPU_TIMES_MAX - 1], gap);
}

#endif
