/*
 * HTTP in the daemon's loop: see http.h.
 *
 * libmicrohttpd has an epoll descriptor, which the loop watches. When it is ready, or a timer that
 * the library asked for fires, the loop runs the library, which calls back. A request that waits
 * is suspended. It is resumed within a call of the core, which may itself come from such
 * a callback; so the server is then run by its timer, not at once.
 *
 * The listening socket is ours. The library would remove its own socket from its epoll when all
 * places are taken, and add it again only when it is run, which nothing may trigger. http_places.h
 * chooses the connection that is evicted.
 */
#include "daemon/http_impl.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/times.h"
#include "daemon/hints.h"
#include "daemon/http/http_listen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define URL_FILE "http"
/* only ciphers that authenticate as they encrypt: none of CBC */
#define TLS_PRIORITY "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1:-MAC-ALL:+AEAD"
/* connections that were cut off, and that the library has not closed yet */
#define LEAVING_MAX 64u
/* a membership of which no launcher has reported for so long is forgotten */
#define MEMBERSHIP_KEPT_NS (3600 * NS_PER_S)

/* ---- running ---- */

static void run_server(struct http_listener *l)
{
	MHD_UNSIGNED_LONG_LONG ms = 0;
	struct loop *loop = l->http->daemon->loop;

	l->resumed = false;
	MHD_run(l->server);
	if (l->resumed) {
		loop_timer_start(loop, &l->timer, clock_mono_ns());
	} else if (MHD_get_timeout(l->server, &ms) == MHD_YES) {
		loop_timer_start(loop, &l->timer,
			clock_mono_ns() + (int64_t)(ms < 1000 ? ms : 1000) * NS_PER_MS);
	} else {
		loop_timer_cancel(loop, &l->timer);
	}
}

static void on_ready(struct loop_source *source, uint32_t events)
{
	run_server(source->user);
}

static void on_timer(struct loop_timer *timer)
{
	run_server(timer->user);
}

static void on_due(struct loop_timer *timer)
{
	http_wake(timer->user, clock_mono_ns(), false);
}

/* ---- connections ---- */

/* Cuts a connection off, without an answer: the client may not read one. */
static void cut_off(struct http_place *place)
{
	struct http_conn *c = (struct http_conn *)place;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c->conn, MHD_CONNECTION_INFO_CONNECTION_FD);

	shutdown(info->connect_fd, SHUT_RDWR); /* the library sees that, and closes it */
	place->leaving = true;
}

/* Returns whether the client is gone. The library does not read from a suspended connection, and so
 * does not notice. */
static bool has_left(const struct http_request *request)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(request->handle, MHD_CONNECTION_INFO_CONNECTION_FD);
	char byte;
	ssize_t n = recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void on_sweep(struct loop_timer *timer)
{
	struct http *http = timer->user;
	int64_t now_ns = clock_mono_ns();

	memberships_forget(http->memberships, now_ns - MEMBERSHIP_KEPT_NS);
	for (struct http_request *r = http->waiting; r; r = r->next) {
		r->due_ns = has_left(r) ? 0 : r->due_ns;
	}
	http_notify(http);
	for (uint32_t i = 0; i < http->n; i++) {
		for (struct http_place *p = http->listeners[i].places; p; p = p->next) {
			if (!p->waiting && now_ns - p->since_ns > times_ns(TIME_HTTP_REQUEST)) {
				cut_off(p);
			}
		}
	}
	if (http->conns_n > 0) {
		loop_timer_start(http->daemon->loop, timer, now_ns + times_ns(TIME_HTTP_SWEEP));
	}
}

static void on_connect(struct listener *listener, int fd, const struct sockaddr *from,
	socklen_t len)
{
	struct http_listener *l = listener->user;

	if (http_places_taken(l->places) >= HTTP_CONNECTIONS_MAX) {
		struct http_place *place = http_places_victim(l->places);

		if (!place) {
			close(fd);
			return;
		}
		cut_off(place);
	}
	MHD_add_connection(l->server, fd, from, len); /* closes fd if it cannot */
	run_server(l);
}

static void open_conn(struct http_listener *l, struct MHD_Connection *handle, void **context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct http *http = l->http;
	struct http_conn *c = calloc(1, sizeof(*c));

	*context = c;
	if (!c) {
		return; /* requests of this connection are refused */
	}
	*c = (struct http_conn){.conn = handle,
		.place = {.next = l->places, .since_ns = clock_mono_ns()}};
	http_place_name(info->client_addr, c->place.peer);
	l->places = &c->place;
	http->conns_n++;
	if (!http->sweep.active) {
		loop_timer_start(http->daemon->loop, &http->sweep,
			c->place.since_ns + times_ns(TIME_HTTP_SWEEP));
	}
}

static void on_connection(void *user, struct MHD_Connection *handle, void **context,
	enum MHD_ConnectionNotificationCode what)
{
	struct http_listener *l = user;
	struct http_place **at = &l->places;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		open_conn(l, handle, context);
		return;
	}
	while (*at && (void *)*at != *context) {
		at = &(*at)->next;
	}
	if (*at) {
		*at = (*at)->next;
		l->http->conns_n--;
	}
	free(*context);
	*context = NULL;
}

