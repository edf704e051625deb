/*
 * What the storage thread does for each kind of job: see persist.h.
 *
 * All of this runs on the storage thread, without the lock. The lock is taken only for what the
 * loop may change meanwhile: the policy, and whether the agent leaves.
 */
#include "agent/persist/persist_impl.h"

#include "agent/persist/agree_save.h"
#include "agent/persist/persist_find.h"
#include "agent/persist/persist_space.h"
#include "agent/persist/write_tag.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/tags.h"
#include "ckpt/write.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening the root ---- */

void persist_close_root(struct persist *persist)
{
	writer_close(persist->writer);
	tags_root_close(persist->root);
	persist->writer = NULL;
	persist->root = NULL;
}

/* tags_stop: stops when the agent leaves. */
static bool is_leaving(void *user)
{
	return persist_is_stopping(user);
}

/* Finds the tag of the highest step; tags without a step count as lower. */
static int find_newest(struct persist *persist, struct persist_job *job)
{
	const struct tags_stop stop = {is_leaving, persist};
	struct tag_step newest;
	struct persist_opened *opened = &job->result.open;
	int rv = tags_highest(persist->root, &stop, &newest, &job->result.err);

	if (rv == 0) {
		opened->found = true;
		opened->step = newest.step;
		memcpy(persist->newest, newest.tag, sizeof(persist->newest));
	}
	persist->stored_known = rv == 0 || rv == PAWL_ENOENT;
	persist->stored_step = opened->step;
	return rv == PAWL_ENOENT ? 0 : rv;
}

/* Recovers history and events from what the last agent left; see history.h and events.h. */
static void recover_rows(struct persist *persist, struct events_past *past)
{
	struct pawl_err err;
	int64_t latest_ns;
	int rv = history_recover(&persist->history, persist->root, &latest_ns, &err);

	if (rv == 0) {
		rv = events_recover(&persist->events, persist->root, latest_ns, past, &err);
	}
	if (rv == 0 && persist->history.taken.len_bytes + persist->events.taken.len_bytes > 0) {
		persist_write_rows(persist, true);
	} else {
		persist_report_rows(persist, rv, &err);
	}
	persist->rows_begun =
		store_stat(tags_root_store(persist->root), HISTORY_FILE, NULL, NULL, NULL) == 0;
}

/* Opens the root on a host that is not the leader: the leader locks it and cleans up. */
static int open_shared(struct persist *persist, struct pawl_err *err)
{
	int rv = writer_open(&persist->writer, tags_root_store(persist->root), false, err);

	if (rv == 0) {
		rv = agree_open(&persist->agree, persist->root, err);
	}
	if (rv != 0) {
		persist_close_root(persist);
	}
	return rv;
}

/* Makes and locks the root, and cleans up after a crash. */
static int open_root(struct persist *persist, struct pawl_err *err)
{
	int rv;

	ASSERT(persist->root == NULL && persist->writer == NULL);
	persist->stored_known = false;
	if (persist->peers && !persist->is_leader && store_is_bucket(persist->root_path)) {
		/* A new host can restore from memory while the bucket does not answer. */
		rv = tags_root_open_unasked(persist->root_path, &persist->root, err);
	} else {
		rv = tags_root_open(persist->root_path, persist->hidden, true, &persist->root, err);
	}
	if (rv != 0) {
		return rv;
	}
	if (!persist->is_leader) {
		return open_shared(persist, err);
	}
	rv = tags_root_lock(persist->root, persist->job, true, err);
	if (rv == 0) {
		rv = tags_recover(persist->root, err);
	}
	if (rv == 0) {
		rv = writer_open(&persist->writer, tags_root_store(persist->root), false, err);
	}
	if (rv == 0 && persist->multi_host) {
		rv = agree_open(&persist->agree, persist->root, err);
	}
	if (rv != 0) {
		persist_close_root(persist);
	}
	return rv;
}

static int do_open(struct persist *persist, struct persist_job *job)
{
	int rv = open_root(persist, &job->result.err);

	if (rv == 0) {
		store_on_stop(tags_root_store(persist->root), persist_is_outdated, persist);
	}
	if (rv != 0 || !persist->is_leader) {
		return rv;
	}
	rv = find_newest(persist, job);
	if (rv != 0) {
		persist_close_root(persist);
		return rv;
	}
	recover_rows(persist, &job->result.open.past);
	return 0;
}

/* If the root was removed, or replaced by another directory, opens the directory that is there now,
 * or makes it. If that fails, the next job tries again. */
