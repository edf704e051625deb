/*
 * What a user submits: a job file, and what the command line adds to it. `pawl submit` sends it to
 * the scheduler, which stores it with the job and passes it to the job's shepherd or pilots. Each
 * of them parses the job file itself with the same parser, so all agree on its meaning.
 */
#ifndef ENGINE_SUBMISSION_H
#define ENGINE_SUBMISSION_H

#include "base/wire.h"
#include "sched/jobfile/jobfile.h"

#include <limits.h>

#define SUBMISSION_VERSION   1u
#define SUBMISSION_VARS_MAX  256u
#define SUBMISSION_ARGS_MAX  4096u      /* arguments of a command, at most */
#define SUBMISSION_ENV_MAX   64u        /* variables of the submitter's environment */
#define SUBMISSION_BYTES_MAX (2u << 20) /* bytes of a whole submission, at most */

/* A submission. Decoded strings are in arena; strings to encode are the caller's. */
struct submission {
	int64_t wall_ns;        /* wall-clock time of the submission; set by the scheduler */
	const char *cwd;        /* directory of the submitter, absolute */
	const char *file;       /* the job file's text */
	uint32_t len_bytes;     /* bytes of file */
	const char *name;       /* name of the job; NULL: as the file has it */
	struct sched_var *vars; /* variables in addition to the file's */
	uint32_t vars_n;
	const char **args; /* "$@" of the file's run; NULL: none */
	uint32_t args_n;
	const char **env; /* "NAME=value" of the submitter's environment */
	uint32_t env_n;
	struct sched_arena arena; /* owned */
};

void submission_encode(struct wire_out *out, const struct submission *submission);
/* Decodes a submission. bytes need not outlive it. PAWL_EINVAL, PAWL_ENOMEM: the submission is then
 * empty, and needs no deinit. */
int submission_decode(struct submission *submission, const void *bytes, size_t len_bytes,
	struct pawl_err *err);
void submission_deinit(struct submission *submission);

/* Makes a path of the user's absolute. A leading ~ becomes home; a relative path starts at cwd, the
 * directory in which the job was submitted. PAWL_EINVAL: the path is too long. */
int submission_path(const char *home, const char *cwd, const char *path, char full[PATH_MAX],
	struct pawl_err *err);

struct sched_mount;

/* Makes both paths of a mount absolute, as submission_path does. HOST:/PATH and addresses of
 * buckets stay as they are. PAWL_EINVAL: a path is too long. */
int submission_mount(const char *home, const char *cwd, const struct sched_mount *mount,
	char at[PATH_MAX], char from[PATH_MAX], struct pawl_err *err);

/* Decodes the job that a submission describes: see jobfile_decode. */
int submission_spec(const struct submission *submission, struct sched_spec *spec,
	struct remarks *remarks, struct pawl_err *err);
/* Returns whether any of the job's choices has disk_tier: best. */
bool submission_wants_scratch(const struct sched_spec *spec);

#endif
