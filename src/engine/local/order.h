/*
 * The files that the scheduler and the process that keeps a job running (shepherd.h) leave for each
 * other in the directory of a run: RUNS/<job>.<generation of its start>/
 *
 *   order    what is to be run, written before the shepherd is started
 *   state    how the run goes, written by the shepherd; the end of the run is synced
 *   sock     where the shepherd listens; nobody listening: there is no shepherd any more
 *   devices  the devices of the run (devices.h)
 *   place    where the replicas are since they were changed (run_placement.h)
 *
 * The directory's path is in the environment of all processes of the run (RUN_VAR). So is a key
 * (RUN_KEY_VAR), another one each start, which only they and the scheduler know: see strays.h.
 */
#ifndef ENGINE_LOCAL_ORDER_H
#define ENGINE_LOCAL_ORDER_H

#include "base/wire.h"
#include "sched/core/core.h"

#include <limits.h>

#define RUN_VAR     "PAWL_SCHED_RUN"
#define RUN_KEY_VAR "PAWL_SCHED_KEY"

#define ORDER_BYTES_MAX (8u << 20)
#define ORDER_NODES_MAX 1024u /* nodes of a run */
#define ORDER_TEXT_MAX  256u  /* bytes of a task's name, or a reason, terminator included */
#define ORDER_KEY_CHARS 32u   /* hexadecimal digits of a run's key */
#define ORDER_ROOT_BYTES                                                                           \
	72u /* bytes of the scheduler's root, terminator included: a socket below it has 107 */

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
	uint64_t generation;       /* generation of the start */
	uint32_t starts;           /* starts of the job before, and changes of its replicas */
	uint32_t uid;              /* user that the run runs as */
	uint32_t owner;            /* user that submitted the job */
	uint32_t gid;              /* group of uid, where that is not the scheduler's user */
	char user[ORDER_TEXT_MAX]; /* name of uid */
	char home[PATH_MAX];       /* home of uid */
	char shell[PATH_MAX];      /* shell of uid */
	char run_dir[PATH_MAX];    /* directory of the run: see above */
	char job_dir[PATH_MAX];    /* directory of the job: logs, hints */
	char task[ORDER_TEXT_MAX]; /* id of the job, the same over all starts */
	char cluster[CORE_NAME_MAX];
	char supervisor[ORDER_TEXT_MAX]; /* URL of the scheduler for this job; "": none */
	char space[CORE_NAME_MAX];       /* namespace of the job at supervisor */
	char scratch[PATH_MAX]; /* start of the name of a scratch directory of its own: disk_tier */
	char key[ORDER_KEY_CHARS + 1u]; /* secret of the run; "": an older version has started it */
	int64_t grace_ns;               /* time from SIGTERM to SIGKILL */
	uint64_t
		nofile_limit; /* files that the run may open (soft limit); the scheduler may more */
	uint32_t nodes_n;
	struct order_node nodes[ORDER_NODES_MAX];
	const uint8_t *submission; /* encoded; after decoding it points into the decoded bytes */
	uint32_t submission_bytes;
};

void order_encode(struct wire_out *out, const struct order *order);
/* Decodes an order. PAWL_ECORRUPT. */
int order_decode(struct order *order, const void *bytes, size_t len_bytes, struct pawl_err *err);
/* Loads the order of the run in that directory. bytes: what order points into, to be deinited in
 * any case. PAWL_ENOENT: there is none; PAWL_ECORRUPT; PAWL_EIO and others of reading. */
int order_load(struct order *order, struct wire_out *bytes, const char *run_dir,
	struct pawl_err *err);
/* Makes a new key of random digits. PAWL_EIO: there are none. */
int order_make_key(char key[ORDER_KEY_CHARS + 1u], struct pawl_err *err);
/* Makes a job's id, the same over all its starts: "pawl-2026-11-25-01-26-13-123456_gpt_7-0", as
 * SkyPilot has it. */
void order_name_task(char task[ORDER_TEXT_MAX], const struct core_job *job, int64_t wall_ns);
/* Returns the replicas of all nodes together. */
uint32_t order_replicas(const struct order *order);

/* ---- the state of a run ---- */

enum run_phase { RUN_STARTING, RUN_RUNNING, RUN_ENDED };

struct run_state {
	enum run_phase phase;
	uint64_t generation;      /* generation that runs */
	uint64_t refused;         /* generation of the last rescale that was refused; 0: none */
	bool by_itself;           /* if over: nobody told the run to stop */
	int exit_code;            /* if over: exit code of the run */
	char why[ORDER_TEXT_MAX]; /* if over without having run: what was in the way; else "" */
};

/* Writes the state to a descriptor of the file; synced if the run is over. PAWL_EIO and others of
 * writing. */
int run_state_save(int fd, const struct run_state *state, struct pawl_err *err);
/* Reads the state. PAWL_ECORRUPT: nothing whole is there (yet), or fd is -1; PAWL_EIO and others of
 * reading: the state is not known. */
int run_state_load(int fd, struct run_state *state, struct pawl_err *err);

/* ---- commands to a shepherd: records of one size ---- */

enum run_command {
	RUN_STOP,    /* grace_ns, 0: end now */
	RUN_RESCALE, /* generation, replicas */
};

struct run_request {
	uint32_t command;
	uint32_t replicas;
	uint64_t generation;
	int64_t grace_ns;
};

#endif
