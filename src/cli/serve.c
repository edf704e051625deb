/* pawl serve: adds the gradients of training jobs on other hosts. */
#include "coll/group/serve.h"
#include "coll/probe/probe.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "io/address.h"
#include "launch/run_plan.h"
#include "launch/serve_run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum option { LISTEN, PORT, RENDEZVOUS, TOKEN_FILE };

static const struct cli_option options[] = {
	[LISTEN] = {"--listen", 0, "ADDRESS",
		"address of this host (PAWL_IFNAME's, or towards job)"},
	[PORT] = {"--port", 0, "PORT", "port to listen on (any free one)"},
	[RENDEZVOUS] = {"--rendezvous", 0, "ADDR",
		"rendezvous of the one job to serve, until it ends"},
	[TOKEN_FILE] = {"--token-file", 0, "PATH", "file with the job's secret (PAWL_TOKEN)"},
	{NULL},
};

/* The command line, and the server. */
struct serve {
	const char *listen, *rendezvous, *token_file;
	uint64_t port;
	struct run_places places;      /* places that rendezvous names */
	char token[TLS_TOKEN_MAX + 1]; /* secret of the job; empty: none */
	char name[COLL_TCP_NAME];      /* name of the server */
	struct coll_server *server;    /* owned */
	atomic_bool stop;              /* true: the thread of serve_ranks ends */
};

static void print_line(const char *line)
{
	cli_print(stderr, "pawl serve: %s\n", line);
}

static void print_group_line(void *user, const char *line)
{
	(void)user;
	print_line(line);
}

static int open_server(struct serve *serve, struct pawl_err *err)
{
	const char *route_to =
		"192.0.2.1"; /* an address of no host (RFC 5737): finds the default route */
	char address[ADDRESS_MAX];
	int rv = 0;

	if (serve->rendezvous) {
		rv = run_places_parse(&serve->places, serve->rendezvous, err);
		route_to = serve->places.at[0].host;
	}
	if (rv == 0) {
		rv = run_token_read(serve->token, serve->token_file, err);
	}
	if (rv == 0 && serve->listen) {
		snprintf(address, sizeof(address), "%s", serve->listen);
	} else if (rv == 0) {
		rv = address_find(route_to, address, err);
	}
	return rv == 0 ? coll_server_open(&serve->server, address, (uint16_t)serve->port,
				 serve->name, print_group_line, NULL, coll_probe_obey, err)
		       : rv;
}

static void *serve_ranks(void *user)
{
	struct serve *serve = user;
	struct pawl_err err;

	while (!atomic_load(&serve->stop) &&
		coll_server_poll(serve->server, times_ns(TIME_SERVE_TURN), &err) == 0) {
	}
	return NULL;
}

/* Serves everyone who knows the server's name, until a signal comes. */
static int serve_all(struct serve *serve, int *status, struct pawl_err *err)
{
	int rv = 0;

	interrupt_catch();
	while (rv == 0 && interrupt_signal() == 0) {
		rv = coll_server_poll(serve->server, times_ns(TIME_SERVE_TURN), err);
	}
	*status = 128 + interrupt_signal();
	return rv;
}

/* Stays with one job until it ends, while a thread adds for its ranks. */
static int serve_job(struct serve *serve, int *status, struct pawl_err *err)
{
	const struct serve_run_options job = {.places = &serve->places,
		.token = serve->token[0] != '\0' ? serve->token : NULL,
		.name = serve->name,
		.print = print_line};
	pthread_t thread;
	int rv;

	if (pthread_create(&thread, NULL, serve_ranks, serve) != 0) {
		return pawl_err_set(err, PAWL_EIO, "start a thread");
	}
	rv = serve_run(&job, status, err);
	atomic_store(&serve->stop, true);
	pthread_join(thread, NULL);
	return rv;
}

static int main_serve(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	static struct serve serve;
	struct pawl_err err;
	int status = 0;
	int what;
	int rv;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_ARG) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		if (what < 0) {
			return cli_read_exit_code(what);
		}
		if (what == LISTEN) {
			serve.listen = reader.value;
		} else if (what == RENDEZVOUS) {
			serve.rendezvous = reader.value;
		} else if (what == TOKEN_FILE) {
			serve.token_file = reader.value;
		} else if (!cli_number(command, "--port", reader.value, 0, UINT16_MAX,
				   &serve.port)) {
			return CLI_USAGE;
		}
	}
	if (serve.rendezvous) {
		serve_run_block_signals();
	}
	rv = open_server(&serve, &err);
	if (rv == 0) {
		cli_print(stdout, "%s\n", serve.name);
		fflush(stdout);
		rv = serve.rendezvous ? serve_job(&serve, &status, &err)
				      : serve_all(&serve, &status, &err);
	}
	coll_server_close(serve.server);
	return rv == 0 ? status : cli_fail(command, &err);
}

const struct cli_command cli_serve = {
	.name = "serve",
	.args = "",
	.summary = "Add gradients for jobs on other hosts, without a GPU or torch",
	.details =
		"With --rendezvous, the server serves one job. ADDR is the same as for the job's\n"
		"nodes, which run pawl run --nnodes N --servers K and wait for K servers.\n"
		"\n"
		"Without it, the server prints its name, ADDRESS:PORT:KEY, and serves everyone\n"
		"who knows it, until a signal. Set PAWL_SERVERS to a list of such names,\n"
		"separated by commas, the same at all ranks of a job on several hosts. pawl net\n"
		"measures the network between such hosts.\n"
		"\n"
		"Each server needs a host of its own. With n hosts of ranks, k servers make an\n"
		"all-reduce of many bytes up to 1 + k/n - 2k/n^2 times as fast. With 4 servers\n"
		"and 4 hosts, that is 1.5 times.\n",
	.options = options,
	.main = main_serve,
};
