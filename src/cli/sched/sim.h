/* The results of pawl sim, and how they are printed. */
#ifndef CLI_SCHED_SIM_H
#define CLI_SCHED_SIM_H

#include "sched/sim/sim.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_POLICIES_MAX  16u
#define SIM_WORKLOADS_MAX 256u

struct sim_table {
	const struct sched_policy_entry *policies[SIM_POLICIES_MAX];
	uint32_t policies_n;
	struct sched_workload workloads[SIM_WORKLOADS_MAX];
	uint32_t workloads_n;
	struct sched_metrics *metrics; /* one for each workload and policy: workload by workload */
};

/* The pools of --pool. Zeroed: none. */
struct sim_pools {
	struct sched_pool pools[SIM_POOLS_MAX];
	char names[SIM_POOLS_MAX][SIM_POOL_NAME];
	uint32_t n;
};

struct cli_command;

/* Adds a pool from NAME,KEY=VALUE,…. False: the error was printed. */
bool sim_pool_read(const struct cli_command *command, const char *text, struct sim_pools *pools);

/* A file of the changes in a run: docs/format.md. */
struct sim_history;
#define SIM_HISTORIES_MAX 8u /* histories in one picture, at most */

/* Makes dir if it is missing, makes a file for the run in it, and sets path to that file's path.
 * The caller closes *out. */
int sim_history_open(struct sim_history **out, char *path, size_t room, const char *dir,
	const char *workload, const char *policy, struct pawl_err *err);
void sim_history_add(struct sim_history *history, const struct sched_sim_change *change);
/* Closes the history in any case. PAWL_EIO: not all is written. */
int sim_history_close(struct sim_history *history, const char *path, struct pawl_err *err);
/* Becomes python -m pawl.report, which draws the histories into dir. named: the interpreter; NULL:
 * as pawl run finds it. Returns only if it cannot be run. */
int sim_history_draw(char paths[][PATH_MAX], uint32_t n, const char *dir, const char *named,
	struct pawl_err *err);

const struct sched_metrics *sim_metrics(const struct sim_table *table, uint32_t workload,
	uint32_t policy);
/* Prints a row for each workload and policy, and their means over workloads. */
void sim_print(const struct sim_table *table);
/* Prints policies side by side, each beside the first. */
void sim_print_compared(const struct sim_table *table);
/* Prints one JSON document. Returns an exit code. */
int sim_print_json(const struct sim_table *table, const struct sched_setting *setting);

#endif
