/*
 * The model of a simulated job: the time of its steps on a placement, the gradient's noise over the
 * job's life, and how much there is to do. Pure.
 *
 * An application is measured (sched/sim/profile.h) or modelled (sched/sim/models.h). Measured ones
 * match Pollux's simulator (branch osdi21-artifact of petuum/adaptdl) to the last digit.
 */
#ifndef SCHED_BASELINE_APP_H
#define SCHED_BASELINE_APP_H

#include "pawl/adapt.h"

#include <stdbool.h>
#include <stdint.h>

#define APP_NAME      16u  /* bytes of a name, terminator included */
#define APP_SIZES_MAX 16u  /* batch sizes of which noise is known */
#define APP_DIGITS    5u   /* values of a digit: 0 to 4 replicas on a node, as measured */
#define APP_CODES     625u /* codes of placements on up to 4 nodes: APP_DIGITS^4 */
#define APP_GRID_LOW  5u   /* nodes from which on placements differ only by their numbers */
#define APP_GRID_HIGH 16u  /* largest number of nodes in the grid: more count as these */
#define APP_MEASURED  64u  /* replicas of a measured placement, at most */

/* A placement of replicas, as far as the time of a step depends on it. */
struct sched_app_placement {
	struct pawl_placement place; /* place.nodes: runs of one node in the list of replicas */
	uint32_t code; /* lengths of runs as digits; 0: over 4 runs, or over 4 replicas in one */
};

struct sched_times {
	double step_s; /* seconds of a step with one gradient */
	double sync_s; /* part of step_s that is spent on reducing */
};

/* Measurements of a placement on up to 4 nodes: rows by ascending atomic batch. */
struct app_row_range {
	uint32_t first; /* index in sched_app.rows; rows of a placement follow each other */
	uint32_t n;     /* number of rows; 0: not measured */
};

struct app_row {
	uint32_t atomic; /* atomic batch, in samples */
	struct sched_times times;
};

/* Measurements of training with one batch size, epoch by epoch: app.epochs entries each. */
struct app_size {
	uint32_t total;           /* batch size: samples of a step */
	double *iterations;       /* steps until the end of each epoch, from the beginning */
	struct pawl_noise *noise; /* noise at the end of each epoch */
};

struct sched_app {
	char name[APP_NAME];
	uint32_t epochs; /* epochs after which a job is complete */
	struct pawl_batch_bounds bounds;
	uint32_t replicas_most; /* replicas that a job can use; its user may ask for more */
	uint32_t batch_fixed;   /* batch of a job that adapts, at any size; 0: the best one */
	double *progress; /* by number of complete epochs, 0 to epochs; in steps of bounds.init */
	struct app_size sizes[APP_SIZES_MAX]; /* ascending by total */
	uint32_t sizes_n;
	uint32_t slots_most;   /* replicas that a node may hold; 0: any number */
	uint32_t nodes_most;   /* nodes that a job may be on; 0: any number */
	struct pawl_perf perf; /* step times of a modelled application; gamma 0: it is measured */
	struct app_row *rows;
	struct app_row_range rows_of[APP_CODES]; /* rows of each placement, by its code */
	/* Times on 5 to 16 nodes, N to 4N replicas, all atomic batches; NULL: on fewer nodes
	 * only. */
	struct sched_times *grid;
};

/* All applications. Zeroed: none. */
struct sched_apps {
	struct sched_app *apps;
	uint32_t n;
};

void sched_apps_deinit(struct sched_apps *apps);
/* Returns NULL if no application has that name. */
const struct sched_app *sched_apps_find(const struct sched_apps *apps, const char *name);
/* Allocates progress and the arrays of the sizes. Returns false if memory is short. */
bool sched_app_reserve(struct sched_app *app);

/* Fills placement from nodes, the index of each replica's node. n is over 0. */
void sched_app_placement_fill(struct sched_app_placement *placement, const uint32_t *nodes,
	uint32_t n);
/* Fills placement with the fewest nodes of so many slots that hold the replicas, all but the last
 * one full. */
void sched_app_placement_pack(struct sched_app_placement *placement, uint32_t replicas,
	uint32_t slots);

/*
 * Finds the time of a step. Returns false if atomic is outside of what was measured of the
 * placement: times are then those of the nearest batch, multiplied by the ratio of the two batches.
 * A placement of a measured application has at most APP_MEASURED replicas, slots_most on a node,
 * and nodes_most nodes.
 */
bool sched_app_times(const struct sched_app *app, const struct sched_app_placement *placement,
	uint32_t atomic, struct sched_times *times);
/* Returns the seconds of a step of accum + 1 gradients. */
double sched_step_s(const struct sched_times *times, uint32_t accum);

/* Finds the noise of steps of total samples in an epoch, from 0; linear between two sizes. */
void sched_app_noise(const struct sched_app *app, double total, uint32_t epoch,
	struct pawl_noise *noise);
/* Returns the steps of total samples until the end of an epoch, from 0. */
double sched_app_iterations(const struct sched_app *app, double total, uint32_t epoch);

/* Splits a step of about total samples over so many replicas, into as few gradients as bounds
 * allow. */
void sched_app_split(const struct sched_app *app, uint32_t replicas, double total,
	struct pawl_batch *batch);

#endif
