/* Bodies and dates of metadata services: see notice_impl.h. */
#include "notice/notice_impl.h"

#include "base/err.h"
#include "base/units.h"
#include "store/object/object_retry.h"

#include <stdio.h>
#include <string.h>

#define DAY_S    86400
#define YEAR_MIN 1970

/* ---- bodies ---- */

int notice_read_json(const struct notice_answer *answer, json_t **object, struct pawl_err *err)
{
	json_t *root;

	if (answer->text_bytes > NOTICE_ANSWER_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "its answer has %zu bytes: at most %u",
			answer->text_bytes, NOTICE_ANSWER_MAX);
	}
	root = answer->text != NULL
		? json_loadb(answer->text, answer->text_bytes, JSON_REJECT_DUPLICATES, NULL)
		: NULL;
	if (!json_is_object(root)) {
		json_decref(root);
		return pawl_err_set(err, PAWL_EIO, "its answer is no JSON object");
	}
	*object = root;
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

int notice_read_word(const struct notice_answer *answer, char *text, size_t size_bytes,
	struct pawl_err *err)
{
	const char *at = answer->text != NULL ? answer->text : "";
	const char *end = at + (answer->text != NULL ? answer->text_bytes : 0);

	while (at < end && is_blank(*at)) {
		at++;
	}
	while (end > at && is_blank(end[-1])) {
		end--;
	}
	if (at == end) {
		return pawl_err_set(err, PAWL_EIO, "its answer is empty");
	}
	if ((size_t)(end - at) >= size_bytes) {
		return pawl_err_set(err, PAWL_ELIMIT, "its answer has %zu bytes: at most %zu",
			(size_t)(end - at), size_bytes - 1);
	}
	for (const char *c = at; c < end; c++) {
		if (*c <= ' ' || *c > '~') {
			return pawl_err_set(err, PAWL_EIO, "its answer is not one word");
		}
	}
	snprintf(text, size_bytes, "%.*s", (int)(end - at), at);
	return 0;
}

int notice_refuse_status(const struct notice_answer *answer, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EIO, "it answers with status %d of HTTP", answer->status);
}

/* ---- dates ---- */

/* Reads a number of so many digits that a character follows; '\0': any. */
static bool read_number(const char **at, int digits, char then, int *number)
{
	*number = 0;
	for (int i = 0; i < digits; i++, (*at)++) {
		if (**at < '0' || **at > '9') {
			return false;
		}
		*number = *number * 10 + (**at - '0');
	}
	if (then == '\0') {
		return true;
	}
	return *(*at)++ == then;
}

/* Returns the days from 1970 to a date, by the Gregorian calendar. */
static int64_t count_days(int year, int month, int day)
{
	int64_t y = month <= 2 ? year - 1 : year; /* years begin in March: the leap day is last */
	int64_t m = (month + 9) % 12;

	return 365 * y + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + day - 1 - 719468;
}

/* Reads "2026-11-29T12:04:31Z", with or without a fraction of a second. */
static bool read_iso(const char *at, int64_t *when_s)
{
	int year, month, day, hour, minute, second;

	if (!read_number(&at, 4, '-', &year) || !read_number(&at, 2, '-', &month) ||
		!read_number(&at, 2, 'T', &day) || !read_number(&at, 2, ':', &hour) ||
		!read_number(&at, 2, ':', &minute) || !read_number(&at, 2, '\0', &second)) {
		return false;
	}
	if (*at == '.') {
		at += 1 + strspn(at + 1, "0123456789");
	}
	if (strcmp(at, "Z") != 0 || year < YEAR_MIN || month < 1 || month > 12 || day < 1 ||
		day > 31 || hour > 23 || minute > 59 || second > 60) {
		return false;
	}
	*when_s = count_days(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
	return true;
}

int64_t notice_read_date(const char *text)
{
	int64_t when_s = 0;

	if (!read_iso(text, &when_s)) {
		when_s = object_date_s(text);
	}
	return when_s > 0 ? when_s : 0;
}

/* ---- events ---- */

void notice_set_stop(struct notice_event *event, const char *cloud, const char *what,
	int64_t when_s, int64_t now_s, int64_t most_s)
{
	int64_t left_s = when_s > now_s ? when_s - now_s : 0;
	int64_t second = when_s % DAY_S;

	event->kind = NOTICE_STOP;
	event->left_ns = (left_s < most_s ? left_s : most_s) * NS_PER_S;
	if (left_s == 0) {
		snprintf(event->text, sizeof(event->text), "%s: %s now", cloud, what);
	} else {
		snprintf(event->text, sizeof(event->text), "%s: %s at %02d:%02d:%02dZ", cloud, what,
			(int)(second / 3600), (int)(second / 60 % 60), (int)(second % 60));
	}
}
