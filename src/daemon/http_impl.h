/* What the files of http*.c share. */
#ifndef DAEMON_HTTP_IMPL_H
#define DAEMON_HTTP_IMPL_H

#include "daemon/daemon_impl.h"
#include "daemon/http.h"
#include "daemon/http_host.h"
#include "daemon/http_key.h"
#include "daemon/http_places.h"

#include <microhttpd.h>

struct http_listener {
	struct http *http;
	struct MHD_Daemon *server; /* owned; NULL: not yet */
	struct listener listen;    /* its socket */
	struct loop_source source; /* the server's epoll descriptor */
	struct loop_timer timer;   /* it has something to do then */
	char url[HTTP_URL_MAX];
	char others[HTTP_URL_MAX]; /* by which others reach it; "": they do not */
	char *cert, *key;          /* owned; PEM; NULL: no TLS */
	struct http_place *places; /* of its connections, the newest first */
	bool loopback;
	bool resumed; /* since it was run last, so it is to be run again */
};

/* One connection, which has one request at a time. */
struct http_conn {
	struct http_place place; /* comes first: lists are of these */
	struct MHD_Connection *conn;
};

struct http_request {
	struct http_listener *listener;
	struct http_conn *conn;
	struct http_request *next; /* that waits, too; while it does */
	struct MHD_Connection *handle;
	struct http_route route;
	const char *method;
	struct wire_out body;
	bool too_long;          /* its body is */
	size_t discarded_bytes; /* of one that is */
	uint64_t job;           /* discovery: whose */
	int64_t due_ns;         /* discovery: until when, monotonic clock */
};

struct http {
	struct daemon *daemon;
	struct http_key key;
	struct http_listener listeners[HTTP_LISTENERS_MAX];
	uint32_t n;
	struct http_host host;
	uint32_t conns_n; /* of all listeners */
	struct http_request *waiting;
	uint32_t waiting_n;
	struct loop_timer sweep; /* slow connections are looked for */
	struct loop_timer due;   /* of those that wait */
};

/* ---- http_answer.c ---- */

/* The head is there: refuses it, or has it go on. */
enum MHD_Result http_check(struct http_request *request);
/* All is there: answers it, or has it wait. */
enum MHD_Result http_answer(struct http_request *request);
/* Whether a request that waits can be answered. */
bool http_is_ready(const struct http_request *request);

/* ---- http_page.c ---- */

/* A page for people: nodes and jobs. */
void http_page(const struct daemon *daemon, struct wire_out *out);

/* ---- http.c ---- */

/* It waits, until it is ready or due. False: too many do. */
bool http_wait(struct http_request *request);

#endif
