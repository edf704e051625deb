/* An HTTP request, before it is signed and sent. Pure: nothing here does I/O. */
#ifndef IO_HTTP_REQUEST_H
#define IO_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_PATH_MAX    4096u /* bytes of an encoded path, terminator included */
#define REQUEST_QUERY_MAX   4096u
#define REQUEST_HEADERS_MAX 24u
#define REQUEST_TEXT_MAX    12288u /* bytes of all headers' values; a session token may be 4 KiB */

struct request_header {
	const char *name;  /* lower case; a literal */
	const char *value; /* in the request's text */
};

/* Values that do not fit set full, and so do headers with control characters; whoever sends the
 * request checks it once. Do not copy it: its headers point into it. */
struct http_request {
	const char *method;            /* a literal: "GET" */
	char host[512];                /* "HOST[:PORT]", as the Host header has it */
	bool tls;                      /* https */
	char path[REQUEST_PATH_MAX];   /* percent-encoded, begins with '/' */
	char query[REQUEST_QUERY_MAX]; /* "a=1&b", percent-encoded, names ascending; "": none */
	/* Without Host and Content-Length. */
	struct request_header headers[REQUEST_HEADERS_MAX];
	uint32_t headers_n;          /* entries in headers */
	char text[REQUEST_TEXT_MAX]; /* memory of the values, without gaps, in the headers' order */
	size_t text_n;               /* bytes used */
	bool full;                   /* a part was left out: do not send it */
};

/* Begins a request with an empty path and query. endpoint: "http[s]://HOST[:PORT]". */
void request_init(struct http_request *request, const char *method, const char *endpoint);
/* Appends "/" and each name of raw to the path, percent-encoded; '/' in raw stays. */
void request_add_path(struct http_request *request, const char *raw);
/* Appends a parameter to the query, percent-encoded. Call it with ascending names, as signatures
 * require. value NULL: the name alone, "uploads". */
void request_add_query(struct http_request *request, const char *name, const char *value);
/* Sets the query, which is percent-encoded already. */
void request_set_query(struct http_request *request, const char *query);
/* Appends a header, which the request must not have yet. The name must be lower case and live as
 * long as the request. */
void request_add_header(struct http_request *request, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Returns a header's value, or NULL. */
const char *request_header(const struct http_request *request, const char *name);
/* Removes a header, if it is there: a request is signed again before each attempt. */
void request_drop_header(struct http_request *request, const char *name);
/* Writes a text percent-encoded: all but letters, digits and "-._~", and '/' where slash. Returns
 * false, and out is cut, if it does not fit. */
bool request_encode(const char *text, bool slash, char *out, size_t size_bytes);

#endif
