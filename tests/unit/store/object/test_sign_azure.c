/*
 * What authorizes requests to Azure's storage. Microsoft's documentation shows signatures, but not
 * the keys that they were made by. So the golden ones here are of a second implementation, whose
 * results Azure's own library for Python (azure-storage-blob, SharedKeyCredentialPolicy) has, too,
 * but for the range, which the library sends in a header of another name:
 *
 *   lines = [method, "", "", length or "", "", content_type, "", "", if_match, if_none_match, "",
 *            range_] + [f"{k}:{h[k]}" for k in sorted(h) if k.startswith("x-ms-")]
 *   resource = "/" + account + path + "".join(f"\n{k}:{v}" for k, v in sorted(query.items()))
 *   base64.b64encode(hmac.new(base64.b64decode(KEY), ("\n".join(lines) + "\n" + resource).encode(),
 *                             hashlib.sha256).digest())
 *
 * with the path as it is sent and the query decoded. KEY is the well-known one of Azurite.
 */
#include "io/http_request.h"
#include "store/object/sign_azure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define KEY                                                                                        \
	"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
#define HOST      "https://account.blob.core.windows.net"
#define JUNE_2015 1435361952 /* Fri, 26 Jun 2015 23:39:12 GMT */

static unsigned char bytes[SIGN_AZURE_KEY_MAX];
static struct sign_azure_key key = {"account", bytes, 0};
static struct http_request request;

static int decode_key(void **state)
{
	return sign_azure_decode(KEY, bytes, &key.bytes_n) ? 0 : -1;
}

static void assert_header(const char *name, const char *value)
{
	const char *found = request_header(&request, name);

	assert_non_null(found);
	assert_string_equal(found, value);
}

static void begin(const char *method, const char *path)
{
	request_init(&request, method, HOST);
	request_add_path(&request, path);
	request_add_header(&request, "x-ms-version", "2021-12-02");
}

static void sign(uint64_t body_bytes)
{
	sign_azure(&request, &key, body_bytes, JUNE_2015);
}

static void assert_signed(const char *signature)
{
	char value[128];

	assert_false(request.full);
	assert_header("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT");
	snprintf(value, sizeof(value), "SharedKey %s:%s", key.account, signature);
	assert_header("authorization", value);
}

/* ---- golden signatures ---- */

static void a_range_with_a_condition_is_signed(void **state)
{
	begin("GET", "c/a b/\xe2\x82\xac");
	request_add_header(&request, "range", "bytes=0-9");
	request_add_header(&request, "if-match", "\"0x8D1\"");
	sign(0);
	assert_signed("gWpYeg+ugX6+3J0BQjHPvBv3ZG5gF9EetfHiwtm6zIQ=");
}

static void a_put_is_signed(void **state)
{
	begin("PUT", "c/key");
	request_add_header(&request, "x-ms-blob-type", "BlockBlob");
	request_add_header(&request, "if-none-match", "*");
	sign(11);
	assert_signed("yGnNDNwW9mjQJdFLRVC4nfAiSJJ+U/rqbDzDlkmR1Y0=");
}

/* The account is in the path a second time where the host does not have it. */
static void a_block_is_signed(void **state)
{
	request_init(&request, "PUT", "http://127.0.0.1:10000");
	request_add_path(&request, "devstoreaccount1/c/key");
	request_add_query(&request, "blockid", "MDEyMzQ1Njc4OWFiY2RlZi0wMDAwMDAx");
	request_add_query(&request, "comp", "block");
	request_add_header(&request, "x-ms-version", "2021-12-02");
	key.account = "devstoreaccount1";
	sign(16777216);
	assert_signed("mc5fVMdfM2aEAWt0/2IxSRervoru1J4ntFb8Akajgag=");
	key.account = "account";
}

static void a_list_of_blocks_is_signed(void **state)
{
	begin("PUT", "c/key");
	request_add_query(&request, "comp", "blocklist");
	request_add_header(&request, "content-type", "application/xml");
	sign(200);
	assert_signed("eAe7pSCp1UtuJstEQgQlo4EnMWhsOA2Kkqjb4KfnVGY=");
}

static void a_query_is_signed_decoded(void **state)
{
	begin("GET", "c");
	request_add_query(&request, "comp", "list");
	request_add_query(&request, "delimiter", "/");
	request_add_query(&request, "include", "metadata");
	request_add_query(&request, "marker", "2!92!MDA=");
	request_add_query(&request, "maxresults", "2");
	request_add_query(&request, "prefix", "a b/\xe2\x82\xac&");
	request_add_query(&request, "restype", "container");
	sign(0);
	assert_signed("3kKKBN+eTAqA+GeE1EL9X4KwOwpVALYQcb9vsxW9RPs=");
}

