/*
 * A warm interpreter: a process beside `pawl run`, or another program that starts Python. It has
 * imported torch, and forks into any Python program, so that a test which starts a hundred ranks
 * does not import torch a hundred times. For tests alone: tests/python/lib/nursery.py is that
 * process.
 *
 * PAWL_TEST_SPAWNER in the environment is the number of a SOCK_SEQPACKET socket to it. A request is
 * one message of strings, each with its NUL, and the descriptors beside them:
 *
 *   flags ("g" own process group, "d" dies with its parent, "n" at low priority), namespaces (""),
 *   the numbers that the descriptors get ("0,1,2"), working directory, count of arguments,
 *   arguments, variables
 *
 * The answer is a process id, or "no" and the reason. The process is then a child of ours: the
 * interpreter forks twice, and we are a subreaper.
 *
 * All functions are for the loop's thread.
 */
#ifndef LAUNCH_RUN_WARM_H
#define LAUNCH_RUN_WARM_H

#include <stdbool.h>
#include <sys/types.h>

struct run_program;

/* Takes the socket out of the environment. If there is one, makes this process a subreaper. Call
 * before any other thread starts. */
void run_warm_take(void);
/* Starts program as run_spawn does. Returns false, and starts nothing, if there is no warm
 * interpreter, or it cannot start this program. */
bool run_warm_spawn(const struct run_program *program, pid_t *pid);

#endif
