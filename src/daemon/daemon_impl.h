/*
 * Shared by the files of daemon*.c, and declared below from the bottom up: a file calls only files
 * that stand above it here. daemon.c opens and calls all of them.
 *   - daemon_clock.c, daemon_directory.c and daemon_types.c call none.
 *   - daemon_events.c, through which all changes go, calls daemon_history.c, which records them.
 *   - Of HTTP, http_waiting.c and http_urls.c are called from here, and call none of these files.
 *     The other files of HTTP are above daemon_requests.c: see http_impl.h.
 */
#ifndef DAEMON_DAEMON_IMPL_H
#define DAEMON_DAEMON_IMPL_H

#include "daemon/daemon.h"
#include "daemon/history/history.h"
#include "daemon/metrics.h"
#include "daemon/sched_msg.h"
#include "engine/local/local.h"
#include "engine/local/order.h"
#include "engine/pending_events.h"
#include "io/listener.h"
#include "ipc/proto.h"
#include "sched/database/database.h"

#include <limits.h>
#include <sys/types.h>
#include <time.h>

#define CLIENTS_MAX 256u
#define ENDED_SHOWN 1000u /* newest jobs that are over, in a list */

struct job_description;

/* A client at the socket. */
struct daemon_client {
	struct daemon *daemon;
	struct daemon_client *next;
	struct proto_conn conn;
	struct loop_source source;
	struct loop_timer turn; /* active: the client has had its turn */
	struct wire_out out;    /* bytes to send, from off on */
	size_t off;
	uint32_t uid;
	int64_t last_active_ns; /* time when the client last sent or took something */
	bool closing;
};

/* A job's file of hints. */
struct daemon_hint_file {
	uint64_t job;
	struct timespec changed; /* modification time of the file as it was last read */
	bool complained;         /* an error in the file was logged */
};

struct daemon {
	struct daemon_options *options; /* the caller's */
	struct loop *loop;
	struct sched_database *database;
	struct sched_core *core;
	const struct sched_engine *engine; /* NULL: not open yet */
	void *engine_self;
	char program[PATH_MAX];                 /* path of this program, for pilots */
	char spool[PATH_MAX];                   /* directory of the engine slurm */
	struct job_description *description;    /* see daemon_slurm.c */
	const char *scratch;                    /* directory, of options; NULL: root's */
	struct core_pool pools[CORE_POOLS_MAX]; /* pools of options, for the core */
	int lock_fd;
	struct listener listen; /* listens for commands */
	struct loop_source signals;
	struct loop_timer wake;        /* fires when the core wants to be woken */
	struct loop_timer hints;       /* fires when files of hints are to be read */
	struct pending_events pending; /* the engine's */
	struct daemon_client *clients;
	uint32_t clients_n;
	int64_t base_ns; /* the core's clock when the monotonic one was mono_ns */
	int64_t mono_ns;
	char boot[PROC_BOOT_ID];             /* boot id of this machine */
	struct history *history;             /* NULL: no memory for one */
	struct daemon_hint_file *hint_files; /* owned; one for each job with hints */
	uint32_t hint_files_n, hint_files_max;
	struct metrics metrics;
	struct http *http;      /* NULL: there is none */
	bool rebuilt;           /* runs were taken over: begin asks the engine for a list */
	struct pawl_err failed; /* reason why the daemon ends; code 0: a signal */
};

/* ---- daemon_clock.c ---- */

int64_t daemon_now_ns(const struct daemon *daemon); /* the core's clock */
/* Reads all clocks, for the database, beside a time of the core's. */
struct database_clock daemon_read_clocks(const struct daemon *daemon, int64_t core_ns);
/* Lets the core's clock go on where it was, and never back. */
void daemon_set_clock(struct daemon *daemon, const struct database_clock *then);

/* ---- daemon_directory.c ---- */

/* Returns the directory that has the jobs' directories: the root, or the spool that Slurm's nodes
 * see. */
const char *daemon_shared_dir(const struct daemon *daemon);
/* Makes the root, and the spool if there is one, if they do not exist. PAWL_EINVAL: a path is not
 * valid, or other users could replace it. PAWL_EIO and other errors of files. */
int daemon_make_root(const struct daemon_options *options, struct pawl_err *err);

/* ---- daemon_history.c ---- */

/* Opens the history in the daemon's directory, and adds what the database has and it lacks. */
void daemon_open_history(struct daemon *daemon);
/* Records what a step has changed, before it is stored. */
void daemon_record_history(struct daemon *daemon, const struct database_clock *clock);
/* Writes what was recorded, once the step is stored. */
void daemon_write_history(struct daemon *daemon);
/* Closes the history. stopped: the daemon ends without an error. */
void daemon_close_history(struct daemon *daemon, bool stopped);

/* ---- daemon_types.c ---- */

