/* All processes of a run, wherever they hide: those with its directory in their environment
 * (RUN_VAR), and, for the process that adopts orphans, its own children. */
#ifndef DAEMON_STRAYS_H
#define DAEMON_STRAYS_H

#include <stdbool.h>
#include <stdint.h>

/* Sends them a signal (0: none); returns how many there are, the caller not among them. Zombies
 * are none. children: those of the caller, too. -1: that there are none is not known, since it
 * could not look at all processes. */
int strays_signal(const char *run_dir, bool children, int signal);
/* Until the next look, which goes through all processes: 50 ms, then each time twice as long, up to
 * 5 s; one that cannot be killed may be there for ever. *wait_ns is the last one, 0 to begin. */
int64_t strays_wait(int64_t *wait_ns);

#endif