static int ensure_root(struct persist *persist, struct pawl_err *err)
{
	struct events_past past;
	int rv;

	if (persist->root && tags_root_holds(persist->root)) {
		return 0;
	}
	if (persist->root && store_is_flat(tags_root_store(persist->root))) {
		/* This agent never takes the root back: the newer owner goes on. */
		return pawl_err_set(err, PAWL_EPEER,
			"another job has taken the root, or this one was started again elsewhere: "
			"nothing more is saved here");
	}
	if (persist->root) {
		alerts_put(&persist->alerts, ALERT_ONCE, NULL,
			"the directory was removed, or another one is in its place: checkpoints "
			"begin anew there");
	}
	persist_close_root(persist);
	rv = open_root(persist, err);
	if (rv == 0 && persist->is_leader) {
		recover_rows(persist, &past);
	}
	return rv;
}

/* ---- streamed saves ---- */

/* Returns the number of a save among all hosts: in the lower half the ranks' own number, in the
 * upper half how often they have restored in this run. (The upper half of the ranks' own number
 * counts only the restores since their agent started.) */
static uint64_t host_round(const struct persist *persist, uint64_t seq)
{
	return persist->agree.restores << 32 | (uint32_t)seq;
}

/* Returns the draft of the streamed save of a tag; NULL if none has begun. */
static struct tag_draft *find_stream(struct persist *persist, const char *tag)
{
	for (size_t i = 0; i < PERSIST_STREAMS_MAX; i++) {
		if (strcmp(persist->streams[i].tag, tag) == 0) {
			return &persist->streams[i];
		}
	}
	return NULL;
}

/* Drops what the ranks wrote of the streamed save of a tag. */
static void drop_stream(struct persist *persist, const char *tag)
{
	struct tag_draft *draft = find_stream(persist, tag);

	if (draft) {
		tag_abandon(persist->root, draft);
		*draft = (struct tag_draft){.tag = ""};
	}
}

/* Makes the folder into which the ranks write a streamed save. */
static int begin_stream(struct persist *persist, struct persist_job *job)
{
	struct persist_stream_dir *made = &job->result.stream_begin;
	struct pawl_err *err = &job->result.err;
	struct tag_draft *draft = persist->streams;
	int rv;

	if (persist->multi_host) {
		rv = agree_save_begin(&persist->agree, host_round(persist, job->stream_begin.seq),
			job->tag, err);
		memcpy(made->dir, persist->agree.draft.dir, sizeof(made->dir));
		return rv;
	}
	drop_stream(persist, job->tag);
	memmove(draft + 1, draft, (PERSIST_STREAMS_MAX - 1) * sizeof(*draft));
	rv = tag_begin(persist->root, job->tag, draft, err);
	memcpy(made->dir, draft->dir, sizeof(made->dir));
	return rv;
}

/* ---- saves ---- */

static void record_durable(struct persist *persist, const struct persist_job *job,
	const struct write_tag_result *result, int64_t took_ns)
{
	struct history_row row = *job->save.row;

	row.level = HISTORY_DURABLE;
	row.persist_ns = (uint64_t)took_ns;
	row.files = result->files;
	row.size_bytes = result->size_bytes;
	row.why[0] = '\0';
	persist_queue_row(persist, &row);
	persist_write_rows(persist, true);
}

static int do_save(struct persist *persist, struct persist_job *job)
{
	struct write_tag_options options = {.job = persist->job,
		.tag = job->tag,
		.base = persist->newest,
		.agree = persist->multi_host ? &persist->agree : NULL,
		.round = host_round(persist, job->save.seq)};
	bool streamed = job->kind == PERSIST_STREAM_END && !persist->multi_host;
	struct tag_draft *draft = streamed ? find_stream(persist, job->tag) : NULL;
	struct pawl_err *err = &job->result.err;
	char *diverged_part = job->result.save.diverged_part;
	struct write_tag_result result;
	struct persist_policy policy;
	int64_t start_ns = clock_mono_ns();
	int rv;

	FAULT_CRASH("agent.crash.persist");
	persist->agree.chosen = job->save.chosen;
	pthread_mutex_lock(&persist->lock);
	policy = persist->policy;
	pthread_mutex_unlock(&persist->lock);
	/* Several hosts write each tag in full. */
	options.full_every = persist->multi_host ? 0 : policy.full_every;
	if (streamed && !draft) {
		return pawl_err_set(err, PAWL_ENOENT, "persist %s: what the ranks wrote is gone",
			job->tag);
	}
	options.draft = draft;
	rv = write_tag_publish(persist->root, persist->writer, &job->save, &options, &result,
		diverged_part, err);
	if (draft) {
		*draft = (struct tag_draft){.tag = ""};
	}
	if (rv != 0) {
		if (rv == PAWL_ENOSPC) {
			persist_space_explain(persist->root_path, job->save.row->size_bytes, err);
		}
		return rv;
	}
	snprintf(persist->newest, sizeof(persist->newest), "%s", job->tag);
	FAULT_CRASH("agent.crash.published");
	if (!persist->is_leader) {
		return 0; /* the leader does the rest */
	}
	if (job->save.step > persist->stored_step) {
		persist->stored_step = job->save.step;
	}
	record_durable(persist, job, &result, clock_mono_ns() - start_ns);
	persist->retains = true;
	return 0;
}

