/*
 * Fault points: every call of ours that can fail for external reasons has a name, so that a test
 * can make the n-th call fail, once or from then on. Without an armed plan a point costs one load
 * and a predictable branch. To test whole processes, the environment can arm a plan, too:
 * PAWL_FAULT="point:nth[:errno[:forever]]" in numbers ("store.sync:3:28:1"). A whole store that
 * misbehaves is store/fault.h. Any thread.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULT_DIES  (-1) /* in place of an errno: the process ends here, with FAULT_EXIT */
#define FAULT_STOPS (-2) /* the process stops here, as by SIGSTOP, until SIGCONT */
#define FAULT_EXIT  99

extern atomic_bool fault_armed; /* read by the macro only */

/* Arms a plan: among the passes of points whose names begin with point ("": any point), the nth
 * (from 1) fails with sys. forever: all later passes fail, too. */
void fault_arm(const char *point, uint64_t nth, int sys, bool forever);
void fault_disarm(void);
/* Returns how often matching points were passed since arming, for tests that fail each call in
 * turn. */
uint64_t fault_count(void);
/* Used by the macros. Returns 0 or the errno to fail with. FAULT_DIES and FAULT_STOPS take effect
 * here; after FAULT_STOPS 0 is returned. */
int fault_check(const char *point);

/* Evaluates call unless the point fails; then sets errno and yields -1. */
#define FAULT_SYS(point, call)                                                                     \
	((fault_armed && (errno = fault_check(point)) != 0) ? (__typeof__(call))-1 : (call))
/* Evaluates an allocation unless the point fails; then sets errno and yields NULL. */
#define FAULT_MEM(point, call)                                                                     \
	((fault_armed && (errno = fault_check(point)) != 0) ? (__typeof__(call))0 : (call))
/* Marks a place where a process may be made to crash. */
#define FAULT_CRASH(point) ((void)(fault_armed && fault_check(point) != 0))

#endif
