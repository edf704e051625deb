/* Shared by the files of pawl submit: submit_print.c prints what a job file means, and
 * submit_send.c submits it. */
#ifndef CLI_SCHED_SUBMIT_H
#define CLI_SCHED_SUBMIT_H

#include "sched/jobfile/jobfile.h"
#include "sched/jobfile/remarks.h"
#include "sched/jobfile/spec.h"

/* The first three functions print on stdout and return an exit code. They leave out the values of
 * secrets. */
int submit_print(const char *path, const struct sched_spec *spec);
int submit_print_json(const char *path, const struct sched_spec *spec, const struct remarks *notes);
int submit_remarks_json(const char *path, const struct remarks *remarks,
	const struct remarks *notes);
/* Prints a line for each remark on stderr, "job.yaml:3:7: …". */
void submit_remarks(const char *path, const struct remarks *remarks);

/* ---- submit_send.c ---- */

/* A job that is to be submitted. The caller owns all of it. */
struct submit_job {
	const char *file; /* text of the job file */
	uint32_t len_bytes;
	const struct jobfile_given *given;
	const char *name; /* name of the job if given has none; NULL: the file has one */
	char name_buf[SPEC_NAME_MAX];
	char *const *words; /* a command; NULL: there is none */
	const char *root;   /* directory of the scheduler; NULL: not given */
};

/* Makes a job's name from a path. */
void submit_name(char name[SPEC_NAME_MAX], const char *path);
/* Submits a job; *id: its number. Errors as of sched_client_call. */
int submit_send(const struct submit_job *job, uint64_t *id, struct pawl_err *err);

#endif
