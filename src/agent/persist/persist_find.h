/* Finds the tag of the store that a restore takes: a part of the storage thread, see storage_thread.h. */
#ifndef AGENT_PERSIST_PERSIST_FIND_H
#define AGENT_PERSIST_PERSIST_FIND_H

#include <stdbool.h>

struct alerts;
struct persist_job;
struct store;
struct tags_stop;

struct finding {
	struct store *store;
	const struct tags_stop *stop; /* asked between tags */
	struct alerts *alerts;        /* is told of the tags that were passed by */
	bool puts_aside; /* damaged tags are put aside here; false: by the host that leads */
};

/* Carries out a job of kind PERSIST_RESOLVE: returns and fills what storage_thread.h says. On the storage
 * thread. */
int persist_find(const struct finding *finding, struct persist_job *job);

#endif
