/*
 * Encodings of the files through which the engine slurm and its pilots communicate; docs/slurm.md
 * lists the fields. Pure.
 *
 * Each file holds a whole state, not a message: want is all that is to be on a node, have all that
 * is there. Only the newest file counts, so a lost or late file does no harm.
 */
#ifndef ENGINE_SLURM_SLURM_FORM_H
#define ENGINE_SLURM_SLURM_FORM_H

#include "base/wire.h"
#include "sched/core/core.h"

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

#define SLURM_PARTS_MAX   CORE_SLOTS_MAX /* parts of a pilot, at most: each has one slot at least */
#define SLURM_ARGS_MAX    4096u          /* arguments of a command line, and variables, at most */
#define SLURM_FILE_MAX    (256u << 20)   /* bytes of a file, at most */
#define SLURM_ADDRESS_MAX 64u            /* bytes of an address, terminator included */

/* The program of a job on one node. A list holds NUL-terminated strings, one after the other. */
struct slurm_program {
	const char *cwd; /* working directory */
	const char *log; /* file for stdout and stderr: see job_log.h */
	/* Membership file: ranks of pawl.elastic list there which of them train, for ranks that
	 * join. NULL: there is none. */
	const char *membership_path;
	/* Name of the job's scratch directory within the pilot's. NULL: the job needs none. */
	const char *scratch;
	struct wire_out mounts; /* alternately the path of a link and its target (mounts.h) */
	struct wire_out setup;  /* command line that runs before run; empty: none */
	struct wire_out run;    /* command line */
	/* Command line that resizes run, to which the new size is appended. Empty: run cannot be
	 * resized. */
	struct wire_out scale;
	struct wire_out setup_env; /* setup's environment: "NAME=value", overrides the pilot's */
	struct wire_out env;       /* run's environment: "NAME=value", overrides the pilot's */
};

/* A decoded slurm_program. All pointers point into the bytes; the arrays are owned. */
struct slurm_program_view {
	const char *cwd;
	const char *log;
	const char *membership_path; /* "": none */
	const char *scratch;         /* "": none */
	char **mounts;               /* NULL-terminated, as those below; may be empty */
	char **setup;
	char **run;
	char **scale;
	char **setup_env;
	char **env;
};

/* Why a part ended: on its own, on a stop request, or with its node. */
enum slurm_end_cause { SLURM_END_EXITED, SLURM_END_STOPPED, SLURM_END_NODE_LOST };

enum slurm_part_state { SLURM_STARTING, SLURM_RUNNING, SLURM_ENDED };

/* A part (a job on one node) that a pilot is to have. */
struct slurm_want_part {
	uint64_t job;
	uint64_t generation;
	uint64_t sizing;        /* generation that set slots: of the start, or of a rescale */
	uint32_t slots;         /* number of the node's slots that the part gets */
	bool leave;             /* the part is to leave its job, which goes on elsewhere */
	bool stop;              /* the part is to end */
	int64_t grace_ns;       /* if stop: time from SIGTERM to SIGKILL; 0: kill at once */
	const uint8_t *program; /* an encoded slurm_program */
	uint32_t len_bytes;     /* number of bytes of program */
};

struct slurm_want {
	bool leave; /* all parts are to end, and the pilot with them */
	uint32_t slots;
	struct slurm_want_part *parts; /* owned by the code that filled them in */
	uint32_t parts_n;
};

/* A part as it is on a pilot. */
struct slurm_have_part {
	uint64_t job;
	uint64_t generation;
	uint64_t sized;          /* newest sizing that the part has */
	uint64_t refused_sizing; /* newest sizing that the part could not be given; 0: none */
	enum slurm_part_state state;
	enum slurm_end_cause end_cause; /* cause of the end, if ended */
	int32_t exit_code;              /* exit status, if ended; 128 + signal if killed by one */
};

enum slurm_pilot_state {
	SLURM_PILOT_UP,
	SLURM_PILOT_GOING, /* the pilot will be gone in left_ns */
	SLURM_PILOT_LEFT,  /* no part is left: the pilot's last state */
};

struct slurm_have {
	uint64_t slurm_job; /* the pilot's job number in Slurm */
	uint32_t restart;   /* number of times that Slurm has requeued the pilot */
	char host[CORE_NAME_MAX];
	char address[SLURM_ADDRESS_MAX]; /* address by which other nodes reach the pilot */
	enum slurm_pilot_state state;
	uint64_t scratch_bytes;        /* bytes free for jobs' scratch files; 0: none */
	int64_t remaining_ns;          /* if going: time until the pilot is gone */
	struct slurm_have_part *parts; /* owned by the code that filled them in */
	uint32_t parts_n;
};

/* One of a job's nodes. */
struct slurm_job_node {
	char node[CORE_NAME_MAX];
	uint32_t replicas;
	uint64_t sizing;  /* generation that set replicas */
	uint32_t number;  /* number among the job's nodes, unique at any time; 0: the first node */
	bool joins;       /* added by the newest rescale, which is not complete yet */
	bool leaves;      /* to leave the job in the newest rescale */
	uint8_t *program; /* owned; an encoded slurm_program */
	uint32_t len_bytes; /* number of bytes of program */
};

/* The record of a job, which survives restarts of the engine. */
struct slurm_record {
	uint64_t job;
	uint64_t generation; /* generation of the newest start; 0: there was none */
	uint64_t rescale;    /* newest rescale requested since that start; 0: none */
	uint64_t rescaled;   /* newest rescale completed since that start; 0: none */
	bool dynamic_nodes;  /* nodes can join and leave the job while it runs */
	bool elastic;        /* the ranks have shown that they can join and leave */
	bool runs;           /* all parts have run at the same time since the newest start */
	uint64_t stopped;    /* newest generation that may not start any more */
	bool over;           /* nothing of the job is left */
	bool stop_requested; /* a stop was requested */
	enum core_end_cause end_cause; /* cause of the end, if over */
	int32_t exit_code;             /* exit status, if over */
	int64_t over_wall_ns;
	int64_t grace_ns;             /* if stop_requested: time from SIGTERM to SIGKILL */
	struct slurm_job_node *nodes; /* owned */
	uint32_t nodes_n;
};

/* Makes the core's name for the node of a pilot: "n1.4711", or "n1.4711.2" once requeued twice. So
 * a pilot that comes back is another node. */
void slurm_pilot_name(char name[CORE_NAME_MAX], const struct slurm_have *have);

/* Encoders set out->failed if out of memory. Decoders return PAWL_ECORRUPT or PAWL_ENOMEM; then
 * there is nothing to free. */
void slurm_program_encode(const struct slurm_program *program, struct wire_out *out);
int slurm_program_decode(const void *bytes, size_t len_bytes, struct slurm_program_view *view,
	struct pawl_err *err);
void slurm_program_view_deinit(struct slurm_program_view *view);

void slurm_want_encode(const struct slurm_want *want, struct wire_out *out);
/* The programs in want point into bytes. */
int slurm_want_decode(const void *bytes, size_t len_bytes, struct slurm_want *want,
	struct pawl_err *err);

void slurm_have_encode(const struct slurm_have *have, struct wire_out *out);
int slurm_have_decode(const void *bytes, size_t len_bytes, struct slurm_have *have,
	struct pawl_err *err);

void slurm_record_encode(const struct slurm_record *record, struct wire_out *out);
int slurm_record_decode(const void *bytes, size_t len_bytes, struct slurm_record *record,
	struct pawl_err *err);
void slurm_record_deinit(struct slurm_record *record);

#endif
