/* The thread that changes the bucket: see uplink.h. One lock guards the job's state; it is held
 * across no call that waits. */
#include "mirror/uplink.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "mirror/loose.h"
#include "mirror/pin.h"
#include "mirror/ship.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum state { IDLE, GIVEN, ENDED };

struct uplink {
	pthread_t thread;
	pthread_mutex_t lock;        /* guards state, stop and result */
	pthread_cond_t changed;      /* state or stop has changed */
	enum state state;            /* state of the job */
	bool stop;                   /* the thread shall end */
	struct uplink_job job;       /* the thread's while state is GIVEN */
	struct uplink_result result; /* valid while state is ENDED */
	struct tags_root *root;      /* the thread's */
	int dir_fd;                  /* the mirrored directory; the starter's */
	const char *name;            /* name of the job for manifests; the starter's */
	atomic_uint_fast64_t sent;   /* bytes of the job so far */
	void (*woken)(void *user);   /* the starter's */
	void *user;                  /* for woken */
};

static int go_on(void *user, struct pawl_err *err)
{
	const struct uplink *uplink = user;

	return pin_check(uplink->job.pin, err);
}

static void on_progress(void *user, uint64_t bytes)
{
	struct uplink *uplink = user;

	atomic_fetch_add(&uplink->sent, bytes);
}

static int ship(struct uplink *uplink, struct pawl_err *err)
{
	const struct uplink_job *job = &uplink->job;
	const struct copy_watch watch = {go_on, on_progress, uplink};
	struct ship_unit unit = {.step = job->step,
		.files = job->pin->files,
		.files_n = job->pin->files_n};

	int rv;

	snprintf(unit.tag, sizeof(unit.tag), "%s", job->tag);
	snprintf(unit.job, sizeof(unit.job), "%s", uplink->name);
	rv = ship_unit(uplink->root, &unit, &watch, err);
	if (rv == PAWL_ECANCELED || rv == PAWL_EMISMATCH) {
		ship_recover(uplink->root, NULL, 0, NULL); /* else the next start does that */
		rv = PAWL_ECANCELED;
	}
	return rv;
}

/* Loose files have no owner of their own: the root's is asked. */
static int check_owner(const struct uplink *uplink, struct pawl_err *err)
{
	return tags_root_holds(uplink->root)
		? 0
		: pawl_err_set(err, PAWL_EBUSY, "another process has taken the bucket's prefix");
}

static void do_job(struct uplink *uplink, struct uplink_result *result)
{
	struct store *store = tags_root_store(uplink->root);
	const struct uplink_job *job = &uplink->job;
	struct loose_sent sent = {.file = 0};
	struct pawl_err *err = &result->err;

	if (job->kind == UPLINK_SHIP) {
		result->rv = ship(uplink, err);
	} else if (job->kind == UPLINK_REMOVE) {
		result->rv = tag_remove(uplink->root, job->tag, err);
	} else {
		result->rv = check_owner(uplink, err);
	}
	if (result->rv == 0 && job->kind == UPLINK_SHIP_LOOSE) {
		result->rv = loose_ship(store, uplink->dir_fd, job->path, job->forced, &sent, err);
	} else if (result->rv == 0 && job->kind == UPLINK_REMOVE_LOOSE) {
		result->rv = store_remove(store, job->path, err);
	}
	result->file = sent.file;
	result->lost = result->rv == PAWL_EBUSY && !tags_root_holds(uplink->root);
}

static void *serve(void *user)
{
	struct uplink *uplink = user;

	pthread_mutex_lock(&uplink->lock);
	while (!uplink->stop) {
		struct uplink_result result = {.rv = 0};

		if (uplink->state != GIVEN) {
			pthread_cond_wait(&uplink->changed, &uplink->lock);
			continue;
		}
		pthread_mutex_unlock(&uplink->lock);
		do_job(uplink, &result);
		pthread_mutex_lock(&uplink->lock);
		uplink->result = result;
		uplink->state = ENDED;
		uplink->woken(uplink->user);
	}
	pthread_mutex_unlock(&uplink->lock);
	return NULL;
}

int uplink_start(struct uplink **out, struct tags_root *root, int dir_fd, const char *job,
	void (*woken)(void *user), void *user, struct pawl_err *err)
{
	struct uplink *uplink = FAULT_MEM("mirror.uplink", calloc(1, sizeof(*uplink)));

	if (uplink == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to ship units");
	}
	pthread_mutex_init(&uplink->lock, NULL);
	pthread_cond_init(&uplink->changed, NULL);
	uplink->root = root;
	uplink->dir_fd = dir_fd;
	uplink->name = job;
	uplink->woken = woken;
	uplink->user = user;
	errno = pthread_create(&uplink->thread, NULL, serve, uplink);
	if (errno != 0) {
		int rv = pawl_err_sys(err, "start a thread to ship units");

		free(uplink);
		return rv;
	}
	*out = uplink;
	return 0;
}

void uplink_stop(struct uplink *uplink)
{
	if (uplink == NULL) {
		return;
	}
	pthread_mutex_lock(&uplink->lock);
	uplink->stop = true;
	pthread_cond_signal(&uplink->changed);
	pthread_mutex_unlock(&uplink->lock);
	pthread_join(uplink->thread, NULL);
	tags_root_close(uplink->root);
	pthread_cond_destroy(&uplink->changed);
	pthread_mutex_destroy(&uplink->lock);
	free(uplink);
}

void uplink_submit(struct uplink *uplink, const struct uplink_job *job)
{
	pthread_mutex_lock(&uplink->lock);
	ASSERT(uplink->state == IDLE);
	uplink->job = *job;
	atomic_store(&uplink->sent, 0);
	uplink->state = GIVEN;
	pthread_cond_signal(&uplink->changed);
	pthread_mutex_unlock(&uplink->lock);
}

bool uplink_take(struct uplink *uplink, struct uplink_result *result)
{
	bool ended;

	pthread_mutex_lock(&uplink->lock);
	ended = uplink->state == ENDED;
	if (ended) {
		*result = uplink->result;
		uplink->state = IDLE;
	}
	pthread_mutex_unlock(&uplink->lock);
	return ended;
}

uint64_t uplink_sent(struct uplink *uplink)
{
	return atomic_load(&uplink->sent);
}
