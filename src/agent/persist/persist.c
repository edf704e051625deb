/*
 * The queues and the thread of a root's storage thread: see persist.h.
 *
 * Lock: one mutex guards both queues, the flags and the loop's address. It is never held while
 * storage is touched, except to close a root that was abandoned. It is held while the loop is
 * woken (a call that never waits): an abandoned thread must not wake a loop that is being freed.
 */
#include "agent/persist/persist_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"
#include "io/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PERSIST_NICE 10 /* on a busy machine, the trainer and the loop go first */

/* ---- queues ---- */

static void push(struct persist_queue *queue, struct persist_job *job)
{
	ASSERT((queue->head == NULL) == (queue->tail == NULL) && queue->tail != job);
	job->next = NULL;
	if (queue->tail) {
		queue->tail->next = job;
	} else {
		queue->head = job;
	}
	queue->tail = job;
}

static struct persist_job *pop(struct persist_queue *queue)
{
	struct persist_job *job = queue->head;

	if (job) {
		queue->head = job->next;
		queue->tail = queue->head ? queue->tail : NULL;
	}
	return job;
}

void persist_job_free(struct persist_job *job)
{
	if (job->kind == PERSIST_RESOLVE) {
		free(job->result.resolve.plan);
		job->result.resolve.plan = NULL;
		free(job->allocated ? job->resolve.held : NULL);
	}
	free(job->allocated ? job : NULL);
}

static void drop_all(struct persist_queue *queue)
{
	for (struct persist_job *job; (job = pop(queue));) {
		persist_job_free(job);
	}
}

void persist_wake_loop(struct persist *persist)
{
	pthread_mutex_lock(&persist->lock);
	if (persist->loop) {
		loop_wake(persist->loop);
	}
	pthread_mutex_unlock(&persist->lock);
}

/* ---- rows ---- */

void persist_report_rows(struct persist *persist, int rv, const struct pawl_err *err)
{
	if (rv != 0) {
		alerts_put(&persist->alerts, ALERT_HISTORY, err, "its history cannot be written");
	} else {
		alerts_put(&persist->alerts, ALERT_HISTORY, NULL, "its history is written again");
	}
}

/* Makes queued rows due. The caller holds the lock. */
static void set_due(struct persist *persist)
{
	if (persist->rows_due_ns == 0 && persist->is_leader) {
		persist->rows_due_ns = clock_mono_ns() + times_ns(TIME_PERSIST_ROWS);
		pthread_cond_broadcast(&persist->changed);
	}
}

void persist_write_rows(struct persist *persist, bool sync)
{
	struct pawl_err err;
	uint64_t lost;
	int rv;

	if (!persist->root || !persist->is_leader || (!persist->rows_begun && !sync)) {
		return;
	}
	pthread_mutex_lock(&persist->lock);
	rows_take(&persist->history);
	rows_take(&persist->events);
	lost = persist->history.lost + persist->events.lost;
	persist->history.lost = 0;
	persist->events.lost = 0;
	persist->rows_due_ns = 0;
	pthread_mutex_unlock(&persist->lock);
	if (lost > 0) {
		alerts_put(&persist->alerts, ALERT_ONCE, NULL,
			"%llu rows of its history did not fit the queue and are lost",
			(unsigned long long)lost);
	}
	rv = rows_write(&persist->history, persist->root, sync, &err);
	if (rv == 0) {
		persist->rows_begun = persist->rows_begun || sync;
		rv = rows_write(&persist->events, persist->root, false, &err);
	}
	if (rv != PAWL_ECANCELED) {
		persist_report_rows(persist, rv, &err);
		return;
	}
	pthread_mutex_lock(&persist->lock);
	set_due(persist); /* something else had to be done first */
	pthread_mutex_unlock(&persist->lock);
}

void persist_queue_row(struct persist *persist, const struct history_row *row)
{
	pthread_mutex_lock(&persist->lock);
	history_put(&persist->history.row, row, persist->job, clock_wall_ns());
	rows_queue(&persist->history);
	set_due(persist);
	pthread_mutex_unlock(&persist->lock);
}

void persist_queue_event(struct persist *persist, const struct event *event)
{
	pthread_mutex_lock(&persist->lock);
	events_put(&persist->events.row, event, persist->job);
	rows_queue(&persist->events);
	set_due(persist);
	pthread_mutex_unlock(&persist->lock);
}

/* ---- the thread ---- */

bool persist_is_stopping(struct persist *persist)
{
	bool stop;

	pthread_mutex_lock(&persist->lock);
	stop = persist->stop;
	pthread_mutex_unlock(&persist->lock);
	return stop;
}

/* Whether the ranks begin anew, so that waiting for the other hosts is of no use. The caller holds
 * the lock. */
