/* Makes command lines and variables: see slurm_program.h. */
#include "engine/slurm/slurm_program.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "engine/mirrors.h"
#include "launch/env/adaptdl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_FIRST 20000u /* below the range of Linux's ephemeral ports */
#define PORTS      10000u
#define RANKS_MAX  64u /* ranks under one `pawl run`, at most */

_Static_assert(PORT_FIRST + PORTS <= 32768, "below the ephemeral ports, whose first is 32768");
_Static_assert(SLURM_TOKEN_CHARS >= 8, "a port is made of the last digits");

/* Share of the grace period that the ranks get; `pawl run` uses the rest to make data durable. */
#define GRACE_PART 0.85

/* On SIGTERM, the shell waits for its child, which gets the signal as well, and then exits. It
 * ignores SIGUSR1, which makes ranks leave. */
#define PREAMBLE "trap 'exit 143' TERM; trap : USR1\n"

/* Adds a shell, and the user's script as one argument of it. */
static void put_script(struct wire_out *list, const char *script)
{
	wire_put_text(list, "/bin/bash");
	wire_put_text(list, "-c");
	wire_put_text(list, "%s%s", PREAMBLE, script);
}

static void put_run(struct wire_out *list, const struct slurm_launch *launch)
{
	for (uint32_t i = 0; launch->args && launch->args[i]; i++) {
		wire_put_text(list, "%s", launch->args[i]);
	}
	if (!launch->args) {
		put_script(list, launch->spec->run);
	}
}

/* Adds the command lines that bring the job's buckets to the node. */
static int put_mirrors(struct wire_out *list, const struct slurm_launch *launch, bool setup,
	struct pawl_err *err)
{
	const struct mirrors_node node = {.pawl = launch->pawl,
		.home = launch->home ? launch->home : "",
		.grace_ns = launch->grace_ns};

	return mirrors_put(list, &node, launch->spec, setup, err);
}

/* Returns a port, another one for each start, so that processes left by an earlier start do not
 * meet it. */
static uint32_t port_of(const struct slurm_start *start)
{
	return PORT_FIRST +
		(uint32_t)(strtoul(start->token + SLURM_TOKEN_CHARS - 8, NULL, 16) % PORTS);
}

/* Another path for each start, so that a start never reads an old membership file. */
#define MEMBERSHIP_PATH_FORMAT "%s/door.%" PRIu64

/* Returns the number of ranks that the job may have on a node. */
static uint32_t most_of(const struct slurm_launch *launch)
{
	return launch->spec->size.most < RANKS_MAX ? launch->spec->size.most : RANKS_MAX;
}

/* Adds the command line that changes the number of ranks. The pilot appends that number. */
static void put_scale(struct wire_out *list, const struct slurm_launch *launch)
{
	wire_put_text(list, "%s", launch->pawl);
	wire_put_text(list, "scale");
	wire_put_text(list, "--wait");
	wire_put_text(list, "%u", times_s(TIME_SCALE_WAIT));
	wire_put_text(list, "%s", launch->task);
}

/* Returns whether nodes can join and leave while the job runs. A start on one node has all its
 * ranks, whatever the script does. On several nodes, only --nnodes ensures that; ranks of
 * pawl.elastic do not need it. */
static bool has_dynamic_nodes(const struct slurm_start *start)
{
	return start->joins || start->place->nodes == 1 || start->elastic;
}

static void put_elastic_args(struct wire_out *list, const struct slurm_launch *launch,
	const struct slurm_start *start)
{
	wire_put_text(list, "--elastic");
	wire_put_text(list, "1:%u", most_of(launch));
	wire_put_text(list, "--door");
	wire_put_text(list, MEMBERSHIP_PATH_FORMAT, launch->log_directory, start->generation);
	wire_put_text(list, "--node-rank");
	wire_put_text(list, "%u", start->number);
	if (start->joins) {
		wire_put_text(list, "--join");
	}
}

