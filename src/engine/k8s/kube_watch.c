/*
 * Watches: see kube.h. A watch lists its collection, page by page, and then gets changes from the
 * version of that list on. It begins anew from a version where it was cut off, and lists again
 * once the server no longer has the changes since: it says so by status 410, or by status 200 and
 * an ERROR line with code 410.
 *
 * `known` has what is there, so that a list after missed changes reports only what differs: objects
 * with another version, and those that are gone.
 *
 * Bookmarks come about once a minute, so that a watch that says nothing for TIME_KUBE_SILENCE is
 * dead.
 */
#include "engine/k8s/kube_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE         500u
#define WATCH_S      300u /* a server ends a watch itself; by then it is asked to */
#define FAILED_FIRST 3u   /* failures in a row before somebody is told */
#define KEY_MAX      (2 * 256u)

/* ---- objects ---- */

/* Writes "NAMESPACE/NAME". Returns false if the object has no name. */
static bool get_key(const json_t *object, char key[KEY_MAX])
{
	const json_t *metadata = json_object_get(object, "metadata");
	const char *name = json_string_value(json_object_get(metadata, "name"));
	const char *name_space = json_string_value(json_object_get(metadata, "namespace"));

	if (name == NULL) {
		return false;
	}
	return snprintf(key, KEY_MAX, "%s/%s", name_space != NULL ? name_space : "", name) <
		(int)KEY_MAX;
}

static const char *get_version(const json_t *object)
{
	const char *version = json_string_value(
		json_object_get(json_object_get(object, "metadata"), "resourceVersion"));

	return version != NULL ? version : "";
}

/* Notes this version of an object. Returns false if there is no memory, or the object has no name;
 * *is_new: the version was not reported yet. */
static bool note(struct kube_watch *watch, const json_t *object, bool *is_new)
{
	const char *version = get_version(object);
	const char *known;
	char key[KEY_MAX];

	*is_new = false;
	if (!get_key(object, key)) {
		return false;
	}
	if (watch->listed != NULL && json_object_set_new(watch->listed, key, json_true()) != 0) {
		return false;
	}
	known = json_string_value(json_object_get(watch->known, key));
	*is_new = known == NULL || strcmp(known, version) != 0;
	return !*is_new || json_object_set_new(watch->known, key, json_string(version)) == 0;
}

/* Reports an object that is there, unless this version was reported. The object is taken: nothing
 * else of this thread may refer to it, since the loop's thread counts its references, too. */
static bool see(struct kube_watch *watch, json_t *object)
{
	bool is_new;
	bool fine = note(watch, object, &is_new);

	if (fine && is_new) {
		return kube_report(watch, KUBE_SEEN, object);
	}
	json_decref(object);
	return fine;
}

/* Reports an object that is gone, which is taken as by see. */
static bool lose(struct kube_watch *watch, json_t *object)
{
	char key[KEY_MAX];
	bool fine = get_key(object, key);

	if (fine && json_object_del(watch->known, key) == 0) {
		return kube_report(watch, KUBE_GONE, object);
	}
	json_decref(object); /* reported before, or without a name */
	return fine;
}

/* Reports what is known and not in the list. */
static bool lose_others(struct kube_watch *watch)
{
	const char *key;
	json_t *version;
	void *next;

	json_object_foreach_safe(watch->known, next, key, version)
	{
		const char *slash = strchr(key, '/');
		json_t *object;

		if (json_object_get(watch->listed, key) != NULL) {
			continue;
		}
		object = json_pack("{s:{s:s, s:s%}}", "metadata", "name", slash + 1, "namespace",
			key, (size_t)(slash - key));
		json_object_del(watch->known, key);
		if (object == NULL || !kube_report(watch, KUBE_GONE, object)) {
			return false;
		}
	}
	return true;
}

/* ---- requests ---- */

/* Appends a parameter. Returns false if it does not fit. */
static bool add(char query[REQUEST_QUERY_MAX], const char *name, const char *value)
{
	size_t n = strlen(query);
	int more = snprintf(query + n, REQUEST_QUERY_MAX - n, "%s%s=", n > 0 ? "&" : "", name);

	n += more > 0 ? (size_t)more : 0;
	return n < REQUEST_QUERY_MAX &&
		request_encode(value, true, query + n, REQUEST_QUERY_MAX - n);
}

