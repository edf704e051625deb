/* What metadata services are asked and what their answers mean: the documented answers of AWS, GCP
 * and Azure, and what else may come. */
#include "io/http_request.h"
#include "notice/notice.h"
#include "pawl/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define S          1000000000LL
#define NOW_S      1795953751LL /* 2026-11-29T12:02:31Z */
#define LEN(array) (sizeof(array) / sizeof((array)[0]))

static const struct notice_times times = {.aws_ns = 5 * S,
	.azure_ns = S,
	.hold_ns = 60 * S,
	.answer_ns = 4 * S,
	.first_ns = 150 * S,
	.again_ns = S,
	.again_max_ns = 60 * S};
static struct notice_watch watch;
static struct notice_event event;
static struct http_request request;
static struct pawl_err err;

static void begin(const char *source)
{
	static const struct notice_dmi dmi;
	struct notice_source found;

	assert_int_equal(notice_source_parse(source, &dmi, &found, &err), 0);
	notice_watch_init(&watch, &found, &times);
}

/* The next question must be this one: "GET http://HOST/PATH?QUERY". */
static int64_t asks(const char *wanted)
{
	char text[16384];
	int64_t timeout_ns = notice_ask(&watch, &request);

	snprintf(text, sizeof(text), "%s %s://%s%s%s%s", request.method,
		request.tls ? "https" : "http", request.host, request.path,
		request.query[0] != '\0' ? "?" : "", request.query);
	assert_string_equal(text, wanted);
	assert_false(request.full);
	return timeout_ns;
}

static int64_t take(struct notice_answer answer)
{
	answer.text_bytes = answer.text != NULL && answer.text_bytes == 0 ? strlen(answer.text)
									  : answer.text_bytes;
	return notice_take(&watch, &answer, NOW_S, &event);
}

static int64_t answers(int status, const char *text)
{
	return take((struct notice_answer){.status = status, .text = text});
}

static int64_t silent(void)
{
	return take((struct notice_answer){.rv = PAWL_ETIMEDOUT, .why = "it does not answer"});
}

static void assert_stop(int64_t left_s, const char *text)
{
	assert_int_equal(event.kind, NOTICE_STOP);
	assert_string_equal(event.text, text);
	assert_int_equal(event.left_ns, left_s * S);
}

/* ---- which service ---- */

static void firmware_names_the_cloud(void **state)
{
	static const struct {
		struct notice_dmi dmi;
		enum notice_cloud cloud;
	} machines[] = {
		{{"Amazon EC2", "Amazon EC2", "Amazon EC2"}, NOTICE_AWS},
		{{"Xen", "Amazon EC2", ""}, NOTICE_AWS},
		{{"Google", "Google", ""}, NOTICE_GCP},
		{{"Microsoft Corporation", "Microsoft Corporation",
			 "7783-7084-3265-9085-8269-3286-77"},
			NOTICE_AZURE},
		{{"Microsoft Corporation", "Microsoft Corporation", ""}, NOTICE_NOBODY},
		{{"Amazon EC2 and more", "", ""}, NOTICE_NOBODY},
		{{"QEMU", "", ""}, NOTICE_NOBODY},
		{{"", "", ""}, NOTICE_NOBODY},
	};
	struct notice_source source;

	for (size_t i = 0; i < LEN(machines); i++) {
		assert_int_equal(notice_cloud_of(&machines[i].dmi), machines[i].cloud);
		assert_int_equal(notice_source_parse("auto", &machines[i].dmi, &source, &err), 0);
		assert_int_equal(source.cloud, machines[i].cloud);
		assert_string_equal(source.endpoint,
			source.cloud == NOTICE_NOBODY ? "" : "http://169.254.169.254");
		assert_int_equal(notice_source_parse("none", &machines[i].dmi, &source, &err), 0);
		assert_int_equal(source.cloud, NOTICE_NOBODY);
	}
}

