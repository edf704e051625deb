/* The report of pawl net: tables for people, and JSON. */
#include "cli/cli.h"
#include "cli/net.h"
#include "coll/plan/fold.h"

#include <jansson.h>
#include <stdio.h>

#define MATRIX_MAX 8u           /* hosts up to which all pairs are shown */
#define LENGTH_MAX (1ull << 40) /* bytes up to which algorithms are compared */

static const char *const flaw_words[SURVEY_METRICS] = {"sends", "receives", "far"};

/* Returns the largest length up to which row's algorithm stays the cheapest, from row's length on;
 * LENGTH_MAX: no other algorithm follows. */
static uint64_t find_change(const struct net *net, struct net_row row)
{
	uint64_t lo = row.len_bytes;
	uint64_t hi = LENGTH_MAX;
	enum coll_algorithm algorithm;

	net_predict(net, 0, &row);
	algorithm = row.algorithm;
	while (lo < hi) {
		row.len_bytes = lo + (hi - lo + 1) / 2;
		net_predict(net, 0, &row);
		if (row.algorithm == algorithm) {
			lo = row.len_bytes;
		} else {
			hi = row.len_bytes - 1;
		}
	}
	return lo;
}

static const char *print_seconds(char *buf, double seconds)
{
	double us = seconds * 1e6;

	snprintf(buf, CLI_TEXT_MAX,
		us < 1e3           ? "%.0f us"
			: us < 1e6 ? "%.3g ms"
				   : "%.4g s",
		us < 1e3           ? us
			: us < 1e6 ? seconds * 1e3
				   : seconds);
	return buf;
}

/* ---- for people ---- */

static void print_hosts(const struct net *net)
{
	cli_print(stdout, "%3s  %-24s %12s %14s %12s\n", "#", "host", "sends MB/s", "receives MB/s",
		"latency us");
	for (uint32_t h = 0; h < net->survey.n; h++) {
		cli_print(stdout, "%3u  %-24s %12.1f %14.1f %12.0f\n", h, net->hosts[h],
			coll_survey_host(&net->survey, h, SURVEY_SEND_RATE) / 1e6,
			coll_survey_host(&net->survey, h, SURVEY_RECEIVE_RATE) / 1e6,
			coll_survey_host(&net->survey, h, SURVEY_LATENCY) * 1e6);
	}
}

static void print_matrix(const struct net *net)
{
	uint32_t n = net->survey.n;

	cli_print(stdout, "\nMB/s from row to column, one pair at a time:\n");
	cli_print(stdout, "%3s", "#");
	for (uint32_t to = 0; to < n; to++) {
		cli_print(stdout, " %8u", to);
	}
	for (uint32_t from = 0; from < n; from++) {
		cli_print(stdout, "\n%3u", from);
		for (uint32_t to = 0; to < n; to++) {
			if (from == to) {
				cli_print(stdout, " %8s", "-");
			} else {
				cli_print(stdout, " %8.1f",
					net->survey.bytes_per_s[from * n + to] / 1e6);
			}
		}
	}
	cli_print(stdout, "\n");
}

static void print_flaws(const struct net *net)
{
	const struct coll_survey *survey = &net->survey;
	uint32_t n = survey->n;
	uint32_t found = 0;

	cli_print(stdout, "\n");
	for (uint32_t i = 0; i < n * SURVEY_METRICS; i++) {
		enum survey_metric flaw = i % SURVEY_METRICS;
		double figure = coll_survey_host(survey, i / SURVEY_METRICS, flaw);
		const char *host = net->hosts[i / SURVEY_METRICS];

		if (!coll_survey_is_outlier(survey, i / SURVEY_METRICS, flaw)) {
			continue;
		}
		found++;
		if (flaw == SURVEY_LATENCY) {
			cli_print(stdout, "slow: %s is %.0f us away from all others\n", host,
				figure * 1e6);
		} else {
			cli_print(stdout, "slow: %s %s %.1f MB/s, at best; the others do more\n",
				host, flaw_words[flaw], figure / 1e6);
		}
	}
	for (uint32_t i = 0; i < n * n; i++) {
		if (coll_survey_narrow(survey, i / n, i % n)) {
			found++;
			cli_print(stdout,
				"slow: from %s to %s: %.1f MB/s; both do more with others\n",
				net->hosts[i / n], net->hosts[i % n], survey->bytes_per_s[i] / 1e6);
		}
	}
	if (found == 0 && n > 2) {
		cli_print(stdout, "no host and no pair is slower than the others\n");
	}
}