static bool make_query(const struct kube_watch *watch, char query[REQUEST_QUERY_MAX])
{
	char number[16];
	bool fits;

	snprintf(query, REQUEST_QUERY_MAX, "%s", watch->selector);
	if (watch->lists_next) {
		snprintf(number, sizeof(number), "%u", PAGE);
		return add(query, "limit", number) &&
			(watch->more == NULL || add(query, "continue", watch->more));
	}
	snprintf(number, sizeof(number), "%u", WATCH_S);
	fits = add(query, "watch", "1") && add(query, "allowWatchBookmarks", "true");
	return fits && add(query, "resourceVersion", watch->version) &&
		add(query, "timeoutSeconds", number);
}

/* Waits before the next request, and tells whoever wants to know why. */
static void fail(struct kube_watch *watch, const struct http_call *http, const char *why)
{
	watch->state = KUBE_WATCH_WAITS;
	watch->failures++;
	watch->begin_ns = clock_mono_ns() + kube_delay(watch->kube, watch->failures, http);
	if (watch->failures == FAILED_FIRST || (http != NULL && http->status == 403)) {
		struct kube_event *event = FAULT_MEM("kube.event", calloc(1, sizeof(*event)));

		if (event != NULL) {
			event->kind = KUBE_FAILED;
			event->watch = watch;
			snprintf(event->why, sizeof(event->why), "%s", why);
			kube_post(watch->kube, event);
		}
	}
}

/* Lets the next request be a list from its beginning. */
static void list_again(struct kube_watch *watch)
{
	watch->lists_next = true;
	watch->version[0] = '\0';
	free(watch->more);
	watch->more = NULL;
	json_decref(watch->listed);
	watch->listed = NULL;
}

static bool take_line(void *user, char *line, size_t len_bytes);

/* Fits write of struct http_call. */
static bool take_bytes(void *user, const void *bytes, size_t len_bytes)
{
	struct kube_watch *watch = user;

	return json_lines_add(&watch->lines, bytes, len_bytes, take_line, watch);
}

static void begin(struct kube_watch *watch)
{
	char query[REQUEST_QUERY_MAX];
	struct pawl_err err = {.msg = "its query is too long"};
	struct kube_flight *flight = NULL;

	watch->known = watch->known != NULL ? watch->known : json_object();
	if (watch->lists_next && watch->listed == NULL) {
		watch->listed = json_object();
	}
	if (watch->known != NULL && (!watch->lists_next || watch->listed != NULL) &&
		make_query(watch, query)) {
		flight = kube_fly(watch->kube, "GET", watch->path, query, watch->refused, &err);
	}
	if (flight == NULL) {
		fail(watch, NULL, err.msg);
		return;
	}
	flight->watch = watch;
	if (!watch->lists_next) {
		flight->http.write = take_bytes;
		flight->http.user = watch;
		flight->http.stall_ns = times_ns(TIME_KUBE_SILENCE);
		json_lines_reset(&watch->lines);
		watch->expired = watch->broken = false;
	}
	if (flight->request.full || http_begin(watch->kube->http, &flight->http, &err) != 0) {
		kube_land(watch->kube, flight, true);
		fail(watch, NULL, err.msg);
		return;
	}
	watch->flight = flight;
	watch->state = watch->lists_next ? KUBE_WATCH_LISTS : KUBE_WATCH_WATCHES;
}

int64_t kube_watch_step(struct kube_watch *watch, int64_t now_ns)
{
	if (watch->flight != NULL) {
		return INT64_MAX;
	}
	if (watch->begin_ns <= now_ns) {
		begin(watch);
	}
	return watch->flight != NULL ? INT64_MAX : watch->begin_ns;
}

/* ---- answers ---- */

/* Takes a page of a list. Returns false if it makes no sense, or there is no memory. */
static bool take_page(struct kube_watch *watch, const struct http_call *http)
{
	json_t *page = json_loadb(http->text != NULL ? http->text : "", http->text_bytes, 0, NULL);
	const json_t *metadata = json_object_get(page, "metadata");
	const char *more = json_string_value(json_object_get(metadata, "continue"));
	json_t *items = json_object_get(page, "items");
	bool fine = page != NULL && (json_is_array(items) || json_is_null(items));

	for (size_t i = 0; fine && i < json_array_size(items); i++) {
		json_t *object = json_incref(json_array_get(items, i));

		json_array_set_new(items, i, json_null());
		fine = see(watch, object);
	}
	free(watch->more);
	watch->more = NULL;
	if (fine && more != NULL && more[0] != '\0') {
		watch->more = FAULT_MEM("kube.more", strdup(more));
		fine = watch->more != NULL;
	} else if (fine) {
		snprintf(watch->version, sizeof(watch->version), "%s", get_version(page));
		fine = watch->version[0] != '\0' && lose_others(watch) &&
			kube_report(watch, KUBE_LISTED, NULL);
		watch->lists_next = !fine;
		json_decref(watch->listed);
		watch->listed = NULL;
	}
	json_decref(page);
	return fine;
}

