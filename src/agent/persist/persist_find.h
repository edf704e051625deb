/* Finds the tag of the store that a restore takes. A part of the storage thread: see
 * persist.h. */
#ifndef AGENT_PERSIST_PERSIST_FIND_H
#define AGENT_PERSIST_PERSIST_FIND_H

#include <stdbool.h>

struct alerts;
struct persist_job;
struct tags_root;
struct tags_stop;

struct finding {
	struct tags_root *root;
	const struct tags_stop *stop; /* asked between tags */
	struct alerts *alerts;        /* gets an alert for each tag that was skipped */
	bool puts_aside;              /* puts damaged tags aside; false: the leader does */
};

/* Carries out a job of kind PERSIST_RESOLVE: fills its result, and returns what becomes its rv. On
 * the storage thread. */
int persist_find(const struct finding *finding, struct persist_job *job);

#endif
