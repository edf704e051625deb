/* The buckets among the file_mounts of a job: command lines of `pawl mirror` before the job's
 * own. */
#ifndef ENGINE_MIRRORS_H
#define ENGINE_MIRRORS_H

#include "sched/jobfile/spec.h"

struct pawl_err;
struct wire_out;

/* What command lines need to know of the job's node. */
struct mirrors_node {
	const char *pawl; /* path of the program there */
	const char *home; /* home directory of the job's user */
	int64_t grace_ns; /* time from SIGTERM to the end of the job */
};

/* Returns whether a mount is a bucket, rather than something to link to. */
bool mirrors_is_bucket(const struct sched_mount *mount);
/* Appends to a list of strings, for each bucket of the job, "PAWL mirror OPTIONS DIR ADDRESS --":
 * the command of the job's run stands behind all of them, or that of its setup, for which buckets
 * are only fetched. PAWL_EINVAL: a path is too long; PAWL_ENOMEM. */
int mirrors_put(struct wire_out *list, const struct mirrors_node *node,
	const struct sched_spec *spec, bool setup, struct pawl_err *err);

#endif
