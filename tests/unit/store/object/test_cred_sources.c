/* Sources of credentials for S3: what they are asked, and answers that are bad. The outside is
 * cred_fake.h. */
#include "cred_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

/* ---- commands ---- */

static void commands_are_run(void **state)
{
	set(files, CONFIG, "[default]\ncredential_process = print-it --for me\n");
	command.value = PRINTED("CMD", HOUR);
	reopen();
	assert_key(NOW, "CMD", "hush-t");
	assert_string_equal(trace, "print-it --for me\n");
	command.value = "{\"Version\": 1, \"AccessKeyId\": \"X\", \"SecretAccessKey\": \"hush-X\"}";
	reopen();
	assert_key(NOW, "X", "");
	assert_key(NOW + (1LL << 33), "X", ""); /* does not expire */
}

static void bad_commands_are_named(void **state)
{
	static const struct {
		const char *text; /* output of the command */
		const char *says; /* part of the message */
	} bad[] = {
		{"", "no JSON of one object"},
		{"loading hush...\n" PRINTED("CMD", HOUR), "no JSON of one object"},
		{PRINTED("CMD", HOUR) "hush", "no JSON of one object"},
		{"[\"hush\"]", "no JSON of one object"},
		{"{\"AccessKeyId\": \"hush\", \"SecretAccessKey\": \"hush\"}",
			"\"Version\" is not 1"},
		{"{\"Version\": 1, \"SecretAccessKey\": \"hush\"}", "access key's id is missing"},
		{"{\"Version\": 1, \"AccessKeyId\": \"hush\", \"SecretAccessKey\": 7}",
			"secret access key is missing"},
		{"{\"Version\": 1, \"AccessKeyId\": \"hush\\n\", \"SecretAccessKey\": \"hush\"}",
			"characters that no key has"},
		{PRINTED("CMD", "tomorrow hush"), "no time of ISO 8601"},
		{PRINTED("CMD", "2023-11-14T22:13:19Z"), "expired 1 s ago"},
	};

	set(files, CONFIG, "[default]\ncredential_process = print --password hush\n");
	reopen();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		command.value = bad[i].text;
		GET_REFUSES(PAWL_EIO, bad[i].says);
		SAYS("profile \"default\"");
		SAYS("credential_process");
	}
	command.rv = PAWL_ETIMEDOUT;
	GET_REFUSES(PAWL_ETIMEDOUT, "credential_process");
	command.rv = PAWL_EIO;
	GET_REFUSES(PAWL_EIO, "credential_process");
}

/* ---- STS ---- */

static void web_identities_are_not_signed(void **state)
{
	set_env_role();
	set(env, "AWS_ROLE_SESSION_NAME", "pod-1");
	reopen();
	assert_key(NOW, "WEB", "hush-t");
	assert_null(request_header(&last, "authorization"));
	assert_string_equal(body,
		"Action=AssumeRoleWithWebIdentity&Version=2011-06-15"
		"&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=pod-1"
		"&WebIdentityToken=hush%2Fjwt");
}

static void sts_has_many_places(void **state)
{
	static const struct {
		const char *name;  /* a variable that is set from then on */
		const char *value; /* and what to */
		const char *asked; /* the request that follows */
	} places[] = {
		{"AWS_REGION", "eu-west-1", "POST https://sts.eu-west-1.amazonaws.com/\n"},
		{"AWS_REGION", "cn-north-1", "POST https://sts.cn-north-1.amazonaws.com.cn/\n"},
		{"AWS_ENDPOINT_URL", "http://a:9000/", "POST http://a:9000/\n"},
		{"AWS_ENDPOINT_URL_STS", "https://b", "POST https://b/\n"},
		{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true",
			"POST https://sts.cn-north-1.amazonaws.com.cn/\n"},
	};

	set_env_role();
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		drop_answers();
		set(env, places[i].name, places[i].value);
		set_answer(strndup(places[i].asked, strlen(places[i].asked) - 1), 400, "", 0);
		reopen();
		GET_REFUSES(PAWL_EIO, "answered 400");
		assert_string_equal(trace, places[i].asked);
		free((char *)answers[0].to);
	}
	set(env, "AWS_REGION", "evil.example/");
	reopen();
	GET_REFUSES(PAWL_EINVAL, "region \"evil.example/\" is no name");
	set(env, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "");
	set(env, "AWS_ENDPOINT_URL_STS", "b");
	reopen();
	GET_REFUSES(PAWL_EINVAL, "AWS_ENDPOINT_URL_STS");
}

