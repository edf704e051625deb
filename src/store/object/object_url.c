/*
 * Addresses of buckets: see object_url.h. An address is taken apart by its raw '/', '?', '&' and
 * '=', and each part is decoded by itself, so an encoded separator never separates anything.
 * Messages show a part only if no password can be in it.
 */
#include "store/object/object_url.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/text.h"
#include "io/http_request.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGITS       "0123456789"
#define LOWER        "abcdefghijklmnopqrstuvwxyz"
#define LOWER_DIGITS LOWER DIGITS
#define ALNUM        "ABCDEFGHIJKLMNOPQRSTUVWXYZ" LOWER_DIGITS

#define PREFIX_MAX (OBJECT_KEY_MAX - OBJECT_ROOM) /* bytes of a prefix, terminator included */
#define SHOWN_MAX  128u                           /* bytes of a part in a message */
#define HOST_MAX   254u                           /* bytes of a host's name, terminator included */
#define DFS_DOMAIN ".dfs.core.windows.net"

struct scheme {
	const char *name;            /* before "://" */
	enum object_service service; /* service that its addresses name */
	bool account_host; /* the account stands in a host's name, the container before its '@' */
	const char *form;  /* how an address looks, for messages */
};

/* The form that an address is written in stands at the service's place, others behind. */
static const struct scheme schemes[] = {
	[OBJECT_S3] = {"s3", OBJECT_S3, false, "s3://BUCKET/PREFIX"},
	[OBJECT_GCS] = {"gs", OBJECT_GCS, false, "gs://BUCKET/PREFIX"},
	[OBJECT_AZURE] = {"azure", OBJECT_AZURE, false, "azure://ACCOUNT/CONTAINER/PREFIX"},
	{"abfs", OBJECT_AZURE, true, "abfs://CONTAINER@ACCOUNT" DFS_DOMAIN "/PREFIX"},
	{"abfss", OBJECT_AZURE, true, "abfss://CONTAINER@ACCOUNT" DFS_DOMAIN "/PREFIX"},
};

/* Finds the scheme that a text begins with, in any case; NULL: none of ours. */
static const struct scheme *find_scheme(const char *text)
{
	for (size_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++) {
		size_t len = strlen(schemes[i].name);

		if (strncasecmp(text, schemes[i].name, len) == 0 &&
			strncmp(text + len, "://", 3) == 0) {
			return &schemes[i];
		}
	}
	return NULL;
}

bool object_url_is(const char *text)
{
	return find_scheme(text) != NULL;
}

/* Returns a part in a form for messages, in shown. */
static const char *show(char shown[SHOWN_MAX], const char *part)
{
	text_escape(shown, SHOWN_MAX, part);
	return shown;
}

/* Refuses a part that may hold a password, without showing it. */
static int refuse_secret(const struct scheme *scheme, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL,
		"address: it must look like %s: no user, password or port; credentials come from "
		"?profile= or the environment, the server from ?endpoint=",
		scheme->form);
}

/* ---- parts ---- */

/* Returns the value of a hexadecimal digit, or -1. */
static int digit(char c)
{
	static const char digits[] = DIGITS "abcdef" DIGITS "ABCDEF";
	const char *at = c != '\0' ? strchr(digits, c) : NULL;

	return at != NULL ? (int)(at - digits) % 16 : -1;
}

static bool is_text(const char *text)
{
	size_t len;

	while (*text != '\0' && (len = text_printable(text)) > 0) {
		text += len;
	}
	return *text == '\0';
}

/* Decodes the character that a part begins with, and skips it; -1: it is malformed. */
static int decode_char(const char **part, const char *end)
{
	int c = (unsigned char)*(*part)++;
	int high;
	int low;

	if (c != '%') {
		return c;
	}
	if (end - *part < 2) {
		return -1;
	}
	high = digit((*part)[0]);
	low = digit((*part)[1]);
	*part += 2;
	return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Decodes a part, up to end, into out. what names it in messages. */
static int decode(const char *part, const char *end, const char *what, char *out, size_t size_bytes,
	struct pawl_err *err)
{
	size_t n = 0;

	while (part < end) {
		int c = decode_char(&part, end);

		if (c < 0) {
			return pawl_err_set(err, PAWL_EINVAL,
				"address: %s: two hexadecimal digits must follow a '%%'; '%%' "
				"itself is written %%25",
				what);
		}
		if (n == size_bytes - 1) {
			return pawl_err_set(err, PAWL_ELIMIT, "address: %s: at most %zu bytes",
				what, size_bytes - 1);
		}
		out[n++] = (char)c;
	}
	out[n] = '\0';
	if (strlen(out) != n || !is_text(out)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"address: %s: must be UTF-8 without control characters", what);
	}
	return 0;
}

