/* The clocks. Pure modules take the time as an argument and do not include this header. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include "base/units.h"

#include <pthread.h>
#include <stdint.h>

int64_t clock_mono_ns(void); /* CLOCK_MONOTONIC: for every timeout and duration */
int64_t clock_wall_ns(void); /* CLOCK_REALTIME since 1970: for display and records only */
/* CLOCK_BOOTTIME: monotonic, too, and the same for all processes of one boot. */
int64_t clock_boot_ns(void);
/* Returns the time that is span_ns after now_ns, which is not negative. INT64_MAX, which never
 * comes, if that is later than an int64_t can say. */
int64_t clock_add_ns(int64_t now_ns, int64_t span_ns);
/* Converts seconds to ns: 0 for less than 0 and for no number, INT64_MAX (292 years) for more. */
int64_t clock_ns_of(double s);
/* Initializes a condition variable whose timed waits use CLOCK_MONOTONIC. */
void clock_cond_init(pthread_cond_t *cond);

#endif
