/* Credentials, clocks and regions of the client of object stores: what the server refuses for them
 * is set right with few requests, or named. */
#include "../lib/s3_fixture.h"
#include "../lib/within.h"
#include "base/clock.h"

#include <time.h>
#include <unistd.h>

#define HOUR_S   3600
#define TOKEN(n) "hush-token-" n

/* ---- regions ---- */

static void a_region_is_found_with_one_request(void **state)
{
	static const int statuses[] = {301, 307, 400};

	OK(put_body("old"));
	for (size_t i = 0; i < 2 * 3; i++) {
		struct s3_settings far = {.region = "eu-north-1", .region_status = statuses[i / 2]};
		unsigned n = 0;

		behave(&far);
		reopen_client(60);
		if (i % 2 == 0) {
			OK(list_keys("", &n));
		} else {
			OK(head("old")); /* the answer has no text */
		}
		assert_int_equal(count(ANY_KIND), 2);
		OK(put_body("new"));
		OK(head("new"));
		assert_int_equal(count(ANY_KIND), 4);
	}
}

static void a_region_of_the_address_is_corrected(void **state)
{
	struct s3_settings far = {.region = "eu-north-1", .region_status = 301};

	behave(&far);
	setenv("AWS_REGION", "ap-east-1", 1);
	OK(store_bucket_open(S3_ADDRESS "?region=us-west-2", &store, &err));
	store_close(store);
	assert_int_equal(count(ANY_KIND), 2);
	OK(store_bucket_open(S3_ADDRESS "?region=eu-north-1", &store, &err));
	store_close(store);
	store = NULL;
	assert_int_equal(count(ANY_KIND), 3);
}

static void regions_that_send_in_circles_are_named(void **state)
{
	const struct s3_fault here = {.kind = S3_ANSWER,
		.status = 301,
		.code = "PermanentRedirect",
		.headers = "x-amz-bucket-region: here\r\n"};
	struct s3_fault there = here;

	spoil(ANY_KIND, 1000, here);
	REFUSES(PAWL_EIO, put_body("new"), "HTTP 301, PermanentRedirect");
	assert_int_equal(count(ANY_KIND), 2);
	there.headers = "x-amz-bucket-region: there\r\n";
	behave(&settings);
	reopen_client(60);
	for (unsigned i = 0; i < 2; i++) { /* here, there, here */
		spoil_after(ANY_KIND, 0, 1, here);
		spoil_after(ANY_KIND, 0, 1, there);
	}
	REFUSES(PAWL_EIO, put_body("new"), "HTTP 301, PermanentRedirect");
	assert_int_equal(count(ANY_KIND), 3);
	behave(&settings);
	spoil(ANY_KIND, 1000, (struct s3_fault){.kind = S3_ANSWER, .status = 301});
	REFUSES(PAWL_EIO, head("old"), "HTTP 301");
	assert_int_equal(count(ANY_KIND), 1);
}

/* ---- clocks ---- */

static void other_clocks_are_adopted(void **state)
{
	OK(put_body("old"));
	for (int i = 0; i < 4; i++) {
		struct s3_settings other = {.clock_s = i % 2 == 0 ? HOUR_S : -HOUR_S};

		behave(&other);
		reopen_client(60);
		if (i < 2) {
			OK(put_body("new"));
		} else {
			OK(head("old")); /* the answer has no text */
		}
		assert_int_equal(count(ANY_KIND), 2);
		OK(put_body("new"));
		OK(head("new"));
		assert_int_equal(count(ANY_KIND), 4);
	}
}

static void a_clock_may_change_again(void **state)
{
	behave(&(struct s3_settings){.clock_s = 30 * 24 * HOUR_S});
	OK(put_body("new"));
	behave(&(struct s3_settings){.clock_s = 0});
	OK(put_body("new"));
	assert_int_equal(count(ANY_KIND), 2);
}

static void a_clock_that_is_never_right_is_named(void **state)
{
	spoil(ANY_KIND, 1000,
		(struct s3_fault){.kind = S3_ANSWER,
			.status = 403,
			.code = "RequestTimeTooSkewed"});
	REFUSES(PAWL_EIO, put_body("new"), "RequestTimeTooSkewed");
	assert_true(count(ANY_KIND) <= 3);
}

/* ---- keys ---- */

/* Writes what the container's endpoint says. left_s: until the key ends, by this clock. */
static void write_creds(char *text, size_t size_bytes, const char *token, int left_s)
{
	time_t end = (time_t)(clock_wall_ns() / NS_PER_S + left_s);
	char date[32];
	struct tm tm;

	gmtime_r(&end, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
	snprintf(text, size_bytes,
		"{\"AccessKeyId\": \"" S3_KEY_ID "\", \"SecretAccessKey\": \"" S3_SECRET
		"\", \"Token\": \"%s\", \"Expiration\": \"%s\"}",
		token, date);
}

/* Lets credentials come from the container's endpoint, which is the server. */
static void use_container(void)
{
	char uri[128];

	snprintf(uri, sizeof(uri), "%s/creds", s3_server_endpoint(server));
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri, 1);
	reopen_client(60);
}

static void set_token(const char *token, const char *valid, int left_s)
{
	struct s3_settings as = {.key_id = S3_KEY_ID};

	snprintf(as.token, sizeof(as.token), "%s", valid);
	write_creds(as.creds, sizeof(as.creds), token, left_s);
	behave(&as);
}

