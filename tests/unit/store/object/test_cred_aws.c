/* Credentials for S3: the order of the sources, profiles, fresh keys in time, refused keys. The
 * outside is cred_fake.h. */
#include "cred_fake.h"
#include "each_fault.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

/* ---- the chain ---- */

static void sources_have_an_order(void **state)
{
	set_machine(JSON("IMDS", HOUR));
	reopen();
	assert_key(NOW, "IMDS", "hush-t");
	set_container();
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	set(files, CRED, "[default]\n" KEYS("FILE") "[dev]\n" KEYS("DEV") "[at]\n" KEYS("AT"));
	reopen();
	assert_key(NOW, "FILE", "");
	set_env_role();
	reopen();
	assert_key(NOW, "WEB", "hush-t");
	set_env_keys();
	reopen();
	assert_key(NOW, "ENV", "");
	set(env, "AWS_PROFILE", "dev"); /* keys of the environment do not count, its role does */
	reopen();
	assert_key(NOW, "WEB", "hush-t");
	set(env, "AWS_ROLE_ARN", "");
	reopen();
	assert_key(NOW, "DEV", "");
	set(env, "AWS_ROLE_ARN", "arn:x");
	snprintf(url.profile, sizeof(url.profile), "at");
	reopen();
	assert_key(NOW, "AT", "");
}

static void places_without_credentials_are_listed(void **state)
{
	reopen();
	GET_REFUSES(PAWL_ENOENT, "AWS_ACCESS_KEY_ID");
	SAYS("AWS_WEB_IDENTITY_TOKEN_FILE");
	SAYS("\"default\" of " CRED " and " CONFIG);
	SAYS("AWS_CONTAINER_CREDENTIALS_");
	SAYS("http://169.254.169.254: it does not answer");
	SAYS("hop limit may be 1: set HttpPutResponseHopLimit to 2");
	set(env, "AWS_EC2_METADATA_DISABLED", "True");
	reopen();
	trace[0] = '\0';
	GET_REFUSES(PAWL_ENOENT, "AWS_EC2_METADATA_DISABLED is true");
	assert_string_equal(trace, "");
	set_env_keys(); /* found without a second open */
	assert_key(NOW, "ENV", "");
}

static void nothing_is_asked_at_open(void **state)
{
	set_env_role();
	reopen();
	set(env, "AWS_ROLE_ARN", "");
	set_container();
	reopen();
	set(files, CRED, "[default]\ncredential_process = x\n");
	reopen();
	assert_string_equal(trace, "");
}

static void keys_of_the_environment_are_checked(void **state)
{
	set(env, "AWS_SECRET_ACCESS_KEY", "hush");
	OPEN_REFUSES(PAWL_EINVAL, "AWS_SECRET_ACCESS_KEY and AWS_ACCESS_KEY_ID only the first");
	set(env, "AWS_ACCESS_KEY_ID", "hush\n");
	OPEN_REFUSES(PAWL_EINVAL, "id has characters that no key has");
	set(env, "AWS_ACCESS_KEY_ID", "ENV");
	set(env, "AWS_SECRET_ACCESS_KEY", "hush-ENV\n");
	OPEN_REFUSES(PAWL_EINVAL, "AWS_SECRET_ACCESS_KEY");
	set(env, "AWS_SECRET_ACCESS_KEY", "hush-ENV");
	set(env, "AWS_SESSION_TOKEN", "hush\r\nx-amz-acl: public-read");
	OPEN_REFUSES(PAWL_EINVAL, "session token has characters");
	set(env, "AWS_SESSION_TOKEN", "hush-t");
	reopen();
	assert_key(NOW, "ENV", "hush-t");
}