static void sources_are_read(void **state)
{
	static const char *const wrong[] = {"", "AWS", "amazon", "aws+", "aws+127.0.0.1:80",
		"aws+ftp://x", "aws+http://", "aws+http://x/path", "aws+http://x?y",
		"aws+http://u:p@x", "http://127.0.0.1", "none+http://x", "auto+http://x", "aws ",
		"+http://x", "gcpx"};
	static const struct notice_dmi dmi;
	struct notice_source source = {.cloud = NOTICE_GCP};

	for (size_t i = 0; i < LEN(wrong); i++) {
		err.msg[0] = '\0';
		assert_int_equal(notice_source_parse(wrong[i], &dmi, &source, &err), PAWL_EINVAL);
		assert_non_null(strstr(err.msg, "--notice"));
		assert_int_equal(source.cloud, NOTICE_GCP); /* set only on success */
	}
	assert_int_equal(notice_source_parse("azure+http://127.0.0.1:8080/", &dmi, &source, &err),
		0);
	assert_int_equal(source.cloud, NOTICE_AZURE);
	assert_string_equal(source.endpoint, "http://127.0.0.1:8080");
}

/* ---- AWS ---- */

#define AWS_TOKEN     "PUT http://169.254.169.254/latest/api/token"
#define AWS_ACTION    "GET http://169.254.169.254/latest/meta-data/spot/instance-action"
#define AWS_REBALANCE "GET http://169.254.169.254/latest/meta-data/events/recommendations/rebalance"

static void begin_aws(void)
{
	begin("aws");
	asks(AWS_TOKEN);
	assert_int_equal(answers(200, "TOKEN=="), 0);
	assert_int_equal(asks(AWS_ACTION), times.answer_ns);
}

static void aws_is_asked_with_a_token(void **state)
{
	begin("aws");
	assert_int_equal(asks(AWS_TOKEN), times.answer_ns);
	assert_string_equal(request_header(&request, "x-aws-ec2-metadata-token-ttl-seconds"),
		"21600");
	assert_int_equal(answers(200, "TOKEN==\n"), 0);
	for (int round = 0; round < 3; round++) {
		asks(AWS_ACTION);
		assert_string_equal(request_header(&request, "x-aws-ec2-metadata-token"),
			"TOKEN==");
		assert_int_equal(answers(404, "<html>not found</html>"), 0);
		asks(AWS_REBALANCE);
		assert_int_equal(answers(404, ""), times.aws_ns);
		assert_int_equal(event.kind, NOTICE_NOTHING);
	}
	/* Hours later the token is too old. */
	asks(AWS_ACTION);
	assert_int_equal(answers(401, ""), 0);
	asks(AWS_TOKEN);
	assert_int_equal(answers(200, "other"), 0);
	asks(AWS_ACTION);
	assert_string_equal(request_header(&request, "x-aws-ec2-metadata-token"), "other");
	assert_int_equal(watch.failures, 0);
}

static void aws_refuses_a_new_token(void **state)
{
	begin_aws();
	for (int i = 0; i < 3; i++) { /* asking for one token after the other would never end */
		asks(AWS_ACTION);
		assert_true(answers(401, "") >= times.again_ns);
		asks(AWS_TOKEN);
		assert_int_equal(answers(200, "TOKEN"), 0);
	}
	assert_int_equal(watch.failures, 3);
}

