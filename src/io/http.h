/*
 * Requests of HTTP/1.1, many at a time, over kept connections. http.c is the only file that uses
 * libcurl. No redirect is followed, since a signature holds for one address.
 *
 * A pool and its calls belong to one thread at a time, but for http_pool_wake. Nothing happens
 * outside of the functions below. Proxies are those of http_proxy, https_proxy and no_proxy, unless
 * direct.
 */
#ifndef IO_HTTP_H
#define IO_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_pool;
struct http_request;
struct pawl_err;

/* Certificates or a key, as PEM. */
struct http_pem {
	const void *bytes; /* NULL: none */
	size_t len_bytes;
};

#define HTTP_TEXT_MAX    (64u << 10) /* bytes of an answer that are kept as text, by default */
#define HTTP_HEADERS_MAX 2048u       /* bytes of an answer's headers that are kept */
#define HTTP_WHY_MAX     256u

struct http_options {
	const char *ca_file; /* certificates to trust; NULL: the system's */
	/* Certificates to trust instead, and how this end proves who it is. They must live as long
	 * as the pool. */
	struct http_pem authority, certificate, key;
	const char *connect_to; /* "HOST:PORT" of all connections, whatever a request's host is, by
				 * which the certificate is checked; NULL: the request's */
	const char *proxy;      /* URL of a proxy for all requests; NULL: the environment's */
	bool insecure;          /* certificates are not checked */
	int64_t connect_ns;     /* how long a connection may take to come up */
	int64_t stall_ns;       /* a call that moves nearly nothing for so long is ended */
	uint32_t connections;   /* kept, at most */
	bool direct;            /* never by a proxy: the service is this machine's own */
};

/* One request and its answer. The caller owns it, and keeps it where it is until it is reaped or
 * canceled. */
struct http_call {
	const struct http_request *request; /* signed; must live as long */
	uint64_t body_bytes;                /* bytes of the request's body */
	/* Copies the next bytes of the body, from off on, at most size; returns how many, 0 on
	 * failure. May be called again for earlier bytes. NULL: no body. */
	size_t (*read)(void *user, uint64_t off, void *bytes, size_t size);
	/* Takes the next bytes of the body of an answer with status 2xx. Returns false to end the
	 * call. NULL: they are kept as text. */
	bool (*write)(void *user, const void *bytes, size_t len_bytes);
	void *user;       /* for read and write */
	size_t text_max;  /* bytes of text to keep; more is PAWL_ELIMIT. 0: HTTP_TEXT_MAX */
	bool patient;     /* any byte counts as progress: the server works, and says so by blanks */
	int64_t stall_ns; /* as in the options, for this call; 0: theirs */

	/* Valid when reaped. */
	int rv; /* 0: there is an answer, of any status; else a PAWL_E code: PAWL_EINVAL
				 * where trying again is in vain, such as a wrong certificate */
	char why[HTTP_WHY_MAX]; /* text of the error, if rv is not 0 */
	int status;             /* status of HTTP, 0: none */
	char *text; /* owned by the caller after the reap, NUL behind it; NULL: none. The text of an
		     * error is cut at HTTP_TEXT_MAX */
	size_t text_bytes;
	uint64_t moved_bytes; /* bytes of both bodies, so far */
	bool resent; /* a kept connection was lost with an answer, perhaps; all was sent again */

	/* Private. */
	char headers[HTTP_HEADERS_MAX]; /* pairs of strings: name in lower case, value */
	size_t headers_n;               /* bytes used in headers */
	void *easy;                     /* libcurl's handle; owned while in flight */
	void *list;                     /* libcurl's list of headers */
	uint64_t sent_bytes;            /* bytes of the body that libcurl has taken */
	uint64_t marked_bytes;          /* moved when it was marked last */
	int64_t marked_ns;              /* time of the last progress */
	bool ended;                     /* by write, or by too long a text */
	struct http_call *next;         /* next in flight */
};

int http_pool_open(const struct http_options *options, struct http_pool **http,
	struct pawl_err *err);
/* Cancels what is in flight. NULL is fine. */
void http_pool_close(struct http_pool *http);
/* Sends a request. If this fails, the call was not taken. PAWL_ENOMEM. */
int http_begin(struct http_pool *http, struct http_call *call, struct pawl_err *err);
/* Moves bytes without waiting. */
void http_pump(struct http_pool *http);
/* Returns a finished call; NULL: none is in flight, none finished within timeout_ms (-1: as long as
 * it takes), or another thread has called http_pool_wake. */
struct http_call *http_reap(struct http_pool *http, int timeout_ms);
/* Ends the wait of http_reap, or of its next call. Any thread, while the pool is open. */
void http_pool_wake(struct http_pool *http);
/* Ends a call that is in flight; it is not reaped. */
void http_cancel(struct http_pool *http, struct http_call *call);
/* Returns the last value of the answer's header, or NULL. name: in lower case. */
const char *http_header(const struct http_call *call, const char *name);
/* Returns the next value of a header that may come several times: behind one that was returned, or
 * the first one (after NULL). NULL: there is none. */
const char *http_next_header(const struct http_call *call, const char *name, const char *after);

#endif
