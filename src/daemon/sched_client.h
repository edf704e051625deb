/* The commands' end of the scheduler's socket: where the scheduler is, and requests to it. */
#ifndef DAEMON_SCHED_CLIENT_H
#define DAEMON_SCHED_CLIENT_H

#include "daemon/sched_msg.h"

struct pawl_err;

#define SCHED_SYSTEM_ROOT "/var/lib/pawl" /* directory of a scheduler that is root's */
#define SCHED_ROOT_VAR    "PAWL_SCHED_ROOT"

/* Finds the scheduler's directory: given (NULL: not given), else PAWL_SCHED_ROOT, else this user's
 * own if there is a socket in it, else the system's. PAWL_EINVAL: too long, or no home. */
int sched_find_root(const char *given, char root[PATH_MAX], struct pawl_err *err);
/* Finds this user's own directory: root's is the system's. */
int sched_user_root(char root[PATH_MAX], struct pawl_err *err);

/* A connection to the scheduler. One thread at a time uses it. */
struct sched_client;

/* Connects to the scheduler in root. PAWL_ENOENT: no scheduler runs there; PAWL_EIO: this user may
 * not connect to it. */
int sched_client_open(struct sched_client **out, const char *root, struct pawl_err *err);
void sched_client_close(struct sched_client *client); /* NULL is fine */
/* Finds the user that runs the scheduler, as the kernel reports it. PAWL_EIO. */
int sched_client_peer_uid(const struct sched_client *client, uint32_t *uid, struct pawl_err *err);
/* Sends a request and waits for its reply, which must be of type wanted. request: see
 * sched_msg_encode; reply: see sched_msg_decode, its blobs and rows are valid until the next call.
 * If the scheduler refuses, its error is returned. PAWL_EPEER, PAWL_ETIMEDOUT; PAWL_ECORRUPT: the
 * reply is malformed. */
int sched_client_call(struct sched_client *client, enum sched_msg_type type, const void *request,
	enum sched_msg_type wanted, void *reply, size_t reply_bytes, struct pawl_err *err);

#endif
