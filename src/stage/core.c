/* A rank's part of a step: see core.h for the contract. Pure. */
#include "stage/core.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- checks ---- */

static int check_open(const struct stage_core *core, struct pawl_err *err)
{
	return core->open ? 0 : pawl_err_set(err, PAWL_EINVAL, "no step has begun");
}

int stage_core_check_going(const struct stage_core *core, struct pawl_err *err)
{
	int rv = check_open(core, err);

	return rv == 0 && core->ended
		? pawl_err_set(err, PAWL_EINVAL, "the driver has ended the step")
		: rv;
}

static int no_memory(struct pawl_err *err, const char *what, uint64_t id)
{
	return pawl_err_set(err, PAWL_ENOMEM, "no memory for %s %llu", what,
		(unsigned long long)id);
}

int stage_core_check_call(const struct pawl_stage_call *call, struct pawl_err *err)
{
	if (!stage_order_task_valid(&call->task)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"call %llu: its task (kind %u, microbatch %u) is not valid",
			(unsigned long long)call->id, call->task.kind, call->task.microbatch);
	}
	if (call->outs > PAWL_STAGE_OUTS_MAX || call->needs_n > PAWL_STAGE_NEEDS_MAX ||
		call->blob_len > PAWL_STAGE_BLOB_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"call %llu: %u outs, %u needs and %u bytes, at most %u, %u and %u",
			(unsigned long long)call->id, call->outs, call->needs_n, call->blob_len,
			PAWL_STAGE_OUTS_MAX, PAWL_STAGE_NEEDS_MAX, PAWL_STAGE_BLOB_MAX);
	}
	return 0;
}

int stage_core_check_flush(enum pawl_pipe_kind kind, uint32_t microbatch, struct pawl_err *err)
{
	return (kind == PAWL_PIPE_FORWARD || kind == PAWL_PIPE_BACKWARD) &&
			microbatch < PAWL_PIPE_MICROBATCHES_MAX
		? 0
		: pawl_err_set(err, PAWL_EINVAL, "no pass of kind %d of microbatch %u", (int)kind,
			  microbatch);
}

/* ---- lists ---- */

static void append_push(struct stage_core *core, struct stage_push *push)
{
	push->next = NULL;
	if (core->pushes_last) {
		core->pushes_last->next = push;
	} else {
		core->pushes_first = push;
	}
	core->pushes_last = push;
}

static void append_watched(struct stage_core *core, struct stage_value *value)
{
	value->to_report = NULL;
	if (core->watched_last) {
		core->watched_last->to_report = value;
	} else {
		core->watched_first = value;
	}
	core->watched_last = value;
}

/* Whether a present value has its bytes in memory of a device. */
static bool is_elsewhere(const struct stage_value *value)
{
	return !value->value.data && value->value.len_bytes > 0;
}

/* Asks for a value's bytes; the first time only. */
static void want(struct stage_core *core, struct stage_value *value)
{
	if (value->wanted) {
		return;
	}
	value->wanted = true;
	value->claims++;
	value->to_want = NULL;
	if (core->wanted_last) {
		core->wanted_last->to_want = value;
	} else {
		core->wanted_first = value;
	}
	core->wanted_last = value;
}

/* Makes the pushes that waited for a value's bytes ready. */
static void release_pushes(struct stage_core *core, struct stage_value *value)
{
	while (value->pushes) {
		struct stage_push *push = value->pushes;

		value->pushes = push->next;
		append_push(core, push);
		core->waiting_n--;
	}
}

static void recycle_push(struct stage_core *core, struct stage_push *push)
{
	push->next = core->spare;
	core->spare = push;
}

static void free_pushes(struct stage_push *push)
{
	while (push) {
		struct stage_push *next = push->next;

		free(push);
		push = next;
	}
}

static void free_note(struct core_note *note)
{
	if (note) {
		free(note->bytes);
		free(note);
	}
}

/* ---- life cycle ---- */

