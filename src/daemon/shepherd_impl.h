/* What the files of shepherd*.c share. */
#ifndef DAEMON_SHEPHERD_IMPL_H
#define DAEMON_SHEPHERD_IMPL_H

#include "base/listener.h"
#include "daemon/devices.h"
#include "daemon/order.h"
#include "daemon/submission.h"
#include "sched/job_log.h"

#include <sys/types.h>

#define CHILD_LINE_MAX 8192u /* bytes of a line that are kept together */

struct shepherd;

/* A process that was started, and what it prints. */
struct run_child {
	struct shepherd *shepherd;
	pid_t pid; /* 0: it has ended */
	uint32_t rank;
	bool prefixed;             /* its lines are marked with the rank */
	struct loop_source output; /* read end of its stdout and stderr; fd -1: closed */
	size_t line_bytes;         /* in line */
	char line[CHILD_LINE_MAX]; /* one that has not ended yet */
};

enum shepherd_phase { PHASE_SETUP, PHASE_RUN, PHASE_STRAYS };

struct shepherd {
	struct order order;
	struct wire_out order_bytes; /* owned; order points into it */
	struct submission submission;
	struct sched_spec spec;
	struct devices devices; /* of its ranks */
	char scratch[PATH_MAX]; /* directory for disk_tier; "": it has none */
	struct job_log *log;
	struct loop *loop;
	struct listener listen;
	struct loop_source peer; /* the scheduler; fd -1: there is none */
	struct loop_source signals;
	struct loop_timer timer; /* the grace is over, or strays are to be looked for */
	int64_t wait_ns;         /* between two looks for them: strays_wait */
	size_t told_bytes;       /* in told */
	struct run_told told;    /* that has not come whole yet */
	struct run_state state;
	enum shepherd_phase phase;
	uint32_t setups;            /* done so far */
	uint32_t port;              /* at which replicas meet, as AdaptDL has it */
	struct run_child *children; /* owned; of this phase */
	uint32_t children_n;
	uint32_t alive;          /* of them */
	bool stopping;           /* it was told to end */
	bool killing;            /* its grace is over */
	int64_t deadline_ns;     /* of it */
	int first_exit;          /* of the first that failed; 0 */
	bool by_itself;          /* how the run ended, once strays are left alone */
	pid_t scaler;            /* `pawl scale`; 0: none runs */
	uint32_t scaler_n;       /* replicas that it asks for */
	uint64_t resize_to;      /* generation; 0: none */
	uint32_t resize_n;       /* replicas of it */
	int64_t resize_until_ns; /* it is tried again until then */
	struct loop_timer resize_timer;
};

/* ---- shepherd_start.c ---- */

/* Reads the order, becomes the job's user, opens its log, goes to its directory. */
int shepherd_prepare(struct shepherd *s, struct pawl_err *err);
/* Starts setup, on the next node; or run, on all of them. What fails is in err, and nothing
 * runs. */
int shepherd_setup(struct shepherd *s, struct pawl_err *err);
int shepherd_run(struct shepherd *s, struct pawl_err *err);
/* `pawl scale` for resize_n. */
int shepherd_scale(struct shepherd *s, struct pawl_err *err);

/* ---- shepherd_output.c ---- */

/* Has what the process prints, from fd, written to the log. fd is taken over. */
int shepherd_listen_to(struct shepherd *s, struct run_child *one, int fd, struct pawl_err *err);
/* All that it has printed so far, and no more. */
void shepherd_output_close(struct run_child *one);

#endif
