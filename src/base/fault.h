/*
 * Fault points: every call of ours that can fail for outside reasons is named, so that a test can
 * make the n-th one fail, once or for good. Without an armed plan a point costs one load and a
 * predictable branch. Also armed from the environment, PAWL_FAULT="point:nth[:errno[:forever]]" in
 * numbers ("store.sync:3:28:1"), so that whole processes can be tested. Any thread.
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

/* Arms a plan: the nth time (from 1) that a point is passed whose name begins with point ("": any
 * point), the point fails with sys. forever: so do all passings after the nth. */
void fault_arm(const char *point, uint64_t nth, int sys, bool forever);
void fault_disarm(void);
/* Returns how often matching points were passed since arming: for loops that fail the n-th call,
 * for all n. */
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
