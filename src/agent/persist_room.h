/*
 * Whether the store of a root has room for a checkpoint. Looked at before one is written, so that a
 * full disk is known while training goes on, and told with what a write failed for. The storage
 * thread's: a file system that hangs holds up whoever asks.
 */
#ifndef AGENT_PERSIST_ROOM_H
#define AGENT_PERSIST_ROOM_H

#include <stdint.h>

struct pawl_err;

/* 0; PAWL_ENOSPC, and err says how many bytes are needed and free; or why nothing can be written
 * there (read-only, no permission). What cannot be told counts as room. */
int persist_room_look(const char *root, uint64_t need_bytes, struct pawl_err *err);
/* Adds to an error that says that no space is left how much is needed, and free. */
void persist_room_explain(const char *root, uint64_t need_bytes, struct pawl_err *err);

#endif
