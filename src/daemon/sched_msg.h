/*
 * Messages between commands and the scheduler over its Unix socket: frames as of ipc/proto.h, one
 * reply a request. Each request begins with a u16 version; a job is named by its number, or by its
 * name: then the newest of that name is meant. docs/protocol.md has the bytes.
 */
#ifndef DAEMON_SCHED_MSG_H
#define DAEMON_SCHED_MSG_H

#include "base/wire.h"
#include "sched/core/core.h"

#include <limits.h>

struct pawl_err;
struct link_reply;

#define SCHED_MSG_VERSION   2u
#define SCHED_MSG_BODY_MAX  (4u << 20) /* bytes of a request */
#define SCHED_MSG_PLACE_MAX 1024u      /* bytes of a place in words, terminator included; cut */
#define SCHED_MSG_JOBS_MAX  100000u    /* jobs of a list, at most */
#define SCHED_MSG_REMARK_MAX                                                                       \
	4096u /* bytes of an engine's remark, in lines, terminator included; cut */

#define SCHED_SYSTEM_ROOT "/var/lib/pawl" /* directory of a scheduler that is root's */
#define SCHED_SOCKET      "sched.sock"    /* name in the scheduler's directory */
#define SCHED_ROOT_VAR    "PAWL_SCHED_ROOT"

/* Bodies are listed as fields in order, after the version. */
enum sched_msg_type {
	SCHED_MSG_SUBMIT = 1, /* blob of submission.h */
	SCHED_MSG_LIST,       /* u8 with the jobs that are over; u32 at most so many of them */
	SCHED_MSG_SHOW,       /* str job */
	SCHED_MSG_CANCEL,     /* str job */
	SCHED_MSG_PAUSE,      /* str job */
	SCHED_MSG_RESUME,     /* str job */
	SCHED_MSG_NODES,      /* nothing */
	SCHED_MSG_DRAIN,      /* str node, u8 1: drained, 0: back again */
	/* replies */
	SCHED_MSG_ERROR = 64, /* u32 -code, str text */
	SCHED_MSG_DONE,       /* u64 job */
	SCHED_MSG_JOBS, /* u32 n, n jobs; u32 those that are over and were left out; str remark */
	SCHED_MSG_SHOWN, /* a job, str explanation, str directory of logs, str where it runs, f64 goodput
		       with one replica more, f64 with one fewer, str remark, str home */
	SCHED_MSG_NODE_ROWS, /* u32 n, n x (str name, str type, u32 slots, u32 used, u8 state, u8 spot,
			   f64 price) */
};

/* A job in a list. */
struct sched_msg_job {
	uint64_t id;
	char name[CORE_NAME_MAX];
	char queue[CORE_NAME_MAX];
	uint32_t owner;
	char state[CORE_NAME_MAX];
	char reason[CORE_NAME_MAX];
	int32_t priority;
	uint32_t replicas; /* replicas that the job has */
	uint32_t least, most;
	char place[SCHED_MSG_PLACE_MAX];
	int64_t submitted_ns; /* wall clock; 0: not known */
	int64_t since_ns;     /* time of the last change of state, wall clock; 0: not known */
	double ran_s;
	uint32_t restarts; /* changes of its replicas */
	uint32_t failures;
	int32_t exit_code; /* exit code of the last end by itself */
	double goodput;    /* samples/s; 0: not known */
	double left_s;     /* negative: not known */
	bool over;
};

struct sched_msg_node {
	char name[CORE_NAME_MAX];
	char type[CORE_NAME_MAX]; /* "": none was given */
	uint32_t slots;
	uint32_t used;
	uint8_t state; /* enum core_node_state */
	bool spot;
	double price;
};

/* A job, and why it is where it is. */
struct sched_msg_shown {
	struct sched_msg_job job;
	char explanation[CORE_TEXT_MAX];
	char log_dir[PATH_MAX];
	char cwd[PATH_MAX];  /* directory that it runs in, from / on; "": not known */
	char home[PATH_MAX]; /* meaning of ~ to the job: home of the user that runs it */
	double more, fewer;  /* goodput with a replica more, or fewer; 0: not known */
	char remark[SCHED_MSG_REMARK_MAX]; /* the engine's remark, in lines */
};

void sched_msg_job_put(struct wire_out *out, const struct sched_msg_job *job);
void sched_msg_job_get(struct wire_in *in, struct sched_msg_job *job);
void sched_msg_node_put(struct wire_out *out, const struct sched_msg_node *node);
void sched_msg_node_get(struct wire_in *in, struct sched_msg_node *node);
void sched_msg_shown_put(struct wire_out *out, const struct sched_msg_shown *shown);
void sched_msg_shown_get(struct wire_in *in, struct sched_msg_shown *shown);

/* ---- the commands' end ---- */

/* Finds the scheduler's directory: asked (NULL: not given), else PAWL_SCHED_ROOT, else this user's
 * own if there is a socket in it, else the system's. PAWL_EINVAL: too long, or no home. */
int sched_find_root(const char *asked, char root[PATH_MAX], struct pawl_err *err);
/* Finds this user's own directory: root's is the system's. */
int sched_user_root(char root[PATH_MAX], struct pawl_err *err);

struct sched_client;

/* Connects to the scheduler in root. PAWL_ENOENT: no scheduler runs there; PAWL_EIO: it may not be
 * talked to. */
int sched_client_open(struct sched_client **out, const char *root, struct pawl_err *err);
void sched_client_close(struct sched_client *client); /* NULL is fine */
/* Finds the user that runs the scheduler, as the kernel says. PAWL_EIO. */
int sched_client_peer_uid(const struct sched_client *client, uint32_t *uid, struct pawl_err *err);
/* Begins a request. Returns its body, to be filled: the version is in it already. */
struct wire_out *sched_client_begin(struct sched_client *client, enum sched_msg_type type);
/* Sends the request and waits for the reply, whose body is read through *in until the next
 * sched_client_begin. If the scheduler refuses, its error code is returned. PAWL_EPEER, PAWL_ETIMEDOUT. */
int sched_client_end(struct sched_client *client, enum sched_msg_type wanted, struct wire_in *in,
	struct pawl_err *err);

#endif