/* ---- buckets ---- */

static bool has_only(const char *name, const char *chars)
{
	return name[strspn(name, chars)] == '\0';
}

/* Returns whether both ends of a name that is not empty are letters or digits. */
static bool has_plain_ends(const char *name)
{
	return strchr(ALNUM, name[0]) != NULL && strchr(ALNUM, name[strlen(name) - 1]) != NULL;
}

static size_t longest_label(const char *name)
{
	size_t most = 0;

	for (;;) {
		size_t len = strcspn(name, ".");

		most = len > most ? len : most;
		if (name[len] == '\0') {
			return most;
		}
		name += len + 1;
	}
}

/* Returns what is wrong with a bucket's name, or NULL. */
static const char *bucket_fault(enum object_service service, const char *name)
{
	bool gcs = service == OBJECT_GCS;
	size_t len = strlen(name);
	struct in_addr address;

	if (!has_only(name, gcs ? LOWER_DIGITS "-_." : LOWER_DIGITS "-.")) {
		return gcs ? "may have only lower-case letters, digits, '-', '_' and '.'"
			   : "may have only lower-case letters, digits, '-' and '.'";
	}
	if (len < 3 || len > (gcs ? 222 : 63) || longest_label(name) > 63) {
		return gcs ? "must have 3 to 63 characters, or up to 222 with dots between them"
			   : "must have 3 to 63 characters";
	}
	if (!has_plain_ends(name)) {
		return "must begin and end with a letter or digit";
	}
	if (strstr(name, "..") != NULL) {
		return "must not have two dots together";
	}
	return inet_pton(AF_INET, name, &address) == 1 ? "must not look like an IP address" : NULL;
}

static const char *account_fault(const char *name)
{
	size_t len = strlen(name);

	return len < 3 || len > 24 || !has_only(name, LOWER_DIGITS)
		? "must have 3 to 24 lower-case letters and digits"
		: NULL;
}

static const char *container_fault(const char *name)
{
	size_t len = strlen(name);

	if (len < 3 || len > 63 || !has_only(name, LOWER_DIGITS "-")) {
		return "must have 3 to 63 lower-case letters, digits and '-'";
	}
	return !has_plain_ends(name) || strstr(name, "--") != NULL
		? "must have a letter or digit at both ends and around each '-'"
		: NULL;
}

/* Checks one of the names that say where the bucket is. what: "bucket", "account". */
static int check_name(const struct scheme *scheme, const char *what, const char *name,
	const char *fault, struct pawl_err *err)
{
	char shown[SHOWN_MAX];

	if (name[0] == '\0') {
		return pawl_err_set(err, PAWL_EINVAL, "address: no %s: it must look like %s", what,
			scheme->form);
	}
	if (strpbrk(name, "@:") != NULL) {
		return refuse_secret(scheme, err);
	}
	return fault == NULL ? 0
			     : pawl_err_set(err, PAWL_EINVAL, "address: %s \"%s\" %s", what,
				       show(shown, name), fault);
}

/* Returns where the part that begins at at ends. */
static const char *part_end(const char *at)
{
	return at + strcspn(at, "/?");
}

/* Decodes the part at at, and moves at behind it and its '/'. */
static int take_part(const char **at, const char *what, char *out, size_t size_bytes,
	struct pawl_err *err)
{
	const char *end = part_end(*at);
	int rv = decode(*at, end, what, out, size_bytes, err);

	*at = *end == '/' ? end + 1 : end;
	return rv;
}

/* Reads "CONTAINER@ACCOUNT.dfs.core.windows.net". */
static int read_account_host(const struct scheme *scheme, const char **at, struct object_url *url,
	struct pawl_err *err)
{
	const char *sign = memchr(*at, '@', (size_t)(part_end(*at) - *at));
	char host[OBJECT_NAME_MAX];
	size_t account_n;
	int rv;