static void settings_are_found(void **state)
{
	set(files, CONFIG,
		"[default]\nregion = r1\nendpoint_url = http://e1\n"
		"[profile dev]\nregion = r2\n");
	set_env_keys();
	reopen();
	assert_string_equal(cred_aws_region(cred), "r1");
	assert_string_equal(cred_aws_endpoint(cred), "http://e1");
	set(env, "AWS_ENDPOINT_URL", "http://e2");
	set(env, "AWS_DEFAULT_REGION", "r3");
	reopen();
	assert_string_equal(cred_aws_region(cred), "r3");
	assert_string_equal(cred_aws_endpoint(cred), "http://e2");
	set(env, "AWS_ENDPOINT_URL_S3", "http://e3");
	set(env, "AWS_REGION", "r4");
	reopen();
	assert_string_equal(cred_aws_region(cred), "r4");
	assert_string_equal(cred_aws_endpoint(cred), "http://e3");
	set(env, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
	set(env, "AWS_REGION", "");
	set(env, "AWS_DEFAULT_REGION", "");
	set(env, "AWS_PROFILE", "dev");
	reopen();
	assert_string_equal(cred_aws_region(cred), "r2");
	assert_string_equal(cred_aws_endpoint(cred), "");
}

/* ---- profiles ---- */

static void files_can_be_elsewhere(void **state)
{
	set(env, "AWS_SHARED_CREDENTIALS_FILE", "~/keys");
	set(env, "AWS_CONFIG_FILE", "/etc/aws");
	set(files, "/home/u/keys", "[default]\n" KEYS("FILE"));
	set(files, "/etc/aws", "[default]\nregion = r\n" KEYS("CONF") "aws_session_token = hush\n");
	reopen();
	assert_key(NOW, "FILE", ""); /* and not the token that belongs to the other key */
	assert_string_equal(cred_aws_region(cred), "r");
	set(files, "/home/u/keys", "");
	reopen();
	assert_key(NOW, "CONF", "hush");
	set(env, "HOME", "");
	OPEN_REFUSES(PAWL_ELIMIT, "AWS_SHARED_CREDENTIALS_FILE");
	set(env, "AWS_SHARED_CREDENTIALS_FILE", "");
	reopen();
	assert_key(NOW, "CONF", "hush");
}

static void profiles_that_cannot_be_used_are_named(void **state)
{
	static const struct {
		const char *config; /* profile dev, and others */
		const char *says;   /* part of the message */
	} bad[] = {
		{"[profile other]\n", "\"dev\" is neither in " CRED " nor in " CONFIG ": add it"},
		{"[profile dev]\nsso_session = s\n",
			"aws configure export-credentials --profile dev"},
		{"[profile dev]\nsso_start_url = s\n", "signs in by SSO"},
		{"[profile dev]\naws_access_key_id = x\n", "has no aws_secret_access_key"},
		{"[profile dev]\naws_secret_access_key = hush\n", "has no aws_access_key_id"},
		{"[profile dev]\naws_access_key_id = hush hush\naws_secret_access_key = hush\n",
			"characters that no key has"},
		{"[profile dev]\nrole_arn = x\n", "needs a source_profile"},
		{"[profile dev]\nrole_arn = x\ncredential_source = Environment\n",
			"credential_source is not supported"},
		{"[profile dev]\nrole_arn = x\nsource_profile = a\nmfa_serial = m\n", "mfa_serial"},
		{"[profile dev]\nrole_arn = x\nsource_profile = a\nduration_seconds = 1h\n",
			"duration_seconds must be a number from 900 to 43200"},
		{"[profile dev]\nrole_arn = x\nsource_profile = a\n",
			"source_profile \"a\": there is no such profile"},
		{"[profile dev]\nrole_arn = x\nsource_profile = a\n[profile a]\nregion = r\n",
			"source_profile \"a\": it has no keys"},
		{"[profile dev]\nrole_arn = x\nsource_profile = dev\n", "its own source_profile"},
		{"[profile dev]\nrole_arn = x\nsource_profile = a\n"
		 "[profile a]\nrole_arn = y\nsource_profile = dev\n",
			"from profile to profile, more than 5"},
		{"[profile dev]\nhush\n", CONFIG ": line 2 is neither"},
	};

	set(env, "AWS_PROFILE", "dev");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set(files, CONFIG, bad[i].config);
		OPEN_REFUSES(PAWL_EINVAL, bad[i].says);
		SAYS("profile \"dev\"");
	}
	assert_string_equal(trace, "");
}

/* A profile that was named has settings only: the container or the machine has the keys. */
static void profiles_without_keys_lead_on(void **state)
{
	set(files, CONFIG, "[profile dev]\nregion = r\n");
	snprintf(url.profile, sizeof(url.profile), "dev");
	set_env_keys();
	set_container();
	reopen();
	assert_key(NOW, "BOX", "hush-t");
}

static void files_that_are_not_needed_may_be_broken(void **state)
{
	set(files, CRED, "hush\n");
	OPEN_REFUSES(PAWL_EINVAL, CRED ": line 1");
	set_env_keys();
	reopen();
	assert_key(NOW, "ENV", "");
	set(env, "AWS_ACCESS_KEY_ID", "");
	set(env, "AWS_SECRET_ACCESS_KEY", "");
	files[0].rv = PAWL_EIO; /* another user's home */
	set_container();
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	set(env, "AWS_PROFILE", "dev");
	OPEN_REFUSES(PAWL_EINVAL, "open " CRED);
}

