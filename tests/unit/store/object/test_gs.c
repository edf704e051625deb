/* The dialect of Google Cloud Storage: each operation as a request, and what good and bad answers
 * come to. No network: answers are written by hand, as Google's documentation has them. What it has
 * in common with S3 is tested with S3's. */
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

#define ETAG       "etag", "\"39a59594290b0f9a30662a56d695b71d\""
#define GENERATION "x-goog-generation", "1700000000000001"
#define NOBODYS    "x-goog-if-generation-match: 9007199254740991\n"

static struct object_place place;
static struct http_request request;
static struct object_op op;
static struct pawl_err err;
static char sent[16384]; /* the request as text */

/* ---- the place ---- */

static void locate(const char *region, const char *endpoint)
{
	place = (struct object_place){.url = {.service = OBJECT_GCS}};
	snprintf(place.url.bucket, sizeof(place.url.bucket), "my_bucket.org");
	OK(gs_dialect.locate(&place, region, endpoint, &err));
	assert_false(place.in_host);
}

static int begin(void **state)
{
	locate("", "");
	op = (struct object_op){.key = "dir/a b"};
	return 0;
}

static int end(void **state)
{
	free(op.body_text);
	free(op.call.text);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

static void a_bucket_is_in_the_path(void **state)
{
	assert_string_equal(place.endpoint, "https://storage.googleapis.com");
	assert_string_equal(place.region, "auto");
	locate("europe-west1", "http://127.0.0.1:9000");
	assert_string_equal(place.endpoint, "http://127.0.0.1:9000");
	assert_string_equal(place.region, "europe-west1");
}

/* ---- requests ---- */

/* Builds the request of op, and expects it as text. */
static void assert_sends(const char *text)
{
	size_t n;

	free(op.body_text);
	op.body_text = NULL;
	OK(gs_dialect.build(&place, &op, &request, &err));
	assert_false(request.full);
	n = (size_t)snprintf(sent, sizeof(sent), "%s %s%s%s\n", request.method, request.path,
		request.query[0] != '\0' ? "?" : "", request.query);
	for (uint32_t i = 0; i < request.headers_n; i++) {
		n += (size_t)snprintf(sent + n, sizeof(sent) - n, "%s: %s\n",
			request.headers[i].name, request.headers[i].value);
	}
	assert_true(n < sizeof(sent));
	assert_null(strstr(sent, "amz")); /* Google refuses a mixture */
	assert_string_equal(sent, text);
}

#define KEY "/my_bucket.org/dir/a%20b"

static void objects_are_put_on_conditions(void **state)
{
	op.verb = OBJECT_PUT;
	op.body_bytes = 9;
	op.crc = 0xe3069283; /* CRC-32C of "123456789" */
	assert_sends("PUT " KEY "\nx-goog-hash: crc32c=4waSgw==\n");
	op.match = "";
	assert_sends("PUT " KEY "\nx-goog-if-generation-match: 0\nx-goog-hash: crc32c=4waSgw==\n");
	op.match = "g1700000000000001";
	place.bare_etags = true; /* no server of Google's asks for that */
	assert_sends("PUT " KEY "\nx-goog-if-generation-match: 1700000000000001\n"
		     "x-goog-hash: crc32c=4waSgw==\n");
	op.verb = OBJECT_REMOVE;
	assert_sends("DELETE " KEY "\n");
}

/* A condition that nothing can meet: least of all may it become the one that an absent object
 * meets. */
static void etags_of_others_match_nothing(void **state)
{
	static const char *const etags[] = {"\"00000000000000000000000000000000\"", "g", "g0",
		"g01", "1", "g1 ", "g-1", "g1x", "g\"1\"", "g17000000000000000000"};

	for (size_t i = 0; i < sizeof(etags) / sizeof(etags[0]); i++) {
		op.match = etags[i];
		op.verb = OBJECT_PUT;
		assert_sends("PUT " KEY "\n" NOBODYS "x-goog-hash: crc32c=AAAAAA==\n");
		op.verb = OBJECT_GET;
		assert_sends("GET " KEY "\n" NOBODYS);
	}
}

static void objects_are_read(void **state)
{
	op.verb = OBJECT_GET;
	assert_sends("GET " KEY "\n");
	op.off_bytes = 7;
	op.len_bytes = 3;
	op.match = "g5";
	assert_sends("GET " KEY "\nx-goog-if-generation-match: 5\nrange: bytes=7-9\n");
	op.verb = OBJECT_HEAD;
	assert_sends("HEAD " KEY "\n");
}

static void lists_are_those_of_s3(void **state)
{
	op.verb = OBJECT_LIST;
	op.key = "dir/";
	op.folders = true;
	assert_sends("GET /my_bucket.org?delimiter=%2F&encoding-type=url&list-type=2&max-keys=1000"
		     "&prefix=dir%2F\n");
	op.verb = OBJECT_UPLOADS;
	assert_sends("GET /my_bucket.org?encoding-type=url&prefix=dir%2F&uploads=\n");
	op.verb = OBJECT_PARTS;
	op.upload = "ABC/+";
	op.key = "dir/a b";
	assert_sends("GET " KEY "?max-parts=1000&uploadId=ABC%2F%2B\n");
}

static void an_upload_has_no_condition(void **state)
{
	static const struct object_part parts[2] = {{"\"a\"", 1}, {"\"b\"", 2}};

	op.match = "g5"; /* must be ignored */
	op.verb = OBJECT_BEGIN;
	assert_sends("POST " KEY "?uploads=\n");
	op.verb = OBJECT_PART;
	op.upload = "up";
	op.part = 2;
	op.crc = 0xe3069283;
	assert_sends("PUT " KEY "?partNumber=2&uploadId=up\nx-goog-hash: crc32c=4waSgw==\n");
	op.verb = OBJECT_COMPLETE;
	op.parts = parts;
	op.parts_n = 2;
	assert_sends("POST " KEY "?uploadId=up\ncontent-type: application/xml\n");
	assert_string_equal(op.body_text,
		"<CompleteMultipartUpload>"
		"<Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part>"
		"<Part><PartNumber>2</PartNumber><ETag>&quot;b&quot;</ETag></Part>"
		"</CompleteMultipartUpload>");
	assert_int_equal(op.body_bytes, strlen(op.body_text));
	op.verb = OBJECT_ABORT;
	assert_sends("DELETE " KEY "?uploadId=up\n");
}

/* ---- answers ---- */

/* Writes an answer. headers: "name", "value", ..., NULL. */
static void answer(int status, const char *text, const char *const *headers)
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
#define HASH       "x-goog-hash"

static int read_answer(void)
{
	return gs_dialect.read(&op, &err);
}

static void the_etag_of_an_object_is_its_generation(void **state)
{
	static const enum object_verb verbs[] = {OBJECT_PUT, OBJECT_GET, OBJECT_HEAD};
	static const char *const bad[] = {"", "0", "01", "-1", "1 ", "1x", "17000000000000000000"};

	for (size_t i = 0; i < 3; i++) {
		op.verb = verbs[i];
		answer(200, "", HEADERS(ETAG, GENERATION, "content-length", "0"));
		OK(read_answer());
		assert_string_equal(op.etag, "g1700000000000001");
		answer(200, "", HEADERS(ETAG, "content-length", "0"));
		FAILS(PAWL_EIO, read_answer());
		SAYS("no generation");
		for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
			answer(200, "",
				HEADERS("content-length", "0", "x-goog-generation", bad[k]));
			FAILS(PAWL_EIO, read_answer());
		}
	}
	/* What is read is what a condition has. */
	op.verb = OBJECT_PUT;
	answer(200, "", HEADERS(GENERATION));
	OK(read_answer());
	op.match = op.etag;
	assert_sends("PUT " KEY "\nx-goog-if-generation-match: 1700000000000001\n"
		     "x-goog-hash: crc32c=AAAAAA==\n");
}

