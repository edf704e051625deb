/*
 * Answers requests over HTTP: see http.h and docs/sched.md.
 *
 * Errors are JSON, {"error": "…"}. Whether a request is allowed is decided by its header alone,
 * before a body is read; hints are decoded afterwards.
 */
#include "daemon/http_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "base/times.h"
#include "daemon/hints.h"
#include "daemon/sched_msg_json.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define JSON_TYPE "application/json"
#define HTML_TYPE "text/html; charset=utf-8"
#define TEXT_MAX  (PAWL_ERR_MSG_MAX + 64u)

/* State of a search through the headers of a request. */
struct host_search {
	const struct http_listener *listener;
	const char *foreign; /* a Host that is not ours; NULL: none so far */
};

/* ---- answers ---- */

static enum MHD_Result respond(struct http_request *r, unsigned code, const char *type,
	struct MHD_Response *response)
{
	enum MHD_Result rv;

	if (!response) {
		return MHD_NO;
	}
	if (type) {
		MHD_add_response_header(response, "Content-Type", type);
	}
	if (code == 405) {
		MHD_add_response_header(response, "Allow", r->route.allow);
	}
	if (code == 401) { /* a browser asks its user for a password, which permits reading only */
		MHD_add_response_header(response, "WWW-Authenticate",
			strcmp(r->method, "POST") == 0 ? "Bearer" : "Basic realm=\"pawl\"");
	}
	MHD_add_response_header(response, "Cache-Control", "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	if (type && strcmp(type, HTML_TYPE) == 0) {
		MHD_add_response_header(response, "Content-Security-Policy",
			"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
	}
	rv = MHD_queue_response(r->handle, code, response);
	MHD_destroy_response(response);
	metrics_count_answer(&r->listener->http->daemon->metrics, code);
	return rv;
}

static enum MHD_Result send_bytes(struct http_request *r, unsigned code, const char *type,
	struct wire_out *out)
{
	struct MHD_Response *response = out->failed
		? NULL
		: MHD_create_response_from_buffer(out->len_bytes, out->bytes,
			  MHD_RESPMEM_MUST_COPY);