	if (sign == NULL) {
		return pawl_err_set(err, PAWL_EINVAL, "address: no '@': it must look like %s",
			scheme->form);
	}
	rv = decode(*at, sign, "container", url->bucket, OBJECT_NAME_MAX, err);
	*at = sign + 1;
	rv = rv != 0 ? rv : take_part(at, "host", host, sizeof(host), err);
	if (rv != 0) {
		return rv;
	}
	account_n = strcspn(host, ".");
	if (strpbrk(host, "@:") != NULL) {
		return refuse_secret(scheme, err);
	}
	if (strcasecmp(host + account_n, DFS_DOMAIN) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"address: the host must be ACCOUNT" DFS_DOMAIN ": it must look like %s",
			scheme->form);
	}
	memcpy(url->account, host, account_n);
	return 0;
}

static int read_azure(const struct scheme *scheme, const char **at, struct object_url *url,
	struct pawl_err *err)
{
	int rv = scheme->account_host
		? read_account_host(scheme, at, url, err)
		: take_part(at, "account", url->account, OBJECT_NAME_MAX, err);

	if (rv == 0) {
		rv = check_name(scheme, "account", url->account, account_fault(url->account), err);
	}
	if (rv == 0 && !scheme->account_host) {
		rv = take_part(at, "container", url->bucket, OBJECT_NAME_MAX, err);
	}
	return rv != 0
		? rv
		: check_name(scheme, "container", url->bucket, container_fault(url->bucket), err);
}

/* Reads all before the prefix, and moves at behind it. */
static int read_bucket(const struct scheme *scheme, const char **at, struct object_url *url,
	struct pawl_err *err)
{
	int rv;

	if (scheme->service == OBJECT_AZURE) {
		return read_azure(scheme, at, url, err);
	}
	rv = take_part(at, "bucket", url->bucket, OBJECT_NAME_MAX, err);
	return rv != 0 ? rv
		       : check_name(scheme, "bucket", url->bucket,
				 bucket_fault(scheme->service, url->bucket), err);
}

/* ---- the prefix ---- */

/* Returns what is wrong with a name in a prefix, or NULL. */
static const char *prefix_fault(enum object_service service, const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		return "must not be empty, . or ..";
	}
	if (strchr(name, '/') != NULL) {
		return "must not have an encoded '/'";
	}
	if (service == OBJECT_AZURE && (name[len - 1] == '.' || strchr(name, '\\') != NULL)) {
		return "must not end with a dot, or have a '\\': Azure changes it";
	}
	return NULL;
}

/* Reads the prefix, and moves at to its end. */
static int read_prefix(const char **at, struct object_url *url, struct pawl_err *err)
{
	size_t n = 0;

	while (**at != '\0' && **at != '?') {
		char name[OBJECT_KEY_MAX];
		char shown[SHOWN_MAX];
		const char *fault;
		int rv = take_part(at, "prefix", name, sizeof(name), err);

		if (rv != 0) {
			return rv;
		}
		fault = prefix_fault(url->service, name);
		if (fault != NULL) {
			return pawl_err_set(err, PAWL_EINVAL,
				"address: name \"%s\" in the prefix %s", show(shown, name), fault);
		}
		if (strlen(name) + (n > 0) >= PREFIX_MAX - n) {
			return pawl_err_set(err, PAWL_ELIMIT,
				"address: the prefix may have %u bytes: a key has at most %u",
				PREFIX_MAX - 1, OBJECT_KEY_MAX - 1);
		}
		n += (size_t)snprintf(url->prefix + n, PREFIX_MAX - n, "%s%s", n > 0 ? "/" : "",
			name);
	}
	return 0;
}

/* ---- endpoints ---- */

/* Reads "[IPV6]" or "NAME", and moves at behind it. Returns what is wrong, or NULL. */
static const char *read_host(const char **at, char host[HOST_MAX])
{
	bool six = **at == '[';
	const char *end = *at + strcspn(*at, six ? "]/" : ":/");
	const char *begin = *at + six;
	struct in6_addr address;

	if (end - begin <= 0 || end - begin >= (ptrdiff_t)HOST_MAX - 2) {
		return "it has no host, or one of more than 251 characters";
	}
	snprintf(host, HOST_MAX, "%.*s", (int)(end - begin), begin);
	*at = end + (six && *end == ']');
	if (six) {
		char text[INET6_ADDRSTRLEN];

		if (*end != ']' || inet_pton(AF_INET6, host, &address) != 1) {
			return "what stands in brackets must be an IPv6 address";
		}
		inet_ntop(AF_INET6, &address, text, sizeof(text));
		snprintf(host, HOST_MAX, "[%s]", text);
		return NULL;
	}
	if (!has_only(host, ALNUM "-_.") || !has_plain_ends(host) || strstr(host, "..") != NULL) {
		return "a host's name has letters, digits, '-', '_' and single dots";
	}
	for (char *c = host; *c != '\0'; c++) {
		*c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
	}
	return NULL;
}

