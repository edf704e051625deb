/* pawl env: shows the rank, world and job that a process started here would find. */
#include "cli/cli.h"

#include "pawl/env.h"

#include <jansson.h>
#include <stdio.h>

static const struct cli_option options[] = {
	{"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

static int print_json(const struct pawl_env *env)
{
	return cli_json(json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:i}", "rank",
		(int)env->rank, "world", (int)env->world, "local_rank", (int)env->local_rank,
		"local_world", (int)env->local_world, "node_rank", (int)env->node_rank, "nodes",
		(int)env->nodes, "source", env->source, "job", env->job, "job_source",
		env->job_source, "attempt", (int)env->attempt));
}

static void print_text(const struct pawl_env *env)
{
	cli_print(stdout, "rank     %u of %u (from: %s)\n", env->rank, env->world, env->source);
	cli_print(stdout, "local    %u of %u\n", env->local_rank, env->local_world);
	cli_print(stdout, "node     %u of %u\n", env->node_rank, env->nodes);
	if (env->job[0] != '\0') {
		cli_print(stdout, "job      %s (from: %s)\n", env->job, env->job_source);
	} else {
		cli_print(stdout, "job      not named: derived from script, directory and user\n");
	}
	cli_print(stdout, "attempt  %u\n", env->attempt);
}

static int main_env(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	struct pawl_env env;
	struct pawl_err err;
	bool json = false;
	int what;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_ARG) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		if (what < 0) {
			return cli_read_exit_code(what);
		}
		json = true;
	}
	if (pawl_env_resolve(NULL, NULL, &env, &err) != 0) {
		return cli_fail(command, &err);
	}
	if (json) {
		return print_json(&env);
	}
	print_text(&env);
	return CLI_OK;
}

const struct cli_command cli_env = {
	.name = "env",
	.args = "",
	.summary = "Show rank, world size, job and attempt from the environment",
	.details = "The command reads variables of Pawl (PAWL_*), torchrun, SkyPilot, Slurm,\n"
		   "Kubernetes and Open MPI, in this order.\n",
	.options = options,
	.main = main_env,
};
