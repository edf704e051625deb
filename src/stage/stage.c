/* A stage: see pawl/stage.h for the contract, stage_impl.h for the locks. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "coll/group/group_trace.h"
#include "stage/stage_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- whether it works ---- */

static int set_fork_error(const struct pawl_stage *stage, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOTSUP,
		"stage: it belongs to process %ld, of which this one is a fork", (long)stage->pid);
}

int stage_check(const struct pawl_stage *stage, struct pawl_err *err)
{
	if (stage->left) {
		return pawl_err_set(err, PAWL_ECANCELED, "stage: this rank has left");
	}
	return stage->failure.code == 0
		? 0
		: pawl_err_set(err, stage->failure.code, "%s", stage->failure.msg);
}

int stage_lock(struct pawl_stage *stage, bool anyhow, struct pawl_err *err)
{
	int rv;

	if (stage->pid != getpid()) {
		return set_fork_error(stage, err);
	}
	pthread_mutex_lock(&stage->lock);
	rv = anyhow && !stage->left && !stage->cut ? 0 : stage_check(stage, err);
	if (rv != 0) {
		pthread_mutex_unlock(&stage->lock);
	}
	return rv;
}

int stage_unlock(struct pawl_stage *stage, int rv, struct pawl_err *err)
{
	if (rv == 0) {
		stage_link_settle(stage);
	}
	pthread_mutex_unlock(&stage->lock);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "stage");
}

/* ---- opening and closing ---- */

static void free_stage(struct pawl_stage *stage)
{
	stage_core_deinit(&stage->core);
	for (uint32_t r = 0; r < stage->ranks && stage->peers; r++) {
		wire_out_deinit(&stage->peers[r].batch);
	}
	while (stage->outbox.all) {
		struct stage_item *item = stage->outbox.all;

		stage->outbox.all = item->next_all;
		free(item->owned);
		free(item);
	}
	while (stage->inbox.all) {
		struct stage_body *body = stage->inbox.all;

		stage->inbox.all = body->next_all;
		free(body->bytes);
		pawl_stage_memory_release(body->memory);
		free(body);
	}
	stage_memory_pool_close(stage->pool);
	pthread_cond_destroy(&stage->sent);
	pthread_cond_destroy(&stage->wake);
	pthread_mutex_destroy(&stage->lock);
	free(stage->failed_text);
	free(stage->inbox.needs);
	free(stage->peers);
	free(stage);
}

int pawl_stage_open(struct pawl_stage **out, struct pawl_group *group, struct pawl_err *err)
{
	struct pawl_stage *stage = FAULT_MEM("stage.open", calloc(1, sizeof(*stage)));
	int sys;

	if (!stage) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a stage");
	}
	pthread_mutex_init(&stage->lock, NULL);
	clock_cond_init(&stage->wake);
	clock_cond_init(&stage->sent);
	stage->pid = getpid();
	stage->ranks = group ? pawl_group_ranks(group) : 1;
	stage->rank = group ? pawl_group_rank(group) : 0;
	stage->group = stage->ranks > 1 ? group : NULL;
	stage->pool = stage_memory_pool_open();
	stage->inbox.needs =
		FAULT_MEM("stage.open", malloc(PAWL_STAGE_NEEDS_MAX * sizeof(*stage->inbox.needs)));
	if (stage->group) {
		stage->peers = FAULT_MEM("stage.open", calloc(stage->ranks, sizeof(*stage->peers)));
	}
	if (!stage->pool || !stage->inbox.needs || (stage->group && !stage->peers)) {
		free_stage(stage);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a stage of %u ranks",
			group ? pawl_group_ranks(group) : 1);
	}
	sys = stage->group ? FAULT_SYS("stage.open",
				     pthread_create(&stage->thread, NULL, stage_receive_run, stage))
			   : 0;
	if (sys != 0) {
		free_stage(stage);
		return pawl_err_set(err, PAWL_EIO, "stage: start a thread: %s",
			strerror(sys == -1 ? errno : sys));
	}
	stage->threaded = stage->group != NULL;
	*out = stage;
	return 0;
}

/* Under lock: waits a limited time until all that was issued has been sent. */
static void await_sent(struct pawl_stage *stage)
{
	int64_t until_ns = clock_mono_ns() + times_ns(TIME_STAGE_GOODBYE);
	struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
	int rv = 0;

	while (stage->outbox.items_n > 0 && !stage->cut && rv == 0) {
		rv = pthread_cond_timedwait(&stage->sent, &stage->lock, &until);
	}
}

void pawl_stage_leave(struct pawl_stage *stage)
{
	bool first;

	if (stage->pid != getpid()) {
		return;
	}
	pthread_mutex_lock(&stage->lock);
	first = !stage->left;
	stage->left = true;
	pthread_cond_broadcast(&stage->wake);
	if (first && stage->group) {
		await_sent(stage);
	}
	pthread_mutex_unlock(&stage->lock);
	if (first && stage->group) {
		pawl_group_leave(stage->group);
	}
}

