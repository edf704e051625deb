/* Finds where the agent of a job listens. */
#ifndef IPC_SOCKET_PATH_H
#define IPC_SOCKET_PATH_H

#include "pawl/err.h"

#include <stddef.h>

/* Finds the socket of a job: <hash>.sock, in the first of these directories that can be made and
 * that only this user can access: $XDG_RUNTIME_DIR/pawl, /tmp/pawl-<uid>, /dev/shm/pawl-<uid>. All
 * processes of a user on a host find the same one, unless their XDG_RUNTIME_DIR differs.
 * PAWL_EBUSY: there is no such directory; err says why for each. Any thread. */
int agent_socket_path(const char *job, char *buf, size_t cap_bytes, struct pawl_err *err);

#endif