static void answers_of_sts_may_be_bad(void **state)
{
	static const struct {
		int status;
		const char *text; /* the answer */
		const char *says; /* part of the message */
	} bad[] = {
		{403, STS_ERROR("AccessDenied", "arn:x may not sts:AssumeRole"),
			"403, AccessDenied: arn:x may not sts:AssumeRole"},
		{400, STS_ERROR("ExpiredTokenException", "hush"), "400, ExpiredTokenException"},
		{400, STS_ERROR("ValidationError", "Value 'hush' at 'webIdentityToken'"),
			"400, ValidationError"},
		{503, "<html>hush", "503, no error's name"},
		{302, "", "302"},
		{200, "", "its answer"},
		{200, "<html><body>log in here, hush</body></html>", "id is missing"},
		{200, STS_ERROR("InternalFailure", "hush"), "id is missing"},
		{200, "<!DOCTYPE x [<!ENTITY y \"hush\">]><x>&y;</x>", "its answer"},
		{200, STS_XML(WEB, "WEB", "2023-11-14T22:13:20Z"), "expired 0 s ago"},
		{200, STS_XML(WEB, "WEB", "hush"), "no time of ISO 8601"},
	};

	set_env_role();
	reopen();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		drop_answers();
		set_answer(STS, bad[i].status, bad[i].text, 0);
		GET_REFUSES(PAWL_EIO, bad[i].says);
		SAYS("STS at https://sts.amazonaws.com");
		SAYS("AWS_WEB_IDENTITY_TOKEN_FILE");
	}
}

static void token_files_may_be_bad(void **state)
{
	char *big = malloc(40000);

	assert_non_null(big);
	memset(big, 'x', 39999);
	big[39999] = '\0';
	set_env_role();
	reopen();
	set(files, "/token", "\n");
	GET_REFUSES(PAWL_EIO, "token file /token is empty");
	set(files, "/token", "hush\nhush");
	GET_REFUSES(PAWL_EIO, "token file /token holds more than one line");
	set(files, "/token", big);
	GET_REFUSES(PAWL_ELIMIT, "/token: more than 32768 bytes");
	files[0].rv = PAWL_ENOENT; /* is the first file */
	GET_REFUSES(PAWL_EIO, "/token");
	assert_string_equal(trace, "");
	set(files, "/token", "hush/new"); /* files are read each time */
	assert_key(NOW, "WEB", "hush-t");
	assert_non_null(strstr(body, "WebIdentityToken=hush%2Fnew"));
	free(big);
}

/* One lost answer, or one failure of the service, is survived. */
static void requests_are_sent_twice(void **state)
{
	set_env_role();
	answers[0].times = 1;
	answers[0].rv = PAWL_EIO;
	set_answer(STS, 200, STS_XML(WEB, "WEB", HOUR), 0);
	reopen();
	assert_key(NOW, "WEB", "hush-t");
	assert_string_equal(trace, STS "\n" STS "\n");
	drop_answers();
	set_answer(STS, 500, "hush", 1);
	reopen();
	GET_REFUSES(PAWL_ETIMEDOUT, "no answer within 10000 ms");
	assert_string_equal(trace, STS "\n" STS "\n");
}

/* ---- containers ---- */