static void sums_stand_in_one_header_or_in_several(void **state)
{
	static const struct {
		const char *first;  /* value of a header */
		const char *second; /* value of one more */
		const char *wants;  /* the CRC-32C */
	} cases[] = {
		{"crc32c=4waSgw==", "md5=1B2M2Y8AsgTpgAmY7PhCfg==", "4waSgw=="},
		{"md5=1B2M2Y8AsgTpgAmY7PhCfg==", "crc32c=4waSgw==", "4waSgw=="},
		{"crc32c=4waSgw==,md5=1B2M2Y8AsgTpgAmY7PhCfg==", "", "4waSgw=="},
		{"md5=1B2M2Y8AsgTpgAmY7PhCfg==, crc32c=4waSgw==", "", "4waSgw=="},
		{"md5=1B2M2Y8AsgTpgAmY7PhCfg==", "", ""},
		{"crc32c=4waSgw", "crc32c=4waSgw===", ""},
		{"xcrc32c=4waSgw==", "crc32c", ""},
	};

	op.verb = OBJECT_HEAD;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		answer(200, "",
			HEADERS(HASH, cases[i].first, "content-length", "9", GENERATION, HASH,
				cases[i].second));
		OK(read_answer());
		assert_string_equal(op.sum, cases[i].wants);
		assert_int_equal(op.size_bytes, 9);
	}
	answer(200, "", HEADERS(GENERATION));
	FAILS(PAWL_EIO, read_answer());
	SAYS("no size");
}

