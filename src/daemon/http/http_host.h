/*
 * Decides by its Host header whether a request is meant for this scheduler, against DNS rebinding:
 * a foreign web page whose name resolves to 127.0.0.1 could have a browser on this machine send
 * requests here under that name, and read the answers. So a name must be one of this scheduler's.
 * An address is always accepted, since it is not resolved.
 */
#ifndef DAEMON_HTTP_HTTP_HOST_H
#define DAEMON_HTTP_HTTP_HOST_H

#include <stdbool.h>

#define HTTP_HOST_MAX 256u /* bytes of a name, terminator included */

struct http_host {
	char own[HTTP_HOST_MAX]; /* name of this machine (gethostname); "": it has none */
	const char *given;       /* name given by --http-name; "": none */
};

void http_host_init(struct http_host *host, const char *given);
/* Returns whether the value of a Host header, with or without a port, means this scheduler. cert:
 * PEM whose names are accepted, too; NULL: none. */
bool http_host_is_ours(const struct http_host *host, const char *cert, const char *host_header);

#endif
