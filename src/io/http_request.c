/* Requests of HTTP, built part by part: see http_request.h. A part is appended whole or
 * not at all, so what is there stays well-formed when a part does not fit. */
#include "io/http_request.h"

#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The characters that stand for themselves in an encoded text: RFC 3986, 2.3. */
#define UNRESERVED                                                                                 \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ"                                                               \
	"abcdefghijklmnopqrstuvwxyz"                                                               \
	"0123456789-._~"

/* ---- texts ---- */

bool request_encode(const char *text, bool slash, char *out, size_t size_bytes)
{
	size_t n = 0;

	ASSERT(size_bytes > 0);
	out[0] = '\0';
	for (; *text != '\0'; text++) {
		bool plain = strchr(UNRESERVED, *text) != NULL || (slash && *text == '/');
		size_t len = plain ? 1 : 3;

		if (len >= size_bytes - n) {
			return false;
		}
		snprintf(out + n, size_bytes - n, plain ? "%c" : "%%%02X", (unsigned char)*text);
		n += len;
	}
	return true;
}

/* Appends a text that is encoded already. Returns whether it fits. */
static bool append(char *out, size_t size_bytes, const char *text)
{
	size_t n = strlen(out);
	size_t len = strlen(text);

	if (len >= size_bytes - n) {
		return false;
	}
	memcpy(out + n, text, len + 1);
	return true;
}

static bool append_encoded(char *out, size_t size_bytes, const char *text, bool slash)
{
	size_t n = strlen(out);

	return request_encode(text, slash, out + n, size_bytes - n);
}

/* ---- the target ---- */

void request_init(struct http_request *request, const char *method, const char *endpoint)
{
	bool tls = strncmp(endpoint, "https://", 8) == 0;

	ASSERT(tls ||
		strncmp(endpoint, "http://", 7) == 0); /* as object_endpoint_parse leaves it */
	*request = (struct http_request){.method = method, .tls = tls};
	if (!append(request->host, sizeof(request->host), endpoint + (tls ? 8 : 7))) {
		request->full = true;
	}
}

void request_add_path(struct http_request *request, const char *raw)
{
	char *path = request->path;
	size_t n = strlen(path);

	if (!append(path, REQUEST_PATH_MAX, "/") ||
		!append_encoded(path, REQUEST_PATH_MAX, raw, true)) {
		path[n] = '\0';
		request->full = true;
	}
}

/* Orders the encoded names that two parts of a query begin with. */
static int compare_names(const char *a, const char *b)
{
	size_t a_n = strcspn(a, "=&");
	size_t b_n = strcspn(b, "=&");
	int order = memcmp(a, b, a_n < b_n ? a_n : b_n);

	return order != 0 ? order : (a_n > b_n) - (a_n < b_n);
}

void request_add_query(struct http_request *request, const char *name, const char *value)
{
	char *query = request->query;
	size_t n = strlen(query);
	const char *last = strrchr(query, '&');
	size_t last_at = last != NULL ? (size_t)(last + 1 - query) : 0;
	bool fits = append(query, REQUEST_QUERY_MAX, n > 0 ? "&" : "") &&
		append_encoded(query, REQUEST_QUERY_MAX, name, false);

	ASSERT(!fits || n == 0 || compare_names(query + last_at, query + n + 1) < 0);
	if (fits && value != NULL) {
		fits = append(query, REQUEST_QUERY_MAX, "=") &&
			append_encoded(query, REQUEST_QUERY_MAX, value, false);
	}
	if (!fits) {
		query[n] = '\0';
		request->full = true;
	}
}

/* ---- headers ----
 *
 * The values stand in text one after the other, in the order of the headers, without gaps. */

static uint32_t find_header(const struct http_request *request, const char *name)
{
	uint32_t i = 0;

	while (i < request->headers_n && strcmp(request->headers[i].name, name) != 0) {
		i++;
	}
	return i;
}

/* Returns whether a text is one line: a value with a line's end would begin another header. */
static bool is_line(const char *text)
{
	while ((unsigned char)*text >= 0x20 && *text != 0x7f) {
		text++;
	}
	return *text == '\0';
}

void request_set_query(struct http_request *request, const char *query)
{
	if (strlen(query) < sizeof(request->query)) {
		snprintf(request->query, sizeof(request->query), "%s", query);
	} else {
		request->full = true;
	}
}

void request_add_header(struct http_request *request, const char *name, const char *format, ...)
{
	char *value = request->text + request->text_n;
	size_t room = REQUEST_TEXT_MAX - request->text_n;
	va_list args;
	int len;

	ASSERT(strpbrk(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == NULL);
	ASSERT(find_header(request, name) == request->headers_n);
	va_start(args, format);
	len = vsnprintf(value, room, format, args);
	va_end(args);
	if (len < 0 || (size_t)len >= room || !is_line(value) ||
		request->headers_n == REQUEST_HEADERS_MAX) {
		request->full = true;
		return;
	}
	request->headers[request->headers_n++] = (struct request_header){name, value};
	request->text_n += (size_t)len + 1;
}

const char *request_header(const struct http_request *request, const char *name)
{
	uint32_t i = find_header(request, name);

	return i < request->headers_n ? request->headers[i].value : NULL;
}

/* Closes the gap, else a request that is signed again and again would run out of text. */
void request_drop_header(struct http_request *request, const char *name)
{
	uint32_t i = find_header(request, name);
	size_t at;
	size_t len;

	if (i == request->headers_n) {
		return;
	}
	at = (size_t)(request->headers[i].value - request->text);
	len = strlen(request->headers[i].value) + 1;
	ASSERT(at + len <= request->text_n);
	memmove(request->text + at, request->text + at + len, request->text_n - at - len);
	request->text_n -= len;
	request->headers_n--;
	for (; i < request->headers_n; i++) {
		request->headers[i] = request->headers[i + 1];
		request->headers[i].value -= len;
	}
}
