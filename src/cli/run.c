/* pawl run: its command line. */
#include "launch/run.h"

#include "launch/nodes/node_frame.h"
#include "launch/run_warm.h"

#include "base/clock.h"
#include "base/times.h"
#include "cli/cli.h"
#include "cli/run_explain.h"
#include "notice/notice_watcher.h"
#include "pawl/err.h"

#include <stdio.h>
#include <string.h>

#define RESTARTS_DEFAULT 3u

enum option {
	WORKERS,
	ELASTIC,
	MEMBERSHIP,
	JOIN,
	FENCE,
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
	NOTICE,
	ON_NOTICE,
	ON_TERM,
	PREEMPTED_CODE,
	NO_TEMPLATE,
	EXPLAIN,
	PYTHON,
	NO_PYTHON,
	MODULE
};

static const struct cli_option options[] = {
	[WORKERS] = {"--workers", 'n', "N", "worker processes on this node (1)"},
	[ELASTIC] = {"--elastic", 0, "MIN:MAX",
		"let workers join and leave; -n of them at first (MAX)"},
	[MEMBERSHIP] = {"--door", 0, "FILE",
		"shared file, or URL, by which launchers of an elastic job meet"},
	[JOIN] = {"--join", 0, NULL, "with --door: join the job that --node-rank 0 started"},
	[FENCE] = {"--fence", 0, "S",
		"with a URL: end after S seconds cut off (0, never; 60 in a Pod)"},
	[NODES] = {"--nnodes", 0, "N", "nodes of the job; run this command on each (1)"},
	[RENDEZVOUS] = {"--rendezvous", 0, "ADDR",
		"host:port of the coordinating node, or a list a,b,c"},
	[NODE_RANK] = {"--node-rank", 0, "K",
		"rank of this node or launcher, from 0 (arrival order)"},
	[NODE_TIMEOUT] = {"--node-timeout", 0, "S", "seconds to wait for missing nodes (600)"},
	[SERVERS] = {"--servers", 0, "K", "extra hosts that only add gradients, by pawl serve (0)"},
	[TOKEN_FILE] = {"--token-file", 0, "PATH",
		"file with the secret that all nodes share (PAWL_TOKEN)"},
	[RESTARTS] = {"--max-restarts", 0, "R", "restarts after failures, at most (3)"},
	[BACKEND] = {"--backend", 0, "NAME",
		"force a torch.distributed backend on the script: pawl"},
	[LOG_DIR] = {"--log-dir", 0, "DIR",
		"also write output to DIR/attempt<k>/rank<r>.{out,err}"},
	[JOB] = {"--job", 0, "ID", "id of the job, the same across all restarts"},
	[GRACE] = {"--grace", 0, "S", "seconds allowed from SIGTERM to exit (25)"},
	[NOTICE] = {"--notice", 0, "FROM", "cloud to ask: auto, aws, gcp, azure, none (none)"},
	[ON_NOTICE] = {"--on-notice", 0, "WHAT",
		"leave: only this node leaves; stop: all do (leave)"},
	[ON_TERM] = {"--on-term", 0, "WHAT",
		"stop: SIGTERM stops the job; leave: it is such a notice (stop)"},
	[PREEMPTED_CODE] = {"--preempted-code", 0, "N",
		"exit code after such a notice (143, as for SIGTERM)"},
	[NO_TEMPLATE] = {"--no-template", 0, NULL, "restart without a template process"},
	[EXPLAIN] = {"--explain", 0, NULL, "at the end, explain slow steps, as pawl explain does"},
	[PYTHON] = {"--python", 0, "PATH", "Python interpreter (the environment's)"},
	[NO_PYTHON] = {"--no-python", 0, NULL,
		"run SCRIPT as a program found in PATH, without Python"},
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
		cli_usage(command, "--elastic %s: MIN:MAX is needed, such as 1:8", value);
		return false;
	}
	snprintf(least, sizeof(least), "%.*s", (int)len, value);
	if (!take_number(command, "--elastic MIN", least, 1, RUN_WORKERS_MAX, &run->min_workers) ||
		!take_number(command, "--elastic MAX", value + len + 1, 1, RUN_WORKERS_MAX,
			&run->max_workers)) {
		return false;
	}
	if (run->min_workers > run->max_workers) {
		cli_usage(command, "--elastic %s: MIN is more than MAX", value);
		return false;
	}
	return true;
}

