/*
 * The scheduler over HTTP, by libmicrohttpd within the daemon's loop: no thread. AdaptDL's REST for
 * jobs, metrics for Prometheus, a page, and remote control for who has the token. docs/sched.md
 * says what is where.
 *
 * Nobody is waited for: a connection that is silent, or slow, for too long is closed; there are
 * limits on how many there are (http_places.h), and on what they send. What comes is refused unless
 * it asks by a name of ours (http_host.h), and says a secret (http_key.h), but for healthz, and
 * metrics for this machine.
 */
#ifndef DAEMON_HTTP_H
#define DAEMON_HTTP_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct pawl_err;

#define HTTP_LISTENERS_MAX   2u
#define HTTP_CONNECTIONS_MAX 256u        /* of a listener; who comes then has another's place */
#define HTTP_HEADER_BYTES    (32u << 10) /* of a connection: headers, and what is sent */
#define HTTP_DISCARD_BYTES   (1u << 20)  /* of a body that is too long, read before its refusal */
#define HTTP_WAITING_MAX     128u        /* in discovery */
#define HTTP_JOBS_MAX        1000u       /* of a list */
#define HTTP_URL_MAX         256u        /* bytes of a job's URL, terminator included */

struct http_options {
	const char *addresses[HTTP_LISTENERS_MAX]; /* "ADDR:PORT"; port 0: a free one */
	uint32_t n;                                /* 0: no HTTP */
	const char *name;                 /* of this host, or a proxy, by which others reach it;
					     "": they do by the address */
	const char *token_file;           /* NULL: none has a token */
	const char *cert_file, *key_file; /* PEM; NULL: only for this machine */
};

struct http;

/* Listens, on the daemon's loop, and writes the URLs to the file `http` of its directory. *out:
 * NULL if no address was given. PAWL_EINVAL: an address, or the name, is malformed, or it reaches
 * other machines without token and TLS; PAWL_EBUSY: the port is in use; PAWL_EIO and others of
 * files and sockets. */
int http_open(struct http **out, struct daemon *daemon, const struct http_options *options,
	struct pawl_err *err);
void http_close(struct http *http); /* NULL is fine */
/* Something has happened in the core: who waits for it is answered soon. */
void http_look(struct http *http);
/* Where a job finds what AdaptDL calls its supervisor: at the first address of this machine; one of
 * Slurm's, whose nodes are others, at the first that others reach. False: nowhere. http may be
 * NULL. */
bool http_job_url(const struct http *http, uint64_t job, char url[HTTP_URL_MAX]);
/* The namespace of a user's jobs: their name, or their number where a URL could not have the name.
 * Returns buf. */
const char *http_space(uint32_t uid, char *buf, uint32_t cap_bytes);

#endif
