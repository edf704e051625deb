/* Reads models: see model.h. */
#include "cli/pipe/model.h"

#include "base/err.h"
#include "base/fault.h"
#include "cli/pipe/field.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {"pipe_model", "name", "units", "state_factor", "link", NULL};
static const char *const unit_keys[] = {"name", "forward_s", "backward_s", "weight_s",
	"param_bytes", "saved_bytes", "cut_bytes", "tied", "tied_bytes", "stage", NULL};
static const char *const link_keys[] = {"bytes_per_s", "latency_s", "busy", NULL};

void pipe_model_deinit(struct pipe_model *model)
{
	json_decref(model->document);
	free(model->units);
	*model = (struct pipe_model){0};
}

void pipe_link_decode(struct field_reader *reader, const json_t *object,
	struct pawl_pipe_link *link)
{
	field_at(reader, "link");
	field_only(reader, object, link_keys);
	field_number(reader, object, "bytes_per_s", false, 1e15, &link->bytes_per_s);
	field_number(reader, object, "latency_s", false, PAWL_PIPE_SECONDS_MAX, &link->latency_s);
	field_flag(reader, object, "busy", false, &link->busy);
}

/* Returns the number of a tied set, which is new if its name is. */
static uint32_t find_tied(struct field_reader *reader, struct pipe_model *model, const char *name)
{
	for (uint32_t i = 1; i <= model->tied_n; i++) {
		if (strcmp(model->tied[i], name) == 0) {
			return i;
		}
	}
	if (model->tied_n == PAWL_PIPE_TIED_MAX) {
		field_fail(reader, "tied: more than %u sets", PAWL_PIPE_TIED_MAX);
		return 0;
	}
	model->tied[++model->tied_n] = name;
	return model->tied_n;
}

static void decode_unit(struct field_reader *reader, struct pipe_model *model, const json_t *object,
	struct pawl_pipe_unit *unit)
{
	const char *tied = NULL;

	*unit = (struct pawl_pipe_unit){.stage = PAWL_PIPE_ANY_STAGE};
	field_text(reader, object, "name", true, MODEL_NAME_MAX, &unit->name);
	if (unit->name) {
		field_at(reader, "unit %u (%s)", model->n, unit->name);
	}
	field_only(reader, object, unit_keys);
	field_number(reader, object, "forward_s", true, PAWL_PIPE_SECONDS_MAX, &unit->forward_s);
	field_number(reader, object, "backward_s", true, PAWL_PIPE_SECONDS_MAX, &unit->backward_s);
	field_number(reader, object, "weight_s", false, unit->backward_s, &unit->weight_s);
	field_whole(reader, object, "param_bytes", false, PAWL_PIPE_BYTES_MAX, &unit->param_bytes);
	field_whole(reader, object, "saved_bytes", false, PAWL_PIPE_BYTES_MAX, &unit->saved_bytes);
	field_whole(reader, object, "cut_bytes", false, PAWL_PIPE_BYTES_MAX, &unit->cut_bytes);
	field_u32(reader, object, "stage", false, PAWL_PIPE_STAGES_MAX - 1, &unit->stage);
	field_text(reader, object, "tied", false, MODEL_NAME_MAX, &tied);
	if (tied) {
		unit->tied = find_tied(reader, model, tied);
		unit->tied_bytes = unit->param_bytes;
	}
	field_whole(reader, object, "tied_bytes", false, unit->param_bytes, &unit->tied_bytes);
	if (!tied && unit->tied_bytes > 0) {
		field_fail(reader, "tied_bytes without tied");
	}
}

