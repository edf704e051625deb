/* Small CSV files: see csv.h. */
#include "sched/sim/csv.h"

#include "base/assert.h"
#include "base/err.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int read_open(FILE *file, const char *path, char **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	struct stat is;
	char *read;

	if (fstat(fileno(file), &is) != 0) {
		return pawl_err_sys(err, "read %s", path);
	}
	if (!S_ISREG(is.st_mode) || is.st_size > CSV_BYTES_MAX) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"read %s: it is not a file, or has more than %u MiB", path,
			CSV_BYTES_MAX >> 20);
	}
	read = malloc((size_t)is.st_size + 1);
	if (read == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "read %s: out of memory", path);
	}
	*len_bytes = fread(read, 1, (size_t)is.st_size, file);
	if (ferror(file)) {
		free(read);
		return pawl_err_sys(err, "read %s", path);
	}
	read[*len_bytes] = '\0';
	*bytes = read;
	return 0;
}

int csv_read_file(const char *path, char **bytes, size_t *len_bytes, struct pawl_err *err)
{
	FILE *file = fopen(path, "rbe");
	int rv;

	if (file == NULL) {
		return pawl_err_sys(err, "read %s", path);
	}
	rv = read_open(file, path, bytes, len_bytes, err);
	fclose(file);
	return rv;
}

int csv_fail(const struct csv *csv, struct pawl_err *err, const char *fmt, ...)
{
	char text[PAWL_ERR_MSG_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return pawl_err_set(err, PAWL_ECORRUPT, "%s:%u: %s", csv->path, csv->line, text);
}

/* Returns the next line, terminated by a 0; NULL: there is none. Skips empty lines. */
static char *next_line(struct csv *csv)
{
	char *line;

	do {
		line = csv->at;
		if (*line == '\0') {
			return NULL;
		}
		csv->line++;
		csv->at = strchrnul(line, '\n');
		if (csv->at > line && csv->at[-1] == '\r') {
			csv->at[-1] = '\0';
		}
		if (*csv->at == '\n') {
			*csv->at++ = '\0';
		}
	} while (*line == '\0');
	return line;
}

/* Refuses control characters: text after a zero, or after a \r within a line, would be lost. */
static int check_text(const struct csv *csv, struct pawl_err *err)
{
	for (size_t i = 0; i < csv->len_bytes; i++) {
		unsigned char byte = (unsigned char)csv->bytes[i];
		char next = csv->bytes[i + 1]; /* the last byte is followed by a 0 */
		bool end = byte == '\n' || (byte == '\r' && (next == '\n' || next == '\0'));

		if (byte < ' ' && byte != '\t' && !end) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"read %s: byte %zu is 0x%02x: it is not text, or damaged",
				csv->path, i, byte);
		}
	}
	return 0;
}

int csv_open(struct csv *csv, const char *header, struct pawl_err *err, const char *fmt, ...)
{
	va_list args;
	char *line;
	int rv;

	*csv = (struct csv){.columns = 1};
	va_start(args, fmt);
	vsnprintf(csv->path, sizeof(csv->path), fmt, args);
	va_end(args);
	rv = csv_read_file(csv->path, &csv->bytes, &csv->len_bytes, err);
	if (rv != 0) {
		return rv;
	}
	rv = check_text(csv, err);
	if (rv != 0) {
		return rv;
	}
	csv->at = csv->bytes;
	line = next_line(csv);
	if (line == NULL || strcmp(line, header) != 0) {
		return csv_fail(csv, err, "the first line is not %s", header);
	}
	for (const char *at = header; (at = strchr(at, ',')) != NULL; at++) {
		csv->columns++;
	}
	ASSERT(csv->columns <= CSV_FIELDS_MAX); /* the header is the caller's */
	return 0;
}

void csv_close(struct csv *csv)
{
	free(csv->bytes);
	csv->bytes = NULL;
}

uint32_t csv_count(const struct csv *csv)
{
	uint32_t lines = 0;

	for (const char *at = csv->at; *at != '\0'; lines++) {
		at = strchrnul(at, '\n');
		at += *at == '\n';
	}
	return lines;
}

int csv_next(struct csv *csv, struct pawl_err *err)
{
	char *at = next_line(csv);
	uint32_t n = 0;

	if (at == NULL) {
		return 0;
	}
	while (at != NULL && n < CSV_FIELDS_MAX) {
		csv->fields[n++] = strsep(&at, ",");
	}
	if (n != csv->columns || at != NULL) {
		return csv_fail(csv, err, "%s%u columns, not %u", at ? "over " : "", n,
			csv->columns);
	}
	return 1;
}

int csv_double(const struct csv *csv, uint32_t field, double least, double *number,
	struct pawl_err *err)
{
	char *end;
	double read;

	ASSERT(field < csv->columns);
	read = strtod(csv->fields[field], &end);
	if (end == csv->fields[field] || *end != '\0' || !isfinite(read) || read < least) {
		return csv_fail(csv, err, "column %u: %.40s is not a number of at least %g",
			field + 1, csv->fields[field], least);
	}
	*number = read;
	return 0;
}

int csv_whole(const struct csv *csv, uint32_t field, uint32_t least, uint32_t *number,
	struct pawl_err *err)
{
	double read = 0;
	int rv = csv_double(csv, field, least, &read, err);

	if (rv != 0) {
		return rv;
	}
	if (read != floor(read) || read > INT32_MAX) {
		return csv_fail(csv, err, "column %u: %.40s is not a whole number", field + 1,
			csv->fields[field]);
	}
	*number = (uint32_t)read;
	return 0;
}
