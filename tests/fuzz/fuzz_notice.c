/* Fuzzes the answers of metadata services. The first byte chooses cloud and question, two more the
 * status and headers; the rest is the body. An event is fit to be printed, and within bounds. */
#include "fuzz.h"

#include "base/assert.h"
#include "base/text.h"
#include "io/http_request.h"
#include "notice/notice.h"

#include <stdio.h>
#include <string.h>

#define S     1000000000LL
#define NOW_S 1795953751LL
#define FRONT 3u /* bytes before the body */

static const char *const sources[] = {"aws", "gcp", "azure"};
static const int statuses[] = {200, 404, 401, 503};

static void check(const struct notice_watch *watch, const struct notice_event *event)
{
	struct http_request request;

	for (const char *at = event->text; *at != '\0';) {
		size_t len = text_printable(at);

		ASSERT(len > 0);
		at += len;
	}
	ASSERT(event->left_ns >= 0 && event->left_ns <= 900 * S);
	ASSERT(event->kind == NOTICE_STOP || event->left_ns == 0);
	ASSERT((event->kind == NOTICE_NOTHING) == (event->text[0] == '\0'));
	ASSERT(notice_ask(watch, &request) > 0);
	ASSERT(!request.full);
	ASSERT(strcmp(request.method, "GET") == 0 || watch->question == NOTICE_ASK_TOKEN);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	static const struct notice_times times = {S, S, 60 * S, S, S, S, 60 * S};
	static const struct notice_dmi dmi;
	struct notice_source source;
	struct notice_watch watch;
	struct notice_answer answer = {0};
	struct notice_event event;

	if (len_bytes < FRONT) {
		return 0;
	}
	ASSERT(notice_source_parse(sources[bytes[0] % 3], &dmi, &source, NULL) == 0);
	notice_watch_init(&watch, &source, &times);
	watch.question = (enum notice_question)((unsigned)watch.question + bytes[0] / 3 % 2);
	snprintf(watch.name, sizeof(watch.name), "spot_3");
	snprintf(watch.token, sizeof(watch.token), "token");
	answer.status = statuses[bytes[1] % 4];
	answer.flavor = bytes[2] & 1 ? "Google" : NULL;
	answer.etag = bytes[2] & 2 ? "3b7c" : NULL;
	answer.text = (const char *)bytes + FRONT;
	answer.text_bytes = len_bytes - FRONT;
	for (int i = 0; i < 3; i++) { /* the questions that follow get this body, too */
		ASSERT(notice_take(&watch, &answer, NOW_S, &event) >= 0);
		check(&watch, &event);
	}
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const struct {
		uint8_t front[FRONT];
		const char *body;
	} seeds[] = {
		{{3, 0, 0}, "{\"action\": \"terminate\", \"time\": \"2026-11-29T12:04:31Z\"}"},
		{{3, 1, 0}, "{\"noticeTime\": \"2026-11-29T11:00:00Z\"}"},
		{{0, 0, 0}, "AQAEAKy7token=="},
		{{1, 0, 3}, "TRUE"},
		{{4, 0, 3}, "FALSE\n"},
		{{2, 0, 0}, "spot_3"},
		{{5, 0, 0},
			"{\"DocumentIncarnation\":2,\"Events\":[{\"EventId\":\"C7\",\"EventType\":"
			"\"Preempt\",\"Resources\":[\"spot_1\",\"spot_3\"],\"NotBefore\":"
			"\"Sun, 29 Nov 2026 12:03:01 GMT\"}]}"},
	};

	if (i >= sizeof(seeds) / sizeof(seeds[0])) {
		return 0;
	}
	memcpy(buf, seeds[i].front, FRONT);
	memcpy(buf + FRONT, seeds[i].body, strlen(seeds[i].body));
	return FRONT + strlen(seeds[i].body);
}