static void print_link(const struct net *net)
{
	struct net_row row = {.len_bytes = 1};
	char text[COLL_LINK_TEXT];
	char size[CLI_TEXT_MAX];
	bool more = true;

	cli_print(stdout,
		"all at once: %.1f MB/s (%.0f Mbit/s) of each host, each way; latency %.0f us, "
		"%.0f "
		"us a message\n\n",
		net->link.bytes_per_s / 1e6, net->link.bytes_per_s * 8 / 1e6,
		net->link.latency_s * 1e6, net->link.message_s * 1e6);
	cli_print(stdout, "algorithms: ");
	while (more) {
		net_predict(net, 0, &row);
		row.len_bytes = find_change(net, row);
		more = row.len_bytes < LENGTH_MAX;
		cli_print(stdout, more ? "%s%s%s, " : "%s%s%s\n",
			coll_algorithm_name(row.algorithm), more ? " up to " : "",
			more ? cli_size(size, row.len_bytes) : "");
		row.len_bytes++;
	}
	coll_link_print(&net->link, text);
	cli_print(stdout, "export PAWL_LINK=%s\n\n", text);
}

static void print_row(const struct net_row *row)
{
	char size[CLI_TEXT_MAX];
	char predicted[CLI_TEXT_MAX];
	char measured[CLI_TEXT_MAX] = "-";
	char off[CLI_TEXT_MAX] = "";

	if (row->measured_s > 0) {
		print_seconds(measured, row->measured_s);
		snprintf(off, sizeof(off), "%+.1f %%",
			(row->measured_s / row->predicted_s - 1) * 100);
	}
	cli_print(stdout, "%12s  %-10s %12s %12s %10s\n", cli_size(size, row->len_bytes),
		coll_algorithm_name(row->algorithm), print_seconds(predicted, row->predicted_s),
		measured, off);
}

static double bound_model(const struct net *net, uint32_t servers)
{
	const struct coll_hosts hosts = {net->survey.n, servers};

	return coll_bound_s(&net->link, &hosts, net->model_bytes);
}

static void print_model(const struct net *net)
{
	const struct net_row *bucket = &net->rows[net->rows_n - 1];
	double predicted_s = net_predict_model(net, 0);
	char size[CLI_TEXT_MAX];
	char seconds[CLI_TEXT_MAX];
	char bound[CLI_TEXT_MAX];

	cli_print(stdout,
		"\nthe gradient of a model, %llu %s (%s), in buckets of 25 MiB: %s predicted",
		(unsigned long long)(net->model_bytes / coll_type_bytes(net->dtype)),
		coll_type_name(net->dtype), cli_size(size, net->model_bytes),
		print_seconds(seconds, predicted_s));
	if (bucket->measured_s > 0) {
		cli_print(stdout, ", %s at the pace of the last line",
			print_seconds(seconds,
				predicted_s * bucket->measured_s / bucket->predicted_s));
	}
	cli_print(stdout, "; no algorithm can take less than %s\n",
		print_seconds(bound, bound_model(net, 0)));
	if (net->servers > 0) {
		cli_print(stdout,
			"with %u more hosts that only add: %s predicted; no algorithm can take "
			"less than %s\n",
			net->servers, print_seconds(seconds, net_predict_model(net, net->servers)),
			print_seconds(bound, bound_model(net, net->servers)));
	}
}

int net_print(const struct net *net)
{
	print_hosts(net);
	if (net->survey.n <= MATRIX_MAX) {
		print_matrix(net);
	}
	print_flaws(net);
	print_link(net);
	cli_print(stdout, "%12s  %-10s %12s %12s %10s\n", "all-reduce", "algorithm", "predicted",
		"measured", "off");
	for (uint32_t i = 0; i < net->rows_n; i++) {
		print_row(&net->rows[i]);
	}
	print_model(net);
	return CLI_OK;
}

