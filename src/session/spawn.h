/* Starts an agent for a plain script: a process of its own session that outlives the script where
 * the system lets it. */
#ifndef SESSION_SPAWN_H
#define SESSION_SPAWN_H

#include <stddef.h>

struct pawl_err;

/* Starts `program agent --job job --socket socket`, with no descriptor of ours but /dev/null. Does
 * not wait for it to listen. */
int spawn_agent(const char *program, const char *job, const char *socket, struct pawl_err *err);
/* Returns why an agent cannot be relied on to outlive this process here (static string), or
 * NULL. */
const char *spawn_why_not_detached(void);

#endif
