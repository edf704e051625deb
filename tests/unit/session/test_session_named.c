/* Worker and agent together, saving by tag: files of any kind and size, in pieces, added to, given
 * up, damaged; and the agent's death in the middle. */
#include "ckpt/format/pieces.h"
#include "test_session_tags.h"

#include <fcntl.h>

#define NAME_MAX_BYTES 127

/* ---- files ---- */

static void files_have_any_size(void **unused)
{
	static const size_t sizes[] = {0, 1, 4095, 4096, 4097, CKPT_CHUNK - 1, CKPT_CHUNK,
		CKPT_CHUNK + 1, 3 * CKPT_CHUNK};
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	struct pawl_restore *restore;
	struct pawl_err err;
	char name[32];
	uint64_t id = begin(ckpt, "sizes");

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(name, sizeof(name), "%zu.bin", sizes[i]);
		must_add(ckpt, "sizes", name, sizes[i]);
	}
	must_commit(ckpt);
	for (int durable = 0; durable < 2; durable++) {
		must_wait(ckpt, id, durable ? PAWL_CKPT_DURABLE : PAWL_CKPT_COMMITTED);
		if (durable) {
			assert_int_equal(pawl_restore_open_tag(root, "sizes", &restore, &err), 0);
		} else {
			restore = must_find(ckpt, "sizes");
		}
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			snprintf(name, sizeof(name), "%zu.bin", sizes[i]);
			expect_file(restore, name, sizes[i]);
		}
		pawl_restore_close(restore);
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char path[PATH_MAX];
		struct stat st;

		snprintf(path, sizeof(path), "%s/sizes/%zu.bin", root, sizes[i]);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_size, sizes[i]);
	}
	leave(ckpt);
}

static void arena_grows_and_keeps_what_it_holds(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	struct pawl_restore *restore;
	char name[16];

	/* The second round knows the size of the save. */
	for (int round = 0; round < 2; round++) {
		char tag[16];
		uint64_t id;

		snprintf(tag, sizeof(tag), "grow%d", round);
		id = begin(ckpt, tag);
		for (size_t i = 0; i < 9; i++) {
			snprintf(name, sizeof(name), "part%zu", i);
			must_add(ckpt, tag, name, (100000u << i) + i);
		}
		must_commit(ckpt);
		must_wait(ckpt, id, PAWL_CKPT_COMMITTED);
		restore = must_find(ckpt, tag);
		for (size_t i = 0; i < 9; i++) {
			snprintf(name, sizeof(name), "part%zu", i);
			expect_file(restore, name, (100000u << i) + i);
		}
		pawl_restore_close(restore);
		must_wait(ckpt, id, PAWL_CKPT_DURABLE);
	}
	leave(ckpt);
}

/* Memory runs out in the middle of a tag: the files that were staged, those that are written, and
 * the next tag are all complete. */
static void memory_ends_in_the_middle(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, MEMORY, NULL);
	struct pawl_restore *restore;
	struct pawl_restore_info info;
	uint64_t id = begin(ckpt, "large7");

	must_add(ckpt, "large7", "staged", 1000001);
	must_add(ckpt, "large7", "empty", 0);
	must_add(ckpt, "large7", "written", LARGE + 1);
	must_add(ckpt, "large7", "also written", 4097);
	must_commit(ckpt);
	for (int i = 0; i < 3; i++) { /* The tag is found at once, when durable, and by its name. */
		restore = must_find(ckpt, i < 2 ? NULL : "large7");
		pawl_restore_info(restore, &info);
		assert_string_equal(info.tag, "large7");
		assert_false(info.memory);
		assert_int_equal(info.parts_n, 4);
		expect_file(restore, "staged", 1000001);
		expect_file(restore, "empty", 0);
		expect_file(restore, "written", LARGE + 1);
		expect_file(restore, "also written", 4097);
		pawl_restore_close(restore);
		must_wait(ckpt, id, PAWL_CKPT_DURABLE);
	}
	id = save(ckpt, "next8", "a");
	must_wait(ckpt, id, PAWL_CKPT_DURABLE);
	expect(ckpt, NULL, false, FILES("a"));
	must_wait(ckpt, save(ckpt, "large7", "b"), PAWL_CKPT_DURABLE);
	restore = must_find(ckpt, "large7");
	expect_file(restore, "staged", 1000001);
	expect_file(restore, "b", 5000);
	pawl_restore_close(restore);
	leave(ckpt);
}

