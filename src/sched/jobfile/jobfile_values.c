/* Values of keys: text, numbers, sizes, durations. Each reader reports what it needs: see
 * jobfile_impl.h. */
#include "sched/jobfile/jobfile_impl.h"

#include "base/assert.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NEEDED_MAX 96u /* bytes of the description of a valid value */
#define MILLI_MAX  (UINT64_MAX / 1000 / 1024)

_Static_assert(SPEC_CPUS_MAX <= UINT32_MAX / 1000, "thousandths of a CPU in 32 bits");
_Static_assert(((uint64_t)SPEC_GIB_MAX << 30) <= INT64_MAX, "bytes in 63 bits");

const char *jobfile_scalar(const struct tree_node *value)
{
	bool scalar = value->kind != TREE_NULL && value->kind < TREE_LIST;

	return scalar && strlen(value->text) == value->len_bytes ? value->text : NULL;
}

bool jobfile_text(struct jobfile *f, const char *key, const struct tree_node *value,
	size_t cap_bytes, const char **into)
{
	char needed[NEEDED_MAX] = "a string";

	if (value->kind == TREE_TEXT && value->len_bytes > 0 && value->len_bytes < cap_bytes &&
		jobfile_scalar(value)) {
		*into = value->text;
		return true;
	}
	if (value->kind == TREE_BOOL || value->kind == TREE_NUMBER) {
		snprintf(needed, sizeof(needed), "a string (\"%.32s\", in quotes)", value->text);
	} else if (value->kind == TREE_TEXT) {
		snprintf(needed, sizeof(needed), "one of 1 to %zu bytes, none of them zero,",
			cap_bytes - 1);
	}
	jobfile_bad_value(f, key, value, needed);
	return false;
}

bool jobfile_is_true(const struct tree_node *value)
{
	ASSERT(value->kind == TREE_BOOL);
	return strchr("yYtT", value->text[0]) || strcasecmp(value->text, "on") == 0;
}

bool jobfile_bool(struct jobfile *f, const char *key, const struct tree_node *value, bool *into)
{
	if (value->kind != TREE_BOOL) {
		jobfile_bad_value(f, key, value, "true or false");
		return false;
	}
	*into = jobfile_is_true(value);
	return true;
}

/* ---- numbers ---- */

/* Reads digits at *at, saturated at most, and moves *at behind them. Returns false if there are
 * none. */
static bool take_digits(const char **at, uint64_t most, uint64_t *number)
{
	const char *from = *at;

	*number = 0;
	for (; isdigit((unsigned char)**at); ++*at) {
		uint64_t digit = (uint64_t)(**at - '0');

		*number = *number > (most - digit) / 10 ? most : *number * 10 + digit;
	}
	return *at > from;
}

/* Reads the digits of a number. Refuses 010, which is eight to YAML and ten to most people. */
static bool take_number(const char **at, uint64_t most, uint64_t *number)
{
	const char *from = *at;

	return take_digits(at, most, number) && (*from != '0' || *at == from + 1);
}

/* Reads a number and up to three decimals, in thousandths; drops further decimals. */
static bool take_milli(const char **at, uint64_t *milli)
{
	uint64_t scale = 100;

	if (!take_number(at, MILLI_MAX, milli)) {
		return false;
	}
	*milli *= 1000;
	if (**at == '.' && isdigit((unsigned char)(*at)[1])) {
		for (++*at; isdigit((unsigned char)**at) && scale > 0; ++*at, scale /= 10) {
			*milli += scale * (uint64_t)(**at - '0');
		}
	}
	return true;
}

bool jobfile_int(struct jobfile *f, const char *key, const struct tree_node *value, int64_t least,
	int64_t most, int64_t *into)
{
	const char *text = value->kind == TREE_NUMBER ? value->text : "";
	const char *at = text + (*text == '-' || *text == '+');
	char needed[NEEDED_MAX];
	uint64_t digits;

	if (take_number(&at, INT64_MAX, &digits) && *at == '\0') {
		int64_t number = *text == '-' ? -(int64_t)digits : (int64_t)digits;

		if (number >= least && number <= most) {
			*into = number;
			return true;
		}
	}
	snprintf(needed, sizeof(needed), "a whole number from %" PRId64 " to %" PRId64, least,
		most);
	jobfile_bad_value(f, key, value, needed);
	return false;
}

