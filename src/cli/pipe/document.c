/* Plans as JSON documents: see document.h. */
#include "cli/pipe/document.h"

#include "base/err.h"
#include "base/fault.h"
#include "cli/cli.h"
#include "cli/pipe/field.h"
#include "cli/pipe/model.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TASK_MAX 24u /* bytes of a task as text, with a space */

/* ---- encoding ---- */

/* Returns a size, or null if there is no limit. */
static json_t *encode_cap(uint64_t bytes)
{
	return bytes == PAWL_PIPE_NO_CAP ? json_null() : json_integer((json_int_t)bytes);
}

/* Returns a stage's tasks in one string: "0F0 0F1 0B0" (chunk, kind, microbatch). */
static json_t *encode_tasks(const struct pawl_pipe_plan *plan, uint32_t stage)
{
	size_t room = (size_t)(plan->first[stage + 1] - plan->first[stage]) * TASK_MAX + 1;
	char *text = FAULT_MEM("pipe.document", malloc(room));
	json_t *string;
	size_t len = 0;

	if (!text) {
		return NULL;
	}
	text[0] = '\0';
	for (uint32_t i = plan->first[stage]; i < plan->first[stage + 1]; i++) {
		const struct pawl_pipe_task *task = &plan->tasks[i];

		len += (size_t)snprintf(text + len, room - len, "%s%u%c%u", len > 0 ? " " : "",
			task->chunk, pawl_pipe_kind_letter(task->kind), task->microbatch);
	}
	string = json_string(text);
	free(text);
	return string;
}

static json_t *encode_stages(const struct pawl_pipe_plan *plan)
{
	json_t *all = json_array();

	for (uint32_t s = 0; s < plan->stages; s++) {
		json_array_append_new(all,
			json_pack("{s:I, s:o, s:o}", "state_bytes",
				(json_int_t)plan->stage[s].state_bytes, "cap_bytes",
				encode_cap(plan->stage[s].cap_bytes), "tasks",
				encode_tasks(plan, s)));
	}
	return all;
}

static json_t *encode_chunks(const struct pipe_model *model, const struct pawl_pipe_plan *plan)
{
	json_t *all = json_array();

	for (uint32_t c = 0; c < plan->chunks_n; c++) {
		const struct pawl_pipe_chunk *chunk = &plan->chunks[c];
		const struct pawl_pipe_unit *units = model->units + chunk->first;

		json_array_append_new(all,
			json_pack("{s:i, s:i, s:i, s:s, s:s, s:f, s:f, s:f, s:I, s:I}", "stage",
				(int)chunk->stage, "first", (int)chunk->first, "units",
				(int)chunk->units, "from", units[0].name, "to",
				units[chunk->units - 1].name, "forward_s", chunk->forward_s,
				"backward_s", chunk->backward_s, "weight_s", chunk->weight_s,
				"saved_bytes", (json_int_t)chunk->saved_bytes, "in_bytes",
				(json_int_t)chunk->in_bytes));
	}
	return all;
}

static json_t *encode_copies(const struct pipe_model *model, const struct pawl_pipe_plan *plan)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < plan->copies_n; i++) {
		const struct pawl_pipe_copies *copies = &plan->copies[i];
		json_t *stages = json_array();

		for (uint32_t h = 0; h < copies->stages; h++) {
			json_array_append_new(stages,
				json_integer(plan->holders[copies->first + h]));
		}
		json_array_append_new(all,
			json_pack("{s:s, s:I, s:o}", "tied", model->tied[copies->tied], "bytes",
				(json_int_t)copies->len_bytes, "stages", stages));
	}
	return all;
}

json_t *pipe_option_encode(const struct pawl_pipe_option *option)
{
	const char *name = pawl_pipe_schedule_name(option->schedule);

	if (option->code != 0) {
		return json_pack("{s:s, s:i, s:b, s:o}", "schedule", name, "each",
			(int)option->each, "visits", (int)option->visits, "refused",
			cli_json_text(option->why));
	}
	return json_pack("{s:s, s:i, s:b, s:f, s:f, s:I}", "schedule", name, "each",
		(int)option->each, "visits", (int)option->visits, "step_s", option->step_s,
		"bubble", option->bubble, "peak_bytes", (json_int_t)option->peak_bytes);
}