static void rotated_tokens_are_fetched(void **state)
{
	use_container();
	set_token(TOKEN("1"), TOKEN("1"), HOUR_S);
	OK(put_body("new"));
	OK(put_body("new"));
	assert_int_equal(count(S3_CREDS), 1);
	assert_int_equal(count(S3_PUT), 2);
	set_token(TOKEN("2"), TOKEN("2"), HOUR_S);
	OK(put_body("new"));
	OK(put_body("new"));
	assert_int_equal(count(S3_CREDS), 1);
	assert_int_equal(count(S3_PUT), 3); /* one with the old token */
	set_token(TOKEN("3"), TOKEN("3"), HOUR_S);
	OK(head("new")); /* a refusal without a text */
	assert_int_equal(count(S3_CREDS), 1);
	assert_int_equal(count(S3_HEAD), 2);
}

/* A key that is about to end is asked for again before it is refused. */
static void ending_tokens_are_fetched_before(void **state)
{
	use_container();
	set_token(TOKEN("1"), "", 100);
	OK(put_body("new"));
	set_token(TOKEN("2"), "", HOUR_S); /* the server takes both */
	WITHIN(WITHIN_LONG_S, put_body("new") == 0 && count(S3_CREDS) > 0);
	OK(put_body("new"));
	assert_int_equal(count(S3_CREDS), 1);
}

static char old_creds[1024];

static void a_token_may_be_old_for_a_while(void **state)
{
	use_container();
	set_token(TOKEN("new"), TOKEN("new"), HOUR_S);
	write_creds(old_creds, sizeof(old_creds), TOKEN("old"), HOUR_S);
	spoil(S3_CREDS, 3, (struct s3_fault){.kind = S3_ANSWER, .status = 200, .text = old_creds});
	OK(put_body("new"));
	assert_int_equal(count(S3_CREDS), 4);
	assert_int_equal(count(S3_PUT), 4);
}

static void a_source_may_fail_for_a_while(void **state)
{
	use_container();
	set_token(TOKEN("1"), TOKEN("1"), HOUR_S);
	spoil(S3_CREDS, 5, (struct s3_fault){.kind = S3_ANSWER, .status = 500});
	OK(put_body("new"));
	assert_int_equal(count(S3_PUT), 1);
	behave(&settings);
	spoil(S3_CREDS, 1, (struct s3_fault){.kind = S3_RESET_ANSWER, .n = 30});
	reopen_client(60);
	OK(put_body("new"));
	assert_int_equal(count(S3_PUT), 1);
}

static void sources_that_fail_are_named(void **state)
{
	use_container();
	reopen_client(0.2);
	set_token(TOKEN("old"), TOKEN("new"), HOUR_S);
	reopen_client(1.5);
	REFUSES(PAWL_EIO, put_body("new"), "HTTP 403, ExpiredToken");
	reopen_client(0.2);
	spoil(S3_CREDS, 1000, (struct s3_fault){.kind = S3_ANSWER, .status = 500});
	REFUSES(PAWL_EIO, put_body("new"), "container");
	behave(&(struct s3_settings){.hook = NULL}); /* 404 */
	REFUSES(PAWL_EIO, put_body("new"), "it answered 404");
	behave(&(struct s3_settings){.creds = "{\"SecretAccessKey\": \"hush"});
	REFUSES(PAWL_EIO, put_body("new"), "container");
}

static void wrong_secrets_are_named_soon(void **state)
{
	static const char *const codes[] = {"SignatureDoesNotMatch", "InvalidAccessKeyId",
		"InvalidToken"};

	for (size_t i = 0; i < 3; i++) {
		behave(&(struct s3_settings){.hook = NULL});
		spoil(ANY_KIND, 1000,
			(struct s3_fault){.kind = S3_ANSWER, .status = 403, .code = codes[i]});
		REFUSES(PAWL_EIO, put_body("new"), codes[i]);
		assert_true(count(ANY_KIND) <= 3); /* with a second before the last */
	}
	behave(&(struct s3_settings){.key_id = "AKIDOTHER"});
	FAILS(PAWL_EIO, store_bucket_open(S3_ADDRESS, &store, &err));
	SAYS("InvalidAccessKeyId");
	assert_null(strstr(err.msg, "hush"));
}

/* ---- files of keys ---- */

static char path[] = "/tmp/pawl keys XXXXXX";

static void write_keys(const char *id)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fprintf(file, "[default]\naws_access_key_id = %s\naws_secret_access_key = hush-%s\n", id,
		id);
	fclose(file);
}

static void files_of_keys_are_read_again(void **state)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
	write_keys("ONE");
	behave(&(struct s3_settings){.key_id = "ONE"});
	reopen_client(60);
	OK(put_body("new"));
	write_keys("TWO");
	OK(put_body("new")); /* nobody has refused the old one */
	behave(&(struct s3_settings){.key_id = "TWO"});
	OK(put_body("new"));
	assert_int_equal(count(S3_PUT), 2);
	/* Without a key nothing is known of the objects, so that none may seem to be missing. */
	unlink(path);
	behave(&(struct s3_settings){.key_id = "THREE"});
	REFUSES(PAWL_EINVAL, head("new"), "no credentials");
	FAILS(PAWL_EINVAL, store_bucket_open(S3_ADDRESS, &store, &err));
	SAYS("no credentials");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_client, end_client)
	const struct CMUnitTest tests[] = {
		TEST(a_region_is_found_with_one_request),
		TEST(a_region_of_the_address_is_corrected),
		TEST(regions_that_send_in_circles_are_named),
		TEST(other_clocks_are_adopted),
		TEST(a_clock_may_change_again),
		TEST(a_clock_that_is_never_right_is_named),
		TEST(rotated_tokens_are_fetched),
		TEST(ending_tokens_are_fetched_before),
		TEST(a_token_may_be_old_for_a_while),
		TEST(a_source_may_fail_for_a_while),
		TEST(sources_that_fail_are_named),
		TEST(wrong_secrets_are_named_soon),
		TEST(files_of_keys_are_read_again),
	};

	return cmocka_run_group_tests(tests, start_server, stop_server);
}
