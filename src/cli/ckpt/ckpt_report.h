/* Reports what a command did to a root, or would do: a line each on stdout, or one JSON
 * document. */
#ifndef CLI_CKPT_CKPT_REPORT_H
#define CLI_CKPT_CKPT_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum report_act {
	REPORT_REMOVE,
	REPORT_PUT_BACK,
	REPORT_COMPLETE,
	REPORT_ADD,
	REPORT_COPY,
	REPORT_KEEP,
	REPORT_LEAVE
};

/* Zero-initialise; the caller sets json and dry. */
struct report {
	bool json;           /* print one document at the end, instead of lines */
	bool dry;            /* acts were not done: "would remove" */
	struct json_t *rows; /* rows of the document; NULL: none yet */
	size_t done;         /* number of acts, without REPORT_LEAVE */
	size_t left;         /* number of things that could not be repaired */
	uint64_t freed_bytes;
};

/* Reports an act on name. bytes: size of name; 0: no size is reported. why: reason; NULL: none. */
void report_add(struct report *report, enum report_act act, const char *name, uint64_t bytes,
	const char *why);
/* Prints the total, or the document, and frees it. Returns an exit code: CLI_DAMAGED if something
 * was left. */
int report_end(struct report *report);

#endif
