/*
 * Pipelines: cuts a model into chunks for several stages, puts the tasks of each stage in order,
 * and simulates the plan before anybody runs it. Arithmetic without clock, I/O or state: any thread
 * may call it. Times are in seconds, sizes in bytes.
 *
 * Words. A unit is a piece of the model that is not divided; units are listed in the order in which
 * a forward pass executes them. A stage is one device with its process. A chunk is a run of
 * consecutive units on one stage; mostly a stage has one, in some schedules several. A step's batch
 * is divided into microbatches. A task is one chunk's work for one microbatch.
 *
 * GPipe: Y. Huang and others, GPipe: Efficient Training of Giant Neural Networks, NeurIPS 2019.
 * PipeDream: D. Narayanan and others, Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021
 *   (its flush schedule, called 1F1B).
 * Megatron: D. Narayanan and others, Efficient Large-Scale Language Model Training on GPU Clusters,
 *   SC 2021 (interleaved chunks).
 * Zero bubble: P. Qi and others, Zero Bubble Pipeline Parallelism, ICLR 2024 (ZB-H1, ZB-V). SMP: C.
 * Karakus and others, Amazon SageMaker Model Parallelism, arXiv 2111.05972, 2021.
 */
#ifndef PAWL_PIPE_H
#define PAWL_PIPE_H

#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define PAWL_PIPE_UNITS_MAX        65536u
#define PAWL_PIPE_STAGES_MAX       256u
#define PAWL_PIPE_CHUNKS_MAX       1024u /* chunks of all stages together */
#define PAWL_PIPE_EACH_MAX         8u    /* chunks of a stage that are asked for */
#define PAWL_PIPE_MICROBATCHES_MAX 4096u
#define PAWL_PIPE_TASKS_MAX        (1u << 22)   /* tasks of all stages in one step */
#define PAWL_PIPE_TIED_MAX         64u          /* sets of units that share parameters */
#define PAWL_PIPE_HOLDERS_MAX      256u         /* units in all those sets together */
#define PAWL_PIPE_SECONDS_MAX      1e6          /* each time of a unit */
#define PAWL_PIPE_BYTES_MAX        (1ull << 50) /* each size of a unit, and all parameters */
#define PAWL_PIPE_STATE_MAX        64.0         /* factor from parameters to their state */
#define PAWL_PIPE_ANY_STAGE        UINT32_MAX   /* the unit may be on any stage */
#define PAWL_PIPE_NO_CAP           UINT64_MAX   /* the stage's memory is not limited */

/* ---- the model, and what is wanted ---- */

/* A unit's cost for one microbatch, on a stage of speed 1. */
struct pawl_pipe_unit {
	const char *name;     /* for messages; belongs to the caller, which keeps it */
	double forward_s;     /* time of the forward pass */
	double backward_s;    /* time of the whole backward pass */
	double weight_s;      /* part of backward_s that computes gradients of parameters */
	uint64_t param_bytes; /* parameters */
	uint64_t saved_bytes; /* activations kept from the forward pass to the backward pass */
	uint64_t cut_bytes;   /* bytes alive across the cut before the unit: a cut sends them */
	uint32_t tied;        /* set of units that share parameters, from 1 on; 0: none */
	uint64_t tied_bytes;  /* shared part of param_bytes; the same for all units of a set */
	uint32_t stage;       /* stage that the unit must be on, or PAWL_PIPE_ANY_STAGE */
};

/* Transfers between two stages. The gradient of what was sent has the same size. */
struct pawl_pipe_link {
	double bytes_per_s; /* rate in each direction, at least 1; 0: transfers take no time */
	double latency_s;   /* from the end of a transfer until the task that needs it can begin */
	/* Both stages compute nothing during a transfer. Otherwise transfers overlap with
	 * computing; those in one direction between two stages follow each other. */
	bool busy;
};

