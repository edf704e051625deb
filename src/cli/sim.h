/* What pawl sim has done, and how it is said. */
#ifndef CLI_SIM_H
#define CLI_SIM_H

#include "sched/sim.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_POLICIES_MAX  16u
#define SIM_WORKLOADS_MAX 256u

struct sim_table {
	const struct sched_named *policies[SIM_POLICIES_MAX];
	uint32_t policies_n;
	struct sched_workload workloads[SIM_WORKLOADS_MAX];
	uint32_t workloads_n;
	struct sched_metrics *metrics; /* of each workload's policies: workload by workload */
};

/* Of --pool. Zeroed: none. */
struct sim_pools {
	struct sched_pool pools[SIM_POOLS_MAX];
	char names[SIM_POOLS_MAX][SIM_POOL_NAME];
	uint32_t n;
};

struct cli_command;

/* Adds one, of NAME,KEY=VALUE,…; false: it was said what is wrong. */
bool sim_pool_read(const struct cli_command *command, const char *text, struct sim_pools *pools);

/* A file of what changes in a run: docs/format.md. */
struct sim_history;
#define SIM_HISTORIES_MAX 8u /* in one picture */

/* Makes DIR, if it is not there, and in it a file for the run, whose path is filled. *out is the
 * caller's, to be closed. */
int sim_history_open(struct sim_history **out, char *path, size_t room, const char *dir,
	const char *workload, const char *policy, struct pawl_err *err);
void sim_history_note(struct sim_history *history, const struct sched_note *note);
/* Closes it in any case. PAWL_EIO: not all is written. */
int sim_history_close(struct sim_history *history, const char *path, struct pawl_err *err);
/* Becomes python -m pawl.report, which draws them into DIR. named: the interpreter; NULL: as pawl
 * run finds it. Returns only if it cannot. */
int sim_history_draw(char paths[][PATH_MAX], uint32_t n, const char *dir, const char *named,
	struct pawl_err *err);

const struct sched_metrics *sim_metrics(const struct sim_table *table, uint32_t workload,
	uint32_t policy);
/* A row of each workload and policy, and their means over workloads. */
void sim_print(const struct sim_table *table);
/* Policies side by side, beside the first of them. */
void sim_print_compared(const struct sim_table *table);
/* An exit code. */
int sim_print_json(const struct sim_table *table, const struct sched_setting *setting);

#endif