/* ---- JSON ---- */

static json_t *list_hosts(const struct net *net)
{
	json_t *list = json_array();

	for (uint32_t h = 0; h < net->survey.n; h++) {
		json_t *slow = json_array();

		for (enum survey_metric f = 0; f < SURVEY_METRICS; f++) {
			if (coll_survey_is_outlier(&net->survey, h, f)) {
				json_array_append_new(slow, json_string(flaw_words[f]));
			}
		}
		json_array_append_new(list,
			json_pack("{s:o, s:f, s:f, s:f, s:o}", "address",
				cli_json_text(net->hosts[h]), "sends_bytes_per_s",
				coll_survey_host(&net->survey, h, SURVEY_SEND_RATE),
				"receives_bytes_per_s",
				coll_survey_host(&net->survey, h, SURVEY_RECEIVE_RATE), "latency_s",
				coll_survey_host(&net->survey, h, SURVEY_LATENCY), "slow", slow));
	}
	return list;
}

static json_t *list_pairs(const struct net *net)
{
	const struct coll_survey *survey = &net->survey;
	json_t *list = json_array();

	for (uint32_t i = 0; i < survey->n * survey->n; i++) {
		uint32_t from = i / survey->n;
		uint32_t to = i % survey->n;

		if (from != to) {
			json_array_append_new(list,
				json_pack("{s:i, s:i, s:f, s:f, s:b}", "from", (int)from, "to",
					(int)to, "bytes_per_s", survey->bytes_per_s[i], "latency_s",
					survey->latency_s[i], "slow",
					(int)coll_survey_narrow(survey, from, to)));
		}
	}
	return list;
}

static json_t *list_algorithms(const struct net *net)
{
	struct net_row row = {.len_bytes = 1};
	json_t *list = json_array();

	while (row.len_bytes <= LENGTH_MAX) {
		uint64_t last = find_change(net, row);

		net_predict(net, 0, &row);
		json_array_append_new(list,
			json_pack("{s:s, s:I, s:o}", "way", coll_algorithm_name(row.algorithm),
				"from_bytes", (json_int_t)row.len_bytes, "to_bytes",
				last < LENGTH_MAX ? json_integer((json_int_t)last) : json_null()));
		row.len_bytes = last + 1;
	}
	return list;
}

static json_t *show_row(const struct net *net, const struct net_row *row)
{
	const struct coll_hosts hosts = {net->survey.n, 0};

	return json_pack("{s:I, s:s, s:f, s:f, s:o}", "bytes", (json_int_t)row->len_bytes, "way",
		coll_algorithm_name(row->algorithm), "predicted_s", row->predicted_s, "bound_s",
		coll_bound_s(&net->link, &hosts, row->len_bytes), "measured_s",
		row->measured_s > 0 ? json_real(row->measured_s) : json_null());
}

static json_t *show_model(const struct net *net, uint32_t servers)
{
	return json_pack("{s:I, s:I, s:i, s:f, s:f}", "bytes", (json_int_t)net->model_bytes,
		"bucket_bytes", (json_int_t)NET_BUCKET_BYTES, "servers", (int)servers,
		"predicted_s", net_predict_model(net, servers), "bound_s",
		bound_model(net, servers));
}

int net_print_json(const struct net *net)
{
	json_t *tried = json_array();
	char text[COLL_LINK_TEXT];

	for (uint32_t i = 0; i < net->rows_n; i++) {
		json_array_append_new(tried, show_row(net, &net->rows[i]));
	}
	coll_link_print(&net->link, text);
	return cli_json(json_pack("{s:o, s:o, s:{s:f, s:f, s:f, s:s}, s:o, s:s, s:o, s:o, s:o}",
		"hosts", list_hosts(net), "pairs", list_pairs(net), "link", "bytes_per_s",
		net->link.bytes_per_s, "latency_s", net->link.latency_s, "message_s",
		net->link.message_s, "PAWL_LINK", text, "ways", list_algorithms(net), "dtype",
		coll_type_name(net->dtype), "tried", tried, "model", show_model(net, 0),
		"with_servers", net->servers > 0 ? show_model(net, net->servers) : json_null()));
}
