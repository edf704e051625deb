/* Documents of pawl pipe: models and plans are read as they are written, and what is wrong in one
 * is named with its place. */
#include "base/fault.h"
#include "cli/cli.h"
#include "cli/pipe/document.h"
#include "cli/pipe/model.h"
#include "close.h"
#include "each_fault.h"
#include "expect.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stands in for that of src/cli/print.c, which brings the daemon along. */
json_t *cli_json_text(const char *text)
{
	json_t *string = json_string(text);

	return string ? string : json_string("?");
}

#define UNIT "{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2}"

static const char whole[] =
	"{\"pipe_model\":1,\"name\":\"gpt2\",\"state_factor\":8,\"link\":{\"bytes_per_s\":1e9,"
	"\"latency_s\":0.5,\"busy\":true},\"units\":["
	"{\"name\":\"wte\",\"forward_s\":0.5,\"backward_s\":1.5,\"weight_s\":0.75,"
	"\"param_bytes\":400,\"saved_bytes\":8,\"tied\":\"emb\"},"
	"{\"name\":\"h.0\",\"forward_s\":1,\"backward_s\":2,\"param_bytes\":1e2,\"cut_bytes\":9,"
	"\"stage\":1},"
	"{\"name\":\"head\",\"forward_s\":1,\"backward_s\":2,\"param_bytes\":500,"
	"\"tied\":\"emb\",\"tied_bytes\":400}]}";

static void a_model_is_read(void **state)
{
	struct pipe_model model;
	struct pawl_err err;

	OK(pipe_model_decode(&model, whole, strlen(whole), &err));
	assert_string_equal(model.name, "gpt2");
	assert_int_equal(model.n, 3);
	assert_close(model.state_factor, 8, 1e-12);
	assert_close(model.link.bytes_per_s, 1e9, 1e-12);
	assert_close(model.link.latency_s, 0.5, 1e-12);
	assert_true(model.link.busy);
	assert_string_equal(model.units[0].name, "wte");
	assert_close(model.units[0].backward_s, 1.5, 1e-12);
	assert_close(model.units[0].weight_s, 0.75, 1e-12);
	assert_int_equal(model.units[0].tied, 1);
	assert_int_equal(model.units[0].tied_bytes, 400);
	assert_int_equal(model.units[0].stage, PAWL_PIPE_ANY_STAGE);
	assert_int_equal(model.units[1].param_bytes, 100);
	assert_int_equal(model.units[1].cut_bytes, 9);
	assert_int_equal(model.units[1].stage, 1);
	assert_int_equal(model.units[1].tied, 0);
	assert_int_equal(model.units[2].tied, 1);
	assert_int_equal(model.units[2].tied_bytes, 400);
	assert_string_equal(model.tied[1], "emb");
	pipe_model_deinit(&model);
}

static void what_is_wrong_in_a_model_is_named(void **state)
{
	static const struct {
		const char *text;
		const char *why;
	} wrong[] = {
		{"", "not JSON: line 1"},
		{"{\"pipe_model\":1,\n\"units\":[}", "not JSON: line 2"},
		{"{\"pipe_model\":1,\"pipe_model\":1}", "not JSON: line 1, column"},
		{"[]", "model: an object is needed"},
		{"{}", "model: pipe_model is missing"},
		{"{\"pipe_model\":2,\"units\":[" UNIT "]}", "pipe_model is version 2"},
		{"{\"pipe_model\":1}", "model: units is missing"},
		{"{\"pipe_model\":1,\"units\":{}}", "units must be an array of 1 to 65536"},
		{"{\"pipe_model\":1,\"units\":[]}", "units must be an array of 1 to 65536"},
		{"{\"pipe_model\":1,\"units\":[7]}", "unit 0: an object is needed"},
		{"{\"pipe_model\":1,\"units\":[{}]}", "unit 0: name is missing"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"\"}]}", "name must be a text of 1 to"},
		{"{\"pipe_model\":1,\"units\":[" UNIT ",{\"name\":\"b\"}]}",
			"unit 1 (b): forward_s is missing"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":-1}]}",
			"unit 0 (a): forward_s must be a number from 0"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":\"1\"}]}",
			"unit 0 (a): forward_s must be a number from 0"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2,"
		 "\"weight_s\":3}]}",
			"unit 0 (a): weight_s must be a number from 0 to 2"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2,"
		 "\"param_bytes\":0.5}]}",
			"unit 0 (a): param_bytes must be a whole number"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2,"
		 "\"saved_bytes\":1e17}]}",
			"unit 0 (a): saved_bytes must be a whole number"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2,"
		 "\"stage\":256}]}",
			"unit 0 (a): stage must be a whole number from 0 to 255"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2,"
		 "\"tied_bytes\":0,\"tyed\":\"x\"}]}",
			"unit 0 (a): tyed is no key"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2,"
		 "\"tied_bytes\":5,\"param_bytes\":5}]}",
			"unit 0 (a): tied_bytes without tied"},
		{"{\"pipe_model\":1,\"units\":[{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2,"
		 "\"tied\":\"x\",\"tied_bytes\":6,\"param_bytes\":5}]}",
			"unit 0 (a): tied_bytes must be a whole number from 0 to 5"},
		{"{\"pipe_model\":1,\"state_factor\":0.5,\"units\":[" UNIT "]}",
			"model: state_factor must be at least 1"},
		{"{\"pipe_model\":1,\"link\":3,\"units\":[" UNIT "]}",
			"model: link must be an object"},
		{"{\"pipe_model\":1,\"link\":{\"busy\":1},\"units\":[" UNIT "]}",
			"link: busy must be true or false"},
		{"{\"pipe_model\":1,\"link\":{\"rate\":1},\"units\":[" UNIT "]}",
			"link: rate is no key"},
		{"{\"pipe_model\":1,\"stages\":4,\"units\":[" UNIT "]}", "model: stages is no key"},
	};
	struct pipe_model model;
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		FAILS(PAWL_ECORRUPT,
			pipe_model_decode(&model, wrong[i].text, strlen(wrong[i].text), &err));
		SAYS(wrong[i].why);
		assert_null(model.units);
	}
}