	wire_out_deinit(out);
	return respond(r, code, type, response);
}

static enum MHD_Result send_json(struct http_request *r, unsigned code, json_t *all)
{
	char *text = all ? json_dumps(all, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
	struct MHD_Response *response = NULL;

	json_decref(all);
	if (text) {
		response =
			MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	}
	return respond(r, code, JSON_TYPE, response);
}

static enum MHD_Result send_nothing(struct http_request *r)
{
	return respond(r, 200, NULL,
		MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

__attribute__((format(printf, 3, 4))) static enum MHD_Result refuse(struct http_request *r,
	unsigned code, const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return send_json(r, code, json_pack("{s:o}", "error", sched_msg_text_json(text)));
}

static enum MHD_Result refuse_err(struct http_request *r, const struct pawl_err *err)
{
	unsigned code = err->code == PAWL_ENOENT ? 404
		: err->code == PAWL_EINVAL       ? 400
		: err->code == PAWL_ELIMIT       ? 413
		: err->code == PAWL_ENOMEM       ? 503
						 : 500;

	return refuse(r, code, "%s", err->msg);
}

/* ---- permissions ---- */

/* Returns whether the request has the token: as "Bearer TOKEN" or, for reading, also as the
 * password that a browser sends. */
static bool has_token(struct http_request *r)
{
	const struct http_key *key = &r->listener->http->key;
	const char *authorization =
		MHD_lookup_connection_value(r->handle, MHD_HEADER_KIND, "Authorization");
	char *password = NULL;
	char *user;
	bool right;

	if (authorization && strncasecmp(authorization, "Bearer ", 7) == 0) {
		return http_key_is_token(key, authorization + 7);
	}
	if (!http_route_allows(&r->route, "GET")) {
		return false;
	}
	user = MHD_basic_auth_get_username_password(r->handle, &password);
	right = password && http_key_is_token(key, password);
	MHD_free(user);
	MHD_free(password);
	return right;
}

/* Returns the newest job of that name, or number, in that user's space that is not over; NULL:
 * none. */
static const struct core_job *find_job(const struct daemon *d, const struct http_route *route)
{
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(d->core, &jobs);
	const struct core_job *found = NULL;
	char space[CORE_NAME_MAX];
	uint64_t number;
	uint64_t id = 0;

	if (http_number(route->name, UINT64_MAX, &number)) {
		id = number;
	}
	for (uint32_t i = n; i-- > 0 && !found;) {
		const struct core_job *job = jobs[i];
		bool named = id > 0 ? job->id == id : strcmp(job->request.name, route->name) == 0;

		if (named && job->state < CORE_DONE &&
			((http_number(route->space, UINT32_MAX, &number) &&
				 number == job->request.owner) ||
				strcmp(route->space,
					http_space(job->request.owner, space, sizeof(space))) ==
					0)) {
			found = job;
		}
	}
	return found;
}

static bool is_open(const struct http_request *r)
{
	enum http_resource resource = r->route.resource;

	return resource == HTTP_HEALTH || (resource == HTTP_METRICS && r->listener->loopback);
}

/* Returns 0 if the request is allowed, else the code to refuse it with. */
static unsigned check_right(struct http_request *r)
{
	const struct http *http = r->listener->http;
	const struct core_job *job;

	if (is_open(r)) {
		return 0;
	}
	if (r->route.secret[0] != '\0') {
		job = find_job(http->daemon, &r->route);
		return job && http_key_is_secret(&http->key, job->id, r->route.secret) ? 0 : 403;
	}
	return has_token(r) ? 0 : 401;
}

static enum MHD_Result count_lengths(void *user, enum MHD_ValueKind kind, const char *name,
	const char *value)
{
	unsigned *n = user;

	*n += strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0;
	return MHD_YES;
}

/* Returns whether the request has more than one header that gives the length of its body: a proxy
 * may then split requests elsewhere than we do (RFC 9112, 6.3). */
static bool has_two_lengths(struct http_request *r)
{
	unsigned n = 0;

	MHD_get_connection_values(r->handle, MHD_HEADER_KIND, count_lengths, &n);
	return n > 1;
}

static bool is_too_long(struct http_request *r)
{
	const char *content_length =
		MHD_lookup_connection_value(r->handle, MHD_HEADER_KIND, "Content-Length");
	uint64_t len = 0;

	return content_length &&
		(!http_number(content_length, UINT64_MAX, &len) ||
			len > HINTS_BYTES_MAX + HTTP_DISCARD_BYTES);
}

static enum MHD_Result find_foreign(void *user, enum MHD_ValueKind kind, const char *name,
	const char *value)
{
	struct host_search *search = user;
	const char *host = value ? value : "";

	if (strcasecmp(name, "Host") == 0 &&
		!http_host_is_ours(&search->listener->http->host, search->listener->cert, host)) {
		search->foreign = host;
	}
	return MHD_YES;
}

/* Returns a Host of the request that is not ours; NULL: there is none. Only a client that is no
 * browser sends none at all (HTTP/1.0). */
static const char *foreign_host(struct http_request *r)
{
	struct host_search search = {.listener = r->listener};

	MHD_get_connection_values(r->handle, MHD_HEADER_KIND, find_foreign, &search);
	return search.foreign;
}

static enum MHD_Result refuse_host(struct http_request *r, const char *host)
{
	char shown[HTTP_HOST_MAX];

	text_escape(shown, sizeof(shown), host);
	return refuse(r, 421,
		"Host: %s is not a name of this scheduler: use its address or localhost, or give "
		"it "
		"that name (pawl sched --http-name)",
		shown);
}

enum MHD_Result http_check(struct http_request *r)
{
	const char *foreign = foreign_host(r);
	unsigned code;

	if (foreign) {
		return refuse_host(r, foreign);
	}
	if (has_two_lengths(r)) {
		return refuse(r, 400, "the request gives the length of its body twice");
	}
	if (r->route.resource == HTTP_NOTHING) {
		return r->route.allow ? refuse(r, 400, "the path is malformed")
				      : refuse(r, 404, "there is no such path");
	}
	if (!http_route_allows(&r->route, r->method)) {
		return refuse(r, 405, "the path allows only %s", r->route.allow);
	}
	code = check_right(r);
	if (code == 403) {
		return refuse(r, 403, "this is not the URL of that job, or there is no such job");
	}
	if (code == 401) {
		return refuse(r, 401, "%s",
			r->listener->http->key.has_token
				? "the token is needed: Authorization: Bearer TOKEN"
				: "a token is needed, but the scheduler has none: start it with "
				  "pawl sched --http-token FILE");
	}
	if (is_too_long(r)) {
		return refuse(r, 413, "at most %u bytes are read", HINTS_BYTES_MAX);
	}
	return MHD_YES;
}

/* ---- jobs of AdaptDL ---- */

static enum MHD_Result take_hints(struct http_request *r)
{
	struct daemon *d = r->listener->http->daemon;
	const struct core_job *job = find_job(d, &r->route);
	struct pawl_err err;

	if (!job) {
		return refuse(r, 404, "%s has no job %s that is not over", r->route.space,
			r->route.name);
	}
	if (job->current.n == 0) {
		return refuse(r, 409, "job %llu does not run: it is %s",
			(unsigned long long)job->id, core_state_name(job->state));
	}
	if (r->body.failed) {
		return refuse(r, 503, "no memory for hints");
	}
	return daemon_set_hints(d, job, r->body.bytes, r->body.len_bytes, &err) == 0
		? send_nothing(r)
		: refuse_err(r, &err);
}

static void put_address(json_t *list, const char *address, uint32_t replicas)
{
	for (uint32_t i = 0; i < replicas; i++) {
		json_array_append_new(list, json_string(address));
	}
}

/* Sends the address of each replica. A job that runs once per node has one replica there. */
static enum MHD_Result send_addresses(struct http_request *r, const struct core_job *job)
{
	const struct daemon *d = r->listener->http->daemon;
	struct sched_engine_host *hosts = NULL;
	json_t *list = json_array();
	uint32_t n = 0;

	if (!d->engine->hosts) { /* all replicas are here */
		put_address(list, "127.0.0.1", job->current.replicas);
	} else {
		n = d->engine->hosts(d->engine_self, job->id, job->generation, NULL, 0);
		hosts = calloc(n, sizeof(*hosts));
		n = hosts ? d->engine->hosts(d->engine_self, job->id, job->generation, hosts, n)
			  : 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		put_address(list, hosts[i].address, job->request.in_place ? hosts[i].replicas : 1);
	}
	free(hosts);
	return send_json(r, 200, list);
}

static enum MHD_Result discover(struct http_request *r)
{
	struct daemon *d = r->listener->http->daemon;
	const char *timeout =
		MHD_lookup_connection_value(r->handle, MHD_GET_ARGUMENT_KIND, "timeout");
	const struct core_job *job = find_job(d, &r->route);
	uint64_t group = 0;
	uint64_t timeout_s = times_s(TIME_HTTP_POLL);

	if (!http_number(r->route.group, UINT32_MAX, &group) ||
		(timeout && !http_number(timeout, HTTP_POLL_MAX_S, &timeout_s))) {
		return refuse(r, 400,
			"group must be a number, and timeout a number of at most %u seconds",
			HTTP_POLL_MAX_S);
	}
	if (!job || (r->job != 0 && job->id != r->job)) {
		return refuse(r, 404, "%s has no job %s that is not over", r->route.space,
			r->route.name);
	}
	if (http_is_group_running(d, job, group)) {
		return send_addresses(r, job);
	}
	if (r->job == 0) {
		r->job = job->id;
		r->due_ns = clock_mono_ns() + (int64_t)timeout_s * NS_PER_S;
	}
	if (clock_mono_ns() >= r->due_ns) {
		return refuse(r, 408, "job %llu does not run as group %llu: it is %s, of group %u",
			(unsigned long long)job->id, (unsigned long long)group,
			core_state_name(job->state), job->restarts);
	}
	return http_wait(r) ? MHD_YES : refuse(r, 503, "too many requests wait: try again later");
}

/* ---- memberships ---- */

/* Takes the report of a launcher. Returns 0, or an error of PAWL_E. */
static int take_report(struct http_request *r, struct pawl_err *err)
{
	struct http *http = r->listener->http;
	struct launcher_report report;
	bool changed = false;
	int rv = launcher_report_read(&report, r->body.bytes, r->body.len_bytes, err);

	if (rv != 0) {
		return rv;
	}
	rv = memberships_take(http->memberships, r->membership, &report, clock_mono_ns(), &changed,
		err);
	r->taken = rv == 0;
	r->launcher = report.launcher;
	r->instance = report.instance;
	r->version = report.version;
	launcher_report_deinit(&report);
	if (changed) {
		http_notify(http);
	}
	return rv;
}

/* Finds the membership of the path. Returns false if there is no such job. */
static bool find_membership(struct http_request *r)
{
	const struct core_job *job = NULL;

	if (r->route.resource == HTTP_MEMBERSHIPS) {
		snprintf(r->membership, sizeof(r->membership), "memberships/%s", r->route.name);
		return true;
	}
	job = find_job(r->listener->http->daemon, &r->route);
	r->job = job ? job->id : 0;
	snprintf(r->membership, sizeof(r->membership), "job/%llu", (unsigned long long)r->job);
	return job != NULL;
}

static enum MHD_Result answer_launcher(struct http_request *r)
{
	struct http *http = r->listener->http;
	const char *wait = MHD_lookup_connection_value(r->handle, MHD_GET_ARGUMENT_KIND, "wait");
	uint64_t wait_s = 0;
	struct pawl_err err;
	char *text;

	if (!r->taken) {
		if (wait && !http_number(wait, MEMBERSHIPS_WAIT_MAX_S, &wait_s)) {
			return refuse(r, 400, "wait must be a number of at most %u seconds",
				MEMBERSHIPS_WAIT_MAX_S);
		}
		if (!find_membership(r)) {
			return refuse(r, 404, "%s has no job %s that is not over", r->route.space,
				r->route.name);
		}
		r->due_ns = clock_mono_ns() + (int64_t)wait_s * NS_PER_S;
		if (r->body.failed || take_report(r, &err) != 0) {
			return r->body.failed ? refuse(r, 503, "no memory for the request")
					      : refuse_err(r, &err);
		}
	}
	if (clock_mono_ns() < r->due_ns &&
		!memberships_has_news(http->memberships, r->membership, r->instance, r->version) &&
		http_wait(r)) {
		return MHD_YES;
	}
	text = memberships_answer(http->memberships, r->membership, r->launcher, clock_mono_ns());
	return respond(r, 200, JSON_TYPE,
		text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE)
		     : NULL);
}

/* ---- for operators ---- */

static enum MHD_Result send_metrics(struct http_request *r)
{
	struct http *http = r->listener->http;
	const struct daemon *d = http->daemon;
	const struct metrics_view view = {.metrics = &d->metrics,
		.core = d->core,
		.database = d->database,
		.now_ns = daemon_now_ns(d),
		.queues = d->options->core.queues,
		.queues_n = d->options->core.queues_n,
		.types = (const char(*)[CORE_NAME_MAX])d->options->types,
		.types_here = d->options->types_here,
		.connections = http->conns_n};
	struct wire_out out = {NULL};
	struct pawl_err err;

