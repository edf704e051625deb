/*
 * Fields of JSON objects that strangers write: each has a type and a range, and an error names the
 * object and the field. After the first error, the reader ignores all further fields.
 */
#ifndef CLI_PIPE_FIELD_H
#define CLI_PIPE_FIELD_H

#include "pawl/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define FIELD_WHERE 320u /* bytes of the name of an object, terminator included */

struct field_reader {
	int rv;                  /* 0, or PAWL_ECORRUPT after an error */
	struct pawl_err *err;    /* the caller's; filled at the first error */
	char where[FIELD_WHERE]; /* name of the object that is read: "unit 3 (h.1)" */
};

/* Sets the name of the object that is read next. */
void field_at(struct field_reader *reader, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Sets err to where and the message, unless there is an error already. */
void field_fail(struct field_reader *reader, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Each reads the field key of object. If it is missing and needed is false, *into stays. */

/* Reads a number from 0 to most. */
void field_number(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	double most, double *into);
/* Reads a whole number from 0 to most, which may be written as 1e9. */
void field_whole(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	uint64_t most, uint64_t *into);
/* Reads a whole number of 32 bits. */
void field_u32(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	uint32_t most, uint32_t *into);
void field_flag(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	bool *into);
/* Reads a text that is not empty, of at most len_max bytes; it belongs to object. */
void field_text(struct field_reader *reader, const json_t *object, const char *key, bool needed,
	size_t len_max, const char **into);
/* Returns an array of least to most entries, which belongs to object; NULL: error, or missing. */
const json_t *field_array(struct field_reader *reader, const json_t *object, const char *key,
	bool needed, size_t least, size_t most);
/* Returns an object, which belongs to object; NULL: error, or missing. */
const json_t *field_object(struct field_reader *reader, const json_t *object, const char *key,
	bool needed);
/* Refuses fields whose names are not in keys, which NULL ends. */
void field_only(struct field_reader *reader, const json_t *object, const char *const *keys);

#endif
