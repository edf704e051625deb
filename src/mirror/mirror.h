/*
 * pawl mirror: keeps a directory, to which a foreign program writes its checkpoints, in a bucket.
 * core.h has the states, start.h what is fetched first, docs/mirror.md what is promised.
 *
 * Threads: the loop (this), one that ships (uplink.h), one that releases leases (lease.h), and at
 * first one that fetches older units (behind.h). Whatever waits for the network is not on the loop.
 */
#ifndef MIRROR_MIRROR_H
#define MIRROR_MIRROR_H

#include "mirror/units.h"

#include <stdint.h>

struct msg_request;
struct msg_status;
struct pawl_err;

struct mirror_options {
	const char *dir;          /* directory to mirror */
	const char *bucket;       /* address of a bucket */
	char *const *program;     /* program and its arguments, which NULL ends; NULL: none */
	struct unit_globs globs;  /* more names of units */
	const char *job;          /* name of the job in the manifests; NULL: the directory's name */
	int64_t quiet_ns;         /* see core_options */
	int64_t grace_ns;         /* after a signal to end: end by then */
	uint64_t local_max_bytes; /* see core_options */
	uint32_t keep_remote;     /* see core_options */
	uint32_t fetch_max;       /* units of each group that are fetched at start; 0: all */
	bool fetch_only;          /* nothing is written to the bucket: see mirror_run */
};

/* Runs until the program has ended and what can be shipped is shipped; without a program, until a
 * signal to end. *code: exit code of the program, or of the mirror. An error: the program was not
 * started. With fetch_only: fetches the newest units and all other files, and then executes the
 * program in this process; without one, returns. */
int mirror_run(const struct mirror_options *options, int *code, struct pawl_err *err);

/* Sends a request to the mirror of a directory, and gets the answer, which the caller frees by
 * msg_status_deinit. PAWL_ENOENT: no mirror runs for it. */
int mirror_ask(const char *dir, const struct msg_request *request, struct msg_status *status,
	struct pawl_err *err);

#endif
