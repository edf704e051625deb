/* Requests and answers of the server in s3_server.h: see s3_message.h. */
#include "s3_message.h"

#include "base/assert.h"
#include "s3_azure.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- texts ---- */

void *s3_need(void *memory)
{
	ASSERT(memory != NULL);
	return memory;
}

void s3_text_add(struct s3_text *text, const void *bytes, size_t len_bytes)
{
	size_t needed = text->len_bytes + len_bytes + 1;

	if (needed > text->size_bytes) {
		text->size_bytes = needed + needed / 2;
		text->bytes = s3_need(realloc(text->bytes, text->size_bytes));
	}
	if (len_bytes > 0) {
		memcpy(text->bytes + text->len_bytes, bytes, len_bytes);
	}
	text->len_bytes += len_bytes;
	text->bytes[text->len_bytes] = '\0';
}

void s3_text_print(struct s3_text *text, const char *format, ...)
{
	char line[8192];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	ASSERT(n >= 0 && (size_t)n < sizeof(line));
	s3_text_add(text, line, (size_t)n);
}

void s3_write_base64(uint32_t sum, char out[9])
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	uint64_t bits = (uint64_t)sum << 4; /* 36 bits: six digits */

	for (int i = 0; i < 6; i++) {
		out[i] = digits[bits >> (30 - 6 * i) & 63];
	}
	memcpy(out + 6, "==", 3);
}

static unsigned hex_digit(char c)
{
	return (unsigned)(c >= 'a' ? c - 'a' + 10 : c >= 'A' ? c - 'A' + 10 : c - '0');
}

/* Decodes percent-encoding, up to any of the ends. Returns where it ended. */
static const char *decode(const char *from, const char *ends, char *out, size_t size_bytes)
{
	size_t n = 0;

	for (; *from != '\0' && strchr(ends, *from) == NULL; from++) {
		ASSERT(n + 1 < size_bytes);
		if (*from == '%' && from[1] != '\0' && from[2] != '\0') {
			out[n++] = (char)(hex_digit(from[1]) << 4 | hex_digit(from[2]));
			from += 2;
		} else {
			out[n++] = *from;
		}
	}
	out[n] = '\0';
	return from;
}

/* Appends a text in percent-encoding, as encoding-type=url has it. */
void s3_text_encode(struct s3_text *text, const char *raw)
{
	for (; *raw != '\0'; raw++) {
		unsigned char c = (unsigned char)*raw;
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			(c >= '0' && c <= '9') || strchr("-._~/", c) != NULL;

		s3_text_print(text, plain ? "%c" : "%%%02X", c);
	}
}

/* ---- requests and answers ---- */

/* Gets a parameter of the query, decoded. Returns whether it is there. */
bool s3_request_param(const struct s3_request *request, const char *name, char *out,
	size_t size_bytes)
{
	size_t len_bytes = strlen(name);
	const char *at = request->query;

	out[0] = '\0';
	while (*at != '\0') {
		if (strncmp(at, name, len_bytes) == 0 &&
			(at[len_bytes] == '=' || at[len_bytes] == '&' || at[len_bytes] == '\0')) {
			decode(at + len_bytes + (at[len_bytes] == '='), "&", out, size_bytes);
			return true;
		}
		at += strcspn(at, "&");
		at += *at == '&';
	}
	return false;
}

static enum s3_kind sort_bucket(const struct s3_request *request)
{
	char value[8];

	return s3_request_param(request, "uploads", value, sizeof(value)) ? S3_UPLOADS : S3_LIST;
}

/* Sorts a request for Azure's service: its account is in front of the bucket, and comp says what
 * else than a whole object is meant. */
