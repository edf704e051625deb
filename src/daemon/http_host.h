/*
 * Tells whether a request was meant for this scheduler, by its Host. A page of somebody else's can
 * have a browser on this machine ask here under that page's name, once the name has been made to
 * mean 127.0.0.1 (DNS rebinding), and read the answer. So a name must be one of ours. An address is
 * always right: it is not looked up, so nobody can turn it.
 */
#ifndef DAEMON_HTTP_HOST_H
#define DAEMON_HTTP_HOST_H

#include <stdbool.h>

#define HTTP_HOST_MAX 256u /* bytes of a name, terminator included */

struct http_host {
	char own[HTTP_HOST_MAX]; /* name of this machine (gethostname); "": it has none */
	const char *given;       /* name given by --http-name; "": none */
};

void http_host_init(struct http_host *host, const char *given);
/* Returns whether said, a Host header's value with or without a port, means us. cert: PEM whose
 * names are ours, too; NULL: none. */
bool http_host_is_ours(const struct http_host *host, const char *cert, const char *host_header);

#endif
