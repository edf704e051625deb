/* Fuzzes the documents of pawl pipe: models and plans. Whatever is accepted can be planned, or
 * simulated, or is refused with a message; a plan takes the same time after it was encoded and
 * decoded. */
#include "fuzz.h"

#include "base/assert.h"
#include "cli/cli.h"
#include "cli/pipe/document.h"
#include "cli/pipe/model.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define UNITS_PLANNED 100u   /* larger models are decoded only */
#define TASKS_MAX     10000u /* larger plans are decoded only */

/* Stands in for that of src/cli/print.c, which brings the daemon along. */
json_t *cli_json_text(const char *text)
{
	json_t *string = json_string(text);

	return string ? string : json_string("?");
}

static bool is_refusal(int rv)
{
	return rv == PAWL_EINVAL || rv == PAWL_ELIMIT;
}

static void try_plan(const char *text, size_t len_bytes)
{
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report = {0};
	struct pawl_err err = {0};
	int rv = pipe_document_decode(&plan, text, len_bytes, &err);

	if (rv != 0) {
		ASSERT(rv == PAWL_ECORRUPT && err.msg[0] != '\0' && !plan.chunks);
		return;
	}
	if ((uint64_t)plan.chunks_n * plan.microbatches <= TASKS_MAX) {
		rv = pawl_pipe_verify(&report, &plan, &err);
		ASSERT(rv == 0 ? report.step_s >= 0 : is_refusal(rv) && err.msg[0] != '\0');
	}
	pawl_pipe_report_deinit(&report);
	pawl_pipe_plan_deinit(&plan);
}

/* A plan is the same after a way through its document. */
static void try_document(const struct pipe_model *model, const struct pawl_pipe_plan *plan,
	const struct pawl_pipe_report *report, const struct pawl_pipe_options *options)
{
	json_t *document = pipe_document_encode(model, plan, report, options);
	char *text = json_dumps(document, JSON_COMPACT);
	struct pawl_pipe_plan again;
	struct pawl_pipe_report same;

	ASSERT(document && text);
	ASSERT(pipe_document_decode(&again, text, strlen(text), NULL) == 0);
	ASSERT(pawl_pipe_verify(&same, &again, NULL) == 0);
	ASSERT(same.step_s >= report->step_s && same.step_s <= report->step_s);
	ASSERT(same.stage[0].peak_bytes == report->stage[0].peak_bytes);
	pawl_pipe_report_deinit(&same);
	pawl_pipe_plan_deinit(&again);
	free(text);
	json_decref(document);
}

static void try_model(const char *text, size_t len_bytes)
{
	static struct pawl_pipe_options options;
	struct pawl_pipe_setting setting = {.stages = 2, .microbatches = 3};
	struct pawl_pipe_plan plan = {0};
	struct pawl_pipe_report report = {0};
	struct pipe_model model;
	struct pawl_err err = {0};
	int rv = pipe_model_decode(&model, text, len_bytes, &err);

	if (rv != 0) {
		ASSERT(rv == PAWL_ECORRUPT && err.msg[0] != '\0' && !model.units);
		return;
	}
	setting.state_factor = model.state_factor;
	setting.link = model.link;
	if (model.n <= UNITS_PLANNED) {
		rv = pawl_pipe_choose(&plan, &report, &options, model.units, model.n, &setting,
			&err);
		ASSERT(rv == 0 || (is_refusal(rv) && err.msg[0] != '\0'));
	}
	if (plan.chunks) {
		try_document(&model, &plan, &report, &options);
	}
	pawl_pipe_report_deinit(&report);
	pawl_pipe_plan_deinit(&plan);
	pipe_model_deinit(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
	try_plan((const char *)bytes, len_bytes);
	try_model((const char *)bytes, len_bytes);
	return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
	static const char *const texts[] = {
		"{\"pipe_model\":1,\"name\":\"gpt2\",\"state_factor\":4,\"link\":{\"bytes_per_s\":"
		"1e9,"
		"\"latency_s\":1e-5,\"busy\":false},\"units\":["
		"{\"name\":\"wte\",\"forward_s\":0.5,\"backward_s\":1,\"weight_s\":0.5,"
		"\"param_bytes\":400,\"tied\":\"wte\",\"saved_bytes\":8},"
		"{\"name\":\"h.0\",\"forward_s\":1,\"backward_s\":2,\"param_bytes\":100,"
		"\"saved_bytes\":30,\"cut_bytes\":8,\"stage\":0},"
		"{\"name\":\"h.1\",\"forward_s\":1,\"backward_s\":2,\"param_bytes\":100,"
		"\"saved_bytes\":30,\"cut_bytes\":8},"
		"{\"name\":\"head\",\"forward_s\":0.5,\"backward_s\":1,\"param_bytes\":400,"
		"\"tied\":\"wte\",\"tied_bytes\":400,\"cut_bytes\":8}]}",
		"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2},"
		"{\"name\":\"b\",\"forward_s\":1e-3,\"backward_s\":2e-3,\"cut_bytes\":1e6}]}",
		"{\"pipe_plan\":1,\"microbatches\":2,\"link\":{\"latency_s\":0.5,\"busy\":true},"
		"\"stages\":[{\"state_bytes\":100,\"cap_bytes\":120,\"tasks\":\"0F0 0F1 0B0 0B1\"},"
		"{\"state_bytes\":100,\"cap_bytes\":null,\"tasks\":\"1F0 1I0 1F1 1W0 1I1 1W1\"}],"
		"\"chunks\":[{\"stage\":0,\"forward_s\":1,\"backward_s\":2,\"saved_bytes\":5},"
		"{\"stage\":1,\"forward_s\":1,\"backward_s\":2,\"weight_s\":1,\"in_bytes\":7}],"
		"\"copies\":[{\"tied\":\"wte\",\"bytes\":50,\"stages\":[0,1]}]}",
	};
	size_t len;

	if (i >= sizeof(texts) / sizeof(*texts)) {
		return 0;
	}
	len = strlen(texts[i]);
	memcpy(buf, texts[i], len);
	return len;
}
