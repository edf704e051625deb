/* What a command did to a root, or would do: a line each on stdout, or one JSON document. */
#ifndef CLI_CKPT_REPORT_H
#define CLI_CKPT_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum report_act { REPORT_REMOVE, REPORT_PUT_BACK, REPORT_COMPLETE, REPORT_ADD, REPORT_LEAVE };

/* Zero-initialise, set the first two. */
struct report {
	bool json;           /* one document at the end, instead of lines */
	bool dry;            /* nothing is done: "would remove" */
	struct json_t *rows; /* of the document */
	size_t done;         /* acts but for what was left */
	size_t left;         /* what could not be mended */
	uint64_t freed_bytes;
};

/* name: what it was done to; bytes: of it, 0 if that says nothing; why: NULL if it needs none. */
void report_add(struct report *report, enum report_act act, const char *name, uint64_t bytes,
	const char *why);
/* Says the total, or prints the document, and frees it. Returns an exit code: CLI_DAMAGED if
 * something was left. */
int report_end(struct report *report);

#endif
