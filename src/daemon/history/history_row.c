/* Lines of the history: see history_row.h. */
#include "daemon/history/history_row.h"

#include "base/err.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MAX_S 1e11 /* some three thousand years */

/* ---- encoding ---- */

/* Makes a string. A user's name that is not UTF-8 becomes "?"; Pawl's names are ASCII. */
static json_t *text(const char *value)
{
	json_t *string = json_string(value);

	return string ? string : json_string("?");
}

static json_t *encode_header(const struct history_row *row)
{
	json_t *all = json_pack("{s:i, s:o, s:b, s:f, s:s}", "cluster", HISTORY_VERSION, "name",
		text(row->host), "virtual", 0, "t", row->t_s, "policy", row->policy);

	if (all && row->lost_s > 0) {
		json_object_set_new(all, "lost", json_real(row->lost_s));
	}
	return all;
}

static json_t *encode_node(const struct history_row *row)
{
	const struct history_node *n = &row->node;

	return json_pack("{s:f, s:s, s:s, s:s, s:i, s:f, s:b, s:s}", "t", row->t_s, "node", n->name,
		"pool", n->pool, "type", n->type, "slots", (int)n->slots, "price", n->price, "spot",
		(int)n->spot, "state", n->state);
}

static json_t *encode_entries(const struct history_job *job)
{
	json_t *at = json_object();

	for (uint32_t i = 0; i < job->entries_n; i++) {
		json_object_set_new(at, job->entries[i].node,
			json_integer(job->entries[i].replicas));
	}
	return at;
}

static json_t *encode_job(const struct history_row *row)
{
	const struct history_job *j = &row->job;
	json_t *all = json_pack("{s:f, s:I, s:s, s:o, s:s, s:i, s:i, s:f, s:s, s:s, s:o, s:i}", "t",
		row->t_s, "job", (json_int_t)j->id, "name", j->name, "user", text(j->user), "queue",
		j->queue, "min", (int)j->least, "max", (int)j->most, "submitted", j->submitted_s,
		"state", j->state, "why", j->why, "at", encode_entries(j), "restarts",
		(int)j->restarts);

	if (all && j->begun_s > 0) {
		json_object_set_new(all, "begun", json_real(j->begun_s));
	}
	if (all && j->goodput > 0) {
		json_object_set_new(all, "goodput", json_real(j->goodput));
		json_object_set_new(all, "batch", json_integer((json_int_t)j->batch));
	}
	if (all && j->over) {
		json_object_set_new(all, "end", json_string(j->state));
		json_object_set_new(all, "exit", json_integer(j->exit_code));
	}
	return all;
}

json_t *history_row_encode(const struct history_row *row)
{
	switch (row->kind) {
	case HISTORY_FILE_HEADER:
		return encode_header(row);
	case HISTORY_NODE:
		return encode_node(row);
	case HISTORY_JOB:
		return encode_job(row);
	default:
		return json_pack("{s:f, s:s, s:s}", "t", row->t_s, "scheduler", row->event,
			"policy", row->policy);
	}
}

/* ---- decoding ---- */

static bool get_text(const json_t *all, const char *key, char *into, size_t cap)
{
	const json_t *value = json_object_get(all, key);

	return json_is_string(value) && json_string_length(value) < cap &&
		snprintf(into, cap, "%s", json_string_value(value)) ==
		(int)json_string_length(value);
}

/* Reads a number from 0 to most. */
static bool get_number(const json_t *all, const char *key, double most, double *into)
{
	const json_t *value = json_object_get(all, key);
	double x = json_number_value(value);

	*into = x;
	return json_is_number(value) && x >= 0 && x <= most;
}

static bool get_u32(const json_t *all, const char *key, uint32_t most, uint32_t *into)
{
	const json_t *value = json_object_get(all, key);
	json_int_t x = json_integer_value(value);

	*into = (uint32_t)x;
	return json_is_integer(value) && x >= 0 && x <= most;
}

static bool decode_header(struct history_row *row, const json_t *all)
{
	const json_t *version = json_object_get(all, "cluster");

	row->kind = HISTORY_FILE_HEADER;
	return json_is_integer(version) && json_integer_value(version) == HISTORY_VERSION &&
		get_text(all, "name", row->host, sizeof(row->host)) &&
		get_text(all, "policy", row->policy, sizeof(row->policy)) &&
		(!json_object_get(all, "lost") ||
			get_number(all, "lost", TIME_MAX_S, &row->lost_s));
}

static bool decode_node(struct history_node *n, const json_t *all)
{
	n->spot = json_is_true(json_object_get(all, "spot"));
	return get_text(all, "node", n->name, sizeof(n->name)) && n->name[0] != '\0' &&
		get_text(all, "pool", n->pool, sizeof(n->pool)) &&
		get_text(all, "type", n->type, sizeof(n->type)) &&
		get_text(all, "state", n->state, sizeof(n->state)) &&
		get_u32(all, "slots", CORE_SLOTS_MAX, &n->slots) &&
		get_number(all, "price", 1e12, &n->price);
}

