/* The clocks of the shells. Pure modules take the time as an argument and include nothing of
 * this. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

#define NS_PER_MS 1000000LL
#define NS_PER_S  1000000000LL

int64_t clock_mono_ns(void); /* CLOCK_MONOTONIC: for every timeout and duration */
int64_t clock_wall_ns(void); /* CLOCK_REALTIME since 1970: for people and records only */
int64_t clock_boot_ns(void); /* CLOCK_BOOTTIME: as the first, and all processes of a boot agree */
/* A condition variable whose timed waits go by CLOCK_MONOTONIC. */
void clock_cond_init(pthread_cond_t *cond);

#endif