/* Replaces the types of nodes and pools in options by their numbers in the database; new types get
 * one. Called before the core is opened. PAWL_ELIMIT: there are too many types; other errors as of
 * opening a database. */
int daemon_number_types(struct daemon *daemon, struct pawl_err *err);
/* Frees the numbers of types that nothing has any more. Called before the daemon ends. */
void daemon_forget_types(struct daemon *daemon);

/* ---- daemon_events.c ---- */

/* Handles an event: lets the core decide, stores the result, and carries out what follows. spec:
 * the submission, whose job is set, or NULL. Returns the core's error if the core refuses the
 * event. If the result cannot be stored, the daemon ends (PAWL_EIO). */
int daemon_handle_event(struct daemon *daemon, struct core_event *event, struct database_spec *spec,
	uint64_t *job, struct pawl_err *err);
/* Starts the timer by which the core is woken when it wants to be. */
void daemon_set_wake(struct daemon *daemon);
/* Queues an engine's event. It is handled later, never within a call of the engine. */
void daemon_post(void *user, const struct core_event *event);
/* Handles an event that was queued. */
void daemon_handle_posted(void *user, const struct core_event *posted);

/* ---- daemon_hints.c ---- */

/* Passes a job's hints, as JSON, to the core. PAWL_EINVAL: they are malformed, or out of bounds;
 * the job keeps its hints. */
int daemon_set_hints(struct daemon *daemon, const struct core_job *job, const void *bytes,
	size_t len_bytes, struct pawl_err *err);
/* Reads the files of hints of running jobs. */
void daemon_read_hints(struct daemon *daemon);

/* ---- daemon_engine.c ---- */

/* Records the engine and spool that jobs run in. PAWL_EBUSY: some run in another one. */
int daemon_record_engine(const struct daemon *daemon, struct pawl_err *err);

/* ---- daemon_slurm.c ---- */

/* Opens the engine slurm on the daemon's pools. */
int daemon_open_slurm(struct daemon *daemon, struct pawl_err *err);

struct sched_spec;

/* Reduces types (bits; 0: all) to those of pools whose nodes have what the job asks for.
 * PAWL_EINVAL: no pool has. */
int daemon_check_pools(const struct daemon *daemon, const struct sched_spec *spec, uint32_t *types,
	struct pawl_err *err);

/* ---- daemon_submit.c ---- */

int daemon_submit(struct daemon_client *client, const uint8_t *bytes, size_t len_bytes,
	uint64_t *job, struct pawl_err *err);

/* Reads what a running job asks for, and when it was submitted, from its submission. PAWL_EINVAL:
 * nodes here have no such type; PAWL_ENOMEM. */
int daemon_read_request(const struct daemon *daemon, const uint8_t *bytes, size_t len_bytes,
	uint32_t owner, struct core_request *request, int64_t *wall_ns, struct pawl_err *err);

/* ---- daemon_rebuild.c ---- */

/* Opens the database, and restores the core from it. If the file is lost though runs or a history
 * exist beside it: PAWL_ECORRUPT, and nothing is changed; with options->rebuild the file is put
 * aside, and a new one made. Other errors as of opening a database. */
int daemon_open_database(struct daemon *daemon, struct pawl_err *err);
/* Checks, once the engine is open, that the database has all runs of the engine: PAWL_ECORRUPT if
 * not; with options->rebuild the others are taken over. */
int daemon_check_runs(struct daemon *daemon, struct pawl_err *err);

/* ---- daemon_requests.c ---- */

/* Answers a request: a frame is added to client->out. */
void daemon_answer(struct daemon_client *client, struct proto_frame *frame);

void daemon_describe(const struct daemon *daemon, const struct core_job *job,
	struct sched_msg_job *row);
/* Describes a node. False: it is lost, and lists leave it out. */
bool daemon_describe_node(const struct daemon *daemon, const struct core_node *node,
	struct sched_msg_node *row);
/* Describes a job. selector: a job's number, or its name. PAWL_ENOENT. */
int daemon_show(struct daemon *daemon, const char *selector, struct sched_msg_shown *shown,
	struct pawl_err *err);
/* Checks new bounds of a job as at its submission. PAWL_EINVAL: they can never be met. */
int daemon_check_size(const struct daemon *daemon, const struct core_job *job, uint32_t least,
	uint32_t most, struct pawl_err *err);
/* Carries out CORE_CANCEL, CORE_PAUSE or CORE_RESUME for user uid. *job: number of the job.
 * PAWL_ENOENT; PAWL_EINVAL: the job is another user's, or over. */
int daemon_command(struct daemon *daemon, uint32_t uid, const char *selector,
	enum core_event_kind kind, uint64_t *job, struct pawl_err *err);

/* ---- daemon_clients.c ---- */

int daemon_listen(struct daemon *daemon, struct pawl_err *err);
void daemon_disconnect_clients(struct daemon *daemon); /* disconnects every client */

#endif