#define CHUNK  "{\"stage\":0,\"forward_s\":1,\"backward_s\":2}"
#define STAGE  "{\"state_bytes\":0,\"tasks\":\"0F0 0B0\"}"
#define CHUNKS "\"chunks\":[" CHUNK "]"
#define STAGES "\"stages\":[" STAGE "]"

static void what_is_wrong_in_a_plan_is_named(void **state)
{
	static const struct {
		const char *text;
		const char *why;
	} wrong[] = {
		{"{}", "plan: pipe_plan is missing"},
		{"{\"pipe_plan\":1}", "plan: microbatches is missing"},
		{"{\"pipe_plan\":9,\"microbatches\":1," CHUNKS "," STAGES "}",
			"pipe_plan is version 9"},
		{"{\"pipe_plan\":1,\"microbatches\":5000," CHUNKS "," STAGES "}",
			"microbatches must be a whole number from 0 to 4096"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS "}", "stages is missing"},
		{"{\"pipe_plan\":1,\"microbatches\":1," STAGES "}", "chunks is missing"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS ",\"stages\":[1]}",
			"stage 0: an object is needed"},
		{"{\"pipe_plan\":1,\"microbatches\":1,\"chunks\":[1]," STAGES "}",
			"chunk 0: an object is needed"},
		{"{\"pipe_plan\":1,\"microbatches\":1,\"chunks\":[{}]," STAGES "}",
			"chunk 0: stage is missing"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS ",\"stages\":[{\"state_bytes\":0}]}",
			"stage 0: tasks must be a text"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS
		 ",\"stages\":[{\"state_bytes\":0,\"tasks\":\"0F0 F0\"}]}",
			"stage 0: tasks: F0 is no task, such as 0F12"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS
		 ",\"stages\":[{\"state_bytes\":0,\"tasks\":\"0F0 0X0\"}]}",
			"tasks: 0X0 is no task"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS
		 ",\"stages\":[{\"state_bytes\":0,\"tasks\":\"0F99999999999999999999\"}]}",
			"is no task"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS
		 ",\"stages\":[{\"state_bytes\":0,\"tasks\":\"0F0,0B0\"}]}",
			"tasks: 0F0,0B0 is no task"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS
		 ",\"stages\":[{\"state_bytes\":0,\"tasks\":\" 0F0\"}]}",
			"is no task"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS "," STAGES ",\"copies\":[3]}",
			"copies 0: an object is needed"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS "," STAGES
		 ",\"copies\":[{\"bytes\":3,\"stages\":[0]}]}",
			"copies 0: stages must be an array of 2 to 256"},
		{"{\"pipe_plan\":1,\"microbatches\":1," CHUNKS "," STAGES
		 ",\"copies\":[{\"bytes\":3,\"stages\":[0,-1]}]}",
			"copies 0: stages: a whole number"},
	};
	struct pawl_pipe_plan plan;
	struct pawl_err err;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		FAILS(PAWL_ECORRUPT,
			pipe_document_decode(&plan, wrong[i].text, strlen(wrong[i].text), &err));
		SAYS(wrong[i].why);
		assert_null(plan.chunks);
	}
}

/* Returns the document of the whole model's plan on two stages; the caller frees it. */
static char *write_plan(struct pawl_pipe_plan *plan, struct pawl_pipe_report *report)
{
	static struct pawl_pipe_options options;
	struct pawl_pipe_setting setting = {.stages = 2, .microbatches = 3, .state_factor = 8};
	struct pipe_model model;
	struct pawl_err err;
	json_t *document;
	char *text;

	OK(pipe_model_decode(&model, whole, strlen(whole), &err));
	setting.link = model.link;
	setting.tied = PAWL_PIPE_REPLICATE;
	OK(pawl_pipe_choose(plan, report, &options, model.units, model.n, &setting, &err));
	document = pipe_document_encode(&model, plan, report, &options);
	text = json_dumps(document, 0);
	assert_non_null(text);
	json_decref(document);
	pipe_model_deinit(&model);
	return text;
}

