/*
 * The shepherd keeps one run of a job going, from its setup to the end of its last process,
 * whatever happens to the scheduler. Each run has its own shepherd process. The engine local
 * (local.h) starts it as the command `pawl shepherd`.
 *
 * Happy path: the shepherd becomes the job's user, and runs setup once per node. Then it starts the
 * ranks: those of an elastic job (replicas:) under `pawl run --elastic`, otherwise `run` once per
 * node. Once all have ended, processes that they left behind get SIGTERM, and SIGKILL once the
 * grace period is over. Then the shepherd records the end and exits. It writes the run's state to
 * the directory of the run (order.h); a byte on the connection notifies the scheduler of a change.
 *
 * If the shepherd is killed, the processes that it started die with it. The scheduler finds their
 * descendants by their environment.
 */
#ifndef ENGINE_LOCAL_SHEPHERD_H
#define ENGINE_LOCAL_SHEPHERD_H

struct pawl_err;

/* Exit code of a run that could not be started. The run's log has the reason. */
#define SHEPHERD_EXIT_START 125

/* Runs the shepherd of the run whose descriptors order.h lists, to its end. Fails only if nothing
 * was started and the end could not be recorded. */
int shepherd_main(struct pawl_err *err);

#endif