static void requests_without_a_body_are_signed(void **state)
{
	begin("HEAD", "c/key");
	sign(0);
	assert_signed("AtQgzQ08gorBNZsl13tYtqK4fZG5MqgSFxuu7G2GtUE=");
	begin("DELETE", "c/key");
	sign(0);
	assert_signed("8gtOf5cB1JaaQghcHkFutoLpxZhNhzn4RApkea8/7II=");
}

static void keys_may_be_short(void **state)
{
	assert_true(sign_azure_decode("YQ==", bytes, &key.bytes_n));
	request_init(&request, "GET", HOST);
	request_add_header(&request, "x-ms-version", "2021-12-02");
	sign(0);
	assert_signed("MbYFMSzlkwvY/58FDGZk/PIRadC49rVPwAq1jpcwyVA=");
	assert_int_equal(decode_key(NULL), 0);
}

/* ---- keys ---- */

static void keys_are_base64(void **state)
{
	static const char *const bad[] = {"", "=", "====", "YQ", "YQ=", "YQ===", "YQ==\n",
		" YQ==", "YQ==YQ==", "Y*==", "Y=Q=", "YWI-"};
	unsigned char out[SIGN_AZURE_KEY_MAX];
	char text[SIGN_AZURE_KEY_MAX * 2];
	size_t n = 0;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_false(sign_azure_decode(bad[i], out, &n));
	}
	assert_true(sign_azure_decode("YWI=", out, &n));
	assert_int_equal(n, 2);
	assert_memory_equal(out, "ab", 2);
	assert_true(sign_azure_decode("YWJj", out, &n));
	assert_int_equal(n, 3);
	assert_true(sign_azure_decode(KEY, out, &n));
	assert_int_equal(n, 64);
	memset(text, 'A', sizeof(text));
	text[340] = '\0'; /* 255 bytes */
	assert_true(sign_azure_decode(text, out, &n));
	assert_int_equal(n, 255);
	text[340] = 'A';
	text[344] = '\0';
	assert_false(sign_azure_decode(text, out, &n));
}

/* ---- signing again ---- */

static void a_request_can_be_signed_a_thousand_times(void **state)
{
	begin("PUT", "c/key");
	request_add_header(&request, "x-ms-blob-type", "BlockBlob");
	request_add_header(&request, "if-none-match", "*");
	for (int64_t i = 0; i < 1000; i++) {
		sign_azure(&request, &key, 1, i);
		assert_false(request.full);
		sign_azure_token(&request, "token", i);
		assert_false(request.full);
	}
	sign(11);
	assert_int_equal(request.headers_n, 5);
	assert_signed("yGnNDNwW9mjQJdFLRVC4nfAiSJJ+U/rqbDzDlkmR1Y0=");
}

/* Each thing that is signed changes the signature. */
static void everything_is_signed(void **state)
{
	char signatures[14][128];

	for (uint32_t i = 0; i < 14; i++) {
		struct sign_azure_key other = {i == 1 ? "other" : "account", bytes,
			i == 2 ? key.bytes_n - 1 : key.bytes_n};

		begin(i == 3 ? "HEAD" : "GET", i == 4 ? "c/keys" : "c/key");
		request_add_query(&request, "comp", i == 5 ? "list" : "block");
		request_add_header(&request, "range", "bytes=0-%d", i == 6 ? 8 : 9);
		request_add_header(&request, "if-match", i == 7 ? "\"b\"" : "\"a\"");
		request_add_header(&request, "x-ms-blob-type", i == 8 ? "PageBlob" : "BlockBlob");
		request_add_header(&request, "content-type", i == 9 ? "text/xml" : "text/plain");
		request_add_header(&request, "content-md5", i == 10 ? "b" : "a");
		request_add_header(&request, i == 11 ? "if-none-match" : "if-modified-since", "a");
		sign_azure(&request, &other, i == 12 ? 2 : 1, JUNE_2015 + (i == 13));
		assert_false(request.full);
		snprintf(signatures[i], sizeof(signatures[i]), "%s",
			strchr(request_header(&request, "authorization"), ':'));
		assert_int_equal(strlen(signatures[i]), 45);
		for (uint32_t j = 0; j < i; j++) {
			assert_string_not_equal(signatures[i], signatures[j]);
		}
	}
}

/* ---- tokens and SAS ---- */

static void tokens_are_sent(void **state)
{
	begin("GET", "c/key");
	sign(0);
	sign_azure_token(&request, "a.b-c_d", JUNE_2015);
	assert_false(request.full);
	assert_int_equal(request.headers_n, 3);
	assert_header("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT");
	assert_header("authorization", "Bearer a.b-c_d");
}

