/*
 * The storage thread of one root: see storage_thread.h.
 *
 * Lock: one mutex guards both queues and the flags. It is never held while the loop is woken, nor
 * while storage is touched, but to close a root that was abandoned.
 */
#include "agent/persist/storage_thread.h"

#include "agent/persist/agree_save.h"
#include "agent/persist/alerts.h"
#include "agent/persist/persist_find.h"
#include "agent/persist/persist_space.h"
#include "agent/persist/rootlock.h"
#include "agent/persist/write_tag.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/times.h"
#include "ckpt/tags.h"
#include "ckpt/write.h"
#include "io/loop.h"
#include "store/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PERSIST_NICE 10 /* the trainer and the loop go first on a busy machine */

struct queue {
	struct persist_job *head; /* oldest job */
	struct persist_job *tail; /* newest job */
};

struct persist {
	char *root;             /* owned copy */
	char *hidden;           /* owned copy, or NULL */
	char *job;              /* owned copy */
	struct loop *loop;      /* woken when a job is done */
	pthread_t thread;       /* storage thread; alone uses all below the queues */
	pthread_mutex_t lock;   /* guards todo, done, policy, stop to busy, and rows as in rows.h */
	pthread_cond_t changed; /* todo, stop, stopped or rows_due_ns changed */
	struct queue todo;      /* submitted */
	struct queue done;      /* finished, not reaped */
	struct persist_policy policy; /* for the next save */
	bool stop;                    /* leave after the current job */
	bool stopped;                 /* the thread has left */
	bool abandoned;               /* persist_stop no longer waits for the thread */
	bool busy;                    /* a job, or the retention after it, is under way */
	bool retains;                 /* thread's: retention follows the current job */
	struct rows history;          /* rows of the history file */
	struct rows events;           /* rows of the events file */
	int64_t rows_due_ns;          /* lock: when to write rows, monotonic ns; 0: no rows */
	char newest[CKPT_TAG_MAX];    /* thread's: newest durable tag, or "" */
	bool rows_begun;              /* thread's: the history exists, and so does a checkpoint */
	struct alerts alerts;         /* for people; has a lock of its own */
	struct store *store;          /* thread's; NULL until PERSIST_OPEN succeeded */
	struct writer *writer;        /* thread's */
	int lock_fd;                  /* thread's; -1: not locked */
	dev_t root_dev;               /* thread's: device of the directory that store holds */
	ino_t root_ino;               /* thread's: inode of that directory */
	bool is_leader;               /* the root is ours: we lock it, and alone delete in it */
	bool multi_host;              /* the job has ranks on other hosts */
	struct agree agree;           /* thread's: agreement with the other hosts */
};

static void push(struct queue *queue, struct persist_job *job)
{
	job->next = NULL;
	if (queue->tail) {
		queue->tail->next = job;
	} else {
		queue->head = job;
	}
	queue->tail = job;
}

static struct persist_job *pop(struct queue *queue)
{
	struct persist_job *job = queue->head;

	if (job) {
		queue->head = job->next;
		queue->tail = queue->head ? queue->tail : NULL;
	}
	return job;
}

static void drop_all(struct queue *queue)
{
	for (struct persist_job *job; (job = pop(queue));) {
		free(job->allocated ? job : NULL);
	}
}

/* Puts news of a failure to write rows, which fails no checkpoint. */
static void report_rows(struct persist *persist, int rv, const struct pawl_err *err)
{
	if (rv != 0) {
		alerts_put(&persist->alerts, ALERT_HISTORY, err, "its history cannot be written");
	} else {
		alerts_put(&persist->alerts, ALERT_HISTORY, NULL, "its history is written again");
	}
}

/* Writes the rows noted so far; sync: durable on return. With several hosts only rank 0's host
 * does. */
static void write_rows(struct persist *persist, bool sync)
{
	struct pawl_err err;
	uint64_t lost;
	int rv;

	if (!persist->store || !persist->is_leader || (!persist->rows_begun && !sync)) {
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
			"%llu rows of its history found no room and are lost",
			(unsigned long long)lost);
	}
	rv = rows_write(&persist->history, persist->store, sync, &err);
	if (rv == 0) {
		persist->rows_begun = persist->rows_begun || sync;
		rv = rows_write(&persist->events, persist->store, false, &err);
	}
	report_rows(persist, rv, &err);
}

