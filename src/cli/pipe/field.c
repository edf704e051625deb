/* Fields of JSON objects: see field.h. */
#include "cli/pipe/field.h"

#include "base/err.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WHOLE_MAX 9007199254740992.0 /* 2^53: up to here a double has all whole numbers */

void field_at(struct field_reader *reader, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(reader->where, sizeof(reader->where), fmt, args);
	va_end(args);
}

void field_fail(struct field_reader *reader, const char *fmt, ...)
{
	char text[PAWL_ERR_MSG_MAX];
	va_list args;

	if (reader->rv != 0) {
		return;
	}
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	reader->rv = pawl_err_set(reader->err, PAWL_ECORRUPT, "%s: %s", reader->where, text);
}

/* Returns a field, or NULL if there is an error already or it is missing; a needed one must not
 * be. */
static const json_t *find(struct field_reader *reader, const json_t *object, const char *key,
	bool needed)
{
	const json_t *value = reader->rv == 0 ? json_object_get(object, key) : NULL;

	if (!value && needed) {
		field_fail(reader, "%s is missing", key);
	}
	return value;
}

void field_number(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	double most, double *into)
{
	const json_t *value = find(reader, object, key, needed);
	double number = json_number_value(value);

	if (value && !(json_is_number(value) && number >= 0 && number <= most)) {
		field_fail(reader, "%s must be a number from 0 to %g", key, most);
	} else if (value) {
		*into = number;
	}
}

void field_whole(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	uint64_t most, uint64_t *into)
{
	const json_t *value = find(reader, object, key, needed);
	double number = json_number_value(value);
	bool valid = json_is_integer(value) ? json_integer_value(value) >= 0
					    : json_is_real(value) && number >= 0 &&
			number <= WHOLE_MAX && floor(number) >= number;
	uint64_t whole = 0;

	if (!value) {
		return;
	}
	if (valid) {
		whole = json_is_integer(value) ? (uint64_t)json_integer_value(value)
					       : (uint64_t)number;
	}
	if (!valid || whole > most) {
		field_fail(reader, "%s must be a whole number from 0 to %llu", key,
			(unsigned long long)most);
	} else {
		*into = whole;
	}
}

void field_u32(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	uint32_t most, uint32_t *into)
{
	uint64_t whole = *into;

	field_whole(reader, object, key, needed, most, &whole);
	*into = (uint32_t)whole;
}

void field_flag(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	bool *into)
{
	const json_t *value = find(reader, object, key, needed);

	if (value && !json_is_boolean(value)) {
		field_fail(reader, "%s must be true or false", key);
	} else if (value) {
		*into = json_is_true(value);
	}
}

void field_text(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	size_t len_max, const char **into)
{
	const json_t *value = find(reader, object, key, needed);
	size_t len = json_string_length(value);

	if (!value) {
		return;
	}
	if (!json_is_string(value) || len == 0 || len > len_max ||
		strlen(json_string_value(value)) != len) {
		field_fail(reader, "%s must be a text of 1 to %zu bytes", key, len_max);
	} else {
		*into = json_string_value(value);
	}
}

const json_t *field_array(struct field_reader *reader, const json_t *object, const char *key,
	bool needed, size_t least, size_t most)
{
	const json_t *value = find(reader, object, key, needed);

	if (value &&
		!(json_is_array(value) && json_array_size(value) >= least &&
			json_array_size(value) <= most)) {
		field_fail(reader, "%s must be an array of %zu to %zu entries", key, least, most);
		value = NULL;
	}
	return value;
}

const json_t *field_object(struct field_reader *reader, const json_t *object, const char *key,
	bool needed)
{
	const json_t *value = find(reader, object, key, needed);

	if (value && !json_is_object(value)) {
		field_fail(reader, "%s must be an object", key);
		value = NULL;
	}
	return value;
}

void field_only(struct field_reader *reader, const json_t *object, const char *const *keys)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value)
	{
		const char *const *known = keys;

		while (*known && strcmp(*known, key) != 0) {
			known++;
		}
		if (!*known) {
			field_fail(reader, "%.100s is no key that it can have", key);
		}
	}
}
