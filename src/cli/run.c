/* pawl run: its command line. */
#include "launch/run.h"

#include "launch/nodes/node_frame.h"
#include "launch/run_warm.h"

#include "base/clock.h"
#include "base/times.h"
#include "cli/cli.h"
#include "cli/run_explain.h"
#include "pawl/err.h"

#include <stdio.h>
#include <string.h>

#define RESTARTS_DEFAULT 3u

enum option {
	WORKERS,
	ELASTIC,
	DOOR,
	JOIN,
	NODES,
	RENDEZVOUS,
	NODE_RANK,
	NODE_TIMEOUT,
	SERVERS,
	TOKEN_FILE,
	RESTARTS,
	BACKEND,
	LOG_DIR,
	JOB,
	GRACE,
	NO_TEMPLATE,
	EXPLAIN,
	PYTHON,
	NO_PYTHON,
	MODULE
};

static const struct cli_option options[] = {
	[WORKERS] = {"--workers", 'n', "N", "worker processes of this node (1)"},
	[ELASTIC] = {"--elastic", 0, "MIN:MAX",
		"workers may come and go; -n of them at first (MAX)"},
	[DOOR] = {"--door", 0, "FILE",
		"what launchers of one elastic job share: a file that all see"},
	[JOIN] = {"--join", 0, NULL, "with --door: the ranks join those of the one that started"},
	[NODES] = {"--nnodes", 0, "N", "nodes of the job; start this on each (1)"},
	[RENDEZVOUS] = {"--rendezvous", 0, "ADDR",
		"where they meet: host:port of one of them (or a,b,c)"},
	[NODE_RANK] = {"--node-rank", 0, "K",
		"this node's, from 0 (in order of arrival), or launcher's"},
	[NODE_TIMEOUT] = {"--node-timeout", 0, "S",
		"seconds to wait for nodes that are missing (600)"},
	[SERVERS] = {"--servers", 0, "K", "hosts more that only add gradients: pawl serve there"},
	[TOKEN_FILE] = {"--token-file", 0, "PATH",
		"holds the secret that nodes must share (PAWL_TOKEN)"},
	[RESTARTS] = {"--max-restarts", 0, "R", "times the group is started again (3)"},
	[BACKEND] = {"--backend", 0, "NAME",
		"what torch.distributed uses, whatever the script asks for: pawl"},
	[LOG_DIR] = {"--log-dir", 0, "DIR", "also write DIR/attempt<k>/rank<r>.{out,err}"},
	[JOB] = {"--job", 0, "ID", "the job's id, the same over all restarts"},
	[GRACE] = {"--grace", 0, "S", "seconds from SIGTERM to the exit (25)"},
	[NO_TEMPLATE] = {"--no-template", 0, NULL, "restart without a template process"},
	[EXPLAIN] = {"--explain", 0, NULL, "at the end say why steps were slow: pawl explain"},
	[PYTHON] = {"--python", 0, "PATH", "interpreter (the environment's)"},
	[NO_PYTHON] = {"--no-python", 0, NULL, "SCRIPT is a program of any kind, found by PATH"},
	[MODULE] = {"--module", 'm', "MODULE", "run a module, as python -m does"},
	{NULL},
};

static bool explain; /* --explain was given */

static bool take_number(const struct cli_command *command, const char *what, const char *value,
	uint64_t least, uint64_t most, uint32_t *into)
{
	uint64_t number;

	if (!cli_number(command, what, value, least, most, &number)) {
		return false;
	}
	*into = (uint32_t)number;
	return true;
}

/* Takes a range, "2:8". */
static bool take_range(const struct cli_command *command, const char *value,
	struct run_options *run)
{
	char least[16];
	size_t len = strcspn(value, ":");

	if (value[len] != ':' || len >= sizeof(least)) {
		cli_usage(command, "--elastic %s: MIN:MAX, as in 1:8", value);
		return false;
	}
	snprintf(least, sizeof(least), "%.*s", (int)len, value);
	if (!take_number(command, "--elastic MIN", least, 1, RUN_WORKERS_MAX, &run->least) ||
		!take_number(command, "--elastic MAX", value + len + 1, 1, RUN_WORKERS_MAX,
			&run->most)) {
		return false;
	}
	if (run->least > run->most) {
		cli_usage(command, "--elastic %s: MIN is more than MAX", value);
		return false;
	}
	return true;
}

/* Sets -n if it was not given, and checks that it is within --elastic, wherever it stands. */
static bool settle_workers(const struct cli_command *command, struct run_options *run)
{
	if (run->workers == 0) {
		run->workers = run->most != 0 ? run->most : 1;
	}
	if (run->most != 0 && (run->workers < run->least || run->workers > run->most)) {
		cli_usage(command, "-n %u: --elastic is from %u to %u", run->workers, run->least,
			run->most);
		return false;
	}
	return true;
}