static void flipped_bytes_are_seen(void **state)
{
	static const enum object_verb verbs[] = {OBJECT_PUT, OBJECT_PART};

	for (size_t i = 0; i < 2; i++) {
		op.verb = verbs[i];
		op.crc = 0xe3069283;
		answer(200, "", HEADERS(ETAG, GENERATION, HASH, "md5=x", HASH, "crc32c=4waSgw=="));
		OK(read_answer());
		answer(200, "", HEADERS(ETAG, GENERATION, HASH, "crc32c=AAAAAA==", HASH, "md5=x"));
		FAILS(PAWL_EIO, read_answer());
		SAYS("other bytes than those that were sent");
	}
}

static void a_part_has_an_etag_of_the_service(void **state)
{
	op.verb = OBJECT_PART;
	answer(200, "", HEADERS(ETAG));
	OK(read_answer());
	assert_string_equal(op.etag, "\"39a59594290b0f9a30662a56d695b71d\"");
	answer(200, "", HEADERS(GENERATION));
	FAILS(PAWL_EIO, read_answer());
	SAYS("no usable etag");
}

#define COMPLETED(inner)                                                                           \
	"<?xml version='1.0'?><CompleteMultipartUploadResult xmlns="                               \
	"'http://s3.amazonaws.com/doc/2006-03-01/'>" inner "</CompleteMultipartUploadResult>"

static void a_completed_upload_has_a_generation_or_none(void **state)
{
	op.verb = OBJECT_COMPLETE;
	answer(200, COMPLETED("<ETag>\"7fc8-1\"</ETag>"), NO_HEADERS);
	OK(read_answer());
	assert_string_equal(op.etag, "");
	answer(200, COMPLETED("<ETag>\"7fc8-1\"</ETag>"), HEADERS(GENERATION));
	OK(read_answer());
	assert_string_equal(op.etag, "g1700000000000001");
	answer(200, COMPLETED(""), HEADERS(GENERATION));
	FAILS(PAWL_EIO, read_answer());
	assert_string_equal(op.etag, "");
	answer(200, "<Error><Code>InternalError</Code></Error>", HEADERS(GENERATION));
	FAILS(PAWL_EIO, read_answer());
	assert_string_equal(op.code, "InternalError");
}