static void roles_are_taken_with_a_profile(void **state)
{
	set(files, CONFIG,
		"[profile dev]\nrole_arn = arn:r/1\nsource_profile = mid\nregion = eu-west-1\n"
		"external_id = e d\nrole_session_name = me\nduration_seconds = 900\n"
		"[profile mid]\nrole_arn = arn:r/2\nsource_profile = mid\n" KEYS("BASE"));
	set(env, "AWS_PROFILE", "dev");
	set_answer("POST https://sts.eu-west-1.amazonaws.com/", 200,
		STS_XML("AssumeRole", "MID", HOUR), 1);
	set_answer("POST https://sts.eu-west-1.amazonaws.com/", 200,
		STS_XML("AssumeRole", "DEV", HOUR), 1);
	reopen();
	assert_key(NOW, "DEV", "hush-t");
	assert_string_equal(body,
		"Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Ar%2F1&RoleSessionName=me"
		"&DurationSeconds=900&ExternalId=e%20d");
	assert_non_null(strstr(request_header(&last, "authorization"),
		"Credential=MID/20231114/eu-west-1/sts/aws4_request"));
	assert_string_equal(request_header(&last, "x-amz-security-token"), "hush-t");
	assert_string_equal(request_header(&last, "content-type"),
		"application/x-www-form-urlencoded");
}

static void a_profile_can_have_a_web_identity(void **state)
{
	set(files, CONFIG, "[default]\nrole_arn = arn:r\nweb_identity_token_file = ~/jwt\n");
	set(files, "/home/u/jwt", "hush.a-b_c");
	set_answer(STS, 200, STS_XML(WEB, "WEB", HOUR), 0);
	reopen();
	assert_key(NOW, "WEB", "hush-t");
	assert_string_equal(body,
		"Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Ar"
		"&RoleSessionName=pawl&WebIdentityToken=hush.a-b_c");
}

/* ---- time ---- */

/* Counts the requests since the last count. */
static unsigned count_asks(void)
{
	unsigned n = 0;

	for (const char *at = trace; (at = strchr(at, '\n')) != NULL; at++) {
		n++;
	}
	trace[0] = '\0';
	return n;
}

static void keys_are_fresh_before_their_end(void **state)
{
	set_container();
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	assert_int_equal(count_asks(), 1);
	assert_key(NOW + 3299, "BOX", "hush-t");
	assert_int_equal(count_asks(), 0);
	answers[0].text = JSON("NEW", "2023-11-15T00:13:20Z"); /* two hours after NOW */
	assert_key(NOW + 3300, "NEW", "hush-t");
	assert_key(NOW + 6899, "NEW", "hush-t");
	assert_int_equal(count_asks(), 1);
}

static void a_failed_refresh_keeps_the_key(void **state)
{
	set_container();
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	answers[0].status = 404;
	count_asks();
	assert_key(NOW + 3300, "BOX", "hush-t");
	assert_key(NOW + 3304, "BOX", "hush-t");
	assert_int_equal(count_asks(), 1); /* not more often than every 5 s */
	assert_key(NOW + 3305, "BOX", "hush-t");
	assert_int_equal(count_asks(), 1);
	assert_key(NOW + 3599, "BOX", "hush-t");
	REFUSES(PAWL_EIO, cred_aws_get(cred, NOW + 3600, &key, &err), "it answered 404");
	count_asks();
	REFUSES(PAWL_EIO, cred_aws_get(cred, NOW + 3601, &key, &err), "it answered 404");
	assert_int_equal(count_asks(), 1);
	answers[0].status = 200;
	answers[0].text = JSON("NEW", "2023-11-15T00:13:20Z");
	assert_key(NOW + 3602, "NEW", "hush-t");
}

static void a_refresh_may_fail_and_then_succeed(void **state)
{
	set_container();
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	answers[0].status = 404;
	assert_key(NOW + 3400, "BOX", "hush-t");
	answers[0].status = 200;
	answers[0].text = JSON("NEW", "2023-11-15T00:13:20Z");
	assert_key(NOW + 3404, "BOX", "hush-t");
	assert_key(NOW + 3405, "NEW", "hush-t");
}

