/* Worker and agent together: the last committed save survives the worker, also while another slot
 * of the memory tier is in use and the next save is in progress. Only then is a third slot used,
 * and only if memory has room for it. */
#include "test_session_agent.h"

#include <dirent.h>
#include <sys/stat.h>

#define STATE_BYTES (5u << 20) /* bytes of a save */
#define ARENA_BYTES (6u << 20) /* bytes of a save's arena, with the pickle, in pages of 2 MiB */
#define LARGE_BYTES (7u << 20) /* bytes of a larger save, whose arena takes 8 MiB */
#define READY_FD    3          /* descriptor on which a worker reports that it may be killed */

/* Saves len_bytes that depend on the step, and waits until they are committed. */
static void save(struct pawl_ckpt *ckpt, uint64_t step, uint32_t len_bytes)
{
	uint8_t *state = malloc(len_bytes);
	struct pawl_ckpt_span span = {.addr = (uintptr_t)state, .size_bytes = len_bytes};
	struct pawl_ckpt_part part = {.name = "model",
		.pickle = "p",
		.pickle_bytes = 1,
		.spans = &span,
		.spans_n = 1};
	struct pawl_err err = {0};
	uint64_t id;

	assert_non_null(state);
	memset(state, (int)step, len_bytes);
	assert_int_equal(pawl_ckpt_save(ckpt, step, &part, 1, false, &id, &err), 0);
	if (IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, &err)) != 0) {
		fail_msg("step %llu: %s", (unsigned long long)step, err.msg);
	}
	free(state);
}

/* Restores the newest step, which must be this one, from memory. The caller closes the result:
 * until then its slot is in use. */
static struct pawl_restore *restore(struct pawl_ckpt *ckpt, uint64_t step)
{
	struct pawl_restore *restore;
	struct pawl_restore_info info;
	struct pawl_err err;
	enum pawl_verdict all;
	uint64_t len_bytes;
	uint8_t *state;

	assert_int_equal(IN_TIME(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, &err)), 0);
	pawl_restore_info(restore, &info);
	assert_int_equal(info.step, step);
	assert_true(info.memory);
	assert_int_equal(pawl_restore_read(restore, 0, &err), 0);
	assert_int_equal(
		IN_TIME(pawl_restore_vote(restore, PAWL_VERDICT_GO, "", WAIT_MS, &all, &err)), 0);
	len_bytes = pawl_restore_storage_bytes(restore, 0, 0);
	state = malloc(len_bytes);
	assert_non_null(state);
	assert_int_equal(pawl_restore_copy(restore,
				 &(struct pawl_restore_copy){0, 0, 0, (uintptr_t)state, len_bytes},
				 1, &err),
		0);
	for (uint64_t i = 0; i < len_bytes; i++) {
		assert_int_equal(state[i], step);
	}
	free(state);
	return restore;
}

/* Commits steps 1 and 2, with step 1 in use, and is granted a slot for step 3, which never
 * comes. */
static int run_worker(const char *socket_path, const char *root_path, const char *memory_bytes)
{
	struct pawl_ckpt_pending pending[PAWL_CKPT_PENDING_MAX];
	struct pawl_ckpt *ckpt;
	struct pawl_err err;
	uint32_t n;

	within_be_child();
	snprintf(sock, sizeof(sock), "%s", socket_path);
	snprintf(root, sizeof(root), "%s", root_path);
	ckpt = join(0, 1, strtoull(memory_bytes, NULL, 10));
	save(ckpt, 1, STATE_BYTES);
	restore(ckpt, 1);
	save(ckpt, 2, STATE_BYTES);
	pawl_ckpt_announce(ckpt, 3);
	/* the agent has received the request */
	assert_int_equal(pawl_ckpt_pending(ckpt, pending, &n, &err), 0);
	assert_int_equal(write(READY_FD, "", 1), 1);
	pause();
	return 1;
}

/* Runs the worker, kills it where it waits, and expects step to be the newest then. */
static void kill_worker(uint64_t memory_bytes, uint64_t step)
{
	char memory[32];
	struct pawl_ckpt *ckpt;
	int ready[2];
	char byte;
	pid_t pid;

	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)memory_bytes);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(ready[0]);
		dup2(ready[1], READY_FD);
		execl("/proc/self/exe", "worker", sock, root, memory, NULL);
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1) {
		fail_msg("the worker ends with %d", WITHIN_CHILD(pid));
	}
	close(ready[0]);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	ckpt = join(0, 1, memory_bytes);
	pawl_restore_close(restore(ckpt, step));
	assert_int_equal(IN_TIME(pawl_ckpt_close(ckpt, WAIT_MS, NULL)), 0);
}

static void what_was_committed_last_outlives_the_worker(void **state)
{
	kill_worker(3 * ARENA_BYTES, 2);
}

/* Memory for two slots keeps the one in use, as docs/limits.md says. */
static void memory_for_two_keeps_the_one_in_use(void **state)
{
	kill_worker(2 * ARENA_BYTES, 1);
}

/* Counts the agent's arenas that have pages. */
static uint32_t count_arenas(void)
{
	char path[320];
	DIR *fds;
	uint32_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)agent_pid);
	fds = opendir(path);
	assert_non_null(fds);
	for (struct dirent *entry; (entry = readdir(fds));) {
		char target[64] = "";
		struct stat st;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)agent_pid, entry->d_name);
		if (readlink(path, target, sizeof(target) - 1) > 0 &&
			strstr(target, "pawl-arena")) {
			assert_int_equal(stat(path, &st), 0);
			n += st.st_blocks > 0;
		}
	}
	closedir(fds);
	return n;
}

static void the_third_slot_is_taken_when_it_must_be(void **state)
{
	struct pawl_ckpt *ckpt = join(0, 1, 3 * ARENA_BYTES);
	struct pawl_restore *used;
	uint64_t step;

	for (step = 1; step < 5; step++) {
		save(ckpt, step, STATE_BYTES);
	}
	assert_int_equal(count_arenas(), 2);
	used = restore(ckpt, 4);
	for (; step < 10; step++) {
		save(ckpt, step, STATE_BYTES);
	}
	assert_int_equal(count_arenas(), 3);
	pawl_restore_close(used);
	for (; step < 13; step++) { /* Now there is room for two of them only. */
		save(ckpt, step, LARGE_BYTES);
	}
	assert_int_equal(count_arenas(), 2);
	pawl_restore_close(restore(ckpt, 12));
	for (; step < 16; step++) {
		save(ckpt, step, STATE_BYTES);
	}
	assert_int_equal(count_arenas(), 2);
	used = restore(ckpt, 15);
	for (; step < 20; step++) {
		save(ckpt, step, STATE_BYTES);
	}
	pawl_restore_close(used);
	pawl_restore_close(restore(ckpt, 19));
	assert_int_equal(IN_TIME(pawl_ckpt_close(ckpt, WAIT_MS, NULL)), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_committed_last_outlives_the_worker, setup,
			teardown),
		cmocka_unit_test_setup_teardown(memory_for_two_keeps_the_one_in_use, setup,
			teardown),
		cmocka_unit_test_setup_teardown(the_third_slot_is_taken_when_it_must_be, setup,
			teardown),
	};

	if (argc == 4) {
		return run_worker(argv[1], argv[2], argv[3]);
	}
	return argc > 1 ? run_agent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
