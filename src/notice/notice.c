/* Finds the cloud of a machine, and leads the round of questions: see notice.h. */
#include "notice/notice.h"

#include "base/assert.h"
#include "base/err.h"
#include "io/http_request.h"
#include "notice/notice_impl.h"

#include <stdio.h>
#include <string.h>

/* The tag of the chassis of all machines of Azure. Other machines of the maker do not have it. */
#define AZURE_TAG "7783-7084-3265-9085-8269-3286-77"

static const struct notice_ops *const clouds[] = {
	[NOTICE_AWS] = &notice_aws,
	[NOTICE_GCP] = &notice_gcp,
	[NOTICE_AZURE] = &notice_azure,
};

#define CLOUDS_N ((int)(sizeof(clouds) / sizeof(clouds[0])))

/* ---- which service is asked ---- */

enum notice_cloud notice_cloud_of(const struct notice_dmi *dmi)
{
	if (strcmp(dmi->sys_vendor, "Amazon EC2") == 0 ||
		strcmp(dmi->board_vendor, "Amazon EC2") == 0) {
		return NOTICE_AWS;
	}
	if (strcmp(dmi->sys_vendor, "Google") == 0 || strcmp(dmi->board_vendor, "Google") == 0) {
		return NOTICE_GCP;
	}
	return strcmp(dmi->chassis_asset_tag, AZURE_TAG) == 0 ? NOTICE_AZURE : NOTICE_NOBODY;
}

const char *notice_cloud_name(enum notice_cloud cloud)
{
	return cloud == NOTICE_NOBODY ? "" : clouds[cloud]->name;
}

static int refuse(const char *text, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EINVAL,
		"--notice %.200s: auto, aws, gcp, azure, none, or a service that answers as one of "
		"these, such as aws+http://127.0.0.1:8080, is needed",
		text);
}

/* Reads "aws" or "aws+http://HOST[:PORT]". */
static int parse_cloud(const char *text, struct notice_source *source, struct pawl_err *err)
{
	size_t len = strcspn(text, "+");

	for (int i = NOTICE_NOBODY + 1; i < CLOUDS_N; i++) {
		if (strlen(clouds[i]->scheme) != len ||
			strncmp(text, clouds[i]->scheme, len) != 0) {
			continue;
		}
		source->cloud = (enum notice_cloud)i;
		return object_endpoint_parse(text[len] == '+' ? text + len + 1
							      : clouds[i]->endpoint,
			"--notice CLOUD+URL: URL", source->endpoint, err);
	}
	return refuse(text, err);
}

int notice_source_parse(const char *text, const struct notice_dmi *dmi,
	struct notice_source *source, struct pawl_err *err)
{
	struct notice_source found = {.cloud = NOTICE_NOBODY};
	int rv = 0;

	if (strcmp(text, "auto") == 0) {
		found.cloud = notice_cloud_of(dmi);
		if (found.cloud != NOTICE_NOBODY) {
			rv = parse_cloud(clouds[found.cloud]->scheme, &found, err);
		}
	} else if (strcmp(text, "none") != 0) {
		rv = parse_cloud(text, &found, err);
	}
	if (rv == 0) {
		*source = found;
	}
	return rv;
}

/* ---- questions and answers ---- */

void notice_watch_init(struct notice_watch *watch, const struct notice_source *source,
	const struct notice_times *times)
{
	ASSERT(source->cloud > NOTICE_NOBODY && source->cloud < CLOUDS_N);
	*watch = (struct notice_watch){.source = *source,
		.times = *times,
		.question = clouds[source->cloud]->question};
}

int64_t notice_ask(const struct notice_watch *watch, struct http_request *request)
{
	const struct notice_times *times = &watch->times;

	request_init(request, "GET", watch->source.endpoint);
	clouds[watch->source.cloud]->ask(watch, request);
	if (watch->question == NOTICE_ASK_HELD) {
		return times->hold_ns + times->answer_ns;
	}
	return watch->question == NOTICE_ASK_EVENTS && !watch->has_events ? times->first_ns
									  : times->answer_ns;
}

/* Takes a question that had no answer, or none that was understood. Returns the pause. */
static int64_t fail(struct notice_watch *watch, const struct pawl_err *why,
	struct notice_event *event)
{
	int64_t pause_ns = watch->times.again_ns;

	for (uint32_t i = 0; i < watch->failures && pause_ns < watch->times.again_max_ns; i++) {
		pause_ns *= 2;
	}
	watch->failures += watch->failures < UINT32_MAX;
	if (watch->failures >= NOTICE_FAILURES && !watch->reported) {
		watch->reported = true;
		event->kind = NOTICE_TROUBLE;
		snprintf(event->text, sizeof(event->text),
			"the metadata service of %s at %.80s gives no notice: %.160s%s",
			clouds[watch->source.cloud]->name, watch->source.endpoint, why->msg,
			watch->question == NOTICE_ASK_TOKEN
				? " (in a container, its hop limit must be 2)"
				: "");
	}
	return pause_ns < watch->times.again_max_ns ? pause_ns : watch->times.again_max_ns;
}

/* Takes the end of a round. Returns the pause. */
static int64_t end_round(struct notice_watch *watch, struct notice_event *event)
{
	watch->failures = 0;
	if (watch->reported && event->kind == NOTICE_NOTHING) {
		watch->reported = false;
		event->kind = NOTICE_WELL;
		snprintf(event->text, sizeof(event->text),
			"the metadata service of %s answers again",
			clouds[watch->source.cloud]->name);
	}
	/* GCP holds its answers; one that comes too soon must not be asked for again at once. */
	return watch->source.cloud == NOTICE_AWS ? watch->times.aws_ns : watch->times.azure_ns;
}

int64_t notice_take(struct notice_watch *watch, const struct notice_answer *answer, int64_t now_s,
	struct notice_event *event)
{
	struct pawl_err err = {0};
	int rv;

	*event = (struct notice_event){.kind = NOTICE_NOTHING};
	if (answer->rv != 0) {
		rv = pawl_err_set(&err, answer->rv, "%s", answer->why);
	} else {
		rv = clouds[watch->source.cloud]->take(watch, answer, now_s, event, &err);
	}
	if (rv < 0 && watch->question == NOTICE_ASK_REBALANCE) {
		/* Advice that cannot be had must not delay the question that matters. */
		watch->question = NOTICE_ASK_ACTION;
		rv = NOTICE_ROUND_OVER;
	}
	if (rv < 0) {
		return fail(watch, &err, event);
	}
	return rv == NOTICE_GO_ON ? 0 : end_round(watch, event);
}
