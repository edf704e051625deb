/* The armed fault and the count of its points: see fault.h.
 *
 * A mutex guards the plan: points are passed by any thread, and only while a test has armed one. It
 * is a leaf: nothing is called under it. */
#include "base/fault.h"

#include "base/assert.h"
#include "base/log.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FAULT_POINT_MAX   64u /* bytes of a point's name, terminator included */
#define FAULT_SYS_DEFAULT EIO /* errno to fail with where PAWL_FAULT names none */

/* The armed plan. */
struct fault_plan {
	char point[FAULT_POINT_MAX]; /* prefix of the names of points that count */
	uint64_t nth;                /* the passing that fails, from 1 */
	uint64_t passed;             /* passings since arming */
	int sys;                     /* errno to fail with, FAULT_DIES or FAULT_STOPS */
	bool forever;                /* all passings after the nth fail, too */
};

atomic_bool fault_armed;

static pthread_mutex_t plan_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards plan */
static struct fault_plan plan;

void fault_arm(const char *point, uint64_t nth, int sys, bool forever)
{
	ASSERT(nth > 0 && strlen(point) < FAULT_POINT_MAX);
	pthread_mutex_lock(&plan_mutex);
	plan = (struct fault_plan){.nth = nth, .sys = sys, .forever = forever};
	snprintf(plan.point, sizeof(plan.point), "%s", point);
	pthread_mutex_unlock(&plan_mutex);
	atomic_store(&fault_armed, true);
}

void fault_disarm(void)
{
	atomic_store(&fault_armed, false);
}

uint64_t fault_count(void)
{
	uint64_t passed;

	pthread_mutex_lock(&plan_mutex);
	passed = plan.passed;
	pthread_mutex_unlock(&plan_mutex);
	return passed;
}

int fault_check(const char *point)
{
	int sys = 0;

	pthread_mutex_lock(&plan_mutex);
	if (strncmp(point, plan.point, strlen(plan.point)) == 0) {
		plan.passed++;
		if (plan.passed == plan.nth || (plan.forever && plan.passed > plan.nth)) {
			sys = plan.sys;
		}
	}
	pthread_mutex_unlock(&plan_mutex);
	if (sys == FAULT_DIES) { /* ends at once, whatever a sanitizer does in _exit */
		syscall(SYS_exit_group, FAULT_EXIT);
	}
	if (sys == FAULT_STOPS) {
		raise(SIGSTOP);
		return 0;
	}
	return sys;
}

/* Arms the plan of PAWL_FAULT="point:nth[:errno[:forever]]", errno a number, -1 for a crash, -2 to
 * be stopped. */
__attribute__((constructor)) static void arm_from_env(void)
{
	const char *text = getenv("PAWL_FAULT");
	char point[FAULT_POINT_MAX];
	unsigned long long nth;
	int sys = FAULT_SYS_DEFAULT;
	int forever = 0;

	if (text == NULL) {
		return;
	}
	if (sscanf(text, "%63[^:]:%llu:%d:%d", point, &nth, &sys, &forever) < 2 || nth == 0) {
		log_line(LOG_ERROR, "PAWL_FAULT=%s is not point:nth[:errno[:forever]]; ignored",
			text);
		return;
	}
	fault_arm(point, nth, sys, forever != 0);
}
