/*
 * Decides what `pawl run` does next: a state machine over what happens to its workers. Pure.
 *
 * working ──all exit 0──────────────────────────────► draining ──► over
 *    │ a worker fails                                    ▲
 *    ├──────► ending ──restarts left──► waiting ──► working
 *    │ signal   │ (the rest is killed)                   │
 *    └► leaving ┴──none left, or stopping────────────────┘
 *
 * A notice that a machine goes away counts as a signal whose grace ends when the machine does. The
 * signals that the cloud sends beside it, before or after, are no second signals.
 *
 * With several nodes, gathering comes before each working: until all nodes are there. If some of
 * the nodes depart, because their machines go away, the group leaves and drains as after a signal,
 * and then gathers: the others wait for nodes that take the place of those that departed.
 *
 * A joint group whose machine goes away leaves the others. If it has not left by half of the time,
 * and no ranks of other launchers stay, the notice is handled as a signal: the job saves and stops.
 * If others stay, the step may be long: the workers keep what is left of the time, and are killed
 * at its end, as by the loss of the machine.
 *
 * An elastic group goes on without a worker that fails, if the others can (the ranks have written a
 * membership file, membership.h), and replaces it. The number of its workers can be changed. Where
 * the others cannot go on, the workers leave and the group is started again with the new number. It
 * is also started again if only workers are left that were to join others. Once a worker has come
 * to the job's end, the end of a worker that did not train is ignored, whatever its status.
 *
 * A joint group is one of several of an elastic job, each with a launcher of its own. Others may go
 * on though none of its workers lives, and it is started again as a whole only where there are no
 * others. A joint group can leave the others.
 */
#ifndef LAUNCH_NODES_RUN_POLICY_H
#define LAUNCH_NODES_RUN_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#define RUN_FAST_MAX     3u  /* fast failures in a row from which on restarts wait */
#define RUN_EXIT_FAILURE 1   /* failure of the system */
#define RUN_EXIT_USAGE   2   /* the options of the nodes contradict each other */
#define RUN_EXIT_USER    65  /* a worker reports the user's error: not started again */
#define RUN_EXIT_UNSAVED 74  /* done, but commits are not durable; also in _saver.py */
#define RUN_EXIT_NODES   75  /* nodes did not join in time */
#define RUN_EXIT_LEFT    79  /* a worker has left the others, as told; also in pawl.elastic */
#define RUN_EXIT_STOPPED 143 /* saved and ended, as the job stops; also in pawl.elastic */

enum run_phase {
	RUN_IDLE,      /* before the first event */
	RUN_GATHERING, /* no worker runs; the next attempt starts when all nodes are there */
	RUN_WORKING,   /* the group runs */
	RUN_ENDING,    /* the rest of the group was killed and is waited for */
	RUN_WAITING,   /* all are dead; the next attempt starts when the timer fires */
	RUN_LEAVING,   /* the workers finish their step, save and leave */
	RUN_DRAINING,  /* all are gone; the agent makes durable what was committed */
	RUN_OVER,
};

struct run_times {
	int64_t fast_ns; /* a worker that fails, or a node lost, sooner after the start is fast */
	int64_t backoff_ns;     /* first wait; doubled each time */
	int64_t backoff_max_ns; /* longest wait */
	int64_t reserve_ns;     /* part of the grace kept for making durable; half at most */
	int64_t drain_ns;       /* longest time for making durable after a normal end */
	int64_t look_ns;        /* between two looks whether others stay while a group leaves */
};

/* Zero-initialise, then set the members up to gather_max_ns. */
struct run_policy {
	struct run_times times; /* as given */
	uint32_t workers;       /* workers of the group, at least 1; gathers: from RUN_GATHERED */
	uint32_t min_workers;  /* fewest workers that can go on; 0: not elastic. Not with gathers */
	uint32_t max_restarts; /* restarts of the group, at most */
	int64_t grace_ns;      /* time from a signal to the exit */
	/* Exit status of a job that stops because a machine goes away; 0: 128 + signal. */
	int preempted_status;
	bool joint;   /* other ranks of the job have launchers of their own; with min_workers */
	bool gathers; /* there are several nodes */
	int64_t gather_max_ns; /* longest wait for nodes */

