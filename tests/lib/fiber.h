/* Functions that take turns on one thread: each runs until it pauses, and goes on when it is
 * resumed. For simulations whose parts are written as if each had a thread of its own. */
#ifndef TEST_FIBER_H
#define TEST_FIBER_H

#include <stdbool.h>

struct fiber;

/* Makes a fiber, which does not run yet. */
struct fiber *fiber_open(void (*run)(void *user), void *user);
/* Runs a fiber until it pauses or ends; returns whether it has ended. Not from within a fiber. */
bool fiber_resume(struct fiber *fiber);
/* Pauses the fiber that calls it. */
void fiber_pause(void);
bool fiber_runs(void);                 /* whether the caller runs in a fiber */
void fiber_close(struct fiber *fiber); /* the fiber has ended, or was never resumed */

#endif