/* Makes noted rows due. The caller holds the lock. */
static void set_due(struct persist *persist)
{
	if (persist->rows_due_ns == 0 && persist->is_leader) {
		persist->rows_due_ns = clock_mono_ns() + times_ns(TIME_PERSIST_ROWS);
		pthread_cond_broadcast(&persist->changed);
	}
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

static void record_durable(struct persist *persist, const struct persist_job *job,
	const struct write_tag_result *result, int64_t took_ns)
{
	struct history_row row = *job->row;

	row.level = HISTORY_DURABLE;
	row.persist_ns = (uint64_t)took_ns;
	row.files = result->files;
	row.size_bytes = result->size_bytes;
	row.why[0] = '\0';
	persist_queue_row(persist, &row);
	write_rows(persist, true);
}

/* Names the directory of the lock, which lies with all else that is not a finished tag. */
static const char *lock_dir(const struct persist *persist)
{
	return persist->hidden ? persist->hidden : persist->root;
}

static void close_root(struct persist *persist)
{
	writer_close(persist->writer);
	store_close(persist->store);
	if (persist->lock_fd >= 0) {
		close(persist->lock_fd);
	}
	persist->writer = NULL;
	persist->store = NULL;
	persist->lock_fd = -1;
}

/* tags_stop: stops when the agent leaves. */
static bool is_leaving(void *user)
{
	struct persist *persist = user;
	bool stop;

	pthread_mutex_lock(&persist->lock);
	stop = persist->stop;
	pthread_mutex_unlock(&persist->lock);
	return stop;
}

/* Finds the highest step: tags without a step of their own come behind it. */
static int find_newest(struct persist *persist, struct persist_job *job)
{
	const struct tags_stop stop = {is_leaving, persist};
	struct tag_step newest;
	int rv = tags_highest(persist->store, &stop, &newest, &job->err);

	if (rv == 0) {
		job->found = true;
		job->step = newest.step;
		memcpy(persist->newest, newest.tag, sizeof(persist->newest));
	}
	return rv == PAWL_ENOENT ? 0 : rv;
}

/* Recovers both files from what the last agent left; see history.h and events.h. */
static void recover_rows(struct persist *persist, struct events_past *past)
{
	struct pawl_err err;
	int64_t latest_ns;
	int rv = history_recover(&persist->history, persist->store, &latest_ns, &err);

	if (rv == 0) {
		rv = events_recover(&persist->events, persist->store, latest_ns, past, &err);
	}
	if (rv == 0 && persist->history.taken.len_bytes + persist->events.taken.len_bytes > 0) {
		write_rows(persist, true);
	} else {
		report_rows(persist, rv, &err);
	}
	persist->rows_begun = store_stat(persist->store, HISTORY_FILE, NULL, NULL, NULL) == 0;
}

/* Opens the root on a host without rank 0: rank 0's host locks it and cleans up. */
static int open_shared(struct persist *persist, struct pawl_err *err)
{
	int rv = writer_open(&persist->writer, persist->store, false, err);

	if (rv == 0) {
		rv = agree_open(&persist->agree, persist->store, err);
	}
	if (rv != 0) {
		close_root(persist);
	}
	return rv;
}

/* Makes and locks the root, and cleans up after a crash. */
static int open_root(struct persist *persist, struct pawl_err *err)
{
	struct stat st;
	int rv = store_posix_open_split(persist->root, persist->hidden, true, &persist->store, err);

	if (rv != 0) {
		return rv;
	}
	if (!persist->is_leader) {
		return open_shared(persist, err);
	}
	persist->lock_fd = rootlock_await(lock_dir(persist), persist->job, err);
	if (persist->lock_fd < 0) {
		rv = persist->lock_fd;
		goto close_root;
	}
	if (stat(persist->root, &st) != 0) {
		rv = pawl_err_sys(err, "root %s", persist->root);
		goto close_root;
	}
	persist->root_dev = st.st_dev;
	persist->root_ino = st.st_ino;
	rv = tags_recover(persist->store, err);
	if (rv == 0) {
		rv = writer_open(&persist->writer, persist->store, false, err);
	}
	if (rv == 0 && persist->multi_host) {
		rv = agree_open(&persist->agree, persist->store, err);
	}
close_root:
	if (rv != 0) {
		close_root(persist);
	}
	return rv;
}

static int do_open(struct persist *persist, struct persist_job *job)
{
	int rv = open_root(persist, &job->err);

	if (rv != 0 || !persist->is_leader) {
		return rv;
	}
	rv = find_newest(persist, job);
	if (rv != 0) {
		close_root(persist);
		return rv;
	}
	recover_rows(persist, &job->past);
	return 0;
}

/* Whether root and lock still lie where their paths lead. While they are open nothing else can have
 * their inode numbers. Only what is surely gone counts: storage that fails comes back. */
static bool holds_root(const struct persist *persist)
{
	struct stat there;

	if (stat(persist->root, &there) != 0) {
		return errno != ENOENT && errno != ENOTDIR;
	}
	return there.st_dev == persist->root_dev && there.st_ino == persist->root_ino &&
		rootlock_holds(lock_dir(persist), persist->lock_fd);
}

/*
 * A root that was removed, or replaced by another directory, is not the one our descriptors hold:
 * opens what is there now (making it if need be). If that fails, the next job tries again.
 */
static int ensure_root(struct persist *persist, struct pawl_err *err)
{
	struct events_past past;
	int rv;

	if (persist->store && holds_root(persist)) {
		return 0;
	}
	if (persist->store) {
		alerts_put(&persist->alerts, ALERT_ONCE, NULL,
			"the directory was removed, or another one is in its place: checkpoints "
			"begin anew there");
	}
	close_root(persist);
	rv = open_root(persist, err);
	if (rv == 0 && persist->is_leader) {
		recover_rows(persist, &past);
	}
	return rv;
}

/* Returns the number of a save among all hosts: the ranks' own number in the lower half, and above
 * it how often they have restored in this run. (The ranks' count of restores goes no further back
 * than an agent.) */
static uint64_t host_round(const struct persist *persist, uint64_t seq)
{
	return persist->agree.restores << 32 | (uint32_t)seq;
}

static int do_save(struct persist *persist, struct persist_job *job)
{
	struct write_tag_options options = {.job = persist->job,
		.base = persist->newest,
		.streamed = job->kind == PERSIST_STREAM_END};
	struct write_tag_result result;
	struct persist_policy policy;
	int64_t start_ns = clock_mono_ns();
	int rv;

	FAULT_CRASH("agent.crash.persist");
	pthread_mutex_lock(&persist->lock);
	policy = persist->policy;
	pthread_mutex_unlock(&persist->lock);
	options.full_every =
		persist->multi_host ? 0 : policy.full_every; /* hosts write it in full */
	job->agree = persist->multi_host ? &persist->agree : NULL;
	job->round = host_round(persist, job->seq);
	rv = write_tag_publish(persist->store, persist->writer, job, &options, &result, &job->err);
	if (rv != 0) {
		if (rv == PAWL_ENOSPC) {
			persist_space_explain(persist->root, job->row->size_bytes, &job->err);
		}
		return rv;
	}
	snprintf(persist->newest, sizeof(persist->newest), "%s", job->tag);
	FAULT_CRASH("agent.crash.published");
	if (!persist->is_leader) {
		return 0; /* rank 0's host does the rest */
	}
	record_durable(persist, job, &result, clock_mono_ns() - start_ns);
	persist->retains = true;
	return 0;
}

/* Runs after a save, once the ranks that wait for it are told: freeing a large file's blocks takes
 * long. */
static void retain(struct persist *persist)
{
	struct retain_rule rule;
	struct pawl_err err;

	pthread_mutex_lock(&persist->lock);
	rule = persist->policy.rule;
	pthread_mutex_unlock(&persist->lock);
	if (tags_retain(persist->store, &rule, &err) != 0) {
		alerts_put(&persist->alerts, ALERT_RETAIN, &err,
			"old checkpoints cannot be deleted");
	} else {
		alerts_put(&persist->alerts, ALERT_RETAIN, NULL,
			"old checkpoints are deleted again");
	}
	persist->retains = false;
	pthread_mutex_lock(&persist->lock);
	persist->busy = false;
	pthread_mutex_unlock(&persist->lock);
	loop_wake(persist->loop); /* the loop may wait for persist_idle */
}

static void put_aside(struct persist *persist, const char *tag, const char *why)
{
	struct pawl_err err;
	int rv = tag_quarantine(persist->store, tag, why, &err);

	alerts_put_damaged(&persist->alerts, tag, why, rv == 0 ? NULL : &err);
}

/* Finds the tag that a restore takes. */
static int do_resolve(struct persist *persist, struct persist_job *job)
{
	const struct tags_stop stop = {is_leaving, persist};
	const struct finding finding = {.store = persist->store,
		.stop = &stop,
		.alerts = &persist->alerts,
		.puts_aside = persist->is_leader};

	return persist_find(&finding, job);
}

/* ---- ranks on several hosts ---- */

/* What a callback of agree.h works on. */
struct host_job {
	struct persist *persist;
	struct persist_job *job;
};

/* agree_find_fn */
static int find_for_all(void *user, struct agree_msg_status *status)
{
	const struct host_job *of = user;
	int rv = do_resolve(of->persist, of->job);

	status->found = of->job->found;
	status->step = of->job->step;
	memcpy(status->tag, of->job->tag, sizeof(status->tag));
	if (rv != 0) {
		snprintf(status->why, sizeof(status->why), "%.255s", of->job->err.msg);
	}
	return rv;
}

/* store_list_fn: stops at once, as only opening the directory matters. */
static int stop_listing(void *user, const char *name, enum store_kind kind)
{
	return 1;
}

static int resolve_for_all(struct persist *persist, struct persist_job *job)
{
	struct host_job of = {persist, job};
	struct agree_msg_status status = {.has_step = job->has_step, .asked_step = job->step};
	int rv = agree_offer(&persist->agree, &status, find_for_all, &of, &job->err);

	if (rv != 0) {
		return rv;
	}
	job->found = status.found;
	job->step = status.step;
	memcpy(job->tag, status.tag, sizeof(job->tag));
	/* On NFS, this host's ranks would otherwise see an old copy of the tag. */
	return store_list(persist->store, "", stop_listing, NULL, &job->err);
}

/* agree_condemn_fn */
static void condemn_for_all(void *user, const char *why)
{
	const struct host_job *of = user;

	put_aside(of->persist, of->job->tag, why);
}

static int vote_for_all(struct persist *persist, struct persist_job *job)
{
	struct host_job of = {persist, job};
	struct agree_msg_status status = {.verdict = job->verdict};
	int rv;

	memcpy(status.why, job->why, sizeof(status.why));
	rv = agree_vote(&persist->agree, &status, condemn_for_all, &of, &job->err);
	job->verdict = status.verdict;
	memcpy(job->why, status.why, sizeof(job->why));
	return rv;
}

/* Whether the ranks begin anew: the other hosts are then waited for in vain. The caller holds the
 * lock. */
static bool begins_anew(const struct persist *persist)
{
	const struct persist_job *job = persist->todo.head;

	while (job && job->kind != PERSIST_BEGIN) {
		job = job->next;
	}
	return job != NULL;
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

/* Makes the directory into which ranks write by themselves. */
static int begin_stream(struct persist *persist, struct persist_job *job)
{
	if (persist->multi_host) {
		return agree_save_begin(&persist->agree, host_round(persist, job->seq), job->dir,
			sizeof(job->dir), &job->err);
	}
	return tag_begin(persist->store, job->tag, job->dir, sizeof(job->dir), &job->err);
}

/* Checks the room for a save. Its size is not known yet if only what changed is written. */
static int check_space(struct persist *persist, struct persist_job *job)
{
	bool partly;

	pthread_mutex_lock(&persist->lock);
	partly = persist->policy.full_every > 1 && persist->newest[0] != '\0';
	pthread_mutex_unlock(&persist->lock);
	return persist_space_check(persist->root, partly ? 0 : job->need_bytes, &job->err);
}

static int run_job(struct persist *persist, struct persist_job *job)
{
	int rv = 0;

	if (job->kind == PERSIST_OPEN) {
		return do_open(persist, job);
	}
	if (!persist->store ||
		(!persist->multi_host &&
			(job->kind == PERSIST_SAVE || job->kind == PERSIST_STREAM_BEGIN))) {
		rv = ensure_root(persist, &job->err);
	}
	if (rv != 0) {
		return rv;
	}
	switch (job->kind) {
	case PERSIST_SAVE:
	case PERSIST_STREAM_END:
		return do_save(persist, job);
	case PERSIST_STREAM_BEGIN:
		return begin_stream(persist, job);
	case PERSIST_STREAM_DROP:
		if (!persist->multi_host) { /* else rank 0's host drops it */
			tag_abandon(persist->store, job->tag);
		}
		return 0;
	case PERSIST_RESOLVE:
		return persist->multi_host && job->find_id == 0 ? resolve_for_all(persist, job)
								: do_resolve(persist, job);
	case PERSIST_BEGIN:
		job->rv = agree_begin(&persist->agree, &job->err);
		job->seq = persist->agree.own.nonce;
		return job->rv;
	case PERSIST_FAIL_SAVE:
		return agree_save_fail(&persist->agree, host_round(persist, job->seq), NULL, 0, "",
			&job->failure, &job->err);
	case PERSIST_VOTE:
		return vote_for_all(persist, job);
	case PERSIST_ASIDE:
		put_aside(persist, job->tag, job->why);
		return 0;
	case PERSIST_CHECK_SPACE:
		return check_space(persist, job);
	case PERSIST_REMOVE:
		return tag_remove(persist->store, job->tag, &job->err);
	default:
		return tag_pin(persist->store, job->tag, job->pinned, &job->err);
	}
}

/* Waits, or writes rows that have waited long enough. Called with the lock and nothing to do. */
static void idle(struct persist *persist)
{
	int64_t due_ns = persist->rows_begun ? persist->rows_due_ns : 0;
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};

	if (due_ns == 0) {
		pthread_cond_wait(&persist->changed, &persist->lock);
	} else if (pthread_cond_timedwait(&persist->changed, &persist->lock, &due) != 0) {
		pthread_mutex_unlock(&persist->lock);
		write_rows(persist, false);
		loop_wake(persist->loop); /* there may be news */
		pthread_mutex_lock(&persist->lock);
	}
}

/* Notes saves that were not yet written when the agent left: nobody submits any more. */
static void queue_unwritten_rows(struct persist *persist)
{
	const struct persist_job *job;

	pthread_mutex_lock(&persist->lock);
	job = persist->todo.head;
	pthread_mutex_unlock(&persist->lock);
	for (; job; job = job->next) {
		if (job->row) {
			persist_queue_row(persist, job->row);
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
		persist->busy = true;
		pthread_mutex_unlock(&persist->lock);
		job->rv = run_job(persist, job);
		pthread_mutex_lock(&persist->lock);
		persist->busy = persist->retains;
		push(&persist->done, job);
		pthread_mutex_unlock(&persist->lock);
		loop_wake(persist->loop);
		if (persist->retains) {
			retain(persist);
		}
		pthread_mutex_lock(&persist->lock);
	}
	pthread_mutex_unlock(&persist->lock);
	queue_unwritten_rows(persist);
	write_rows(persist, false);
	pthread_mutex_lock(&persist->lock);
	persist->stopped = true;
	pthread_cond_broadcast(&persist->changed);
	if (persist->abandoned) {
		close_root(persist); /* others may want the root */
	}
	pthread_mutex_unlock(&persist->lock);
	return NULL;
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
	free(persist->root);
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
	persist->root = strdup(options->root);
	persist->hidden = options->hidden ? strdup(options->hidden) : NULL;
	persist->job = strdup(options->job);
	persist->loop = loop;
	persist->policy = options->policy;
	persist->lock_fd = -1;
	persist->is_leader = options->first_rank == 0;
	persist->multi_host = options->remote_ranks > 0;
	pthread_mutex_init(&persist->lock, NULL);
	clock_cond_init(&persist->changed);
	alerts_init(&persist->alerts);
	agree_init(&persist->agree, options->job, options->first_rank, options->ranks,
		options->ranks + options->remote_ranks, pause_thread, persist);
	if (!persist->root || !persist->job || (options->hidden && !persist->hidden)) {
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
	pthread_mutex_lock(&persist->lock);
	push(&persist->todo, job);
	pthread_cond_broadcast(&persist->changed);
	pthread_mutex_unlock(&persist->lock);
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

	pthread_mutex_lock(&persist->lock);
	persist->stop = true;
	pthread_cond_broadcast(&persist->changed);
	while (!persist->stopped &&
		pthread_cond_timedwait(&persist->changed, &persist->lock, &due) == 0) {
	}
	stopped = persist->stopped;
	persist->abandoned = !stopped;
	pthread_mutex_unlock(&persist->lock);
	if (!stopped) {
		/* The thread hangs in the disk: its memory stays until the process ends, which is
		 * now. */
		pthread_detach(persist->thread);
		return false;
	}
	pthread_join(persist->thread, NULL);
	drop_all(&persist->todo);
	drop_all(&persist->done);
	close_root(persist);
	free_persist(persist);
	return true;
}