int stage_core_begin(struct stage_core *core, const struct pawl_pipe_task *tasks, uint32_t n,
	struct pawl_err *err)
{
	int rv = core->open
		? pawl_err_set(err, PAWL_EINVAL, "the step before has not ended at this rank")
		: stage_order_begin(&core->order, tasks, n, err);

	if (rv == 0) {
		core->step++;
		core->open = true;
		core->ended = false;
	}
	return rv;
}

/* Drops all claims on the values of the table, with what is behind them. */
static void drop_claims(struct stage_core *core)
{
	for (uint32_t b = 0; b < core->table.buckets_n; b++) {
		for (struct stage_value *v = core->table.buckets[b]; v; v = v->next) {
			free_pushes(v->pushes);
			v->pushes = NULL;
			v->needs = NULL;
			v->claims = 0;
		}
	}
}

void stage_core_clear(struct stage_core *core)
{
	struct order_call *call;

	free_pushes(core->pushes_first);
	core->pushes_first = core->pushes_last = NULL;
	drop_claims(core);
	stage_table_clear(&core->table);
	while ((call = stage_order_take_any(&core->order)) != NULL) {
		free(call);
	}
	core->running = NULL;
	while (core->notes_first) {
		struct core_note *note = core->notes_first;

		core->notes_first = note->next;
		free_note(note);
	}
	free_note(core->note);
	core->note = core->notes_last = NULL;
	core->watched_first = core->watched_last = core->reported = NULL;
	core->wanted_first = core->wanted_last = NULL;
}

void stage_core_deinit(struct stage_core *core)
{
	free_pushes(core->spare);
	stage_order_deinit(&core->order);
	stage_table_deinit(&core->table);
	*core = (struct stage_core){0};
}

/* ---- values ---- */

/* Makes a value present, and sees to all that waited for it. */
static void place(struct stage_core *core, struct stage_value *value,
	const struct pawl_stage_value *content, struct pawl_stage_memory *memory)
{
	struct stage_need *need = value->needs;

	stage_table_place(&core->table, value, content, memory);
	value->needs = NULL;
	while (need) {
		struct order_call *call = need->call;

		need = need->next;
		call->missing--;
		if (call->missing == 0) {
			stage_order_ready(&core->order, call);
		}
	}
	if (!is_elsewhere(value)) {
		release_pushes(core, value);
	} else if (value->pushes) {
		want(core, value);
	}
	if (value->watches > 0) {
		append_watched(core, value);
	}
	stage_table_settle(&core->table, value);
}

static int set_twice(struct pawl_err *err, uint64_t id)
{
	return pawl_err_set(err, PAWL_EINVAL, "value %llu is there already",
		(unsigned long long)id);
}

int stage_core_put(struct stage_core *core, const struct pawl_stage_value *value,
	struct pawl_stage_memory *memory, struct pawl_err *err)
{
	int rv = check_open(core, err);
	struct stage_value *entry = rv == 0 ? stage_table_add(&core->table, value->id) : NULL;

	if (rv != 0) {
		return rv;
	}
	if (!entry) {
		return no_memory(err, "value", value->id);
	}
	if (entry->present) {
		return set_twice(err, value->id);
	}
	place(core, entry, value, memory);
	return 0;
}

/* Finds the entry of a value that the driver names in the step, or makes it. */
static int name_value(struct stage_core *core, uint64_t value, struct stage_value **entry,
	struct pawl_err *err)
{
	int rv = stage_core_check_going(core, err);

	*entry = rv == 0 ? stage_table_add(&core->table, value) : NULL;
	return rv == 0 && !*entry ? no_memory(err, "value", value) : rv;
}

int stage_core_free(struct stage_core *core, uint64_t value, struct pawl_err *err)
{
	struct stage_value *entry;
	int rv = name_value(core, value, &entry, err);

	if (rv != 0) {
		return rv;
	}
	entry->freed = true;
	stage_table_settle(&core->table, entry);
	return 0;
}

