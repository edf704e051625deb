/*
 * Shows the other launchers of a job which ranks of this one live, in a file beside the membership
 * file that they share (membership.h). The file changes every few seconds. Other launchers judge by
 * these changes alone, on their own clocks.
 *
 * A thread writes the file, so that a file system that hangs blocks nothing else. If the file
 * cannot be written, that is logged once, and others decide as if no rank lived here.
 *
 * All functions are for the loop's thread.
 */
#ifndef LAUNCH_RUN_PRESENCE_H
#define LAUNCH_RUN_PRESENCE_H

#include <stdint.h>

struct membership_alive;
struct pawl_err;
struct run_presence;

/* Starts the thread. membership_path is copied. PAWL_ENOMEM, PAWL_EIO. */
int run_presence_open(struct run_presence **presence, const char *membership_path,
	uint32_t launcher, struct pawl_err *err);
/* Has the thread write which ranks live, and whether they leave; alive->heartbeat does not count.
 */
void run_presence_update(struct run_presence *presence, const struct membership_alive *alive);
/* Shows that no rank lives here any more, and ends the thread. NULL is fine. */
void run_presence_close(struct run_presence *presence);

#endif
