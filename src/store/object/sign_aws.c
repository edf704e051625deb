/* Signature Version 4, and Google's kind of it: see sign_aws.h. A request is written in a canonical
 * form, whose hash is signed together with time, region and service, by a key that is derived from
 * the same. If a part fits nowhere, or OpenSSL has no memory, the request gets full and no
 * signature. */
#include "store/object/sign_aws.h"

#include "io/http_request.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HASH_BYTES    32u   /* bytes of a SHA-256 */
#define HEX_MAX       65u   /* bytes of one in hexadecimal, terminator included */
#define DATE_MAX      17u   /* bytes of "20130524T000000Z", terminator included */
#define DAY_BYTES     8u    /* bytes of "20130524" */
#define SCOPE_MAX     512u  /* bytes of "20130524/us-east-1/s3/aws4_request", terminator included */
#define NAMES_MAX     1024u /* bytes of the names of all headers, terminator included */
#define SECRET_MAX    512u  /* bytes of "AWS4" and a secret, terminator included */
#define CANONICAL_MAX 32768u /* bytes of a canonical request, terminator included */

_Static_assert(CANONICAL_MAX >
		REQUEST_PATH_MAX + 2 * REQUEST_QUERY_MAX + REQUEST_TEXT_MAX + 2 * NAMES_MAX,
	"all that a request can hold has a canonical form");

/* What a vendor calls things. */
struct vendor {
	const char *first;     /* stands before the secret */
	const char *algorithm; /* name of the kind of signature */
	const char *last;      /* ends the scope */
	const char *date;      /* header with the time */
	const char *payload;   /* header with the body's hash */
};

static const struct vendor aws = {"AWS4", "AWS4-HMAC-SHA256", "aws4_request", "x-amz-date",
	"x-amz-content-sha256"};
static const struct vendor google = {"GOOG4", "GOOG4-HMAC-SHA256", "goog4_request", "x-goog-date",
	"x-goog-content-sha256"};

/* A text that grows. */
struct text {
	char *bytes;       /* ends with a NUL */
	size_t size_bytes; /* room at bytes */
	size_t n;          /* length without the terminator */
	bool full;         /* something did not fit */
};

/* Everything that a signature is made of. */
struct signing {
	const struct vendor *vendor;
	const struct http_request *request; /* with all headers but authorization */
	struct request_header headers[REQUEST_HEADERS_MAX + 1]; /* with Host, in order of names */
	uint32_t headers_n;                                     /* entries in headers */
	char date[DATE_MAX];                                    /* "20130524T000000Z" */
	char scope[SCOPE_MAX];         /* "20130524/us-east-1/s3/aws4_request" */
	char names[NAMES_MAX];         /* the headers' names: "host;x-amz-date" */
	char canonical[CANONICAL_MAX]; /* the canonical request */
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
	size_t room = text->size_bytes - text->n;
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(text->bytes + text->n, room, format, args);
	va_end(args);
	if (len < 0 || (size_t)len >= room) {
		text->full = true;
		text->bytes[text->n] = '\0';
	} else {
		text->n += (size_t)len;
	}
}

/* ---- hashes ---- */

static bool hash(const void *bytes, size_t len_bytes, char hex[HEX_MAX])
{
	unsigned char digest[EVP_MAX_MD_SIZE] = {0};
	bool done = EVP_Digest(bytes, len_bytes, digest, NULL, EVP_sha256(), NULL) == 1;

	for (size_t i = 0; i < HASH_BYTES; i++) {
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	}
	return done;
}

void sign_sha256(const void *bytes, size_t len_bytes, char hex[65])
{
	hash(bytes, len_bytes, hex);
}

/* Replaces the key by the HMAC of text under it. */
static bool derive(unsigned char key[HASH_BYTES], const char *text, size_t len)
{
	unsigned char out[EVP_MAX_MD_SIZE];
	bool done = HMAC(EVP_sha256(), key, HASH_BYTES, (const unsigned char *)text, len, out,
			    NULL) != NULL;

	memcpy(key, out, done ? HASH_BYTES : 0);
	OPENSSL_cleanse(out, sizeof(out));
	return done;
}

/* Derives the key of a day, region and service from the secret. */
static bool derive_key(const struct vendor *vendor, unsigned char key[HASH_BYTES],
	const char *secret, const char *date, const char *region, const char *service)
{
	char first[SECRET_MAX];
	unsigned char out[EVP_MAX_MD_SIZE];
	int len = snprintf(first, sizeof(first), "%s%s", vendor->first, secret);
	bool done = len > 0 && (size_t)len < sizeof(first) &&
		HMAC(EVP_sha256(), first, len, (const unsigned char *)date, DAY_BYTES, out, NULL) !=
			NULL;

	OPENSSL_cleanse(first, sizeof(first));
	memcpy(key, out, done ? HASH_BYTES : 0);
	OPENSSL_cleanse(out, sizeof(out));
	return done && derive(key, region, strlen(region)) &&
		derive(key, service, strlen(service)) &&
		derive(key, vendor->last, strlen(vendor->last));
}

/* ---- the canonical request ---- */

static int compare_headers(const void *a, const void *b)
{
	const struct request_header *first = a;
	const struct request_header *second = b;

	return strcmp(first->name, second->name);
}

