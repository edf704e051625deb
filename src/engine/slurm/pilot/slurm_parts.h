/* The parts of jobs on a pilot: starts, stops, kills and reaps them. For the pilot's thread. */
#ifndef ENGINE_SLURM_PILOT_SLURM_PARTS_H
#define ENGINE_SLURM_PILOT_SLURM_PARTS_H

#include "engine/slurm/slurm_form.h"

#include <limits.h>
#include <sys/types.h>

struct slurm_scratch;

/* A new size that a part is to get. */
struct slurm_sizing {
	uint64_t generation; /* generation of the new size; 0: none is to be tried */
	uint32_t slots;
	int64_t until_ns;  /* time until which the resize is retried */
	int64_t next_ns;   /* time of the next try */
	pid_t pid;         /* process of the scale command; 0: none runs */
	uint32_t asks_for; /* number of slots that pid was started for */
};

struct slurm_part {
	struct slurm_have_part have;
	struct slurm_sizing sizing;
	uint8_t *program; /* owned; a slurm_program */
	uint32_t len_bytes;
	pid_t pid;              /* the part's keeper */
	int started;            /* pipe from the keeper: see slurm_keeper_start; -1: closed */
	bool stop_requested;    /* the part got SIGTERM */
	bool wanted_leave;      /* the part is to leave its job */
	bool leave_requested;   /* the part was asked to leave its job */
	bool over;              /* the part's keeper has ended */
	bool wanted;            /* the newest want has the part; used by slurm_parts_apply only */
	int64_t over_ns;        /* if over: time at which the keeper ended */
	int64_t kill_at_ns;     /* if stop_requested: time at which the part is killed */
	char scratch[PATH_MAX]; /* the part's own scratch directory, until it is over; "": none */
	uint32_t slots_n;
	uint32_t slots[CORE_SLOTS_MAX]; /* the part's slots on its node, in the order of ranks */
};

struct slurm_parts {
	struct slurm_part **all; /* owned, with each entry */
	uint32_t n;
	const char *runtime;           /* the pilot's own directory on the node */
	struct slurm_scratch *scratch; /* directory for jobs' scratch files */
	uint32_t slots;                /* number of slots of the node */
	bool leaving; /* the pilot leaves: parts that end from now on count as lost with the node */
	bool changed; /* a part has changed since the pilot last cleared this */
};

/* Starts, resizes and stops parts as want requires. Parts that are not in want are killed or, once
 * they have ended, forgotten. */
void slurm_parts_apply(struct slurm_parts *parts, const struct slurm_want *want);
/* Stops all parts because the pilot leaves. */
void slurm_parts_leave(struct slurm_parts *parts, int64_t grace_ns);
/* Updates the parts' states and sizes, and kills parts whose grace period is over. */
void slurm_parts_look(struct slurm_parts *parts, int64_t now_ns);
/* Returns the number of parts that have not ended. */
uint32_t slurm_parts_alive(const struct slurm_parts *parts);
void slurm_parts_deinit(struct slurm_parts *parts);

#endif