enum pawl_pipe_schedule {
	PAWL_PIPE_AUTO,        /* the fastest of the others that fits */
	PAWL_PIPE_SIMPLE,      /* all forwards, then all backwards, both in order (GPipe) */
	PAWL_PIPE_1F1B,        /* backwards as early as possible, few activations (PipeDream) */
	PAWL_PIPE_INTERLEAVED, /* 1F1B with several chunks a stage (Megatron) */
	PAWL_PIPE_ZERO_BUBBLE, /* gradients of parameters fill the bubble (ZB-H1) */
	PAWL_PIPE_ZBV,         /* zero bubble with two chunks a stage, placed as a V (ZB-V) */
	PAWL_PIPE_LISTED,      /* one chunk a stage, in an order found by list scheduling */
	PAWL_PIPE_SCHEDULES
};

/* What becomes of parameters that units on different stages share. */
enum pawl_pipe_tied {
	PAWL_PIPE_TIED_AUTO, /* whichever is predicted to be faster */
	PAWL_PIPE_REPLICATE, /* each stage has a copy; the gradients are summed after the step */
	PAWL_PIPE_VISIT,     /* all of the set run on the stage of the first */
	PAWL_PIPE_TIED_MODES
};

struct pawl_pipe_setting {
	uint32_t stages;            /* 1 .. PAWL_PIPE_STAGES_MAX */
	uint32_t microbatches;      /* microbatches of a step, 1 .. PAWL_PIPE_MICROBATCHES_MAX */
	const double *speeds;       /* speed of each stage, relative to 1; NULL: all 1 */
	const uint64_t *caps_bytes; /* memory of each stage, or PAWL_PIPE_NO_CAP; NULL: no limits */
	struct pawl_pipe_link link; /* transfers between any two stages */
	enum pawl_pipe_schedule schedule; /* schedule that the plan must have */
	uint32_t each;            /* chunks of a stage if interleaved, at least 2; 0: the best */
	uint32_t inflight;        /* most microbatches in flight in a listed order; 0: the best */
	enum pawl_pipe_tied tied; /* what becomes of tied units */
	/* 0: minimise the largest stage's time. Over 0, up to 1: minimise the largest stage's
	 * sum of memory_weight times its share in all memory, and 1 - memory_weight times its share
	 * in all time. This is SMP's objective; memory is parameters and activations of a
	 * microbatch. */
	double memory_weight;
	/* Bytes of state per byte of parameters, 1 .. PAWL_PIPE_STATE_MAX. 4: parameter,
	 * gradient and Adam's two moments, all of one type. */
	double state_factor;
};

/* ---- plans ---- */

enum pawl_pipe_kind {
	PAWL_PIPE_FORWARD,  /* F */
	PAWL_PIPE_BACKWARD, /* B: the whole backward pass */
	PAWL_PIPE_INPUT,    /* I: gradients of the chunk's inputs only */
	PAWL_PIPE_WEIGHT,   /* W: gradients of the chunk's parameters only */
	PAWL_PIPE_KINDS
};

struct pawl_pipe_task {
	uint8_t kind;        /* an enum pawl_pipe_kind */
	uint16_t chunk;      /* index in the plan's chunks */
	uint32_t microbatch; /* from 0 on */
};

/* Chunks are listed in the order in which a forward pass executes them. */
struct pawl_pipe_chunk {
	uint32_t stage;       /* stage that computes the chunk */
	uint32_t first;       /* index of the first unit */
	uint32_t units;       /* number of units, at least 1 */
	double forward_s;     /* time of the forward pass at the stage's speed, one microbatch */
	double backward_s;    /* time of the whole backward pass */
	double weight_s;      /* part of backward_s that computes gradients of parameters */
	uint64_t saved_bytes; /* activations of one microbatch, until its backward pass has ended */
	uint64_t in_bytes;    /* bytes from the chunk before, which is on another stage; or 0 */
};

struct pawl_pipe_stage {
	uint64_t state_bytes; /* parameters and their state; tied units of the stage share theirs */
	uint64_t cap_bytes;   /* memory, or PAWL_PIPE_NO_CAP */
};

/* Parameters that several stages have a copy of. */
struct pawl_pipe_copies {
	uint32_t tied;      /* set of units, as the units name it */
	uint32_t first;     /* index of the first entry in the plan's holders */
	uint32_t stages;    /* number of stages that have a copy, at least 2 */
	uint64_t len_bytes; /* bytes of the shared parameters, and of their gradient */
};

