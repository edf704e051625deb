/* See date.h. By hand, since strptime goes by the locale. */
#include "base/date.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>

#define DAY_S 86400

/* Reads so many digits. Returns what is behind them; NULL: there are fewer. */
static const char *read_number(const char *at, unsigned digits, int *value)
{
	*value = 0;
	for (unsigned i = 0; at != NULL && i < digits; i++, at++) {
		if (*at < '0' || *at > '9') {
			return NULL;
		}
		*value = *value * 10 + (*at - '0');
	}
	return at;
}

static const char *skip(const char *at, const char *one_of)
{
	return at != NULL && *at != '\0' && strchr(one_of, *at) != NULL ? at + 1 : NULL;
}

/* Returns the days from 1970-01-01 to a day of the Gregorian calendar: H. Hinnant, "chrono-
 * compatible low-level date algorithms", days_from_civil. */
static int64_t count_days(int64_t year, int month, int day)
{
	int64_t y = year - (month <= 2);
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t of_era = y - era * 400;
	int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* Inverse of count_days: civil_from_days. */
static void find_day(int64_t days, int64_t *year, int *month, int *day)
{
	int64_t z = days + 719468;
	int64_t era = (z >= 0 ? z : z - 146096) / 146097;
	int64_t of_era = z - era * 146097;
	int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	int64_t m = (5 * of_year + 2) / 153;

	*day = (int)(of_year - (153 * m + 2) / 5) + 1;
	*month = (int)(m < 10 ? m + 3 : m - 9);
	*year = year_of_era + era * 400 + (*month <= 2);
}

/* Reads ".25" in nanoseconds. Returns what is behind it; NULL: there is no digit. */
static const char *read_fraction(const char *at, int64_t *ns)
{
	int64_t unit = NS_PER_S / 10;
	const char *first;

	*ns = 0;
	if (*at != '.') {
		return at;
	}
	first = ++at;
	for (; *at >= '0' && *at <= '9'; at++, unit /= 10) {
		*ns += (*at - '0') * unit;
	}
	return at > first ? at : NULL;
}

/* Reads a zone to the end of the text. Returns false if it is none. */
static bool read_zone(const char *at, int64_t *east_s)
{
	bool west = *at == '-';
	int hours, minutes;

	*east_s = 0;
	if (*at == '\0' || strcmp(at, "Z") == 0 || strcmp(at, "z") == 0) {
		return true;
	}
	at = read_number(skip(at, "+-"), 2, &hours);
	at = at != NULL && *at == ':' ? at + 1 : at;
	at = read_number(at, 2, &minutes);
	if (at == NULL || *at != '\0' || hours > 24 || minutes > 59) {
		return false;
	}
	*east_s = ((int64_t)hours * 60 + minutes) * (west ? -60 : 60);
	return true;
}

bool date_read(const char *text, int64_t *wall_ns)
{
	int year, month, day, hour, minute, second;
	int64_t s, ns, east_s;
	const char *at = read_number(text, 4, &year);

	at = read_number(skip(at, "-"), 2, &month);
	at = read_number(skip(at, "-"), 2, &day);
	at = read_number(skip(at, "Tt"), 2, &hour);
	at = read_number(skip(at, ":"), 2, &minute);
	at = read_number(skip(at, ":"), 2, &second);
	at = at != NULL ? read_fraction(at, &ns) : NULL;
	if (at == NULL || month < 1 || month > 12 || day < 1 || day > 31 || hour > 24 ||
		minute > 59 || second > 60 || !read_zone(at, &east_s)) {
		return false;
	}
	s = count_days(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second - east_s;
	if (s >= INT64_MAX / NS_PER_S || s <= INT64_MIN / NS_PER_S) {
		*wall_ns = s < 0 ? INT64_MIN : INT64_MAX;
	} else {
		*wall_ns = s * NS_PER_S + ns;
	}
	return true;
}

const char *date_write(int64_t wall_ns, char *text)
{
	int64_t s = wall_ns / NS_PER_S - (wall_ns % NS_PER_S < 0);
	int64_t us = (wall_ns - s * NS_PER_S) / 1000;
	int64_t days = s / DAY_S - (s % DAY_S < 0);
	int64_t year;
	int month, day;

	s -= days * DAY_S;
	find_day(days, &year, &month, &day);
	snprintf(text, DATE_TEXT_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", (int)year, month, day,
		(int)(s / 3600), (int)(s / 60 % 60), (int)(s % 60), (int)us);
	return text;
}
