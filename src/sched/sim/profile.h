/*
 * Reads published profiles of applications, and workloads. Errors name the file and the line.
 *
 * DIR is laid out as the artifact of Pollux (branch osdi21-artifact of petuum/adaptdl):
 * traces/<app>/ has placements.csv and a validation-<M>.csv for each batch size. grid/<app>.f64 has
 * the step and sync time on 5 to 16 nodes, little-endian, in the order of nodes, replicas and
 * atomic batch (docs/sim.md).
 */
#ifndef SCHED_SIM_PROFILE_H
#define SCHED_SIM_PROFILE_H

#include "pawl/err.h"
#include "sched/baseline/app.h"
#include "sched/sim/workload.h"

/* Loads all profiles. apps: zeroed; the caller's to deinit, also on failure. PAWL_ENOENT, PAWL_EIO,
 * PAWL_ENOMEM, PAWL_ECORRUPT: a file has invalid content. */
int sched_profiles_load(struct sched_apps *apps, const char *dir, struct pawl_err *err);

/* Loads the jobs of a CSV file (name,time,application,num_replicas,batch_size), which refer to
 * apps. workload: zeroed; the caller's to deinit, also on failure. Errors as of
 * sched_profiles_load. */
int sched_workload_load(struct sched_workload *workload, const struct sched_apps *apps,
	const char *path, struct pawl_err *err);

#endif