static int decode_units(struct field_reader *reader, struct pipe_model *model)
{
	const json_t *units =
		field_array(reader, model->document, "units", true, 1, PAWL_PIPE_UNITS_MAX);
	size_t n = json_array_size(units);

	if (!units) {
		return reader->rv;
	}
	model->units = FAULT_MEM("pipe.model", calloc(n, sizeof(*model->units)));
	if (!model->units) {
		return pawl_err_set(reader->err, PAWL_ENOMEM, "no memory for %zu units", n);
	}
	for (; model->n < n && reader->rv == 0; model->n++) {
		const json_t *unit = json_array_get(units, model->n);

		field_at(reader, "unit %u", model->n);
		if (!json_is_object(unit)) {
			field_fail(reader, "an object is needed");
		}
		decode_unit(reader, model, unit, &model->units[model->n]);
	}
	return reader->rv;
}

static int decode(struct field_reader *reader, struct pipe_model *model)
{
	const json_t *link;
	uint32_t version = 0;

	field_at(reader, "model");
	if (!json_is_object(model->document)) {
		field_fail(reader, "an object is needed");
	}
	field_u32(reader, model->document, "pipe_model", true, UINT32_MAX, &version);
	if (version != MODEL_VERSION) {
		field_fail(reader, "pipe_model is version %u, and this program reads version %d",
			version, MODEL_VERSION);
	}
	field_only(reader, model->document, keys);
	field_text(reader, model->document, "name", false, MODEL_NAME_MAX, &model->name);
	field_number(reader, model->document, "state_factor", false, PAWL_PIPE_STATE_MAX,
		&model->state_factor);
	if (model->state_factor < 1) {
		field_fail(reader, "state_factor must be at least 1");
	}
	link = field_object(reader, model->document, "link", false);
	if (link) {
		pipe_link_decode(reader, link, &model->link);
		field_at(reader, "model");
	}
	return reader->rv ? reader->rv : decode_units(reader, model);
}

int pipe_model_decode(struct pipe_model *model, const char *text, size_t len_bytes,
	struct pawl_err *err)
{
	struct field_reader reader = {.err = err};
	json_error_t why;
	int rv;

	*model = (struct pipe_model){.name = "model", .state_factor = 4};
	model->document = json_loadb(text, len_bytes, JSON_REJECT_DUPLICATES, &why);
	if (!model->document) {
		*model = (struct pipe_model){0};
		return pawl_err_set(err, PAWL_ECORRUPT, "not JSON: line %d, column %d: %s",
			why.line, why.column, why.text);
	}
	rv = decode(&reader, model);
	if (rv != 0) {
		pipe_model_deinit(model);
	}
	return rv;
}

/* ---- files ---- */

/* Reads from a stream to its end. */
static int read_all(FILE *from, const char *path, char **text, size_t *len_bytes,
	struct pawl_err *err)
{
	size_t room = 1u << 16;
	char *bytes = NULL;
	size_t len = 0;

	do {
		char *more = FAULT_MEM("pipe.file", realloc(bytes, room));

		if (!more) {
			free(bytes);
			return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory for %zu bytes", path,
				room);
		}
		bytes = more;
		len += fread(bytes + len, 1, room - len, from);
		room *= len == room ? 2 : 1;
	} while (!feof(from) && !ferror(from) && len <= MODEL_BYTES_MAX);
	if (ferror(from) || len > MODEL_BYTES_MAX) {
		int rv = ferror(from) ? pawl_err_sys(err, "read %s", path)
				      : pawl_err_set(err, PAWL_ELIMIT, "%s: more than %u bytes",
						path, MODEL_BYTES_MAX);

		free(bytes);
		return rv;
	}
	*text = bytes;
	*len_bytes = len;
	return 0;
}

int pipe_file_read(const char *path, char **text, size_t *len_bytes, struct pawl_err *err)
{
	bool is_stdin = strcmp(path, "-") == 0;
	FILE *from = is_stdin ? stdin : fopen(path, "re");
	int rv;

	if (!from) {
		return pawl_err_sys(err, "open %s", path);
	}
	rv = read_all(from, path, text, len_bytes, err);
	if (!is_stdin) {
		fclose(from);
	}
	return rv;
}