static void sort_headers(struct signing *s)
{
	uint32_t n = s->request->headers_n;

	memcpy(s->headers, s->request->headers, n * sizeof(*s->headers));
	s->headers[n] = (struct request_header){"host", s->request->host};
	s->headers_n = n + 1;
	qsort(s->headers, s->headers_n, sizeof(*s->headers), compare_headers);
}

/* Adds a query. A name alone gets a '='. */
static void add_query(struct text *text, const char *query)
{
	while (*query != '\0') {
		size_t len = strcspn(query, "&");
		bool has_value = memchr(query, '=', len) != NULL;

		add(text, "%.*s%s", (int)len, query, has_value ? "" : "=");
		query += len;
		if (*query == '&') {
			add(text, "&");
			query++;
		}
	}
}

/* Adds a header's value without spaces at its ends, and one space for several. */
static void add_value(struct text *text, const char *value)
{
	const char *gap = "";

	for (;;) {
		size_t len;

		value += strspn(value, " ");
		len = strcspn(value, " ");
		if (len == 0) {
			return;
		}
		add(text, "%s%.*s", gap, (int)len, value);
		value += len;
		gap = " ";
	}
}

/* Writes names and the canonical request, and its hash. S3 takes the path as it is sent: encoded
 * once, with "//" and the like in it. */
static bool write_canonical(struct signing *s, const char *payload, char hex[HEX_MAX])
{
	const struct http_request *request = s->request;
	struct text names = {s->names, sizeof(s->names), 0, false};
	struct text text = {s->canonical, sizeof(s->canonical), 0, false};

	sort_headers(s);
	add(&text, "%s\n%s\n", request->method, request->path[0] != '\0' ? request->path : "/");
	add_query(&text, request->query);
	add(&text, "\n");
	for (uint32_t i = 0; i < s->headers_n; i++) {
		add(&names, "%s%s", i > 0 ? ";" : "", s->headers[i].name);
		add(&text, "%s:", s->headers[i].name);
		add_value(&text, s->headers[i].value);
		add(&text, "\n");
	}
	add(&text, "\n%s\n%s", s->names, payload);
	return !names.full && !text.full && hash(text.bytes, text.n, hex);
}

/* ---- the signature ---- */

static bool write_date(char date[DATE_MAX], int64_t now_s)
{
	time_t seconds = (time_t)now_s;
	struct tm tm;

	return gmtime_r(&seconds, &tm) != NULL &&
		strftime(date, DATE_MAX, "%Y%m%dT%H%M%SZ", &tm) == DATE_MAX - 1;
}

/* Signs the request, and writes the signature in hexadecimal. */
static bool sign(struct signing *s, const char *secret, const char *region, const char *service,
	const char *payload, char signature[HEX_MAX])
{
	char to_sign[SCOPE_MAX + 128];
	char hex[HEX_MAX] = "";
	unsigned char key[HASH_BYTES];
	struct text scope = {s->scope, sizeof(s->scope), 0, false};
	struct text text = {to_sign, sizeof(to_sign), 0, false};
	bool done = write_canonical(s, payload, hex);

	add(&scope, "%.*s/%s/%s/%s", (int)DAY_BYTES, s->date, region, service, s->vendor->last);
	add(&text, "%s\n%s\n%s\n%s", s->vendor->algorithm, s->date, s->scope, hex);
	done = done && !scope.full && !text.full &&
		derive_key(s->vendor, key, secret, s->date, region, service) &&
		derive(key, to_sign, text.n);
	for (size_t i = 0; done && i < HASH_BYTES; i++) {
		snprintf(signature + 2 * i, 3, "%02x", key[i]);
	}
	OPENSSL_cleanse(key, sizeof(key));
	return done;
}

/* Signs a request that has the other headers of the vendor. */
static void sign_all(struct signing *s, struct http_request *request,
	const struct sign_aws_key *key, const char *region, const char *service,
	const char *payload, int64_t now_s)
{
	char signature[HEX_MAX];

	request_drop_header(request, s->vendor->date);
	request_drop_header(request, s->vendor->payload);
	request_drop_header(request, "authorization");
	if (!write_date(s->date, now_s)) {
		request->full = true;
		return;
	}
	request_add_header(request, s->vendor->date, "%s", s->date);
	request_add_header(request, s->vendor->payload, "%s", payload);
	if (request->full || !sign(s, key->secret, region, service, payload, signature)) {
		request->full = true;
		return;
	}
	request_add_header(request, "authorization",
		"%s Credential=%s/%s, SignedHeaders=%s, Signature=%s", s->vendor->algorithm,
		key->id, s->scope, s->names, signature);
}

void sign_aws(struct http_request *request, const struct sign_aws_key *key, const char *region,
	const char *service, const char *payload, int64_t now_s)
{
	struct signing s = {.vendor = &aws, .request = request};

	request_drop_header(request, "x-amz-security-token");
	if (key->token[0] != '\0') {
		request_add_header(request, "x-amz-security-token", "%s", key->token);
	}
	sign_all(&s, request, key, region, service, payload, now_s);
}

void sign_google(struct http_request *request, const struct sign_aws_key *key, const char *region,
	int64_t now_s)
{
	struct signing s = {.vendor = &google, .request = request};

	sign_all(&s, request, key, region, "storage", SIGN_AWS_UNSIGNED, now_s);
}
