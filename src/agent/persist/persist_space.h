/*
 * Checks whether the store of a root has space for a checkpoint: before a write, so that a full
 * disk is reported while training goes on; after a failed write, to explain the error. For the
 * storage thread: a file system that hangs blocks the caller.
 */
#ifndef AGENT_PERSIST_PERSIST_SPACE_H
#define AGENT_PERSIST_PERSIST_SPACE_H

#include <stdint.h>

struct pawl_err;

/* Returns 0; PAWL_ENOSPC, and err says how many bytes are needed and free; or another error if
 * nothing can be written there (read-only, no permission). Returns 0 also if the free space is
 * unknown. */
int persist_space_check(const char *root, uint64_t need_bytes, struct pawl_err *err);
/* Adds the bytes needed and free to an error that says that no space is left. */
void persist_space_explain(const char *root, uint64_t need_bytes, struct pawl_err *err);

#endif
