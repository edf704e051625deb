/* Lets each call that has a fault point (base/fault.h) fail in turn, until none is left. */
#ifndef TEST_EACH_FAULT_H
#define TEST_EACH_FAULT_H

#include "base/assert.h"
#include "base/fault.h"

/*
 *   for (uint64_t nth = 1; each_fault(nth); nth++) {
 *           fault_arm("point.", nth, ENOMEM, false);
 *           rv = what_is_tested();
 *           fault_disarm();
 *           assert_true(rv == 0 || fault_reached(nth));
 *   }
 *
 * ends with the first round in which nothing failed. rv does not tell which that is, since a
 * failure may be survived.
 */

#define EACH_FAULT_MAX 100000u /* rounds; a test that needs more is aborted */

/* Returns whether the fault that was armed last, the nth, has been reached. */
static inline bool fault_reached(uint64_t nth)
{
	return fault_count() >= nth;
}

/* Returns whether there is an nth round: it is the first, or the one before has reached its
 * fault. */
static inline bool each_fault(uint64_t nth)
{
	ASSERT(nth < EACH_FAULT_MAX);
	return nth == 1 || fault_reached(nth - 1);
}

#endif
