/* The parts of a running mirror, for its files: mirror.c, mirror_jobs.c, mirror_program.c and
 * mirror_serve.c. All run on the loop's thread. */
#ifndef MIRROR_MIRROR_IMPL_H
#define MIRROR_MIRROR_IMPL_H

#include "io/listener.h"
#include "io/loop.h"
#include "mirror/behind.h"
#include "mirror/core.h"
#include "mirror/mirror.h"
#include "mirror/start.h"
#include "mirror/uplink.h"
#include "mirror/watch.h"
#include "mirror/workdir.h"
#include "pawl/err.h"

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

#define MIRROR_WAITERS_MAX 16u /* commands that wait for a flush */

struct leases;
struct pin;
struct scan;

/* A pinned unit. */
struct mirror_pin {
	struct core_unit *unit; /* the core's */
	struct pin *pin;        /* owned */
};

/* A command that waits for a flush. */
struct mirror_waiter {
	int fd;              /* connection of the command; -1: none */
	int64_t deadline_ns; /* the command is answered by then */
};

struct mirror {
	const struct mirror_options *options; /* the caller's */
	struct workdir work;                  /* directories, and their lock */
	struct core core;                     /* units and what is to be done with them */
	struct loop *loop;
	struct scan *scan;
	struct leases *leases;
	struct uplink *uplink;
	struct behind *behind;            /* NULL: all was fetched */
	struct watch watch;               /* tells of changes */
	struct loop_source watch_source;  /* readable when something has changed */
	struct loop_source signals;       /* a signalfd; fd -1: not made */
	struct loop_timer look_timer;     /* time to scan */
	struct loop_timer step_timer;     /* time for the core's next job */
	struct loop_timer grace_timer;    /* time to give up, after a signal */
	struct loop_timer progress_timer; /* time to say what is left, at the end */
	struct loop_timer waiter_timer;   /* time to answer a command that waits */
	struct listener listener;         /* for commands */
	struct mirror_waiter waiters[MIRROR_WAITERS_MAX];
	struct mirror_pin *pins; /* owned */
	uint32_t pins_n;         /* number of pins */
	struct core_job job;     /* job under way; CORE_NOTHING: none */
	int64_t look_began_ns;   /* when the last scan that succeeded began */
	int64_t looked_ns;       /* when the last scan ended */
	int64_t look_took_ns;    /* how long it took */
	int64_t looks_since_end; /* scans since the program ended */
	pid_t program;           /* 0: none, or it has ended */
	pthread_t guard;         /* see mirror_guard */
	int guard_fd;            /* eventfd: the guard shall end; -1: there is none */
	sigset_t old_mask;       /* signals that were blocked at start: the program's */
	bool ended;              /* the program has ended, or there is none and a signal came */
	bool late;               /* the grace is over */
	bool full_logged;        /* a log line said that pins are at their limit */
	bool unleased_logged;    /* a log line said that files cannot be leased */
	bool failing_logged;     /* a log line said that scans fail */
	bool overflow_logged;    /* a log line said that there are too many files */
	int signal;              /* first signal to end; 0: none */
	int code;                /* exit code */
	char last_error[256];    /* newest failure since the last success; "" */
};

/* ---- mirror.c ---- */

/* Has the directory be looked at soon. */
void mirror_look_soon(struct mirror *mirror);
/* Does what is to be done, and ends the loop when nothing is left. */
void mirror_step(struct mirror *mirror);

/* ---- mirror_jobs.c ---- */

/* Gives up broken pins, and begins all jobs that can be begun. Sets *due_ns as core_next does. */
void mirror_do_jobs(struct mirror *mirror, int64_t *due_ns);
void mirror_take_results(
	struct mirror *mirror); /* takes what the uplink did, and what was fetched behind */
void mirror_drop_pins(struct mirror *mirror);

/* ---- mirror_program.c ---- */

/* Blocks and takes the signals; before any thread is started. */
int mirror_take_signals(struct mirror *mirror, struct pawl_err *err);
/* While the loop does not run yet: a signal to end ends the process, whatever the network does.
 * Nothing is lost then: the program has not begun. */
int mirror_guard(struct mirror *mirror, struct pawl_err *err);
void mirror_unguard(struct mirror *mirror);
int mirror_start_program(struct mirror *mirror, struct pawl_err *err);

/* ---- mirror_serve.c ---- */

int mirror_listen(struct mirror *mirror, struct pawl_err *err);
/* Answers the commands whose flush has ended; all: every one that waits. */
void mirror_answer_waiters(struct mirror *mirror, bool all);
void mirror_stop_listening(struct mirror *mirror);

#endif