/* Handles an ERROR line: its object is a Status. */
static void take_error(struct kube_watch *watch, const json_t *status)
{
	watch->expired = json_integer_value(json_object_get(status, "code")) == 410;
	watch->broken = !watch->expired;
}

/* Fits json_line_fn. */
static bool take_line(void *user, char *line, size_t len_bytes)
{
	struct kube_watch *watch = user;
	json_t *event = json_loadb(line, len_bytes, 0, NULL);
	const char *type = json_string_value(json_object_get(event, "type"));
	json_t *object = json_incref(json_object_get(event, "object"));
	char version[sizeof(watch->version)];
	bool fine = true;

	snprintf(version, sizeof(version), "%s", get_version(object));
	json_object_del(event, "object");
	if (type == NULL || object == NULL) {
		watch->broken = true;
	} else if (strcmp(type, "ERROR") == 0) {
		take_error(watch, object);
	} else if (strcmp(type, "DELETED") == 0) {
		fine = lose(watch, object);
		object = NULL;
	} else if (strcmp(type, "BOOKMARK") != 0) { /* ADDED, MODIFIED */
		fine = see(watch, object);
		object = NULL;
	}
	watch->broken = watch->broken || !fine;
	if (!watch->broken && !watch->expired) {
		watch->failures = 0;
		if (version[0] != '\0') {
			snprintf(watch->version, sizeof(watch->version), "%s", version);
		}
	}
	json_decref(object);
	json_decref(event);
	return !watch->broken && !watch->expired;
}

/* Handles the end of a list's page. */
static void end_page(struct kube_watch *watch, const struct http_call *http, const char *why)
{
	if (http->rv == 0 && http->status == 410) { /* the next pages are gone */
		list_again(watch);
		fail(watch, http, why);
	} else if (http->rv != 0 || http->status / 100 != 2) {
		fail(watch, http, why);
	} else if (!take_page(watch, http)) {
		list_again(watch);
		fail(watch, http, "a list makes no sense");
	} else {
		watch->failures = 0;
		watch->begin_ns = 0;
	}
}

/* Handles the end of a stream of changes. */
static void end_stream(struct kube_watch *watch, const struct http_call *http, const char *why)
{
	bool fine = http->rv == 0 && http->status / 100 == 2;

	if (watch->expired || (http->rv == 0 && http->status == 410)) {
		list_again(watch);
		watch->begin_ns = clock_mono_ns() + kube_delay(watch->kube, 1, NULL);
	} else if (watch->broken) {
		list_again(watch);
		fail(watch, http, "a change makes no sense");
	} else if (fine) { /* a server ends each watch after WATCH_S */
		watch->begin_ns = clock_mono_ns() + kube_delay(watch->kube, 1, NULL);
	} else {
		fail(watch, http, why);
	}
}

void kube_watch_answered(struct kube_watch *watch)
{
	struct kube_flight *flight = watch->flight;
	const struct http_call *http = &flight->http;
	bool lists = watch->state == KUBE_WATCH_LISTS;
	char reason[KUBE_REASON_MAX];
	char why[KUBE_WHY_MAX] = "";

	ASSERT(watch->state != KUBE_WATCH_WAITS);
	watch->flight = NULL;
	watch->state = KUBE_WATCH_WAITS;
	watch->refused = http->rv == 0 && http->status == 401;
	if (http->rv != 0 || http->status / 100 != 2) {
		kube_explain(lists ? "list" : "watch", watch->path, http, reason, why);
	}
	if (lists) {
		end_page(watch, http, why);
	} else {
		end_stream(watch, http, why);
	}
	kube_land(watch->kube, flight, true);
}

void kube_watch_clear(struct kube_watch *watch)
{
	free(watch->more);
	json_decref(watch->known);
	json_decref(watch->listed);
	json_lines_deinit(&watch->lines);
	watch->more = NULL;
	watch->known = NULL;
	watch->listed = NULL;
}
