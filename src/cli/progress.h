/* The progress of a command: one line on stderr, drawn over itself, only if stderr is a
 * terminal. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_NAME_MAX                                                                          \
	64u /* bytes of the name shown, terminator included; longer names are cut */

/* Work measured in bytes. A zero-initialised struct shows nothing, whatever is called. */
struct progress {
	const char *verb;             /* first word of the line: "verify" */
	char name[PROGRESS_NAME_MAX]; /* file being worked on */
	uint64_t total_bytes;         /* bytes of all the work; 0: not known */
	uint64_t done_bytes;          /* bytes done so far */
	int64_t began_ns;             /* time of the start, monotonic */
	int64_t drawn_ns; /* time when the line was drawn last; 0: the line is not shown */
	bool shown;       /* stderr is a terminal */
};

void progress_start(struct progress *progress, const char *verb, uint64_t total_bytes);
void progress_name(struct progress *progress, const char *dir, const char *file);
void progress_add(struct progress *progress, uint64_t bytes);
/* Wipes the line, so that something else can be printed; the next progress_add draws it again. */
void progress_wipe(struct progress *progress);

/* Formats the line, at most columns wide. Pure, for progress_add and for tests. Returns buf. */
const char *progress_line(const struct progress *progress, int64_t now_ns, unsigned columns,
	char *buf, uint32_t cap_bytes);

#endif
