/* Tells which directories are units, when they are whole, and what their tags are called. */
#include "mirror/units.h"

#include "pawl/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static char why[UNIT_WHY_MAX];

static void names_of_units(void **state)
{
	static const struct unit_globs none = {{NULL}, 0};
	static const struct unit_globs some = {{"best*", "runs/*/last"}, 2};
	static const char *const yes[] = {"checkpoint-500", "a/b/checkpoint-1", "checkpoint_3",
		"global_step1200", "step-7", "step_7", "epoch-1", "epoch_1", "epoch=3-step=100",
		"iter_0000100", "ckpt-9"};
	static const char *const no[] = {"checkpoint-", "checkpoint-1x", "checkpoints", "logs",
		"global_step", "step-", "runs", "tmp-checkpoint-500", "checkpoint-500/x"};

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		assert_true(unit_named(yes[i], &none));
	}
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		assert_false(unit_named(no[i], &none));
	}
	assert_true(unit_named("x/best-model", &some));
	assert_true(unit_named("runs/3/last", &some));
	assert_false(unit_named("last", &some));
	assert_true(unit_has_mark(".metadata"));
	assert_true(unit_has_mark("__0_0.distcp"));
	assert_false(unit_has_mark(".distcp"));
	assert_false(unit_has_mark("metadata"));
}

static void check_tag(const char *path, const char *tag)
{
	char got[CKPT_TAG_MAX], back[CKPT_TAG_MAX];

	assert_true(unit_tag(path, got));
	assert_string_equal(got, tag);
	assert_true(unit_path(got, back));
	assert_string_equal(back, path);
}

static void tags_and_paths(void **state)
{
	char tag[CKPT_TAG_MAX], path[CKPT_TAG_MAX];
	char longest[CKPT_TAG_MAX];

	check_tag("checkpoint-500", "checkpoint-500");
	check_tag("run 1/checkpoint-500", "run 1%2Fcheckpoint-500");
	check_tag("100%/step-1", "100%25%2Fstep-1");
	check_tag("a%2Fb", "a%252Fb");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_true(unit_tag(longest, tag));
	longest[4] = '/';
	assert_false(unit_tag(longest, tag)); /* too long once it is coded */
	assert_false(unit_tag("a\nb", tag));
	/* tags of others: what no path gives */
	assert_false(unit_path("a%2fb", path) && strchr(path, '/') != NULL);
	assert_false(unit_path("a%2F..%2Fb", path));
	assert_false(unit_path("%2Fetc", path));
	assert_false(unit_path("a%2F%2Fb", path));
	assert_false(unit_path("..%2Fx", path));
}

static void steps_of_units(void **state)
{
	uint64_t step;

	assert_true(unit_step("a1/checkpoint-0500", &step));
	assert_int_equal(step, 500);
	assert_true(unit_step("epoch=3-step=100", &step));
	assert_int_equal(step, 100);
	assert_false(unit_step("a1/last", &step));
	assert_false(unit_step("x99999999999999999999999", &step));
	assert_true(unit_same_group("run/checkpoint-1", "run/checkpoint-2"));
	assert_true(unit_same_group("checkpoint-1", "latest"));
	assert_false(unit_same_group("run/checkpoint-1", "checkpoint-2"));
	assert_false(unit_same_group("run/checkpoint-1", "rum/checkpoint-2"));
}

static void trainers_are_whole_with_their_state(void **state)
{
	static const char *const half[] = {"config.json", "model.safetensors", "optimizer.pt"};
	static const char *const whole[] = {"optimizer.pt", "trainer_state.json"};
	static const char *const other[] = {"model.safetensors", "random_states_0.pkl"};

	assert_int_equal(unit_kind_of("checkpoint-5", half, 3), UNIT_TRAINER);
	assert_true(unit_missing_mark(UNIT_TRAINER, "checkpoint-5", half, 3, NULL, why));
	assert_non_null(strstr(why, "trainer_state.json"));
	assert_int_equal(unit_kind_of("checkpoint-5", whole, 2), UNIT_TRAINER);
	assert_false(unit_missing_mark(UNIT_TRAINER, "checkpoint-5", whole, 2, NULL, why));
	/* scripts of diffusers use the same names, and have no such file */
	assert_int_equal(unit_kind_of("checkpoint-5", other, 2), UNIT_QUIET);
	assert_false(unit_missing_mark(UNIT_QUIET, "checkpoint-5", other, 2, NULL, why));
}

