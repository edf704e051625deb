/* A policy for tests: equal shares, where running jobs stay in place; and ways to go wrong. */
#ifndef TEST_EQUAL_H
#define TEST_EQUAL_H

#include "sched/policy/policy.h"

/* The error of its next decision, and of those after. */
enum equal_wrong {
	EQUAL_RIGHT,
	EQUAL_TOO_MANY,  /* uses more slots of a node than it has */
	EQUAL_BELOW,     /* grants fewer replicas than the least */
	EQUAL_ABOVE,     /* grants more replicas than the most */
	EQUAL_NOWHERE,   /* uses a node that does not exist */
	EQUAL_MOVES,     /* moves a pinned job */
	EQUAL_FORGETS,   /* forgets the last job, though there is room */
	EQUAL_NO_MEMORY, /* returns PAWL_ENOMEM */
};

extern enum equal_wrong equal_wrong;
extern uint32_t equal_decisions; /* decisions so far */
extern const struct sched_policy equal_policy;

#endif
