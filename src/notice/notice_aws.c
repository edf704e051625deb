/*
 * Notices of AWS, by the metadata service of version 2.
 *
 *   PUT /latest/api/token                              a token, for six hours
 *   GET …/spot/instance-action                         404, or {"action": "terminate", "time": …}
 *   GET …/events/recommendations/rebalance             404, or {"noticeTime": …}
 *
 * An old token is refused with 401. A new one that is refused, too, is no answer: asking for the
 * next one at once would never end.
 */
#include "notice/notice_impl.h"

#include "base/err.h"
#include "io/http_request.h"

#include <stdio.h>
#include <string.h>

#define TOKEN_S  "21600" /* how long a token lives, at most */
#define NOTICE_S 120     /* AWS promises two minutes */

static void ask(const struct notice_watch *watch, struct http_request *request)
{
	static const char *const paths[] = {
		[NOTICE_ASK_TOKEN] = "latest/api/token",
		[NOTICE_ASK_ACTION] = "latest/meta-data/spot/instance-action",
		[NOTICE_ASK_REBALANCE] = "latest/meta-data/events/recommendations/rebalance",
	};

	request_add_path(request, paths[watch->question]);
	if (watch->question == NOTICE_ASK_TOKEN) {
		request->method = "PUT";
		request_add_header(request, "x-aws-ec2-metadata-token-ttl-seconds", TOKEN_S);
	} else {
		request_add_header(request, "x-aws-ec2-metadata-token", "%s", watch->token);
	}
}

static int take_token(struct notice_watch *watch, const struct notice_answer *answer,
	struct pawl_err *err)
{
	int rv = answer->status == 200
		? notice_read_word(answer, watch->token, sizeof(watch->token), err)
		: notice_refuse_status(answer, err);

	if (rv != 0) {
		return pawl_err_prefix(err, rv, "asked for a token");
	}
	watch->token_is_new = true;
	watch->question = NOTICE_ASK_ACTION;
	return NOTICE_GO_ON;
}

static int read_action(const struct notice_answer *answer, int64_t now_s,
	struct notice_event *event, struct pawl_err *err)
{
	static const char *const actions[] = {"terminate", "stop", "hibernate"};
	json_t *root = NULL;
	const char *action, *date;
	int rv = notice_read_json(answer, &root, err);

	if (rv != 0) {
		return rv;
	}
	action = json_string_value(json_object_get(root, "action"));
	date = json_string_value(json_object_get(root, "time"));
	rv = pawl_err_set(err, PAWL_EIO, "its answer has no action that Pawl knows");
	for (size_t i = 0; action != NULL && i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (strcmp(action, actions[i]) == 0) {
			notice_set_stop(event, notice_aws.name, actions[i],
				date != NULL ? notice_read_date(date) : 0, now_s, NOTICE_S);
			rv = 0;
		}
	}
	json_decref(root);
	return rv;
}

/* Each advice is reported once. */
static int read_rebalance(struct notice_watch *watch, const struct notice_answer *answer,
	struct notice_event *event, struct pawl_err *err)
{
	char advised[NOTICE_DATE_MAX];
	json_t *root = NULL;
	const char *date;
	int rv = notice_read_json(answer, &root, err);

	if (rv != 0) {
		return rv;
	}
	date = json_string_value(json_object_get(root, "noticeTime"));
	snprintf(advised, sizeof(advised), "%s", date != NULL ? date : "");
	json_decref(root);
	if (advised[0] == '\0') {
		return pawl_err_set(err, PAWL_EIO, "its answer has no noticeTime");
	}
	if (strcmp(advised, watch->advised) != 0) {
		memcpy(watch->advised, advised, sizeof(advised));
		event->kind = NOTICE_ADVICE;
		snprintf(event->text, sizeof(event->text),
			"AWS recommends to move away from this machine");
	}
	return 0;
}

static int take(struct notice_watch *watch, const struct notice_answer *answer, int64_t now_s,
	struct notice_event *event, struct pawl_err *err)
{
	bool for_action = watch->question == NOTICE_ASK_ACTION;
	int rv = 0;

	if (watch->question == NOTICE_ASK_TOKEN) {
		return take_token(watch, answer, err);
	}
	if (answer->status == 401) {
		watch->question = NOTICE_ASK_TOKEN;
		return watch->token_is_new ? notice_refuse_status(answer, err) : NOTICE_GO_ON;
	}
	if (answer->status != 200 && answer->status != 404) {
		return notice_refuse_status(answer, err);
	}
	watch->token_is_new = false;
	if (answer->status == 200) {
		rv = for_action ? read_action(answer, now_s, event, err)
				: read_rebalance(watch, answer, event, err);
	}
	if (rv != 0 || event->kind == NOTICE_STOP) {
		return rv;
	}
	watch->question = for_action ? NOTICE_ASK_REBALANCE : NOTICE_ASK_ACTION;
	return for_action ? NOTICE_GO_ON : NOTICE_ROUND_OVER;
}

const struct notice_ops notice_aws = {
	.name = "AWS",
	.scheme = "aws",
	.endpoint = "http://169.254.169.254",
	.question = NOTICE_ASK_TOKEN,
	.ask = ask,
	.take = take,
};
