/* A job of the simulator: what it does in a round, and what it tells of itself. Pure. */
#ifndef SCHED_SIM_JOB_H
#define SCHED_SIM_JOB_H

#include "pawl/err.h"
#include "sched/oracle.h"
#include "sched/policies.h"
#include "sched/workload.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_PROFILES_MAX 512u /* that a job remembers; from then on it learns no more */

/* What a job that adapts has seen of its steps. */
struct sim_seen {
	struct pawl_profile *profiles; /* each place and batch once */
	uint32_t n, room;              /* of them; that there is room for */
	bool fresh;                    /* some are not in the fit */
	struct sched_hints hints;      /* with the last fit */
};

/* What the true figures are multiplied by when they are told. */
struct sim_wrong {
	double alpha_c, beta_c, alpha_r, beta_r, alpha_n, beta_n, delta_n; /* of the step's times */
	double var; /* of the gradient's variance */
};

struct sim_job {
	const struct sched_submission *of; /* the workload's */
	uint32_t index;                    /* in it */
	double end_s;                      /* when it was complete; below 0: it is not */
	double progress;                   /* steps of an initial batch */
	double countdown_s;                /* that it still stands still */
	double attained, lost;             /* slots times seconds; of those, standing still */
	uint32_t restarts;                 /* since its first start */
	bool started;                      /* it had replicas once */
	uint32_t *nodes;                   /* of each replica */
	uint32_t replicas;                 /* in nodes */
	struct sched_spot spot;            /* the same, as times depend on it; if replicas > 0 */
	struct pawl_batch batch;           /* if replicas > 0 */
	struct sched_oracle oracle;
	struct sim_seen seen;    /* if it adapts */
	struct sim_wrong wrong;  /* likewise */
	struct sched_hints told; /* likewise: the hints, with what is wrong in them */
	uint64_t outside;        /* times outside of what was measured */
};

void sim_job_deinit(struct sim_job *job);
/* Makes seconds' worth of steps, from now_s on, at speed (1 less what interferes). */
int sim_job_step(struct sim_job *job, const struct sched_named *policy, double now_s,
	double seconds, double speed, struct pawl_err *err);
/* Gives it other nodes, copied; stands still for restart_s then. */
int sim_job_move(struct sim_job *job, const struct sched_named *policy,
	const struct sched_grant *grant, double restart_s, struct pawl_err *err);
/* Draws what is wrong in its hints: see sched_setting. */
void sim_job_err(struct sim_job *job, double speed_error, double noise_error, uint64_t seed);
/* Brings the hints up to date, and what is told of them. */
int sim_job_tell(struct sim_job *job, struct pawl_err *err);

#endif