static json_t *encode_options(const struct pawl_pipe_options *options)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < options->n; i++) {
		json_array_append_new(all, pipe_option_encode(&options->option[i]));
	}
	return all;
}

json_t *pipe_report_encode(const struct pawl_pipe_report *report)
{
	json_t *stages = json_array();

	for (uint32_t s = 0; s < report->stages; s++) {
		json_array_append_new(stages,
			json_pack("{s:f, s:i, s:I}", "busy_s", report->stage[s].busy_s, "peak_live",
				(int)report->stage[s].peak_live, "peak_bytes",
				(json_int_t)report->stage[s].peak_bytes));
	}
	return json_pack("{s:f, s:f, s:f, s:f, s:o}", "step_s", report->step_s, "finish_s",
		report->finish_s, "bound_s", report->bound_s, "bubble", report->bubble, "stages",
		stages);
}

json_t *pipe_document_encode(const struct pipe_model *model, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report, const struct pawl_pipe_options *options)
{
	json_t *link = json_pack("{s:f, s:f, s:b}", "bytes_per_s", plan->link.bytes_per_s,
		"latency_s", plan->link.latency_s, "busy", (int)plan->link.busy);

	return json_pack("{s:i, s:s, s:s, s:i, s:i, s:b, s:i, s:f, s:f, s:f, s:o, s:o, s:o, s:o, "
			 "s:o, s:o}",
		"pipe_plan", DOCUMENT_VERSION, "model", model->name, "schedule",
		pawl_pipe_schedule_name(plan->schedule), "microbatches", (int)plan->microbatches,
		"each", (int)plan->each, "visits", (int)plan->visits, "inflight",
		(int)plan->inflight, "largest_s", plan->largest_s, "value", plan->value, "bound",
		plan->bound, "link", link, "stages", encode_stages(plan), "chunks",
		encode_chunks(model, plan), "copies", encode_copies(model, plan), "report",
		pipe_report_encode(report), "options", encode_options(options));
}

/* ---- decoding ---- */

/* Allocates n entries of an array of the plan. */
static void *allocate(struct field_reader *reader, size_t n, size_t size)
{
	void *bytes = reader->rv == 0 ? FAULT_MEM("pipe.document", calloc(n + 1, size)) : NULL;

	if (!bytes && reader->rv == 0) {
		reader->rv = pawl_err_set(reader->err, PAWL_ENOMEM, "no memory to read a plan");
	}
	return bytes;
}

/* Reads one task such as "0F12". Returns the text behind it, or NULL. */
static const char *decode_task(const char *text, struct pawl_pipe_task *task)
{
	static const char kinds[] = "FBIW";
	char *end;
	unsigned long chunk = strtoul(text, &end, 10);
	const char *kind = *end != '\0' ? strchr(kinds, *end) : NULL;
	unsigned long microbatch;

	if (text[0] < '0' || text[0] > '9' || !kind || end[1] < '0' || end[1] > '9' ||
		chunk >= PAWL_PIPE_CHUNKS_MAX) {
		return NULL;
	}
	microbatch = strtoul(end + 1, &end, 10);
	if (microbatch >= PAWL_PIPE_MICROBATCHES_MAX || (*end != ' ' && *end != '\0')) {
		return NULL;
	}
	*task = (struct pawl_pipe_task){(uint8_t)(kind - kinds), (uint16_t)chunk,
		(uint32_t)microbatch};
	return end + strspn(end, " ");
}

/* Returns how many tasks a text has at most: those that spaces separate. */
static size_t count_tasks(const char *text)
{
	size_t n = text[0] != '\0';

	for (; *text != '\0'; text++) {
		n += text[0] == ' ' && text[1] != ' ' && text[1] != '\0';
	}
	return n;
}