static bool begins_anew(const struct persist *persist)
{
	const struct persist_job *job = persist->todo.head;

	while (job && job->kind != PERSIST_BEGIN) {
		job = job->next;
	}
	return job != NULL;
}

/* Whether a job waits that ranks wait for. The caller holds the lock. */
static bool is_awaited(const struct persist *persist)
{
	const struct persist_job *job = persist->todo.head;

	while (job && job->kind == PERSIST_ENTER) {
		job = job->next;
	}
	return job != NULL;
}

bool persist_is_outdated(void *user)
{
	struct persist *persist = user;
	bool outdated;

	pthread_mutex_lock(&persist->lock);
	outdated = !persist->opening &&
		(begins_anew(persist) || (persist->yields && is_awaited(persist)));
	pthread_mutex_unlock(&persist->lock);
	return outdated;
}

/* agree_pause_fn: waits, but not when the agent leaves. */
static bool pause_thread(void *user, int64_t pause_ns)
{
	struct persist *persist = user;
	int64_t due_ns = clock_mono_ns() + pause_ns;
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
	bool go_on;

	pthread_mutex_lock(&persist->lock);
	while ((go_on = !persist->stop && !begins_anew(persist)) &&
		pthread_cond_timedwait(&persist->changed, &persist->lock, &due) == 0) {
	}
	pthread_mutex_unlock(&persist->lock);
	return go_on;
}

/* Fits agree_options.changed: hands the hosts of the run to the loop. */
static void set_map(void *user)
{
	struct persist *persist = user;

	pthread_mutex_lock(&persist->lock);
	agree_get_map(&persist->agree, &persist->map);
	persist->map_changed = true;
	pthread_mutex_unlock(&persist->lock);
	persist_wake_loop(persist);
}

/* Waits, or writes rows that have waited long enough. Called with the lock and nothing to do. */
static void idle(struct persist *persist)
{
	int64_t due_ns = persist->rows_begun ? persist->rows_due_ns : 0;
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};

	if (due_ns == 0) {
		pthread_cond_wait(&persist->changed, &persist->lock);
	} else if (pthread_cond_timedwait(&persist->changed, &persist->lock, &due) != 0) {
		persist->yields = true;
		pthread_mutex_unlock(&persist->lock);
		persist_write_rows(persist, false);
		persist_wake_loop(persist); /* there may be alerts */
		pthread_mutex_lock(&persist->lock);
		persist->yields = false;
	}
}

/* Queues the rows of saves that are not written when the agent leaves. Nobody submits jobs any
 * more. */
static void queue_unwritten_rows(struct persist *persist)
{
	const struct persist_job *job;

	pthread_mutex_lock(&persist->lock);
	job = persist->todo.head;
	pthread_mutex_unlock(&persist->lock);
	for (; job; job = job->next) {
		if (job->kind == PERSIST_SAVE || job->kind == PERSIST_STREAM_END) {
			persist_queue_row(persist, job->save.row);
		}
	}
}

static void *run_thread(void *user)
{
	struct persist *persist = user;

	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), PERSIST_NICE);
	pthread_mutex_lock(&persist->lock);
	while (!persist->stop) {
		struct persist_job *job = pop(&persist->todo);

		if (!job) {
			idle(persist);
			continue;
		}
		ASSERT(!persist->retains); /* the retention of the job before is over */
		persist->busy = true;
		persist->opening = job->kind == PERSIST_OPEN;
		pthread_mutex_unlock(&persist->lock);
		persist_run_job(persist, job);
		pthread_mutex_lock(&persist->lock);
		persist->busy = persist->retains;
		push(&persist->done, job);
		pthread_mutex_unlock(&persist->lock);
		persist_wake_loop(persist);
		if (persist->retains) {
			persist_retain(persist);
		}
		pthread_mutex_lock(&persist->lock);
	}
	pthread_mutex_unlock(&persist->lock);
	queue_unwritten_rows(persist);
	persist_write_rows(persist, false);
	pthread_mutex_lock(&persist->lock);
	persist->stopped = true;
	pthread_cond_broadcast(&persist->changed);
	if (persist->abandoned) {
		persist_close_root(persist); /* others may wait for the root */
	}
	pthread_mutex_unlock(&persist->lock);
	return NULL;
}

/* ---- for the loop ---- */

static void init_agree(struct persist *persist, const struct persist_options *options)
{
	const struct agree_options agree = {.job = options->job,
		.root_path = options->root,
		.first_rank = options->first_rank,
		.ranks = options->ranks,
		.world = options->ranks + options->remote_ranks,
		.replicas = options->replicas,
		.parity = options->parity,
		.peers = options->peers,
		.pause = pause_thread,
		.changed = set_map,
		.user = persist};

	agree_init(&persist->agree, &agree);
}

