/* Plans of pipelines as tables for people. */
#ifndef CLI_PIPE_PRINT_H
#define CLI_PIPE_PRINT_H

#include "cli/pipe/model.h"

#include <stdio.h>

#define PIPE_TEXT_MAX 48u /* bytes of a time, a schedule or a task as text, terminator included */

/* Formats a time: "27.4 ms". Returns buf, of PIPE_TEXT_MAX bytes. */
const char *pipe_seconds(char *buf, double seconds);
/* Formats a schedule with its chunks: "interleaved, 2 chunks a stage". Returns buf, of
 * PIPE_TEXT_MAX bytes. */
const char *pipe_schedule_text(char *buf, enum pawl_pipe_schedule schedule, uint32_t each,
	bool visits);

/* Prints a plan: what it takes, its stages, and what else was considered. shares: its value is a
 * share of time and memory. */
void pipe_print_plan(const struct pipe_model *model, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report, const struct pawl_pipe_options *options,
	bool shares);
/* Prints the stages of a plan; model: NULL if the units are not known. */
void pipe_print_stages(const struct pipe_model *model, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report);

#endif
