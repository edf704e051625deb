/*
 * Encodings of what the engine slurm and its pilots write for each other; docs/slurm.md has the
 * fields. Pure.
 *
 * Each encoding is a whole state and not a message: want says all that is to be on a node, have all
 * that is there. So none can get lost or overtake another, and only the newest counts.
 */
#ifndef ENGINE_SLURM_SLURM_FORM_H
#define ENGINE_SLURM_SLURM_FORM_H

#include "base/wire.h"
#include "sched/core/core.h"

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

#define SLURM_PARTS_MAX   CORE_SLOTS_MAX /* parts of a pilot, at most: each has one slot at least */
#define SLURM_ARGS_MAX    4096u          /* words of a command line, and variables, at most */
#define SLURM_FILE_MAX    (256u << 20)   /* bytes of a file, at most */
#define SLURM_ADDRESS_MAX 64u            /* bytes of an address, terminator included */

/* The program of a job on one node. A list holds strings, each with its NUL. */
struct slurm_program {
	const char *cwd; /* working directory */
	const char *log; /* file for stdout and stderr: see job_log.h */
	/* File in which ranks say which of them train, for ranks that join; ranks of pawl.elastic
	 * write it. NULL: there is none. */
	const char *membership_path;
	/* Name of the job's own directory for scratch files, within the pilot's. NULL: the job
	 * needs none. */
	const char *scratch;
	struct wire_out mounts; /* alternately the path of a link and its target: see mounts.h */
	struct wire_out setup;  /* command line that runs before run; empty: none */
	struct wire_out run;    /* command line */
	/* Command line that resizes run, once the new size is appended. Empty: run keeps its
	 * size. */
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
	char **mounts;               /* NULL-terminated, as those below; without words: none */
	char **setup;
	char **run;
	char **scale;
	char **setup_env;
	char **env;
};

/* How a part ended. */
enum slurm_end_cause { SLURM_END_EXITED, SLURM_END_STOPPED, SLURM_END_NODE_LOST };

enum slurm_part_state { SLURM_STARTING, SLURM_RUNNING, SLURM_ENDED };

/* A part that is wanted of a pilot: a job on one node. */
struct slurm_want_part {
	uint64_t job;
	uint64_t generation;
	uint64_t sizing;        /* generation that set slots: the start's or a newer one */
	uint32_t slots;         /* number of the node's slots that the part gets */
	bool leave;             /* the part is to leave its job, which goes on elsewhere */
	bool stop;              /* the part is to end */
	int64_t grace_ns;       /* stop: time from SIGTERM to the kill; 0: at once */
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
	SLURM_PILOT_LEFT,  /* nothing of the pilot is left: its last word */
};

struct slurm_have {
	uint64_t slurm_job; /* the pilot's number in Slurm */
	uint32_t restart;   /* times that Slurm has requeued the pilot */
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
	uint64_t sizing;    /* generation that set replicas */
	uint32_t number;    /* number among the job's nodes, unique at any time */
	bool joins;         /* new by the newest rescale, which is not carried out yet */
	bool leaves;        /* to leave the job by the newest rescale */
	uint8_t *program;   /* owned; an encoded slurm_program */
	uint32_t len_bytes; /* number of bytes of program */
};

/* The record of a job, which outlives restarts of the engine. */
struct slurm_record {
	uint64_t job;
	uint64_t generation;           /* generation of the newest start; 0: there was none */
	uint64_t rescale;              /* newest rescale to carry out since that start; 0: none */
	uint64_t rescaled;             /* newest rescale that was carried out; 0: none */
	bool dynamic_nodes;            /* nodes can join and leave the job while it runs */
	bool elastic;                  /* the job's ranks have shown that they can join and leave */
	bool runs;                     /* all of the job has run at once, since the newest start */
	uint64_t stopped;              /* nothing starts any more up to this generation */
	bool over;                     /* nothing of the job is left */
	bool stop_requested;           /* the job was told to stop */
	enum core_end_cause end_cause; /* cause of the end, if over */
	int32_t exit_code;             /* exit status, if over */
	int64_t over_wall_ns;
	int64_t grace_ns;             /* if told: time from SIGTERM to the kill */
	struct slurm_job_node *nodes; /* owned */
	uint32_t nodes_n;
};

/* Makes the core's name for the node that a pilot is: "n1.4711", or "n1.4711.2" once requeued, so a
 * pilot that comes back is another node. */
void slurm_pilot_name(char name[CORE_NAME_MAX], const struct slurm_have *have);

/* All encoders set out->failed if memory is short. Decoders return PAWL_ECORRUPT or PAWL_ENOMEM,
 * and have then made nothing. */
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
