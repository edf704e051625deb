/* Remarks on what is wrong with a file that a person wrote: all of it, each with its place. */
#ifndef SCHED_JOBFILE_REMARKS_H
#define SCHED_JOBFILE_REMARKS_H

#include <stddef.h>
#include <stdint.h>

#define REMARKS_MAX     20u  /* remarks kept on a file; further ones are counted */
#define REMARK_TEXT_MAX 480u /* bytes of a remark, terminator included; longer ones are cut */
#define REMARK_SHOW_MAX 64u  /* bytes of a user's word in a remark, terminator included */

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

/* Writes a user's word for a message: cut between characters if it is long, control characters as
 * '?'. Returns buf, of REMARK_SHOW_MAX bytes. text: valid UTF-8, but for NULs. */
const char *remark_show(char *buf, const char *text, size_t len_bytes);

#endif