static void a_sas_ends_the_query(void **state)
{
	static char text[REQUEST_QUERY_MAX];

	begin("GET", "c/key");
	sign_azure_sas(&request, "sv=2021&sig=a%2Bb%3D");
	assert_false(request.full);
	assert_string_equal(request.query, "sv=2021&sig=a%2Bb%3D");
	assert_null(request_header(&request, "authorization"));
	begin("PUT", "c/key");
	request_add_query(&request, "comp", "blocklist");
	sign_azure_sas(&request, "sv=2021&sig=a%2Bb%3D");
	assert_string_equal(request.query, "comp=blocklist&sv=2021&sig=a%2Bb%3D");
	begin("PUT", "c/key");
	memset(text, 'a', sizeof(text) - 1);
	sign_azure_sas(&request, text);
	assert_true(request.full);
	assert_string_equal(request.query, "");
	begin("PUT", "c/key");
	text[sizeof(text) - 2] = '\0';
	sign_azure_sas(&request, text);
	assert_false(request.full);
	assert_string_equal(request.query, text);
}

/* ---- limits ---- */

/* What cannot be signed is not sent. */
static void what_cannot_be_signed_is_full(void **state)
{
	static char text[REQUEST_TEXT_MAX + 1];

	begin("GET", "c/key");
	request.full = true;
	sign(0);
	assert_null(request_header(&request, "authorization"));
	memset(text, 'k', sizeof(text) - 1);
	begin("GET", "c/key");
	key.account = text;
	sign(0);
	key.account = "account";
	assert_true(request.full);
	assert_null(request_header(&request, "authorization"));
	begin("GET", "c/key");
	sign_azure_token(&request, text, JUNE_2015);
	assert_true(request.full);
	assert_null(request_header(&request, "authorization"));
	begin("GET", "c/key");
	sign_azure_token(&request, "token\r\nx-ms-meta-a: b", JUNE_2015);
	assert_true(request.full);
}

static void dates_are_right(void **state)
{
	static const struct {
		int64_t now_s;
		const char *date; /* NULL: none */
	} cases[] = {
		{0, "Thu, 01 Jan 1970 00:00:00 GMT"},
		{784111777, "Sun, 06 Nov 1994 08:49:37 GMT"},
		{951782399, "Mon, 28 Feb 2000 23:59:59 GMT"},
		{951782400, "Tue, 29 Feb 2000 00:00:00 GMT"},
		{951868800, "Wed, 01 Mar 2000 00:00:00 GMT"},
		{978307199, "Sun, 31 Dec 2000 23:59:59 GMT"},
		{1795996799, "Sun, 29 Nov 2026 23:59:59 GMT"},
		{4107542399, "Sun, 28 Feb 2100 23:59:59 GMT"},
		{4107542400, "Mon, 01 Mar 2100 00:00:00 GMT"},
		{253402300799, "Fri, 31 Dec 9999 23:59:59 GMT"},
		{253402300800, NULL},
		{INT64_MAX, NULL},
		{INT64_MIN, NULL},
		{-1, NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin("GET", "c/key");
		sign_azure(&request, &key, 0, cases[i].now_s);
		assert_int_equal(request.full, cases[i].date == NULL);
		if (cases[i].date != NULL) {
			assert_header("x-ms-date", cases[i].date);
		} else {
			assert_null(request_header(&request, "x-ms-date"));
			assert_null(request_header(&request, "authorization"));
		}
	}
}

/* The largest request that there can be is signed. */
static void large_requests_are_signed(void **state)
{
	static char text[REQUEST_TEXT_MAX];

	request_init(&request, "GET", HOST);
	memset(text, 'a', REQUEST_PATH_MAX - 2);
	request_add_path(&request, text);
	memset(request.query, '&', REQUEST_QUERY_MAX - 1); /* an empty name is written as "\n:" */
	memset(text, 'a', REQUEST_TEXT_MAX - 512);
	request_add_header(&request, "x-ms-meta-a", "%s", text);
	sign(UINT64_MAX);
	assert_false(request.full);
	assert_non_null(request_header(&request, "authorization"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_range_with_a_condition_is_signed),
		cmocka_unit_test(a_put_is_signed),
		cmocka_unit_test(a_block_is_signed),
		cmocka_unit_test(a_list_of_blocks_is_signed),
		cmocka_unit_test(a_query_is_signed_decoded),
		cmocka_unit_test(requests_without_a_body_are_signed),
		cmocka_unit_test(keys_may_be_short),
		cmocka_unit_test(keys_are_base64),
		cmocka_unit_test(a_request_can_be_signed_a_thousand_times),
		cmocka_unit_test(everything_is_signed),
		cmocka_unit_test(tokens_are_sent),
		cmocka_unit_test(a_sas_ends_the_query),
		cmocka_unit_test(what_cannot_be_signed_is_full),
		cmocka_unit_test(dates_are_right),
		cmocka_unit_test(large_requests_are_signed),
	};

	return cmocka_run_group_tests(tests, decode_key, NULL);
}
