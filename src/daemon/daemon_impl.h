/* What the files of daemon*.c share. */
#ifndef DAEMON_DAEMON_IMPL_H
#define DAEMON_DAEMON_IMPL_H

#include "agent/proto.h"
#include "base/listener.h"
#include "daemon/daemon.h"
#include "daemon/history.h"
#include "daemon/local.h"
#include "daemon/metrics.h"
#include "daemon/order.h"
#include "daemon/talk.h"
#include "sched/store.h"

#include <limits.h>
#include <sys/types.h>
#include <time.h>

#define CLIENTS_MAX 256u
#define ENDED_SHOWN 1000u /* newest jobs that are over, in a list */

/* An event that waits for its turn, with what it points to. */
struct daemon_event {
	struct core_event event;
	struct daemon_event *next;
	struct core_offer offer;
	char node[CORE_NAME_MAX];
	char pool[CORE_NAME_MAX];
	struct core_run runs[];
};

struct described;

/* Somebody at the socket. */
struct daemon_client {
	struct daemon *daemon;
	struct daemon_client *next;
	struct proto_conn conn;
	struct loop_source source;
	struct loop_timer turn; /* it has said more than was answered yet */
	struct wire_out out;    /* that was not sent yet, from off on */
	size_t off;
	uint32_t uid;
	int64_t heard_ns; /* when it last said or took something */
	bool closing;
};

/* What a job has last told in its file. */
struct daemon_hint {
	uint64_t job;
	struct timespec changed; /* of the file */
	bool complained;         /* that it is wrong was said */
};

struct daemon {
	struct daemon_options *options; /* the caller's */
	struct loop *loop;
	struct sched_store *store;
	struct sched_core *core;
	const struct sched_engine *engine;
	void *engine_self;                      /* one of the two below */
	struct local *local;                    /* NULL: another engine */
	struct sched_slurm *slurm;              /* likewise */
	char program[PATH_MAX];                 /* this one's path, for pilots */
	char spool[PATH_MAX];                   /* of the engine slurm */
	struct described *described;            /* see daemon_slurm.c */
	const char *scratch;                    /* directory, of options; NULL: root's */
	struct core_pool pools[CORE_POOLS_MAX]; /* of options, for the core */
	int lock_fd;
	struct listener listen; /* for commands */
	struct loop_source signals;
	struct loop_timer wake;  /* of the core */
	struct loop_timer turn;  /* events wait */
	struct loop_timer hints; /* files of hints are looked at */
	struct daemon_event *first, *last;
	struct daemon_client *clients;
	uint32_t clients_n;
	int64_t base_ns; /* the core's clock when the monotonic one was mono_ns */
	int64_t mono_ns;
	char boot[PROC_BOOT_ID];  /* of this machine */
	struct history *history;  /* NULL: no memory for one */
	struct daemon_hint *told; /* owned */
	uint32_t told_n, told_max;
	struct metrics metrics;
	struct http *http;      /* NULL: there is none */
	bool rebuilt;           /* runs were taken over: the engine is to be asked once more */
	struct pawl_err failed; /* why it ends; code 0: by a signal */
};

/* ---- daemon.c ---- */

/* Where jobs have their directories: the root, or what nodes of Slurm's see. */
const char *daemon_shared(const struct daemon *daemon);
int64_t daemon_now_ns(const struct daemon *daemon);
/* The core's clock goes on where it was, and never back. */
void daemon_set_clock(struct daemon *daemon, const struct store_clock *then);
/* Takes an event in, stores and carries out what follows; spec: what was submitted, or NULL, whose
 * job is set. What the core refuses comes back; what cannot be stored ends the daemon
 * (PAWL_EIO). */
int daemon_take(struct daemon *daemon, struct core_event *event, struct store_spec *spec,
	uint64_t *job, struct pawl_err *err);

/* What an engine says is read later, never from within a call of it. */
void daemon_post(void *user, const struct core_event *event);

/* ---- daemon_engine.c ---- */

/* Which engine and spool the jobs run in is put on record. PAWL_EBUSY: some run in another one. */
int daemon_keep_engine(const struct daemon *daemon, struct pawl_err *err);

/* ---- daemon_slurm.c ---- */

