/*
 * What the scheduler and the process that keeps a job running (shepherd.h) leave for each other in
 * the directory of a run: RUNS/<job>.<generation of its start>/
 *
 *   order   what is to be run, written before the shepherd is started
 *   state   what became of it, written by the shepherd; the end of it is synced
 *   sock    where it listens; nobody listening: there is no shepherd any more
 *   devices which devices it has (devices.h)
 *   place   where its replicas are since they were changed (run_place.h)
 *
 * The directory's path is in the environment of all processes of the run (RUN_VAR). So is a key
 * (RUN_KEY_VAR), another one each start, which only they and the scheduler know: see strays.h.
 */
#ifndef DAEMON_ORDER_H
#define DAEMON_ORDER_H

#include "base/wire.h"
#include "sched/core.h"

#include <limits.h>

#define RUN_VAR     "PAWL_SCHED_RUN"
#define RUN_KEY_VAR "PAWL_SCHED_KEY"

#define ORDER_BYTES_MAX (8u << 20)
#define ORDER_NODES_MAX 1024u /* nodes of a run */
#define ORDER_TEXT_MAX  256u  /* bytes of a task's name, or a reason, terminator included */
#define ORDER_KEY_CHARS 32u   /* hexadecimal digits of a run's key */
#define ORDER_ROOT_BYTES                                                                           \
	72u /* of the scheduler's directory, terminator included: a socket below it has 107 */

/* Descriptors that a shepherd is started with. */
#define ORDER_FD_LISTEN  3
#define ORDER_FD_STATE   4
#define ORDER_FD_ORDER   5
#define ORDER_FD_DEVICES 6 /* of devices.h */

struct order_node {
	char name[CORE_NAME_MAX];
	uint32_t replicas;
};

struct order {
	uint64_t job;
	uint64_t generation;       /* of the start */
	uint32_t starts;           /* of the job before, and changes of its replicas */
	uint32_t uid;              /* whom it runs as */
	uint32_t owner;            /* who submitted it */
	uint32_t gid;              /* group of that user, where another than the scheduler's */
	char user[ORDER_TEXT_MAX]; /* name of it */
	char home[PATH_MAX];       /* of it */
	char shell[PATH_MAX];      /* of it */
	char run_dir[PATH_MAX];    /* see above */
	char job_dir[PATH_MAX];    /* of the job: logs, hints */
	char task[ORDER_TEXT_MAX]; /* id of the job, the same over all starts */
	char cluster[CORE_NAME_MAX];
	char supervisor[ORDER_TEXT_MAX]; /* URL of the scheduler for this job; "": none */
	char space[CORE_NAME_MAX];       /* namespace of the job there */
	char scratch[PATH_MAX];          /* what begins the name of its own: disk_tier */
	char key[ORDER_KEY_CHARS + 1u];  /* see above; "": an older version has started it */
	int64_t grace_ns;                /* from SIGTERM to SIGKILL */
	uint64_t files;                  /* that it may open (soft limit); the scheduler may more */
	uint32_t nodes_n;
	struct order_node nodes[ORDER_NODES_MAX];
	const uint8_t *submission; /* encoded; of one that was decoded: into those bytes */
	uint32_t submission_bytes;
};

void order_encode(struct wire_out *out, const struct order *order);
/* PAWL_ECORRUPT. */
int order_decode(struct order *order, const void *bytes, size_t len_bytes, struct pawl_err *err);
/* Of the run in that directory. bytes: what order points into, to be deinited in any case.
 * PAWL_ENOENT: there is none; PAWL_ECORRUPT; PAWL_EIO and others of reading. */
int order_load(struct order *order, struct wire_out *bytes, const char *run_dir,
	struct pawl_err *err);
/* A new one of random digits. PAWL_EIO: there are none. */
int order_make_key(char key[ORDER_KEY_CHARS + 1u], struct pawl_err *err);
/* A job's id, the same over all its starts: "pawl-2026-11-25-01-26-13-123456_gpt_7-0", as SkyPilot
 * has it. */
void order_name_task(char task[ORDER_TEXT_MAX], const struct core_job *job, int64_t wall_ns);
/* Of all nodes together. */
uint32_t order_replicas(const struct order *order);

/* ---- the state of a run ---- */

enum run_phase { RUN_STARTS, RUN_RUNS, RUN_IS_OVER };

struct run_state {
	enum run_phase phase;
	uint64_t generation;      /* that runs */
	uint64_t refused;         /* of the last rescale that was; 0 */
	bool by_itself;           /* over: nobody told it to stop */
	int exit_code;            /* over: its own */
	char why[ORDER_TEXT_MAX]; /* over, but never ran: what was in the way; "" */
};

/* To a descriptor of the file; synced if it is over. PAWL_EIO and others of writing. */
int run_state_save(int fd, const struct run_state *state, struct pawl_err *err);
/* PAWL_ECORRUPT: nothing whole is there (yet), or fd is -1; PAWL_EIO and others of reading: that is
 * not known. */
int run_state_load(int fd, struct run_state *state, struct pawl_err *err);

/* ---- what a shepherd is told: records of one size ---- */

enum run_command {
	RUN_STOP,    /* grace_ns, 0: end now */
	RUN_RESCALE, /* generation, replicas */
};

struct run_told {
	uint32_t command;
	uint32_t replicas;
	uint64_t generation;
	int64_t grace_ns;
};

#endif
