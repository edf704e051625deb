/* pawl pilot: the job that the engine slurm submits to Slurm, one for each node. Pawl's jobs run
 * inside it. */
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "cli/cli.h"
#include "engine/scratch.h"
#include "engine/slurm/pilot/slurm_pilot.h"
#include "engine/slurm/slurm.h"

#define WAIT_MOST_S 86400.0

enum option { FENCE, KILL_WAIT, NOTICE, SCRATCH };

static const struct cli_option options[] = {
	[FENCE] = {"--fence", 0, "S", "seconds without SPOOL after which all jobs end (30)"},
	[KILL_WAIT] = {"--kill-wait", 0, "S", "seconds from Slurm's SIGTERM to its SIGKILL (30)"},
	[NOTICE] = {"--notice", 0, "S", "seconds of notice that SIGUSR1 gives (60)"},
	[SCRATCH] = {"--scratch", 0, "DIR",
		"disk for disk_tier: best, the fastest one; repeatable (TMPDIR)"},
	{NULL},
};

/* Takes an option, or the argument. scratch: the array that pilot->scratch points to. */
static bool take_option(const struct cli_reader *reader, int what,
	struct slurm_pilot_options *pilot, const char **scratch)
{
	const struct cli_command *command = reader->command;
	uint64_t fence_s;

	switch (what) {
	case FENCE:
		if (!cli_number(command, "--fence", reader->value, SLURM_FENCE_LEAST_S,
			    SLURM_FENCE_MOST_S, &fence_s)) {
			return false;
		}
		pilot->fence_ns = (int64_t)fence_s * NS_PER_S;
		return true;
	case KILL_WAIT:
		return cli_seconds(command, "--kill-wait", reader->value, WAIT_MOST_S,
			&pilot->kill_wait_ns);
	case NOTICE:
		return cli_seconds(command, "--notice", reader->value, WAIT_MOST_S,
			&pilot->notice_ns);
	case SCRATCH:
		if (pilot->scratch_n == SCRATCH_DIRS_MAX) {
			cli_usage(command, "--scratch: %u at most", SCRATCH_DIRS_MAX);
			return false;
		}
		scratch[pilot->scratch_n++] = reader->value;
		return true;
	default:
		if (pilot->spool) {
			cli_usage(command, "unexpected argument %s", reader->value);
			return false;
		}
		pilot->spool = reader->value;
		return true;
	}
}

static int main_pilot(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	const char *scratch[SCRATCH_DIRS_MAX];
	struct slurm_pilot_options pilot = {.scratch = scratch,
		.fence_ns = times_ns(TIME_SLURM_FENCE),
		.kill_wait_ns = times_ns(TIME_SLURM_KILL_WAIT),
		.notice_ns = times_ns(TIME_SLURM_NOTICE)};
	struct pawl_err err;
	int what;

	while ((what = cli_read(&reader)) >= 0 || what == CLI_ARG) {
		if (!take_option(&reader, what, &pilot, scratch)) {
			return CLI_USAGE;
		}
	}
	if (what != CLI_END) {
		return cli_read_exit_code(what);
	}
	if (!pilot.spool) {
		return cli_usage(command, "SPOOL is needed");
	}
	return slurm_pilot_run(&pilot, &err) == 0 ? CLI_OK : cli_fail(command, &err);
}

const struct cli_command cli_pilot = {
	.name = "pilot",
	.args = "SPOOL",
	.summary = "Run jobs on a Slurm node (pawl sched --engine slurm starts it)",
	.details = "A pilot runs in a Slurm job, on one node. SPOOL is the directory slurm in\n"
		   "--spool of the scheduler, which all nodes see: see docs/slurm.md.\n",
	.options = options,
	.main = main_pilot,
};
