/*
 * The Python process that reads and writes other formats (python/pawl/_convert.py): `python -m
 * pawl._convert …`, in a process group of its own, which ends when this process does.
 *
 * The process sends messages on its descriptor 3, one JSON object a line:
 *   {"progress": [done, total], "name": …}   bytes, and the name of the file they belong to
 *   {"note": …}                              for people
 *   {"error": "PAWL_E…", "message": …}       the process has failed
 *   {"done": true}                           the process has done all its work
 * and any other message that the command understands. Bytes may follow such a message.
 */
#ifndef CLI_CKPT_CONVERT_H
#define CLI_CKPT_CONVERT_H

#include "cli/progress.h"

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

struct json_t;
struct pawl_err;

#define CONVERT_ARGS_MAX 16 /* words of the process's command line, terminator included */

/* Zero-initialise. */
struct convert {
	char python[PATH_MAX];     /* path of the interpreter */
	pid_t pid;                 /* process id; 0: none, or waited for */
	FILE *from;                /* messages of the process; NULL: not started */
	char *line;                /* message being read; owned */
	size_t line_cap;           /* bytes allocated for line */
	struct progress *progress; /* the caller's */
	const char *command;       /* name that is printed before notes */
};

/* Starts the process. python: NULL, or as run_python_find takes it. args: a NULL-terminated
 * array. */
int convert_start(struct convert *convert, const char *python, const char *const *args,
	struct pawl_err *err);
/* Waits for the next message that is neither progress nor a note; the caller releases it. NULL: all
 * is done. Returns the error that the process reports, PAWL_EIO if it ends without one, or
 * PAWL_ECANCELED after a signal. */
int convert_next(struct convert *convert, struct json_t **message, struct pawl_err *err);
/* Reads bytes that follow a message. */
int convert_read(struct convert *convert, void *buf, size_t len_bytes, struct pawl_err *err);
/* Ends the process, done or not. Zeroed is fine. */
void convert_stop(struct convert *convert);

#endif