int stage_core_watch(struct stage_core *core, uint64_t value, struct pawl_err *err)
{
	struct stage_value *entry;
	int rv = name_value(core, value, &entry, err);

	if (rv != 0) {
		return rv;
	}
	entry->claims++;
	entry->watches++;
	core->watches_n++;
	if (entry->present && entry->watches == 1) {
		append_watched(core, entry);
	}
	return 0;
}

/* ---- pushes ---- */

static struct stage_push *make_push(struct stage_core *core)
{
	struct stage_push *push = core->spare;

	if (push) {
		core->spare = push->next;
		return push;
	}
	return FAULT_MEM("stage.core", malloc(sizeof(*push)));
}

int stage_core_push(struct stage_core *core, uint64_t value, uint32_t to, struct pawl_err *err)
{
	int rv = stage_core_check_going(core, err);
	struct stage_push *push = rv == 0 ? make_push(core) : NULL;
	struct stage_value *entry = push ? stage_table_add(&core->table, value) : NULL;

	if (rv != 0) {
		return rv;
	}
	if (!entry) {
		if (push) {
			recycle_push(core, push);
		}
		return no_memory(err, "value", value);
	}
	*push = (struct stage_push){entry->pushes, entry, to};
	entry->claims++;
	if (entry->present && !is_elsewhere(entry)) {
		append_push(core, push);
		return 0;
	}
	entry->pushes = push;
	core->waiting_n++;
	if (entry->present) {
		want(core, entry);
	}
	return 0;
}

int stage_core_supply(struct stage_core *core, uint64_t value, const void *data,
	struct pawl_err *err)
{
	struct stage_value *entry = stage_table_find(&core->table, value);

	if (!data || !entry || !entry->wanted || !is_elsewhere(entry)) {
		return pawl_err_set(err, PAWL_EINVAL, "nobody wants bytes of value %llu",
			(unsigned long long)value);
	}
	entry->value.data = data;
	release_pushes(core, entry);
	return 0;
}

struct stage_value *stage_core_take_push(struct stage_core *core, uint32_t *to)
{
	struct stage_push *push = core->pushes_first;
	struct stage_value *value = push ? push->value : NULL;

	if (push) {
		*to = push->to;
		core->pushes_first = push->next;
		core->pushes_last = push->next ? core->pushes_last : NULL;
		core->sending_n++;
		recycle_push(core, push);
	}
	return value;
}

void stage_core_sent(struct stage_core *core, struct stage_value *value)
{
	ASSERT(core->sending_n > 0);
	core->sending_n--;
	stage_table_unclaim(&core->table, value);
}

/* ---- calls ---- */

static size_t align(size_t n)
{
	return (n + 15) & ~(size_t)15;
}

/* Copies a call, with its needs and its blob, into one piece of memory. NULL: no memory. */
static struct order_call *copy_call(const struct pawl_stage_call *call)
{
	size_t needs_at = align(sizeof(struct order_call));
	size_t values_at = needs_at + call->needs_n * sizeof(*call->needs);
	size_t waits_at = values_at + call->needs_n * sizeof(struct pawl_stage_value *);
	size_t blob_at = waits_at + call->needs_n * sizeof(struct stage_need);
	uint8_t *memory = FAULT_MEM("stage.core", malloc(blob_at + call->blob_len));
	struct order_call *copy = (void *)memory;

	if (!memory) {
		return NULL;
	}
	*copy = (struct order_call){.call = *call,
		.values = (void *)(memory + values_at),
		.waits = (void *)(memory + waits_at)};
	if (call->needs_n > 0) {
		memcpy(memory + needs_at, call->needs, call->needs_n * sizeof(*call->needs));
	}
	if (call->blob_len > 0) {
		memcpy(memory + blob_at, call->blob, call->blob_len);
	}
	copy->call.needs = (const void *)(memory + needs_at);
	copy->call.blob = memory + blob_at;
	return copy;
}

/* Finds or adds the values that a call needs. PAWL_ENOMEM: values that were added stay, unclaimed,
 * until the step ends. */