/* Reads the tasks of a stage behind those of the stages before. */
static void decode_tasks(struct field_reader *reader, struct pawl_pipe_plan *plan, uint32_t stage,
	const char *text)
{
	uint32_t n = plan->first[stage];

	while (*text != '\0' && reader->rv == 0) {
		const char *next = decode_task(text, &plan->tasks[n++]);

		if (!next) {
			field_fail(reader, "tasks: %.20s is no task, such as 0F12", text);
			return;
		}
		text = next;
	}
	plan->first[stage + 1] = n;
}

/* Returns a stage's object; NULL: it is none. */
static const json_t *find_stage(struct field_reader *reader, const json_t *stages, uint32_t stage)
{
	const json_t *object = json_array_get(stages, stage);

	field_at(reader, "stage %u", stage);
	if (!json_is_object(object)) {
		field_fail(reader, "an object is needed");
		return NULL;
	}
	return object;
}

static void decode_stage(struct field_reader *reader, const json_t *object,
	struct pawl_pipe_stage *stage)
{
	const json_t *cap = json_object_get(object, "cap_bytes");

	stage->cap_bytes = PAWL_PIPE_NO_CAP;
	field_whole(reader, object, "state_bytes", true, 1ull << 60, &stage->state_bytes);
	if (cap && !json_is_null(cap)) {
		field_whole(reader, object, "cap_bytes", true, INT64_MAX, &stage->cap_bytes);
	}
}

static void decode_stages(struct field_reader *reader, struct pawl_pipe_plan *plan,
	const json_t *stages)
{
	size_t tasks_n = 0;

	for (uint32_t s = 0; s < plan->stages && reader->rv == 0; s++) {
		const json_t *object = find_stage(reader, stages, s);
		const json_t *tasks = json_object_get(object, "tasks");

		decode_stage(reader, object, &plan->stage[s]);
		if (!json_is_string(tasks)) {
			field_fail(reader, "tasks must be a text");
		} else {
			tasks_n += count_tasks(json_string_value(tasks));
		}
	}
	if (tasks_n > PAWL_PIPE_TASKS_MAX) {
		field_fail(reader, "over %u tasks", PAWL_PIPE_TASKS_MAX);
	}
	plan->tasks = allocate(reader, tasks_n, sizeof(*plan->tasks));
	for (uint32_t s = 0; s < plan->stages && reader->rv == 0; s++) {
		const json_t *object = find_stage(reader, stages, s);

		decode_tasks(reader, plan, s, json_string_value(json_object_get(object, "tasks")));
	}
}

static void decode_chunk(struct field_reader *reader, const json_t *object,
	struct pawl_pipe_chunk *chunk)
{
	const double most_s = 1e18; /* the simulation knows the exact limit */

	if (!json_is_object(object)) {
		field_fail(reader, "an object is needed");
	}
	field_u32(reader, object, "stage", true, PAWL_PIPE_STAGES_MAX - 1, &chunk->stage);
	field_u32(reader, object, "first", false, UINT32_MAX, &chunk->first);
	field_u32(reader, object, "units", false, UINT32_MAX, &chunk->units);
	field_number(reader, object, "forward_s", true, most_s, &chunk->forward_s);
	field_number(reader, object, "backward_s", true, most_s, &chunk->backward_s);
	field_number(reader, object, "weight_s", false, chunk->backward_s, &chunk->weight_s);
	field_whole(reader, object, "saved_bytes", false, PAWL_PIPE_BYTES_MAX, &chunk->saved_bytes);
	field_whole(reader, object, "in_bytes", false, PAWL_PIPE_BYTES_MAX, &chunk->in_bytes);
}

/* Reads the stages that have copies of one tied set. holders_n: entries of holders so far. */
static void decode_copies_of(struct field_reader *reader, struct pawl_pipe_plan *plan,
	const json_t *object, uint32_t *holders_n)
{
	struct pawl_pipe_copies *copies = &plan->copies[plan->copies_n];
	const json_t *stages;

	if (!json_is_object(object)) {
		field_fail(reader, "an object is needed");
	}
	*copies = (struct pawl_pipe_copies){.tied = ++plan->copies_n, .first = *holders_n};
	field_whole(reader, object, "bytes", true, PAWL_PIPE_BYTES_MAX, &copies->len_bytes);
	stages = field_array(reader, object, "stages", true, 2, PAWL_PIPE_STAGES_MAX);
	for (size_t i = 0; i < json_array_size(stages); i++) {
		const json_t *stage = json_array_get(stages, i);

		if (!json_is_integer(stage) || json_integer_value(stage) < 0 ||
			json_integer_value(stage) >= PAWL_PIPE_STAGES_MAX) {
			field_fail(reader, "stages: a whole number is needed");
			return;
		}
		plan->holders[(*holders_n)++] = (uint32_t)json_integer_value(stage);
		copies->stages++;
	}
}