/* Reads ":PORT" if there is one, and moves at behind it; else the port is 0. Returns what is wrong,
 * or NULL. */
static const char *read_port(const char **at, unsigned long *port)
{
	size_t len;

	*port = 0;
	if (**at != ':') {
		return NULL;
	}
	len = strspn(*at + 1, DIGITS);
	*port = len >= 1 && len <= 5 ? strtoul(*at + 1, NULL, 10) : 0;
	*at += 1 + len;
	return *port >= 1 && *port <= 65535 ? NULL : "a port is a number from 1 to 65535";
}

/* Writes host and port without what is the scheme's own port, since libcurl does not send that. */
static const char *read_endpoint(const char *text, char endpoint[OBJECT_ENDPOINT_MAX])
{
	bool tls = strncasecmp(text, "https://", 8) == 0;
	const char *at;
	char host[HOST_MAX];
	char port_text[8] = "";
	unsigned long port;
	const char *fault;

	if (!tls && strncasecmp(text, "http://", 7) != 0) {
		return "it must begin with http:// or https://";
	}
	at = text + (tls ? 8 : 7);
	if (strpbrk(at, "@?#") != NULL) {
		return "it must have no user, password, query or fragment";
	}
	fault = read_host(&at, host);
	fault = fault != NULL ? fault : read_port(&at, &port);
	if (fault != NULL) {
		return fault;
	}
	if (strcmp(at, "") != 0 && strcmp(at, "/") != 0) {
		return "it must have no path";
	}
	if (port != 0 && port != (tls ? 443 : 80)) {
		snprintf(port_text, sizeof(port_text), ":%u", (unsigned)(uint16_t)port);
	}
	snprintf(endpoint, OBJECT_ENDPOINT_MAX, "%s://%s%s", tls ? "https" : "http", host,
		port_text);
	return NULL;
}

int object_endpoint_parse(const char *text, const char *what, char endpoint[OBJECT_ENDPOINT_MAX],
	struct pawl_err *err)
{
	const char *fault = read_endpoint(text, endpoint);

	return fault == NULL ? 0
			     : pawl_err_set(err, PAWL_EINVAL,
				       "%s must look like http[s]://HOST[:PORT]: %s", what, fault);
}

/* ---- parameters ---- */

enum parameter {
	PARAMETER_ENDPOINT,
	PARAMETER_REGION,
	PARAMETER_PROFILE,
	PARAMETER_SINGLE_WRITER,
	PARAMETERS_N,
};

/* In the order in which they are written. */
static const char *const parameters[PARAMETERS_N] = {
	[PARAMETER_ENDPOINT] = "endpoint",
	[PARAMETER_REGION] = "region",
	[PARAMETER_PROFILE] = "profile",
	[PARAMETER_SINGLE_WRITER] = "single_writer",
};

/* Sets what a parameter says. Messages do not show values: one may be a secret by mistake. */
static int set_parameter(struct object_url *url, enum parameter parameter, const char *value,
	struct pawl_err *err)
{
	switch (parameter) {
	case PARAMETER_ENDPOINT:
		return object_endpoint_parse(value, "address: ?endpoint=", url->endpoint, err);
	case PARAMETER_REGION:
		if (!has_only(value, ALNUM "-_") || !has_plain_ends(value)) {
			return pawl_err_set(err, PAWL_EINVAL,
				"address: ?region= must be a name such as us-east-1");
		}
		memcpy(url->region, value, strlen(value));
		return 0;
	case PARAMETER_PROFILE:
		if (strpbrk(value, "[]") != NULL) {
			return pawl_err_set(err, PAWL_EINVAL,
				"address: ?profile= must be a profile's name, without brackets");
		}
		memcpy(url->profile, value, strlen(value));
		return 0;
	default:
		if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) {
			return pawl_err_set(err, PAWL_EINVAL,
				"address: ?single_writer= must be 0 or 1");
		}
		url->single_writer = value[0] == '1';
		return 0;
	}
}

