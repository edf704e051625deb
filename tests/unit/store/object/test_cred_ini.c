/* Profiles as the vendor's files have them, well-formed and not. */
#include "../lib/expect.h"
#include "base/err.h"
#include "each_fault.h"
#include "store/object/cred_ini.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct cred_profile profile;
static struct pawl_err err;

static int clear(void **state)
{
	cred_profile_clear(&profile);
	return 0;
}

static void read_credentials(const char *text, const char *name)
{
	cred_profile_clear(&profile);
	OK(cred_ini_read(text, false, name, &profile, &err));
}

static void read_config(const char *text, const char *name)
{
	cred_profile_clear(&profile);
	OK(cred_ini_read(text, true, name, &profile, &err));
}

/* Expects a setting to be text; NULL: it is not set. */
static void assert_set(enum cred_setting setting, const char *text)
{
	if (text == NULL) {
		assert_null(profile.values[setting]);
	} else {
		assert_non_null(profile.values[setting]);
		assert_string_equal(profile.values[setting], text);
	}
}

static void settings_of_one_section_are_read(void **state)
{
	static const char text[] = "[other]\naws_access_key_id = X\n"
				   "[dev]\n"
				   "aws_access_key_id=ID\n"
				   "\t\n"
				   "AWS_Secret_Access_Key   =\tse/cr+et==  \n"
				   "unknown = 1\n"
				   "[more]\naws_session_token = Y";

	read_credentials(text, "dev");
	assert_true(profile.found);
	assert_set(CRED_KEY_ID, "ID");
	assert_set(CRED_KEY_SECRET, "se/cr+et==");
	assert_set(CRED_KEY_TOKEN, NULL);
	read_credentials(text, "more");
	assert_set(CRED_KEY_TOKEN, "Y");
	read_credentials(text, "de");
	assert_false(profile.found);
	read_credentials("", "dev");
	assert_false(profile.found);
	read_credentials("[dev]", "dev");
	assert_true(profile.found);
	assert_set(CRED_KEY_ID, NULL);
}

static void sections_of_config_have_a_prefix(void **state)
{
	static const char text[] = "[default]\nregion = r0\n"
				   "[dev]\nregion = r1\n"
				   "[profile dev]\nregion = r2\n"
				   "[ profile\t\"two words\" ]  # comment\nregion = r3\n"
				   "[profiledev]\nregion = r4\n"
				   "[sso-session dev]\nregion = r5\n"
				   "[profile]\nregion = r6\n";

	read_config(text, "default");
	assert_set(CRED_REGION, "r0");
	read_config(text, "dev");
	assert_set(CRED_REGION, "r2");
	read_config(text, "two words");
	assert_set(CRED_REGION, "r3");
	read_config(text, "profile");
	assert_false(profile.found);
	read_credentials(text, "profile dev");
	assert_set(CRED_REGION, "r2");
	read_config("[profile default]\nregion = r7\n", "default");
	assert_set(CRED_REGION, "r7");
}

static void later_settings_win(void **state)
{
	static const char text[] = "[a]\nregion = r1\nregion = r2\naws_access_key_id = ID\n"
				   "aws_session_token = T\n"
				   "[b]\nregion = r3\n"
				   "[a]\nregion = r4\naws_session_token =\n";

	read_credentials(text, "a");
	assert_set(CRED_REGION, "r4");
	assert_set(CRED_KEY_ID, "ID");
	assert_set(CRED_KEY_TOKEN, NULL);
}

static void windows_files_are_read(void **state)
{
	read_credentials("\xef\xbb\xbf[a]\r\nregion = r1\r\n\r\n; c\r\naws_access_key_id = ID\r\n",
		"a");
	assert_set(CRED_REGION, "r1");
	assert_set(CRED_KEY_ID, "ID");
}

static void comments_are_skipped(void **state)
{
	static const char text[] = "# [a]\n; region = r0\n  # x\n"
				   "[a] ; the first\n"
				   "region = r1 # here\n"
				   "endpoint_url = http://h/#x;y ; there\n"
				   "aws_access_key_id = # none\n"
				   "role_arn = a#b\n"
				   "credential_process = run a ; run b # c\n";

	read_credentials(text, "a");
	assert_set(CRED_REGION, "r1");
	assert_set(CRED_ENDPOINT, "http://h/#x;y");
	assert_set(CRED_KEY_ID, NULL);
	assert_set(CRED_ROLE_ARN, "a#b");
	assert_set(CRED_PROCESS, "run a ; run b # c");
}

