/*
 * The storage thread of one root: see persist.h.
 *
 * Lock: one mutex guards both queues and the flags. It is never held while the loop is woken, nor
 * while storage is touched, but to close a root that was abandoned.
 */
#include "agent/persist/persist.h"

#include "agent/persist/hosts_save.h"
#include "agent/persist/news.h"
#include "agent/persist/persist_find.h"
#include "agent/persist/persist_room.h"
#include "agent/persist/rootlock.h"
#include "agent/persist/save.h"
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
	struct news news;             /* for people; has a lock of its own */
	struct store *store;          /* thread's; NULL until PERSIST_OPEN succeeded */
	struct writer *writer;        /* thread's */
	int lock_fd;                  /* thread's; -1: not locked */
	dev_t root_dev;               /* thread's: device of the directory that store holds */
	ino_t root_ino;               /* thread's: inode of that directory */
	bool lead;                    /* the root is ours: we lock it, and alone delete in it */
	bool spans;                   /* the job has ranks on other hosts */
	struct hosts hosts;           /* thread's: agreement with the other hosts */
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
static void tell_rows(struct persist *persist, int rv, const struct pawl_err *err)
{
	if (rv != 0) {
		news_put(&persist->news, NEWS_HISTORY, err, "its history cannot be written");
	} else {
		news_put(&persist->news, NEWS_HISTORY, NULL, "its history is written again");
	}
}

/* Writes the rows noted so far; sync: durable on return. With several hosts only rank 0's host
 * does. */
static void write_rows(struct persist *persist, bool sync)
{
	struct pawl_err err;
	uint64_t lost;
	int rv;

	if (!persist->store || !persist->lead || (!persist->rows_begun && !sync)) {
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
		news_put(&persist->news, NEWS_ONCE, NULL,
			"%llu rows of its history found no room and are lost",
			(unsigned long long)lost);
	}
	rv = rows_write(&persist->history, persist->store, sync, &err);
	if (rv == 0) {
		persist->rows_begun = persist->rows_begun || sync;
		rv = rows_write(&persist->events, persist->store, false, &err);
	}
	tell_rows(persist, rv, &err);
}

/* Makes noted rows due. The caller holds the lock. */
static void set_due(struct persist *persist)
{
	if (persist->rows_due_ns == 0 && persist->lead) {
		persist->rows_due_ns = clock_mono_ns() + times_ns(TIME_PERSIST_ROWS);
		pthread_cond_broadcast(&persist->changed);
	}
}

void persist_note(struct persist *persist, const struct history_row *row)
{
	pthread_mutex_lock(&persist->lock);
	history_put(&persist->history.row, row, persist->job, clock_wall_ns());
	rows_note(&persist->history);
	set_due(persist);
	pthread_mutex_unlock(&persist->lock);
}

void persist_note_event(struct persist *persist, const struct event *event)
{
	pthread_mutex_lock(&persist->lock);
	events_put(&persist->events.row, event, persist->job);
	rows_note(&persist->events);
	set_due(persist);
	pthread_mutex_unlock(&persist->lock);
}

static void note_durable(struct persist *persist, const struct persist_job *job,
	const struct save_result *result, int64_t took_ns)
{
	struct history_row row = *job->row;

	row.level = HISTORY_DURABLE;
	row.persist_ns = (uint64_t)took_ns;
	row.files = result->files;
	row.size_bytes = result->size_bytes;
	row.why[0] = '\0';
	persist_note(persist, &row);
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
		tell_rows(persist, rv, &err);
	}
	persist->rows_begun = store_stat(persist->store, HISTORY_FILE, NULL, NULL, NULL) == 0;
}