static int find_needs(struct stage_core *core, struct order_call *call)
{
	for (uint32_t i = 0; i < call->call.needs_n; i++) {
		struct stage_value *value = stage_table_add(&core->table, call->call.needs[i]);

		if (!value) {
			return PAWL_ENOMEM;
		}
		call->values[i] = &value->value;
		call->missing += !value->present;
	}
	return 0;
}

/* The value is the first field of the table's entry. */
static struct stage_value *entry_of(struct pawl_stage_value *value)
{
	return (struct stage_value *)(void *)value;
}

struct pawl_stage_memory *stage_core_memory(struct pawl_stage_value *value)
{
	return entry_of(value)->memory;
}

static void claim_needs(struct order_call *call)
{
	_Static_assert(offsetof(struct stage_value, value) == 0, "entry_of needs this");
	for (uint32_t i = 0; i < call->call.needs_n; i++) {
		struct stage_value *value = entry_of(call->values[i]);

		value->claims++;
		if (!value->present) {
			call->waits[i] = (struct stage_need){value->needs, call};
			value->needs = &call->waits[i];
		}
	}
}

int stage_core_call(struct stage_core *core, const struct pawl_stage_call *call,
	struct pawl_err *err)
{
	int rv = stage_core_check_going(core, err);
	struct order_call *copy;

	rv = rv == 0 ? stage_core_check_call(call, err) : rv;
	if (rv == 0 && core->order.left >= PAWL_STAGE_LEFT_MAX) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "call %llu: %u calls are left already",
			(unsigned long long)call->id, core->order.left);
	}
	if (rv != 0) {
		return rv;
	}
	copy = copy_call(call);
	if (!copy || find_needs(core, copy) != 0 || stage_order_add(&core->order, copy) != 0) {
		free(copy);
		return no_memory(err, "call", call->id);
	}
	claim_needs(copy);
	return 0;
}

/* Checks the values that a call has made, and makes room for them. */
static int check_made(struct stage_core *core, const struct pawl_stage_call *call,
	const struct pawl_stage_value *values, uint32_t n, struct pawl_err *err)
{
	if (n != call->outs) {
		return pawl_err_set(err, PAWL_EINVAL, "call %llu makes %u values, not %u",
			(unsigned long long)call->id, call->outs, n);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct stage_value *entry = stage_table_find(&core->table, values[i].id);

		if (values[i].id != call->id + i) {
			return pawl_err_set(err, PAWL_EINVAL,
				"value %u of call %llu has the number %llu", i,
				(unsigned long long)call->id, (unsigned long long)values[i].id);
		}
		if (entry && entry->present) {
			return set_twice(err, values[i].id);
		}
	}
	return stage_table_reserve(&core->table, n) == 0 ? 0 : no_memory(err, "call", call->id);
}

int stage_core_done(struct stage_core *core, uint64_t id, const struct pawl_stage_value *values,
	uint32_t n, struct pawl_err *err)
{
	struct order_call **at = &core->running;
	struct order_call *call;
	int rv = check_open(core, err);

	while (*at && (*at)->call.id != id) {
		at = &(*at)->next_running;
	}
	call = *at;
	if (rv == 0 && !call) {
		rv = pawl_err_set(err, PAWL_EINVAL, "call %llu does not run",
			(unsigned long long)id);
	}
	rv = rv == 0 ? check_made(core, &call->call, values, n, err) : rv;
	if (rv != 0) {
		return rv;
	}
	*at = call->next_running;
	stage_order_done(&core->order, call);
	for (uint32_t i = 0; i < n; i++) {
		struct stage_value *entry = stage_table_add(&core->table, values[i].id);

		ASSERT(entry != NULL); /* the room is reserved */
		place(core, entry, &values[i], NULL);
	}
	for (uint32_t i = 0; i < call->call.needs_n; i++) {
		stage_table_unclaim(&core->table, entry_of(call->values[i]));
	}
	free(call);
	return 0;
}

/* ---- what else the driver says ---- */

int stage_core_flush(struct stage_core *core, enum pawl_pipe_kind kind, uint32_t microbatch,
	struct pawl_err *err)
{
	int rv = stage_core_check_going(core, err);

