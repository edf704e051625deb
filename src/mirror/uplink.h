/*
 * The thread that changes the bucket: it ships one unit or loose file at a time, or removes one,
 * and waits for the network, so that the loop need not. It has the root for itself.
 */
#ifndef MIRROR_UPLINK_H
#define MIRROR_UPLINK_H

#include "ckpt/format/manifest.h"
#include "pawl/err.h"

#include <stdbool.h>
#include <stdint.h>

struct pin;
struct tags_root;
struct uplink;

enum uplink_kind { UPLINK_SHIP, UPLINK_REMOVE, UPLINK_SHIP_LOOSE, UPLINK_REMOVE_LOOSE };

/* A job. */
struct uplink_job {
	enum uplink_kind kind;
	char tag[CKPT_TAG_MAX]; /* UPLINK_SHIP, UPLINK_REMOVE: the tag */
	uint64_t step;          /* UPLINK_SHIP: its step */
	struct pin *pin; /* UPLINK_SHIP: the files; the submitter's, until the result is taken */
	char path[1024]; /* loose files: path */
	bool forced;     /* UPLINK_SHIP_LOOSE: see loose_ship */
};

/* What became of it. */
struct uplink_result {
	int rv;              /* 0, or an error */
	bool lost;           /* another process has the root: nothing works any more */
	uint64_t file;       /* UPLINK_SHIP_LOOSE: number of what was shipped */
	struct pawl_err err; /* error behind rv */
};

/* Starts the thread. It takes root, once this succeeds; dir_fd and job stay the caller's. woken:
 * called on the thread when a job has ended. */
int uplink_start(struct uplink **out, struct tags_root *root, int dir_fd, const char *job,
	void (*woken)(void *user), void *user, struct pawl_err *err);
/* Waits for the job under way, ends the thread, and closes the root. NULL is fine. */
void uplink_stop(struct uplink *uplink);
/* Begins a job; the result of the last one must have been taken. */
void uplink_submit(struct uplink *uplink, const struct uplink_job *job);
/* Takes the result of the job, if it has ended. */
bool uplink_take(struct uplink *uplink, struct uplink_result *result);
uint64_t uplink_sent(struct uplink *uplink); /* bytes of the job that were handed to the store */

#endif
