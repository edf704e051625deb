/* A policy of the tests: equal shares, who runs stays where it is; and ways to be wrong. */
#ifndef TEST_EQUAL_H
#define TEST_EQUAL_H

#include "sched/policy.h"

/* What it does wrong, in its next decision and those after. */
enum equal_wrong {
	EQUAL_RIGHT,
	EQUAL_TOO_MANY,  /* more slots of a node than it has */
	EQUAL_BELOW,     /* fewer replicas than the least */
	EQUAL_ABOVE,     /* more than the most */
	EQUAL_NOWHERE,   /* a node that there is not */
	EQUAL_MOVES,     /* what is pinned */
	EQUAL_FORGETS,   /* the last job, though there is room */
	EQUAL_NO_MEMORY, /* PAWL_ENOMEM */
};

extern enum equal_wrong equal_wrong;
extern uint32_t equal_decisions; /* so far */
extern const struct sched_policy equal_policy;

#endif
