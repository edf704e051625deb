/*
 * Shared by the files of http*.c, and declared below from the bottom up. http_waiting.c and
 * http_urls.c are below the daemon, whose events wake requests that wait, and whose jobs get URLs.
 * http.c, the server, calls http_answer.c, which calls the daemon's requests and http_page.c.
 */
#ifndef DAEMON_HTTP_IMPL_H
#define DAEMON_HTTP_IMPL_H

#include "daemon/daemon_impl.h"
#include "daemon/http.h"
#include "daemon/http/http_host.h"
#include "daemon/http/http_key.h"
#include "daemon/http/http_places.h"
#include "daemon/memberships.h"

#include <microhttpd.h>

struct http_listener {
	struct http *http;
	struct MHD_Daemon *server; /* owned; NULL: not yet */
	struct listener listen;    /* listening socket */
	struct loop_source source; /* the server's epoll descriptor */
	struct loop_timer timer;   /* fires when the server has something to do */
	char url[HTTP_URL_MAX];
	char external_url[HTTP_URL_MAX]; /* URL by which others reach it; "": they do not */
	char *cert, *key;                /* owned; PEM; NULL: no TLS */
	struct http_place *places;       /* places of its connections, the newest first */
	bool loopback;
	bool resumed; /* a request was resumed since the last run: the server runs again */
};

/* One connection, which has one request at a time. */
struct http_conn {
	struct http_place place; /* first member: lists are of places */
	struct MHD_Connection *conn;
};

struct http_request {
	struct http_listener *listener;
	struct http_conn *conn;
	struct http_request *next; /* next request that waits, while this one does */
	struct MHD_Connection *handle;
	struct http_route route;
	const char *method;
	struct wire_out body;
	bool too_long;          /* the body is too long */
	size_t discarded_bytes; /* bytes read and dropped of too long a body */
	uint64_t job;           /* number of the job; 0: none, or none yet */
	int64_t due_ns;         /* time until which it waits, monotonic clock */
	bool taken;             /* the launcher's report was taken; what follows is of it */
	char membership[MEMBERSHIPS_KEY_MAX];
	uint32_t launcher;
	uint64_t instance, version; /* as in struct launcher_report */
};

struct http {
	struct daemon *daemon;
	struct http_key key;
	struct http_listener listeners[HTTP_LISTENERS_MAX];
	uint32_t n;
	struct http_host host;
	struct memberships *memberships; /* owned */
	uint32_t conns_n;                /* number of connections, of all listeners */
	struct http_request *waiting;
	uint32_t waiting_n;
	struct loop_timer sweep; /* fires to find slow connections */
	struct loop_timer due;   /* fires when the next waiting request is due */
};

/* ---- http_waiting.c ---- */

/* Lets a request wait until it is ready or due. False: too many wait. */
bool http_wait(struct http_request *request);
/* Answers the requests that are ready, or due at now_ns; all: every one. */
void http_wake(struct http *http, int64_t now_ns, bool all);
/* Returns whether the job has all replicas of that group. A job that grows and shrinks in place
 * counts its groups by itself (`pawl run`). On this machine its addresses do not change meanwhile;
 * those of Slurm's nodes are sent once the job has changed. */
bool http_is_group_running(const struct daemon *daemon, const struct core_job *job, uint64_t group);

/* ---- http_urls.c ---- */

/* Returns the URL that jobs get; NULL: none. */
const char *http_find_url(const struct http *http);

/* ---- http_page.c ---- */

/* Writes a page for people: nodes and jobs. */
void http_page(const struct daemon *daemon, struct wire_out *out);

/* ---- http_answer.c ---- */

/* Checks a request whose header is complete: refuses it, or lets it go on. */
enum MHD_Result http_check(struct http_request *request);
/* Answers a request that is complete, or lets it wait. */
enum MHD_Result http_answer(struct http_request *request);

#endif