/* Waits until the group no longer uses a message: it has been left. */
static void await_op(struct pawl_stage *stage, struct stage_op *op)
{
	if (op->under_way) {
		pawl_group_wait(stage->group, &op->work, -1, NULL);
	}
}

static void await_ops(struct pawl_stage *stage)
{
	for (struct stage_item *item = stage->outbox.all; item; item = item->next_all) {
		await_op(stage, &item->frame_op);
		await_op(stage, &item->body_op);
	}
	for (struct stage_body *body = stage->inbox.all; body; body = body->next_all) {
		await_op(stage, &body->op);
	}
	for (uint32_t r = 0; r < stage->ranks; r++) {
		for (uint32_t i = 0; i < LINK_RECEIVES; i++) {
			await_op(stage, &stage->peers[r].slots[i].op);
		}
	}
	while (pawl_group_next_completion(stage->group) != NULL) {
	}
}

/* Returns a value whose held is released; its place in the table is free again. */
static void *take_released(struct pawl_stage *stage)
{
	struct stage_value *value = stage->released_first;
	void *held = value ? value->value.held : NULL;

	if (value) {
		stage->released_first = value->next;
		stage->released_last = value->next ? stage->released_last : NULL;
		stage_table_recycle(&stage->core.table, value);
	}
	return held;
}

void pawl_stage_close(struct pawl_stage *stage, void (*release)(void *held))
{
	void *held;

	if (!stage || stage->pid != getpid()) {
		return;
	}
	pawl_stage_leave(stage);
	if (stage->threaded) {
		pthread_join(stage->thread, NULL);
		await_ops(stage);
	}
	stage_core_clear(&stage->core);
	stage_link_take_gone(stage);
	while ((held = take_released(stage)) != NULL) {
		if (release) {
			release(held);
		}
	}
	free_stage(stage);
}

/* ---- steps and values ---- */

int pawl_stage_begin(struct pawl_stage *stage, const struct pawl_pipe_task *tasks, uint32_t n,
	struct pawl_err *err)
{
	int rv = stage_lock(stage, false, err);

	if (rv != 0) {
		return rv;
	}
	rv = stage_core_begin(&stage->core, tasks, n, err);
	if (rv == 0) {
		stage->steps++;
		stage->begun_ns = clock_mono_ns();
		stage->waited_ns = 0;
		stage_receive_early(stage);
	}
	return stage_unlock(stage, rv, err);
}

void pawl_stage_expect(struct pawl_stage *stage, int64_t busy_ns)
{
	if (stage->pid != getpid()) {
		return;
	}
	pthread_mutex_lock(&stage->lock);
	stage->planned_ns = busy_ns > 0 ? busy_ns : 0;
	pthread_mutex_unlock(&stage->lock);
}

/* Checks a value of the caller's. */
static int check_value(const struct pawl_stage_value *value, struct pawl_err *err)
{
	if (value->meta_len > PAWL_STAGE_META_MAX || value->len_bytes > FRAME_VALUE_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"stage: value %llu has %llu bytes, and a meta of %u, at most %u",
			(unsigned long long)value->id, (unsigned long long)value->len_bytes,
			value->meta_len, PAWL_STAGE_META_MAX);
	}
	return value->held ? 0
			   : pawl_err_set(err, PAWL_EINVAL, "stage: value %llu has no object",
				     (unsigned long long)value->id);
}

int pawl_stage_put(struct pawl_stage *stage, const struct pawl_stage_value *value,
	struct pawl_err *err)
{
	int rv = check_value(value, err);

	rv = rv == 0 ? stage_lock(stage, false, err) : rv;
	if (rv != 0) {
		return rv;
	}
	return stage_unlock(stage, stage_core_put(&stage->core, value, NULL, err), err);
}

int pawl_stage_supply(struct pawl_stage *stage, uint64_t value, const void *data,
	struct pawl_err *err)
{
	int rv = stage_lock(stage, false, err);

	return rv == 0 ? stage_unlock(stage, stage_core_supply(&stage->core, value, data, err), err)
		       : rv;
}

int pawl_stage_done(struct pawl_stage *stage, uint64_t call, const struct pawl_stage_value *values,
	uint32_t n, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 0; i < n && rv == 0; i++) {
		rv = check_value(&values[i], err);
	}
	rv = rv == 0 ? stage_lock(stage, false, err) : rv;
	if (rv != 0) {
		return rv;
	}
	rv = stage_core_done(&stage->core, call, values, n, err);
	stage->calls_done += rv == 0;
	return stage_unlock(stage, rv, err);
}

struct pawl_stage_memory *pawl_stage_keep(struct pawl_stage *stage, struct pawl_stage_value *value,
	void *held)
{
	struct pawl_stage_memory *memory = NULL;

	if (stage->pid != getpid()) {
		return NULL;
	}
	pthread_mutex_lock(&stage->lock);
	if (!value->held) {
		value->held = held;
		memory = stage_core_memory(value);
	}
	if (memory) {
		stage_memory_hold(memory);
	}
	pthread_mutex_unlock(&stage->lock);
	return memory;
}

