/* Decides who may ask the server in s3_server.h: see s3_caller.h. */
#include "s3_caller.h"

#include "base/clock.h"
#include "s3_azure.h"
#include "s3_google.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SKEW_S 900 /* skew of clocks that S3 tolerates */

/* Gets a part of the credential's scope: 0 is the key's id, 2 the region. */
void s3_caller_scope(const struct s3_request *request, unsigned nth, char out[64])
{
	const char *text = s3_request_field(request, "authorization");
	const char *at = text != NULL ? strstr(text, "Credential=") : NULL;

	out[0] = '\0';
	if (at == NULL || (strncmp(text, "AWS4-HMAC-SHA256 ", 17) != 0 && !s3_google_is(request))) {
		return;
	}
	at += strlen("Credential=");
	for (; nth > 0 && *at != '\0'; nth--) {
		at += strcspn(at, "/");
		at += *at == '/';
	}
	snprintf(out, 64, "%.*s", (int)strcspn(at, "/,"), at);
}

int64_t s3_caller_now_s(const struct s3_settings *settings)
{
	return clock_wall_ns() / NS_PER_S + settings->clock_s;
}

/* Returns whether the time that the request was signed at is too far off. */
static bool is_skewed(const struct s3_settings *settings, const struct s3_request *request)
{
	const char *date =
		s3_request_field(request, s3_google_is(request) ? "x-goog-date" : "x-amz-date");
	struct tm tm = {0};
	int64_t off_s;

	if (date == NULL ||
		sscanf(date, "%4d%2d%2dT%2d%2d%2dZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
			&tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6) {
		return true;
	}
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	off_s = (int64_t)timegm(&tm) - s3_caller_now_s(settings);
	return off_s > SKEW_S || off_s < -SKEW_S;
}

/* ---- sessions: the token has the time at which they end, on the monotonic clock ---- */

#define SESSION "hush-until-"

void s3_caller_begin_session(const struct s3_settings *settings, struct s3_answer *answer)
{
	time_t end = (time_t)(s3_caller_now_s(settings) + settings->session_s);
	char date[32];
	struct tm tm;

	gmtime_r(&end, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
	s3_text_print(&answer->body,
		"{\"AccessKeyId\": \"" S3_KEY_ID "\", \"SecretAccessKey\": \"" S3_SECRET
		"\", \"Token\": \"" SESSION "%" PRId64 "\", \"Expiration\": \"%s\"}",
		(int64_t)(clock_mono_ns() + settings->session_s * NS_PER_S), date);
}

bool s3_caller_in_session(const struct s3_settings *settings, const struct s3_request *request)
{
	const char *token = s3_request_field(request, "x-amz-security-token");
	int64_t end_ns;

	return settings->session_s == 0 ||
		(token != NULL && sscanf(token, SESSION "%" SCNd64, &end_ns) == 1 &&
			clock_mono_ns() < end_ns);
}

/* ---- all requests ---- */

static void refuse_region(const struct s3_settings *settings, const struct s3_request *request,
	struct s3_answer *answer)
{
	char more[128];

	snprintf(more, sizeof(more), "<Region>%s</Region>", settings->region);
	if (request->kind == S3_HEAD || settings->region_status != 400) {
		s3_answer_field(answer, "x-amz-bucket-region: %s", settings->region);
	}
	if (settings->region_status == 301) {
		s3_answer_error(request, answer, 301, "PermanentRedirect", "");
	} else if (settings->region_status == 307) {
		s3_answer_field(answer, "Location: http://127.0.0.1:1/nowhere");
		s3_answer_error(request, answer, 307, "TemporaryRedirect", "");
	} else {
		s3_answer_error(request, answer, 400, "AuthorizationHeaderMalformed", more);
	}
}

/* Returns whether a request for Azure's service is signed by the account that its path names. */
static bool is_signed_for_azure(const struct s3_request *request)
{
	const char *text = s3_request_field(request, "authorization");
	char want[S3_NAME_MAX];

	snprintf(want, sizeof(want), "SharedKey %.*s:", (int)strcspn(request->path + 1, "/"),
		request->path + 1);
	return text != NULL && strncmp(text, want, strlen(want)) == 0;
}

/* Answers with an error if the request is not signed as it must be. */
bool s3_caller_check(const struct s3_settings *settings, const struct s3_request *request,
	struct s3_answer *answer)
{
	const char *token = s3_request_field(request, "x-amz-security-token");
	char key_id[64], region[64];

	if (s3_azure_is(request)) {
		if (is_signed_for_azure(request)) {
			return true;
		}
		s3_answer_error(request, answer, 403, "AuthenticationFailed", "");
		return false;
	}
	s3_caller_scope(request, 0, key_id);
	s3_caller_scope(request, 2, region);
	if (key_id[0] == '\0') {
		s3_answer_error(request, answer, 403, "AccessDenied", "");
	} else if (settings->key_id[0] != '\0' && strcmp(key_id, settings->key_id) != 0) {
		s3_answer_error(request, answer, 403, "InvalidAccessKeyId", "");
	} else if (!s3_caller_in_session(settings, request) ||
		(settings->token[0] != '\0' &&
			(token == NULL || strcmp(token, settings->token) != 0))) {
		s3_answer_error(request, answer, 403, "ExpiredToken", "");
	} else if (is_skewed(settings, request)) {
		s3_answer_error(request, answer, 403, "RequestTimeTooSkewed", "");
	} else if (settings->region[0] != '\0' && strcmp(region, settings->region) != 0) {
		refuse_region(settings, request, answer);
	} else {
		return true;
	}
	return false;
}
