/*
 * What answers of object stores mean, and how much may be sent: see object_retry.h.
 *
 * The window of an endpoint. An answer that asks for less halves it and closes the endpoint for a
 * delay. Then one request at a time probes, until one succeeds; each probe that fails doubles the
 * delay. Answers to requests that began before the last halving say nothing new: they neither halve
 * the window nor lengthen the delay.
 *
 * A success adds 1/size, which is 1 for each window, with two exceptions. After several halvings in
 * a row it adds 1, so that the window doubles, up to half of what it was before them (slow start:
 * Jacobson 1988). The last step to the size that was too much takes several windows, since each
 * refusal costs a delay in which little is sent (CUBIC's plateau: Ha, Rhee and Xu 2008).
 */
#include "store/object/object_retry.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/rng.h"

#include <stddef.h>
#include <string.h>

#define SKEW_MAX_S        300 /* a third of what services tolerate */
#define RETRY_AFTER_MAX_S 120.0
#define NS_PER_S          1e9
#define SLOW_WINDOWS      4 /* windows of successes for the step to a size that was too much */

/* ---- what an answer means ---- */

struct meaning {
	int status;                  /* 0: any */
	const char *code;            /* "": none is named, as in answers to HEAD; NULL: any */
	bool skewed;                 /* fits only if the clocks differ */
	enum object_verdict verdict; /* meaning of an answer that fits */
};

/* The first row that fits counts. */
static const struct meaning meanings[] = {
	/* The clocks differ. */
	{0, "RequestTimeTooSkewed", false, VERDICT_CLOCK},
	{403, "AuthenticationFailed", true, VERDICT_CLOCK},
	{403, "", true, VERDICT_CLOCK},
	/* The service has too much to do. */
	{0, "SlowDown", false, VERDICT_SLOWER},
	{0, "ServerBusy", false, VERDICT_SLOWER},
	{0, "ServiceUnavailable", false, VERDICT_SLOWER},
	{0, "TooManyRequests", false, VERDICT_SLOWER},
	{0, "Throttling", false, VERDICT_SLOWER},
	{0, "ThrottlingException", false, VERDICT_SLOWER},
	/* The service failed, for now. */
	{0, "InternalError", false, VERDICT_AGAIN},
	{0, "OperationTimedOut", false, VERDICT_AGAIN},
	{0, "RequestTimeout", false, VERDICT_AGAIN},
	/* Another conditional write is under way. */
	{0, "OperationAborted", false, VERDICT_AGAIN},
	{0, "ConditionalRequestConflict", false, VERDICT_AGAIN},
	/* Bytes flipped on the way. */
	{0, "BadDigest", false, VERDICT_AGAIN},
	{0, "InvalidDigest", false, VERDICT_AGAIN},
	{0, "XAmzContentSHA256Mismatch", false, VERDICT_AGAIN},
	{0, "Crc64Mismatch", false, VERDICT_AGAIN},
	{0, "Md5Mismatch", false, VERDICT_AGAIN},
	/* The credentials have expired, or were rotated. */
	{0, "ExpiredToken", false, VERDICT_KEY},
	{0, "ExpiredTokenException", false, VERDICT_KEY},
	{0, "TokenRefreshRequired", false, VERDICT_KEY},
	{0, "InvalidToken", false, VERDICT_KEY},
	{0, "InvalidAccessKeyId", false, VERDICT_KEY},
	{0, "SignatureDoesNotMatch", false, VERDICT_KEY},
	{0, "AuthenticationFailed", false, VERDICT_KEY},
	/* The bucket is elsewhere. */
	{0, "PermanentRedirect", false, VERDICT_REGION},
	{0, "TemporaryRedirect", false, VERDICT_REGION},
	{0, "AuthorizationHeaderMalformed", false, VERDICT_REGION},
	/* Azurite before 3.37 says so of a checksum, unless it is started with --loose. */
	{500, "FeatureNotSupported", false, VERDICT_PLAIN},
	/* Codes that are not above, and none. */
	{301, NULL, false, VERDICT_REGION},
	{307, NULL, false, VERDICT_REGION},
	{400, NULL, true, VERDICT_CLOCK},
	{400, "", false, VERDICT_KEY}, /* S3's status of an expired token */
	{401, NULL, false, VERDICT_KEY},
	{403, "", false, VERDICT_KEY},
	{408, NULL, false, VERDICT_AGAIN},
	{429, NULL, false, VERDICT_SLOWER},
	{500, NULL, false, VERDICT_AGAIN},
	{502, NULL, false, VERDICT_AGAIN},
	{503, NULL, false, VERDICT_SLOWER},
	{504, NULL, false, VERDICT_AGAIN},
};