bool jobfile_range(struct jobfile *f, const char *key, const struct tree_node *value,
	uint32_t least, uint32_t most, struct sched_range *into)
{
	const char *text = jobfile_scalar(value);
	const char *at = text ? text : "";
	char needed[NEEDED_MAX];
	uint64_t first;
	uint64_t last;
	bool good = take_number(&at, UINT32_MAX, &first);

	last = first;
	if (good && at[0] == '.' && at[1] == '.') {
		at += 2;
		good = take_number(&at, UINT32_MAX, &last);
	}
	if (good && *at == '\0' && first >= least && last >= first && last <= most) {
		*into = (struct sched_range){(uint32_t)first, (uint32_t)last};
		return true;
	}
	snprintf(needed, sizeof(needed), "MIN..MAX, or one number, from %u to %u,", least, most);
	jobfile_bad_value(f, key, value, needed);
	return false;
}

bool jobfile_cpus(struct jobfile *f, const char *key, const struct tree_node *value,
	uint32_t *into_milli)
{
	const char *text = jobfile_scalar(value);
	const char *at = text ? text : "";
	char needed[NEEDED_MAX];
	uint64_t milli;

	if (take_milli(&at, &milli) && at[*at == '+'] == '\0' && milli > 0 &&
		milli <= SPEC_CPUS_MAX * 1000ull) {
		*into_milli = (uint32_t)milli;
		return true;
	}
	snprintf(needed, sizeof(needed), "a number up to %u, as 4, 4+ or 0.5,", SPEC_CPUS_MAX);
	jobfile_bad_value(f, key, value, needed);
	return false;
}

bool jobfile_size(struct jobfile *f, const char *key, const struct tree_node *value,
	uint64_t *into_bytes)
{
	static const struct {
		const char *suffix;
		uint32_t shift;
	} units[] = {{"", 30}, {"KB", 10}, {"MB", 20}, {"GB", 30}, {"TB", 40}, {"PB", 50},
		{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"PiB", 50}, {"Ki", 10},
		{"Mi", 20}, {"Gi", 30}, {"Ti", 40}, {"Pi", 50}};
	const char *text = jobfile_scalar(value);
	const char *at = text ? text : "";
	uint64_t most = (uint64_t)SPEC_GIB_MAX << 30;
	uint64_t bytes = 0;
	uint64_t milli;
	bool good = take_milli(&at, &milli);
	size_t len = strcspn(at, "+");

	for (size_t i = 0; i < sizeof(units) / sizeof(*units) && good; i++) {
		if (strlen(units[i].suffix) == len && strncasecmp(units[i].suffix, at, len) == 0 &&
			at[len + (at[len] == '+')] == '\0' &&
			milli / 1000 <= most >> units[i].shift) {
			/* whole units and the rest apart, so that neither overflows */
			bytes = ((milli / 1000) << units[i].shift) +
				(((milli % 1000) << units[i].shift) / 1000);
		}
	}
	if (bytes > 0 && bytes <= most) {
		*into_bytes = bytes;
		return true;
	}
	jobfile_bad_value(f, key, value,
		"a size up to 1 PB in GB, or with its unit, as 64, 64+ or 1.5TB,");
	return false;
}

/* Reads hours, minutes and seconds: "36:00:00". */
static bool take_clock(const char *at, uint64_t *seconds)
{
	uint64_t part[3];

	for (int i = 0; i < 3; i++) {
		const char *from = at;

		if (!take_digits(&at, SPEC_TIME_MAX_S, &part[i]) ||
			(i > 0 && (at - from != 2 || part[i] > 59)) ||
			*at != (i < 2 ? ':' : '\0')) {
			return false;
		}
		at += i < 2;
	}
	*seconds = part[0] * 3600 + part[1] * 60 + part[2];
	return true;
}

/* Reads units of time: "1d12h". */
static bool take_units(const char *at, uint64_t *seconds)
{
	static const struct {
		char letter;
		uint32_t seconds;
	} units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
	size_t unit = 0;
	uint64_t number;

	for (*seconds = 0; *at != '\0'; unit++) {
		if (!take_digits(&at, SPEC_TIME_MAX_S + 1, &number)) {
			return false;
		}
		while (unit < sizeof(units) / sizeof(*units) && units[unit].letter != *at) {
			unit++;
		}
		if (unit == sizeof(units) / sizeof(*units)) {
			return false;
		}
		*seconds += number * units[unit].seconds;
		at++;
	}
	return true;
}

bool jobfile_duration(struct jobfile *f, const char *key, const struct tree_node *value,
	uint32_t *into_s)
{
	const char *text = jobfile_scalar(value);
	uint64_t seconds;

	if (text && (take_clock(text, &seconds) || take_units(text, &seconds)) && seconds > 0 &&
		seconds <= SPEC_TIME_MAX_S) {
		*into_s = (uint32_t)seconds;
		return true;
	}
	jobfile_bad_value(f, key, value,
		"a time up to 366d with its unit, as 90s, 30m, 12h, 1d12h or 36:00:00,");
	return false;
}