static void put_ranks(struct wire_out *list, const struct slurm_launch *launch,
	const struct slurm_start *start)
{
	const struct vars_place *place = start->place;
	bool dynamic_nodes = has_dynamic_nodes(start);

	wire_put_text(list, "%s", launch->pawl);
	wire_put_text(list, "run");
	if (dynamic_nodes) {
		put_elastic_args(list, launch, start);
	}
	wire_put_text(list, "-n");
	wire_put_text(list, "%u", place->gpus);
	wire_put_text(list, "--max-restarts");
	wire_put_text(list, "%u", launch->retries);
	wire_put_text(list, "--grace");
	wire_put_text(list, "%.3f", (double)launch->grace_ns / NS_PER_S * GRACE_PART);
	wire_put_text(list, "--job");
	wire_put_text(list, "%s", launch->task);
	if (!dynamic_nodes) {
		wire_put_text(list, "--nnodes");
		wire_put_text(list, "%u", place->nodes);
		wire_put_text(list, "--node-rank");
		wire_put_text(list, "%u", place->node);
		wire_put_text(list, "--rendezvous");
		wire_put_text(list, strchr(place->addresses[0], ':') ? "[%s]:%u" : "%s:%u",
			place->addresses[0], port_of(start));
	}
	wire_put_text(list, "--no-python");
	put_run(list, launch);
}

/* Adds AdaptDL's variables. Under `pawl run`, each rank gets its own replica variables; in other
 * jobs each node is a replica. */
static void put_adaptdl(struct wire_out *set, const struct slurm_launch *launch,
	const struct slurm_start *start)
{
	const struct adaptdl_job job = {launch->supervisor, launch->space, start->place->job};
	const struct adaptdl_replica replica = {.rank = start->place->node,
		.replicas = start->place->nodes,
		.nodes = start->place->nodes,
		.restarts = launch->attempt,
		.port = port_of(start)};

	if (launch->supervisor) {
		adaptdl_put_job(set, &job);
	}
	if (launch->supervisor && !launch->spec->elastic) {
		adaptdl_put_replica(set, &replica);
	}
}

static void put_env(struct wire_out *set, const struct slurm_launch *launch,
	const struct slurm_start *start, enum vars_phase phase)
{
	struct vars_place place = *start->place;

	place.task = launch->task;
	place.cluster = launch->cluster;
	place.engine = "slurm";
	for (uint32_t i = 0; launch->env && launch->env[i]; i++) {
		wire_put_text(set, "%s", launch->env[i]);
	}
	wire_put_text(set, "PAWL_SCHED_JOB=%" PRIu64, place.job);
	wire_put_text(set, "PAWL_JOB_ID=%s", launch->task);
	wire_put_text(set, "PAWL_ATTEMPT=%u", launch->attempt);
	if (launch->hints) {
		wire_put_text(set, "PAWL_HINTS=%s", launch->hints);
	}
	put_adaptdl(set, launch, start);
	if (launch->spec->elastic && phase == VARS_RUN) {
		/* `pawl run` removes the token from the ranks' environment. */
		wire_put_text(set, "PAWL_TOKEN=%s", start->token);
		wire_put_text(set, "PAWL_ELASTIC_MIN=%u", launch->spec->size.least);
		/* No part joins; but the file shows the engine whether ranks can join and leave. */
		if (!has_dynamic_nodes(start)) {
			wire_put_text(set, "PAWL_ELASTIC_DOOR=" MEMBERSHIP_PATH_FORMAT,
				launch->log_directory, start->generation);
		}
	}
	vars_put(set, launch->spec, &place, phase);
}

int slurm_program_fill(struct slurm_program *program, const struct slurm_launch *launch,
	const struct slurm_start *start, struct pawl_err *err)
{
	char *log = NULL;
	char *membership_path = NULL;
	int rv = 0;
	int len = start->number == 0
		? asprintf(&log, "%s/log", launch->log_directory)
		: asprintf(&log, "%s/log.node%u", launch->log_directory, start->number);

	if (len >= 0 && launch->spec->elastic) {
		len = asprintf(&membership_path, MEMBERSHIP_PATH_FORMAT, launch->log_directory,
			start->generation);
	}
	if (len < 0) {
		free(log);
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	program->cwd = launch->cwd;
	program->log = log;
	program->membership_path = membership_path;
	if (launch->spec->setup) {
		rv = put_mirrors(&program->setup, launch, true, err);
		put_script(&program->setup, launch->spec->setup);
		put_env(&program->setup_env, launch, start, VARS_SETUP);
	}
	if (launch->spec->elastic) {
		put_ranks(&program->run, launch, start);
		if (has_dynamic_nodes(start)) {
			put_scale(&program->scale, launch);
		}
	} else {
		rv = rv == 0 ? put_mirrors(&program->run, launch, false, err) : rv;
		put_run(&program->run, launch);
	}
	put_env(&program->env, launch, start, VARS_RUN);
	if (rv == 0 &&
		(program->run.failed || program->scale.failed || program->env.failed ||
			program->setup_env.failed)) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	if (rv != 0) {
		free(log);
		free(membership_path);
	}
	return rv;
}