/* Sets -n if it was not given, and checks it against --elastic, whichever came first. */
static bool settle_workers(const struct cli_command *command, struct run_options *run)
{
	if (run->workers == 0) {
		run->workers = run->max_workers != 0 ? run->max_workers : 1;
	}
	if (run->max_workers != 0 &&
		(run->workers < run->min_workers || run->workers > run->max_workers)) {
		cli_usage(command, "-n %u is outside of --elastic, from %u to %u", run->workers,
			run->min_workers, run->max_workers);
		return false;
	}
	return true;
}

static bool take_backend(const struct cli_command *command, const char *value,
	struct run_options *run)
{
	if (strcmp(value, "pawl") != 0) {
		cli_usage(command,
			"--backend: pawl is the only one; without --backend, the script chooses "
			"its backend");
		return false;
	}
	run->our_backend = true;
	return true;
}

static bool take_notice(const struct cli_command *command, const char *value,
	struct run_options *run)
{
	struct notice_dmi dmi;
	struct pawl_err err;

	notice_dmi_read(&dmi);
	if (notice_source_parse(value, &dmi, &run->notice, &err) != 0) {
		cli_usage(command, "%s", err.msg);
		return false;
	}
	run->notice_text = value;
	return true;
}

/* Takes one of two words, which sets *is_first. */
static bool take_one_of(const struct cli_command *command, const char *option, const char *value,
	const char *first, const char *second, bool *is_first)
{
	*is_first = strcmp(value, first) == 0;
	if (!*is_first && strcmp(value, second) != 0) {
		cli_usage(command, "%s is %s or %s, not %s", option, first, second, value);
		return false;
	}
	return true;
}

static bool take_fence(const struct cli_command *command, const char *value,
	struct run_options *run)
{
	if (!cli_seconds(command, "--fence", value, (double)RUN_GRACE_MAX_NS / NS_PER_S,
		    &run->fence_ns)) {
		return false;
	}
	if (run->fence_ns > 0 && run->fence_ns < RUN_FENCE_LEAST_NS) {
		cli_usage(command, "--fence %s: 0, or at least %lld s", value,
			(long long)(RUN_FENCE_LEAST_NS / NS_PER_S));
		return false;
	}
	return true;
}

/* Takes an option of elastic jobs. */
static bool take_elastic(const struct cli_command *command, enum option option, const char *value,
	struct run_options *run)
{
	switch (option) {
	case MEMBERSHIP:
		run->membership_path = value;
		return true;
	case JOIN:
		run->joins = true;
		return true;
	case FENCE:
		return take_fence(command, value, run);
	default:
		return take_range(command, value, run);
	}
}