	enum run_phase phase;   /* current phase */
	uint32_t alive;         /* workers started and not yet reaped */
	uint32_t retiring;      /* live workers that were told to leave the others, at most alive */
	uint32_t change;        /* number of workers for RUN_DO_ADD, RUN_DO_RETIRE */
	bool finishing;         /* a worker has come to the end of the job: none is added */
	bool quits;             /* a joint group: told to leave the others */
	int quit_signal;        /* quits, noticed: signal that follows if it has not left in time;
				 * 0: it has all the time it wants */
	uint32_t restarts;      /* restarts so far, at most max_restarts */
	uint32_t fast_failures; /* failures in a row that came fast and without progress */
	uint64_t commits;       /* steps committed when the last failure came */
	int64_t started_ns;     /* start of this attempt */
	int64_t timer_ns;       /* when RUN_TIMEOUT is wanted; 0: not at all */
	int64_t deadline_ns;    /* time of the exit; valid with signal, noticed, RUN_LEAVING */
	int signal;             /* signal that told us to stop; 0: none yet */
	bool noticed;           /* a machine of the job goes away */
	bool departing;         /* RUN_DO_GATHER follows RUN_DRAINING: some of the nodes depart */
	bool will_restart;      /* in RUN_ENDING, RUN_LEAVING: another attempt follows */
	bool counted;           /* with will_restart: that attempt is one of max_restarts */
	int status;             /* exit status */
};

/* Effect of the end of a worker on the others. */
enum run_verdict {
	RUN_VERDICT_UNKNOWN,   /* not judged yet; the policy takes it as NONE_LEFT */
	RUN_VERDICT_GO_ON,     /* others can go on; joint: also elsewhere */
	RUN_VERDICT_FINISHING, /* joint: the job is ending: live ranks go on, none is added */
	RUN_VERDICT_STOPPING,  /* joint: the worker ended because the job is to stop */
	RUN_VERDICT_REJECTED,  /* joint: the worker was not admitted, and none of ours trains */
	RUN_VERDICT_NONE_LEFT, /* nobody goes on */
	/* joint: nobody goes on; this launcher is the first, and no other has had ranks. */
	RUN_VERDICT_SOLE_LAUNCHER,
};

/* How a worker ended. */
struct run_exit {
	int status;               /* exit code, or 128 + signal */
	int signal;               /* signal that killed it; 0: it exited */
	bool retired;             /* the worker was told to leave the others */
	bool outside;             /* others train, or trained to the end, without it; not joint */
	enum run_verdict verdict; /* effect of the end on the others */
	int64_t lasted_ns;        /* time since the worker's start */
};

enum run_event_kind {
	RUN_BEGIN,    /* once, first */
	RUN_GATHERED, /* in RUN_GATHERING, all nodes are there: workers */
	RUN_REFUSED,  /* in RUN_GATHERING: we cannot take part; status */
	RUN_EXITED,   /* a worker ended: exit, commits */
	RUN_LOST,     /* a node is lost: workers (that had not ended), commits */
	RUN_SIGNALED, /* signal */
	RUN_NOTICED,  /* a machine of the job goes away: signal that this counts as, deadline_ns */
	RUN_DEPARTS,  /* as RUN_NOTICED, and the job goes on without that machine. Gathers only */
	RUN_SCALED,   /* the number of workers is to change: workers, survivable */
	RUN_QUIT,     /* joint: all workers are to leave the others */
	RUN_QUIT_BY,  /* as RUN_NOTICED, and the workers are to leave the others. Joint only */
	RUN_TIMEOUT,  /* timer_ns was reached */
	RUN_DRAINED,  /* ok */
};

/* Something that happened. */
struct run_event {
	enum run_event_kind kind; /* tells which of the others count */
	int64_t now_ns;           /* monotonic */
	uint32_t workers;         /* number of workers */
	int status;               /* our exit status */
	struct run_exit exit;     /* how the worker ended */
	/* RUN_SCALED: the workers can go on with fewer or more. RUN_TIMEOUT of a joint group: ranks
	 * of other launchers stay. */
	bool survivable;
	uint64_t commits;    /* steps that the agent has seen committed since it opened */
	int signal;          /* number of the signal */
	int64_t deadline_ns; /* when the job must have exited, monotonic */
	bool ok;             /* all that was committed is durable */
};

/* Bits of what run_policy_step returns, to be done in this order. */
enum run_action {
	RUN_DO_NOTICE = 1,   /* tell the workers to stop */
	RUN_DO_KILL = 2,     /* SIGKILL to every worker that lives */
	RUN_DO_GATHER = 4,   /* send RUN_GATHERED once all nodes are there */
	RUN_DO_START = 8,    /* start the group */
	RUN_DO_DRAIN = 16,   /* have the agent make durable what it has */
	RUN_DO_EXIT = 32,    /* exit with status */
	RUN_DO_ADD = 64,     /* start change more workers, which join the others */
	RUN_DO_RETIRE = 128, /* tell change workers to leave the others */
	RUN_DO_SHRINK = 256, /* log that a worker is not replaced, because new ones fail at once */
};

/* Whether the number of workers may change now. */
bool run_policy_can_scale(const struct run_policy *policy);
/* Advances the machine. Returns run_action bits; the caller then sets its timer to timer_ns. */
unsigned run_policy_step(struct run_policy *policy, const struct run_event *event);

#endif
