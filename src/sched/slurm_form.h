/*
 * What the engine slurm and its pilots write for each other, in bytes; docs/slurm.md has the
 * fields. Pure.
 *
 * Each is a whole state and not a message: want says all that is to be on a node, have all that
 * is there. So none can get lost or overtake another one, and the newest counts.
 */
#ifndef SCHED_SLURM_FORM_H
#define SCHED_SLURM_FORM_H

#include "base/wire.h"
#include "sched/core.h"

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

#define SLURM_PARTS_MAX   CORE_SLOTS_MAX /* of a pilot: each has a slot at least */
#define SLURM_WORDS_MAX   4096u          /* of a command line, and variables */
#define SLURM_FILE_MAX    (256u << 20)   /* bytes of a file */
#define SLURM_ADDRESS_MAX 64u            /* of an address, terminator included */

/* What runs of a job on one node. A list is of strings, each with its NUL. */
struct slurm_program {
	const char *cwd;        /* where it starts */
	const char *log;        /* of stdout and stderr: see job_log.h */
	const char *door;       /* file in which ranks say who trains, for others that join, where
				   those of pawl.elastic do; NULL: there is none */
	const char *scratch;    /* name of a directory of its own in the pilot's for that; NULL:
				   it needs none */
	struct wire_out mounts; /* by turns what is made a link, and to what: see mounts.h */
	struct wire_out setup;  /* command line of what runs first; empty: nothing does */
	struct wire_out run;    /* command line */
	struct wire_out scale;  /* one that gives run another size, once that is put behind it;
				   empty: it stays as it is */
	struct wire_out setup_env; /* "NAME=value", over what the pilot's environment says */
	struct wire_out env;       /* the same for run */
};

/* The same, read. All point into the bytes; the arrays are owned. */
struct slurm_words {
	const char *cwd;
	const char *log;
	const char *door;    /* "": none */
	const char *scratch; /* "": none */
	char **mounts;       /* NULL-terminated, as those below; of no words: none */
	char **setup;
	char **run;
	char **scale;
	char **setup_env;
	char **env;
};

/* How a part ended. */
enum slurm_why { SLURM_BY_ITSELF, SLURM_BY_WANT, SLURM_BY_NODE };

enum slurm_state { SLURM_STARTING, SLURM_RUNNING, SLURM_ENDED };

/* What is wanted of a job on a node. */
struct slurm_want_part {
	uint64_t job;
	uint64_t generation;
	uint64_t sizing;        /* generation that slots are of: of its start, or a newer one */
	uint32_t slots;         /* of the node's */
	bool leave;             /* it is to leave its job, which goes on elsewhere */
	bool stop;              /* it is to end */
	int64_t grace_ns;       /* stop: from SIGTERM to the kill; 0: at once */
	const uint8_t *program; /* a slurm_program */
	uint32_t len_bytes;     /* of it */
};

struct slurm_want {
	bool leave; /* all ends, and the pilot with it */
	uint32_t slots;
	struct slurm_want_part *parts; /* owned by who made it */
	uint32_t parts_n;
};

/* What there is of it. */
struct slurm_have_part {
	uint64_t job;
	uint64_t generation;
	uint64_t sized;   /* the newest sizing that it has */
	uint64_t unsized; /* the newest that it could not be given; 0: none */
	enum slurm_state state;
	enum slurm_why why; /* ended */
	int32_t exit_code;  /* ended; 128 + signal */
};

enum slurm_pilot_state {
	SLURM_PILOT_UP,
	SLURM_PILOT_GOING, /* it will be gone in left_ns */
	SLURM_PILOT_LEFT,  /* nothing of it is left: its last word */
};

struct slurm_have {
	uint64_t slurm_job; /* the pilot's number in Slurm */
	uint32_t restart;   /* times that Slurm has requeued it */
	char host[CORE_NAME_MAX];
	char address[SLURM_ADDRESS_MAX]; /* by which other nodes reach it */
	enum slurm_pilot_state state;
	uint64_t scratch_bytes;        /* free where jobs may write for a while; 0: nowhere */
	int64_t left_ns;               /* going: until it is gone */
	struct slurm_have_part *parts; /* owned by who made it */
	uint32_t parts_n;
};

/* One of a job's nodes. */
struct slurm_spot {
	char node[CORE_NAME_MAX];
	uint32_t replicas;
	uint64_t sizing;    /* generation that replicas are of */
	uint32_t number;    /* among those of the job, no two alike at a time */
	bool joins;         /* it is new by the newest rescale, which is not carried out yet */
	bool leaves;        /* it is to leave the job by that */
	uint8_t *program;   /* owned; a slurm_program */
	uint32_t len_bytes; /* of it */
};

/* What the engine keeps of a job over its restarts. */
struct slurm_record {
	uint64_t job;
	uint64_t generation; /* of the newest start; 0: there was none */
	uint64_t rescale;    /* the newest that is to be carried out since; 0: none */
	uint64_t rescaled;   /* the newest that was; 0 */
	bool joint;          /* nodes can join and leave it while it runs */
	bool elastic;        /* it has been seen that its ranks can */
	bool runs;           /* all of it has run at once, since the newest start */
	uint64_t stopped;    /* up to this generation nothing starts any more */
	bool over;           /* nothing of it is left */
	bool told;           /* it was told to stop */
	enum core_by by;     /* over */
	int32_t exit_code;   /* over */
	int64_t over_wall_ns;
	int64_t grace_ns;         /* told */
	struct slurm_spot *spots; /* owned */
	uint32_t spots_n;
};

/* What the core calls the node that a pilot is: "n1.4711", or "n1.4711.2" once it was requeued, so
 * one that comes back is another one. */
void slurm_pilot_name(char name[CORE_NAME_MAX], const struct slurm_have *have);

/* All encoders set out->failed if memory is short. Decoders: PAWL_ECORRUPT, PAWL_ENOMEM; what they
 * made is then nothing. */
void slurm_program_encode(const struct slurm_program *program, struct wire_out *out);
int slurm_program_decode(const void *bytes, size_t len_bytes, struct slurm_words *words,
	struct pawl_err *err);
void slurm_words_deinit(struct slurm_words *words);

void slurm_want_encode(const struct slurm_want *want, struct wire_out *out);
/* Programs point into bytes. */
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
