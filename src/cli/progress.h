/* How far a command is: one line on stderr, drawn over itself, only where stderr is a terminal. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_NAME_MAX                                                                          \
	64u /* bytes of what is named, terminator included; longer ones are cut                    \
	     */

/* Work measured in bytes. Zero-initialised it shows nothing, whatever is called. */
struct progress {
	const char *verb;             /* "verify" */
	char name[PROGRESS_NAME_MAX]; /* what is being worked on */
	uint64_t total_bytes;         /* of all the work; 0: not known */
	uint64_t done_bytes;          /* of it */
	int64_t began_ns;             /* monotonic */
	int64_t drawn_ns;             /* when the line was drawn last; 0: it is not there */
	bool shown;                   /* stderr is a terminal */
};

void progress_start(struct progress *progress, const char *verb, uint64_t total_bytes);
void progress_name(struct progress *progress, const char *dir, const char *file);
void progress_add(struct progress *progress, uint64_t bytes);
/* Wipes the line, so that something else can be said; the next progress_add draws it again. */
void progress_wipe(struct progress *progress);

/* The line, at most columns wide: pure, for the above and for tests. Returns buf. */
const char *progress_line(const struct progress *progress, int64_t now_ns, unsigned columns,
	char *buf, uint32_t cap_bytes);

#endif