static void aws_terminates_stops_and_hibernates(void **state)
{
	static const struct {
		const char *text;
		int64_t left_s;
		const char *shown;
	} notices[] = {
		{"{\"action\": \"terminate\", \"time\": \"2026-11-29T12:04:31Z\"}", 120,
			"AWS: terminate at 12:04:31Z"},
		{"{\"action\": \"stop\", \"time\": \"2026-11-29T12:03:01.250Z\"}", 30,
			"AWS: stop at 12:03:01Z"},
		{"{\"action\": \"hibernate\", \"time\": \"2026-11-29T12:02:31Z\"}", 0,
			"AWS: hibernate now"},
		{"{\"action\": \"terminate\", \"time\": \"2017-09-18T08:22:00Z\"}", 0,
			"AWS: terminate now"},
		{"{\"action\": \"terminate\", \"time\": \"1969-12-31T23:59:59Z\"}", 0,
			"AWS: terminate now"},
		{"{\"action\": \"terminate\", \"time\": \"0000-01-01T00:00:00Z\"}", 0,
			"AWS: terminate now"},
		{"{\"action\": \"terminate\", \"time\": \"soon\"}", 0, "AWS: terminate now"},
		{"{\"action\": \"terminate\", \"time\": 7}", 0, "AWS: terminate now"},
		{"{\"action\": \"terminate\"}", 0, "AWS: terminate now"},
		/* No clock is trusted further than AWS's promise of two minutes. */
		{"{\"action\": \"terminate\", \"time\": \"2262-04-11T23:47:17Z\"}", 120,
			"AWS: terminate at 23:47:17Z"},
		{"{\"action\": \"terminate\", \"time\": \"9999-12-31T23:59:59Z\"}", 120,
			"AWS: terminate at 23:59:59Z"},
		{"{\"time\":\"2026-11-29T12:04:31Z\",\"more\":[1],\"action\":\"terminate\"}", 120,
			"AWS: terminate at 12:04:31Z"},
	};

	for (size_t i = 0; i < LEN(notices); i++) {
		begin_aws();
		answers(200, notices[i].text);
		assert_stop(notices[i].left_s, notices[i].shown);
	}
}

static void aws_answers_that_mean_nothing(void **state)
{
	static const char *const odd[] = {"", "{", "[]", "null", "7", "\"terminate\"", "{}",
		"{\"action\": null}", "{\"action\": [\"terminate\"]}", "{\"action\": \"dance\"}",
		"{\"action\": \"Terminate\"}", "{\"action\": \"terminate\\u0000\"}",
		"{\"action\": \"terminate\", \"action\": \"stop\"}",
		"{\"action\": \"terminate\"} {}", "<html>Welcome to the hotel</html>",
		"{\"action\": \"terminate\", \"time\": \"2026-11-29T12:04:31Z\""};

	for (size_t i = 0; i < LEN(odd); i++) {
		begin_aws();
		assert_int_equal(answers(200, odd[i]), times.again_ns);
		assert_int_equal(event.kind, NOTICE_NOTHING);
		asks(AWS_ACTION);
	}
	begin_aws();
	assert_int_equal(answers(500, "{\"action\": \"terminate\"}"), times.again_ns);
	assert_int_equal(event.kind, NOTICE_NOTHING);
}

static void aws_tokens_that_are_none(void **state)
{
	char large[NOTICE_TOKEN_MAX + 1];

	memset(large, 'x', sizeof(large));
	large[NOTICE_TOKEN_MAX] = '\0';
	begin("aws");
	assert_int_not_equal(answers(200, large), 0);
	assert_int_not_equal(answers(200, ""), 0);
	assert_int_not_equal(answers(200, "a b"), 0);
	assert_int_not_equal(answers(200, "a\r\nx-other: b"), 0); /* a token becomes a header */
	assert_int_not_equal(answers(200, "a\x1b"), 0);
	assert_int_not_equal(answers(403, "token"), 0);
	asks(AWS_TOKEN);
	large[NOTICE_TOKEN_MAX - 1] = '\0';
	assert_int_equal(answers(200, large), 0);
	asks(AWS_ACTION);
}

