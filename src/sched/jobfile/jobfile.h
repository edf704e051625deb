/* Job files: YAML with the keys of SkyPilot, and some of Pawl's own; see docs/jobs.md. Pure: reads
 * no paths and no environment. */
#ifndef SCHED_JOBFILE_JOBFILE_H
#define SCHED_JOBFILE_JOBFILE_H

#include "pawl/err.h"
#include "sched/jobfile/remarks.h"
#include "sched/jobfile/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the caller gives beside the file; it takes precedence. */
struct jobfile_given {
	const char *name;             /* name of the job, a valid one; NULL: not given */
	const struct sched_var *vars; /* variables, with valid names; secret: from --secret */
	uint32_t vars_n;              /* number of vars; the last one of a name counts */
	bool strict;                  /* notes count as errors */
};

/*
 * Decodes the job that a file describes. Free spec by sched_spec_deinit. The file's bytes and the
 * contents of given need not outlive the call. PAWL_EINVAL: remarks (zeroed before) has all errors,
 * in the order of the file, and err the first of them. PAWL_ENOMEM. On errors spec is zero.
 *
 * notes (zeroed before; NULL: not wanted) has the keys that are accepted and ignored, each once,
 * and those that may mean something else than their writer thinks; also for a file with errors.
 */
int jobfile_decode(struct sched_spec *spec, const void *bytes, size_t len_bytes,
	const struct jobfile_given *given, struct remarks *remarks, struct remarks *notes,
	struct pawl_err *err);

/* Whether text is a valid name of a job or a queue: letters, digits, '.', '_' and '-', a letter or
 * digit first, at most SPEC_NAME_MAX - 1. */
bool jobfile_is_name(const char *text);
/* Whether text is the name of a variable that a user may set: a letter or _ first, then digits,
 * too; not one of those that Pawl sets for each job (see sched/jobfile/vars.h). */
bool jobfile_is_var(const char *text);

#endif
