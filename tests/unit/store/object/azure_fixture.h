/* What the tests of Azure's dialect share: an operation, its request as text, and answers written
 * by hand, as Azure's documentation and Azurite have them. */
#ifndef TEST_AZURE_FIXTURE_H
#define TEST_AZURE_FIXTURE_H

#include "base/err.h"
#include "expect.h"
#include "store/object/dialect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define VERSION "x-ms-version: 2021-12-02\n"
#define UPLOAD  "blocks"
/* base64 of "crc32c-00000001-1a2b3c4d", "crc32c-00000002-fedcba98" and so on, by Python */
#define CRC_1       0x1a2b3c4du
#define CRC_2       0xfedcba98u
#define BLOCK_1     "Y3JjMzJjLTAwMDAwMDAxLTFhMmIzYzRk"
#define BLOCK_2     "Y3JjMzJjLTAwMDAwMDAyLWZlZGNiYTk4"
#define BLOCK_10000 "Y3JjMzJjLTAwMDEwMDAwLWZmZmZmZmZm"
#define SUM_OF_TWO  "2IMaJQ==-2" /* CRC-32C of CRC_1 and CRC_2, big endian */
/* CRC-64/NVME and CRC-32C of "123456789", as base64 */
#define BYTES    "123456789"
#define SUM      "x-ms-content-crc64: iJh5CoYUi64=\n"
#define KEPT     "x-ms-meta-pawl_crc32c: 4waSgw==\n"
#define EMPTY    "x-ms-content-crc64: AAAAAAAAAAA=\n"
#define TOO_LONG 5000u

static struct object_place place;
static struct http_request request;
static struct object_op op;
static struct pawl_err err;
static char sent[16384]; /* the request as text */

/* ---- the place ---- */

static inline void locate(const char *endpoint)
{
	place = (struct object_place){.url = {.service = OBJECT_AZURE}};
	snprintf(place.url.account, sizeof(place.url.account), "acct");
	snprintf(place.url.bucket, sizeof(place.url.bucket), "box");
	OK(azure_dialect.locate(&place, "ignored", endpoint, &err));
	assert_string_equal(place.region, "");
}

static inline int begin(void **state)
{
	locate("");
	op = (struct object_op){.key = "dir/a b"};
	return 0;
}

static inline int end(void **state)
{
	free(op.body_text);
	free(op.call.text);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

/* ---- requests ---- */

/* Fits read of struct object_op; reads BYTES in pieces, as the caller's memory has them. */
static inline size_t read_bytes(void *user, uint64_t off, void *bytes, size_t size)
{
	size_t n = size < 4 ? size : 4;

	assert_true(off + n <= strlen(BYTES));
	memcpy(bytes, &BYTES[off], n);
	return n;
}

/* Gives the operation a body. */
static inline void give_bytes(void)
{
	op.body_bytes = strlen(BYTES);
	op.read = read_bytes;
	op.crc = 0xe3069283u;
}

/* Builds the request of op, and writes it as text. */
static inline void build(void)
{
	size_t n;

	free(op.body_text);
	op.body_text = NULL;
	OK(azure_dialect.build(&place, &op, &request, &err));
	assert_false(request.full);
	n = (size_t)snprintf(sent, sizeof(sent), "%s %s%s%s\n", request.method, request.path,
		request.query[0] != '\0' ? "?" : "", request.query);
	for (uint32_t i = 0; i < request.headers_n; i++) {
		n += (size_t)snprintf(sent + n, sizeof(sent) - n, "%s: %s\n",
			request.headers[i].name, request.headers[i].value);
	}
	assert_true(n < sizeof(sent));
}

static inline void assert_sends(const char *text)
{
	build();
	assert_string_equal(sent, text);
}

/* ---- answers ---- */

/* Writes an answer. headers: "name", "value", ..., NULL. */
static inline void answer(int status, const char *text, const char *const *headers)
{
	free(op.call.text);
	op.call = (struct http_call){.status = status};
	op.code[0] = '\0';
	op.etag[0] = '\0';
	op.call.text = strdup(text);
	op.call.text_bytes = strlen(text);
	for (; *headers != NULL; headers++) {
		op.call.headers_n +=
			(size_t)snprintf(op.call.headers + op.call.headers_n,
				sizeof(op.call.headers) - op.call.headers_n, "%s", *headers) +
			1;
	}
}

#define HEADERS(...)                                                                               \
	(const char *const[])                                                                      \
	{                                                                                          \
		__VA_ARGS__, NULL                                                                  \
	}
#define NO_HEADERS ((const char *const[]){NULL})
#define ETAG       "etag", "\"0x8D4BCC2E4835CD0\""

static inline int read_answer(void)
{
	return azure_dialect.read(&op, &err);
}

#define BOM "\xef\xbb\xbf" /* Azure's XML begins with it */

#endif
