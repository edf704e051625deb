/*
 * Whether the store of a root has room for a checkpoint. The room is checked before one is written,
 * so that a full disk is known while training goes on, and told with the error of a write that
 * failed. For the storage thread: a file system that hangs holds up the caller.
 */
#ifndef AGENT_PERSIST_PERSIST_SPACE_H
#define AGENT_PERSIST_PERSIST_SPACE_H

#include <stdint.h>

struct pawl_err;

/* Returns 0; PAWL_ENOSPC, and err says how many bytes are needed and free; or another error if
 * nothing can be written there (read-only, no permission). If the room cannot be determined, there
 * is enough. */
int persist_space_check(const char *root, uint64_t need_bytes, struct pawl_err *err);
/* Adds the bytes needed and free to an error that says that no space is left. */
void persist_space_explain(const char *root, uint64_t need_bytes, struct pawl_err *err);

#endif
