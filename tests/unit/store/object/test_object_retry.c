/* What answers of object stores mean, dates of HTTP, and the window of an endpoint against
 * simulated servers: one that is down for a minute, and one that is too small. */
#include "base/rng.h"
#include "pawl/err.h"
#include "seed.h"
#include "store/object/object_retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define MS  1000000LL
#define SEC 1000000000LL

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* ---- verdicts ---- */

#define NOW_S 1800000000

struct judged {
	int status;                /* HTTP's */
	const char *code;          /* the service's name of the error */
	int64_t ahead_s;           /* how far the Date is ahead of the local time */
	enum object_verdict wants; /* the right verdict */
};

static const struct judged judged[] = {
	{200, "", 0, VERDICT_OK},
	{204, "", 0, VERDICT_OK},
	{206, "", 0, VERDICT_OK},
	{200, "", 9000, VERDICT_OK},
	{200, "InternalError", 0, VERDICT_AGAIN},
	{200, "SlowDown", 0, VERDICT_SLOWER},
	{200, "AccessDenied", 0, VERDICT_FAIL},
	{500, "", 0, VERDICT_AGAIN},
	{500, "InternalError", 0, VERDICT_AGAIN},
	{500, "OperationTimedOut", 0, VERDICT_AGAIN},
	{500, "Unheard", 0, VERDICT_AGAIN},
	{502, "", 0, VERDICT_AGAIN},
	{504, "", 0, VERDICT_AGAIN},
	{408, "", 0, VERDICT_AGAIN},
	{400, "RequestTimeout", 0, VERDICT_AGAIN},
	{400, "BadDigest", 0, VERDICT_AGAIN},
	{400, "InvalidDigest", 0, VERDICT_AGAIN},
	{400, "XAmzContentSHA256Mismatch", 0, VERDICT_AGAIN},
	{400, "Crc64Mismatch", 0, VERDICT_AGAIN},
	{400, "Md5Mismatch", 0, VERDICT_AGAIN},
	{409, "OperationAborted", 0, VERDICT_AGAIN},
	{409, "ConditionalRequestConflict", 0, VERDICT_AGAIN},
	{503, "", 0, VERDICT_SLOWER},
	{503, "SlowDown", 0, VERDICT_SLOWER},
	{503, "ServiceUnavailable", 0, VERDICT_SLOWER},
	{503, "ServerBusy", 0, VERDICT_SLOWER},
	{503, "Unheard", 0, VERDICT_SLOWER},
	{429, "", 0, VERDICT_SLOWER},
	{429, "TooManyRequests", 0, VERDICT_SLOWER},
	{400, "ThrottlingException", 0, VERDICT_SLOWER},
	{400, "Throttling", 0, VERDICT_SLOWER},
	{400, "ExpiredToken", 0, VERDICT_KEY},
	{400, "ExpiredToken", 9000, VERDICT_KEY},
	{400, "ExpiredTokenException", 0, VERDICT_KEY},
	{400, "TokenRefreshRequired", 0, VERDICT_KEY},
	{400, "InvalidToken", 0, VERDICT_KEY},
	{400, "", 0, VERDICT_KEY},
	{401, "", 0, VERDICT_KEY},
	{401, "InvalidAuthenticationInfo", 0, VERDICT_KEY},
	{403, "", 0, VERDICT_KEY},
	{403, "AuthenticationFailed", 0, VERDICT_KEY},
	{403, "AuthenticationFailed", 300, VERDICT_KEY},
	{403, "AuthenticationFailed", -300, VERDICT_KEY},
	{403, "InvalidAccessKeyId", 0, VERDICT_KEY},
	{403, "SignatureDoesNotMatch", 0, VERDICT_KEY},
	{403, "AuthenticationFailed", 301, VERDICT_CLOCK},
	{403, "AuthenticationFailed", -301, VERDICT_CLOCK},
	{403, "RequestTimeTooSkewed", 0, VERDICT_CLOCK},
	{403, "", 3600, VERDICT_CLOCK},
	{400, "", 3600, VERDICT_CLOCK},
	{400, "Unheard", -3600, VERDICT_CLOCK},
	{500, "FeatureNotSupported", 0, VERDICT_PLAIN},
	{301, "", 0, VERDICT_REGION},
	{301, "PermanentRedirect", 0, VERDICT_REGION},
	{307, "", 0, VERDICT_REGION},
	{307, "TemporaryRedirect", 0, VERDICT_REGION},
	{400, "AuthorizationHeaderMalformed", 0, VERDICT_REGION},
	{403, "AccessDenied", 0, VERDICT_FAIL},
	{403, "AccessDenied", 3600, VERDICT_FAIL},
	{403, "InvalidObjectState", 0, VERDICT_FAIL},
	{400, "InvalidRequest", 0, VERDICT_FAIL},
	{404, "", 0, VERDICT_FAIL},
	{404, "NoSuchUpload", 0, VERDICT_FAIL},
	{404, "NoSuchBucket", 0, VERDICT_FAIL},
	{409, "BlobAlreadyExists", 0, VERDICT_FAIL},
	{412, "PreconditionFailed", 0, VERDICT_FAIL},
	{412, "", 3600, VERDICT_FAIL},
	{416, "InvalidRange", 0, VERDICT_FAIL},
	{304, "", 0, VERDICT_FAIL},
	{501, "NotImplemented", 0, VERDICT_FAIL},
	{0, "", 0, VERDICT_FAIL},
};

