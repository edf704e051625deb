/* The clocks. Pure modules take the time as an argument and do not include this header. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

#define NS_PER_MS 1000000LL
#define NS_PER_S  1000000000LL

int64_t clock_mono_ns(void); /* CLOCK_MONOTONIC: for every timeout and duration */
int64_t clock_wall_ns(void); /* CLOCK_REALTIME since 1970: for display and records only */
/* CLOCK_BOOTTIME: monotonic, too, and the same for all processes of one boot. */
int64_t clock_boot_ns(void);
/* Initializes a condition variable whose timed waits use CLOCK_MONOTONIC. */
void clock_cond_init(pthread_cond_t *cond);

#endif