static bool decode_entries(struct history_job *job, json_t *at)
{
	const char *node;
	json_t *count;

	if (!json_is_object(at) || json_object_size(at) > CORE_MOST_MAX) {
		return false;
	}
	job->entries = calloc(json_object_size(at) + 1, sizeof(*job->entries));
	json_object_foreach(at, node, count)
	{
		struct history_entry *entry = job->entries ? &job->entries[job->entries_n] : NULL;

		if (!entry || !json_is_integer(count) || json_integer_value(count) < 1 ||
			json_integer_value(count) > CORE_SLOTS_MAX ||
			(size_t)snprintf(entry->node, sizeof(entry->node), "%s", node) >=
				sizeof(entry->node)) {
			return false;
		}
		entry->replicas = (uint32_t)json_integer_value(count);
		job->entries_n++;
	}
	return job->entries != NULL;
}

static bool decode_end(struct history_job *job, const json_t *all)
{
	const json_t *exit_code = json_object_get(all, "exit");

	job->over = json_object_get(all, "end") != NULL;
	job->exit_code = (int)json_integer_value(exit_code);
	return !job->over || json_is_integer(exit_code);
}

static bool decode_job(struct history_job *job, const json_t *all)
{
	json_int_t id = json_integer_value(json_object_get(all, "job"));
	double batch = 0;

	job->id = (uint64_t)id;
	if (json_object_get(all, "goodput") &&
		(!get_number(all, "goodput", 1e30, &job->goodput) ||
			!get_number(all, "batch", 1e15, &batch))) {
		return false;
	}
	job->batch = (uint64_t)batch;
	return id > 0 && get_text(all, "name", job->name, sizeof(job->name)) &&
		get_text(all, "user", job->user, sizeof(job->user)) &&
		get_text(all, "queue", job->queue, sizeof(job->queue)) &&
		get_text(all, "state", job->state, sizeof(job->state)) &&
		get_text(all, "why", job->why, sizeof(job->why)) &&
		get_u32(all, "min", CORE_MOST_MAX, &job->least) &&
		get_u32(all, "max", CORE_MOST_MAX, &job->most) &&
		get_u32(all, "restarts", INT32_MAX, &job->restarts) &&
		get_number(all, "submitted", TIME_MAX_S, &job->submitted_s) &&
		(!json_object_get(all, "begun") ||
			get_number(all, "begun", TIME_MAX_S, &job->begun_s)) &&
		decode_end(job, all) && decode_entries(job, json_object_get(all, "at"));
}

static bool decode(struct history_row *row, const json_t *all)
{
	if (!get_number(all, "t", TIME_MAX_S, &row->t_s)) {
		return false;
	}
	if (json_object_get(all, "cluster")) {
		return decode_header(row, all);
	}
	if (json_object_get(all, "node")) {
		row->kind = HISTORY_NODE;
		return decode_node(&row->node, all);
	}
	if (json_object_get(all, "job")) {
		row->kind = HISTORY_JOB;
		return decode_job(&row->job, all);
	}
	row->kind = HISTORY_SCHEDULER;
	return get_text(all, "scheduler", row->event, sizeof(row->event)) &&
		get_text(all, "policy", row->policy, sizeof(row->policy));
}

int history_row_decode(struct history_row *row, const char *line, size_t len_bytes,
	struct pawl_err *err)
{
	json_error_t why;
	json_t *all = json_loadb(line, len_bytes, JSON_REJECT_DUPLICATES, &why);
	bool good;

	*row = (struct history_row){0};
	if (!all) {
		return pawl_err_set(err, PAWL_ECORRUPT, "not a line of a history: %s", why.text);
	}
	good = json_is_object(all) && decode(row, all);
	json_decref(all);
	if (!good) {
		history_row_deinit(row);
		return pawl_err_set(err, PAWL_ECORRUPT,
			"not a line of a history, version %d: a key is missing or wrong",
			HISTORY_VERSION);
	}
	return 0;
}

void history_row_deinit(struct history_row *row)
{
	free(row->job.entries);
	row->job.entries = NULL;
	row->job.entries_n = 0;
}

bool history_job_same(const struct history_job *a, const struct history_job *b)
{
	bool same = strcmp(a->state, b->state) == 0 && strcmp(a->why, b->why) == 0 &&
		a->restarts == b->restarts && a->least == b->least && a->most == b->most &&
		a->entries_n == b->entries_n;

	for (uint32_t i = 0; same && i < a->entries_n; i++) {
		same = a->entries[i].replicas == b->entries[i].replicas &&
			strcmp(a->entries[i].node, b->entries[i].node) == 0;
	}
	return same;
}