static void each_answer_has_its_meaning(void **state)
{
	for (size_t i = 0; i < LEN(judged); i++) {
		struct object_answer answer = {.status = judged[i].status,
			.code = judged[i].code,
			.date_s = NOW_S + judged[i].ahead_s,
			.retry_after_s = -1};
		enum object_verdict verdict = object_judge(&answer, NOW_S);

		if (verdict != judged[i].wants) {
			fail_msg("%d \"%s\", %lld s ahead: %d instead of %d", judged[i].status,
				judged[i].code, (long long)judged[i].ahead_s, verdict,
				judged[i].wants);
		}
	}
}

/* Without a Date nobody knows what the server's clock shows. */
static void clocks_without_a_date_agree(void **state)
{
	struct object_answer answer = {.status = 403, .code = "AuthenticationFailed"};

	assert_int_equal(object_judge(&answer, NOW_S), VERDICT_KEY);
}

static void lost_requests_are_tried_again(void **state)
{
	static const int again[] = {PAWL_EIO, PAWL_ETIMEDOUT, PAWL_EPEER, PAWL_ECORRUPT};
	static const int fail[] = {PAWL_ENOTSUP, PAWL_EINVAL, PAWL_ENOMEM, PAWL_ELIMIT,
		PAWL_ENOENT};
	struct object_answer answer = {.status = 200, .code = ""};

	for (size_t i = 0; i < LEN(again); i++) {
		answer.rv = again[i];
		assert_int_equal(object_judge(&answer, NOW_S), VERDICT_AGAIN);
		assert_int_equal(object_answer_code(&answer), again[i]);
	}
	for (size_t i = 0; i < LEN(fail); i++) {
		answer.rv = fail[i];
		assert_int_equal(object_judge(&answer, NOW_S), VERDICT_FAIL);
		assert_int_equal(object_answer_code(&answer), fail[i]);
	}
}

static void failures_have_codes(void **state)
{
	static const struct {
		int status;
		const char *code; /* the service's name of the error */
		int wants;        /* the right PAWL_E code */
	} codes[] = {
		{404, "Unheard", PAWL_ENOENT},
		{404, "", PAWL_ENOENT},
		{412, "Unheard", PAWL_EEXIST},
		{412, "", PAWL_EEXIST},
		{412, "PreconditionFailed", PAWL_EEXIST},
		{412, "ConditionNotMet", PAWL_EEXIST},
		{412, "LeaseIdMissing", PAWL_EIO},
		{412, "LeaseLost", PAWL_EIO},
		{409, "", PAWL_EEXIST},
		{409, "BlobAlreadyExists", PAWL_EEXIST},
		{409, "OperationAborted", PAWL_EEXIST},
		{409, "ConditionalRequestConflict", PAWL_EEXIST},
		{409, "Unheard", PAWL_EIO},
		{409, "LeaseIdMismatchWithBlobOperation", PAWL_EIO},
		{409, "SnapshotsPresent", PAWL_EIO},
		{409, "BlobImmutableDueToPolicy", PAWL_EIO},
		{409, "DirectoryIsNotEmpty", PAWL_ENOENT},
		{403, "Unheard", PAWL_EIO},
		{500, "Unheard", PAWL_EIO},
		{200, "BlobAlreadyExists", PAWL_EIO},
	};

	for (size_t i = 0; i < LEN(codes); i++) {
		struct object_answer answer = {.status = codes[i].status, .code = codes[i].code};

		assert_int_equal(object_answer_code(&answer), codes[i].wants);
	}
}