static void aws_advice_is_reported_once(void **state)
{
	static const char first[] = "{\"noticeTime\": \"2026-11-29T11:00:00Z\"}";

	begin_aws();
	for (int i = 0; i < 3; i++) {
		answers(404, "");
		asks(AWS_REBALANCE);
		assert_int_equal(answers(200, first), times.aws_ns);
		assert_int_equal(event.kind, i == 0 ? NOTICE_ADVICE : NOTICE_NOTHING);
	}
	answers(404, "");
	answers(200, "{\"noticeTime\": \"2026-11-29T12:00:00Z\"}");
	assert_int_equal(event.kind, NOTICE_ADVICE);
	/* The notice itself may follow. */
	answers(200, "{\"action\": \"terminate\", \"time\": \"2026-11-29T12:03:31Z\"}");
	assert_stop(60, "AWS: terminate at 12:03:31Z");
}

/* Advice that cannot be had never keeps AWS from being asked what it will do. */
static void aws_advice_may_fail(void **state)
{
	static const char *const odd[] = {"", "{}", "{\"noticeTime\": 7}", "{\"noticeTime\": \"\"}",
		"[", "{\"noticeTime\": null}"};

	begin_aws();
	for (size_t i = 0; i < LEN(odd); i++) {
		answers(404, "");
		assert_int_equal(answers(200, odd[i]), times.aws_ns);
		assert_int_equal(event.kind, NOTICE_NOTHING);
		asks(AWS_ACTION);
	}
	answers(404, "");
	assert_int_equal(answers(503, ""), times.aws_ns);
	asks(AWS_ACTION);
	answers(404, "");
	assert_int_equal(silent(), times.aws_ns);
	asks(AWS_ACTION);
	assert_int_equal(watch.failures, 0);
}

/* ---- GCP ---- */

#define GCP_NOW "GET http://169.254.169.254/computeMetadata/v1/instance/preempted"

static int64_t google(const char *text, const char *etag)
{
	return take((struct notice_answer){.status = 200,
		.text = text,
		.etag = etag,
		.flavor = "Google"});
}

static void gcp_holds_the_question(void **state)
{
	begin("gcp");
	assert_int_equal(asks(GCP_NOW), times.answer_ns);
	assert_string_equal(request_header(&request, "metadata-flavor"), "Google");
	assert_int_equal(google("FALSE", "3b7c a"), times.azure_ns);
	assert_int_equal(asks(GCP_NOW "?last_etag=3b7c%20a&timeout_sec=60&wait_for_change=true"),
		64 * S);
	assert_string_equal(request_header(&request, "metadata-flavor"), "Google");
	assert_int_equal(google("FALSE\n", NULL), times.azure_ns);
	asks(GCP_NOW "?timeout_sec=60&wait_for_change=true");
	assert_int_equal(event.kind, NOTICE_NOTHING);
	google("TRUE", "5");
	assert_stop(28, "GCP: preempted");
}

static void gcp_may_be_preempted_at_the_start(void **state)
{
	begin("gcp");
	google("TRUE\n", "5");
	assert_stop(28, "GCP: preempted");
}

static void gcp_answers_that_mean_nothing(void **state)
{
	static const char *const odd[] = {"", "true", "TRUE FALSE", "TRUEFALSE", "1", "{}",
		"TRUE\x01", "a text that is longer than any of both"};

	for (size_t i = 0; i < LEN(odd); i++) {
		begin("gcp");
		assert_int_equal(google(odd[i], "1"), times.again_ns);
		assert_int_equal(event.kind, NOTICE_NOTHING);
	}
	begin("gcp");
	answers(200, "TRUE"); /* another service, without the header */
	assert_int_equal(event.kind, NOTICE_NOTHING);
	take((struct notice_answer){.status = 200, .text = "TRUE", .flavor = "Gaggle"});
	assert_int_equal(event.kind, NOTICE_NOTHING);
	take((struct notice_answer){.status = 503, .text = "TRUE", .flavor = "Google"});
	assert_int_equal(event.kind, NOTICE_TROUBLE);
	assert_int_equal(watch.failures, 3);
}

