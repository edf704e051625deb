/* A plan as chrome://tracing, and Perfetto, read it ("Trace Event Format"). */
#ifndef CLI_PIPE_TRACE_H
#define CLI_PIPE_TRACE_H

#include "pawl/pipe.h"

/* Writes the predicted times of all tasks, a row for each stage, and each stage's memory, to a
 * file. title: name of the process that stands for the pipeline. PAWL_EIO and the like. */
int pipe_trace_write(const char *path, const char *title, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report, struct pawl_err *err);

#endif