/* A plan owns its arrays: pawl_pipe_plan_deinit frees them. */
struct pawl_pipe_plan {
	uint32_t stages;                  /* number of stages */
	uint32_t chunks_n;                /* number of chunks */
	uint32_t microbatches;            /* microbatches of a step */
	struct pawl_pipe_stage *stage;    /* stages entries */
	struct pawl_pipe_chunk *chunks;   /* chunks_n entries, in order of execution */
	struct pawl_pipe_copies *copies;  /* copies_n entries */
	uint32_t copies_n;                /* tied sets of which several stages have copies */
	uint32_t *holders;                /* stages of the copies; those of a set ascend */
	uint32_t *first;                  /* index of each stage's first task; one more: how many */
	struct pawl_pipe_task *tasks;     /* a stage runs its tasks in this order */
	struct pawl_pipe_link link;       /* transfers between any two stages */
	enum pawl_pipe_schedule schedule; /* never PAWL_PIPE_AUTO */
	uint32_t each;                    /* chunks of a stage that the schedule has */
	uint32_t inflight; /* most microbatches in flight in a listed order; 0: a fixed order */
	bool visits;       /* tied units run on one stage, which has several chunks for that */
	double largest_s;  /* time of the largest stage, one microbatch; with transfers if busy */
	double value;      /* what the cut minimised: see pawl_pipe_choose */
	double bound;      /* proven: no other cut has a lower value */
};

/* Releases a plan's arrays and zeroes it; NULL and zeroed plans are allowed. */
void pawl_pipe_plan_deinit(struct pawl_pipe_plan *plan);

/* ---- what a plan takes ---- */

struct pawl_pipe_stage_report {
	double busy_s;       /* time that the stage computes, and transfers if these keep it busy */
	uint32_t peak_live;  /* most pairs of chunk and microbatch with activations at once */
	uint64_t peak_bytes; /* most bytes at once: state and activations */
};

/* A stage that waits for ever: its next task, and the unfinished one which that needs. */
struct pawl_pipe_wait {
	uint32_t stage;              /* stage that waits */
	struct pawl_pipe_task task;  /* next task of the stage */
	struct pawl_pipe_task needs; /* task of the stage of the next wait, or of the first one */
};

/* A report owns its arrays: pawl_pipe_report_deinit frees them. */
struct pawl_pipe_report {
	double finish_s; /* end of the last task */
	double step_s;   /* finish_s, or the end of the sums of copies' gradients if later */
	double bound_s;  /* no order of the same tasks finishes earlier */
	double bubble;   /* finish_s / the largest busy_s, less 1 */
	uint32_t over;   /* first stage whose peak is above its cap; PAWL_PIPE_ANY_STAGE: none */
	uint32_t stages; /* number of stages */
	struct pawl_pipe_stage_report *stage; /* stages entries */
	double *start_s;                      /* when each task of the plan begins */
	double *end_s;                        /* when each task of the plan ends */
	struct pawl_pipe_wait *waits;         /* the cycle of a deadlock; NULL if there is none */
	uint32_t waits_n;                     /* length of the cycle */
};

/*
 * Simulates a plan, event by event. A forward needs that of the chunk before; a backward needs that
 * of the chunk behind, or, for the last chunk, its own forward; a W needs its I. A stage runs its
 * tasks in order, one at a time. Where the following claim to be exact, the result meets them, with
 * equal chunks and free transfers, p stages, m microbatches, v chunks a stage; bubble is
 *   (p - 1) / m        SIMPLE and 1F1B           (GPipe; PipeDream)
 *   (p - 1) / (v m)    INTERLEAVED, m at least p (Megatron)
 *   (p - 1) / (3 m)    ZERO_BUBBLE, m at least p, F = I = W (Qi and others).
 *
 * PAWL_EINVAL: the plan cannot run. Either a task is missing, twice there, or not one of its stage,
 * or stages wait for each other; then report->waits has the cycle, and the report must be released.
 * PAWL_ELIMIT: more than a limit above. PAWL_ENOMEM. On other errors report is zeroed.
 */
int pawl_pipe_verify(struct pawl_pipe_report *report, const struct pawl_pipe_plan *plan,
	struct pawl_err *err);
/* Releases a report's arrays and zeroes it; NULL and zeroed reports are allowed. */
void pawl_pipe_report_deinit(struct pawl_pipe_report *report);

