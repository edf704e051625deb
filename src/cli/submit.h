/* How pawl submit says what a job file means (submit_print.c). */
#ifndef CLI_SUBMIT_H
#define CLI_SUBMIT_H

#include "sched/remarks.h"
#include "sched/spec.h"

/* Each prints on stdout and returns an exit code. Values of secrets are left out. */
int submit_print(const char *path, const struct sched_spec *spec);
int submit_print_json(const char *path, const struct sched_spec *spec);
int submit_remarks_json(const char *path, const struct remarks *remarks);
/* A line for each on stderr, "job.yaml:3:7: …". */
void submit_remarks(const char *path, const struct remarks *remarks);

#endif
