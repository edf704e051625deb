/* See quantity.h. A number is a whole one and a power of ten, which a suffix moves. */
#include "engine/k8s/quantity.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_FULL 10000000000000000000u /* 10^19: a number from here on takes no more digits */
#define POWER_MAX   64                    /* powers beyond are as good as this one */

__extension__ typedef unsigned __int128 wide;
#define WIDE_MAX ((wide)-1)

/* A number that has been read. */
struct number {
	wide digits; /* all digits, the point left out */
	int power;   /* times ten to the power of that */
	bool some;   /* whether there was a digit */
	bool rest;   /* a digit that is not 0 was dropped */
};

static void add_digit(struct number *number, char digit, bool fraction)
{
	number->some = true;
	if (number->digits >= DIGITS_FULL) {
		number->rest = number->rest || digit != '0';
		number->power += fraction ? 0 : 1;
		return;
	}
	number->digits = number->digits * 10 + (wide)(digit - '0');
	number->power -= fraction ? 1 : 0;
}

static const char *read_digits(const char *at, struct number *number)
{
	for (; *at >= '0' && *at <= '9'; at++) {
		add_digit(number, *at, false);
	}
	if (*at == '.') {
		for (at++; *at >= '0' && *at <= '9'; at++) {
			add_digit(number, *at, true);
		}
	}
	return at;
}

/* Reads what stands behind the digits: moves the power, or sets the number of factors of 1024. */
static bool read_suffix(const char *at, struct number *number, unsigned *kibi)
{
	static const char decimal[] = "kMGTPE";
	static const char binary[] = "KMGTPE";
	static const char small[] = "mun";
	const char *found;
	long power;

	if (*at == '\0') {
		return true;
	}
	if (at[1] == 'i' && at[2] == '\0' && (found = strchr(binary, *at)) != NULL) {
		*kibi = (unsigned)(found - binary) + 1;
		return true;
	}
	if (at[1] == '\0' && (found = strchr(decimal, *at)) != NULL) {
		number->power += 3 * ((int)(found - decimal) + 1);
		return true;
	}
	if (at[1] == '\0' && (found = strchr(small, *at)) != NULL) {
		number->power -= 3 * ((int)(found - small) + 1);
		return true;
	}
	if (*at != 'e' && *at != 'E') {
		return false;
	}
	at++;
	found = at + (*at == '+' || *at == '-');
	if (*found == '\0' || found[strspn(found, "0123456789")] != '\0') {
		return false;
	}
	power = strtol(at, NULL, 10);
	power = power > POWER_MAX ? POWER_MAX : power < -POWER_MAX ? -POWER_MAX : power;
	number->power += (int)power;
	return true;
}

/* Multiplies a number, and gives up digits far below its unit where there is no room. */
static void multiply(struct number *number, uint32_t factor)
{
	while (number->power < 0 && number->digits > WIDE_MAX / factor) {
		number->rest = number->rest || number->digits % 10 != 0;
		number->digits /= 10;
		number->power++;
	}
	number->digits = number->digits > WIDE_MAX / factor ? WIDE_MAX : number->digits * factor;
}

bool quantity_read(const char *text, uint32_t per, uint64_t *value)
{
	struct number number = {.digits = 0};
	unsigned kibi = 0;
	const char *at = text + (text[0] == '+');
	wide result;

	if (strnlen(text, QUANTITY_TEXT_MAX) == QUANTITY_TEXT_MAX) {
		return false;
	}
	at = read_digits(at, &number);
	if (!number.some || !read_suffix(at, &number, &kibi)) {
		return false;
	}
	multiply(&number, per);
	for (; kibi > 0; kibi--) {
		multiply(&number, 1024);
	}
	for (; number.power > 0 && number.digits != 0 && number.digits != WIDE_MAX;
		number.power--) {
		multiply(&number, 10);
	}
	result = number.digits;
	for (; number.power < 0; number.power++) {
		number.rest = number.rest || result % 10 != 0;
		result /= 10;
	}
	result += number.rest && result < WIDE_MAX ? 1 : 0;
	*value = result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
	return true;
}