static bool take_option(const struct cli_command *command, enum option option, const char *value,
	struct run_options *run)
{
	switch (option) {
	case WORKERS:
		return take_number(command, "-n", value, 1, RUN_WORKERS_MAX, &run->workers);
	case ELASTIC:
	case MEMBERSHIP:
	case JOIN:
	case FENCE:
		return take_elastic(command, option, value, run);
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
	case NOTICE:
		return take_notice(command, value, run);
	case ON_NOTICE:
		return take_one_of(command, "--on-notice", value, "stop", "leave",
			&run->stops_on_notice);
	case ON_TERM:
		return take_one_of(command, "--on-term", value, "leave", "stop",
			&run->leaves_on_term);
	case PREEMPTED_CODE:
		return take_number(command, "--preempted-code", value, 1, 255,
			&run->preempted_code);
	case BACKEND:
		return take_backend(command, value, run);
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

/* Reads the options, which end at the name of the script or module: the words after it belong to
 * the script. Returns an exit code; run->worker stays NULL when there is nothing to run. */
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
		return cli_usage(command, "SCRIPT is missing");
	}
	if (what != CLI_ARG && what != MODULE) {
		return cli_read_exit_code(what);
	}
	if (what == MODULE && run->no_python) {
		return cli_usage(command,
			"-m runs a Python module: it cannot be used with --no-python");
	}
	if (what == MODULE) { /* pass on "-m NAME" in two words, however it was written */
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
		.fence_ns = -1,
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
	.summary = "Run a script on N ranks of one or more nodes; restart on failure",
	.details =
		"Ranks get the variables that torchrun sets (RANK, WORLD_SIZE, MASTER_PORT …),\n"
		"and PAWL_JOB_ID, PAWL_ATTEMPT and PAWL_AGENT. Their stdin is empty, because it\n"
		"could not be read again after a restart. When a rank fails, the attempt ends\n"
		"and the other ranks are killed at once: what they committed is safe in the\n"
		"agent's memory. If a rank exits with code 65, nothing is restarted. On SIGTERM,\n"
		"SIGINT or SIGHUP, ranks finish the step, save, and exit within --grace.\n"
		"\n"
		"--notice: the cloud is asked whether it takes this machine away. If so, ranks\n"
		"finish the step and save, and what they saved is made durable before the\n"
		"machine goes; the last line says which step is safe. auto asks AWS, GCP or\n"
		"Azure, if the machine is one of theirs, and nobody else. aws+http://HOST:PORT\n"
		"names another address. From elsewhere, such as a hook, pawl notice says it.\n"
		"If the job has more nodes, they wait for another one in place of this one, and\n"
		"go on from what was saved; with --on-notice stop, all nodes stop.\n"
		"\n"
		"--elastic is for scripts of pawl.elastic: when a rank fails, the others train\n"
		"on, and a new rank takes its place. pawl scale changes the number of ranks. On\n"
		"several hosts, give each launcher a --node-rank of its own and the same --door\n"
		"FILE, which all hosts must see, or a URL of pawl sched. Number 0 starts the\n"
		"job; the others have --join, and join it while it trains. On SIGUSR1, the ranks\n"
		"of that launcher leave the job, which goes on (exit code 79); with --on-term\n"
		"leave, on SIGTERM, too.\n"
		"\n"
		"Several nodes: run this command on each, with --nnodes N and --rendezvous\n"
		"HOST:PORT, an address of the node that coordinates. Nodes start, fail and stop\n"
		"together. When a node is lost, the others wait for it, and any other node may\n"
		"take its place. With several addresses, a:29400,b:29400, the next node takes\n"
		"over if the first one dies. Under srun --ntasks-per-node=1, no flags are\n"
		"needed. Checkpoints go to a directory that all nodes share. PAWL_TOKEN or\n"
		"--token-file gives all nodes the same secret, which keeps others out (openssl\n"
		"rand -hex 32 makes one). Without it, anyone who reaches the port can join.\n"
		"PAWL_IFNAME names the network interface, if not the one towards HOST.\n"
		"PAWL_HEARTBEAT sets the seconds between heartbeats (0.5); after four missed\n"
		"ones, a node is lost. PAWL_DOMAIN names what a node shares with those that may\n"
		"fail together with it, such as rack-7.\n"
		"\n"
		"The job's id is the first that is set of --job, PAWL_JOB_ID,\n"
		"TORCHELASTIC_RUN_ID, SKYPILOT_TASK_ID and SLURM_JOB_ID, else made from script,\n"
		"directory and user.\n",
	.options = options,
	.main = main_run,
};