static void all_at_once_or_in_pieces(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	uint8_t *bytes = content("once", "a", 5000);
	struct pawl_ckpt_span span = {(uintptr_t)bytes, 5000, 0, 0};
	const struct pawl_ckpt_part part = {.name = "a", .raw = true, .spans = &span, .spans_n = 1};
	struct pawl_err err;
	uint64_t id;

	assert_int_equal(pawl_ckpt_save(ckpt, 1, &part, 1, 0, &id, &err), PAWL_EINVAL);
	assert_int_equal(pawl_ckpt_save_tag(ckpt, "once", 1, 0, &part, 1, 0, &id, &err), 0);
	must_wait(ckpt, id, PAWL_CKPT_COMMITTED);
	expect(ckpt, "once", true, FILES("a"));
	begin(ckpt, "pieces");
	assert_int_equal(pawl_ckpt_begin(ckpt, "x", 1, 0, &id, &err), PAWL_EBUSY);
	assert_non_null(strstr(err.msg, "pieces"));
	assert_int_equal(pawl_ckpt_save_tag(ckpt, "x", 1, 0, &part, 1, 0, &id, &err), PAWL_EBUSY);
	must_add(ckpt, "pieces", "a", 5000);
	assert_int_equal(add(ckpt, "pieces", "a", 1, &err), PAWL_EEXIST);
	must_add(ckpt, "pieces", "b", 5000);
	must_commit(ckpt);
	expect(ckpt, "pieces", true, FILES("a", "b"));
	assert_int_equal(add(ckpt, "pieces", "c", 1, &err), PAWL_EINVAL);
	assert_int_equal(pawl_ckpt_commit(ckpt, &err), PAWL_EINVAL);
	leave(ckpt);
	free(bytes);
}

static void tags_have_any_name(void **unused)
{
	static const char *const tags[] = {"epoch=1-step=20.ckpt", "a b", "\xc3\xbc", "17", "=",
		"ends.new", "ends.old", "ends.new.new", "complete.txt", "global_step007", "-",
		"%s%n", "*"};
	static const char *const bad[] = {"", ".hidden", "a/b", "new\nline", ".", ".."};
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	char longest[NAME_MAX_BYTES + 2];
	struct pawl_err err;
	uint64_t id;

	memset(longest, 'x', sizeof(longest));
	longest[NAME_MAX_BYTES] = '\0';
	must_wait(ckpt, save(ckpt, longest, "a"), PAWL_CKPT_DURABLE);
	expect(ckpt, longest, true, FILES("a"));
	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		must_wait(ckpt, save(ckpt, tags[i], "a"), PAWL_CKPT_DURABLE);
		expect_newest(ckpt, tags[i]);
	}
	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		expect(ckpt, tags[i], i + 2 >= sizeof(tags) / sizeof(tags[0]), FILES("a"));
	}
	longest[NAME_MAX_BYTES] = 'x';
	longest[NAME_MAX_BYTES + 1] = '\0';
	assert_int_equal(pawl_ckpt_begin(ckpt, longest, 1, 0, &id, &err), PAWL_EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(pawl_ckpt_begin(ckpt, bad[i], 1, 0, &id, &err), PAWL_EINVAL);
	}
	leave(ckpt);
}

/* ---- added to ---- */

static void a_tag_is_added_to(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	uint64_t first, second;

	first = save(ckpt, "t", "a");
	expect(ckpt, "t", true, FILES("a"));
	second = save(ckpt, "t", "in/b");
	expect(ckpt, "t", false, FILES("a", "in/b")); /* waits until both are in the store */
	assert_int_equal(level_of(ckpt, first), PAWL_CKPT_DURABLE);
	assert_int_equal(level_of(ckpt, second), PAWL_CKPT_DURABLE);
	for (int i = 0; i < 5; i++) {
		save(ckpt, "other", "x");
		save(ckpt, "t", i % 2 ? "a" : "c");
	}
	expect(ckpt, NULL, false, FILES("a", "c", "in/b"));
	leave(ckpt);
}