/* ---- requests ---- */

static void on_completed(void *user, struct MHD_Connection *handle, void **context,
	enum MHD_RequestTerminationCode code)
{
	struct http_request *request = *context;

	if (request) {
		request->conn->place.since_ns = clock_mono_ns();
		wire_out_deinit(&request->body);
		free(request);
		*context = NULL;
	}
}

static enum MHD_Result begin_request(struct http_listener *l, struct MHD_Connection *handle,
	const char *method, const char *path, void **context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(handle, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct http_request *request =
		info && info->socket_context ? calloc(1, sizeof(*request)) : NULL;

	if (!request) {
		return MHD_NO;
	}
	*request = (struct http_request){.listener = l,
		.conn = info->socket_context,
		.handle = handle,
		.method = method};
	*context = request;
	if (!http_route_parse(&request->route, path)) {
		request->route.resource = HTTP_NOTHING;
		request->route.allow = ""; /* path is malformed */
	}
	return http_check(request);
}

/* Adds a part of the body. The rest of a body that is too long is read and dropped, up to
 * HTTP_DISCARD_BYTES, so that its sender reads the refusal. */
static enum MHD_Result take_body(struct http_request *request, const char *bytes, size_t *len_bytes)
{
	request->too_long =
		request->too_long || request->body.len_bytes + *len_bytes > HINTS_BYTES_MAX;
	if (request->too_long) {
		request->discarded_bytes += *len_bytes;
	} else {
		wire_put_raw(&request->body, bytes, *len_bytes);
	}
	*len_bytes = 0;
	return request->discarded_bytes <= HTTP_DISCARD_BYTES ? MHD_YES : MHD_NO;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *handle, const char *path,
	const char *method, const char *version, const char *bytes, size_t *len_bytes,
	void **context)
{
	if (!*context) {
		return begin_request(user, handle, method, path, context);
	}
	return *len_bytes > 0 ? take_body(*context, bytes, len_bytes) : http_answer(*context);
}

/* Leaves paths encoded: http_route.h decodes them, part by part. */
static size_t leave_escaped(void *user, struct MHD_Connection *handle, char *text)
{
	return strlen(text);
}

/* ---- opening ---- */

__attribute__((format(printf, 2, 0))) static void on_server_log(void *user, const char *fmt,
	va_list args)
{
	struct pawl_err *start_error = user;

	if (start_error->code == 0) { /* the server is being started */
		vsnprintf(start_error->msg, sizeof(start_error->msg), fmt, args);
		start_error->msg[strcspn(start_error->msg, "\n")] = '\0';
	}
}

static int start_server(struct http_listener *l, struct pawl_err *err)
{
	static struct pawl_err start_error; /* the library keeps a pointer to it */
	unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
		MHD_USE_ERROR_LOG | (l->cert ? MHD_USE_TLS : 0);
	const struct MHD_OptionItem options[] = {
		{MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS_MAX + LEAVING_MAX, NULL},
		{MHD_OPTION_CONNECTION_TIMEOUT, times_s(TIME_HTTP_IDLE), NULL},
		{MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_HEADER_BYTES, NULL},
		{MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL},
		{l->cert ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, l->cert},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, l->key},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITY},
		{MHD_OPTION_END, 0, NULL},
	};

	start_error = (struct pawl_err){.code = 0};
	l->server = MHD_start_daemon(flags, 0, NULL, NULL, on_request, l,
		MHD_OPTION_EXTERNAL_LOGGER, on_server_log, &start_error,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, l, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, l, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL,
		MHD_OPTION_ARRAY, options, MHD_OPTION_END);
	start_error.code = 1;
	if (!l->server) {
		return pawl_err_set(err, PAWL_EINVAL, "answer at %s: %s", l->url,
			start_error.msg[0] != '\0' ? start_error.msg
						   : "the HTTP server cannot be started");
	}
	return 0;
}

static int check_address(const struct http_options *o, const char *text,
	const struct http_address *address, struct pawl_err *err)
{
	if (address->loopback || (o->token_file && o->cert_file && o->key_file)) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"--http %s: other machines reach that address, which needs a token file, a "
		"certificate and its key (--http-token, --http-cert, --http-key); or listen at "
		"127.0.0.1",
		text);
}

static int name_listener(struct http_listener *l, const struct http_options *o,
	const struct http_address *address, struct pawl_err *err)
{
	int rv = http_external_url(address, l->url, o->name, l->external_url,
		sizeof(l->external_url), err);

	return rv == PAWL_ENOENT ? 0 : rv;
}

static int open_listener(struct http_listener *l, const struct http_options *o, uint32_t i,
	struct pawl_err *err)
{
	const union MHD_DaemonInfo *info;
	struct http_address address;
	int rv = http_address_parse(&address, o->addresses[i], err);
	int fd;

