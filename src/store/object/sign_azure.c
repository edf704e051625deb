/* Signatures for Azure's storage: see sign_azure.h. What is signed is the method, some headers by
 * their places, all x-ms-* headers by their names, and the address with its query decoded. */
#include "store/object/sign_azure.h"

#include "io/http_request.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_BYTES    32u   /* bytes of a SHA-256 */
#define BASE64_MAX    45u   /* bytes of one in base64, terminator included */
#define DATE_MAX      64u   /* bytes of "Fri, 26 Jun 2015 23:39:12 GMT", and room */
#define NAMES_MAX     1024u /* bytes of the names of all headers, and of an account */
#define TO_SIGN_MAX   32768u
#define DAY_S         86400
#define DAYS_TO_1970  719468u        /* days from 1 March of the year 0 */
#define DAYS_OF_400   146097u        /* days of 400 years */
#define YEAR_9999_S   253402300799LL /* last second of the year */
#define BASE64_CHARS  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
#define ENCODED_BYTES 3u /* bytes of "%2F" */

_Static_assert(TO_SIGN_MAX >
		REQUEST_PATH_MAX + 2 * REQUEST_QUERY_MAX + REQUEST_TEXT_MAX + 2 * NAMES_MAX,
	"all that a request can hold can be signed");

/* What is signed. */
struct to_sign {
	char bytes[TO_SIGN_MAX]; /* ends with a NUL */
	size_t n;                /* length without the terminator */
	bool full;               /* something did not fit */
};

__attribute__((format(printf, 2, 3))) static void add(struct to_sign *to_sign, const char *format,
	...)
{
	size_t room = sizeof(to_sign->bytes) - to_sign->n;
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(to_sign->bytes + to_sign->n, room, format, args);
	va_end(args);
	if (len < 0 || (size_t)len >= room) {
		to_sign->full = true;
	} else {
		to_sign->n += (size_t)len;
	}
}

/* ---- keys ---- */

bool sign_azure_decode(const char *text, unsigned char bytes[SIGN_AZURE_KEY_MAX], size_t *bytes_n)
{
	size_t digits = strspn(text, BASE64_CHARS);
	size_t pads = strspn(text + digits, "=");
	size_t len = digits + pads;
	int decoded;

	if (text[len] != '\0' || len == 0 || len % 4 != 0 || pads > 2 ||
		len / 4 * 3 > SIGN_AZURE_KEY_MAX) {
		return false;
	}
	decoded = EVP_DecodeBlock(bytes, (const unsigned char *)text, (int)len);
	if (decoded < 0) {
		return false;
	}
	*bytes_n = (size_t)decoded - pads;
	return true;
}

/* ---- the text that is signed ---- */

/* Adds the headers that have places. Date has one, too, but x-ms-date replaces it. */
static void add_placed(struct to_sign *to_sign, const struct http_request *request,
	uint64_t body_bytes)
{
	static const char *const before[] = {"content-encoding", "content-language"};
	static const char *const behind[] = {"content-md5", "content-type", NULL,
		"if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"};

	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		const char *value = request_header(request, before[i]);

		add(to_sign, "%s\n", value != NULL ? value : "");
	}
	if (body_bytes > 0) {
		add(to_sign, "%" PRIu64, body_bytes);
	}
	add(to_sign, "\n");
	for (size_t i = 0; i < sizeof(behind) / sizeof(behind[0]); i++) {
		const char *value = behind[i] != NULL ? request_header(request, behind[i]) : NULL;

		add(to_sign, "%s\n", value != NULL ? value : "");
	}
}

static int compare_headers(const void *a, const void *b)
{
	const struct request_header *first = a;
	const struct request_header *second = b;

	return strcmp(first->name, second->name);
}

/* Adds the x-ms-* headers, in the order of their names. */
static void add_named(struct to_sign *to_sign, const struct http_request *request)
{
	struct request_header headers[REQUEST_HEADERS_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < request->headers_n; i++) {
		if (strncmp(request->headers[i].name, "x-ms-", 5) == 0) {
			headers[n++] = request->headers[i];
		}
	}
	if (n > 0) {
		qsort(headers, n, sizeof(*headers), compare_headers);
	}
	for (uint32_t i = 0; i < n; i++) {
		add(to_sign, "%s:%s\n", headers[i].name, headers[i].value);
	}
}

/* Returns the value of a hexadecimal digit, as request_encode writes them. */
static unsigned hex_value(char digit)
{
	return (unsigned)(digit <= '9' ? digit - '0' : digit - 'A' + 10);
}

