/*
 * What a simulated job does with its replicas: the time of its steps on a placement, the gradient's
 * noise over its life, and how much there is to do. Pure.
 *
 * An application is measured (sched/profile.h) or modelled (sched/models.h). Measured ones go by
 * what Pollux's simulator does (branch osdi21-artifact of petuum/adaptdl), to the last digit.
 */
#ifndef SCHED_APP_H
#define SCHED_APP_H

#include "pawl/adapt.h"

#include <stdbool.h>
#include <stdint.h>

#define APP_NAME      16u  /* bytes of a name, terminator included */
#define APP_SIZES_MAX 16u  /* batch sizes of which noise is known */
#define APP_DIGITS    5u   /* 0 to 4 replicas on a node, as measured */
#define APP_CODES     625u /* of up to 4 nodes: APP_DIGITS^4 */
#define APP_GRID_LOW  5u   /* nodes from which placements are not told apart */
#define APP_GRID_HIGH 16u  /* and the most: more count as these */
#define APP_MEASURED  64u  /* replicas, at most, of what is measured */

/* Where replicas are, as times depend on it. */
struct sched_spot {
	struct pawl_place place; /* nodes: runs of the same node in the list of replicas */
	uint32_t code; /* the runs' lengths as digits; 0: more than 4 of them, or longer ones */
};

struct sched_times {
	double step_s; /* with one gradient */
	double sync_s; /* of that, what is for reducing */
};

/* What was measured of a placement on up to 4 nodes: rows of increasing atomic batches. */
struct app_rows {
	uint32_t first; /* in rows; those of a placement follow each other */
	uint32_t n;     /* 0: not measured */
};

struct app_row {
	uint32_t atomic; /* samples */
	struct sched_times times;
};

/* What was seen in training with a batch size: epoch by epoch, app.epochs of them. */
struct app_size {
	uint32_t total;           /* samples of a step */
	double *iterations;       /* steps until the epoch's end */
	struct pawl_noise *noise; /* at the epoch's end */
};

struct sched_app {
	char name[APP_NAME];
	uint32_t epochs; /* after which a job is complete */
	struct pawl_batch_bounds bounds;
	uint32_t replicas_most; /* that a job of it makes use of; its user may ask for more */
	uint32_t batch_fixed;   /* a job that adapts takes it at any size; 0: the best one */
	double *progress; /* by the end of so many epochs, epochs + 1; in steps of bounds.init */
	struct app_size sizes[APP_SIZES_MAX]; /* of increasing total */
	uint32_t sizes_n;
	uint32_t slots_most;   /* replicas that a node may hold; 0: any number */
	uint32_t nodes_most;   /* that they may be on; 0: any number */
	struct pawl_perf perf; /* of a modelled one; gamma 0: it is measured */
	struct app_row *rows;
	struct app_rows rows_of[APP_CODES]; /* by code */
	/* of 5 to 16 nodes, N to 4N replicas, all atomic batches; NULL: on fewer nodes only */
	struct sched_times *grid;
};

/* All that there are. Zeroed: none. */
struct sched_apps {
	struct sched_app *apps;
	uint32_t n;
};

void sched_apps_deinit(struct sched_apps *apps);
/* NULL: there is none of that name. */
const struct sched_app *sched_apps_find(const struct sched_apps *apps, const char *name);
/* Room for progress and the sizes' rows. False: out of memory. */
bool sched_app_reserve(struct sched_app *app);

/* Of each replica its node's index. n is over 0. */
void sched_spot_fill(struct sched_spot *spot, const uint32_t *nodes, uint32_t n);
/* On as few nodes of so many slots as hold them, all but the last one full. */
void sched_spot_pack(struct sched_spot *spot, uint32_t replicas, uint32_t slots);

/*
 * Seconds of a step. False: atomic is outside of what was measured of the placement, and times are
 * those of the nearest one, multiplied by the ratio of both. A spot of a measured application has
 * at most APP_MEASURED replicas, slots_most on a node, and nodes_most nodes.
 */
bool sched_app_times(const struct sched_app *app, const struct sched_spot *spot, uint32_t atomic,
	struct sched_times *times);
/* Seconds of a step of accum + 1 gradients. */
double sched_step_s(const struct sched_times *times, uint32_t accum);

/* The noise of steps of total samples in an epoch, from 0; between two sizes linear. */
void sched_app_noise(const struct sched_app *app, double total, uint32_t epoch,
	struct pawl_noise *noise);
/* Steps of total samples until the end of an epoch, from 0. */
double sched_app_iterations(const struct sched_app *app, double total, uint32_t epoch);

/* A step of about total samples on so many replicas, in as few gradients as bounds allow. */
void sched_app_split(const struct sched_app *app, uint32_t replicas, double total,
	struct pawl_batch *batch);

#endif
