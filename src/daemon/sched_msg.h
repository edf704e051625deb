/*
 * Messages between commands and the scheduler over its Unix socket, one struct each.
 * docs/protocol.md has the bytes, ipc/proto.h the header around them. Each request gets one reply.
 * sched_msg.c has the layout of each struct (ipc/frame_layout.h); sched_client.h is the commands'
 * end.
 *
 * A message that has no struct here has no body. The body of each request begins with a u16
 * version, which is in no struct. Text longer than its array is cut when a struct is filled; when a
 * body is decoded it is malformed, as is a body that is too short or too long.
 */
#ifndef DAEMON_SCHED_MSG_H
#define DAEMON_SCHED_MSG_H

#include "ipc/frame_layout.h"
#include "ipc/proto.h"
#include "sched/core/core.h"

#include <limits.h>

#define SCHED_MSG_VERSION    2u
#define SCHED_MSG_BODY_MAX   (4u << 20) /* bytes of a request */
#define SCHED_MSG_JOBS_MAX   100000u    /* jobs of a list that are not over, at most */
#define SCHED_MSG_PLACE_MAX  1024u      /* bytes of a placement as text, terminator included */
#define SCHED_MSG_REMARK_MAX 4096u      /* bytes of an engine's remark, terminator included */

#define SCHED_SOCKET "sched.sock" /* name of the socket in the scheduler's directory */

enum sched_msg_type {
	/* requests; a reply is DONE, unless another one is named */
	SCHED_MSG_SUBMIT = 1,
	SCHED_MSG_LIST,   /* reply: JOBS */
	SCHED_MSG_SHOW,   /* struct sched_msg_selector; reply: SHOWN */
	SCHED_MSG_CANCEL, /* struct sched_msg_selector */
	SCHED_MSG_PAUSE,  /* struct sched_msg_selector */
	SCHED_MSG_RESUME, /* struct sched_msg_selector */
	SCHED_MSG_NODES,  /* no body; reply: NODE_ROWS */
	SCHED_MSG_DRAIN,
	SCHED_MSG_SCALE,
	/* replies */
	SCHED_MSG_ERROR = 64, /* to any request */
	SCHED_MSG_DONE,
	SCHED_MSG_JOBS,
	SCHED_MSG_SHOWN,
	SCHED_MSG_NODE_ROWS,
};

/* ---- requests ---- */

struct sched_msg_submit {
	struct frame_blob submission; /* as of engine/submission.h */
};

struct sched_msg_list {
	bool ended;    /* list jobs that are over, too */
	uint32_t most; /* newest jobs that are over, at most */
};

/* Selects a job: by its number, or by its name, which means the newest job of that name. */
struct sched_msg_selector {
	char job[CORE_NAME_MAX];
};

struct sched_msg_drain {
	char node[CORE_NAME_MAX];
	bool drained; /* false: the node takes jobs again */
};

/* Changes the bounds, the priority, or both of a job that is not over. */
struct sched_msg_scale {
	char job[CORE_NAME_MAX]; /* as in sched_msg_selector */
	bool sized;              /* least and most count */
	uint32_t least, most;    /* replicas that the job may have */
	bool prioritized;        /* priority counts */
	int32_t priority;
};

/* Room for any request. */
union sched_msg_request {
	struct sched_msg_submit submit;
	struct sched_msg_list list;
	struct sched_msg_selector selector;
	struct sched_msg_drain drain;
	struct sched_msg_scale scale;
};

/* ---- replies ---- */

struct sched_msg_error {
	int code; /* PAWL_E code */
	char text[PROTO_TEXT_MAX];
};

struct sched_msg_done {
	uint64_t job; /* number of the job; of DRAIN: 0 */
};

/* A job in a list. */
struct sched_msg_job {
	uint64_t id;
	char name[CORE_NAME_MAX];
	char queue[CORE_NAME_MAX];
	uint32_t owner; /* user id */
	char state[CORE_NAME_MAX];
	char reason[CORE_NAME_MAX];
	int32_t priority;
	uint32_t replicas;               /* replicas that the job has */
	uint32_t least, most;            /* replicas that the job may have */
	char place[SCHED_MSG_PLACE_MAX]; /* "node:replicas", separated by spaces; cut */
	int64_t submitted_ns;            /* wall clock; 0: not known */
	int64_t since_ns; /* time of the last change of state, wall clock; 0: not known */
	double ran_s;
	uint32_t restarts; /* changes of its replicas */
	uint32_t failures;
	int32_t exit_code; /* exit code of the last end by itself */
	double goodput;    /* samples/s; 0: not known */
	double left_s;     /* negative: not known */
	bool over;
};

struct sched_msg_jobs {
	struct frame_rows jobs;            /* struct sched_msg_job */
	uint32_t left_out;                 /* jobs that are over and not listed */
	char remark[SCHED_MSG_REMARK_MAX]; /* the engine's remark, in lines; cut */
};

/* A job, and why it is where it is. */
struct sched_msg_shown {
	struct sched_msg_job job;
	char explanation[CORE_TEXT_MAX];
	char log_dir[PATH_MAX];
	char cwd[PATH_MAX];                /* directory that it runs in, from / on; "": not known */
	double more, fewer;                /* goodput with a replica more, or fewer; 0: not known */
	char remark[SCHED_MSG_REMARK_MAX]; /* the engine's remark, in lines; cut */
	char home[PATH_MAX]; /* meaning of ~ to the job: home of the user that runs it */
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

struct sched_msg_nodes {
	struct frame_rows nodes; /* struct sched_msg_node */
};

/* ---- as bytes ---- */

/* Layouts of rows, for frame_layout_encode and frame_rows_read. */
extern const struct frame_layout sched_msg_job_layout, sched_msg_node_layout;

bool sched_msg_is_request(uint16_t type);
/* Appends the body of a message. body: the struct of that type; NULL for one without a body. */
void sched_msg_encode(struct wire_out *out, enum sched_msg_type type, const void *body);
/* Reads a whole body into the struct of its type, or a union with it; blobs and rows point into the
 * bytes of in. False: the type is unknown, its struct is larger than size_bytes, a request is of
 * another version, or the body is malformed; *body is not to be used then. */
bool sched_msg_decode(struct wire_in *in, uint16_t type, void *body, size_t size_bytes);
/* Returns the version that the body of a request begins with, whatever follows it; 0: none. */
uint16_t sched_msg_version(struct wire_in in);

/* ---- for tests ---- */

/* Returns the layout of a type; NULL: there is no such type. One without fields has no body. */
const struct frame_layout *sched_msg_layout_of(uint16_t type);

#endif
