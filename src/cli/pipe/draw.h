/* Pictures of traces of pipelines; Python draws them. */
#ifndef CLI_PIPE_DRAW_H
#define CLI_PIPE_DRAW_H

#include "cli/cli.h"

#define DRAW_TRACES_MAX 16u /* panels of a picture: more would be too small to read */

/* Checks the name of a picture, which an option says: it ends in .png or .svg. False: the error was
 * printed. */
bool pipe_draw_check(const struct cli_command *command, const char *option, const char *picture);
/* Becomes python -m pawl.report, which draws at most DRAW_TRACES_MAX traces into picture. python:
 * the interpreter; NULL: as pawl run finds it. Returns only if it cannot be run: a PAWL_E code. */
int pipe_draw_become(const char *const *traces, uint32_t n, const char *picture, const char *python,
	struct pawl_err *err);

#endif