/* Opens the root on a host without rank 0: rank 0's host locks it and cleans up. */
static int open_shared(struct persist *persist, struct pawl_err *err)
{
	int rv = writer_open(&persist->writer, persist->store, false, err);

	if (rv == 0) {
		rv = hosts_open(&persist->hosts, persist->store, err);
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
	if (!persist->lead) {
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
	if (rv == 0 && persist->spans) {
		rv = hosts_open(&persist->hosts, persist->store, err);
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

	if (rv != 0 || !persist->lead) {
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
static int keep_root(struct persist *persist, struct pawl_err *err)
{
	struct events_past past;
	int rv;

	if (persist->store && holds_root(persist)) {
		return 0;
	}
	if (persist->store) {
		news_put(&persist->news, NEWS_ONCE, NULL,
			"the directory was removed, or another one is in its place: checkpoints "
			"begin anew there");
	}
	close_root(persist);
	rv = open_root(persist, err);
	if (rv == 0 && persist->lead) {
		recover_rows(persist, &past);
	}
	return rv;
}

/* Returns the number of a save among all hosts: the ranks' own number in the lower half, and above
 * it how often they have restored in this run. (The ranks' count of restores goes no further back
 * than an agent.) */
static uint64_t host_round(const struct persist *persist, uint64_t seq)
{
	return persist->hosts.restores << 32 | (uint32_t)seq;
}

static int do_save(struct persist *persist, struct persist_job *job)
{
	struct save_how how = {.job = persist->job,
		.base = persist->newest,
		.streamed = job->kind == PERSIST_STREAM_END};
	struct save_result result;
	struct persist_policy policy;
	int64_t start_ns = clock_mono_ns();
	int rv;

	FAULT_CRASH("agent.crash.persist");
	pthread_mutex_lock(&persist->lock);
	policy = persist->policy;
	pthread_mutex_unlock(&persist->lock);
	how.full_every = persist->spans ? 0 : policy.full_every; /* hosts write it in full */
	job->hosts = persist->spans ? &persist->hosts : NULL;
	job->round = host_round(persist, job->seq);
	rv = save_write(persist->store, persist->writer, job, &how, &result, &job->err);
	if (rv != 0) {
		if (rv == PAWL_ENOSPC) {
			persist_room_explain(persist->root, job->row->size_bytes, &job->err);
		}
		return rv;
	}
	snprintf(persist->newest, sizeof(persist->newest), "%s", job->tag);
	FAULT_CRASH("agent.crash.published");
	if (!persist->lead) {
		return 0; /* rank 0's host does the rest */
	}
	note_durable(persist, job, &result, clock_mono_ns() - start_ns);
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
		news_put(&persist->news, NEWS_RETAIN, &err, "old checkpoints cannot be deleted");
	} else {
		news_put(&persist->news, NEWS_RETAIN, NULL, "old checkpoints are deleted again");
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
	int rv = tag_put_aside(persist->store, tag, why, &err);

	news_put_aside(&persist->news, tag, why, rv == 0 ? NULL : &err);
}

/* Finds the tag that a restore takes. */
static int do_resolve(struct persist *persist, struct persist_job *job)
{
	const struct tags_stop stop = {is_leaving, persist};
	const struct finding finding = {.store = persist->store,
		.stop = &stop,
		.news = &persist->news,
		.puts_aside = persist->lead};

	return persist_find(&finding, job);
}

/* ---- ranks on several hosts ---- */

/* What a callback of hosts.h works on. */
struct host_job {
	struct persist *persist;
	struct persist_job *job;
};

/* hosts_find_fn */
static int find_for_all(void *user, struct note_word *word)
{
	const struct host_job *of = user;
	int rv = do_resolve(of->persist, of->job);

	word->found = of->job->found;
	word->step = of->job->step;
	memcpy(word->tag, of->job->tag, sizeof(word->tag));
	if (rv != 0) {
		snprintf(word->why, sizeof(word->why), "%.255s", of->job->err.msg);
	}
	return rv;
}

/* store_list_fn: stops at once, as only opening the directory matters. */
static int look_at_none(void *user, const char *name, enum store_kind kind)
{
	return 1;
}

static int resolve_for_all(struct persist *persist, struct persist_job *job)
{
	struct host_job of = {persist, job};
	struct note_word word = {.has_step = job->has_step, .asked = job->step};
	int rv = hosts_offer(&persist->hosts, &word, find_for_all, &of, &job->err);

	if (rv != 0) {
		return rv;
	}
	job->found = word.found;
	job->step = word.step;
	memcpy(job->tag, word.tag, sizeof(job->tag));
	/* On NFS, this host's ranks would otherwise see an old copy of the tag. */
	return store_list(persist->store, "", look_at_none, NULL, &job->err);
}

/* hosts_condemn_fn */
static void condemn_for_all(void *user, const char *why)
{
	const struct host_job *of = user;

	put_aside(of->persist, of->job->tag, why);
}

static int vote_for_all(struct persist *persist, struct persist_job *job)
{
	struct host_job of = {persist, job};
	struct note_word word = {.verdict = job->verdict};
	int rv;

	memcpy(word.why, job->why, sizeof(word.why));
	rv = hosts_vote(&persist->hosts, &word, condemn_for_all, &of, &job->err);
	job->verdict = word.verdict;
	memcpy(job->why, word.why, sizeof(job->why));
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

/* hosts_pause_fn: waits, but not when the agent leaves. */
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
	if (persist->spans) {
		return hosts_save_begin(&persist->hosts, host_round(persist, job->seq), job->dir,
			sizeof(job->dir), &job->err);
	}
	return tag_begin(persist->store, job->tag, job->dir, sizeof(job->dir), &job->err);
}

/* Checks the room for a save. Its size is not known yet if only what changed is written. */
static int look_at_room(struct persist *persist, struct persist_job *job)
{
	bool partly;

	pthread_mutex_lock(&persist->lock);
	partly = persist->policy.full_every > 1 && persist->newest[0] != '\0';
	pthread_mutex_unlock(&persist->lock);
	return persist_room_look(persist->root, partly ? 0 : job->need_bytes, &job->err);
}

static int run_job(struct persist *persist, struct persist_job *job)
{
	int rv = 0;

	if (job->kind == PERSIST_OPEN) {
		return do_open(persist, job);
	}
	if (!persist->store ||
		(!persist->spans &&
			(job->kind == PERSIST_SAVE || job->kind == PERSIST_STREAM_BEGIN))) {
		rv = keep_root(persist, &job->err);
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
		if (!persist->spans) { /* else rank 0's host drops it */
			tag_abandon(persist->store, job->tag);
		}
		return 0;
	case PERSIST_RESOLVE:
		return persist->spans && job->find_id == 0 ? resolve_for_all(persist, job)
							   : do_resolve(persist, job);
	case PERSIST_BEGIN:
		job->rv = hosts_begin(&persist->hosts, &job->err);
		job->seq = persist->hosts.own.nonce;
		return job->rv;
	case PERSIST_UNSAVE:
		return hosts_save_fail(&persist->hosts, host_round(persist, job->seq), NULL, 0, "",
			&job->why_not, &job->err);
	case PERSIST_VOTE:
		return vote_for_all(persist, job);
	case PERSIST_ASIDE:
		put_aside(persist, job->tag, job->why);
		return 0;
	case PERSIST_ROOM:
		return look_at_room(persist, job);
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
static void note_rest(struct persist *persist)
{
	const struct persist_job *job;

	pthread_mutex_lock(&persist->lock);
	job = persist->todo.head;
	pthread_mutex_unlock(&persist->lock);
	for (; job; job = job->next) {
		if (job->row) {
			persist_note(persist, job->row);
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
	note_rest(persist);
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
	hosts_deinit(&persist->hosts);
	news_deinit(&persist->news);
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
	persist->lead = options->first == 0;
	persist->spans = options->elsewhere > 0;
	pthread_mutex_init(&persist->lock, NULL);
	clock_cond_init(&persist->changed);
	news_init(&persist->news);
	hosts_init(&persist->hosts, options->job, options->first, options->ranks,
		options->ranks + options->elsewhere, pause_thread, persist);
	if (!persist->root || !persist->job || (options->hidden && !persist->hidden)) {
		pawl_err_set(err, PAWL_ENOMEM, "no memory for a storage thread");
	} else if (rows_init(&persist->history, HISTORY_FILE, HISTORY_HEADER, err) == 0 &&
		rows_init(&persist->events, EVENTS_FILE, EVENTS_HEADER, err) == 0) {
		persist->history.news = &persist->news;
		persist->events.news = &persist->news;
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

void persist_told(struct persist *persist, uint64_t nonce)
{
	hosts_told(&persist->hosts, nonce);
}

struct news *persist_news(struct persist *persist)
{
	return &persist->news;
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
