/* Fetches units behind the running program: see behind.h. Results wait one at a time: the thread
 * goes on when the loop has taken the last one, so that no more than one unit lies in fetch/. */
#include "mirror/behind.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "ckpt/root.h"
#include "mirror/fetch.h"
#include "mirror/workdir.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct behind {
	pthread_t thread;
	pthread_mutex_t lock;        /* guards result and full */
	pthread_cond_t changed;      /* full or stop has changed */
	struct behind_result result; /* valid while full */
	bool full;                   /* a result waits */
	atomic_bool stop;            /* the thread shall end */
	const char *bucket;          /* the starter's */
	const struct workdir *work;  /* the starter's */
	struct start_item *items;    /* sorted by step; owned */
	uint32_t items_n;            /* number of items */
	uint32_t most;               /* units of a group that are fetched; 0: all */
	void (*woken)(void *user);   /* the starter's */
	void *user;                  /* for woken */
};

static bool is_stopped(void *user)
{
	const struct behind *behind = user;

	return atomic_load(&behind->stop);
}

static void put(struct behind *behind, enum behind_what what, const struct start_item *item,
	const char *why)
{
	pthread_mutex_lock(&behind->lock);
	while (behind->full && !is_stopped(behind)) {
		pthread_cond_wait(&behind->changed, &behind->lock);
	}
	behind->result = (struct behind_result){.what = what};
	if (item != NULL) {
		memcpy(behind->result.path, item->path, sizeof(item->path));
		memcpy(behind->result.tag, item->tag, sizeof(item->tag));
	}
	snprintf(behind->result.why, sizeof(behind->result.why), "%.190s", why);
	behind->full = true;
	pthread_mutex_unlock(&behind->lock);
	behind->woken(behind->user);
}

/* Does what is left to do for one unit. */
static int settle(struct behind *behind, struct fetch *fetch, const struct start_item *item,
	struct pawl_err *err)
{
	enum fetch_local local = FETCH_DAMAGED;
	int rv = 0;

	if (item->local) {
		rv = fetch_compare(fetch, item->path, item->tag, true, &local, err);
		if (rv != 0 || local == FETCH_SAME) {
			return rv == PAWL_ENOENT ? 0 : rv; /* the program has removed it */
		}
		if (local == FETCH_NEWER) {
			put(behind, BEHIND_NEWER, item, "");
			return 0;
		}
	}
	rv = fetch_unit(fetch, item->tag, item->mtime_ns, err);
	if (rv == 0) {
		put(behind, item->local ? BEHIND_REPLACED : BEHIND_FETCHED, item, "");
	}
	return rv;
}

/* Returns how many units of the same group are newer. */
static uint32_t count_newer(const struct behind *behind, uint32_t i)
{
	uint32_t n = 0;

	for (uint32_t j = i + 1; j < behind->items_n; j++) {
		n += unit_same_group(behind->items[i].path, behind->items[j].path);
	}
	return n;
}

/* Waits for TIME_MIRROR_RETRY_MAX, or until the thread shall end. */
static void pause_after_failure(struct behind *behind)
{
	int64_t until_ns = clock_mono_ns() + times_ns(TIME_MIRROR_RETRY_MAX);
	const struct timespec until = {(time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S)};
	int rv = 0;

	pthread_mutex_lock(&behind->lock);
	while (rv == 0 && !is_stopped(behind)) {
		rv = pthread_cond_timedwait(&behind->changed, &behind->lock, &until);
	}
	pthread_mutex_unlock(&behind->lock);
}

static void settle_all(struct behind *behind, struct fetch *fetch)
{
	for (uint32_t i = behind->items_n; i > 0 && !is_stopped(behind); i--) {
		const struct start_item *item = &behind->items[i - 1];
		struct pawl_err err;
		int rv;

		if (item->settled || !item->in_bucket ||
			(behind->most > 0 && !item->local &&
				count_newer(behind, i - 1) >= behind->most)) {
			continue;
		}
		rv = settle(behind, fetch, item, &err);
		if (rv != 0 && !is_stopped(behind)) {
			put(behind, BEHIND_FAILED, item, err.msg);
		}
		if (rv != 0 && !fetch_is_damage(rv) && rv != PAWL_ENOSPC) {
			i++; /* storage that fails may work again */
			pause_after_failure(behind);
		}
	}
}

static void *serve(void *user)
{
	struct behind *behind = user;
	struct tags_root *root = NULL;
	struct fetch *fetch = NULL;
	struct pawl_err err;
	int rv = tags_root_open(behind->bucket, NULL, false, &root, &err);

	rv = rv == 0 ? fetch_open(&fetch, root, behind->work, is_stopped, behind, &err) : rv;
	if (rv == 0) {
		settle_all(behind, fetch);
	} else {
		put(behind, BEHIND_FAILED, NULL, err.msg);
	}
	fetch_close(fetch);
	tags_root_close(root);
	put(behind, BEHIND_DONE, NULL, "");
	return NULL;
}

static void release(struct behind *behind)
{
	pthread_cond_destroy(&behind->changed);
	pthread_mutex_destroy(&behind->lock);
	free(behind->items);
	free(behind);
}

int behind_start(struct behind **out, const char *bucket, const struct workdir *work,
	const struct start_item *items, uint32_t items_n, uint32_t most, void (*woken)(void *user),
	void *user, struct pawl_err *err)
{
	struct behind *behind = FAULT_MEM("mirror.behind", calloc(1, sizeof(*behind)));
	int rv;

	if (behind == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to fetch units");
	}
	pthread_mutex_init(&behind->lock, NULL);
	clock_cond_init(&behind->changed);
	behind->bucket = bucket;
	behind->work = work;
	behind->most = most;
	behind->woken = woken;
	behind->user = user;
	behind->items_n = items_n;
	behind->items = FAULT_MEM("mirror.behind", malloc((items_n + 1u) * sizeof(*items)));
	if (behind->items == NULL) {
		release(behind);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to fetch units");
	}
	if (items_n > 0) {
		memcpy(behind->items, items, items_n * sizeof(*items));
	}
	errno = pthread_create(&behind->thread, NULL, serve, behind);
	if (errno != 0) {
		rv = pawl_err_sys(err, "start a thread to fetch units");
		release(behind);
		return rv;
	}
	*out = behind;
	return 0;
}

void behind_stop(struct behind *behind)
{
	if (behind == NULL) {
		return;
	}
	atomic_store(&behind->stop, true);
	pthread_mutex_lock(&behind->lock);
	pthread_cond_signal(&behind->changed);
	pthread_mutex_unlock(&behind->lock);
	pthread_join(behind->thread, NULL);
	release(behind);
}

bool behind_take(struct behind *behind, struct behind_result *result)
{
	bool taken;

	pthread_mutex_lock(&behind->lock);
	taken = behind->full;
	if (taken) {
		*result = behind->result;
		behind->full = false;
		pthread_cond_signal(&behind->changed);
	}
	pthread_mutex_unlock(&behind->lock);
	return taken;
}