static void shards_that_an_index_names_are_needed(void **state)
{
	static const char index[] =
		"{\"metadata\": {}, \"weight_map\": {\"a\": \"m-1.safetensors\","
		" \"b\": \"m-2.safetensors\"}}";
	static const char *const one[] = {"m-1.safetensors"};
	static const char *const both[] = {"m-1.safetensors", "m-2.safetensors"};
	static const char *const below[] = {"x/m-1.safetensors", "x/m-2.safetensors"};

	assert_true(unit_is_index("model.safetensors.index.json"));
	assert_false(unit_is_index("index.json"));
	assert_true(unit_missing_shard("m.index.json", index, strlen(index), one, 1, why));
	assert_non_null(strstr(why, "m-2.safetensors"));
	assert_false(unit_missing_shard("m.index.json", index, strlen(index), both, 2, why));
	assert_true(unit_missing_shard("m.index.json", index, strlen(index), below, 2, why));
	assert_false(unit_missing_shard("x/m.index.json", index, strlen(index), below, 2, why));
	assert_true(unit_missing_shard("m.index.json", index, 20, both, 2, why)); /* half written */
	assert_false(unit_missing_shard("m.index.json", "{}", 2, both, 2, why));
}

static void others_are_whole_by_their_own_rules(void **state)
{
	static const char *const dcp[] = {"__0_0.distcp"};
	static const char *const done[] = {".metadata", "__0_0.distcp"};
	static const char *const ranks[] = {"mp_rank_00_model_states.pt"};

	assert_int_equal(unit_kind_of("step-1", dcp, 1), UNIT_DCP);
	assert_true(unit_missing_mark(UNIT_DCP, "step-1", dcp, 1, NULL, why));
	assert_false(unit_missing_mark(UNIT_DCP, "step-1", done, 2, NULL, why));
	assert_int_equal(unit_kind_of("global_step20", ranks, 1), UNIT_DEEPSPEED);
	assert_true(
		unit_missing_mark(UNIT_DEEPSPEED, "global_step20", ranks, 1, "global_step10", why));
	assert_false(unit_missing_mark(UNIT_DEEPSPEED, "global_step20", ranks, 1, "global_step20\n",
		why));
	assert_false(unit_missing_mark(UNIT_DEEPSPEED, "global_step20", ranks, 1, "global_step30",
		why)); /* a later save began only after this one */
	assert_false(unit_missing_mark(UNIT_DEEPSPEED, "global_step20", ranks, 1, NULL, why));
}

static void what_programs_call_best_and_latest(void **state)
{
	static const char state_json[] = "{\"best_model_checkpoint\": \"/a/out/checkpoint-30/\"}";
	static const char none[] = "{\"best_model_checkpoint\": null}";
	char best[CKPT_TAG_MAX];

	assert_true(unit_best(state_json, strlen(state_json), best));
	assert_string_equal(best, "checkpoint-30");
	assert_false(unit_best(none, strlen(none), best));
	assert_false(unit_best("{", 1, best));
	assert_false(unit_best("{\"best_model_checkpoint\": \"///\"}", 32, best));
	assert_true(unit_is_named_by("latest", "global_step10\n", "global_step10"));
	assert_false(unit_is_named_by("latest", "global_step10", "global_step1"));
	assert_true(unit_is_named_by("latest_checkpointed_iteration.txt", "100", "iter_0000100"));
	assert_false(unit_is_named_by("notes.txt", "100", "iter_0000100"));
	assert_false(unit_is_named_by("latest", "", "global_step10"));
}

static void files_that_no_tag_can_have(void **state)
{
	assert_null(unit_bad_file("a/b/model.safetensors"));
	assert_null(unit_bad_file(".metadata"));
	assert_null(unit_bad_file("gr\xc3\xb6\xc3\x9f"
				  "e"));
	assert_non_null(unit_bad_file("a\xff"));
	assert_non_null(unit_bad_file("a\nb"));
	assert_non_null(unit_bad_file(".pawl/manifest"));
	assert_non_null(unit_bad_file("1/2/3/4/5/6/7/8/9/10"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_units),
		cmocka_unit_test(tags_and_paths),
		cmocka_unit_test(steps_of_units),
		cmocka_unit_test(trainers_are_whole_with_their_state),
		cmocka_unit_test(shards_that_an_index_names_are_needed),
		cmocka_unit_test(others_are_whole_by_their_own_rules),
		cmocka_unit_test(what_programs_call_best_and_latest),
		cmocka_unit_test(files_that_no_tag_can_have),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
