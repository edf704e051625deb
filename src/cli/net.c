/* pawl net: measures the network between hosts, and predicts what an all-reduce takes over it. */
#include "cli/net.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "cli/cli.h"
#include "coll/group/serve.h"
#include "coll/plan/fold.h"
#include "coll/probe/probe.h"
#include "io/address.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_BYTES (100ull * 1000000) /* bytes of a gradient by default: 25M of float32 */
#define MODEL_MAX   1e16
#define TRY_S       10.0 /* all-reduces that are predicted to take longer are not measured */
#define ROW_S       0.3  /* time to measure all-reduces of one size */
#define BUCKET_S    2.0  /* time to measure all-reduces of the last size */

enum option { MODEL, BYTES, DTYPE, SERVERS, LISTEN, JSON };

static const struct cli_option options[] = {
	[MODEL] = {"--model", 0, "N", "parameters of the model, e.g. 25M or 7B (25M)"},
	[BYTES] = {"--bytes", 0, "N", "gradient bytes instead of --model, e.g. 100M or 64MiB"},
	[DTYPE] = {"--dtype", 0, "TYPE", "float32, float64, float16 or bfloat16 (float32)"},
	[SERVERS] = {"--servers", 0, "K", "also predict with K more hosts that only add"},
	[LISTEN] = {"--listen", 0, "ADDRESS",
		"address of this host (PAWL_IFNAME's, or towards NAME)"},
	[JSON] = {"--json", 0, NULL, "print one JSON document"},
	{NULL},
};

/* The command line. */
struct net_args {
	const char *names[SURVEY_HOSTS_MAX]; /* names of the servers, from 1 on */
	uint32_t n;                          /* number of hosts: the servers, and this host */
	const char *listen;                  /* address of this host; NULL: found by its route */
	double numbers;                      /* --model; 0: not given */
	double bytes;                        /* --bytes; 0: not given */
	bool json;                           /* --json */
};

/* ---- the command line ---- */

static bool read_dtype(const struct cli_command *command, const char *text, enum pawl_dtype *dtype)
{
	for (enum pawl_dtype d = 0; d < PAWL_DTYPES; d++) {
		if (coll_type_is_float(d) && strcmp(text, coll_type_name(d)) == 0) {
			*dtype = d;
			return true;
		}
	}
	cli_usage(command, "--dtype %s: float32, float64, float16 or bfloat16 is needed", text);
	return false;
}

static bool read_name(const struct cli_command *command, struct net_args *args, const char *name)
{
	struct addrinfo *at;
	uint64_t key;

	if (coll_tcp_parse(name, &at, &key) != 0) {
		cli_usage(command,
			"%s is no name of a server: pawl serve prints it as ADDRESS:PORT:KEY",
			name);
		return false;
	}
	freeaddrinfo(at);
	for (uint32_t i = 1; i < args->n; i++) {
		if (strcmp(args->names[i], name) == 0) {
			cli_usage(command, "%s is named twice", name);
			return false;
		}
	}
	if (args->n == SURVEY_HOSTS_MAX) {
		cli_usage(command, "more than %u hosts", SURVEY_HOSTS_MAX);
		return false;
	}
	args->names[args->n++] = name;
	return true;
}

static bool read_option(const struct cli_command *command, int what, const char *value,
	struct net_args *args, struct net *net)
{
	uint64_t servers;

	switch (what) {
	case CLI_ARG:
		return read_name(command, args, value);
	case MODEL:
		return cli_scaled(command, "--model", value, MODEL_MAX, &args->numbers);
	case BYTES:
		return cli_scaled(command, "--bytes", value, MODEL_MAX, &args->bytes);
	case DTYPE:
		return read_dtype(command, value, &net->dtype);
	case SERVERS:
		if (!cli_number(command, "--servers", value, 1, COLL_SERVERS_MAX, &servers)) {
			return false;
		}
		net->servers = (uint32_t)servers;
		return true;
	case LISTEN:
		args->listen = value;
		return true;
	default:
		args->json = true;
		return true;
	}
}

