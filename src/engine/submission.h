/*
 * What a user submits: a job file, and what the command line says beside it. It travels from `pawl
 * submit` to the scheduler, is stored with the job, and travels on to the process that keeps the
 * job running; each of them reads the job file anew, so there is one meaning of it.
 */
#ifndef ENGINE_SUBMISSION_H
#define ENGINE_SUBMISSION_H

#include "base/wire.h"
#include "sched/jobfile/jobfile.h"

#include <limits.h>

#define SUBMISSION_VERSION   1u
#define SUBMISSION_VARS_MAX  256u
#define SUBMISSION_ARGS_MAX  4096u      /* words of a command, at most */
#define SUBMISSION_ENV_MAX   64u        /* variables of the submitter that go along */
#define SUBMISSION_BYTES_MAX (2u << 20) /* bytes of a whole submission, at most */

/* A submission. After decoding all strings are in pool; before encoding they are the caller's. */
struct submission {
	int64_t wall_ns;        /* wall-clock time of the submission; set by the scheduler */
	const char *cwd;        /* directory of the submitter, absolute */
	const char *file;       /* the job file's text */
	uint32_t len_bytes;     /* bytes of file */
	const char *name;       /* name of the job; NULL: as the file has it */
	struct sched_var *vars; /* variables beside the file's */
	uint32_t vars_n;
	const char **args; /* "$@" of the file's run; NULL: none */
	uint32_t args_n;
	const char **env; /* "NAME=value" of the submitter's environment */
	uint32_t env_n;
	struct sched_arena arena; /* owned */
};

void submission_encode(struct wire_out *out, const struct submission *submission);
/* Decodes a submission; bytes need not outlive it. PAWL_EINVAL, PAWL_ENOMEM: the submission is
 * empty then. */
int submission_decode(struct submission *submission, const void *bytes, size_t len_bytes,
	struct pawl_err *err);
void submission_deinit(struct submission *submission);

/* Completes a path of the user's: from / on, from ~ on where that is the user's home, else from the
 * directory that the job was submitted in. PAWL_EINVAL: it is too long. */
int submission_path(const char *home, const char *cwd, const char *path, char full[PATH_MAX],
	struct pawl_err *err);

struct sched_mount;

/* Completes both paths of a mount, as submission_path does; the source of an NFS mount stays as it
 * is. */
int submission_mount(const char *home, const char *cwd, const struct sched_mount *mount,
	char at[PATH_MAX], char from[PATH_MAX], struct pawl_err *err);

/* Reads the job that a submission describes: see jobfile_decode. */
int submission_spec(const struct submission *submission, struct sched_spec *spec,
	struct remarks *remarks, struct pawl_err *err);
/* Returns whether the job, in any of its choices, says disk_tier: best. */
bool submission_wants_scratch(const struct sched_spec *spec);

#endif
