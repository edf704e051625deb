/* Signature Version 4: the examples of Amazon's documentation, others that an independent
 * implementation (botocore) has signed, and what may change between two signatures. Google
 * publishes no examples of its kind with HMAC keys: those here were computed by a second
 * implementation of ours, in Python. */
#include "io/http_request.h"
#include "store/object/sign_aws.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define EMPTY    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define MAY_2013 1369353600 /* 20130524T000000Z */
#define BUCKET   "https://examplebucket.s3.amazonaws.com"
#define TOKEN    "AQoDYXdzEJr//EXAMPLE+token="
#define ID       "AKIAIOSFODNN7EXAMPLE"
#define SECRET   "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

static const struct sign_aws_key key = {ID, SECRET, ""};
static struct http_request request;

static void assert_header(const char *name, const char *value)
{
	const char *found = request_header(&request, name);

	assert_non_null(found);
	assert_string_equal(found, value);
}

static void sign(void)
{
	sign_aws(&request, &key, "us-east-1", "s3", EMPTY, MAY_2013);
}

static void begin_get(void)
{
	request_init(&request, "GET", BUCKET);
	request_add_path(&request, "test.txt");
	request_add_header(&request, "range", "bytes=0-9");
}

/* ---- examples of "Transferring Payload in a Single Chunk", Amazon S3 API ---- */

#define AUTHORIZED(names, signature)                                                               \
	"AWS4-HMAC-SHA256 Credential=" ID                                                          \
	"/20130524/us-east-1/s3/aws4_request, SignedHeaders=" names ", Signature=" signature

