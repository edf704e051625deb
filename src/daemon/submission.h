/*
 * What a user submits: a job file, and what was said beside it. It travels from `pawl submit` to
 * the scheduler, is stored with the job, and travels on to the process that keeps the job running;
 * each of them reads the job file anew, so there is one meaning of it.
 */
#ifndef DAEMON_SUBMISSION_H
#define DAEMON_SUBMISSION_H

#include "base/wire.h"
#include "sched/jobfile.h"

#include <limits.h>

#define SUBMISSION_VERSION   1u
#define SUBMISSION_VARS_MAX  256u
#define SUBMISSION_WORDS_MAX 4096u      /* of a command */
#define SUBMISSION_ENV_MAX   64u        /* variables of the submitter that go along */
#define SUBMISSION_BYTES_MAX (2u << 20) /* of all of it */

/* Of one that was decoded, all strings are in pool; of one that is encoded, the caller's. */
struct submission {
	int64_t wall_ns;        /* when it was submitted; set by the scheduler */
	const char *cwd;        /* of the submitter, absolute */
	const char *file;       /* the job file's text */
	uint32_t len_bytes;     /* of it */
	const char *name;       /* NULL: as the file has it */
	struct sched_var *vars; /* beside the file's */
	uint32_t vars_n;
	const char **words; /* "$@" of the file's run; NULL: none */
	uint32_t words_n;
	const char **env; /* "NAME=value" of the submitter's environment */
	uint32_t env_n;
	struct pool pool; /* owned */
};

void submission_encode(struct wire_out *out, const struct submission *submission);
/* bytes need not outlive it. PAWL_EINVAL, PAWL_ENOMEM: it is empty then. */
int submission_decode(struct submission *submission, const void *bytes, size_t len_bytes,
	struct pawl_err *err);
void submission_deinit(struct submission *submission);

/* A path of the user's: from / on, from ~ on where that is their home, else from where it was
 * submitted. PAWL_EINVAL: it is too long. */
int submission_path(const char *home, const char *cwd, const char *path, char full[PATH_MAX],
	struct pawl_err *err);

struct sched_mount;

/* Both paths of a mount, likewise; an NFS's is as it is. */
int submission_mount(const char *home, const char *cwd, const struct sched_mount *mount,
	char at[PATH_MAX], char from[PATH_MAX], struct pawl_err *err);

/* The job that it describes: see jobfile_decode. */
int submission_spec(const struct submission *submission, struct sched_spec *spec,
	struct remarks *remarks, struct pawl_err *err);
/* Whether it, or what may do in its place, says disk_tier: best. */
bool submission_wants_scratch(const struct sched_spec *spec);

#endif