	if (metrics_print(&out, &view, &err) != 0) {
		wire_out_deinit(&out);
		return refuse_err(r, &err);
	}
	return send_bytes(r, 200, METRICS_TEXT_TYPE, &out);
}

static enum MHD_Result send_nodes(struct http_request *r)
{
	const struct daemon *d = r->listener->http->daemon;
	const struct core_node *nodes;
	uint32_t n = core_nodes(d->core, &nodes);
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++) {
		struct sched_msg_node row;

		if (daemon_describe_node(d, &nodes[i], &row)) {
			json_array_append_new(list, sched_msg_node_json(&row));
		}
	}
	return send_json(r, 200, list);
}

static enum MHD_Result send_jobs(struct http_request *r)
{
	const struct daemon *d = r->listener->http->daemon;
	const struct core_job *const *jobs;
	uint32_t n = core_jobs(d->core, &jobs);
	json_t *list = json_array();

	for (uint32_t i = 0; i < n && json_array_size(list) < HTTP_JOBS_MAX; i++) {
		struct sched_msg_job row;

		if (jobs[i]->state < CORE_DONE) {
			daemon_describe(d, jobs[i], &row);
			json_array_append_new(list, sched_msg_job_json(&row));
		}
	}
	return send_json(r, 200, list);
}

static enum MHD_Result send_job(struct http_request *r)
{
	struct sched_msg_shown shown;
	struct pawl_err err;

