/* Job files: YAML with the keys that users of SkyPilot know, and some of our own; see docs/jobs.md.
 * Pure: looks at no paths, and reads no environment. */
#ifndef SCHED_JOBFILE_JOBFILE_H
#define SCHED_JOBFILE_JOBFILE_H

#include "pawl/err.h"
#include "sched/jobfile/remarks.h"
#include "sched/jobfile/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the caller gives beside the file; it overrides the file. */
struct jobfile_given {
	const char *name;             /* name of the job, a valid one; NULL: not given */
	const struct sched_var *vars; /* variables, with valid names; secret: from --secret */
	uint32_t vars_n;              /* number of vars; the last one of a name counts */
	bool strict;                  /* notes count as errors */
};

/*
 * Decodes the job that a file describes. spec is to be given back by sched_spec_deinit; the file's
 * bytes and what is in given need not outlive the call. PAWL_EINVAL: remarks (zeroed before) say
 * all that is wrong, in the order of the file, and err the first of it. PAWL_ENOMEM. On errors spec
 * is zero.
 *
 * notes (zeroed before; NULL: nobody asks) name keys that are accepted and without effect here,
 * each once, or that mean something else than their writer may think; also of a file that is wrong.
 */
int jobfile_decode(struct sched_spec *spec, const void *bytes, size_t len_bytes,
	const struct jobfile_given *given, struct remarks *remarks, struct remarks *notes,
	struct pawl_err *err);

/* Whether text is a valid name of a job or a queue: letters, digits, '.', '_' and '-', a letter or
 * digit first, at most SPEC_NAME_MAX - 1. */
bool jobfile_is_name(const char *text);
/* Whether text is the name of a variable that a user may set: a letter or _ first, then digits,
 * too; none of those that tell a job where it runs (see sched/jobfile/vars.h). */
bool jobfile_is_var(const char *text);

#endif
