/* Shows other launchers which ranks live here: see run_presence.h. */
#include "launch/run_presence.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "launch/membership/membership.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct run_presence {
	char membership_path[PATH_MAX]; /* path of the membership file */
	uint32_t launcher;              /* number of this launcher */
	pthread_t thread;               /* the writing thread */
	pthread_mutex_t lock;           /* guards all below */
	pthread_cond_t changed;         /* pending, stop or over has changed */
	struct membership_alive alive;  /* to be written; the thread fills its heartbeat in */
	bool pending;                   /* alive differs from the file */
	bool stop;                      /* the thread must end */
	bool over;                      /* the thread is about to end */
};

static void *run_thread(void *user)
{
	struct run_presence *presence = user;
	struct pawl_err err;
	bool warned = false;
	bool stop = false;

	while (!stop) {
		struct membership_alive alive = {0};

		pthread_mutex_lock(&presence->lock);
		while (!presence->pending && !presence->stop) {
			pthread_cond_wait(&presence->changed, &presence->lock);
		}
		presence->pending = false;
		stop = presence->stop;
		if (!stop) {
			alive = presence->alive;
		}
		pthread_mutex_unlock(&presence->lock);
		alive.heartbeat = (uint64_t)clock_mono_ns();
		if (membership_write_alive(&alive, presence->membership_path, presence->launcher,
			    &err) != 0 &&
			alive.ranks != 0 && !warned) {
			log_line(LOG_WARNING, "other launchers cannot see that ranks live here: %s",
				err.msg);
			warned = true;
		}
	}
	pthread_mutex_lock(&presence->lock);
	presence->over = true;
	pthread_cond_signal(&presence->changed);
	pthread_mutex_unlock(&presence->lock);
	return NULL;
}

int run_presence_open(struct run_presence **presence, const char *membership_path,
	uint32_t launcher, struct pawl_err *err)
{
	struct run_presence *p = calloc(1, sizeof(*p));

	if (p == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	snprintf(p->membership_path, sizeof(p->membership_path), "%s", membership_path);
	p->launcher = launcher;
	pthread_mutex_init(&p->lock, NULL);
	clock_cond_init(&p->changed);
	errno = pthread_create(&p->thread, NULL, run_thread, p);
	if (errno != 0) {
		pawl_err_sys(err, "start a thread");
		pthread_cond_destroy(&p->changed);
		pthread_mutex_destroy(&p->lock);
		free(p);
		return err->code;
	}
	*presence = p;
	return 0;
}

void run_presence_update(struct run_presence *presence, const struct membership_alive *alive)
{
	pthread_mutex_lock(&presence->lock);
	presence->alive = *alive;
	presence->pending = true;
	pthread_cond_signal(&presence->changed);
	pthread_mutex_unlock(&presence->lock);
}

void run_presence_close(struct run_presence *presence)
{
	int64_t until_ns = clock_mono_ns() + times_ns(TIME_RUN_PRESENCE);
	const struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
	bool over;

	if (presence == NULL) {
		return;
	}
	pthread_mutex_lock(&presence->lock);
	presence->stop = true;
	pthread_cond_signal(&presence->changed);
	while (!presence->over &&
		pthread_cond_timedwait(&presence->changed, &presence->lock, &until) == 0) {
	}
	over = presence->over;
	pthread_mutex_unlock(&presence->lock);
	if (!over) {
		return; /* The thread is stuck in a write; both end with the process. */
	}
	pthread_join(presence->thread, NULL);
	pthread_cond_destroy(&presence->changed);
	pthread_mutex_destroy(&presence->lock);
	free(presence);
}