static void what_adds_to_what_failed_fails(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	char path[PATH_MAX];
	uint64_t first, second;

	snprintf(path, sizeof(path), "%s/t", root);
	assert_int_equal(mkdir(path, 0777), 0);
	snprintf(path, sizeof(path), "%s/t/a", root);
	assert_int_equal(mkdir(path, 0777), 0);
	first = save(ckpt, "t", "a");
	must_wait(ckpt, first, PAWL_CKPT_COMMITTED);
	second = begin(ckpt, "t");
	if (add(ckpt, "t", "b", 5000, NULL) == 0) { /* the first may have failed by now */
		pawl_ckpt_commit(ckpt, NULL);
	}
	must_fail(ckpt, first, PAWL_EEXIST, "move it away");
	must_fail(ckpt, second, PAWL_EEXIST, "move it away");
	expect_none(ckpt, NULL);
	for (int i = 0; i < 4; i++) { /* Nobody waits for it. */
		must_wait(ckpt, save(ckpt, "u", "a"), PAWL_CKPT_DURABLE);
	}
	assert_int_equal(rmdir(path), 0);
	must_wait(ckpt, save(ckpt, "t", "a"), PAWL_CKPT_DURABLE);
	leave(ckpt);
}

static void what_others_put_into_a_tag_stays(void **unused)
{
	static const char *const places[] = {".", "in", "by"};
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	char path[PATH_MAX];
	int fd;

	for (int i = 0; i < 3; i++) {
		must_wait(ckpt, save(ckpt, "t", "in/a"), PAWL_CKPT_DURABLE);
		snprintf(path, sizeof(path), "%s/t/%s", root, places[i]);
		mkdir(path, 0777);
		snprintf(path, sizeof(path), "%s/t/%s/notes", root, places[i]);
		fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		close(fd);
	}
	must_wait(ckpt, save(ckpt, "t", "in/a"), PAWL_CKPT_DURABLE);
	assert_true(is_there("t/notes") && is_there("t/in/notes") && is_there("t/by/notes"));
	expect(ckpt, "t", false, FILES("in/a"));
	leave(ckpt);
}

/* ---- given up ---- */

static void what_is_dropped_never_was(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	uint64_t id = begin(ckpt, "t");

	pawl_ckpt_drop(ckpt, "before its slot was requested");
	must_fail(ckpt, id, PAWL_ECANCELED, "before its slot was requested");
	id = begin(ckpt, "t");
	must_add(ckpt, "t", "a", 5000);
	pawl_ckpt_drop(ckpt, "changed my mind");
	must_fail(ckpt, id, PAWL_ECANCELED, "changed my mind");
	pawl_ckpt_drop(ckpt, "nothing there");
	expect_none(ckpt, NULL);
	id = save(ckpt, "t", "b");
	expect(ckpt, "t", true, FILES("b"));
	begin(ckpt, "u");
	must_add(ckpt, "u", "a", 5000);
	/* Waits for t only: u is not complete. */
	assert_int_equal(pawl_ckpt_flush(ckpt, WAIT_MS, NULL), 0);
	assert_int_equal(level_of(ckpt, id), PAWL_CKPT_DURABLE);
	leave(ckpt); /* u goes with it */
	ckpt = join_named(0, 1, 0, NULL);
	expect_none(ckpt, "u");
	expect_newest(ckpt, "t");
	leave(ckpt);
}

static void damage_in_memory_is_found_once(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	struct pawl_restore *restore;

	must_wait(ckpt, save(ckpt, "old1", "a"), PAWL_CKPT_DURABLE);
	must_wait(ckpt, save(ckpt, "new2", "a"), PAWL_CKPT_COMMITTED);
	restore = must_find(ckpt, NULL);
	pawl_restore_mark_damaged(restore, "bad memory");
	pawl_restore_close(restore);
	expect_none(ckpt, "new2");
	expect(ckpt, NULL, true, FILES("a"));
	restore = must_find(ckpt, "old1");
	pawl_restore_mark_damaged(restore, "bad memory");
	pawl_restore_close(restore);
	expect(ckpt, "old1", false, FILES("a")); /* the store's copy is not damaged */
	restore = must_find(ckpt, "old1");
	pawl_restore_mark_damaged(restore, "bad disk");
	pawl_restore_close(restore);
	expect_none(ckpt, NULL);
	assert_true(is_there(".bad/old1.1/why.txt"));
	must_wait(ckpt, save(ckpt, "old1", "b"), PAWL_CKPT_DURABLE);
	leave(ckpt);
}

/* The newest is damaged in memory and durable: its copy in the store comes first, then older tags
 * in memory. Opening a tag by its name does not change that. */