static bool fits(const struct meaning *meaning, const struct object_answer *answer, bool skewed)
{
	return (meaning->status == 0 || meaning->status == answer->status) &&
		(meaning->code == NULL || strcmp(meaning->code, answer->code) == 0) &&
		(skewed || !meaning->skewed);
}

enum object_verdict object_judge(const struct object_answer *answer, int64_t now_s)
{
	int64_t ahead_s = answer->date_s - now_s;
	bool skewed = answer->date_s != 0 && (ahead_s > SKEW_MAX_S || ahead_s < -SKEW_MAX_S);

	if (answer->rv != 0) {
		return answer->rv == PAWL_ENOTSUP || answer->rv == PAWL_EINVAL ||
				answer->rv == PAWL_ENOMEM || answer->rv == PAWL_ELIMIT ||
				answer->rv == PAWL_ENOENT
			? VERDICT_FAIL
			: VERDICT_AGAIN;
	}
	if (answer->status / 100 == 2 && answer->code[0] == '\0') {
		return VERDICT_OK;
	}
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		if (fits(&meanings[i], answer, skewed)) {
			return meanings[i].verdict;
		}
	}
	return VERDICT_FAIL;
}

/* Returns whether a condition was refused. Azure has both statuses for much else, such as a lease
 * that somebody has. */
static bool refuses_condition(const struct object_answer *answer)
{
	static const char *const conflicts[] = {"", "BlobAlreadyExists", "OperationAborted",
		"ConditionalRequestConflict"};

	if (answer->status == 412) {
		return strncmp(answer->code, "Lease", 5) != 0;
	}
	for (size_t i = 0; i < sizeof(conflicts) / sizeof(conflicts[0]); i++) {
		if (answer->status == 409 && strcmp(answer->code, conflicts[i]) == 0) {
			return true;
		}
	}
	return false;
}

int object_answer_code(const struct object_answer *answer)
{
	if (answer->rv != 0) {
		return answer->rv;
	}
	/* A folder of Azure's Data Lake is no object. */
	if (answer->status == 404 || strcmp(answer->code, "DirectoryIsNotEmpty") == 0) {
		return PAWL_ENOENT;
	}
	return refuses_condition(answer) ? PAWL_EEXIST : PAWL_EIO;
}

/* ---- dates; by hand, since strptime goes by the locale ---- */

