/*
 * Notices of Azure: the scheduled events. The list is that of all machines of a set or group, so an
 * event counts only if it names this machine; the machine's name is asked first. Only Preempt (of
 * spot machines) and Terminate end a machine; after a Reboot, Redeploy or Freeze it goes on, or
 * its disks do.
 */
#include "notice/notice_impl.h"

#include "base/err.h"
#include "io/http_request.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NAME_VERSION   "2021-02-01"
#define EVENTS_VERSION "2020-07-01"
#define NOTICE_S       900 /* Terminate comes up to 15 minutes before */

static void ask(const struct notice_watch *watch, struct http_request *request)
{
	bool for_name = watch->question == NOTICE_ASK_NAME;

	request_add_path(request,
		for_name ? "metadata/instance/compute/name" : "metadata/scheduledevents");
	request_add_query(request, "api-version", for_name ? NAME_VERSION : EVENTS_VERSION);
	if (for_name) {
		request_add_query(request, "format", "text");
	}
	request_add_header(request, "metadata", "true");
}

/* Returns whether a list of names has this machine's, in any case, as Azure compares them. */
static bool has_name(const json_t *names, const char *name)
{
	const json_t *one;
	size_t i;

	json_array_foreach(names, i, one)
	{
		const char *text = json_string_value(one);

		if (text != NULL && strcasecmp(text, name) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns what an event does to this machine: "Preempt", "Terminate", or NULL: nothing that counts.
 * Sets *odd if it is no event. */
static const char *judge(const struct notice_watch *watch, const json_t *event, bool *odd)
{
	static const char *const types[] = {"Preempt", "Terminate"};
	const char *type = json_string_value(json_object_get(event, "EventType"));
	const json_t *names = json_object_get(event, "Resources");

	if (type == NULL || !json_is_array(names)) {
		*odd = true;
		return NULL;
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (strcmp(type, types[i]) == 0 && has_name(names, watch->name)) {
			return types[i];
		}
	}
	return NULL;
}

/* Finds the first event that ends this machine. One that has begun has no date any more. */
static int find_event(const struct notice_watch *watch, const json_t *events, int64_t now_s,
	struct notice_event *event, struct pawl_err *err)
{
	const char *first = NULL;
	int64_t first_s = INT64_MAX;
	bool odd = false;
	const json_t *one;
	size_t i;

	json_array_foreach(events, i, one)
	{
		const char *type = judge(watch, one, &odd);
		const char *date = json_string_value(json_object_get(one, "NotBefore"));
		int64_t when_s = date != NULL ? notice_read_date(date) : 0;

		if (type != NULL && when_s < first_s) {
			first = type;
			first_s = when_s;
		}
	}
	if (first != NULL) {
		notice_set_stop(event, notice_azure.name, first, first_s, now_s, NOTICE_S);
		return 0;
	}
	return odd ? pawl_err_set(err, PAWL_EIO, "its list has something that is no event") : 0;
}

static int take_events(struct notice_watch *watch, const struct notice_answer *answer,
	int64_t now_s, struct notice_event *event, struct pawl_err *err)
{
	json_t *root = NULL;
	const json_t *events;
	int rv = notice_read_json(answer, &root, err);

	if (rv != 0) {
		return rv;
	}
	events = json_object_get(root, "Events");
	rv = json_is_array(events) ? find_event(watch, events, now_s, event, err)
				   : pawl_err_set(err, PAWL_EIO, "its answer has no Events");
	json_decref(root);
	watch->has_events = watch->has_events || rv == 0;
	return rv;
}

static int take(struct notice_watch *watch, const struct notice_answer *answer, int64_t now_s,
	struct notice_event *event, struct pawl_err *err)
{
	int rv;

	if (answer->status != 200) {
		return notice_refuse_status(answer, err);
	}
	if (watch->question == NOTICE_ASK_EVENTS) {
		rv = take_events(watch, answer, now_s, event, err);
		return rv == 0 ? NOTICE_ROUND_OVER : rv;
	}
	rv = notice_read_word(answer, watch->name, sizeof(watch->name), err);
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "asked for this machine's name");
	}
	watch->question = NOTICE_ASK_EVENTS;
	return NOTICE_GO_ON;
}

const struct notice_ops notice_azure = {
	.name = "Azure",
	.scheme = "azure",
	.endpoint = "http://169.254.169.254",
	.question = NOTICE_ASK_NAME,
	.ask = ask,
	.take = take,
};
