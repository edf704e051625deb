/* How pawl submit says what a job file means (submit_print.c), and has it run (submit_send.c). */
#ifndef CLI_SUBMIT_H
#define CLI_SUBMIT_H

#include "sched/jobfile.h"
#include "sched/remarks.h"
#include "sched/spec.h"

/* Each prints on stdout and returns an exit code. Values of secrets are left out. */
int submit_print(const char *path, const struct sched_spec *spec);
int submit_print_json(const char *path, const struct sched_spec *spec, const struct remarks *notes);
int submit_remarks_json(const char *path, const struct remarks *remarks,
	const struct remarks *notes);
/* A line for each on stderr, "job.yaml:3:7: …". */
void submit_remarks(const char *path, const struct remarks *remarks);

/* ---- submit_send.c ---- */

/* A job that is to be submitted. All is the caller's. */
struct submit_job {
	const char *file; /* its text */
	uint32_t len_bytes;
	const struct jobfile_given *given;
	const char *name; /* where given has none; NULL: the file has one */
	char name_room[SPEC_NAME_MAX];
	char *const *words; /* a command; NULL: there is none */
	const char *root;   /* of the scheduler; NULL: not said */
};

/* A name for a job, of a path. */
void submit_name(char name[SPEC_NAME_MAX], const char *path);
/* Errors as of talk_end. */
int submit_send(const struct submit_job *job, uint64_t *id, struct pawl_err *err);

#endif
