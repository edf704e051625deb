/* Listening: see http_listen.h. */
#include "daemon/http/http_listen.h"

#include "base/err.h"
#include "daemon/http/http_route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG    128
#define FILE_MAX   (1u << 20)
#define HOST_CHARS 64u
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

/* Copies the host of "HOST:PORT", without brackets. Returns the rest behind the colon; NULL: there
 * is none. */
static const char *split(const char *text, char host[HOST_CHARS])
{
	const char *from = text[0] == '[' ? text + 1 : text;
	const char *end = text[0] == '[' ? strchr(from, ']') : strrchr(from, ':');
	size_t len = end ? (size_t)(end - from) : HOST_CHARS;

	if (len >= HOST_CHARS || len == 0) {
		return NULL;
	}
	memcpy(host, from, len);
	host[len] = '\0';
	end += *end == ']';
	return *end == ':' ? end + 1 : NULL;
}

int http_address_parse(struct http_address *address, const char *text, struct pawl_err *err)
{
	char host[HOST_CHARS];
	const char *rest = split(text, host);
	uint64_t port = 0;

	*address = (struct http_address){.loopback = false};
	if (!rest || !http_number(rest, UINT16_MAX, &port)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: must be ADDR:PORT, as in 127.0.0.1:8080 or [::1]:8080; port 0 chooses "
			"a free one",
			text);
	}
	if (strcmp(host, "localhost") == 0) {
		snprintf(host, sizeof(host), "127.0.0.1");
	}
	if (text[0] != '[' && inet_pton(AF_INET, host, &address->at.v4.sin_addr) == 1) {
		address->at.v4.sin_family = AF_INET;
		address->at.v4.sin_port = htons((uint16_t)port);
		address->len = sizeof(address->at.v4);
		address->loopback = (ntohl(address->at.v4.sin_addr.s_addr) >> 24) == 127;
		address->any = address->at.v4.sin_addr.s_addr == htonl(INADDR_ANY);
		return 0;
	}
	if (text[0] == '[' && inet_pton(AF_INET6, host, &address->at.v6.sin6_addr) == 1) {
		address->at.v6.sin6_family = AF_INET6;
		address->at.v6.sin6_port = htons((uint16_t)port);
		address->len = sizeof(address->at.v6);
		address->loopback = IN6_IS_ADDR_LOOPBACK(&address->at.v6.sin6_addr);
		address->any = IN6_IS_ADDR_UNSPECIFIED(&address->at.v6.sin6_addr);
		return 0;
	}
	return pawl_err_set(err, PAWL_EINVAL, "%s: %s is not an address (names are not looked up)",
		text, host);
}

static void format_url(const struct http_address *bound, bool secure, char *url, size_t cap_bytes)
{
	const char *scheme = secure ? "https" : "http";
	char host[INET6_ADDRSTRLEN] = "";

	if (bound->at.any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &bound->at.v4.sin_addr, host, sizeof(host));
		snprintf(url, cap_bytes, "%s://%s:%u", scheme, host,
			(unsigned)ntohs(bound->at.v4.sin_port));
	} else {
		inet_ntop(AF_INET6, &bound->at.v6.sin6_addr, host, sizeof(host));
		snprintf(url, cap_bytes, "%s://[%s]:%u", scheme, host,
			(unsigned)ntohs(bound->at.v6.sin6_port));
	}
}

int http_listen(const struct http_address *address, bool secure, char *url, size_t cap_bytes,
	struct pawl_err *err)
{
	struct http_address bound = *address;
	int yes = 1;
	int rv;
	int fd = socket(address->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	format_url(address, secure, url, cap_bytes);
	if (fd < 0) {
		return pawl_err_sys(err, "listen at %s", url);
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (address->at.any.sa_family == AF_INET6) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
	}
	if (bind(fd, &address->at.any, address->len) != 0 || listen(fd, BACKLOG) != 0 ||
		getsockname(fd, &bound.at.any, &bound.len) != 0) {
		rv = errno == EADDRINUSE
			? pawl_err_set(err, PAWL_EBUSY,
				  "listen at %s: another program has that port", url)
			: pawl_err_sys(err, "listen at %s", url);
		close(fd);
		return rv;
	}
	format_url(&bound, secure, url, cap_bytes);
	return fd;
}

int http_external_url(const struct http_address *address, const char *url, const char *name,
	char *out, size_t cap_bytes, struct pawl_err *err)
{
	struct in6_addr v6;
	bool is_v6 = inet_pton(AF_INET6, name, &v6) == 1;
	size_t len = strlen(name);

	if (len > HTTP_NAME_MAX || (!is_v6 && strspn(name, NAME_CHARS) != len)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%s: must be the name of a host, or an address, as in "
			"login1.example.org",
			name);
	}
	if (address->loopback || (address->any && len == 0)) {
		return pawl_err_set(err, PAWL_ENOENT, "%s is not an address that others can reach",
			url);
	}
	if (len == 0) {
		snprintf(out, cap_bytes, "%s", url);
	} else {
		snprintf(out, cap_bytes, is_v6 ? "https://[%s]%s" : "https://%s%s", name,
			strrchr(url, ':'));
	}
	return 0;
}

char *http_read_file(const char *path, struct pawl_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = fd >= 0 ? malloc(FILE_MAX + 1) : NULL;
	ssize_t n = text ? read(fd, text, FILE_MAX) : -1;

	if (n < 0) {
		pawl_err_sys(err, "%s", path);
		free(text);
		text = NULL;
	} else if (n == FILE_MAX) {
		pawl_err_set(err, PAWL_ELIMIT, "%s: %u bytes or more", path, FILE_MAX);
		free(text);
		text = NULL;
	} else {
		text[n] = '\0';
	}
	if (fd >= 0) {
		close(fd);
	}
	return text;
}