/* ---- hosts ---- */

/* Copies the address of a name: "10.0.0.1" of "10.0.0.1:4567:3f0c…", "fe80::1" of
 * "[fe80::1]:4567:3f0c…". */
static void name_host(const char *name, char *host)
{
	bool six = name[0] == '[';

	snprintf(host, COLL_TCP_NAME, "%.*s", (int)strcspn(name + six, six ? "]" : ":"),
		name + six);
}

static int list_hosts(const struct net_args *args, struct net *net, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 1; i < args->n; i++) {
		name_host(args->names[i], net->hosts[i]);
	}
	if (args->listen) {
		snprintf(net->hosts[0], COLL_TCP_NAME, "%s", args->listen);
	} else {
		rv = address_find(net->hosts[1], net->hosts[0], err);
	}
	for (uint32_t i = 0; i < args->n && rv == 0; i++) {
		for (uint32_t j = i + 1; j < args->n; j++) {
			if (strcmp(net->hosts[i], net->hosts[j]) == 0) {
				cli_print(stderr,
					"pawl net: two hosts have the address %s: there is no "
					"network between them\n",
					net->hosts[i]);
			}
		}
	}
	return rv;
}

/* Replaces ranks by hosts in an error message of the group: the user knows no ranks. */
static void name_ranks(const struct net *net, uint32_t n, struct pawl_err *err)
{
	char named[PAWL_ERR_MSG_MAX] = "";
	const char *at = err->msg;
	size_t len = 0;

	while (*at != '\0' && len < sizeof(named)) {
		const char *rank = strstr(at, "rank ");
		char *end = NULL;
		unsigned long number = rank ? strtoul(rank + 5, &end, 10) : 0;
		bool known = rank && end != rank + 5 && number < n;
		int until = rank ? (int)(rank - at) + (known ? 0 : 5) : (int)strlen(at);

		len += (size_t)snprintf(named + len, sizeof(named) - len, "%.*s%s", until, at,
			known ? net->hosts[number] : "");
		at = known ? end : at + until;
	}
	snprintf(err->msg, sizeof(err->msg), "%s", named);
}

/* ---- measuring ---- */

static void print_line(void *user, const char *line)
{
	(void)user;
	cli_print(stderr, "pawl net: %s\n", line);
}

void net_predict(const struct net *net, uint32_t servers, struct net_row *row)
{
	const struct coll_hosts hosts = {net->survey.n, servers};

	/* 16-bit floats have one algorithm only: see group_slot.c */
	row->algorithm = coll_type_bytes(net->dtype) == 2
		? COLL_DIRECT
		: coll_choose_algorithm(&net->link, &hosts, row->len_bytes);
	row->predicted_s = coll_cost_s(&net->link, &hosts, row->algorithm, row->len_bytes);
}

static int try_row(struct net *net, struct pawl_group *group, struct net_row *row, double budget_s,
	struct pawl_err *err)
{
	net_predict(net, 0, row);
	return row->predicted_s > TRY_S ? 0
					: coll_probe_sum(group, &net->link, net->dtype,
						  row->len_bytes, budget_s, &row->measured_s, err);
}

double net_predict_model(const struct net *net, uint32_t servers)
{
	struct net_row bucket = {.len_bytes = NET_BUCKET_BYTES};
	uint64_t buckets = net->model_bytes / NET_BUCKET_BYTES;
	struct net_row rest = {.len_bytes = net->model_bytes % NET_BUCKET_BYTES};

	net_predict(net, servers, &bucket);
	net_predict(net, servers, &rest);
	return bucket.predicted_s * (double)buckets + (rest.len_bytes > 0 ? rest.predicted_s : 0);
}