struct date {
	int year;   /* 1994 */
	int month;  /* 0 to 11 */
	int day;    /* 1 to 31 */
	int hour;   /* 0 to 23 */
	int minute; /* 0 to 59 */
	int second; /* 0 to 60: the last is a leap second */
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Reads a number of so many digits, the first of which may be a space where padded. */
static bool read_number(const char **at, int digits, bool padded, int *number)
{
	*number = 0;
	for (int i = 0; i < digits; i++, (*at)++) {
		if (padded && i == 0 && **at == ' ') {
			continue;
		}
		if (!is_digit(**at)) {
			return false;
		}
		*number = *number * 10 + (**at - '0');
	}
	return true;
}

/* Reads "Nov". */
static bool read_month(const char **at, int *month)
{
	static const char names[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug",
		"Sep", "Oct", "Nov", "Dec"};

	for (*month = 0; *month < 12; (*month)++) {
		if (strncmp(*at, names[*month], 3) == 0) {
			*at += 3;
			return true;
		}
	}
	return false;
}

/* Reads "94" as 1994 and "26" as 2026: no server gives a date before 1970. */
static bool read_short_year(const char **at, int *year)
{
	bool ok = read_number(at, 2, false, year);

	*year += *year < 70 ? 2000 : 1900;
	return ok;
}

/* Reads the part of a date that a character of a format stands for; others stand for themselves. */
static bool read_part(const char **at, char part, struct date *date)
{
	size_t letters;

	switch (part) {
	case 'w': /* "Sun", "Sunday"; not checked */
		letters = strcspn(*at, ", ");
		*at += letters;
		return letters > 0;
	case 'd':
		return read_number(at, 2, false, &date->day);
	case 'e':
		return read_number(at, 2, true, &date->day);
	case 'b':
		return read_month(at, &date->month);
	case 'Y':
		return read_number(at, 4, false, &date->year);
	case 'y':
		return read_short_year(at, &date->year);
	case 'h':
		return read_number(at, 2, false, &date->hour);
	case 'm':
		return read_number(at, 2, false, &date->minute);
	case 's':
		return read_number(at, 2, false, &date->second);
	default:
		return *(*at)++ == part;
	}
}

/* Returns whether a text has this format. White space at its end is fine. */
static bool read_date(const char *at, const char *format, struct date *date)
{
	for (; *format != '\0'; format++) {
		if (!read_part(&at, *format, date)) {
			return false;
		}
	}
	return at[strspn(at, " \t\r\n")] == '\0';
}

static bool is_leap(int year)
{
	return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static int month_days(int year, int month)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

	return days[month] + (month == 1 && is_leap(year));
}

/* Returns the seconds since 1970; 0 if there is no such date. */
static int64_t date_to_s(const struct date *date)
{
	int64_t days = date->day - 1;

	if (date->year < 1970 || date->day < 1 || date->day > month_days(date->year, date->month) ||
		date->hour > 23 || date->minute > 59 || date->second > 60) {
		return 0;
	}
	for (int year = 1970; year < date->year; year++) {
		days += is_leap(year) ? 366 : 365;
	}
	for (int month = 0; month < date->month; month++) {
		days += month_days(date->year, month);
	}
	return ((days * 24 + date->hour) * 60 + date->minute) * 60 + date->second;
}

int64_t object_date_s(const char *value)
{
	static const char *const formats[] = {
		"w, d b Y h:m:s GMT", /* Sun, 06 Nov 1994 08:49:37 GMT */
		"w, d-b-y h:m:s GMT", /* Sunday, 06-Nov-94 08:49:37 GMT */
		"w b e h:m:s Y",      /* Sun Nov  6 08:49:37 1994 */
	};
	struct date date = {.year = 0};

	value += strspn(value, " \t");
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		if (read_date(value, formats[i], &date)) {
			return date_to_s(&date);
		}
	}
	return 0;
}

/* Reads "12" or "1.5", and moves behind it. Returns a value below 0 if it is no number. */
static double read_seconds(const char **at)
{
	double seconds = is_digit(**at) ? 0 : -1;
	double unit = 1;

	for (; is_digit(**at); (*at)++) {
		seconds = seconds * 10 + (**at - '0');
	}
	if (seconds >= 0 && **at == '.') {
		for ((*at)++; is_digit(**at); (*at)++) {
			unit /= 10;
			seconds += unit * (**at - '0');
		}
	}
	return seconds;
}

double object_retry_after_s(const char *value, int64_t now_s)
{
	const char *end = value + strspn(value, " \t");
	double seconds = read_seconds(&end);
	int64_t date_s;

	if (seconds >= 0 && end[strspn(end, " \t\r\n")] == '\0') {
		return seconds;
	}
	date_s = object_date_s(value);
	if (date_s == 0) {
		return -1;
	}
	return date_s > now_s ? (double)(date_s - now_s) : 0;
}

