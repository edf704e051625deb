/*
 * Google's XML API around S3's objects: see s3_google.h. Source: the reference of the XML API. What
 * it does otherwise than S3:
 *
 * - Conditions are on generations, for GET and PUT. One that does not hold is 412, also if there is
 *   no object to put over.
 * - Answers tell the CRC-32C of all bytes, of an object in parts, too. Lists of parts tell none.
 * - The end of an upload takes no condition, and no checksum.
 */
#include "s3_google.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONDITION "x-goog-if-generation-match"

bool s3_google_is(const struct s3_request *request)
{
	const char *text = s3_request_field(request, "authorization");

	return text != NULL && strncmp(text, "GOOG4-", 6) == 0;
}

/* Returns whether a request is wrong by itself: headers of S3, or a condition that is not taken. */
static bool is_mixed(const struct s3_request *request)
{
	for (unsigned i = 0; i < request->fields_n; i++) {
		if (strncasecmp(request->names[i], "x-amz-", 6) == 0 ||
			strcasecmp(request->names[i], "if-match") == 0 ||
			strcasecmp(request->names[i], "if-none-match") == 0) {
			return true;
		}
	}
	return s3_request_field(request, CONDITION) != NULL && request->kind != S3_PUT &&
		request->kind != S3_GET && request->kind != S3_HEAD;
}

static void add_field(struct s3_request *request, const char *name, const char *value)
{
	ASSERT(request->fields_n < S3_FIELDS_MAX);
	request->names[request->fields_n] = (char *)name;
	request->values[request->fields_n++] = (char *)value;
}

/* Returns whether the condition of a request holds. */
static bool holds(const struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request)
{
	const char *want = s3_request_field(request, CONDITION);
	struct s3_look look;

	if (want == NULL || (settings->ignores_conditions && request->kind == S3_PUT)) {
		return true;
	}
	look = s3_objects_look(objects, request->key);
	return strtoull(want, NULL, 10) == look.version &&
		(request->kind == S3_PUT || look.version);
}

/* Adds what answers about an object have. */
static void tell_object(const struct s3_objects *objects, const struct s3_request *request,
	struct s3_answer *answer)
{
	struct s3_look look = s3_objects_look(objects, request->key);

	s3_answer_field(answer, "x-goog-generation: %u", look.version);
	s3_answer_field(answer, "x-goog-hash: crc32c=%s", look.sum);
	s3_answer_field(answer, "x-goog-hash: md5=1B2M2Y8AsgTpgAmY7PhCfg==");
}

void s3_google_do(struct s3_objects *objects, const struct s3_settings *settings,
	const struct s3_request *request, struct s3_answer *answer)
{
	const char *sum = s3_request_field(request, "x-goog-hash");
	struct s3_request other = *request;
	struct s3_settings as_google = *settings;
	bool there = s3_objects_look(objects, request->key).version != 0;

	if (is_mixed(request)) {
		s3_answer_error(request, answer, 400, "InvalidArgument", "");
		return;
	}
	if (!holds(objects, settings, request) && (there || request->kind == S3_PUT)) {
		s3_answer_error(request, answer, 412, "PreconditionFailed", "");
		return;
	}
	if (sum != NULL && strncmp(sum, "crc32c=", 7) == 0) {
		add_field(&other, "x-amz-checksum-crc32c", sum + 7);
	}
	as_google.tells_md5 = true;
	s3_objects_do(objects, &as_google, &other, answer);
	if (answer->status / 100 == 2 &&
		(request->kind == S3_PUT || request->kind == S3_GET || request->kind == S3_HEAD)) {
		tell_object(objects, request, answer);
	}
}
