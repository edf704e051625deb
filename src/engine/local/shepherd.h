/*
 * Keeps one run of a job going, from its setup to the end of the last process of it, whatever
 * becomes of the scheduler meanwhile. A process for each run; started by the engine local
 * (local.h), as the program's command `pawl shepherd`.
 *
 * Happy path: it becomes the job's user, runs setup once a node, then starts the ranks: those of an
 * elastic job (replicas:) under `pawl run --elastic`, else `run` once a node. Once all have ended,
 * processes that they left behind are told to end, too, and killed when the grace is over; then the
 * shepherd writes the end down, and leaves. What the scheduler knows of the run is in the directory
 * of the run (order.h); a byte on the connection says that there is news there.
 *
 * If the shepherd is killed, the processes that it started die with it, and those that these
 * started are found by the scheduler, by their environment.
 */
#ifndef ENGINE_LOCAL_SHEPHERD_H
#define ENGINE_LOCAL_SHEPHERD_H

struct pawl_err;

#define SHEPHERD_EXIT_START                                                                        \
	125 /* exit code of a run that could not be started: the run's log says why */

/* Keeps the run that is in the descriptors of order.h. Errors only if nothing was started and
 * nobody could be told. */
int shepherd_main(struct pawl_err *err);

#endif
