/*
 * The Python process that reads and writes other formats (python/pawl/_convert.py): `python -m
 * pawl._convert …`, in a process group of its own, which ends when this process does.
 *
 * On its descriptor 3 it says what it does, a JSON object a line:
 *   {"progress": [done, total], "name": …}   bytes; and what they are of
 *   {"note": …}                              for people
 *   {"error": "PAWL_E…", "message": …}       it has failed
 *   {"done": true}                           it has not
 * and whatever else its caller here understands, which bytes may follow.
 */
#ifndef CLI_CONVERT_H
#define CLI_CONVERT_H

#include "cli/progress.h"

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

struct json_t;
struct pawl_err;

#define CONVERT_ARGS_MAX 16 /* of its command line, terminator included */

/* Zero-initialise. */
struct convert {
	char python[PATH_MAX];     /* interpreter */
	pid_t pid;                 /* 0: none, or waited for */
	FILE *from;                /* what it says; NULL: not started */
	char *line;                /* being read; owned */
	size_t line_cap;           /* of it */
	struct progress *progress; /* the caller's */
	const char *command;       /* in front of notes */
};

/* python: NULL, or as run_python_find takes it. args: a NULL-terminated array. */
int convert_start(struct convert *convert, const char *python, const char *const *args,
	struct pawl_err *err);
/* The next message that is neither progress nor note, the caller's to release; NULL when all is
 * done. Its own error, or PAWL_EIO when it ends without one; PAWL_ECANCELED after a signal. */
int convert_next(struct convert *convert, struct json_t **message, struct pawl_err *err);
/* Bytes that follow a message. */
int convert_read(struct convert *convert, void *buf, size_t len_bytes, struct pawl_err *err);
/* Ends it, done or not. Zeroed is fine. */
void convert_stop(struct convert *convert);

#endif
