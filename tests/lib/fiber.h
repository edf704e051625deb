/* Functions that take turns on one thread: one runs until it pauses, and goes on when it is
 * resumed. For simulations whose parts are written as if each had a thread of its own. */
#ifndef TEST_FIBER_H
#define TEST_FIBER_H

#include <stdbool.h>

struct fiber;

/* Not begun yet. */
struct fiber *fiber_open(void (*run)(void *user), void *user);
/* Not from within one. Returns when it pauses, or has ended: true. */
bool fiber_resume(struct fiber *fiber);
/* From within one. */
void fiber_pause(void);
bool fiber_runs(void);                 /* whether this is within one */
void fiber_close(struct fiber *fiber); /* one that has ended, or was never resumed */

#endif