static void containers_are_asked_with_a_token(void **state)
{
	set_container();
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	assert_null(request_header(&last, "authorization"));
	assert_string_equal(body, "(none)");
	set(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic hush");
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	assert_string_equal(request_header(&last, "authorization"), "Basic hush");
	set(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/box");
	set(files, "/box", "hush-1\n");
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	set(files, "/box", "hush-2\n");
	cred_aws_refused(cred);
	assert_key(NOW, "BOX", "hush-t");
	assert_string_equal(request_header(&last, "authorization"), "hush-2");
	cred_aws_refused(cred);
	set(files, "/box", "");
	GET_REFUSES(PAWL_EIO,
		"container's endpoint http://169.254.170.2: token file /box is empty");
	set(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "");
	set(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush\r\nx: y");
	GET_REFUSES(PAWL_EINVAL, "AWS_CONTAINER_AUTHORIZATION_TOKEN has a control character");
}

static void addresses_of_containers_are_refused(void **state)
{
	static const struct {
		const char *uri; /* AWS_CONTAINER_CREDENTIALS_FULL_URI */
		int rv;          /* PAWL_EINVAL: refused; PAWL_EIO: asked, and answered 404 */
	} uris[] = {
		{"http://localhost:8080/x", PAWL_EIO},
		{"http://127.1.2.3/", PAWL_EIO},
		{"http://[::1]:99?q", PAWL_EIO},
		{"http://169.254.170.2", PAWL_EIO},
		{"http://169.254.170.23/v1/credentials", PAWL_EIO},
		{"http://[fd00:EC2::23]/v1/credentials", PAWL_EIO},
		{"https://example.com/x", PAWL_EIO},
		{"http://example.com/x", PAWL_EINVAL},
		{"http://127.0.0.1.example.com/", PAWL_EINVAL},
		{"http://127.1/", PAWL_EINVAL},
		{"http://127.0.0.1@example.com/", PAWL_EINVAL},
		{"http://example.com#@127.0.0.1/", PAWL_EINVAL},
		{"http://[::1]example.com/", PAWL_EINVAL},
		{"http://[::2]/", PAWL_EINVAL},
		{"http://169.254.170.231/", PAWL_EINVAL},
		{"http://169.254.169.254/", PAWL_EINVAL},
		{"http://localhost:x/", PAWL_EINVAL},
		{"http://127.0.0.1/a b", PAWL_EINVAL},
		{"ftp://127.0.0.1/", PAWL_EINVAL},
		{"http:///x", PAWL_EINVAL},
		{"/x", PAWL_EINVAL},
	};

	for (size_t i = 0; i < sizeof(uris) / sizeof(uris[0]); i++) {
		set(env, "AWS_CONTAINER_CREDENTIALS_FULL_URI", uris[i].uri);
		reopen();
		trace[0] = '\0';
		assert_int_equal(cred_aws_get(cred, NOW, &key, &err) == PAWL_EINVAL,
			uris[i].rv == PAWL_EINVAL);
		assert_int_equal(trace[0] == '\0', uris[i].rv == PAWL_EINVAL);
		if (uris[i].rv == PAWL_EINVAL) {
			SAYS("AWS_CONTAINER_CREDENTIALS_FULL_URI");
		}
	}
	set(env, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@example.com/");
	reopen();
	GET_REFUSES(PAWL_EINVAL, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is no path");
}

static void answers_of_containers_may_be_bad(void **state)
{
	static const struct {
		int status;
		const char *text; /* the answer */
		const char *says; /* part of the message */
	} bad[] = {
		{404, "hush", "it answered 404"},
		{302, "", "it answered 302"},
		{204, "", "it answered 204"},
		{500, "hush", "it answered 500"},
		{200, "", "no JSON"},
		{200, "<html>hush", "no JSON"},
		{200, "{\"Code\": \"hush-not\\u001b\"", "no JSON"},
		{200, "{\"Code\": \"Failed\\u001b[2J\"}", "it says \"Failed\\x1b[2J\""},
		{200, JSON("BOX", "2023-11-14T22:13:20+00:00"), "expired 0 s ago"},
		{200, JSON("BOX", "1969-11-14T22:13:20Z"), "expired 1699999999 s ago"},
	};

	set_container();
	reopen();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		answers[0].status = bad[i].status;
		answers[0].text = bad[i].text;
		GET_REFUSES(PAWL_EIO, bad[i].says);
		SAYS("container's endpoint http://169.254.170.2");
	}
}

/* ---- machines ---- */

static void machines_are_asked_by_version_2(void **state)
{
	set_machine(JSON("IMDS", HOUR));
	reopen();
	assert_key(NOW, "IMDS", "hush-t");
	assert_string_equal(trace, "PUT " IMDS "api/token\nGET " ROLES "\nGET " ROLES "the-role\n");
	assert_string_equal(request_header(&last, "x-aws-ec2-metadata-token"), "hush-imds");
	set(env, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[fd00:ec2::254]/");
	drop_answers();
	reopen();
	GET_REFUSES(PAWL_ENOENT, "http://[fd00:ec2::254]");
	assert_string_equal(request_header(&last, "x-aws-ec2-metadata-token-ttl-seconds"), "21600");
	assert_int_equal(last_timeout_ms, 1000);
	assert_string_equal(trace,
		"PUT http://[fd00:ec2::254]/latest/api/token\n"
		"PUT http://[fd00:ec2::254]/latest/api/token\n");
	set(env, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "nowhere");
	GET_REFUSES(PAWL_EINVAL, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
}

static void a_refused_token_is_replaced_once(void **state)
{
	set_answer("PUT " IMDS "api/token", 200, "hush-old", 1);
	set_answer("PUT " IMDS "api/token", 200, "hush-new", 0);
	set_answer("GET " ROLES, 401, "", 1);
	set_answer("GET " ROLES, 200, "the-role", 0);
	set_answer("GET " ROLES "the-role", 200, JSON("IMDS", HOUR), 0);
	reopen();
	assert_key(NOW, "IMDS", "hush-t");
	assert_string_equal(request_header(&last, "x-aws-ec2-metadata-token"), "hush-new");
	drop_answers();
	set_answer("PUT " IMDS "api/token", 200, "hush", 0);
	set_answer("GET " ROLES, 401, "", 0);
	reopen();
	GET_REFUSES(PAWL_EIO, "it answered 401");
}

static void answers_of_machines_may_be_bad(void **state)
{
	static const struct {
		size_t nth;       /* answer that is bad: token, role, key */
		int status;       /* status of the bad answer */
		const char *text; /* body of the bad answer */
		int rv;           /* error that cred_aws_get gives */
		const char *says; /* part of its message */
	} bad[] = {
		{0, 403, "hush", PAWL_EIO, "gave no token (HTTP 403)"},
		{0, 404, "", PAWL_EIO, "gave no token (HTTP 404)"},
		{0, 500, "", PAWL_EIO, "gave no token (HTTP 500)"},
		{0, 200, "", PAWL_EIO, "gave no token (HTTP 200)"},
		{0, 200, "<html> hush", PAWL_EIO, "gave no token (HTTP 200)"},
		{1, 404, "", PAWL_ENOENT, "the machine has no role"},
		{1, 200, "", PAWL_ENOENT, "the machine has no role"},
		{1, 500, "", PAWL_EIO, "it answered 500"},
		{1, 200, "<html>hush", PAWL_EIO, "no name of a role"},
		{1, 200, "../../hush", PAWL_EIO, "no name of a role"},
		{1, 200, "\nhush", PAWL_EIO, "no name of a role"},
		{2, 404, "hush", PAWL_ENOENT, "the machine has no role"},
		{2, 200, "{\"Code\": \"AssumeRoleUnauthorizedAccess\"}", PAWL_EIO,
			"it says \"AssumeRoleUnauthorizedAccess\""},
		{2, 200, JSON("IMDS", "2023-11-14T22:13:20Z"), PAWL_EIO, "expired"},
	};

	reopen();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		drop_answers();
		set_machine(JSON("IMDS", HOUR));
		answers[bad[i].nth].status = bad[i].status;
		answers[bad[i].nth].text = bad[i].text;
		GET_REFUSES(bad[i].rv, bad[i].says);
		SAYS("metadata service at http://169.254.169.254");
	}
}

/* ---- the key itself ---- */

static void ends_have_many_forms(void **state)
{
	static const struct {
		const char *end; /* Expiration */
		int64_t end_s;   /* seconds since 1970; 0: never; -1: it is no time */
	} ends[] = {
		{"2023-11-14T23:13:20Z", NOW + 3600},
		{"2023-11-14T23:13:20", NOW + 3600},
		{"2023-11-14T23:13:20.123456Z", NOW + 3600},
		{"2023-11-14T23:13:20+00:00", NOW + 3600},
		{"2023-11-15T00:13:20+0100", NOW + 3600},
		{"2023-11-14T21:43:20-01:30", NOW + 3600},
		{"2262-01-01T00:00:00Z", 9214646400},
		{"2263-01-01T00:00:00Z", 0},
		{"9999-12-31T23:59:59Z", 0},
		{"", 0},
		{"10000-01-01T00:00:00Z", -1},
		{"2023-13-14T23:13:20Z", -1},
		{"2023-11-14 23:13:20Z", -1},
		{"2023-11-14T23:13:20X", -1},
		{"2023-11-14T23:13:20+1", -1},
		{"2023-11-14T23:13:20+01:", -1},
		{"2023-11-14T23:13:20+01:00:00", -1},
		{"1700003600", -1},
		{" 2023-11-14T23:13:20Z", -1},
	};

	set_container();
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		char text[256];

		snprintf(text, sizeof(text),
			"{\"AccessKeyId\": \"BOX\", \"SecretAccessKey\": \"hush-BOX\", "
			"\"Expiration\": \"%s\"}",
			ends[i].end);
		answers[0].status = 200;
		answers[0].text = text;
		reopen();
		if (ends[i].end_s < 0) {
			GET_REFUSES(PAWL_EIO, "no time of ISO 8601");
			continue;
		}
		assert_key(NOW, "BOX", "");
		answers[0].status = 404;
		if (ends[i].end_s == 0) {
			assert_key(NOW + (1LL << 40), "BOX", "");
			continue;
		}
		assert_key(ends[i].end_s - 1, "BOX", "");
		REFUSES(PAWL_EIO, cred_aws_get(cred, ends[i].end_s, &key, &err), "404");
	}
}

static void keys_have_bounds(void **state)
{
	static char text[9000];
	size_t n;

	set(files, CRED, text);
	n = (size_t)snprintf(text, sizeof(text), "[default]\n" KEYS("FILE") "aws_session_token=");
	memset(text + n, 'x', 6143);
	reopen();
	OK(cred_aws_get(cred, NOW, &key, &err));
	assert_int_equal(strlen(key.token), 6143);
	text[n + 6143] = 'x';
	cred_aws_refused(cred);
	GET_REFUSES(PAWL_ELIMIT, "session token has 6144 bytes: at most 6143");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(commands_are_run),
		TEST(bad_commands_are_named),
		TEST(web_identities_are_not_signed),
		TEST(sts_has_many_places),
		TEST(answers_of_sts_may_be_bad),
		TEST(token_files_may_be_bad),
		TEST(requests_are_sent_twice),
		TEST(containers_are_asked_with_a_token),
		TEST(addresses_of_containers_are_refused),
		TEST(answers_of_containers_may_be_bad),
		TEST(machines_are_asked_by_version_2),
		TEST(a_refused_token_is_replaced_once),
		TEST(answers_of_machines_may_be_bad),
		TEST(ends_have_many_forms),
		TEST(keys_have_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
