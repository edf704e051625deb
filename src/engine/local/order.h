/*
 * The files through which the scheduler and the shepherd (shepherd.h) of a run communicate. They
 * are in the directory of the run, RUNS/<job>.<generation of its start>/:
 *
 *   order    what to run; written before the shepherd is started
 *   state    state of the run, written by the shepherd; the end of the run is synced
 *   sock     socket on which the shepherd listens; if nobody listens, the shepherd is dead
 *   devices  devices of the run (devices.h)
 *   place    placement of the replicas, once they were rescaled (run_placement.h)
 *
 * All processes of the run have the path of the directory in their environment (RUN_VAR). They also
 * have a key there (RUN_KEY_VAR), new at each start, which only they and the scheduler know: see
 * strays.h.
 */
#ifndef ENGINE_LOCAL_ORDER_H
#define ENGINE_LOCAL_ORDER_H

#include "base/proc.h"
#include "base/wire.h"
#include "sched/core/core.h"

#include <limits.h>

#define RUN_VAR     "PAWL_SCHED_RUN"
#define RUN_KEY_VAR "PAWL_SCHED_KEY"

#define ORDER_BYTES_MAX (8u << 20)
#define ORDER_NODES_MAX 1024u /* nodes of a run */
#define ORDER_TEXT_MAX  256u  /* bytes of a task's id or a reason, terminator included */
#define ORDER_KEY_CHARS 32u   /* hexadecimal digits of a run's key */
/* Bytes of the scheduler's root, terminator included: the path of a socket below the root has at
 * most 107. */
#define ORDER_ROOT_BYTES 72u

/* Descriptors that a shepherd is started with. */
#define ORDER_FD_LISTEN  3
#define ORDER_FD_STATE   4
#define ORDER_FD_ORDER   5
#define ORDER_FD_DEVICES 6 /* file of devices.h */

struct order_node {
	char name[CORE_NAME_MAX];
	uint32_t replicas;
};

struct order {
	uint64_t job;
	uint64_t generation; /* generation of the start */
	uint32_t starts;     /* earlier starts of the job, and rescales */
	uint32_t uid;        /* user that the run runs as */
	uint32_t owner;      /* user that submitted the job */
	uint32_t gid;        /* primary group of uid; used if uid is not the scheduler's user */
	char user[ORDER_TEXT_MAX]; /* name of uid */
	char home[PATH_MAX];       /* home of uid */
	char shell[PATH_MAX];      /* shell of uid */
	char run_dir[PATH_MAX];    /* directory of the run */
	char job_dir[PATH_MAX];    /* directory of the job: logs, hints */
	char task[ORDER_TEXT_MAX]; /* id of the job, the same over all starts */
	char cluster[CORE_NAME_MAX];
	char supervisor[ORDER_TEXT_MAX]; /* URL of the scheduler for this job; "": none */
	char space[CORE_NAME_MAX];       /* namespace of the job at supervisor */
	char scratch[PATH_MAX];          /* base of the path of the scratch directory (disk_tier) */
	char key[ORDER_KEY_CHARS + 1u];  /* secret of the run; "": an older version started it */
	char boot[PROC_BOOT_ID];         /* boot of the machine at the start; "": not known */
	/* The job's request at the start. It may have changed since its submission. */
	uint32_t least, most; /* replicas; most 0: an older version wrote the order */
	int32_t priority;
	int64_t grace_ns;      /* time from SIGTERM to SIGKILL */
	uint64_t nofile_limit; /* RLIMIT_NOFILE's soft limit of the run */
	uint32_t nodes_n;
	struct order_node nodes[ORDER_NODES_MAX];
	const uint8_t *submission; /* encoded; after decoding, points into the decoded bytes */
	uint32_t submission_bytes;
};

void order_encode(struct wire_out *out, const struct order *order);
/* Decodes an order. bytes must outlive it. PAWL_ECORRUPT. */
int order_decode(struct order *order, const void *bytes, size_t len_bytes, struct pawl_err *err);
/* Loads the order in the directory of a run. order points into bytes, which the caller deinits in
 * any case. PAWL_ENOENT: there is none; PAWL_ECORRUPT; PAWL_EIO and other errors of reading. */
int order_load(struct order *order, struct wire_out *bytes, const char *run_dir,
	struct pawl_err *err);
/* Makes a new random key. PAWL_EIO: no random bytes. */
int order_make_key(char key[ORDER_KEY_CHARS + 1u], struct pawl_err *err);
/* Makes a job's id, the same over all its starts: "pawl-2026-11-25-01-26-13-123456_gpt_7-0", in
 * SkyPilot's form. */
void order_name_task(char task[ORDER_TEXT_MAX], const struct core_job *job, int64_t wall_ns);
/* Returns the number of replicas on all nodes. */
uint32_t order_replicas(const struct order *order);

/* ---- the state of a run ---- */

enum run_phase { RUN_STARTING, RUN_RUNNING, RUN_ENDED };

struct run_state {
	enum run_phase phase;
	uint64_t generation;      /* generation that runs */
	uint64_t refused;         /* newest rescale that was refused; 0: none */
	bool by_itself;           /* if ended: the run ended without being stopped */
	int exit_code;            /* if ended: exit code of the run */
	char why[ORDER_TEXT_MAX]; /* if it could not be started: the reason; else "" */
};

/* Writes the state to its file; syncs it if the run has ended. PAWL_EIO and other errors of
 * writing. */
int run_state_save(int fd, const struct run_state *state, struct pawl_err *err);
/* Reads the state. PAWL_ECORRUPT: there is no whole state (yet), or fd is -1; PAWL_EIO and other
 * errors of reading: the state is not known. On errors *state is unchanged. */
int run_state_load(int fd, struct run_state *state, struct pawl_err *err);

/* ---- requests to a shepherd: records of one size ---- */

enum run_command {
	RUN_STOP,    /* uses grace_ns; 0: kill at once */
	RUN_RESCALE, /* uses generation and replicas */
};

struct run_request {
	uint32_t command; /* an enum run_command */
	uint32_t replicas;
	uint64_t generation;
	int64_t grace_ns;
};

#endif