/* A machine that had a key is one of Amazon's: that it is silent is a failure. */
static void machines_that_fall_silent_have_failed(void **state)
{
	set_machine(JSON("IMDS", HOUR));
	reopen();
	assert_key(NOW, "IMDS", "hush-t");
	drop_answers();
	assert_key(NOW + 3500, "IMDS", "hush-t");
	REFUSES(PAWL_EIO, cred_aws_get(cred, NOW + 3600, &key, &err), "it does not answer");
}

static void short_lives_are_prolonged(void **state)
{
	set_container();
	answers[0].text = JSON("BOX", "2023-11-14T22:13:21Z"); /* 1 s after NOW */
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	assert_key(NOW, "BOX", "hush-t");
	assert_int_equal(count_asks(), 1);
	answers[0].text = JSON("TEN", "2023-11-14T22:13:31Z");
	assert_key(NOW + 1, "TEN", "hush-t"); /* the old one ended */
	assert_key(NOW + 5, "TEN", "hush-t");
	assert_int_equal(count_asks(), 1);
	answers[0].text = JSON("NEW", HOUR);
	assert_key(NOW + 6, "NEW", "hush-t");
	answers[0].text = JSON("SET", HOUR);
	assert_key(NOW + 3301, "SET", "hush-t");
	answers[0].text = JSON("BACK", HOUR);
	assert_key(NOW + 3300, "BACK", "hush-t"); /* the clock was set back */
}

/* ---- keys that are refused ---- */

static void rotated_files_are_read_again(void **state)
{
	set(files, CRED, "[default]\n" KEYS("OLD") "aws_session_token = hush-1\n");
	reopen();
	assert_key(NOW, "OLD", "hush-1");
	set(files, CRED, "[default]\n" KEYS("NEW"));
	assert_key(NOW + 1, "OLD", "hush-1");
	cred_aws_refused(cred);
	assert_key(NOW + 2, "NEW", "");
	set(files, CRED, "");
	assert_key(NOW + 3, "NEW", "");
	set(files, CRED, "[default]\ncredential_process = x\n"); /* another source */
	command.value = PRINTED("CMD", HOUR);
	cred_aws_refused(cred);
	assert_key(NOW + 4, "CMD", "hush-t");
}

/* A key that is refused is not used any more, even if there is no other. */
static void refused_keys_are_not_kept(void **state)
{
	set_container();
	reopen();
	assert_key(NOW, "BOX", "hush-t");
	cred_aws_refused(cred);
	answers[0].status = 404;
	GET_REFUSES(PAWL_EIO, "it answered 404");
	GET_REFUSES(PAWL_EIO, "it answered 404");
	answers[0].status = 200;
	answers[0].text = JSON("NEW", HOUR);
	assert_key(NOW, "NEW", "hush-t");
	count_asks();
	assert_key(NOW + 1, "NEW", "hush-t");
	assert_int_equal(count_asks(), 0);
}

static void memory_may_be_out(void **state)
{
	set(files, CONFIG,
		"[default]\nrole_arn = arn:r\nsource_profile = a\nregion = r\n"
		"[profile a]\n" KEYS("BASE"));
	set_answer("POST https://sts.r.amazonaws.com/", 200, STS_XML("AssumeRole", "DEV", HOUR), 0);
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		cred_aws_close(cred);
		cred = NULL;
		fault_arm("cred.", nth, ENOMEM, false);
		rv = cred_aws_open(&url, &outside, &cred, &err);
		rv = rv == 0 ? cred_aws_get(cred, NOW, &key, &err) : rv;
		fault_disarm();
		assert_int_equal(rv, fault_reached(nth) ? PAWL_ENOMEM : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(sources_have_an_order),
		TEST(places_without_credentials_are_listed),
		TEST(nothing_is_asked_at_open),
		TEST(keys_of_the_environment_are_checked),
		TEST(settings_are_found),
		TEST(files_can_be_elsewhere),
		TEST(profiles_that_cannot_be_used_are_named),
		TEST(profiles_without_keys_lead_on),
		TEST(files_that_are_not_needed_may_be_broken),
		TEST(roles_are_taken_with_a_profile),
		TEST(a_profile_can_have_a_web_identity),
		TEST(keys_are_fresh_before_their_end),
		TEST(a_failed_refresh_keeps_the_key),
		TEST(a_refresh_may_fail_and_then_succeed),
		TEST(machines_that_fall_silent_have_failed),
		TEST(short_lives_are_prolonged),
		TEST(rotated_files_are_read_again),
		TEST(refused_keys_are_not_kept),
		TEST(memory_may_be_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