/* Adds a part of a query, decoded. */
static void add_decoded(struct to_sign *to_sign, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '%' && len - i >= ENCODED_BYTES) {
			add(to_sign, "%c",
				(char)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2])));
			i += ENCODED_BYTES - 1;
		} else {
			add(to_sign, "%c", text[i]);
		}
	}
}

/* Adds account, path and query, whose names are ascending already. */
static void add_resource(struct to_sign *to_sign, const struct http_request *request,
	const char *account)
{
	const char *query = request->query;

	add(to_sign, "/%s%s", account, request->path[0] != '\0' ? request->path : "/");
	while (*query != '\0') {
		size_t len = strcspn(query, "&");
		size_t name_n = strcspn(query, "=&");

		add(to_sign, "\n");
		add_decoded(to_sign, query, name_n);
		add(to_sign, ":");
		if (name_n < len) {
			add_decoded(to_sign, query + name_n + 1, len - name_n - 1);
		}
		query += len + (query[len] == '&');
	}
}

/* ---- signing ---- */

/* Writes a date of HTTP, by hand, since the system's functions go by locale and time zone. Days are
 * counted from 1 March of the year 0, so that a leap day ends a year: Hinnant, "chrono-compatible
 * low-level date algorithms". */
static bool write_date(char date[DATE_MAX], int64_t now_s)
{
	static const char days[][4] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
	static const char months[][4] = {"Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct",
		"Nov", "Dec", "Jan", "Feb"};
	unsigned second, day, age, year, of_year, month;

	if (now_s < 0 || now_s > YEAR_9999_S) {
		return false;
	}
	second = (unsigned)(now_s % DAY_S);
	day = (unsigned)(now_s / DAY_S) + DAYS_TO_1970;
	age = day % DAYS_OF_400; /* days from the last year that 400 divides */
	year = (age - age / 1460 + age / 36524 - age / 146096) / 365;
	of_year = age - (365 * year + year / 4 - year / 100);
	month = (5 * of_year + 2) / 153;
	year += day / DAYS_OF_400 * 400 + (month >= 10);
	snprintf(date, DATE_MAX, "%s, %02u %s %04u %02u:%02u:%02u GMT", days[now_s / DAY_S % 7],
		of_year - (153 * month + 2) / 5 + 1, months[month % 12], year, second / 3600,
		second / 60 % 60, second % 60);
	return true;
}

/* Replaces the date, and drops an old authorization. */
static bool set_date(struct http_request *request, int64_t now_s)
{
	char date[DATE_MAX];

	request_drop_header(request, "x-ms-date");
	request_drop_header(request, "authorization");
	if (!write_date(date, now_s)) {
		request->full = true;
		return false;
	}
	request_add_header(request, "x-ms-date", "%s", date);
	return !request->full;
}

static bool sign(const struct to_sign *to_sign, const struct sign_azure_key *key,
	char signature[BASE64_MAX])
{
	unsigned char hash[EVP_MAX_MD_SIZE];

	if (to_sign->full ||
		HMAC(EVP_sha256(), key->bytes, (int)key->bytes_n,
			(const unsigned char *)to_sign->bytes, to_sign->n, hash, NULL) == NULL) {
		return false;
	}
	EVP_EncodeBlock((unsigned char *)signature, hash, HASH_BYTES);
	return true;
}

void sign_azure(struct http_request *request, const struct sign_azure_key *key, uint64_t body_bytes,
	int64_t now_s)
{
	struct to_sign to_sign;
	char signature[BASE64_MAX];

	if (!set_date(request, now_s)) {
		return;
	}
	to_sign.n = 0;
	to_sign.full = strlen(key->account) >= NAMES_MAX;
	add(&to_sign, "%s\n", request->method);
	add_placed(&to_sign, request, body_bytes);
	add_named(&to_sign, request);
	add_resource(&to_sign, request, key->account);
	if (!sign(&to_sign, key, signature)) {
		request->full = true;
		return;
	}
	request_add_header(request, "authorization", "SharedKey %s:%s", key->account, signature);
}

void sign_azure_token(struct http_request *request, const char *token, int64_t now_s)
{
	if (set_date(request, now_s)) {
		request_add_header(request, "authorization", "Bearer %s", token);
	}
}

void sign_azure_sas(struct http_request *request, const char *sas)
{
	size_t n = strlen(request->query);
	size_t room = sizeof(request->query) - n;

	if (strlen(sas) + 1 >= room) {
		request->full = true;
		return;
	}
	snprintf(request->query + n, room, "%s%s", n > 0 ? "&" : "", sas);
}
