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
	int64_t until_ns;  /* time until which the resize is tried again */
	int64_t next_ns;   /* time of the next try */
	pid_t pid;         /* process that carries the resize out; 0: none runs */
	uint32_t asks_for; /* slots that this process asks for */
};

struct slurm_part {
	struct slurm_have_part have;
	struct slurm_sizing sizing;
	uint8_t *program; /* owned; a slurm_program */
	uint32_t len_bytes;
	pid_t pid;              /* the part's keeper */
	int started;            /* pipe from the keeper: see slurm_keeper_start; -1: closed */
	bool stop_requested;    /* the part was told to end */
	bool wanted_leave;      /* the part is to leave its job */
	bool leave_requested;   /* the part was told to leave its job */
	bool over;              /* the part's keeper has ended */
	bool wanted;            /* scratch variable: the newest want has the part */
	int64_t over_ns;        /* if over: since when */
	int64_t kill_at_ns;     /* if told: time at which the part is killed */
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
	bool leaving;                  /* parts that end from now on end because of the node */
	bool changed;                  /* parts have changed since the owner last cleared this */
};

/* Makes the parts as wanted. Parts that are not in want are killed or, once over, forgotten. */
void slurm_parts_apply(struct slurm_parts *parts, const struct slurm_want *want);
/* Tells all parts to end, for the node's sake. */
void slurm_parts_leave(struct slurm_parts *parts, int64_t grace_ns);
/* Notes which parts run by now, have ended or have a new size, and kills those that are due. */
void slurm_parts_look(struct slurm_parts *parts, int64_t now_ns);
/* Returns how many parts have not ended. */
uint32_t slurm_parts_alive(const struct slurm_parts *parts);
void slurm_parts_deinit(struct slurm_parts *parts);

#endif