	return daemon_show(r->listener->http->daemon, r->route.name, &shown, &err) == 0
		? send_json(r, 200, sched_msg_shown_json(&shown))
		: refuse_err(r, &err);
}

/* Carries out a command as the scheduler's own user: the token has that user's permissions. */
static enum MHD_Result command(struct http_request *r, enum core_event_kind kind)
{
	uint64_t job = 0;
	struct pawl_err err;
	int rv = daemon_command(r->listener->http->daemon, (uint32_t)geteuid(), r->route.name, kind,
		&job, &err);

	if (rv == PAWL_EINVAL) {
		return refuse(r, 409, "%s", err.msg);
	}
	return rv == 0 ? send_json(r, 200, json_pack("{s:I}", "id", (json_int_t)job))
		       : refuse_err(r, &err);
}

static enum MHD_Result send_page(struct http_request *r)
{
	struct wire_out out = {NULL};

	http_page(r->listener->http->daemon, &out);
	return send_bytes(r, 200, HTML_TYPE, &out);
}

enum MHD_Result http_answer(struct http_request *r)
{
	if (r->too_long) {
		return refuse(r, 413, "at most %u bytes are read", HINTS_BYTES_MAX);
	}
	switch (r->route.resource) {
	case HTTP_HEALTH:
		return send_nothing(r);
	case HTTP_METRICS:
		return send_metrics(r);
	case HTTP_HINTS:
		return take_hints(r);
	case HTTP_DISCOVER:
		return discover(r);
	case HTTP_MEMBERSHIP:
	case HTTP_MEMBERSHIPS:
		return answer_launcher(r);
	case HTTP_NODES:
		return send_nodes(r);
	case HTTP_JOBS:
		return send_jobs(r);
	case HTTP_JOB:
		return send_job(r);
	case HTTP_CANCEL:
		return command(r, CORE_CANCEL);
	case HTTP_PAUSE:
		return command(r, CORE_PAUSE);
	case HTTP_RESUME:
		return command(r, CORE_RESUME);
	default:
		return send_page(r);
	}
}