static void decode_copies(struct field_reader *reader, struct pawl_pipe_plan *plan,
	const json_t *all)
{
	uint32_t holders_n = 0;
	size_t n = json_array_size(all);

	plan->copies = allocate(reader, n, sizeof(*plan->copies));
	plan->holders = allocate(reader, n * PAWL_PIPE_STAGES_MAX, sizeof(*plan->holders));
	for (size_t i = 0; i < n && reader->rv == 0; i++) {
		field_at(reader, "copies %zu", i);
		decode_copies_of(reader, plan, json_array_get(all, i), &holders_n);
	}
}

static void decode_header(struct field_reader *reader, struct pawl_pipe_plan *plan,
	const json_t *document)
{
	const json_t *link;
	uint32_t version = 0;

	field_at(reader, "plan");
	if (!json_is_object(document)) {
		field_fail(reader, "an object is needed");
	}
	field_u32(reader, document, "pipe_plan", true, UINT32_MAX, &version);
	if (version != DOCUMENT_VERSION) {
		field_fail(reader, "pipe_plan is version %u, and this program reads version %d",
			version, DOCUMENT_VERSION);
	}
	field_u32(reader, document, "microbatches", true, PAWL_PIPE_MICROBATCHES_MAX,
		&plan->microbatches);
	link = field_object(reader, document, "link", false);
	if (link) {
		pipe_link_decode(reader, link, &plan->link);
		field_at(reader, "plan");
	}
}

static void decode(struct field_reader *reader, struct pawl_pipe_plan *plan, const json_t *document)
{
	const json_t *stages;
	const json_t *chunks;
	const json_t *copies;

	decode_header(reader, plan, document);
	stages = field_array(reader, document, "stages", true, 1, PAWL_PIPE_STAGES_MAX);
	chunks = field_array(reader, document, "chunks", true, 1, PAWL_PIPE_CHUNKS_MAX);
	copies = field_array(reader, document, "copies", false, 0, PAWL_PIPE_TIED_MAX);
	plan->stages = (uint32_t)json_array_size(stages);
	plan->chunks_n = (uint32_t)json_array_size(chunks);
	plan->stage = allocate(reader, plan->stages, sizeof(*plan->stage));
	plan->chunks = allocate(reader, plan->chunks_n, sizeof(*plan->chunks));
	plan->first = allocate(reader, plan->stages, sizeof(*plan->first));
	for (uint32_t c = 0; c < plan->chunks_n && reader->rv == 0; c++) {
		field_at(reader, "chunk %u", c);
		decode_chunk(reader, json_array_get(chunks, c), &plan->chunks[c]);
	}
	if (reader->rv == 0) {
		decode_copies(reader, plan, copies);
	}
	if (reader->rv == 0) {
		decode_stages(reader, plan, stages);
	}
}

int pipe_document_decode(struct pawl_pipe_plan *plan, const char *text, size_t len_bytes,
	struct pawl_err *err)
{
	struct field_reader reader = {.err = err};
	json_error_t why;
	json_t *document = json_loadb(text, len_bytes, JSON_REJECT_DUPLICATES, &why);

	*plan = (struct pawl_pipe_plan){.schedule = PAWL_PIPE_LISTED, .each = 1};
	if (!document) {
		return pawl_err_set(err, PAWL_ECORRUPT, "not JSON: line %d, column %d: %s",
			why.line, why.column, why.text);
	}
	decode(&reader, plan, document);
	json_decref(document);
	if (reader.rv != 0) {
		pawl_pipe_plan_deinit(plan);
	}
	return reader.rv;
}