void *pawl_stage_replace(struct pawl_stage *stage, struct pawl_stage_value *value, void *held)
{
	void *before;

	if (stage->pid != getpid()) {
		return held;
	}
	pthread_mutex_lock(&stage->lock);
	before = value->held;
	value->held = held;
	pthread_mutex_unlock(&stage->lock);
	return before;
}

void *pawl_stage_released(struct pawl_stage *stage)
{
	void *held;

	if (stage->pid != getpid()) {
		return NULL;
	}
	pthread_mutex_lock(&stage->lock);
	held = take_released(stage);
	pthread_mutex_unlock(&stage->lock);
	return held;
}

/* ---- what is next ---- */

/* Under lock: sets *event, or returns why there will be none. NOTHING: not yet. */
static int look(struct pawl_stage *stage, struct pawl_stage_event *event, struct pawl_err *err)
{
	if (stage->left) {
		return stage_check(stage, err);
	}
	if (stage->failed) {
		*event = (struct pawl_stage_event){.kind = PAWL_STAGE_FAILED,
			.rank = stage->failed_rank,
			.bytes = stage->failed_text,
			.len_bytes = stage->failed_len};
		return 0;
	}
	if (stage->failure.code != 0 && !stage_core_is_over(&stage->core)) {
		return stage_check(stage, err);
	}
	stage_core_next(&stage->core, event);
	stage_link_take_gone(stage);
	return 0;
}

/* Under lock: waits for wake. Returns an error number if the time is over. */
static int await(struct pawl_stage *stage, int64_t until_ns)
{
	const struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
	int64_t from_ns = clock_mono_ns();
	int late;

	stage->waiters++;
	late = until_ns == INT64_MAX ? pthread_cond_wait(&stage->wake, &stage->lock)
				     : pthread_cond_timedwait(&stage->wake, &stage->lock, &until);
	stage->waiters--;
	stage->waited_ns += clock_mono_ns() - from_ns;
	return late;
}

/* Under lock: writes the step that has ended to the group's trace. */
static void trace_step(struct pawl_stage *stage)
{
	int64_t now_ns = clock_mono_ns();
	int64_t busy_ns = now_ns - stage->begun_ns - stage->waited_ns;

	if (stage->group) {
		group_trace_step(stage->group, stage->steps, stage->begun_ns, now_ns,
			busy_ns > 0 ? busy_ns : 0, stage->planned_ns);
	}
}

int pawl_stage_next(struct pawl_stage *stage, int64_t timeout_ns, struct pawl_stage_event *event,
	struct pawl_err *err)
{
	struct pawl_stage_event found = {.kind = PAWL_STAGE_NOTHING};
	int64_t until_ns = INT64_MAX;
	int late = 0;
	int rv;

	if (stage->pid != getpid()) {
		return set_fork_error(stage, err);
	}
	if (timeout_ns > 0) {
		int64_t now_ns = clock_mono_ns();

		until_ns = timeout_ns < INT64_MAX - now_ns ? now_ns + timeout_ns : INT64_MAX;
	}
	pthread_mutex_lock(&stage->lock);
	for (;;) {
		rv = look(stage, &found, err);
		if (rv != 0 || found.kind != PAWL_STAGE_NOTHING || timeout_ns == 0 || late != 0) {
			break;
		}
		late = await(stage, until_ns);
	}
	if (rv == 0 && found.kind == PAWL_STAGE_END) {
		trace_step(stage);
	}
	pthread_mutex_unlock(&stage->lock);
	if (rv == 0) {
		*event = found;
	}
	return rv;
}

bool pawl_stage_current(struct pawl_stage *stage, struct pawl_pipe_task *task)
{
	const struct order_task *current;

	if (stage->pid != getpid()) {
		return false;
	}
	pthread_mutex_lock(&stage->lock);
	current = stage_order_current(&stage->core.order);
	if (current) {
		*task = current->task;
	}
	pthread_mutex_unlock(&stage->lock);
	return current != NULL;
}

void pawl_stage_stats(struct pawl_stage *stage, struct pawl_stage_stats *stats)
{
	*stats = (struct pawl_stage_stats){0};
	if (stage->pid != getpid()) {
		return;
	}
	pthread_mutex_lock(&stage->lock);
	*stats = (struct pawl_stage_stats){.calls_issued = stage->calls_issued,
		.calls_done = stage->calls_done,
		.values_sent = stage->outbox.values,
		.values_bytes = stage->outbox.values_bytes,
		.frames_sent = stage->outbox.frames,
		.frames_bytes = stage->outbox.frames_bytes,
		.values_now = stage->core.table.present_n,
		.bytes_now = stage->core.table.bytes_now,
		.bytes_most = stage->core.table.bytes_most};
	pthread_mutex_unlock(&stage->lock);
}