static void nested_settings_are_skipped(void **state)
{
	static const char text[] = "[default]\n"
				   "s3 =\n"
				   "    region = nested\n"
				   "    [default]\n"
				   "    neither\n"
				   "\tendpoint_url = nested\n"
				   "region = r1\n"
				   "   aws_access_key_id = nested\n";

	read_config(text, "default");
	assert_set(CRED_REGION, "r1");
	assert_set(CRED_ENDPOINT, NULL);
	assert_set(CRED_KEY_ID, NULL);
}

/* What is nested is further in than the key above it, not than the section. */
static void whole_sections_may_be_indented(void **state)
{
	read_config("  [default]\n  region = r1\n  endpoint_url = http://h\n"
		    "[profile a]\n    region = r2\n    s3 =\n      region = nested\n"
		    "    endpoint_url = http://i\n",
		"default");
	assert_set(CRED_REGION, "r1");
	assert_set(CRED_ENDPOINT, "http://h");
	read_config("[profile a]\n    region = r2\n    s3 =\n      region = nested\n"
		    "    endpoint_url = http://i\n",
		"a");
	assert_set(CRED_REGION, "r2");
	assert_set(CRED_ENDPOINT, "http://i");
}

static void two_files_add_up(void **state)
{
	read_config("[profile a]\nregion = r1\nrole_arn = x\n", "a");
	OK(cred_ini_read("[a]\nregion = r2\n", false, "a", &profile, &err));
	assert_set(CRED_REGION, "r2");
	assert_set(CRED_ROLE_ARN, "x");
}

/* The number of the line is in the message, and its text is not. */
static void malformed_lines_are_named(void **state)
{
	static const struct {
		const char *text; /* a file */
		const char *says; /* part of the message */
	} bad[] = {
		{"region = SECRET\n", "line 1 is neither"},
		{"[a]\n\nSECRET\n", "line 3 is neither"},
		{"[a]\n= SECRET\n", "line 2 is neither"},
		{"[a]\nregion = r\n[SECRET\n", "line 3: the section has no ]"},
		{"\xff\xfe[SECRET", "line 1 is neither"},
		{"<html>SECRET</html>", "line 1 is neither"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cred_profile_clear(&profile);
		FAILS(PAWL_EINVAL, cred_ini_read(bad[i].text, false, "a", &profile, &err));
		SAYS(bad[i].says);
		assert_null(strstr(err.msg, "SECRET"));
	}
}

static void lines_are_bounded(void **state)
{
	char *text = malloc(INI_LINE_MAX + 64);
	size_t n;

	assert_non_null(text);
	n = (size_t)snprintf(text, INI_LINE_MAX, "[a]\naws_session_token = ");
	memset(text + n, 'x', INI_LINE_MAX);
	text[4 + INI_LINE_MAX] = '\0';
	read_credentials(text, "a");
	assert_int_equal(strlen(profile.values[CRED_KEY_TOKEN]), 4 + INI_LINE_MAX - n);
	text[4 + INI_LINE_MAX] = 'x';
	text[5 + INI_LINE_MAX] = '\0';
	FAILS(PAWL_ELIMIT, cred_ini_read(text, false, "a", &profile, &err));
	SAYS("line 2 has 16385 bytes: at most 16384");
	free(text);
}

static void memory_may_be_out(void **state)
{
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		cred_profile_clear(&profile);
		fault_arm("cred.", nth, ENOMEM, false);
		rv = cred_ini_read("[a]\nregion = r\nrole_arn = x\n", false, "a", &profile, &err);
		fault_disarm();
		assert_int_equal(rv, fault_reached(nth) ? PAWL_ENOMEM : 0);
	}
}

static void settings_can_be_dropped(void **state)
{
	read_credentials("[a]\nregion = r\nrole_arn = x\n", "a");
	cred_profile_drop(&profile, CRED_REGION);
	cred_profile_drop(&profile, CRED_REGION);
	assert_set(CRED_REGION, NULL);
	assert_set(CRED_ROLE_ARN, "x");
	cred_profile_clear(&profile);
	assert_false(profile.found);
	assert_set(CRED_ROLE_ARN, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(settings_of_one_section_are_read, clear),
		cmocka_unit_test_teardown(sections_of_config_have_a_prefix, clear),
		cmocka_unit_test_teardown(later_settings_win, clear),
		cmocka_unit_test_teardown(windows_files_are_read, clear),
		cmocka_unit_test_teardown(comments_are_skipped, clear),
		cmocka_unit_test_teardown(nested_settings_are_skipped, clear),
		cmocka_unit_test_teardown(whole_sections_may_be_indented, clear),
		cmocka_unit_test_teardown(two_files_add_up, clear),
		cmocka_unit_test_teardown(malformed_lines_are_named, clear),
		cmocka_unit_test_teardown(lines_are_bounded, clear),
		cmocka_unit_test_teardown(memory_may_be_out, clear),
		cmocka_unit_test_teardown(settings_can_be_dropped, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
