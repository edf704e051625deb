/*
 * Finds the processes of a run, wherever they hide.
 *
 * While the process that keeps the run (shepherd.h) lives, the kernel tells: they are its
 * descendants, for it adopts a process that loses its parent. Once it is dead, the environment of
 * processes tells: the run's key, which only the scheduler and they know, in a process of the run's
 * user or of the scheduler's. What anybody could say, or could know, makes no process a run's.
 */
#ifndef ENGINE_LOCAL_STRAYS_H
#define ENGINE_LOCAL_STRAYS_H

#include "base/proc.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct order;
struct pawl_err;

#define STRAYS_ANY_USER UINT32_MAX /* no user's id */

/* The mark by which processes of a run are known once nobody keeps it. */
struct strays_mark {
	char text[PATH_MAX + 32u]; /* "NAME=VALUE" in the environment; "": no process was started */
	uint32_t uid;              /* real user id of the processes; STRAYS_ANY_USER: not known */
};

/* Sets the mark of the run that has this order. */
void strays_mark_set(struct strays_mark *mark, const struct order *order);
/* Sets the mark by the order in a run's directory. PAWL_EIO and others of reading. */
int strays_mark_load(struct strays_mark *mark, const char *run_dir, struct pawl_err *err);
/* Sends a signal (0: none) to the processes that have the mark. Returns how many there are, without
 * the caller and zombies. -1: it found none, and could not look at all processes. */
int strays_signal(const struct strays_mark *mark, int signal);
/* Sends a signal to all descendants of the caller's process, which adopts orphans. A process that
 * comes meanwhile may be missed. */
void strays_signal_own(int signal);
/* Returns whether any descendant is left. Zombies of the caller count until it waits for them. */
bool strays_has_own(void);
/* Returns the time until the next look, which goes through all processes: 50 ms, then each time
 * twice as long, up to 5 s; a process that cannot be killed may be there for ever. *wait_ns is the
 * last one, 0 to begin. */
int64_t strays_backoff_ns(int64_t *wait_ns);

#endif