static void a_get_of_an_object_is_signed(void **state)
{
	begin_get();
	sign();
	assert_false(request.full);
	assert_header("x-amz-date", "20130524T000000Z");
	assert_header("x-amz-content-sha256", EMPTY);
	assert_null(request_header(&request, "x-amz-security-token"));
	assert_header("authorization",
		AUTHORIZED("host;range;x-amz-content-sha256;x-amz-date",
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
}

static void a_put_of_an_object_is_signed(void **state)
{
	static const char body[] = "Welcome to Amazon S3.";
	char payload[65];

	sign_sha256(body, strlen(body), payload);
	assert_string_equal(payload,
		"44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
	request_init(&request, "PUT", BUCKET);
	request_add_path(&request, "test$file.text");
	request_add_header(&request, "x-amz-storage-class", "REDUCED_REDUNDANCY");
	request_add_header(&request, "date", "Fri, 24 May 2013 00:00:00 GMT");
	sign_aws(&request, &key, "us-east-1", "s3", payload, MAY_2013);
	assert_false(request.full);
	assert_header("authorization",
		AUTHORIZED("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

static void a_parameter_without_value_is_signed(void **state)
{
	request_init(&request, "GET", BUCKET);
	request_add_query(&request, "lifecycle", NULL);
	sign();
	assert_false(request.full);
	assert_header("authorization",
		AUTHORIZED("host;x-amz-content-sha256;x-amz-date",
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

static void parameters_of_a_listing_are_signed(void **state)
{
	request_init(&request, "GET", BUCKET);
	request_add_path(&request, "");
	request_add_query(&request, "max-keys", "2");
	request_add_query(&request, "prefix", "J");
	sign();
	assert_false(request.full);
	assert_header("authorization",
		AUTHORIZED("host;x-amz-content-sha256;x-amz-date",
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

/* ---- more of the same ---- */

static void a_session_token_is_signed(void **state)
{
	const struct sign_aws_key session = {ID, SECRET, TOKEN};

	begin_get();
	sign_aws(&request, &session, "us-east-1", "s3", EMPTY, MAY_2013);
	assert_false(request.full);
	assert_header("x-amz-security-token", TOKEN);
	assert_header("authorization",
		AUTHORIZED("host;range;x-amz-content-sha256;x-amz-date;x-amz-security-token",
			"fa41621e3824847f6bb148376bbf160c85de1fe7bf2c21dfa8063cb689c056a4"));
}

/* S3 takes paths as they are sent, not in their shortest form. Spaces in values count once. */
static void paths_are_not_normalised(void **state)
{
	request_init(&request, "PUT", "http://127.0.0.1:9000");
	request_add_path(&request, "bucket//a b/..\xe2\x82\xac");
	request_add_query(&request, "partNumber", "1");
	request_add_query(&request, "uploadId", "x/y==");
	request_add_header(&request, "zebra", " one  two ");
	sign();
	assert_false(request.full);
	assert_header("authorization",
		AUTHORIZED("host;x-amz-content-sha256;x-amz-date;zebra",
			"7b46aff2d364c908e94208641abe00c4e90d840f11385820cdce4342fc6f85d8"));
}

static void hosts_are_signed_with_their_ports(void **state)
{
	request_init(&request, "POST", "http://[::1]:9000");
	request_add_path(&request, "bucket/key");
	request_add_query(&request, "uploads", NULL);
	sign();
	assert_false(request.full);
	assert_header("authorization",
		AUTHORIZED("host;x-amz-content-sha256;x-amz-date",
			"1d5cd24e3022b627d6cc33eccc20a6e0fc0c79e1c3f2e15a45cf1a8f2a8b1d38"));
}

static void other_services_have_a_scope_of_their_own(void **state)
{
	request_init(&request, "POST", "https://sts.eu-central-1.amazonaws.com");
	request_add_query(&request, "Action", "AssumeRole");
	request_add_query(&request, "Version", "2011-06-15");
	sign_aws(&request, &key, "eu-central-1", "sts", EMPTY, 1795996799);
	assert_false(request.full);
	assert_header("authorization",
		"AWS4-HMAC-SHA256 Credential=" ID "/20261129/eu-central-1/sts/aws4_request, "
		"SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature="
		"e8515684179430a6274d643b44d13b3fd0e2869fb7fd0632db1379f822ca9d17");
}

/* ---- signing again ---- */

static void a_later_signature_replaces_an_earlier_one(void **state)
{
	const struct sign_aws_key session = {"OTHER", "secret", TOKEN};

	begin_get();
	sign_aws(&request, &session, "eu-central-1", "s3", SIGN_AWS_UNSIGNED, 0);
	assert_header("x-amz-date", "19700101T000000Z");
	assert_header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
	sign();
	assert_false(request.full);
	assert_int_equal(request.headers_n, 4);
	assert_null(request_header(&request, "x-amz-security-token"));
	assert_header("authorization",
		AUTHORIZED("host;range;x-amz-content-sha256;x-amz-date",
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
}

static void a_request_can_be_signed_a_thousand_times(void **state)
{
	char token[4097];
	const struct sign_aws_key session = {ID, SECRET, token};

	memset(token, 't', sizeof(token) - 1);
	token[sizeof(token) - 1] = '\0';
	begin_get();
	for (int64_t i = 0; i < 1000; i++) {
		sign_aws(&request, &session, "us-east-1", "s3", EMPTY, i);
		assert_false(request.full);
	}
	assert_int_equal(request.headers_n, 5);
	assert_header("x-amz-date", "19700101T001639Z");
	assert_header("x-amz-security-token", token);
}

/* Each thing that is signed changes the signature. */
static void everything_is_signed(void **state)
{
	char signatures[8][65];

	for (uint32_t i = 0; i < 8; i++) {
		const struct sign_aws_key other = {ID, i == 1 ? "secret" : SECRET, ""};

		request_init(&request, i == 2 ? "PUT" : "GET", BUCKET);
		request_add_path(&request, i == 3 ? "test.txt/" : "test.txt");
		request_add_header(&request, "range", "bytes=0-%d", i == 4 ? 8 : 9);
		sign_aws(&request, &other, i == 5 ? "us-east-2" : "us-east-1", "s3",
			i == 6 ? SIGN_AWS_UNSIGNED : EMPTY, MAY_2013 + (i == 7));
		assert_false(request.full);
		snprintf(signatures[i], sizeof(signatures[i]), "%s",
			strstr(request_header(&request, "authorization"), "Signature=") + 10);
		assert_int_equal(strlen(signatures[i]), 64);
		for (uint32_t j = 0; j < i; j++) {
			assert_string_not_equal(signatures[i], signatures[j]);
		}
	}
}

/* ---- limits ---- */

/* What cannot be signed is not sent. */
static void a_full_request_gets_no_signature(void **state)
{
	request_init(&request, "GET", BUCKET);
	request.full = true;
	sign();
	assert_true(request.full);
	assert_null(request_header(&request, "authorization"));
}

static void times_beyond_four_digits_of_a_year_are_refused(void **state)
{
	static const struct {
		int64_t now_s;
		const char *date; /* NULL: none */
	} cases[] = {
		{253402300799, "99991231T235959Z"},
		{253402300800, NULL},
		{INT64_MAX, NULL},
		{INT64_MIN, NULL},
		{951782400, "20000229T000000Z"},
		{4107542399, "21000228T235959Z"},
		{4107542400, "21000301T000000Z"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin_get();
		sign_aws(&request, &key, "us-east-1", "s3", EMPTY, cases[i].now_s);
		assert_int_equal(request.full, cases[i].date == NULL);
		if (cases[i].date != NULL) {
			assert_header("x-amz-date", cases[i].date);
		} else {
			assert_null(request_header(&request, "authorization"));
		}
	}
}

static void credentials_that_are_too_long_are_refused(void **state)
{
	static char text[REQUEST_TEXT_MAX + 1];
	const struct sign_aws_key keys[] = {
		{text, SECRET, ""}, /* does not fit beside the rest */
		{ID, text, ""},
		{ID, SECRET, text},
		{ID, SECRET, "a token\r\nx-amz-acl: public-read"},
	};

	memset(text, 'k', sizeof(text) - 1);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		begin_get();
		sign_aws(&request, &keys[i], "us-east-1", "s3", EMPTY, MAY_2013);
		assert_true(request.full);
		assert_null(request_header(&request, "authorization"));
	}
	begin_get();
	sign_aws(&request, &key, text, "s3", EMPTY, MAY_2013);
	assert_true(request.full);
	assert_null(request_header(&request, "authorization"));
}

/* The largest request that there can be has a canonical form. */
static void large_requests_are_signed(void **state)
{
	static char text[REQUEST_TEXT_MAX];

	request_init(&request, "GET", BUCKET);
	memset(text, 'a', REQUEST_PATH_MAX - 2);
	request_add_path(&request, text);
	memset(request.query, '&', REQUEST_QUERY_MAX - 1); /* each name alone gets a '=' */
	memset(text, 'a', REQUEST_TEXT_MAX - 512);
	request_add_header(&request, "x", "%s", text);
	sign();
	assert_false(request.full);
	assert_non_null(request_header(&request, "authorization"));
}

/* ---- Google's kind ---- */

#define GOOGLE_AUTHORIZED(region, names, signature)                                                \
	"GOOG4-HMAC-SHA256 Credential=" ID "/20130524/" region                                     \
	"/storage/goog4_request, SignedHeaders=" names ", Signature=" signature

static void requests_to_google_are_signed(void **state)
{
	request_init(&request, "PUT", "https://storage.googleapis.com");
	request_add_path(&request, "my-bucket/dir/a b");
	request_add_header(&request, "x-goog-if-generation-match", "0");
	request_add_header(&request, "x-goog-hash", "crc32c=AAAAAA==");
	sign_google(&request, &key, "auto", MAY_2013);
	assert_false(request.full);
	assert_header("x-goog-date", "20130524T000000Z");
	assert_header("x-goog-content-sha256", "UNSIGNED-PAYLOAD");
	assert_header("authorization",
		GOOGLE_AUTHORIZED("auto",
			"host;x-goog-content-sha256;x-goog-date;x-goog-hash;"
			"x-goog-if-generation-match",
			"9b51040400070ff7055b64b8c169f4f8bfb69249e8700c77e21ab6306ecff20e"));
	request_init(&request, "POST", "http://127.0.0.1:9000");
	request_add_path(&request, "my-bucket/k");
	request_add_query(&request, "uploads", "");
	sign_google(&request, &key, "us", 0); /* replaced */
	sign_google(&request, &key, "europe-west1", MAY_2013);
	assert_false(request.full);
	assert_int_equal(request.headers_n, 3);
	assert_header("authorization",
		GOOGLE_AUTHORIZED("europe-west1", "host;x-goog-content-sha256;x-goog-date",
			"47d046f51035afb4daa2a02c96d362bc259c994997a79a316e03fb1864e9b53d"));
}

static void hashes_are_written_in_hexadecimal(void **state)
{
	char hex[65];

	sign_sha256("", 0, hex);
	assert_string_equal(hex, EMPTY);
	sign_sha256("abc", 3, hex);
	assert_string_equal(hex,
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_get_of_an_object_is_signed),
		cmocka_unit_test(a_put_of_an_object_is_signed),
		cmocka_unit_test(a_parameter_without_value_is_signed),
		cmocka_unit_test(parameters_of_a_listing_are_signed),
		cmocka_unit_test(a_session_token_is_signed),
		cmocka_unit_test(paths_are_not_normalised),
		cmocka_unit_test(hosts_are_signed_with_their_ports),
		cmocka_unit_test(other_services_have_a_scope_of_their_own),
		cmocka_unit_test(a_later_signature_replaces_an_earlier_one),
		cmocka_unit_test(a_request_can_be_signed_a_thousand_times),
		cmocka_unit_test(everything_is_signed),
		cmocka_unit_test(a_full_request_gets_no_signature),
		cmocka_unit_test(times_beyond_four_digits_of_a_year_are_refused),
		cmocka_unit_test(credentials_that_are_too_long_are_refused),
		cmocka_unit_test(large_requests_are_signed),
		cmocka_unit_test(requests_to_google_are_signed),
		cmocka_unit_test(hashes_are_written_in_hexadecimal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
