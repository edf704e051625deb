/* pawl shepherd: started by the scheduler, for each run of a job. */
#include "cli/cli.h"

#include "engine/local/shepherd.h"
#include "pawl/err.h"

#include <stddef.h>

static const struct cli_option options[] = {{NULL}};

static int main_shepherd(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct pawl_err err;
	int what = cli_read(&reader);

	if (what == CLI_ARG) {
		return cli_usage(command, "unexpected argument %s", reader.value);
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	return shepherd_main(&err) == 0 ? CLI_OK : cli_fail(command, &err);
}

const struct cli_command cli_shepherd = {
	.name = "shepherd",
	.args = "",
	.summary = "Supervise one run of a job (the scheduler starts it)",
	.details = "The shepherd runs setup and the job's ranks, writes the log, and outlives the\n"
		   "scheduler. It does nothing when started by hand: it inherits descriptors that\n"
		   "say what to run.\n",
	.options = options,
	.main = main_shepherd,
};
