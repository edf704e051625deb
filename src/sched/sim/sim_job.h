/* A job of the simulator: its progress in a round, and the hints that it reports. Pure. */
#ifndef SCHED_SIM_SIM_JOB_H
#define SCHED_SIM_SIM_JOB_H

#include "pawl/err.h"
#include "sched/baseline/oracle.h"
#include "sched/baseline/policies.h"
#include "sched/sim/workload.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_PROFILES_MAX 512u /* profiles of one job, at most; further ones are dropped */

/* Measurements that a job that adapts has made of its steps. */
struct sim_measurements {
	struct pawl_profile *profiles; /* one for each placement and batch; owned */
	uint32_t n, room;              /* entries in profiles; entries that there is room for */
	bool fresh;                    /* some profiles are not in the fit yet */
	struct sched_hints hints;      /* hints, with the newest fit */
};

/* Factors by which the reported values differ from the true ones. */
struct sim_error_factors {
	/* Factors of step times. */
	double alpha_c, beta_c, alpha_r, beta_r, alpha_n, beta_n, delta_n;
	double var; /* factor of the gradient's variance */
};

struct sim_job {
	const struct sched_submission *submission; /* the job's entry in the workload */
	uint32_t index;                            /* position of the job in the workload */
	double end_s;                              /* time of completion; below 0: not complete */
	double progress;                           /* steps done, in terms of an initial batch */
	double countdown_s;                        /* seconds for which the job still pauses */
	double attained, lost; /* slots times seconds; the part of it spent in pauses */
	uint32_t restarts;     /* changes of the replicas after the first start */
	bool started;          /* the job has had replicas */
	uint32_t *nodes;       /* node of each replica; owned */
	uint32_t replicas;     /* number of entries in nodes; 0: the job does not run */
	/* Nodes as step times depend on them; valid if replicas > 0. */
	struct sched_app_placement placement;
	struct pawl_batch batch; /* chosen batch; valid if replicas > 0 */
	struct sched_oracle oracle;
	struct sim_measurements measured;       /* measurements; only if the job adapts */
	struct sim_error_factors error_factors; /* errors of the hints; only if the job adapts */
	struct sched_hints reported;            /* hints with errors; only if the job adapts */
	uint64_t outside; /* step times used that are outside of what was measured */
};

void sim_job_deinit(struct sim_job *job);
/* Advances the job by seconds from now_s on. speed multiplies the rate of progress: 1 less the
 * interference, or the speed of the nodes. */
int sim_job_step(struct sim_job *job, const struct sched_policy_entry *policy, double now_s,
	double seconds, double speed, struct pawl_err *err);
/* Moves the job to the nodes of grant, which are copied; the job then pauses for restart_s. */
int sim_job_move(struct sim_job *job, const struct sched_policy_entry *policy,
	const struct sched_grant *grant, double restart_s, struct pawl_err *err);
/* Draws the errors of the job's hints: see sched_setting. */
void sim_job_draw_errors(struct sim_job *job, double speed_error, double noise_error,
	uint64_t seed);
/* Updates the hints, and reported, their copy with errors. */
int sim_job_update_hints(struct sim_job *job, struct pawl_err *err);

#endif
