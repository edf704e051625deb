/* Addresses to listen at, and files that TLS needs. */
#ifndef DAEMON_HTTP_HTTP_LISTEN_H
#define DAEMON_HTTP_HTTP_LISTEN_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

struct pawl_err;

#define HTTP_NAME_MAX 100u /* characters of a host's name */

struct http_address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} at;
	socklen_t len;
	bool loopback; /* only this machine reaches the address */
	bool any;      /* all addresses of this machine: nobody can connect to this one */
};

/* Parses "127.0.0.1:8080", "[::1]:0", "localhost:80"; no other names. PAWL_EINVAL. Pure. */
int http_address_parse(struct http_address *address, const char *text, struct pawl_err *err);
/* Opens a listening socket, which is returned, and sets its URL ("http://127.0.0.1:8080"). secure:
 * https. PAWL_EBUSY, PAWL_EIO. */
int http_listen(const struct http_address *address, bool secure, char *url, size_t cap_bytes,
	struct pawl_err *err);
/* Sets the URL by which others reach the listener of url: with name, a host name or address, in
 * place of the address; name "": url itself. PAWL_EINVAL: name is malformed; PAWL_ENOENT: others do
 * not reach it, or the address is not known. Pure. */
int http_external_url(const struct http_address *address, const char *url, const char *name,
	char *out, size_t cap_bytes, struct pawl_err *err);
/* Reads a text file of less than 1 MiB; the caller frees the text. NULL: err is set, PAWL_ELIMIT if
 * the file is longer. */
char *http_read_file(const char *path, struct pawl_err *err);

#endif
