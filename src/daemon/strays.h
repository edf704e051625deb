/* All processes of a run, wherever they hide: those with its directory in their environment
 * (RUN_VAR), and, for the process that adopts orphans, its own children. */
#ifndef DAEMON_STRAYS_H
#define DAEMON_STRAYS_H

#include <stdbool.h>

/* Sends them a signal (0: none); returns how many there are, the caller not among them. Zombies
 * are none. children: those of the caller, too. -1: that there are none is not known, since it
 * could not look at all processes. */
int strays_signal(const char *run_dir, bool children, int signal);

#endif