	rv = rv == 0 ? stage_core_check_flush(kind, microbatch, err) : rv;
	if (rv == 0) {
		stage_order_flush(&core->order, kind, microbatch);
	}
	return rv;
}

int stage_core_note(struct stage_core *core, void *bytes, uint32_t len_bytes, struct pawl_err *err)
{
	int rv = stage_core_check_going(core, err);
	struct core_note *note = rv == 0 ? FAULT_MEM("stage.core", malloc(sizeof(*note))) : NULL;

	if (rv != 0) {
		return rv;
	}
	if (!note) {
		return no_memory(err, "a note of bytes:", len_bytes);
	}
	*note = (struct core_note){NULL, bytes, len_bytes};
	if (core->notes_last) {
		core->notes_last->next = note;
	} else {
		core->notes_first = note;
	}
	core->notes_last = note;
	return 0;
}

int stage_core_end(struct stage_core *core, struct pawl_err *err)
{
	int rv = stage_core_check_going(core, err);

	if (rv == 0) {
		core->ended = true;
		stage_order_flush_all(&core->order);
	}
	return rv;
}

/* ---- what is next ---- */

static void release_event(struct stage_core *core)
{
	free_note(core->note);
	core->note = NULL;
	if (core->reported) {
		struct stage_value *value = core->reported;

		core->reported = NULL;
		stage_table_unclaim(&core->table, value);
	}
}

static void report_note(struct stage_core *core, struct pawl_stage_event *event)
{
	core->note = core->notes_first;
	core->notes_first = core->note->next;
	core->notes_last = core->notes_first ? core->notes_last : NULL;
	event->kind = PAWL_STAGE_NOTE;
	event->bytes = core->note->bytes;
	event->len_bytes = core->note->len_bytes;
}

/* Reports a value that has a claim for it. */
static void report_value(struct stage_core *core, struct pawl_stage_event *event,
	enum pawl_stage_kind kind, struct stage_value *value)
{
	core->reported = value;
	core->reported_list[0] = &value->value;
	event->kind = kind;
	event->values = core->reported_list;
}

static void report_watched(struct stage_core *core, struct pawl_stage_event *event)
{
	struct stage_value *value = core->watched_first;

	value->watches--;
	core->watches_n--;
	if (value->watches == 0) {
		core->watched_first = value->to_report;
		core->watched_last = core->watched_first ? core->watched_last : NULL;
	}
	report_value(core, event, PAWL_STAGE_ARRIVED, value);
}

static void report_wanted(struct stage_core *core, struct pawl_stage_event *event)
{
	struct stage_value *value = core->wanted_first;

	core->wanted_first = value->to_want;
	core->wanted_last = core->wanted_first ? core->wanted_last : NULL;
	report_value(core, event, PAWL_STAGE_WANTED, value);
}

static void report_call(struct stage_core *core, struct pawl_stage_event *event,
	struct order_call *call)
{
	call->next_running = core->running;
	core->running = call;
	event->kind = PAWL_STAGE_CALL;
	event->call = call->call;
	event->values = call->values;
}

bool stage_core_is_over(const struct stage_core *core)
{
	return core->open && core->ended && core->order.left == 0 && core->waiting_n == 0 &&
		core->sending_n == 0 && !core->pushes_first && !core->notes_first &&
		core->watches_n == 0;
}

void stage_core_next(struct stage_core *core, struct pawl_stage_event *event)
{
	struct order_call *call = NULL;

	release_event(core);
	*event = (struct pawl_stage_event){.kind = PAWL_STAGE_NOTHING};
	if (core->notes_first) {
		report_note(core, event);
	} else if (core->wanted_first) {
		report_wanted(core, event);
	} else if (core->watched_first) {
		report_watched(core, event);
	} else if (core->open && (call = stage_order_next(&core->order)) != NULL) {
		report_call(core, event, call);
	} else if (stage_core_is_over(core)) {
		stage_table_clear(&core->table);
		core->open = false;
		event->kind = PAWL_STAGE_END;
	}
}