/* Frees all except the thread. */
static void free_persist(struct persist *persist)
{
	pthread_cond_destroy(&persist->changed);
	pthread_mutex_destroy(&persist->lock);
	agree_deinit(&persist->agree);
	alerts_deinit(&persist->alerts);
	rows_deinit(&persist->history);
	rows_deinit(&persist->events);
	free(persist->root_path);
	free(persist->hidden);
	free(persist->job);
	free(persist);
}

int persist_start(struct persist **out, struct loop *loop, const struct persist_options *options,
	struct pawl_err *err)
{
	struct persist *persist = calloc(1, sizeof(*persist));

	if (!persist) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a storage thread");
	}
	persist->root_path = strdup(options->root);
	persist->hidden = options->hidden ? strdup(options->hidden) : NULL;
	persist->job = strdup(options->job);
	persist->loop = loop;
	persist->policy = options->policy;
	persist->is_leader = options->first_rank == 0;
	persist->multi_host = options->remote_ranks > 0;
	persist->peers = options->peers;
	pthread_mutex_init(&persist->lock, NULL);
	clock_cond_init(&persist->changed);
	alerts_init(&persist->alerts);
	init_agree(persist, options);
	if (!persist->root_path || !persist->job || (options->hidden && !persist->hidden)) {
		pawl_err_set(err, PAWL_ENOMEM, "no memory for a storage thread");
	} else if (rows_init(&persist->history, HISTORY_FILE, HISTORY_HEADER, err) == 0 &&
		rows_init(&persist->events, EVENTS_FILE, EVENTS_HEADER, err) == 0) {
		persist->history.alerts = &persist->alerts;
		persist->events.alerts = &persist->alerts;
		errno = pthread_create(&persist->thread, NULL, run_thread, persist);
		if (errno == 0) {
			*out = persist;
			return 0;
		}
		pawl_err_sys(err, "start a storage thread");
	}
	free_persist(persist);
	return err ? err->code : PAWL_EIO;
}

void persist_set_policy(struct persist *persist, const struct persist_policy *policy)
{
	pthread_mutex_lock(&persist->lock);
	persist->policy = *policy;
	pthread_mutex_unlock(&persist->lock);
}

void persist_submit(struct persist *persist, struct persist_job *job)
{
	if (job->kind == PERSIST_BEGIN) {
		agree_cancel(&persist->agree); /* until the thread has come to the job */
	}
	memset(&job->result, 0, sizeof(job->result));
	pthread_mutex_lock(&persist->lock);
	push(&persist->todo, job);
	pthread_cond_broadcast(&persist->changed);
	pthread_mutex_unlock(&persist->lock);
}

bool persist_take_map(struct persist *persist, struct peer_map *map)
{
	bool changed;

	pthread_mutex_lock(&persist->lock);
	changed = persist->map_changed;
	if (changed) {
		*map = persist->map;
		persist->map_changed = false;
	}
	pthread_mutex_unlock(&persist->lock);
	return changed;
}

void persist_expect_nonce(struct persist *persist, uint64_t nonce)
{
	agree_expect_nonce(&persist->agree, nonce);
}

struct alerts *persist_alerts(struct persist *persist)
{
	return &persist->alerts;
}

bool persist_idle(struct persist *persist)
{
	bool idle;

	pthread_mutex_lock(&persist->lock);
	idle = !persist->busy && !persist->todo.head && !persist->done.head;
	pthread_mutex_unlock(&persist->lock);
	return idle;
}

struct persist_job *persist_reap(struct persist *persist)
{
	struct persist_job *job;

	pthread_mutex_lock(&persist->lock);
	job = pop(&persist->done);
	pthread_mutex_unlock(&persist->lock);
	return job;
}

bool persist_stop(struct persist *persist, int timeout_ms)
{
	int64_t due_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
	bool stopped;

	agree_cancel(&persist->agree);
	pthread_mutex_lock(&persist->lock);
	persist->stop = true;
	pthread_cond_broadcast(&persist->changed);
	while (!persist->stopped &&
		pthread_cond_timedwait(&persist->changed, &persist->lock, &due) == 0) {
	}
	stopped = persist->stopped;
	persist->abandoned = !stopped;
	persist->loop = stopped ? persist->loop : NULL;
	pthread_mutex_unlock(&persist->lock);
	if (!stopped) {
		/* The thread hangs in the disk. Its memory stays until the process ends, which
		 * is now. */
		pthread_detach(persist->thread);
		return false;
	}
	pthread_join(persist->thread, NULL);
	drop_all(&persist->todo);
	drop_all(&persist->done);
	persist_close_root(persist);
	free_persist(persist);
	return true;
}