	rv = rv == 0 ? check_address(o, o->addresses[i], &address, err) : rv;
	if (rv != 0) {
		return rv;
	}
	l->loopback = address.loopback;
	if (!address.loopback) {
		l->cert = http_read_file(o->cert_file, err);
		l->key = l->cert ? http_read_file(o->key_file, err) : NULL;
		if (!l->key) {
			return err->code;
		}
	}
	fd = http_listen(&address, l->cert != NULL, l->url, sizeof(l->url), err);
	rv = fd < 0 ? fd : start_server(l, err);
	rv = rv == 0 ? listener_start(&l->listen, l->http->daemon->loop, fd, err) : rv;
	if (rv != 0 && fd >= 0) {
		close(fd);
	}
	rv = rv == 0 ? name_listener(l, o, &address, err) : rv;
	info = rv == 0 ? MHD_get_daemon_info(l->server, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (info) {
		l->source = (struct loop_source){info->epoll_fd, on_ready, l};
		rv = loop_add(l->http->daemon->loop, &l->source, EPOLLIN, err);
	}
	return rv;
}

/* Writes a URL a line, for tools and tests. */
static int write_urls(const struct http *http, struct pawl_err *err)
{
	const char *root = http->daemon->options->root;
	char path[PATH_MAX];
	char text[HTTP_LISTENERS_MAX * (HTTP_URL_MAX + 1u)] = "";
	size_t len = 0;

	for (uint32_t i = 0; i < http->n; i++) {
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s\n",
			http->listeners[i].url);
	}
	snprintf(path, sizeof(path), "%.4000s/" URL_FILE, root);
	return file_put(path, text, len, 0644, false, err);
}

/* Launchers notice by the time of the start that the scheduler was restarted. */
static int open_memberships(struct http *http, struct pawl_err *err)
{
	http->memberships = memberships_open((uint64_t)clock_wall_ns());
	return http->memberships ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory for HTTP");
}

int http_open(struct http **out, struct daemon *daemon, const struct http_options *o,
	struct pawl_err *err)
{
	char path[PATH_MAX];
	struct http *http;
	int rv;

	snprintf(path, sizeof(path), "%.4000s/" URL_FILE, daemon->options->root);
	unlink(path); /* a killed scheduler leaves it */
	if (o->n == 0) {
		return 0;
	}
	http = calloc(1, sizeof(*http));
	if (!http) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for HTTP");
	}
	http->daemon = daemon;
	http_host_init(&http->host, o->name);
	http->sweep = (struct loop_timer){.fired = on_sweep, .user = http};
	http->due = (struct loop_timer){.fired = on_due, .user = http};
	rv = open_memberships(http, err);
	rv = rv == 0 ? http_key_load(&http->key, daemon->options->root, o->token_file, err) : rv;
	for (uint32_t i = 0; i < o->n && rv == 0; i++) {
		struct http_listener *l = &http->listeners[i];

		l->http = http;
		l->listen = (struct listener){.what = "a request over HTTP",
			.accepted = on_connect,
			.user = l};
		l->timer = (struct loop_timer){.fired = on_timer, .user = l};
		http->n = i + 1;
		rv = open_listener(l, o, i, err);
	}
	if (rv == 0 && daemon->engine->remote && o->name[0] != '\0' && !http_find_url(http)) {
		rv = pawl_err_set(err, PAWL_EINVAL,
			"--http-name %s: needs an --http address that other nodes reach", o->name);
	}
	rv = rv == 0 ? write_urls(http, err) : rv;
	if (rv != 0) {
		http_close(http);
		return rv;
	}
	for (uint32_t i = 0; i < http->n; i++) {
		log_line(LOG_INFO, "answers at %s", http->listeners[i].url);
	}
	if (daemon->engine->remote && http_find_url(http)) {
		log_line(LOG_INFO, "jobs get the URL %s", http_find_url(http));
	} else if (daemon->engine->remote) {
		log_line(LOG_INFO,
			"jobs get no URL: no --http has an address that other nodes reach, "
			"and 0.0.0.0 needs --http-name");
	}
	*out = http;
	return 0;
}

void http_close(struct http *http)
{
	char path[PATH_MAX];

	if (!http) {
		return;
	}
	http_wake(http, 0, true);
	for (uint32_t i = 0; i < http->n; i++) {
		struct http_listener *l = &http->listeners[i];

		listener_stop(&l->listen);
		if (l->source.user) {
			loop_remove(http->daemon->loop, &l->source);
		}
		if (l->server) {
			MHD_stop_daemon(l->server);
		}
		loop_timer_cancel(http->daemon->loop, &l->timer);
		free(l->cert);
		free(l->key);
	}
	loop_timer_cancel(http->daemon->loop, &http->sweep);
	loop_timer_cancel(http->daemon->loop, &http->due);
	snprintf(path, sizeof(path), "%.4000s/" URL_FILE, http->daemon->options->root);
	unlink(path);
	memberships_close(http->memberships);
	free(http);
}
