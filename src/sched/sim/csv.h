/* Small files of numbers and names separated by commas, without quotes, read whole. */
#ifndef SCHED_SIM_CSV_H
#define SCHED_SIM_CSV_H

#include "pawl/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CSV_FIELDS_MAX 8u
#define CSV_BYTES_MAX  (64u << 20) /* bytes of a file, at most */

struct csv {
	char path[512];
	char *bytes;      /* the whole file; reading terminates lines and fields with 0 */
	size_t len_bytes; /* length of the file */
	char *at;         /* start of the next line */
	uint32_t line;    /* number of the last line read, from 1 */
	uint32_t columns; /* columns that each line must have */
	char *fields[CSV_FIELDS_MAX]; /* fields of the last line */
};

/* Reads the file whose path fmt gives, and checks that its first line is header. csv_close must
 * follow in any case. */
int csv_open(struct csv *csv, const char *header, struct pawl_err *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void csv_close(struct csv *csv);
/* Returns how many lines are left, to size an allocation. */
uint32_t csv_count(const struct csv *csv);
/* Returns 1: fields are those of the next line; 0: there is none; PAWL_ECORRUPT. */
int csv_next(struct csv *csv, struct pawl_err *err);
/* Both read a number of at least least from a field; csv_whole a whole one. PAWL_ECORRUPT. */
int csv_double(const struct csv *csv, uint32_t field, double least, double *number,
	struct pawl_err *err);
int csv_whole(const struct csv *csv, uint32_t field, uint32_t least, uint32_t *number,
	struct pawl_err *err);
/* Fails with PAWL_ECORRUPT and "<path>:<line>: <message>". */
int csv_fail(const struct csv *csv, struct pawl_err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Reads all bytes of a file, and appends a 0; the caller frees *bytes. */
int csv_read_file(const char *path, char **bytes, size_t *len_bytes, struct pawl_err *err);

#endif