/*
 * Replaces the tasks of a plan by those of its schedule, for its chunks and number of microbatches,
 * and simulates them. The plan needs no tasks before. A caller may have changed microbatches,
 * inflight, link and the times of chunks. Each chunk's tasks of one kind are in ascending order of
 * microbatches in every schedule, so that its gradients are always added up in the same order.
 *
 * ZBV, LISTED and plans with visits get the best of several orders found by list scheduling. In
 * these, at most inflight microbatches have begun and not ended; 0: the best limit. INTERLEAVED is
 * Megatron's order with other groups: each has at least as many microbatches as there are stages;
 * they are as equal as possible, larger ones first. So it has no deadlock and no larger bubble if
 * the number of microbatches is not a multiple; a listed order is used if it is faster.
 *
 * report: the plan's, as by pawl_pipe_verify. PAWL_EINVAL: no order is found that runs;
 * PAWL_ELIMIT; PAWL_ENOMEM. On error the plan keeps its tasks, and report is zeroed.
 */
int pawl_pipe_order(struct pawl_pipe_plan *plan, struct pawl_pipe_report *report,
	struct pawl_err *err);

/* ---- the best plan ---- */

/* A plan that was considered. */
struct pawl_pipe_option {
	enum pawl_pipe_schedule schedule;
	uint32_t each;              /* chunks of a stage */
	bool visits;                /* tied units run on one stage */
	int code;                   /* 0, or why there is no such plan: a PAWL_E code */
	double step_s;              /* time of a step */
	double bubble;              /* idle share, as in the report */
	uint64_t peak_bytes;        /* peak of the stage that needs most */
	char why[PAWL_ERR_MSG_MAX]; /* the error's message */
};
#define PAWL_PIPE_OPTIONS_MAX 24u

struct pawl_pipe_options {
	uint32_t n;      /* number of entries that are filled */
	uint32_t chosen; /* index of the plan that was returned */
	struct pawl_pipe_option option[PAWL_PIPE_OPTIONS_MAX];
};

/*
 * Makes the best plan that setting allows: cuts the units, orders the tasks, verifies.
 *
 * The cut minimises a value: the time of the largest stage for one microbatch, or that of the
 * largest transfer if that is more and transfers overlap; or SMP's objective (memory_weight). It is
 * the optimum of all cuts in which each chunk has a unit, and one with parameters if any unit has,
 * and no stage needs more than its cap: its state, and the activations of as many microbatches as
 * the schedule keeps there. Of cuts with the same value it prefers those that send little and are
 * even. Visiting units count for the stage that they visit.
 *
 * With several chunks a stage, the value is that of the largest chunk, and the first cut knows no
 * caps; with a listed order, it counts 1F1B's activations. If the stages' memory does not suffice
 * for that, the plan is cut again, on the safe side: each chunk gets an equal share of its stage's
 * cap, and activations of all microbatches in flight count. bound stays that of the first cut.
 *
 * PAWL_PIPE_AUTO takes the fastest plan that fits. It considers 1F1B, SIMPLE, INTERLEAVED, then
 * ZERO_BUBBLE and ZBV if some unit has a weight_s, and LISTED; and with 1F1B both copies of what is
 * tied and visits. A plan that is considered later must be faster by 0.5 %.
 *
 * report: the plan's, as by pawl_pipe_verify. options, if not NULL: all that was considered, also
 * on error. PAWL_EINVAL: a number is not valid, or there is no such plan; the message names units
 * and stages, and says what would do. PAWL_ELIMIT; PAWL_ENOMEM. On error plan and report are
 * zeroed.
 */
int pawl_pipe_choose(struct pawl_pipe_plan *plan, struct pawl_pipe_report *report,
	struct pawl_pipe_options *options, const struct pawl_pipe_unit *units, uint32_t units_n,
	const struct pawl_pipe_setting *setting, struct pawl_err *err);

/* Returns the name of a schedule: "1f1b". Static string. */
const char *pawl_pipe_schedule_name(enum pawl_pipe_schedule schedule);
/* Returns the letter of a kind of tasks: 'F', 'B', 'I' or 'W', as in torch's pipelining. */
char pawl_pipe_kind_letter(enum pawl_pipe_kind kind);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
