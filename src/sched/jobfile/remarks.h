/* Remarks on a file that a person wrote: all mistakes, each with its place. */
#ifndef SCHED_JOBFILE_REMARKS_H
#define SCHED_JOBFILE_REMARKS_H

#include <stddef.h>
#include <stdint.h>

#define REMARKS_MAX     20u  /* remarks stored for a file; further ones are counted */
#define REMARK_TEXT_MAX 480u /* bytes of a remark, terminator included; longer ones are cut */
#define REMARK_SHOW_MAX 64u  /* bytes of a quoted word in a remark, terminator included */

struct remark {
	uint32_t line;              /* from 1 */
	uint32_t column;            /* in characters, from 1 */
	char text[REMARK_TEXT_MAX]; /* what was found, and what is allowed; valid UTF-8 */
};

/* Zero-initialise. */
struct remarks {
	uint32_t n;                    /* entries in at */
	uint32_t dropped;              /* remarks beyond those in at */
	struct remark at[REMARKS_MAX]; /* in the order of the file, once sorted */
};

void remarks_add(struct remarks *remarks, uint32_t line, uint32_t column, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Sorts remarks by line and column. */
void remarks_sort(struct remarks *remarks);

/* Prepares a word of the file for a message: cuts it between characters if it is long, and replaces
 * control characters by '?'. Returns buf, of REMARK_SHOW_MAX bytes. text: valid UTF-8, except for
 * NULs. */
const char *remark_show(char *buf, const char *text, size_t len_bytes);

#endif