static bool take_option(const struct cli_command *command, enum option option, const char *value,
	struct run_options *run)
{
	switch (option) {
	case WORKERS:
		return take_number(command, "-n", value, 1, RUN_WORKERS_MAX, &run->workers);
	case ELASTIC:
		return take_range(command, value, run);
	case DOOR:
		run->door = value;
		return true;
	case JOIN:
		run->joins = true;
		return true;
	case NODES:
		return take_number(command, "--nnodes", value, 1, NODES_MAX, &run->nodes);
	case NODE_RANK:
		return take_number(command, "--node-rank", value, 0, RUN_LAUNCHERS_MAX - 1,
			&run->node_rank);
	case SERVERS:
		return take_number(command, "--servers", value, 0, NODE_SERVERS_MAX, &run->servers);
	case NODE_TIMEOUT:
		return cli_seconds(command, "--node-timeout", value,
			(double)RUN_NODES_WAIT_MAX_NS / NS_PER_S, &run->node_timeout_ns);
	case RENDEZVOUS:
		run->rendezvous = value;
		return true;
	case TOKEN_FILE:
		run->token_file = value;
		return true;
	case RESTARTS:
		return take_number(command, "--max-restarts", value, 0, RUN_RESTARTS_MAX,
			&run->max_restarts);
	case GRACE:
		return cli_seconds(command, "--grace", value, (double)RUN_GRACE_MAX_NS / NS_PER_S,
			&run->grace_ns);
	case BACKEND:
		if (strcmp(value, "pawl") != 0) {
			cli_usage(command,
				"--backend: pawl is the only one; without it the "
				"script's own choice holds");
			return false;
		}
		run->our_backend = true;
		return true;
	case LOG_DIR:
		run->log_dir = value;
		return true;
	case JOB:
		run->job = value;
		return true;
	case NO_TEMPLATE:
		run->use_template = false;
		return true;
	case EXPLAIN:
		explain = true;
		return true;
	case PYTHON:
		run->python = value;
		return true;
	case NO_PYTHON:
		run->no_python = true;
		run->use_template = false;
		return true;
	case MODULE:
		break;
	}
	return true;
}

/* Reads the options, which end where the script or module is named: what follows is its own.
 * Returns an exit code; run->worker stays NULL when there is nothing to run. */
static int read_line(const struct cli_command *command, int argc, char **argv,
	struct run_options *run)
{
	static char module_word[] = "-m";
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	int what;

	while ((what = cli_read(&reader)) >= 0 && what != MODULE) {
		if (!take_option(command, (enum option)what, reader.value, run)) {
			return CLI_USAGE;
		}
	}
	if (what == CLI_END) {
		return cli_usage(command, "what is to be run? A script is missing");
	}
	if (what != CLI_ARG && what != MODULE) {
		return cli_leave(what);
	}
	if (what == MODULE && run->no_python) {
		return cli_usage(command, "-m is a module of Python: not with --no-python");
	}
	if (what == MODULE) { /* "-m NAME" in two words, however it was written */
		argv[reader.at] = (char *)(uintptr_t)reader.value;
		reader.at--;
		argv[reader.at] = module_word;
	}
	if (!settle_workers(command, run)) {
		return CLI_USAGE;
	}
	run->worker = argv + reader.at;
	return CLI_OK;
}

static int main_run(const struct cli_command *command, int argc, char **argv)
{
	struct run_options run = {
		.node_rank = NODE_NONE,
		.node_timeout_ns = times_ns(TIME_RUN_NODES),
		.max_restarts = RESTARTS_DEFAULT,
		.grace_ns = times_ns(TIME_RUN_GRACE),
		.use_template = true,
	};
	struct pawl_err err;
	int status = read_line(command, argc, argv, &run);
	int rv;

	if (run.worker == NULL) {
		return status;
	}
	if (explain && run_explain_begin(&err) != 0) {
		return cli_fail(command, &err);
	}
	run_warm_take();
	rv = run_main(&run, &status, &err);
	if (explain) {
		run_explain_end();
	}
	return rv == 0 ? status : cli_fail(command, &err);
}

const struct cli_command cli_run = {
	.name = "run",
	.args = "SCRIPT [ARGS …]",
	.summary = "Run a script on N ranks of this node, or of several; restart it when one fails",
	.details =
		"The ranks find what torchrun sets (RANK, WORLD_SIZE, MASTER_PORT …), and\n"
		"PAWL_JOB_ID, PAWL_ATTEMPT, PAWL_AGENT. stdin is empty: it could not be read "
		"again.\n"
		"A rank that fails ends the attempt; the others are killed at once, since what "
		"was\n"
		"committed is in memory outside of them. Exit code 65 of a rank means: no "
		"restart.\n"
		"SIGTERM, SIGINT or SIGHUP: finish the step, save, leave within --grace.\n"
		"\n"
		"--elastic, for scripts of pawl.elastic: the others train on without a rank that\n"
		"fails, another takes its place, and pawl scale asks for more or fewer.\n"
		"On several hosts: with --door FILE, which all see. --node-rank 0 starts the job,\n"
		"the others, each with a number of its own and --join, join it while it trains.\n"
		"SIGUSR1: the ranks of this one leave the job, which goes on (exit code 79).\n"
		"\n"
		"Several nodes: start this on each, with --nnodes N and --rendezvous HOST:PORT,\n"
		"an address of one of them, which coordinates. They start, fail and stop "
		"together;\n"
		"a node that is lost is waited for, and any other may take its place. With "
		"several\n"
		"addresses, a:29400,b:29400, the next takes over when the first one's node dies.\n"
		"Under srun --ntasks-per-node=1 no flags are needed. Checkpoints go to a "
		"directory\n"
		"that all nodes share. PAWL_TOKEN or --token-file, the same on all nodes, keeps\n"
		"others out (openssl rand -hex 32 makes one); without it whoever reaches the port\n"
		"can join. PAWL_IFNAME names the interface, if not the one toward HOST;\n"
		"PAWL_HEARTBEAT the seconds between signs of life (0.5; four missed: lost).\n"
		"\n"
		"The job's id: --job, PAWL_JOB_ID, TORCHELASTIC_RUN_ID, SKYPILOT_TASK_ID,\n"
		"SLURM_JOB_ID, else made from script, directory and user.\n",
	.options = options,
	.main = main_run,
};
