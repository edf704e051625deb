/* Programs that print something short, such as credentials, and files that hold it. All calls
 * block, for a limited time. Any thread. */
#ifndef IO_COMMAND_H
#define IO_COMMAND_H

#include <stddef.h>
#include <stdint.h>

struct pawl_err;

/* A program to run. Its input is empty, and its errors go where this process's go. */
struct command {
	const char *const *argv; /* NULL behind the last; the program is found in PATH */
	const char *const *env;  /* "NAME=VALUE", NULL behind the last; NULL: this process's */
	int64_t limit_ns;        /* the program is killed then, with its children */
	size_t text_max;         /* bytes that it may print */
};

/*
 * Runs a program, which must end with status 0, and returns what it printed, with a NUL behind it;
 * the caller frees it. PAWL_ENOENT: there is no such program; PAWL_ETIMEDOUT; PAWL_ELIMIT: it
 * printed too much; PAWL_EIO: it failed. What was printed is not in err, and erased on failure.
 */
int command_run(const struct command *command, char **text, struct pawl_err *err);
/* Reads a descriptor to its end, in the same way. end_ns: on the monotonic clock; INT64_MAX:
 * never. */
int command_collect(int fd, size_t text_max, int64_t end_ns, char **text, struct pawl_err *err);

#endif