static void gcp_etags_may_be_long(void **state)
{
	char large[NOTICE_ETAG_MAX + 1];

	memset(large, 'e', sizeof(large));
	large[NOTICE_ETAG_MAX] = '\0';
	begin("gcp");
	google("FALSE", large);
	asks(GCP_NOW "?timeout_sec=60&wait_for_change=true");
}

/* ---- Azure ---- */

#define AZURE_NAME                                                                                 \
	"GET http://169.254.169.254/metadata/instance/compute/name"                                \
	"?api-version=2021-02-01&format=text"
#define AZURE_EVENTS "GET http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"

#define EVENT(type, names, date)                                                                   \
	"{\"EventId\":\"C7061BAC-AFDC-4513-B24B-AA5F13A16123\",\"EventType\":\"" type              \
	"\",\"ResourceType\":\"VirtualMachine\",\"Resources\":[" names                             \
	"],\"EventStatus\":\"Scheduled\",\"NotBefore\":\"" date                                    \
	"\",\"Description\":\"\",\"EventSource\":\"Platform\",\"DurationInSeconds\":-1}"
#define EVENTS(list) "{\"DocumentIncarnation\":2,\"Events\":[" list "]}"
#define IN_30_S      "Sun, 29 Nov 2026 12:03:01 GMT"

static void begin_azure(void)
{
	begin("azure");
	assert_int_equal(asks(AZURE_NAME), times.answer_ns);
	assert_string_equal(request_header(&request, "metadata"), "true");
	assert_int_equal(answers(200, "spot_3"), 0);
	assert_int_equal(asks(AZURE_EVENTS), times.first_ns); /* turns the events on */
	assert_string_equal(request_header(&request, "metadata"), "true");
}

static void azure_preempts_this_machine(void **state)
{
	static const struct {
		const char *text;
		int64_t left_s;
		const char *shown;
	} notices[] = {
		{EVENTS(EVENT("Preempt", "\"spot_3\"", IN_30_S)), 30,
			"Azure: Preempt at 12:03:01Z"},
		{EVENTS(EVENT("Preempt", "\"spot_1\",\"SPOT_3\",\"spot_9\"", IN_30_S)), 30,
			"Azure: Preempt at 12:03:01Z"},
		{EVENTS(EVENT("Terminate", "\"spot_3\"", "2026-11-29T12:07:31Z")), 300,
			"Azure: Terminate at 12:07:31Z"},
		{EVENTS(EVENT("Preempt", "\"spot_3\"", "")), 0, "Azure: Preempt now"},
		{EVENTS(EVENT("Preempt", "\"spot_3\"", "Mon, 19 Sep 2016 18:29:47 GMT")), 0,
			"Azure: Preempt now"},
		{EVENTS(EVENT("Preempt", "\"spot_3\"", "after lunch")), 0, "Azure: Preempt now"},
		{"{\"Events\":[{\"EventType\":\"Preempt\",\"Resources\":[\"spot_3\"]}]}", 0,
			"Azure: Preempt now"},
		{"{\"Events\":[{\"EventType\":\"Preempt\",\"Resources\":[\"spot_3\"],"
		 "\"NotBefore\":null}]}",
			0, "Azure: Preempt now"},
		{EVENTS(EVENT("Preempt", "\"spot_3\"", "Fri, 11 Apr 2262 23:47:17 GMT")), 900,
			"Azure: Preempt at 23:47:17Z"},
		/* The first of several counts, wherever it stands. */
		{EVENTS(EVENT("Terminate", "\"spot_3\"", "Sun, 29 Nov 2026 12:10:00 GMT") "," EVENT(
			 "Preempt", "\"spot_4\"", "") "," EVENT("Preempt", "\"spot_3\"",
			 IN_30_S) "," EVENT("Reboot", "\"spot_3\"", "")),
			30, "Azure: Preempt at 12:03:01Z"},
		/* What is no event beside it does not hide it. */
		{EVENTS("7,{},null," EVENT("Preempt", "7,\"spot_3\"", IN_30_S)), 30,
			"Azure: Preempt at 12:03:01Z"},
	};

	for (size_t i = 0; i < LEN(notices); i++) {
		begin_azure();
		answers(200, notices[i].text);
		assert_stop(notices[i].left_s, notices[i].shown);
	}
}

