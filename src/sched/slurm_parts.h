/* The parts of jobs that a pilot has: started, told to end, killed, waited for. For the pilot's
 * thread. */
#ifndef SCHED_SLURM_PARTS_H
#define SCHED_SLURM_PARTS_H

#include "sched/slurm_form.h"

#include <limits.h>
#include <sys/types.h>

struct slurm_scratch;

/* Another size that a part is to have. */
struct slurm_sizing {
	uint64_t generation; /* 0: none */
	uint32_t slots;
	int64_t until_ns;  /* it is tried again until then */
	int64_t next_ns;   /* the next try */
	pid_t pid;         /* of the program that carries it out; 0: none runs */
	uint32_t asks_for; /* slots, that program */
};

struct slurm_part {
	struct slurm_have_part have;
	struct slurm_sizing sizing;
	uint8_t *program; /* owned; a slurm_program */
	uint32_t len_bytes;
	pid_t pid;              /* of its keeper */
	int started;            /* see slurm_keep; -1: it is closed */
	bool told;              /* it was told to end */
	bool wanted_leave;      /* it is to leave its job */
	bool leaves;            /* it was told so */
	bool over;              /* its keeper is not there any more */
	bool wanted;            /* scratch: the newest want has it */
	int64_t over_ns;        /* over: since when */
	int64_t kill_at_ns;     /* told: when it is killed */
	char scratch[PATH_MAX]; /* of its own, until it is over; "": none */
	uint32_t slots_n;
	uint32_t slots[CORE_SLOTS_MAX]; /* of the node, that are its own, in the order of ranks */
};

struct slurm_parts {
	struct slurm_part **all; /* owned, as each of them */
	uint32_t n;
	const char *runtime;           /* directory of this pilot's own, on the node */
	struct slurm_scratch *scratch; /* for what jobs write for a while */
	uint32_t slots;                /* that the node has */
	bool leaving;                  /* an end from now on is the node's doing */
	bool changed;                  /* since the owner last cleared it */
};

/* Makes them what is wanted. Those that are not in want are killed, or, once over, forgotten. */
void slurm_parts_apply(struct slurm_parts *parts, const struct slurm_want *want);
/* All are told to end, for the node's sake. */
void slurm_parts_leave(struct slurm_parts *parts, int64_t grace_ns);
/* Sees who runs by now, who has ended and who has another size, and kills who is due. */
void slurm_parts_look(struct slurm_parts *parts, int64_t now_ns);
/* How many have not ended. */
uint32_t slurm_parts_alive(const struct slurm_parts *parts);
void slurm_parts_deinit(struct slurm_parts *parts);

#endif
