/*
 * The scheduler over HTTP, by libmicrohttpd in the daemon's loop, without a thread: AdaptDL's REST
 * for jobs, metrics for Prometheus, a page, and remote control with the token. docs/sched.md lists
 * the paths.
 *
 * The server never blocks on a client. A connection that is idle or slow for too long is closed.
 * The number of connections (http_places.h) and the bytes that they send are limited. A request is
 * refused unless its Host is a name of this scheduler (http_host.h) and it has a secret or the
 * token (http_key.h). Only healthz, and metrics on this machine, need no secret.
 */
#ifndef DAEMON_HTTP_H
#define DAEMON_HTTP_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct pawl_err;

#define HTTP_LISTENERS_MAX   2u
#define HTTP_CONNECTIONS_MAX 256u /* connections of a listener; a further one evicts another */
#define HTTP_HEADER_BYTES    (32u << 10) /* bytes of a connection: headers, and what is sent */
#define HTTP_DISCARD_BYTES   (1u << 20)  /* bytes read of a body that is too long */
#define HTTP_WAITING_MAX     128u        /* requests that wait, at most */
#define HTTP_JOBS_MAX        1000u       /* jobs of a list, at most */
#define HTTP_URL_MAX         256u        /* bytes of a job's URL, terminator included */

struct http_options {
	const char *addresses[HTTP_LISTENERS_MAX]; /* "ADDR:PORT"; port 0: a free one */
	uint32_t n;                                /* 0: no HTTP */
	/* Name of this host, or of a proxy, by which others reach it; "": they use the
	 * address. */
	const char *name;
	const char *token_file;           /* NULL: nobody has a token */
	const char *cert_file, *key_file; /* PEM; NULL: only for this machine */
};

struct http;

/* Listens, on the daemon's loop, and writes the URLs to the file `http` of the daemon's directory.
 * *out: NULL if no address was given. PAWL_EINVAL: an address, or the name, is malformed, or an
 * address reaches other machines without token and TLS; PAWL_EBUSY: the port is in use; PAWL_EIO
 * and others of files and sockets. */
int http_open(struct http **out, struct daemon *daemon, const struct http_options *options,
	struct pawl_err *err);
void http_close(struct http *http); /* NULL is fine */

/* ---- http_waiting.c ---- */

/* Notifies the server of an event in the core: requests that waited for it are answered soon. */
void http_notify(struct http *http);

/* ---- http_urls.c ---- */

/* Formats the URL of what AdaptDL calls a job's supervisor: at the first address of this machine
 * or, for jobs on Slurm's nodes, at the first that other machines reach. False: there is none. http
 * may be NULL. */
bool http_job_url(const struct http *http, uint64_t job, char url[HTTP_URL_MAX]);
/* Returns, in buf, the namespace of a user's jobs: the user's name, or number where a URL could not
 * have the name. */
const char *http_space(uint32_t uid, char *buf, uint32_t cap_bytes);

#endif
