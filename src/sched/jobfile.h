/* Job files: YAML with the keys that users of SkyPilot know, and some of ours; see docs/jobs.md.
 * Pure: paths are not looked at, and no environment is read. */
#ifndef SCHED_JOBFILE_H
#define SCHED_JOBFILE_H

#include "pawl/err.h"
#include "sched/remarks.h"
#include "sched/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What was said beside the file: it goes before what the file says. */
struct jobfile_given {
	const char *name; /* of the job, a valid one; NULL: not said */
	const struct sched_var
		*vars;   /* values of variables, with valid names; secret: of --secret */
	uint32_t vars_n; /* of them; of one name the last counts */
	bool strict;     /* what would be noted is wrong */
};

/*
 * The job that a file describes. spec is to be given back by sched_spec_deinit; the file's bytes
 * and what is in given need not outlive the call. PAWL_EINVAL: remarks (zero before) say all that
 * is wrong, in the order of the file, and err the first of it. PAWL_ENOMEM. spec is zero then.
 *
 * notes (zero before; NULL: nobody asks) name what was taken and is without effect here, each key
 * once, or means something else than its writer may think; also of a file that is wrong.
 */
int jobfile_decode(struct sched_spec *spec, const void *bytes, size_t len_bytes,
	const struct jobfile_given *given, struct remarks *remarks, struct remarks *notes,
	struct pawl_err *err);

/* Of a job or a queue: letters, digits, '.', '_' and '-', a letter or digit first, at most
 * SPEC_NAME_MAX - 1. */
bool jobfile_is_name(const char *text);
/* Of a variable that a user may set: a letter or _ first, then digits, too; none of those that a
 * job is told where it runs by (see sched/vars.h). */
bool jobfile_is_var(const char *text);

#endif
