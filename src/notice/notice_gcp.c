/*
 * Notices of GCP: the metadata value instance/preempted, TRUE or FALSE. The first question is
 * answered at once, and gives the value's version (ETag). Each later one names that version, and is
 * held until the value is another one. Request and answer carry Metadata-Flavor: Google, so that
 * neither a program that was tricked into asking, nor another service that answers, is believed.
 */
#include "notice/notice_impl.h"

#include "base/err.h"
#include "base/units.h"
#include "io/http_request.h"

#include <stdio.h>
#include <string.h>

#define LEFT_S 28 /* GCP promises 30 s, of which some have gone by */

static void ask(const struct notice_watch *watch, struct http_request *request)
{
	char hold[24];

	request_add_path(request, "computeMetadata/v1/instance/preempted");
	request_add_header(request, "metadata-flavor", "Google");
	if (watch->question == NOTICE_ASK_HELD) {
		snprintf(hold, sizeof(hold), "%lld",
			(long long)((watch->times.hold_ns + NS_PER_S - 1) / NS_PER_S));
		if (watch->etag[0] != '\0') {
			request_add_query(request, "last_etag", watch->etag);
		}
		request_add_query(request, "timeout_sec", hold);
		request_add_query(request, "wait_for_change", "true");
	}
}

static int take(struct notice_watch *watch, const struct notice_answer *answer, int64_t now_s,
	struct notice_event *event, struct pawl_err *err)
{
	char word[8];
	int rv;

	if (answer->status != 200) {
		return notice_refuse_status(answer, err);
	}
	if (answer->flavor == NULL || strcmp(answer->flavor, "Google") != 0) {
		return pawl_err_set(err, PAWL_EIO, "its answer does not come from Google");
	}
	rv = notice_read_word(answer, word, sizeof(word), err);
	if (rv != 0) {
		return rv;
	}
	if (strcmp(word, "TRUE") == 0) {
		event->kind = NOTICE_STOP;
		event->left_ns = LEFT_S * NS_PER_S;
		snprintf(event->text, sizeof(event->text), "%s: preempted", notice_gcp.name);
	} else if (strcmp(word, "FALSE") != 0) {
		return pawl_err_set(err, PAWL_EIO, "its answer is neither TRUE nor FALSE");
	}
	watch->etag[0] = '\0';
	if (answer->etag != NULL && strlen(answer->etag) < sizeof(watch->etag)) {
		snprintf(watch->etag, sizeof(watch->etag), "%s", answer->etag);
	}
	watch->question = NOTICE_ASK_HELD;
	return NOTICE_ROUND_OVER;
}

const struct notice_ops notice_gcp = {
	.name = "GCP",
	.scheme = "gcp",
	.endpoint = "http://169.254.169.254",
	.question = NOTICE_ASK_NOW,
	.ask = ask,
	.take = take,
};
