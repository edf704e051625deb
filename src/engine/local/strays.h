/*
 * Finds the processes of a run, also those that left its process group or session.
 *
 * While the shepherd (shepherd.h) lives, they are its descendants: it is a subreaper, so it adopts
 * processes that lose their parent. Once it is dead, they are found by their environment. It must
 * have the run's key, which only they and the scheduler know, and the process must belong to the
 * run's user or the scheduler's. Nothing that others could forge makes a process part of a run.
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

/* What identifies the processes of a run whose shepherd is dead. */
struct strays_mark {
	char text[PATH_MAX + 32u]; /* "NAME=VALUE" in the environment; "": no process was started */
	uint32_t uid;              /* real user id of the processes; STRAYS_ANY_USER: not known */
	bool booted;               /* the machine has been booted since the run was started */
};

/* Sets the mark of the run that has this order. */
void strays_mark_set(struct strays_mark *mark, const struct order *order);
/* Sets the mark by the order in a run's directory. PAWL_EIO and others of reading. */
int strays_mark_load(struct strays_mark *mark, const char *run_dir, struct pawl_err *err);
/* Sends a signal (0: none) to the processes that have the mark. Returns their number, without the
 * caller and zombies. Returns -1 if it found none, but could not examine all processes. */
int strays_signal(const struct strays_mark *mark, int signal);
/* Sends a signal to all descendants of the calling process, which must be a subreaper. May miss a
 * process that starts meanwhile. */
void strays_signal_own(int signal);
/* Returns whether any descendant is left. Zombies count until the caller waits for them. */
bool strays_has_own(void);
/* Returns the time until the next look, which goes through all processes: 50 ms, then twice as long
 * each time, up to 5 s. A process that cannot be killed may stay forever. *wait_ns holds the last
 * time; set it to 0 at first. */
int64_t strays_backoff_ns(int64_t *wait_ns);

#endif
