/*
 * How often it is worth it to save, and to make durable, from what was measured: pure, time comes
 * in as an argument. The formulas are pawl/adapt.h's; this keeps the numbers that go into them.
 *
 * A save costs training what save() takes in the slowest rank. Making one durable costs what
 * training loses of its pace meanwhile: between two saves, steps a second fall linearly with the
 * share of the time in which the storage thread wrote; the line is found by least squares. Failures
 * cost the work since the last save, if the agent lived on; else that since the last durable one.
 *
 * How often failures come is believed to be as if one had come in a day (ADVICE_PRIOR), and then as
 * what was seen in this root since, runs of earlier agents included, makes it.
 */
#ifndef AGENT_ADVICE_H
#define AGENT_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

#define ADVICE_PRIOR_FAILURES 1.0     /* see above */
#define ADVICE_PRIOR_S        86400.0 /* likewise */
#define ADVICE_COST_S         0.1     /* that a save costs, before one was measured */
#define ADVICE_SLOWDOWN       0.1     /* part of the pace lost while writing, likewise */

#define ADVICE_SAVE_COSTS 20.0 /* at least so many times what a save costs: 5 % of the time */
#define ADVICE_PERSIST_TIMES                                                                       \
	2.0 /* at least so many times what it takes: storage rests half of the time */

/* Of what is advised. */
struct advice_bounds {
	double save_min_s, save_max_s;       /* between two saves */
	double persist_min_s, persist_max_s; /* between two that are made durable */
};

/* Sums for a line through points, older ones fading. */
struct advice_line {
	double n;      /* points */
	double x, y;   /* sums */
	double xx, xy; /* of squares and products */
};

struct advice {
	struct advice_bounds bounds; /* as given */
	uint64_t failures;           /* runs that failed, all */
	uint64_t losses;             /* of them: the agent was lost too */
	double run_s;                /* that runs lasted, the one in progress up to since_ns */
	bool running;                /* a run is in progress */
	int64_t since_ns;            /* it is counted up to here */
	double cost_s;               /* of a save, recent mean; 0: none was measured */
	double persist_s;            /* to make durable, recent mean; 0: likewise */
	bool writing;                /* the storage thread writes */
	int64_t writing_ns;          /* since then */
	double written_s;            /* it wrote in all, up to then */
	bool begun;                  /* a save began; then: */
	int64_t begun_ns;            /* when the last one did */
	uint64_t begun_step;         /* its step */
	double begun_written_s;      /* written_s then */
	double begun_stall_s;        /* what it cost */
	struct advice_line line;     /* steps a second, over the share of time spent writing */
};

/* The rest is what is known of runs before this agent. */
void advice_init(struct advice *advice, const struct advice_bounds *bounds, uint64_t failures,
	uint64_t losses, double run_s);
/* Workers run, or do not any more. */
void advice_run(struct advice *advice, bool running, int64_t now_ns);
/* A run failed, and the agent did not. */
void advice_failed(struct advice *advice);
/* A save of step begins; it is over, and cost the slowest rank so much. */
void advice_begin(struct advice *advice, uint64_t step, int64_t now_ns);
void advice_saved(struct advice *advice, double stall_s);
/* The storage thread begins to write, or is done (ok: the save is durable). */
void advice_writing(struct advice *advice, int64_t now_ns);
void advice_written(struct advice *advice, bool ok, int64_t now_ns);

/* What training loses of its pace while the storage thread writes: from 0 to 1, nothing to all. */
double advice_slowdown(const struct advice *advice);
/* Seconds between two saves, and between two that are made durable, that cost least. */
double advice_save_s(const struct advice *advice);
double advice_persist_s(const struct advice *advice);

#endif
