/*
 * Which processes are a run's, wherever they hide.
 *
 * While the process that keeps it (shepherd.h) lives, the kernel says it: all that came of it, for
 * it adopts who loses a parent. Once it is dead, what processes have in their environment says it:
 * the run's key, which nobody but the scheduler and they know, in one of the run's user or of the
 * scheduler's. What anybody could say, or could know, makes nobody a run's.
 */
#ifndef DAEMON_STRAYS_H
#define DAEMON_STRAYS_H

#include "base/proc.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct order;
struct pawl_err;

#define STRAYS_ANYBODY UINT32_MAX /* no user's id */

/* What processes of a run are known by once nobody keeps it. */
struct strays_mark {
	char text[PATH_MAX + 32u]; /* "NAME=VALUE" in their environment; "": none was started */
	uint32_t uid;              /* real user id of theirs; STRAYS_ANYBODY: it is not known */
};

/* Of the run that is ordered so; and by the order in its directory: PAWL_EIO and others of
 * reading. */
void strays_mark_set(struct strays_mark *mark, const struct order *order);
int strays_mark_load(struct strays_mark *mark, const char *run_dir, struct pawl_err *err);
/* Sends those that have the mark a signal (0: none); returns how many there are, the caller not
 * among them. Zombies are none. -1: that there are none is not known, since it could not look at
 * all processes. */
int strays_signal(const struct strays_mark *mark, int signal);
/* Sends all that came of the caller's process, which adopts orphans, a signal. One that comes while
 * it looks may be missed. */
void strays_signal_own(int signal);
/* Whether any of them is left. Zombies of the caller count until it waits for them. */
bool strays_has_own(void);
/* Until the next look, which goes through all processes: 50 ms, then each time twice as long, up to
 * 5 s; one that cannot be killed may be there for ever. *wait_ns is the last one, 0 to begin. */
int64_t strays_wait(int64_t *wait_ns);

#endif
