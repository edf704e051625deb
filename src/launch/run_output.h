/*
 * Everything that `pawl run` and its workers print: workers' pipes to our stdout and stderr, line
 * by line with the rank in front, and to log files as it came.
 *
 * A thread does it, so that a stuck terminal, a paused pager or a hung log directory stops neither
 * the agent nor the answer to a signal. Our own stderr goes through the same thread (run_output
 * puts a pipe in its place). So the output of a worker stands above the log line of its death, and
 * log_line never blocks. Open it before anything else that starts threads or prints.
 */
#ifndef LAUNCH_RUN_OUTPUT_H
#define LAUNCH_RUN_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;
struct run_output;

/* One stream of a rank: where it comes from, and where it goes. */
struct run_stream {
	int fd;          /* read end of the worker's pipe; taken over */
	uint32_t rank;   /* rank in the job */
	bool is_stderr;  /* goes to our stderr, else to our stdout */
	const char *log; /* file to append it to as well, its directory made; NULL: none. Copied */
};

/* Opens the output; only one may be open at a time. */
int run_output_open(struct run_output **output, struct pawl_err *err);
/* Starts a stream. It ends by itself when its last writer has closed it. On failure fd is
 * closed. */
int run_output_add(struct run_output *output, const struct run_stream *from, struct pawl_err *err);
/* Restores our stderr. Returns when all output is written, or after TIME_RUN_OUTPUT. NULL is fine.
 * Nothing may be added afterwards. */
void run_output_close(struct run_output *output);

#endif