static void azure_does_other_things(void **state)
{
	static const char *const others[] = {
		EVENTS(""),
		EVENTS(EVENT("Preempt", "\"spot_4\"", IN_30_S)),
		EVENTS(EVENT("Preempt", "\"spot_33\",\"spot_\",\"\"", IN_30_S)),
		EVENTS(EVENT("Preempt", "", IN_30_S)),
		EVENTS(EVENT("Reboot", "\"spot_3\"", IN_30_S)),
		EVENTS(EVENT("Redeploy", "\"spot_3\"", IN_30_S)),
		EVENTS(EVENT("Freeze", "\"spot_3\"", IN_30_S)),
		EVENTS(EVENT("preempt", "\"spot_3\"", IN_30_S)),
	};

	begin_azure();
	for (size_t i = 0; i < LEN(others); i++) {
		assert_int_equal(answers(200, others[i]), times.azure_ns);
		assert_int_equal(event.kind, NOTICE_NOTHING);
		assert_int_equal(watch.failures, 0);
		/* An acknowledgement would be a POST. */
		assert_int_equal(asks(AZURE_EVENTS), times.answer_ns);
	}
}

static void azure_answers_that_mean_nothing(void **state)
{
	static const char *const odd[] = {"", "{}", "[]", "{\"Events\":{}}", "{\"Events\":null}",
		EVENTS("7"), EVENTS("{\"EventType\":7,\"Resources\":[]}"),
		EVENTS("{\"EventType\":\"Preempt\",\"Resources\":\"spot_3\"}"),
		EVENTS(EVENT("Preempt", "\"spot_3\"", IN_30_S)) "x", "<html></html>"};

	for (size_t i = 0; i < LEN(odd); i++) {
		begin_azure();
		assert_int_equal(answers(200, odd[i]), times.again_ns);
		assert_int_equal(event.kind, NOTICE_NOTHING);
		assert_int_equal(asks(AZURE_EVENTS), times.first_ns);
	}
	begin("azure");
	assert_int_not_equal(answers(200, ""), 0);
	assert_int_not_equal(answers(200, "two words"), 0);
	assert_int_not_equal(answers(404, "spot_3"), 0);
	asks(AZURE_NAME);
}

/* ---- any of them ---- */

static void a_body_is_bounded(void **state)
{
	static const char notice[] = "{\"action\": \"terminate\"}";
	static char body[1u << 20];

	memset(body, ' ', sizeof(body));
	memcpy(body, notice, sizeof(notice) - 1);
	begin_aws();
	take((struct notice_answer){.status = 200, .text = body, .text_bytes = sizeof(body)});
	assert_int_equal(event.kind, NOTICE_NOTHING);
	take((struct notice_answer){.status = 200, .text = body, .text_bytes = NOTICE_ANSWER_MAX});
	assert_int_equal(event.kind, NOTICE_STOP);
	memset(body, '[', sizeof(body));
	begin_azure();
	take((struct notice_answer){.status = 200, .text = body, .text_bytes = NOTICE_ANSWER_MAX});
	assert_int_equal(event.kind, NOTICE_NOTHING);
}