static void sort_azure(struct s3_request *request)
{
	char account[S3_NAME_MAX], comp[S3_NAME_MAX];
	const char *at = decode(request->path + 1, "/", account, sizeof(account));
	bool puts = strcmp(request->method, "PUT") == 0;

	at = decode(at + (*at == '/'), "/", request->bucket, sizeof(request->bucket));
	decode(at + (*at == '/'), "", request->key, sizeof(request->key));
	s3_request_param(request, "comp", comp, sizeof(comp));
	if (strcmp(comp, "block") == 0) {
		request->kind = S3_PART_PUT;
	} else if (strcmp(comp, "blocklist") == 0) {
		request->kind = puts ? S3_COMPLETE : S3_PARTS;
	} else if (strcmp(comp, "list") == 0) {
		request->kind = S3_LIST;
	} else if (strcmp(request->method, "DELETE") == 0) {
		request->kind = S3_DELETE;
	} else if (strcmp(request->method, "HEAD") == 0) {
		request->kind = S3_HEAD;
	} else {
		request->kind = puts ? S3_PUT : S3_GET;
	}
}

void s3_request_sort(struct s3_request *request)
{
	const char *at = decode(request->path + 1, "/", request->bucket, sizeof(request->bucket));
	char value[S3_NAME_MAX];
	bool upload = s3_request_param(request, "uploadId", value, sizeof(value));

	if (s3_azure_is(request)) {
		sort_azure(request);
		return;
	}
	decode(at + (*at == '/'), "", request->key, sizeof(request->key));
	if (strcmp(request->path, "/creds") == 0) {
		request->kind = S3_CREDS;
	} else if (strcmp(request->method, "PUT") == 0) {
		request->kind = upload ? S3_PART_PUT : S3_PUT;
	} else if (strcmp(request->method, "POST") == 0) {
		request->kind = upload ? S3_COMPLETE : S3_BEGIN;
	} else if (strcmp(request->method, "DELETE") == 0) {
		request->kind = upload ? S3_ABORT : S3_DELETE;
	} else if (strcmp(request->method, "HEAD") == 0) {
		request->kind = S3_HEAD;
	} else if (request->key[0] == '\0') {
		request->kind = sort_bucket(request);
	} else {
		request->kind = upload ? S3_PARTS : S3_GET;
	}
}

const char *s3_request_field(const struct s3_request *request, const char *name)
{
	for (unsigned i = 0; i < request->fields_n; i++) {
		if (strcasecmp(request->names[i], name) == 0) {
			return request->values[i];
		}
	}
	return NULL;
}

void s3_answer_field(struct s3_answer *answer, const char *format, ...)
{
	size_t n = strlen(answer->headers);
	va_list args;

	va_start(args, format);
	n += (size_t)vsnprintf(answer->headers + n, sizeof(answer->headers) - n, format, args);
	va_end(args);
	ASSERT(n + 3 < sizeof(answer->headers));
	memcpy(answer->headers + n, "\r\n", 3);
}

void s3_answer_error(const struct s3_request *request, struct s3_answer *answer, int status,
	const char *code, const char *more)
{
	answer->status = status;
	answer->body.len_bytes = 0;
	answer->length_bytes = 0;
	if (request->kind != S3_HEAD) {
		s3_answer_field(answer, "Content-Type: application/xml");
		s3_text_print(&answer->body,
			"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code>"
			"<Message>the test's server says so</Message>%s</Error>",
			code, more);
	}
}

void s3_write_md5(const void *bytes, size_t len_bytes, unsigned parts_n, char etag[S3_ETAG_MAX],
	uint8_t *out)
{
	uint8_t md5[EVP_MAX_MD_SIZE];
	int rv = EVP_Digest(len_bytes > 0 ? bytes : "", len_bytes, md5, NULL, EVP_md5(), NULL);
	size_t n = 1;

	ASSERT(rv == 1);
	if (out != NULL) {
		memcpy(out, md5, S3_MD5_BYTES);
	}
	etag[0] = '"';
	for (unsigned i = 0; i < S3_MD5_BYTES; i++) {
		n += (size_t)snprintf(etag + n, S3_ETAG_MAX - n, "%02x", md5[i]);
	}
	snprintf(etag + n, S3_ETAG_MAX - n, parts_n > 0 ? "-%u\"" : "\"", parts_n);
}