/* ---- the window ---- */

/* Returns the n-th delay of a series (from 1) that doubles: between half of it and the whole. */
static int64_t next_delay_ns(struct object_window *window, uint32_t n)
{
	struct rng rng = {window->random};
	int64_t delay_ns = WINDOW_DELAY_MIN_NS;

	for (uint32_t i = 1; i < n && delay_ns < WINDOW_DELAY_MAX_NS; i++) {
		delay_ns *= 2;
	}
	if (delay_ns > WINDOW_DELAY_MAX_NS) {
		delay_ns = WINDOW_DELAY_MAX_NS;
	}
	delay_ns -= (int64_t)rng_below(&rng, (uint64_t)delay_ns / 2 + 1);
	window->random = rng.state;
	return delay_ns;
}

void window_init(struct object_window *window, uint32_t most, uint64_t seed)
{
	ASSERT(most > 0);
	*window = (struct object_window){.most = most,
		.size = most,
		.before = most,
		.halved_ns = INT64_MIN,
		.random = seed};
}

bool window_may_begin(const struct object_window *window, int64_t now_ns, int64_t *wait_ns)
{
	uint32_t most = window->failures > 0 ? 1 : (uint32_t)window->size;

	if (window->in_flight >= most) {
		*wait_ns = -1;
		return false;
	}
	if (now_ns < window->open_ns) {
		*wait_ns = window->open_ns - now_ns;
		return false;
	}
	return true;
}

void window_begin(struct object_window *window)
{
	window->in_flight++;
}

static void grow(struct object_window *window)
{
	double step = 1 / window->size;

	if (window->size < window->before / 2) {
		step = 1;
	} else if (window->size >= window->before - 1 && window->size < window->before) {
		step /= SLOW_WINDOWS;
	}
	window->failures = 0;
	window->size += step;
	if (window->size > window->most) {
		window->size = window->most;
	}
}

static void halve(struct object_window *window, int64_t now_ns)
{
	if (window->failures == 0) {
		window->before = window->size;
	}
	window->failures++;
	window->size = window->size > 2 ? window->size / 2 : 1;
	window->halved_ns = now_ns;
}

static void close_until(struct object_window *window, int64_t open_ns)
{
	if (window->open_ns < open_ns) {
		window->open_ns = open_ns;
	}
}

static void obey(struct object_window *window, double retry_after_s, int64_t now_ns)
{
	if (retry_after_s >= 0) {
		retry_after_s =
			retry_after_s < RETRY_AFTER_MAX_S ? retry_after_s : RETRY_AFTER_MAX_S;
		close_until(window, now_ns + (int64_t)(retry_after_s * NS_PER_S));
	}
}

void window_end(struct object_window *window, enum object_verdict verdict, double retry_after_s,
	int64_t began_ns, int64_t now_ns)
{
	bool probe = window->failures > 0 && began_ns > window->halved_ns;

	ASSERT(window->in_flight > 0);
	window->in_flight--;
	if (verdict == VERDICT_OK || verdict == VERDICT_FAIL) {
		grow(window); /* VERDICT_FAIL, too, such as a 404, is not for want of capacity */
	}
	if (verdict == VERDICT_SLOWER) {
		obey(window, retry_after_s, now_ns);
	}
	/* A probe that is lost has not found the endpoint well again. */
	if ((verdict == VERDICT_SLOWER && began_ns > window->halved_ns) ||
		(verdict == VERDICT_AGAIN && probe)) {
		halve(window, now_ns);
		close_until(window, now_ns + next_delay_ns(window, window->failures));
	}
}

int64_t retry_delay_ns(struct object_window *window, uint32_t attempt)
{
	return attempt <= 1 ? 0 : next_delay_ns(window, attempt - 1);
}