/* The engine slurm, on the daemon's pools. */
int daemon_open_slurm(struct daemon *daemon, struct pawl_err *err);

struct sched_spec;

/* Leaves of types (bits; 0: all) those of pools whose nodes have what the job is to have.
 * PAWL_EINVAL: none. */
int daemon_check_pools(const struct daemon *daemon, const struct sched_spec *spec, uint32_t *types,
	struct pawl_err *err);

/* ---- daemon_clients.c ---- */

int daemon_listen(struct daemon *daemon, struct pawl_err *err);
void daemon_hang_up(struct daemon *daemon); /* on all */

/* ---- daemon_requests.c ---- */

/* Answers a request: a frame is added to client->out. */
void daemon_answer(struct daemon_client *client, struct proto_frame *frame);

void daemon_describe(const struct daemon *daemon, const struct core_job *job, struct talk_job *row);
/* False: it is lost, and shown to nobody. */
bool daemon_describe_node(const struct daemon *daemon, const struct core_node *node,
	struct talk_node *row);
/* selector: a job's number, or its name. PAWL_ENOENT. */
int daemon_show(struct daemon *daemon, const char *selector, struct talk_shown *shown,
	struct pawl_err *err);
/* CORE_CANCEL, CORE_PAUSE or CORE_RESUME, as that user. *job: which one it was. PAWL_ENOENT;
 * PAWL_EINVAL: it is another's, or over. */
int daemon_command(struct daemon *daemon, uint32_t uid, const char *selector,
	enum core_event_kind kind, uint64_t *job, struct pawl_err *err);

/* ---- daemon_submit.c ---- */

int daemon_submit(struct daemon_client *client, const uint8_t *bytes, size_t len_bytes,
	uint64_t *job, struct pawl_err *err);

/* What a job that runs asks for, by what was submitted, and when that was. PAWL_EINVAL: nodes here
 * have no such type; PAWL_ENOMEM. */
int daemon_read_ask(const struct daemon *daemon, const uint8_t *bytes, size_t len_bytes,
	uint32_t owner, struct core_ask *ask, int64_t *wall_ns, struct pawl_err *err);

/* ---- daemon_directory.c ---- */

/* Makes the root, and the spool if there is one, where they are not there. PAWL_EINVAL: a path that
 * cannot be; or others may put something else in their place. PAWL_EIO and its like. */
int daemon_make_root(const struct daemon_options *options, struct pawl_err *err);

/* ---- daemon_rebuild.c ---- */

/* Opens the store, and the core of what it has. Where it has nothing though runs or a history lie
 * beside it: PAWL_ECORRUPT, and nothing is touched; or with options->rebuild what is there is put
 * aside, and a new one made. Else as of opening a store. */
int daemon_open_store(struct daemon *daemon, struct pawl_err *err);
/* The engine is open: whatever it has is known to the store. Else PAWL_ECORRUPT; or with
 * options->rebuild that is taken over. */
int daemon_know_runs(struct daemon *daemon, struct pawl_err *err);

/* ---- daemon_history.c ---- */

/* Goes on with the history in the daemon's directory: what it lacks of what is stored is added. */
void daemon_open_history(struct daemon *daemon);
/* What a step has changed, before it is stored; and once it is. */
void daemon_note_history(struct daemon *daemon, const struct store_clock *clock);
void daemon_write_history(struct daemon *daemon);
/* stopped: it leaves in good order. */
void daemon_close_history(struct daemon *daemon, bool stopped);

/* ---- daemon_types.c ---- */

/* Types of nodes and pools in options become the numbers that the store has them under, or has now:
 * before the core is opened. PAWL_ELIMIT: there are too many; else as of opening a store. */
int daemon_number_types(struct daemon *daemon, struct pawl_err *err);
/* Before it ends: numbers that nothing has any more are free for others. */
void daemon_forget_types(struct daemon *daemon);

/* ---- daemon_hints.c ---- */

/* What a job tells of itself, as JSON, goes to the core. PAWL_EINVAL: it is malformed, or its
 * figures are out of bounds: what was told before stays. */
int daemon_tell(struct daemon *daemon, const struct core_job *job, const void *bytes,
	size_t len_bytes, struct pawl_err *err);
/* Looks at the files of jobs that run. */
void daemon_read_hints(struct daemon *daemon);

#endif
