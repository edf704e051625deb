/* A loop over independent pieces of work on all cores that this process may use: for restores, when
 * nothing else runs yet. */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

#define PARALLEL_THREADS_MAX 8u /* with more, memory bandwidth is the limit */

/* Returns the number of cores that this process may use, at least 1. */
unsigned parallel_cores(void);
/*
 * Calls each(user, i) once for every i below n, from several threads at a time, the caller's among
 * them, and returns when all have returned. If no thread can be started, the caller does all the
 * work alone. The order is undefined.
 */
void parallel_for(size_t n, void (*each)(void *user, size_t i), void *user);
/* Returns the least i below n for which test(user, i) is true; n: there is none. Tests all of
 * them. */
size_t parallel_find(size_t n, bool (*test)(void *user, size_t i), void *user);

#endif