static int try_sums(struct net *net, struct pawl_group *group, struct pawl_err *err)
{
	uint64_t last = net->model_bytes < NET_BUCKET_BYTES ? net->model_bytes : NET_BUCKET_BYTES;
	int rv = 0;

	print_line(NULL, "all-reduces");
	for (uint64_t len = 1 << 10; rv == 0 && net->rows_n < NET_ROWS_MAX; len *= 16) {
		struct net_row *row = &net->rows[net->rows_n++];

		row->len_bytes = len < last ? len : last;
		rv = try_row(net, group, row, len < last ? ROW_S : BUCKET_S, err);
		if (len >= last) {
			break;
		}
	}
	return rv;
}

static int measure(struct net *net, const struct net_args *args, struct pawl_err *err)
{
	struct pawl_group *group;
	int rv = coll_probe_open(&group, net->hosts[0], args->names, args->n,
		times_ns(TIME_NET_ASK), err);

	if (rv != 0) {
		return rv;
	}
	rv = coll_probe_survey(group, &net->survey, print_line, NULL, err);
	if (rv == 0) {
		coll_survey_link(&net->survey, &net->link);
		rv = coll_link_valid(&net->link)
			? try_sums(net, group, err)
			: pawl_err_set(err, PAWL_EPEER,
				  "the measurements contradict each other: measure again "
				  "while nothing else uses the network");
	}
	if (rv == 0) {
		coll_probe_end(group);
	}
	pawl_group_close(group);
	return rv;
}

static int main_net(const struct cli_command *command, int argc, char **argv)
{
	struct cli_reader reader = {.command = command, .argc = argc, .argv = argv};
	static struct net net = {.dtype = PAWL_FLOAT32};
	static struct net_args args = {.n = 1};
	struct pawl_err err;
	int what;
	int rv;

	while ((what = cli_read(&reader)) != CLI_END) {
		if (what == CLI_HELP || what == CLI_BAD) {
			return cli_read_exit_code(what);
		}
		if (!read_option(command, what, reader.value, &args, &net)) {
			return CLI_USAGE;
		}
	}
	if (args.n == 1) {
		return cli_usage(command,
			"NAME is needed: what pawl serve prints on each other host");
	}
	net.model_bytes = args.bytes > 0 ? (uint64_t)args.bytes
		: args.numbers > 0       ? (uint64_t)args.numbers * coll_type_bytes(net.dtype)
					 : MODEL_BYTES;
	net.model_bytes -= net.model_bytes % coll_type_bytes(net.dtype);
	if (net.model_bytes == 0) {
		return cli_usage(command, "the gradient is smaller than one number of its type");
	}
	rv = coll_survey_init(&net.survey, args.n, &err);
	if (rv == 0) {
		rv = list_hosts(&args, &net, &err);
	}
	if (rv == 0) {
		rv = measure(&net, &args, &err);
	}
	if (rv != 0) {
		name_ranks(&net, args.n, &err);
		rv = cli_fail(command, &err);
	} else {
		rv = args.json ? net_print_json(&net) : net_print(&net);
	}
	coll_survey_deinit(&net.survey);
	return rv;
}

const struct cli_command cli_net = {
	.name = "net",
	.args = "NAME…",
	.summary = "Measure the network between hosts, and predict all-reduce times",
	.details =
		"Start pawl serve on each other host; NAME is what it prints, ADDRESS:PORT:KEY.\n"
		"This host takes part, too. Nothing else should use the network meanwhile: it\n"
		"takes some seconds, and more with many hosts.\n"
		"\n"
		"The command measures latency, the throughput of each pair of hosts, and that of\n"
		"all pairs at once. It names hosts that are slower than the others. Then it runs\n"
		"all-reduces, and prints each time beside the predicted one. If PAWL_LINK is set\n"
		"as printed, the ranks of a job use it to choose all-reduce algorithms: see\n"
		"docs/net.md.\n",
	.options = options,
	.main = main_net,
};