static void silence_is_reported_once_with_longer_pauses(void **state)
{
	static const char *const sources[] = {"aws", "gcp", "azure"};
	static const int64_t pauses_s[] = {1, 2, 4, 8, 16, 32, 60, 60, 60};

	for (size_t s = 0; s < LEN(sources); s++) {
		begin(sources[s]);
		for (size_t i = 0; i < LEN(pauses_s); i++) {
			assert_int_equal(silent(), pauses_s[i] * S);
			assert_int_equal(event.kind,
				i + 1 == NOTICE_FAILURES ? NOTICE_TROUBLE : NOTICE_NOTHING);
			assert_true(i + 1 != NOTICE_FAILURES ||
				strstr(event.text, "it does not answer") != NULL);
		}
	}
	for (int i = 0; i < 100; i++) { /* no shift, no overflow */
		assert_int_equal(silent(), 60 * S);
	}
	answers(200, "spot_3");
	assert_int_equal(event.kind, NOTICE_NOTHING);
	answers(200, EVENTS(""));
	assert_int_equal(event.kind, NOTICE_WELL);
	answers(200, EVENTS(""));
	assert_int_equal(event.kind, NOTICE_NOTHING);
	assert_int_equal(silent(), S);
}

/* A notice that comes after trouble is a notice. */
static void a_notice_ends_trouble(void **state)
{
	begin_aws();
	for (int i = 0; i < 5; i++) {
		silent();
	}
	answers(200, "{\"action\": \"stop\", \"time\": \"2026-11-29T12:03:01Z\"}");
	assert_stop(30, "AWS: stop at 12:03:01Z");
}

static void dates_follow_the_calendar(void **state)
{
	static const struct {
		const char *date;
		int64_t left_s; /* from 2024-02-28T23:59:00Z */
	} dates[] = {{"2024-02-28T23:59:59Z", 59}, {"2024-02-29T00:00:00Z", 60},
		{"2024-02-29T00:01:00Z", 120}, {"Thu, 29 Feb 2024 00:00:30 GMT", 90},
		{"2024-02-29T24:00:00Z", 0}, {"2024-13-01T00:00:00Z", 0},
		{"2024-02-29T00:00:00", 0}, {"2024-02-29T00:00:00+01:00", 0},
		{"2024-02-29 00:00:00Z", 0}, {"24-02-29T00:00:00Z", 0}, {"", 0},
		{"2024-02-29T00:00:00.Z", 60}, {"2024-02-29T00:00:00.5", 0}};
	char text[128];

	for (size_t i = 0; i < LEN(dates); i++) {
		const struct notice_answer answer = {.status = 200,
			.text = text,
			.text_bytes = (size_t)snprintf(text, sizeof(text),
				"{\"action\":\"terminate\",\"time\":\"%s\"}", dates[i].date)};

		begin_aws();
		notice_take(&watch, &answer, 1709164740, &event);
		assert_int_equal(event.kind, NOTICE_STOP);
		assert_int_equal(event.left_ns, dates[i].left_s * S);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(firmware_names_the_cloud),
		cmocka_unit_test(sources_are_read),
		cmocka_unit_test(aws_is_asked_with_a_token),
		cmocka_unit_test(aws_refuses_a_new_token),
		cmocka_unit_test(aws_terminates_stops_and_hibernates),
		cmocka_unit_test(aws_answers_that_mean_nothing),
		cmocka_unit_test(aws_tokens_that_are_none),
		cmocka_unit_test(aws_advice_is_reported_once),
		cmocka_unit_test(aws_advice_may_fail),
		cmocka_unit_test(gcp_holds_the_question),
		cmocka_unit_test(gcp_may_be_preempted_at_the_start),
		cmocka_unit_test(gcp_answers_that_mean_nothing),
		cmocka_unit_test(gcp_etags_may_be_long),
		cmocka_unit_test(azure_preempts_this_machine),
		cmocka_unit_test(azure_does_other_things),
		cmocka_unit_test(azure_answers_that_mean_nothing),
		cmocka_unit_test(a_body_is_bounded),
		cmocka_unit_test(silence_is_reported_once_with_longer_pauses),
		cmocka_unit_test(a_notice_ends_trouble),
		cmocka_unit_test(dates_follow_the_calendar),
	};

	return cmocka_run_group_tests_name("notice", tests, NULL, NULL);
}