void persist_retain(struct persist *persist)
{
	struct retain_rule rule;
	struct pawl_err err;

	ASSERT(persist->retains && persist->is_leader && persist->root != NULL);
	pthread_mutex_lock(&persist->lock);
	rule = persist->policy.rule;
	pthread_mutex_unlock(&persist->lock);
	if (tags_retain(persist->root, &rule, &err) != 0) {
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
	persist_wake_loop(persist); /* the loop may wait for persist_idle */
}

static void put_aside(struct persist *persist, const char *tag, const char *why)
{
	struct pawl_err err;
	int rv = tag_quarantine(persist->root, tag, why, &err);

	alerts_put_damaged(&persist->alerts, tag, why, rv == 0 ? NULL : &err);
}

/* ---- restores ---- */

static int do_resolve(struct persist *persist, struct persist_job *job)
{
	const struct tags_stop stop = {is_leaving, persist};
	const struct finding finding = {.root = persist->root,
		.stop = &stop,
		.alerts = &persist->alerts,
		.puts_aside = persist->is_leader};

	return persist_find(&finding, job);
}

/* User data of the callbacks of agree.h. */
struct host_job {
	struct persist *persist;
	struct persist_job *job;
};

/* Whether the hosts' memory has the checkpoint to offer, as far as is known without the store. */
static bool is_known_newest(const struct persist *persist, const struct agree_msg_status *status)
{
	return status->plan->found &&
		(status->has_step ||
			(persist->stored_known && status->plan->step >= persist->stored_step));
}

/* Whether the hosts' memory has the checkpoint to offer, after the store was asked. rv: of the
 * search, which found *found. */
static bool is_newest(const struct recover_plan *plan, int rv, const struct persist_found *found)
{
	return plan->found && rv != PAWL_ECANCELED &&
		(rv != 0 || !found->found || plan->step >= found->step);
}

/* agree_find_fn */
static int find_for_all(void *user, struct agree_msg_status *status)
{
	const struct host_job *of = user;
	const struct persist_result *result = &of->job->result;
	const struct persist_found *found = &result->resolve;
	const struct recover_plan *plan = status->plan;
	int rv = 0;

	status->memory = is_known_newest(of->persist, status);
	if (!status->memory) {
		rv = do_resolve(of->persist, of->job);
		status->memory = is_newest(plan, rv, found);
	}
	if (status->memory && rv != 0) {
		alerts_put(&of->persist->alerts, ALERT_ONCE, &result->err,
			"step %llu is restored from the memory of the hosts; whether the store has "
			"a newer one could not be found out",
			(unsigned long long)plan->step);
		rv = 0;
	}
	status->found = status->memory || found->found;
	status->step = status->memory ? plan->step : found->step;
	memcpy(status->tag, status->memory ? plan->tag : found->tag, sizeof(status->tag));
	if (rv != 0) {
		snprintf(status->why, sizeof(status->why), "%.255s", result->err.msg);
	}
	return rv;
}

/* Copies what a host holds, of the highest steps if that is too much for a message. Returns the
 * number of parts. */
static uint32_t copy_held(const struct persist_resolve *resolve,
	struct peer_part held[AGREE_HELD_MAX])
{
	uint32_t n = 0;

	for (uint32_t h = 0; h < resolve->held_n; h++) {
		const struct peer_part *part = &resolve->held[h];
		uint32_t at = n < AGREE_HELD_MAX ? n : AGREE_HELD_MAX - 1;

		if (n == AGREE_HELD_MAX && part->step <= held[at].step) {
			continue;
		}
		for (; at > 0 && held[at - 1].step < part->step; at--) {
			held[at] = held[at - 1];
		}
		held[at] = *part;
		n += n < AGREE_HELD_MAX;
	}
	return n;
}

static int resolve_for_all(struct persist *persist, struct persist_job *job)
{
	struct host_job of = {persist, job};
	struct persist_found *found = &job->result.resolve;
	struct peer_part held[AGREE_HELD_MAX];
	struct recover_plan *plan = FAULT_MEM("persist.plan", calloc(1, sizeof(*plan)));
	struct agree_msg_status status = {.has_step = job->resolve.has_step,
		.asked_step = job->resolve.step,
		.held_n = copy_held(&job->resolve, held),
		.held = held,
		.plan = plan};
	int rv = plan != NULL
		? agree_offer(&persist->agree, &status, find_for_all, &of, &job->result.err)
		: pawl_err_set(&job->result.err, PAWL_ENOMEM, "no memory to find a checkpoint");

	if (rv != 0 || !status.memory) {
		free(plan);
		plan = NULL;
	}
	if (rv != 0) {
		return rv;
	}
	*found = (struct persist_found){.found = status.found,
		.step = status.step,
		.memory = status.memory,
		.plan = plan};
	memcpy(found->tag, status.tag, sizeof(found->tag));
	/* On NFS, this host's ranks would otherwise see an old copy of the tag. */
	return status.memory ? 0 : tags_root_refresh(persist->root, &job->result.err);
}

/* agree_condemn_fn */
static void condemn_for_all(void *user, const char *why)
{
	const struct host_job *of = user;

	if (!of->job->vote.memory) {
		put_aside(of->persist, of->job->tag, why);
	}
}

static int vote_for_all(struct persist *persist, struct persist_job *job)
{
	struct host_job of = {persist, job};
	struct agree_msg_status status = {.verdict = job->vote.verdict};
	struct persist_vote *verdict = &job->result.vote;
	int rv;

	_Static_assert(sizeof(status.why) == sizeof(verdict->why), "copied as a whole");
	memcpy(status.why, job->vote.why, sizeof(status.why));
	rv = agree_vote(&persist->agree, &status, condemn_for_all, &of, &job->result.err);
	verdict->verdict = status.verdict;
	memcpy(verdict->why, status.why, sizeof(verdict->why));
	return rv;
}

/* ---- all kinds ---- */

/* Checks the free space for a tag. If only changed chunks are written, the size of these is not
 * known yet. */
static int check_space(struct persist *persist, struct persist_job *job)
{
	bool partly;

	pthread_mutex_lock(&persist->lock);
	partly = persist->policy.full_every > 1 && persist->newest[0] != '\0';
	pthread_mutex_unlock(&persist->lock);
	return persist_space_check(persist->root_path, partly ? 0 : job->check_space.need_bytes,
		&job->result.err);
}

/* Has this host's ranks begin anew. */
static int begin_hosts(struct persist *persist, struct persist_job *job)
{
	int rv;

	ASSERT(persist->multi_host);
	agree_resume(&persist->agree); /* persist_submit has canceled what the job waited for */
	rv = agree_begin(&persist->agree, &job->result.err);
	job->result.begin.nonce = persist->agree.own.nonce;
	return rv;
}

static int fail_for_all(struct persist *persist, struct persist_job *job)
{
	const struct persist_fail_save *fail = &job->fail_save;
	uint64_t n = fail->chosen ? fail->seq : host_round(persist, fail->seq);

	ASSERT(persist->multi_host);
	persist->agree.chosen = fail->chosen;
	return agree_save_fail(&persist->agree, n, NULL, 0, "", &fail->reason, &job->result.err);
}

static int run_job(struct persist *persist, struct persist_job *job)
{
	struct pawl_err *err = &job->result.err;
	int rv = 0;

	if (job->kind == PERSIST_OPEN) {
		return do_open(persist, job);
	}
	if (!persist->root ||
		(!persist->multi_host &&
			(job->kind == PERSIST_SAVE || job->kind == PERSIST_STREAM_BEGIN))) {
		rv = ensure_root(persist, err);
	}
	if (rv != 0) {
		return rv;
	}
	ASSERT(persist->root != NULL);
	switch (job->kind) {
	case PERSIST_SAVE:
	case PERSIST_STREAM_END:
		return do_save(persist, job);
	case PERSIST_STREAM_BEGIN:
		return begin_stream(persist, job);
	case PERSIST_STREAM_DROP:
		if (!persist->multi_host) { /* otherwise the leader drops it */
			drop_stream(persist, job->tag);
		}
		return 0;
	case PERSIST_RESOLVE:
		return persist->multi_host && job->resolve.find_id == 0
			? resolve_for_all(persist, job)
			: do_resolve(persist, job);
	case PERSIST_BEGIN:
		return begin_hosts(persist, job);
	case PERSIST_ENTER:
		ASSERT(persist->multi_host);
		return agree_take_part(&persist->agree, err);
	case PERSIST_FAIL_SAVE:
		return fail_for_all(persist, job);
	case PERSIST_VOTE:
		return vote_for_all(persist, job);
	case PERSIST_ASIDE:
		put_aside(persist, job->tag, job->aside.why);
		return 0;
	case PERSIST_CHECK_SPACE:
		return check_space(persist, job);
	case PERSIST_REMOVE:
		return tag_remove(persist->root, job->tag, err);
	default:
		ASSERT(job->kind == PERSIST_PIN);
		return tag_pin(persist->root, job->tag, job->pin.pinned, err);
	}
}

void persist_run_job(struct persist *persist, struct persist_job *job)
{
	job->result.rv = run_job(persist, job);
}
