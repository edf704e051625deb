/* Shared by the files of shepherd*.c. */
#ifndef ENGINE_LOCAL_SHEPHERD_IMPL_H
#define ENGINE_LOCAL_SHEPHERD_IMPL_H

#include "engine/job_log.h"
#include "engine/local/devices.h"
#include "engine/local/order.h"
#include "engine/submission.h"
#include "io/listener.h"

#include <sys/types.h>

#define CHILD_LINE_MAX 8192u /* longest line that is logged in one piece */

struct shepherd;

/* A process of the run, and its output. */
struct run_child {
	struct shepherd *shepherd;
	pid_t pid; /* 0: it has ended */
	uint32_t rank;
	bool prefixed;             /* each line in the log starts with the rank */
	struct loop_source output; /* read end of stdout and stderr; fd -1: closed */
	size_t line_bytes;         /* bytes in line */
	char line[CHILD_LINE_MAX]; /* a line that is not complete */
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
	struct loop_timer timer;    /* end of the grace period, or next look for strays */
	int64_t wait_ns;            /* time until the next look for strays: strays_backoff_ns */
	size_t request_bytes;       /* bytes received of request */
	struct run_request request; /* a request that is not complete */
	struct run_state state;
	enum shepherd_phase phase;
	uint32_t setups;            /* number of setups started so far */
	uint32_t port;              /* port of the replicas' rendezvous, for AdaptDL */
	struct run_child *children; /* owned; processes of this phase */
	uint32_t children_n;
	uint32_t alive;          /* number of children that are alive */
	bool stopping;           /* the scheduler has sent RUN_STOP, or a signal came */
	bool killing;            /* the grace period is over */
	int64_t deadline_ns;     /* end of the grace period */
	int first_exit;          /* exit code of the first child that failed; 0: none */
	bool by_itself;          /* the run ended without being stopped; set in PHASE_STRAYS */
	pid_t scaler;            /* process of `pawl scale`; 0: none runs */
	uint32_t scaler_n;       /* number of replicas that scaler requests */
	uint64_t resize_to;      /* generation of the rescale under way; 0: none */
	uint32_t resize_n;       /* number of replicas of that generation */
	int64_t resize_until_ns; /* time until which the rescale is retried */
	struct loop_timer resize_timer; /* next try; set only while scaler is 0 */
};

/* ---- shepherd_start.c ---- */

/* Reads the order, becomes the job's user, opens the job's log, enters its directory. */
int shepherd_prepare(struct shepherd *s, struct pawl_err *err);
/* Starts setup for the next node. On errors nothing runs. */
int shepherd_setup(struct shepherd *s, struct pawl_err *err);
/* Starts run for all nodes. On errors, processes that were started are left to the caller. */
int shepherd_run(struct shepherd *s, struct pawl_err *err);
/* Starts `pawl scale` with resize_n. */
int shepherd_scale(struct shepherd *s, struct pawl_err *err);

/* ---- shepherd_output.c ---- */

/* Copies the child's output from fd to the log, while the loop runs. Takes fd, also on errors. */
int shepherd_output_open(struct shepherd *s, struct run_child *child, int fd, struct pawl_err *err);
/* Logs what the child has printed so far, and closes its output. */
void shepherd_output_close(struct run_child *child);

#endif
