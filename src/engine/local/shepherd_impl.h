/* Shared by the files of shepherd*.c. */
#ifndef ENGINE_LOCAL_SHEPHERD_IMPL_H
#define ENGINE_LOCAL_SHEPHERD_IMPL_H

#include "engine/job_log.h"
#include "engine/local/devices.h"
#include "engine/local/order.h"
#include "engine/submission.h"
#include "io/listener.h"

#include <sys/types.h>

#define CHILD_LINE_MAX 8192u /* bytes of a line that are kept together */

struct shepherd;

/* A process that was started, and its output. */
struct run_child {
	struct shepherd *shepherd;
	pid_t pid; /* 0: it has ended */
	uint32_t rank;
	bool prefixed;             /* lines of output are marked with the rank */
	struct loop_source output; /* read end of stdout and stderr; fd -1: closed */
	size_t line_bytes;         /* bytes in line */
	char line[CHILD_LINE_MAX]; /* line that has not ended yet */
};

enum shepherd_phase { PHASE_SETUP, PHASE_RUN, PHASE_STRAYS };

struct shepherd {
	struct order order;
	struct wire_out order_bytes; /* owned; order points into it */
	struct submission submission;
	struct sched_spec spec;
	struct devices devices; /* devices of the ranks */
	char scratch[PATH_MAX]; /* directory for disk_tier; "": none */
	struct job_log *log;
	struct loop *loop;
	struct listener listen;
	struct loop_source peer; /* connection to the scheduler; fd -1: there is none */
	struct loop_source signals;
	struct loop_timer timer; /* fires when the grace is over, or strays are to be looked for */
	int64_t wait_ns;         /* time between two looks for strays: strays_backoff_ns */
	size_t request_bytes;    /* bytes in told */
	struct run_request request; /* command that is not complete yet */
	struct run_state state;
	enum shepherd_phase phase;
	uint32_t setups;            /* number of setups begun so far */
	uint32_t port;              /* port at which replicas meet, as AdaptDL has it */
	struct run_child *children; /* owned; processes of this phase */
	uint32_t children_n;
	uint32_t alive;          /* number of children that are alive */
	bool stopping;           /* the scheduler has sent RUN_STOP, or a signal came */
	bool killing;            /* the grace is over */
	int64_t deadline_ns;     /* end of the grace */
	int first_exit;          /* exit code of the first child that failed; 0: none */
	bool by_itself;          /* the run ended by itself; known once only strays are left */
	pid_t scaler;            /* process of `pawl scale`; 0: none runs */
	uint32_t scaler_n;       /* replicas that scaler asks for */
	uint64_t resize_to;      /* generation of the change under way; 0: none */
	uint32_t resize_n;       /* replicas that resize_to has */
	int64_t resize_until_ns; /* time until which the change is tried again */
	struct loop_timer resize_timer;
};

/* ---- shepherd_start.c ---- */

/* Reads the order, becomes the job's user, opens its log, goes to its directory. */
int shepherd_prepare(struct shepherd *s, struct pawl_err *err);
/* Starts setup, on the next node. On errors nothing runs. */
int shepherd_setup(struct shepherd *s, struct pawl_err *err);
/* Starts run, on all nodes. On errors nothing runs. */
int shepherd_run(struct shepherd *s, struct pawl_err *err);
/* Starts `pawl scale` for resize_n. */
int shepherd_scale(struct shepherd *s, struct pawl_err *err);

/* ---- shepherd_output.c ---- */

/* Has what the process prints, from fd, written to the log. Takes fd. */
int shepherd_output_open(struct shepherd *s, struct run_child *one, int fd, struct pawl_err *err);
/* Writes all that the process has printed so far, and no more. */
void shepherd_output_close(struct run_child *one);

#endif
