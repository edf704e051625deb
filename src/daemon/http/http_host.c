/* Decides whether a Host header means this scheduler: see http_host.h. */
#include "daemon/http/http_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define DIGITS "0123456789"

void http_host_init(struct http_host *host, const char *given)
{
	*host = (struct http_host){.given = given};
	if (gethostname(host->own, sizeof(host->own)) != 0) {
		host->own[0] = '\0';
	}
	host->own[sizeof(host->own) - 1] = '\0';
}

/* Reads the host in a Host header, without the port, and without the dot that ends a full name.
 * False: it cannot be a host. */
static bool read_name(const char *host_header, char name[HTTP_HOST_MAX])
{
	const char *end =
		host_header[0] == '[' ? strchr(host_header, ']') : strchr(host_header, ':');
	size_t len =
		end ? (size_t)(end - host_header) + (host_header[0] == '[') : strlen(host_header);

	if (len == 0 || len >= HTTP_HOST_MAX || (host_header[0] == '[' && !end)) {
		return false;
	}
	if (host_header[len] != '\0' &&
		(host_header[len] != ':' ||
			host_header[len + 1 + strspn(host_header + len + 1, DIGITS)] != '\0')) {
		return false;
	}
	memcpy(name, host_header, len);
	name[len] = '\0';
	if (name[len - 1] == '.') {
		name[len - 1] = '\0';
	}
	return name[0] != '\0';
}

static bool is_address(char *name)
{
	struct in6_addr v6;
	struct in_addr v4;
	size_t len = strlen(name);
	bool yes;

	if (name[0] != '[') {
		return inet_pton(AF_INET, name, &v4) == 1;
	}
	name[len - 1] = '\0';
	yes = inet_pton(AF_INET6, name + 1, &v6) == 1;
	name[len - 1] = ']';
	return yes;
}

/* Returns whether name is this machine's name in full, or its first part. */
static bool is_own(const char *own, const char *name)
{
	size_t len = strcspn(own, ".");

	return own[0] != '\0' &&
		(strcasecmp(own, name) == 0 ||
			(strlen(name) == len && strncasecmp(own, name, len) == 0));
}

static bool is_in_cert(const char *pem, const char *name)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
	bool yes = cert && X509_check_host(cert, name, strlen(name), 0, NULL) == 1;

	X509_free(cert);
	BIO_free(bio);
	return yes;
}

bool http_host_is_ours(const struct http_host *host, const char *cert, const char *host_header)
{
	char name[HTTP_HOST_MAX];

	return read_name(host_header, name) &&
		(is_address(name) || strcasecmp(name, "localhost") == 0 ||
			is_own(host->own, name) || strcasecmp(host->given, name) == 0 ||
			(cert && is_in_cert(cert, name)));
}