/* Returns the parameter with an encoded name, or an error. */
static int find_parameter(const char *at, const char *end, struct pawl_err *err)
{
	char name[OBJECT_NAME_MAX];
	char shown[SHOWN_MAX];
	int rv = decode(at, end, "name of a parameter", name, sizeof(name), err);

	if (rv != 0) {
		return rv;
	}
	for (int p = 0; p < PARAMETERS_N; p++) {
		if (strcmp(name, parameters[p]) == 0) {
			return p;
		}
	}
	return pawl_err_set(err, PAWL_EINVAL,
		"address: unknown parameter \"%s\": there are endpoint, region, profile and "
		"single_writer",
		show(shown, name));
}

/* Reads "NAME=VALUE". seen: a bit for each parameter that has been read. */
static int read_parameter(const char *at, const char *end, unsigned *seen, struct object_url *url,
	struct pawl_err *err)
{
	const char *equals = memchr(at, '=', (size_t)(end - at));
	char value[OBJECT_ENDPOINT_MAX];
	int found;
	int rv;

	if (equals == NULL || equals == end - 1) {
		return pawl_err_set(err, PAWL_EINVAL,
			"address: a parameter has no value: it must look like ?NAME=VALUE");
	}
	found = find_parameter(at, equals, err);
	if (found < 0) {
		return found;
	}
	if ((*seen & (1u << found)) != 0) {
		return pawl_err_set(err, PAWL_EINVAL, "address: ?%s= is given twice",
			parameters[found]);
	}
	*seen |= 1u << found;
	rv = decode(equals + 1, end, parameters[found], value,
		found == PARAMETER_ENDPOINT ? sizeof(value) : OBJECT_NAME_MAX, err);
	return rv != 0 ? rv : set_parameter(url, (enum parameter)found, value, err);
}

/* Reads "?NAME=VALUE&…", or nothing. */
static int read_parameters(const char *at, struct object_url *url, struct pawl_err *err)
{
	unsigned seen = 0;
	int rv = 0;

	while (rv == 0 && *at != '\0') {
		const char *begin = at + 1; /* behind '?' or '&' */

		at = begin + strcspn(begin, "&");
		rv = read_parameter(begin, at, &seen, url, err);
	}
	return rv;
}

/* ---- addresses ---- */

int object_url_parse(const char *text, struct object_url *url, struct pawl_err *err)
{
	const struct scheme *scheme = find_scheme(text);
	struct object_url read = {0};
	const char *at;
	int rv;

	if (scheme == NULL) {
		return pawl_err_set(err, PAWL_EINVAL,
			"address: unknown scheme: there are s3://, gs://, azure://, abfs:// and "
			"abfss://");
	}
	read.service = scheme->service;
	at = text + strlen(scheme->name) + 3;
	rv = read_bucket(scheme, &at, &read, err);
	rv = rv != 0 ? rv : read_prefix(&at, &read, err);
	rv = rv != 0 ? rv : read_parameters(at, &read, err);
	if (rv == 0) {
		*url = read;
	}
	return rv;
}

/* Appends a text and an encoded value. Returns whether both fit; if not, text is cut. */
static bool append(char *text, size_t size_bytes, const char *plain, const char *value)
{
	size_t n = strlen(text);
	size_t len = strlen(plain);

	snprintf(text + n, size_bytes - n, "%s", plain);
	return len < size_bytes - n &&
		request_encode(value, true, text + n + len, size_bytes - n - len);
}

void object_url_write(const struct object_url *url, char *text, size_t size_bytes)
{
	bool azure = url->service == OBJECT_AZURE;
	const char *const values[PARAMETERS_N] = {
		[PARAMETER_ENDPOINT] = url->endpoint,
		[PARAMETER_REGION] = url->region,
		[PARAMETER_PROFILE] = url->profile,
		[PARAMETER_SINGLE_WRITER] = url->single_writer ? "1" : "",
	};
	const char *mark = "?";
	bool fits;

	ASSERT(size_bytes > 0);
	text[0] = '\0';
	fits = append(text, size_bytes, schemes[url->service].name, "") &&
		append(text, size_bytes, "://", azure ? url->account : url->bucket) &&
		(!azure || append(text, size_bytes, "/", url->bucket)) &&
		(url->prefix[0] == '\0' || append(text, size_bytes, "/", url->prefix));
	for (unsigned p = 0; fits && p < PARAMETERS_N; p++) {
		if (values[p][0] != '\0') {
			fits = append(text, size_bytes, mark, parameters[p]) &&
				append(text, size_bytes, "=", values[p]);
			mark = "&";
		}
	}
}