/* ---- dates ---- */

struct dated {
	const char *text;
	int64_t date_s; /* 0: it is no date */
};

static const struct dated dated[] = {
	{"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
	{"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
	{"Sun Nov  6 08:49:37 1994", 784111777},
	{"Wed Nov 16 08:49:37 1994", 784975777},
	{" Sun, 06 Nov 1994 08:49:37 GMT\r\n", 784111777},
	{"Thu, 01 Jan 1970 00:00:01 GMT", 1},
	{"Thu, 29 Feb 2024 23:59:59 GMT", 1709251199},
	{"Fri, 01 Mar 2024 00:00:00 GMT", 1709251200},
	{"Tue, 29 Feb 2000 00:00:00 GMT", 951782400},
	{"Thursday, 26-Nov-26 00:00:00 GMT", 1795651200},
	{"Sat, 31 Dec 2016 23:59:60 GMT", 1483228800},
	{"Fri, 31 Dec 9999 23:59:59 GMT", 253402300799},
	{"", 0},
	{"Sun", 0},
	{"Sun,", 0},
	{"Sun, 06 Nov 1994", 0},
	{"Sun, 06 Nov 1994 08:49:37", 0},
	{"Sun, 06 Nov 1994 08:49:37 CET", 0},
	{"Sun, 06 Nov 1994 08:49:37 GMT+1", 0},
	{"Sun, 6 Nov 1994 08:49:37 GMT", 0},
	{", 06 Nov 1994 08:49:37 GMT", 0},
	{"Sun Nov 6  08:49:37 1994", 0},
	{"Sun, 06 Nov 1994 8:49:37 GMT", 0},
	{"Sun, 06 Now 1994 08:49:37 GMT", 0},
	{"Sun, 00 Nov 1994 08:49:37 GMT", 0},
	{"Sun, 31 Nov 1994 08:49:37 GMT", 0},
	{"Sun, 29 Feb 2023 08:49:37 GMT", 0},
	{"Sun, 29 Feb 2100 08:49:37 GMT", 0},
	{"Sun, 06 Nov 1994 24:00:00 GMT", 0},
	{"Sun, 06 Nov 1994 08:60:00 GMT", 0},
	{"Sun, 06 Nov 1994 08:49:61 GMT", 0},
	{"Sun, 06 Nov 1969 08:49:37 GMT", 0},
	{"Sun, 06 Nov -994 08:49:37 GMT", 0},
	{"1994-11-06T08:49:37Z", 0},
	{"784111777", 0},
};

static void dates_are_read_in_three_formats(void **state)
{
	for (size_t i = 0; i < LEN(dated); i++) {
		int64_t date_s = object_date_s(dated[i].text);

		if (date_s != dated[i].date_s) {
			fail_msg("\"%s\": %lld", dated[i].text, (long long)date_s);
		}
	}
}

/* Every date has its seconds: a day is a day after the one before. */
static void days_follow_each_other(void **state)
{
	static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug",
		"Sep", "Oct", "Nov", "Dec"};
	int64_t before_s = -86400;
	char text[64];

	for (int i = 0; i < 200 * 12 * 31; i++) {
		int64_t date_s;

		snprintf(text, sizeof(text), "Mon, %02d %s %04d 00:00:00 GMT", i % 31 + 1,
			months[i / 31 % 12], 1970 + i / (12 * 31));
		date_s = object_date_s(text);
		if (i == 0 || date_s != 0) {
			assert_int_equal(date_s, before_s + 86400);
			before_s = date_s;
		}
	}
	assert_int_equal(before_s, 6311347200); /* 31 December 2169 */
}

static void retry_after_is_a_number_or_a_date(void **state)
{
	static const int64_t now_s = 784111777;

	assert_float_equal(object_retry_after_s("0", now_s), 0, 0);
	assert_float_equal(object_retry_after_s("120", now_s), 120, 0);
	assert_float_equal(object_retry_after_s(" 7 ", now_s), 7, 0);
	assert_float_equal(object_retry_after_s("1.25", now_s), 1.25, 1e-9);
	assert_float_equal(object_retry_after_s("Sun, 06 Nov 1994 08:50:07 GMT", now_s), 30, 0);
	assert_float_equal(object_retry_after_s("Sun, 06 Nov 1994 08:49:07 GMT", now_s), 0, 0);
	assert_true(object_retry_after_s("99999999999999999999999999", now_s) > 1e25);
	assert_true(object_retry_after_s("", now_s) < 0);
	assert_true(object_retry_after_s("-1", now_s) < 0);
	assert_true(object_retry_after_s(".5", now_s) < 0);
	assert_true(object_retry_after_s("0x10", now_s) < 0);
	assert_true(object_retry_after_s("1e3", now_s) < 0);
	assert_true(object_retry_after_s("soon", now_s) < 0);
	assert_true(object_retry_after_s("nan", now_s) < 0);
}

/* ---- the window, step by step ---- */

static void end(struct object_window *window, enum object_verdict verdict, int64_t began_ns,
	int64_t now_ns)
{
	window_end(window, verdict, -1, began_ns, now_ns);
}

static void begin(struct object_window *window, int64_t now_ns, uint32_t n)
{
	int64_t wait_ns;

	for (uint32_t i = 0; i < n; i++) {
		assert_true(window_may_begin(window, now_ns, &wait_ns));
		window_begin(window);
	}
}

static void a_window_is_halved_once_for_its_requests(void **state)
{
	struct object_window window;
	int64_t wait_ns;

	window_init(&window, 8, 1);
	begin(&window, 0, 8);
	assert_false(window_may_begin(&window, 0, &wait_ns));
	assert_int_equal(wait_ns, -1);
	for (int i = 0; i < 8; i++) {
		end(&window, VERDICT_SLOWER, 0, 50 * MS + i);
	}
	assert_float_equal(window.size, 4, 0);
	assert_int_equal(window.failures, 1);
	assert_false(window_may_begin(&window, 50 * MS, &wait_ns));
	assert_in_range(wait_ns, WINDOW_DELAY_MIN_NS / 2, WINDOW_DELAY_MIN_NS);
	begin(&window, 50 * MS + wait_ns, 1);
	assert_false(window_may_begin(&window, SEC, &wait_ns)); /* one probes */
	assert_int_equal(wait_ns, -1);
	end(&window, VERDICT_SLOWER, 50 * MS + wait_ns, SEC);
}

static void a_window_never_gets_below_one(void **state)
{
	struct object_window window;
	int64_t now_ns = 0;
	int64_t wait_ns;

	window_init(&window, 8, 1);
	for (int i = 0; i < 100; i++) {
		begin(&window, now_ns, 1);
		end(&window, VERDICT_SLOWER, now_ns, now_ns + MS);
		assert_true(window.size >= 1);
		assert_false(window_may_begin(&window, now_ns + MS, &wait_ns));
		assert_in_range(wait_ns, WINDOW_DELAY_MIN_NS / 2, WINDOW_DELAY_MAX_NS);
		now_ns += MS + wait_ns;
	}
	assert_true(wait_ns >= WINDOW_DELAY_MAX_NS / 2);
	assert_float_equal(window.size, 1, 0);
}

/* Begins n requests, which succeed. */
static void succeed(struct object_window *window, int64_t now_ns, uint32_t n)
{
	begin(window, now_ns, n);
	for (uint32_t i = 0; i < n; i++) {
		end(window, VERDICT_OK, now_ns, now_ns + 1);
	}
}

static void a_window_of_successes_adds_one(void **state)
{
	struct object_window window;

	window_init(&window, 8, 1);
	begin(&window, 0, 1);
	end(&window, VERDICT_SLOWER, 0, 1);
	assert_float_equal(window.size, 4, 0);
	succeed(&window, SEC, 1);
	succeed(&window, SEC, 3);
	assert_true(window.size > 4.8 && window.size <= 5);
	for (int i = 0; i < 100; i++) {
		succeed(&window, SEC, 1);
	}
	assert_float_equal(window.size, 8, 0); /* and no more */
}

/* What was too much once is too much again soon: the last step to it takes four windows. */
static void the_last_step_back_is_slow(void **state)
{
	struct object_window window;

	window_init(&window, 8, 1);
	begin(&window, 0, 1);
	end(&window, VERDICT_SLOWER, 0, 1);
	succeed(&window, SEC, 1);
	window.size = 7;
	for (int i = 0; i < 3; i++) {
		succeed(&window, SEC, 7);
	}
	assert_true(window.size > 7.7 && window.size < 7.8);
	succeed(&window, SEC, 7);
	assert_true(window.size > 7.9 && window.size < 8);
}

/* Slow start: each window of successes doubles, up to half of what was good before. */
static void after_a_series_of_halvings_it_grows_faster(void **state)
{
	struct object_window window;

	window_init(&window, 64, 1);
	for (int64_t i = 1; i <= 8; i++) {
		begin(&window, i * 100 * SEC, 1);
		end(&window, VERDICT_SLOWER, i * 100 * SEC, i * 100 * SEC + 1);
	}
	assert_float_equal(window.size, 1, 0);
	for (uint32_t size = 1; size < 32; size *= 2) {
		assert_float_equal(window.size, size, 0);
		succeed(&window, 1000 * SEC, size);
	}
	succeed(&window, 1000 * SEC, 32);
	assert_true(window.size > 32.9 && window.size <= 33);
}

static void retry_after_is_obeyed_within_bounds(void **state)
{
	struct object_window window;
	int64_t wait_ns;

	window_init(&window, 8, 1);
	begin(&window, 0, 3);
	window_end(&window, VERDICT_SLOWER, 30, 0, SEC);
	assert_false(window_may_begin(&window, SEC, &wait_ns));
	assert_int_equal(wait_ns, -1);                       /* two are in flight */
	window_end(&window, VERDICT_SLOWER, 40, 0, 2 * SEC); /* one window, but a later time */
	window_end(&window, VERDICT_SLOWER, 1, 0, 2 * SEC);
	assert_float_equal(window.size, 4, 0);
	assert_false(window_may_begin(&window, 2 * SEC, &wait_ns));
	assert_int_equal(wait_ns, 40 * SEC);
	begin(&window, 42 * SEC, 1);
	window_end(&window, VERDICT_SLOWER, 1e300, 42 * SEC, 43 * SEC);
	assert_false(window_may_begin(&window, 43 * SEC, &wait_ns));
	assert_int_equal(wait_ns, 120 * SEC);
	begin(&window, 163 * SEC, 1);
	window_end(&window, VERDICT_SLOWER, 0, 163 * SEC, 164 * SEC);
	assert_false(window_may_begin(&window, 164 * SEC, &wait_ns));
	assert_true(wait_ns >= WINDOW_DELAY_MIN_NS); /* not at once, whatever it says */
}

/* A lost connection does not ask for less; but it does not tell a probe to go on, either. */
static void only_probes_suffer_from_lost_connections(void **state)
{
	struct object_window window;
	int64_t wait_ns;

	window_init(&window, 8, 1);
	begin(&window, 0, 8);
	for (int i = 0; i < 7; i++) {
		end(&window, VERDICT_AGAIN, 0, 1);
	}
	begin(&window, 1, 7);
	end(&window, VERDICT_SLOWER, 0, 2);
	for (int i = 0; i < 7; i++) {
		end(&window, VERDICT_AGAIN, 1, 3);
	}
	assert_float_equal(window.size, 4, 0);
	begin(&window, SEC, 1);
	end(&window, VERDICT_AGAIN, SEC, SEC + 1);
	assert_false(window_may_begin(&window, SEC + 1, &wait_ns));
	assert_true(wait_ns >= WINDOW_DELAY_MIN_NS);
	assert_int_equal(window.failures, 2);
}

/* An object that is missing shows that the service is well; a key that has expired shows
 * nothing. */
static void other_answers_end_a_probe(void **state)
{
	struct object_window window;
	int64_t wait_ns;

	window_init(&window, 8, 1);
	begin(&window, 0, 1);
	end(&window, VERDICT_SLOWER, 0, 1);
	begin(&window, SEC, 1);
	end(&window, VERDICT_KEY, SEC, SEC + 1);
	begin(&window, SEC + 1, 1);
	assert_false(window_may_begin(&window, SEC + 1, &wait_ns));
	end(&window, VERDICT_FAIL, SEC + 1, SEC + 2);
	begin(&window, SEC + 2, 4);
}

static void first_retries_are_at_once(void **state)
{
	struct object_window window;
	int64_t most_ns = WINDOW_DELAY_MIN_NS;

	window_init(&window, 8, test_seed());
	assert_int_equal(retry_delay_ns(&window, 1), 0);
	for (uint32_t attempt = 2; attempt < 40; attempt++) {
		int64_t delay_ns = retry_delay_ns(&window, attempt);

		assert_in_range(delay_ns, most_ns / 2, most_ns);
		most_ns = 2 * most_ns < WINDOW_DELAY_MAX_NS ? 2 * most_ns : WINDOW_DELAY_MAX_NS;
	}
	assert_in_range(retry_delay_ns(&window, UINT32_MAX), most_ns / 2, most_ns);
}

static void delays_differ(void **state)
{
	struct object_window one;
	struct object_window two;
	int equal = 0;

	window_init(&one, 8, 1);
	window_init(&two, 8, 2);
	for (uint32_t attempt = 2; attempt < 12; attempt++) {
		int64_t delay_ns = retry_delay_ns(&one, attempt);

		equal += retry_delay_ns(&two, attempt) == delay_ns;
		equal += retry_delay_ns(&one, attempt) == delay_ns;
	}
	assert_int_equal(equal, 0);
}

/* ---- simulated servers ---- */

#define MOST       8u
#define SERVICE_NS (50 * MS) /* how long a request takes that succeeds, on average */

struct request {
	int64_t began_ns;            /* time of the beginning */
	int64_t ends_ns;             /* time of the answer */
	enum object_verdict verdict; /* meaning of the answer */
};

struct sim {
	struct object_window window;   /* window under test */
	struct rng rng;                /* how long requests take */
	int64_t now_ns;                /* simulated time */
	struct request requests[MOST]; /* in flight */
	uint32_t requests_n;           /* requests in flight */
	uint32_t served;               /* requests in flight that will succeed */
	uint32_t capacity;             /* requests served at a time; more are refused */
	int64_t refusal_ns;            /* how long it takes to refuse a request, on average */
	int64_t down_ns;               /* the server is down from here */
	int64_t up_ns;                 /* the server is up again from here */
	uint64_t begun;                /* requests in all */
	uint64_t succeeded;            /* successes in all */
};

static void sim_init(struct sim *sim, uint64_t seed)
{
	*sim = (struct sim){.rng = {seed}, .capacity = MOST, .refusal_ns = SERVICE_NS};
	window_init(&sim->window, MOST, seed);
}

static void sim_begin(struct sim *sim)
{
	struct request *request = &sim->requests[sim->requests_n++];
	bool down = sim->now_ns >= sim->down_ns && sim->now_ns < sim->up_ns;
	bool served = !down && sim->served < sim->capacity;
	double takes_ns = served ? SERVICE_NS : (double)sim->refusal_ns;

	assert_true(sim->requests_n <= MOST);
	window_begin(&sim->window);
	request->began_ns = sim->now_ns;
	request->ends_ns = sim->now_ns + (int64_t)((0.8 + 0.4 * rng_unit(&sim->rng)) * takes_ns);
	request->verdict = served ? VERDICT_OK : VERDICT_SLOWER;
	sim->served += served;
	sim->begun++;
}

/* Ends the requests whose answers have come. */
static void sim_end(struct sim *sim)
{
	for (uint32_t i = 0; i < sim->requests_n;) {
		struct request request = sim->requests[i];

		if (request.ends_ns > sim->now_ns) {
			i++;
			continue;
		}
		sim->requests[i] = sim->requests[--sim->requests_n];
		sim->served -= request.verdict == VERDICT_OK;
		sim->succeeded += request.verdict == VERDICT_OK;
		end(&sim->window, request.verdict, request.began_ns, sim->now_ns);
	}
}

/* Runs until a time, or until so many requests are being served. There is always more to send. */
static void sim_run(struct sim *sim, int64_t until_ns, uint32_t served)
{
	while (sim->now_ns < until_ns) {
		int64_t next_ns = until_ns;
		int64_t wait_ns;

		while (window_may_begin(&sim->window, sim->now_ns, &wait_ns)) {
			sim_begin(sim);
		}
		if (sim->served >= served) {
			return;
		}
		if (wait_ns >= 0 && sim->now_ns + wait_ns < next_ns) {
			next_ns = sim->now_ns + wait_ns;
		}
		for (uint32_t i = 0; i < sim->requests_n; i++) {
			if (sim->requests[i].ends_ns < next_ns) {
				next_ns = sim->requests[i].ends_ns;
			}
		}
		assert_true(next_ns > sim->now_ns);
		sim->now_ns = next_ns;
		sim_end(sim);
	}
}

/* At most 2 requests a second get through to a server that is down, and 5 s after it is up again it
 * gets as many as before. */
static void an_outage_is_borne_patiently_and_ends_soon(void **state)
{
	struct rng rng = {test_seed()};
	int64_t slowest_ns = 0;

	for (int round = 0; round < 200; round++) {
		struct sim sim;

		sim_init(&sim, rng_u64(&rng));
		sim.down_ns = 10 * SEC + (int64_t)rng_below(&rng, SEC);
		sim.up_ns = sim.down_ns + 60 * SEC;
		sim_run(&sim, sim.down_ns + 5 * SEC, UINT32_MAX);
		while (sim.now_ns < sim.up_ns) {
			uint64_t begun = sim.begun;

			sim_run(&sim, sim.now_ns + SEC, UINT32_MAX);
			assert_true(sim.begun - begun <= 2);
		}
		sim_run(&sim, sim.up_ns + 60 * SEC, MOST);
		slowest_ns =
			sim.now_ns - sim.up_ns > slowest_ns ? sim.now_ns - sim.up_ns : slowest_ns;
	}
	printf("full again after %.2f s\n", (double)slowest_ns / SEC);
	assert_true(slowest_ns <= 5 * SEC);
}

/* Returns the share of a server's capacity that a minute of requests uses. */
static double used(uint32_t capacity, int64_t refusal_ns, uint64_t seed)
{
	struct sim sim;

	sim_init(&sim, seed);
	sim.capacity = capacity;
	sim.refusal_ns = refusal_ns;
	sim_run(&sim, 60 * SEC, UINT32_MAX);
	return (double)sim.succeeded * SERVICE_NS / (60.0 * SEC * capacity);
}

/* A server refuses what is above its capacity, at once or after some time: 70 % of what it can do
 * is done. Where the capacity is 1, half of the window is no less than what was too much. */
static void a_small_server_is_kept_busy(void **state)
{
	static const int64_t refusals_ns[] = {MS, 10 * MS, SERVICE_NS, 4 * SERVICE_NS};
	uint64_t seed = test_seed();
	double least = 1;

	for (size_t i = 0; i < LEN(refusals_ns); i++) {
		for (uint32_t capacity = 2; capacity < MOST; capacity++) {
			double share = used(capacity, refusals_ns[i], seed);

			if (share < 0.7) {
				fail_msg("capacity %u, refusals after %lld ms: %.0f %% used",
					capacity, refusals_ns[i] / MS, 100 * share);
			}
			least = share < least ? share : least;
		}
	}
	printf("at least %.0f %% used\n", 100 * least);
	assert_true(used(MOST, SERVICE_NS, seed) > 0.99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_answer_has_its_meaning),
		cmocka_unit_test(clocks_without_a_date_agree),
		cmocka_unit_test(lost_requests_are_tried_again),
		cmocka_unit_test(failures_have_codes),
		cmocka_unit_test(dates_are_read_in_three_formats),
		cmocka_unit_test(days_follow_each_other),
		cmocka_unit_test(retry_after_is_a_number_or_a_date),
		cmocka_unit_test(a_window_is_halved_once_for_its_requests),
		cmocka_unit_test(a_window_never_gets_below_one),
		cmocka_unit_test(a_window_of_successes_adds_one),
		cmocka_unit_test(the_last_step_back_is_slow),
		cmocka_unit_test(after_a_series_of_halvings_it_grows_faster),
		cmocka_unit_test(retry_after_is_obeyed_within_bounds),
		cmocka_unit_test(only_probes_suffer_from_lost_connections),
		cmocka_unit_test(other_answers_end_a_probe),
		cmocka_unit_test(first_retries_are_at_once),
		cmocka_unit_test(delays_differ),
		cmocka_unit_test(an_outage_is_borne_patiently_and_ends_soon),
		cmocka_unit_test(a_small_server_is_kept_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
