/* pawl serve: adds for the ranks of training jobs on other hosts.
 */
#include "coll/serve.h"

#include "base/address.h"
#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "cli/interrupt.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TURN_NS (NS_PER_S / 5)

enum option { LISTEN, PORT, TOWARD };

static const struct cli_option options[] = {
	[LISTEN] = {"--listen", 0, "ADDRESS", "of this host, numeric (PAWL_IFNAME's, or below)"},
	[PORT] = {"--port", 0, "PORT", "to listen at (any that is free)"},
	[TOWARD] = {"--toward", 0, "HOST", "listen where the way to that host begins"},
	{NULL},
};

static void say(void *user, const char *line)
{
	(void)user;
	fprintf(stderr, "pawl serve: %s\n", line);
}

static int find_address(const char *asked, const char *toward, char *address, struct pawl_err *err)
{
	if (asked) {
		snprintf(address, ADDRESS_MAX, "%s", asked);
		return 0;
	}
	return address_find(toward, address, err);
}

static int serve(const struct cli_command *command, const char *address, uint16_t port)
{
	struct coll_server *server = NULL;
	char name[COLL_TCP_NAME];
	struct pawl_err err;
	int rv = coll_server_open(&server, address, port, name, say, NULL, &err);

	if (rv == 0) {
		printf("%s\n", name);
		fflush(stdout);
		interrupt_catch();
	}
	while (rv == 0 && interrupt_signal() == 0) {
		rv = coll_server_turn(server, TURN_NS, &err);
	}
	coll_server_close(server);
	if (rv != 0) {
		return cli_fail(command, &err);
	}
	return interrupt_signal() == SIGINT ? CLI_OK : 128 + interrupt_signal();
}

static int main_serve(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	char address[ADDRESS_MAX];
	const char *asked = NULL;
	const char *toward = "192.0.2.1"; /* somewhere else (RFC 5737): the default route */
	uint64_t port = 0;
	struct pawl_err err;
	int what;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_ARG) {
			return cli_usage(command, "unexpected argument %s", reader.value);
		}
		if (what < 0) {
			return cli_leave(what);
		}
		if (what == LISTEN) {
			asked = reader.value;
		} else if (what == TOWARD) {
			toward = reader.value;
		} else if (!cli_number(command, "--port", reader.value, 0, UINT16_MAX, &port)) {
			return CLI_USAGE;
		}
	}
	if (find_address(asked, toward, address, &err) != 0) {
		return cli_fail(command, &err);
	}
	return serve(command, address, (uint16_t)port);
}

const struct cli_command cli_serve = {
	.name = "serve",
	.args = "",
	.summary = "Add gradients for jobs on other hosts: a server without a GPU, or torch",
	.details = "Prints its name, ADDRESS:PORT:KEY, and serves until it is asked to leave. The "
		   "ranks\n"
		   "of a job on several hosts find it by PAWL_SERVERS, a list of such names "
		   "separated\n"
		   "by commas, the same at all ranks. Each server needs a host of its own. Who "
		   "knows the\n"
		   "key may use it. With n hosts of ranks, k servers make an all-reduce of many "
		   "bytes\n"
		   "up to 1 + k/n - 2k/n^2 times as fast: 1.5 times for 4 beside 4.\n",
	.options = options,
	.main = main_serve,
};
