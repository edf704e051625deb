/*
 * The thread that fetches the older units behind the running program, newest first, and compares
 * the bytes of those that the directory had. It touches nothing that the program sees: the loop
 * puts in place what it has prepared.
 */
#ifndef MIRROR_BEHIND_H
#define MIRROR_BEHIND_H

#include "mirror/start.h"

struct behind;
struct pawl_err;
struct workdir;

enum behind_what {
	BEHIND_FETCHED,  /* the unit lies in fetch/: fetch_place */
	BEHIND_REPLACED, /* the directory's own is damaged, and a whole one lies in fetch/ */
	BEHIND_NEWER,    /* the directory's own is newer than the bucket's */
	BEHIND_FAILED,   /* the unit cannot be fetched: why */
	BEHIND_DONE,     /* nothing more comes */
};

/* One result. */
struct behind_result {
	enum behind_what what;
	char path[CKPT_TAG_MAX]; /* the unit; "" with BEHIND_DONE */
	char tag[CKPT_TAG_MAX];  /* tag of the unit */
	char why[UNIT_WHY_MAX];  /* with BEHIND_FAILED */
};

/* Starts the thread. bucket: its address; work stays the caller's; items are copied. Of each group
 * only the most newest units are fetched (0: all). woken: called on the thread when there are
 * results. */
int behind_start(struct behind **out, const char *bucket, const struct workdir *work,
	const struct start_item *items, uint32_t items_n, uint32_t most, void (*woken)(void *user),
	void *user, struct pawl_err *err);
/* Stops the thread, and waits for it. NULL is fine. */
void behind_stop(struct behind *behind);
bool behind_take(struct behind *behind, struct behind_result *result);

#endif
