/*
 * Advises how often to save, and how often to make a save durable, from measurements. The formulas
 * are those of pawl/adapt.h; this keeps their inputs. Pure: time is an argument.
 *
 * A save costs training what save() takes in the slowest rank. Making one durable costs what
 * training loses of its pace meanwhile: between two saves, steps a second fall linearly with the
 * share of the time in which the storage thread wrote; the line is found by least squares. A
 * failure costs the work since the last save if the agent lived on, else the work since the last
 * durable one.
 *
 * The failure rate starts from a prior of one failure in a day (ADVICE_PRIOR) and is then corrected
 * by what happened in this root, runs of earlier agents included.
 */
#ifndef AGENT_LEDGER_ADVICE_H
#define AGENT_LEDGER_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

#define ADVICE_PRIOR_FAILURES 1.0     /* failures that the prior assumes */
#define ADVICE_PRIOR_S        86400.0 /* seconds in which the prior assumes them */
#define ADVICE_COST_S         0.1     /* cost of a save before one was measured, seconds */
#define ADVICE_SLOWDOWN       0.1     /* part of the pace lost to writing, before it is measured */

#define ADVICE_SAVE_RATIO_MIN 20.0 /* interval over the cost of a save, at least: 5 % of the time */
#define ADVICE_PERSIST_RATIO_MIN                                                                   \
	2.0 /* interval over the time to make durable, at least: storage rests half of the time */

/* Bounds of the advised intervals, in seconds. */
struct advice_bounds {
	double save_min_s, save_max_s;       /* between two saves */
	double persist_min_s, persist_max_s; /* between two that are made durable */
};

/* Sums for a line through points; older points fade. */
struct advice_line {
	double n;      /* weighted number of points */
	double x, y;   /* sums of x and of y */
	double xx, xy; /* sums of x squared and of x times y */
};

struct advice {
	struct advice_bounds bounds; /* as given to advice_init */
	uint64_t failures;           /* runs that failed, lost ones included */
	uint64_t losses;             /* failed runs in which the agent was lost too */
	double run_s;                /* total length of runs up to since_ns, seconds */
	bool running;                /* a run is in progress */
	int64_t since_ns;            /* time up to which run_s is counted, monotonic ns */
	double cost_s;               /* recent mean cost of a save, seconds; 0: none was measured */
	double persist_s;            /* recent mean time to make durable, seconds; 0: none yet */
	bool writing;                /* the storage thread writes */
	int64_t writing_ns;          /* when the storage thread began to write, monotonic ns */
	double written_s;            /* total time of writing up to writing_ns, seconds */
	bool begun;                  /* a save began: the begun_ fields are valid */
	int64_t begun_ns;            /* when the last save began, monotonic ns */
	uint64_t begun_step;         /* step of the last save */
	double begun_written_s;      /* total time written when the last save began */
	double begun_stall_s;        /* cost of the last save, in the slowest rank */
	struct advice_line line;     /* steps a second, over the share of time spent writing */
};

/* failures, losses and run_s are of the runs before this agent. */
void advice_init(struct advice *advice, const struct advice_bounds *bounds, uint64_t failures,
	uint64_t losses, double run_s);
/* The workers begin to run, or (running false) no longer do. */
void advice_run(struct advice *advice, bool running, int64_t now_ns);
/* A run failed, and the agent lived on. */
void advice_failed(struct advice *advice);
/* A save of step begins; it has ended, and cost the slowest rank stall_s. */
void advice_begin(struct advice *advice, uint64_t step, int64_t now_ns);
void advice_saved(struct advice *advice, double stall_s);
/* The storage thread begins to write, or has finished (ok: the save is durable). */
void advice_writing(struct advice *advice, int64_t now_ns);
void advice_written(struct advice *advice, bool ok, int64_t now_ns);

/* Returns the part of its pace that training loses while the storage thread writes, from 0 to 1. */
double advice_slowdown(const struct advice *advice);
/* Return the cheapest interval, in seconds, between two saves and between two durable ones. */
double advice_save_s(const struct advice *advice);
double advice_persist_s(const struct advice *advice);

#endif
