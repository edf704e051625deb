/* All processes of a run, wherever they hide: those with its directory in their environment
 * (RUN_VAR), and, for the process that adopts orphans, its own children. */
#ifndef DAEMON_STRAYS_H
#define DAEMON_STRAYS_H

#include <stdbool.h>
#include <stdint.h>

/* Sends them a signal (0: none); returns how many there are, the caller not among them. Zombies
 * are none. children: those of the caller, too. */
uint32_t strays_signal(const char *run_dir, bool children, int signal);

#endif