static void a_plan_is_read_as_it_was_written(void **state)
{
	struct pawl_pipe_plan plan;
	struct pawl_pipe_plan again;
	struct pawl_pipe_report report;
	struct pawl_pipe_report same;
	struct pawl_err err;
	char *text = write_plan(&plan, &report);

	OK(pipe_document_decode(&again, text, strlen(text), &err));
	assert_int_equal(again.stages, plan.stages);
	assert_int_equal(again.chunks_n, plan.chunks_n);
	assert_int_equal(again.copies_n, 1);
	assert_int_equal(again.stage[0].cap_bytes, PAWL_PIPE_NO_CAP);
	for (uint32_t c = 0; c < plan.chunks_n; c++) {
		assert_int_equal(again.chunks[c].stage, plan.chunks[c].stage);
		assert_int_equal(again.chunks[c].first, plan.chunks[c].first);
		assert_int_equal(again.chunks[c].units, plan.chunks[c].units);
		assert_int_equal(again.chunks[c].saved_bytes, plan.chunks[c].saved_bytes);
		assert_int_equal(again.chunks[c].in_bytes, plan.chunks[c].in_bytes);
	}
	assert_memory_equal(again.first, plan.first, (plan.stages + 1) * sizeof(*plan.first));
	for (uint32_t i = 0; i < plan.first[plan.stages]; i++) {
		assert_int_equal(again.tasks[i].kind, plan.tasks[i].kind);
		assert_int_equal(again.tasks[i].chunk, plan.tasks[i].chunk);
		assert_int_equal(again.tasks[i].microbatch, plan.tasks[i].microbatch);
	}
	OK(pawl_pipe_verify(&same, &again, &err));
	assert_true(same.step_s >= report.step_s && same.step_s <= report.step_s);
	pawl_pipe_report_deinit(&same);
	pawl_pipe_report_deinit(&report);
	pawl_pipe_plan_deinit(&again);
	pawl_pipe_plan_deinit(&plan);
	free(text);
}

static void each_allocation_may_fail(void **state)
{
	struct pawl_pipe_plan plan;
	struct pawl_pipe_report report;
	struct pipe_model model;
	struct pawl_err err;
	char *text = write_plan(&plan, &report);

	pawl_pipe_plan_deinit(&plan);
	pawl_pipe_report_deinit(&report);
	for (uint64_t nth = 1; each_fault(nth); nth++) {
		int rv;

		fault_arm("pipe.", nth, ENOMEM, false);
		rv = pipe_document_decode(&plan, text, strlen(text), &err);
		fault_disarm();
		assert_true(rv == 0 || (rv == PAWL_ENOMEM && !plan.chunks && fault_reached(nth)));
		pawl_pipe_plan_deinit(&plan);
	}
	fault_arm("pipe.", 1, ENOMEM, false);
	FAILS(PAWL_ENOMEM, pipe_model_decode(&model, whole, strlen(whole), &err));
	fault_disarm();
	free(text);
}

/* ---- files ---- */

static void a_file_is_read_whole(void **state)
{
	char path[] = "/tmp/pawl_cli_pipe_XXXXXX";
	int fd = mkstemp(path);
	FILE *to = fdopen(fd, "w");
	struct pawl_err err;
	char *text;
	size_t len_bytes;

	assert_non_null(to);
	for (int i = 0; i < 1 << 17; i++) { /* exactly the room that reading has after one growth */
		assert_int_not_equal(fputc('x', to), EOF);
	}
	assert_int_equal(fclose(to), 0);
	OK(pipe_file_read(path, &text, &len_bytes, &err));
	assert_int_equal(len_bytes, 1 << 17);
	assert_int_equal(text[len_bytes - 1], 'x');
	free(text);
	fault_arm("pipe.file", 2, ENOMEM, false);
	FAILS(PAWL_ENOMEM, pipe_file_read(path, &text, &len_bytes, &err));
	fault_disarm();
	assert_int_equal(remove(path), 0);
	FAILS(PAWL_ENOENT, pipe_file_read(path, &text, &len_bytes, &err));
	FAILS(PAWL_EIO, pipe_file_read("/tmp", &text, &len_bytes, &err));
	FAILS(PAWL_ELIMIT, pipe_file_read("/dev/zero", &text, &len_bytes, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_model_is_read),
		cmocka_unit_test(what_is_wrong_in_a_model_is_named),
		cmocka_unit_test(what_is_wrong_in_a_plan_is_named),
		cmocka_unit_test(a_plan_is_read_as_it_was_written),
		cmocka_unit_test(each_allocation_may_fail),
		cmocka_unit_test(a_file_is_read_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