static void other_answers_make_no_sense(void **state)
{
	op.verb = OBJECT_GET;
	answer(204, "", HEADERS(GENERATION));
	FAILS(PAWL_EIO, read_answer());
	SAYS("no object");
	answer(200, "xx", HEADERS(GENERATION, "content-encoding", "gzip"));
	FAILS(PAWL_EIO, read_answer());
	SAYS("an encoding that was not asked for");
	op.off_bytes = 10;
	op.len_bytes = 3;
	op.got_bytes = 3;
	answer(206, "xxx", HEADERS(GENERATION, "content-range", "bytes 11-13/20"));
	FAILS(PAWL_EIO, read_answer());
	SAYS("another range");
	answer(206, "xxx", HEADERS(GENERATION, "content-range", "bytes 10-12/20"));
	OK(read_answer());
	assert_int_equal(op.size_bytes, 20);
	op.verb = OBJECT_LIST;
	answer(200, "<html>Please log in</html>", NO_HEADERS);
	FAILS(PAWL_EIO, read_answer());
	SAYS("no list");
}

static unsigned parts_found;

/* found of struct object_op */
static int take_part(void *user, const struct object_found *found)
{
	parts_found++;
	assert_int_equal(found->part, 2);
	assert_int_equal(found->size_bytes, 5242880);
	assert_string_equal(found->etag, "\"7778aef83f66abc1fa1e8477f296d394\"");
	assert_false(found->has_crc);
	return 0;
}

/* The example of "List parts", but for the lengths. */
static void parts_are_listed(void **state)
{
	op.verb = OBJECT_PARTS;
	op.found = take_part;
	answer(200,
		"<?xml version='1.0' encoding='utf-8'?>\n<ListPartsResult "
		"xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>\n<Bucket>my_bucket.org</Bucket>"
		"<Key>dir/a b</Key><UploadId>up</UploadId><StorageClass>STANDARD</StorageClass>"
		"<PartNumberMarker>0</PartNumberMarker>"
		"<NextPartNumberMarker>2</NextPartNumberMarker><MaxParts>1</MaxParts>"
		"<IsTruncated>true</IsTruncated><Part><PartNumber>2</PartNumber>"
		"<LastModified>2020-11-10T20:48:34.000Z</LastModified>"
		"<ETag>\"7778aef83f66abc1fa1e8477f296d394\"</ETag><Size>5242880</Size></Part>"
		"</ListPartsResult>",
		NO_HEADERS);
	OK(read_answer());
	assert_int_equal(parts_found, 1);
	assert_string_equal(op.next_token, "2");
}

static void errors_name_no_region(void **state)
{
	char message[OBJECT_MESSAGE_MAX];
	char region[OBJECT_NAME_MAX] = "old";

	answer(403,
		"<?xml version='1.0' encoding='UTF-8'?><Error><Code>AccessDenied</Code><Message>"
		"Access denied.</Message><Region>us</Region><Details>sa@p.iam does not have "
		"storage.objects.get</Details></Error>",
		HEADERS("x-amz-bucket-region", "us"));
	gs_dialect.read_error(&op, message, region);
	assert_string_equal(op.code, "AccessDenied");
	assert_string_equal(message, "Access denied.");
	assert_string_equal(region, "");
	answer(404, "", NO_HEADERS);
	gs_dialect.read_error(&op, message, region);
	assert_string_equal(op.code, "");
	assert_string_equal(message, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_bucket_is_in_the_path),
		TEST(objects_are_put_on_conditions),
		TEST(etags_of_others_match_nothing),
		TEST(objects_are_read),
		TEST(lists_are_those_of_s3),
		TEST(an_upload_has_no_condition),
		TEST(the_etag_of_an_object_is_its_generation),
		TEST(sums_stand_in_one_header_or_in_several),
		TEST(flipped_bytes_are_seen),
		TEST(a_part_has_an_etag_of_the_service),
		TEST(a_completed_upload_has_a_generation_or_none),
		TEST(other_answers_make_no_sense),
		TEST(parts_are_listed),
		TEST(errors_name_no_region),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
