/*
 * Keeps one run of a job going, from its setup to the end of the last process of it, whatever
 * becomes of the scheduler meanwhile. One a run; started by the engine local (local.h), as the
 * program's command `pawl shepherd`.
 *
 * Happy path: it becomes the job's user, runs setup once a node, then starts the ranks: those of an
 * elastic job (replicas:) under `pawl run --elastic`, else `run` once a node. Once all have ended,
 * what they left behind is told to end, too, and killed when the grace is over; then the end is
 * written down, and it leaves. What the scheduler knows of it is in the directory of the run
 * (order.h); a byte on the connection says that there is news there.
 *
 * If it is killed itself, the processes that it started die with it, and those that these started
 * are found by their environment: by the scheduler.
 */
#ifndef DAEMON_SHEPHERD_H
#define DAEMON_SHEPHERD_H

struct pawl_err;

#define SHEPHERD_EXIT_START                                                                        \
	125 /* the code of a run that could not be started: its log says why                       \
	     */

/* With the descriptors of order.h. Errors only if nothing was started and nobody could be told. */
int shepherd_main(struct pawl_err *err);

#endif
