/* Starts an agent for a plain script, as a process of its own session. It outlives the script where
 * the system allows that. */
#ifndef SESSION_SPAWN_H
#define SESSION_SPAWN_H

#include <stddef.h>

struct pawl_err;

/* Starts `program agent --job job --socket socket`, with /dev/null as descriptors 0 to 2 and no
 * others. Does not wait for it to listen. */
int spawn_agent(const char *program, const char *job, const char *socket, struct pawl_err *err);
/* Returns why an agent may end with this process (static string), or NULL. */
const char *spawn_why_not_detached(void);

#endif