static void damaged_newest_comes_from_the_store(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	struct pawl_restore *restore;

	must_wait(ckpt, save(ckpt, "first1", "a"), PAWL_CKPT_DURABLE);
	must_wait(ckpt, save(ckpt, "old2", "a"), PAWL_CKPT_COMMITTED);
	must_wait(ckpt, save(ckpt, "new3", "a"), PAWL_CKPT_DURABLE);
	restore = must_find(ckpt, NULL);
	pawl_restore_mark_damaged(restore, "bad memory");
	pawl_restore_close(restore);
	expect(ckpt, NULL, false, FILES("a"));
	expect_newest(ckpt, "new3");
	restore = must_find(ckpt, "new3");
	pawl_restore_mark_damaged(restore, "bad disk");
	pawl_restore_close(restore);
	expect(ckpt, NULL, true, FILES("a"));
	expect_newest(ckpt, "old2");
	leave(ckpt);
}

/* Restarts the agent. When this returns, the session knows of it, and that save id has failed. */
static void restart_agent(struct pawl_ckpt *ckpt, uint64_t id)
{
	kill_agent();
	start_agent();
	await_agent(sock);
	while (level_of(ckpt, id) != PAWL_CKPT_FAILED) {
	}
}

static void an_agent_dies_in_the_middle(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	struct pawl_err err;
	uint64_t id;

	must_wait(ckpt, save(ckpt, "old", "a"), PAWL_CKPT_DURABLE);
	for (int i = 0; i < 4; i++) {
		id = begin(ckpt, "t");
		if (i > 0) {
			must_add(ckpt, "t", "a", 5000);
		}
		restart_agent(ckpt, id);
		if (i == 2) { /* The session has found the new agent meanwhile. */
			expect_newest(ckpt, "old");
		}
		assert_int_equal(i % 2 ? pawl_ckpt_commit(ckpt, &err)
				       : add(ckpt, "t", "b", 5000, &err),
			PAWL_EPEER);
		must_fail(ckpt, id, PAWL_EPEER, "agent is gone");
	}
	expect_newest(ckpt, "old");
	expect_none(ckpt, "t");
	must_wait(ckpt, save(ckpt, "t", "a"), PAWL_CKPT_DURABLE);
	expect(ckpt, "t", true, FILES("a"));
	leave(ckpt);
}

static void a_fork_is_dead(void **unused)
{
	struct pawl_ckpt *ckpt = join_named(0, 1, 0, NULL);
	int status;
	pid_t child;

	begin(ckpt, "t");
	must_add(ckpt, "t", "a", 5000);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct pawl_restore *restore;
		struct pawl_err err;
		uint64_t id;
		bool dead = add(ckpt, "t", "b", 1, &err) == PAWL_EPEER &&
			pawl_ckpt_commit(ckpt, &err) == PAWL_EPEER &&
			pawl_ckpt_begin(ckpt, "u", 1, 0, &id, &err) == PAWL_EPEER &&
			pawl_ckpt_find(ckpt, NULL, 100, &restore, &err) == PAWL_EPEER &&
			pawl_ckpt_pin(ckpt, "t", true, &err) == PAWL_EPEER &&
			strstr(err.msg, "this process is a fork of the one (pid ");

		pawl_ckpt_drop(ckpt, "fork");
		pawl_ckpt_close(ckpt, 100, &err);
		_exit(dead ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	must_commit(ckpt);
	expect(ckpt, "t", true, FILES("a"));
	leave(ckpt);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(files_have_any_size, setup, teardown),
		cmocka_unit_test_setup_teardown(arena_grows_and_keeps_what_it_holds, setup,
			teardown),
		cmocka_unit_test_setup_teardown(memory_ends_in_the_middle, setup, teardown),
		cmocka_unit_test_setup_teardown(all_at_once_or_in_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(tags_have_any_name, setup, teardown),
		cmocka_unit_test_setup_teardown(a_tag_is_added_to, setup, teardown),
		cmocka_unit_test_setup_teardown(what_adds_to_what_failed_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(what_others_put_into_a_tag_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_dropped_never_was, setup, teardown),
		cmocka_unit_test_setup_teardown(damage_in_memory_is_found_once, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged_newest_comes_from_the_store, setup,
			teardown),
		cmocka_unit_test_setup_teardown(an_agent_dies_in_the_middle, setup, teardown),
		cmocka_unit_test_setup_teardown(a_fork_is_dead, setup, teardown),
	};

	return argc > 1 ? run_agent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
