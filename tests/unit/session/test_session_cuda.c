/* Saves of tensors on CUDA devices, worker and agent together, by a driver made of host memory
 * (tests/lib/fakecuda.h): what is restored, which proof a save reports, and what happens when
 * device or driver fail. */
#include "../lib/fakecuda.h"
#include "base/fault.h"
#include "test_session_agent.h"

#include <errno.h>

#define HOST_BYTES   (3u << 20) /* several chunks */
#define DEVICE_BYTES ((5u << 20) + 12345)
#define SMALL_BYTES  1000u

enum storage { HOST, DEVICE_0, DEVICE_1, SMALL_LATE, SMALL_NOW, STORAGES };

/* A partition with a storage of each kind. */
struct state {
	struct pawl_ckpt_span spans[STORAGES];
	uint8_t *memory[STORAGES]; /* memory of the spans */
};

static const char pickle[] = "a pickle";

static void open_state(struct state *state)
{
	static const struct pawl_ckpt_span spans[STORAGES] = {
		[HOST] = {.size_bytes = HOST_BYTES, .groups = 1},
		[DEVICE_0] = {.size_bytes = DEVICE_BYTES, .groups = 1, .device = 1},
		[DEVICE_1] = {.size_bytes = DEVICE_BYTES, .groups = 2, .device = 2},
		[SMALL_LATE] = {.size_bytes = SMALL_BYTES, .groups = 2, .device = 1},
		[SMALL_NOW] = {.size_bytes = SMALL_BYTES},
	};

	for (int s = 0; s < STORAGES; s++) {
		state->memory[s] = aligned_alloc(4096, (spans[s].size_bytes | 4095) + 1);
		state->spans[s] = spans[s];
		state->spans[s].addr = (uintptr_t)state->memory[s];
	}
}

static void close_state(struct state *state)
{
	for (int s = 0; s < STORAGES; s++) {
		free(state->memory[s]);
	}
}

static void fill_one(struct state *state, enum storage s, uint64_t step)
{
	for (size_t i = 0; i < state->spans[s].size_bytes; i++) {
		state->memory[s][i] = (uint8_t)(i * 7 + step * 13 + (i >> 12) + s * 31);
	}
}

static void fill(struct state *state, uint64_t step)
{
	for (enum storage s = 0; s < STORAGES; s++) {
		fill_one(state, s, step);
	}
}

/* Saves storages [0, n). Returns the save's id. */
static uint64_t save(struct pawl_ckpt *ckpt, struct state *state, uint64_t step, uint32_t n,
	bool watch)
{
	struct pawl_ckpt_part part = {.name = "model",
		.pickle = pickle,
		.pickle_bytes = sizeof(pickle),
		.spans = state->spans,
		.spans_n = n};
	struct pawl_err err;
	uint64_t id;

	if (pawl_ckpt_save(ckpt, step, &part, 1, watch, &id, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	return id;
}

static struct pawl_ckpt_status status_of(struct pawl_ckpt *ckpt, uint64_t id)
{
	struct pawl_ckpt_status status;

	assert_int_equal(pawl_ckpt_status(ckpt, id, &status, NULL), 0);
	return status;
}

static void await(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level)
{
	struct pawl_err err;

	if (IN_TIME(pawl_ckpt_wait(ckpt, id, level, WAIT_MS, &err)) != 0) {
		fail_msg("%s", err.msg);
	}
}

/* Restores the newest checkpoint and compares it with what fill made for step. */
static void expect(struct pawl_ckpt *ckpt, uint64_t step, bool memory)
{
	struct pawl_restore_copy copies[STORAGES];
	struct pawl_restore *restore;
	struct pawl_restore_info info;
	struct pawl_err err = {0};
	enum pawl_verdict all;
	struct state want, got;

	if (IN_TIME(pawl_ckpt_restore(ckpt, false, 0, WAIT_MS, &restore, &err)) != 0) {
		fail_msg("restore: %s", err.msg);
	}
	open_state(&want);
	open_state(&got);
	fill(&want, step);
	fill(&got, step + 1);
	pawl_restore_info(restore, &info);
	assert_int_equal(info.step, step);
	assert_int_equal(info.memory, memory);
	for (int s = 0; s < STORAGES; s++) {
		copies[s] = (struct pawl_restore_copy){0, (uint64_t)s, 0, (uintptr_t)got.memory[s],
			got.spans[s].size_bytes};
	}
	assert_int_equal(pawl_restore_read(restore, 0, &err), 0);
	assert_int_equal(
		IN_TIME(pawl_restore_vote(restore, PAWL_VERDICT_GO, "", WAIT_MS, &all, &err)), 0);
	assert_int_equal(pawl_restore_copy(restore, copies, STORAGES, &err), 0);
	for (int s = 0; s < STORAGES; s++) {
		assert_memory_equal(got.memory[s], want.memory[s], want.spans[s].size_bytes);
	}
	pawl_restore_close(restore);
	close_state(&want);
	close_state(&got);
}

/* Queues work on both devices, or ends it: copies that wait for their fences are not made before it
 * is done. */
static void keep_devices_busy(bool busy)
{
	fakecuda_busy(0, busy);
	fakecuda_busy(1, busy);
}

/* Saves step while the devices still compute it; the next step changes everything behind the
 * fences. */
static uint64_t save_late(struct pawl_ckpt *ckpt, struct state *state, uint64_t step)
{
	uint64_t id;

	fill(state, step);
	memset(state->memory[DEVICE_1], 0, DEVICE_BYTES);
	keep_devices_busy(true);
	id = save(ckpt, state, step, STORAGES, true);
	assert_int_equal(status_of(ckpt, id).level, PAWL_CKPT_STAGING);
	assert_int_equal(status_of(ckpt, id).proof, PAWL_CKPT_FENCED);
	fill_one(state, DEVICE_1, step); /* the rest of the work */
	keep_devices_busy(false);
	pawl_ckpt_fence(ckpt, 1);
	memset(state->memory[HOST], 0, HOST_BYTES);
	memset(state->memory[DEVICE_0], 0, DEVICE_BYTES);
	pawl_ckpt_fence(ckpt, 2);
	memset(state->memory[DEVICE_1], 0, DEVICE_BYTES);
	memset(state->memory[SMALL_LATE], 0, SMALL_BYTES);
	return id;
}

static void saves_come_back(bool watch)
{
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	struct state state;
	struct pawl_err err;
	uint64_t id = 0;

	open_state(&state);
	for (uint64_t step = 1; step <= 3; step++) {
		if (watch) {
			id = save_late(ckpt, &state, step);
		} else {
			fill(&state, step);
			id = save(ckpt, &state, step, STORAGES, false);
			assert_int_equal(status_of(ckpt, id).proof, PAWL_CKPT_COPIED);
			fill(&state, step + 1);
		}
		await(ckpt, id, PAWL_CKPT_COMMITTED);
		expect(ckpt, step, true);
	}
	await(ckpt, id, PAWL_CKPT_DURABLE);
	kill_agent();
	start_agent();
	pawl_ckpt_close(ckpt, 0, &err);
	assert_int_equal(fakecuda_live_objects(), 0);
	ckpt = join(0, 1, 0);
	expect(ckpt, 3, false);
	pawl_ckpt_close(ckpt, 0, &err);
	close_state(&state);
}

static void late_copies_come_back(void **unused)
{
	saves_come_back(true);
}

static void copies_before_return_come_back(void **unused)
{
	saves_come_back(false);
}

/* Devices need no help of the kernel: their memory is copied late even if the host's is not. */
static void late_copies_need_no_kernel(void **unused)
{
	struct pawl_ckpt *ckpt;
	struct state state;
	const char *why;
	uint64_t id;

	setenv("PAWL_NO_UFFD", "1", 1);
	ckpt = join(0, 1, 0);
	unsetenv("PAWL_NO_UFFD");
	assert_false(pawl_ckpt_can_watch(ckpt, &why));
	open_state(&state);
	fill(&state, 1);
	keep_devices_busy(true);
	id = save(ckpt, &state, 1, STORAGES, true);
	memset(state.memory[HOST], 0, HOST_BYTES); /* copied */
	keep_devices_busy(false);
	await(ckpt, id, PAWL_CKPT_COMMITTED);
	expect(ckpt, 1, true);
	await(ckpt, save_late(ckpt, &state, 2), PAWL_CKPT_COMMITTED);
	expect(ckpt, 2, true);
	pawl_ckpt_close(ckpt, WAIT_MS, NULL);
	close_state(&state);
}

/* The first save fits the budget, the second does not and is written by the worker itself. */
static void streamed_saves_come_back(void **unused)
{
	struct pawl_ckpt *ckpt = join(0, 1, 2 * (12u << 20));
	struct state state;
	uint64_t id;

	open_state(&state);
	state.spans[SMALL_LATE].groups = 1;
	fill(&state, 1);
	id = save(ckpt, &state, 1, DEVICE_1, true);
	pawl_ckpt_fence(ckpt, 1);
	assert_int_equal(status_of(ckpt, id).proof, PAWL_CKPT_FENCED);
	await(ckpt, id, PAWL_CKPT_COMMITTED);
	for (uint64_t step = 2; step <= 3; step++) {
		fill(&state, step);
		id = save(ckpt, &state, step, STORAGES, true);
		fill(&state, step + 1);
		assert_int_equal(status_of(ckpt, id).proof, PAWL_CKPT_COPIED);
		await(ckpt, id, PAWL_CKPT_DURABLE);
		expect(ckpt, step, false);
	}
	pawl_ckpt_close(ckpt, WAIT_MS, NULL);
	assert_int_equal(fakecuda_live_objects(), 0);
	close_state(&state);
}

/* Expects the save to have failed with code, and its error to contain why. */
static void expect_failed(struct pawl_ckpt *ckpt, uint64_t id, int code, const char *why)
{
	struct pawl_ckpt_status status = status_of(ckpt, id);

	assert_int_equal(status.level, PAWL_CKPT_FAILED);
	assert_int_equal(status.code, code);
	if (strstr(status.why, why) == NULL) {
		fail_msg("%s: not in: %s", why, status.why);
	}
}

static void a_device_that_is_not_there(void **unused)
{
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	struct pawl_ckpt_part part = {.name = "model", .pickle = pickle, .pickle_bytes = 1};
	struct state state;
	struct pawl_err err;
	uint64_t id;

	open_state(&state);
	fill(&state, 1);
	part.spans = state.spans;
	part.spans_n = STORAGES;
	for (int i = 0; i < 2; i++) {
		state.spans[DEVICE_1].device =
			(uint64_t[]){65, (1ull << 32) + 1}[i]; /* no machine has such a device */
		assert_int_equal(pawl_ckpt_save(ckpt, 1, &part, 1, true, &id, &err), PAWL_EINVAL);
		assert_non_null(strstr(err.msg, "save step 1: model: device "));
	}
	state.spans[DEVICE_1].device = FAKECUDA_DEVICES + 1; /* this machine does not have it */
	id = save(ckpt, &state, 1, STORAGES, true);
	expect_failed(ckpt, id, PAWL_EINVAL, "CUDA: prepare a device: ");
	state.spans[DEVICE_1].device = FAKECUDA_DEVICES;
	fill(&state, 2);
	await(ckpt, save(ckpt, &state, 2, STORAGES, true), PAWL_CKPT_COMMITTED);
	expect(ckpt, 2, true);
	pawl_ckpt_close(ckpt, WAIT_MS, NULL);
	close_state(&state);
}

static void no_driver(uint64_t memory_bytes)
{
	struct pawl_ckpt *ckpt = join(0, 1, memory_bytes);
	struct state state;
	uint64_t id;

	open_state(&state);
	fill(&state, 1);
	fault_arm("cuda.open", 1, ENOENT, true);
	id = save(ckpt, &state, 1, STORAGES, true);
	expect_failed(ckpt, id, PAWL_ENOTSUP, "CUDA: libcuda.so.1 cannot be loaded");
	id = save(ckpt, &state, 2, DEVICE_0, true); /* host memory alone */
	await(ckpt, id, PAWL_CKPT_COMMITTED);
	assert_int_not_equal(status_of(ckpt, id).proof, PAWL_CKPT_FENCED);
	fault_disarm();
	await(ckpt, save(ckpt, &state, 3, STORAGES, true), PAWL_CKPT_DURABLE);
	pawl_ckpt_close(ckpt, WAIT_MS, NULL);
	close_state(&state);
}

static void without_a_driver_only_the_host_is_saved(void **unused)
{
	no_driver(0);
}

static void without_a_driver_only_the_host_is_streamed(void **unused)
{
	no_driver(1);
}

static void a_driver_that_fails_in_a_late_copy(void **unused)
{
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	struct pawl_ckpt_status status;
	struct state state;
	uint64_t id;

	open_state(&state);
	/* The worker has its buffers from here on. */
	await(ckpt, save_late(ckpt, &state, 1), PAWL_CKPT_COMMITTED);
	fill(&state, 2);
	keep_devices_busy(true);
	id = save(ckpt, &state, 2, STORAGES, true);
	fakecuda_fail(1);
	keep_devices_busy(false);
	pawl_ckpt_fence(ckpt, 1 | 2); /* returns all the same */
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, NULL)),
		PAWL_ECANCELED);
	assert_int_equal(fakecuda_fail(0) > 0, true);
	status = status_of(ckpt, id);
	expect_failed(ckpt, id, PAWL_EIO, "of model could not be copied from its CUDA device");
	assert_int_equal(status.part, 0);
	assert_in_range(status.storage, DEVICE_0, SMALL_LATE);
	expect(ckpt, 1, true); /* still there */
	await(ckpt, save_late(ckpt, &state, 3), PAWL_CKPT_COMMITTED);
	expect(ckpt, 3, true);
	pawl_ckpt_close(ckpt, WAIT_MS, NULL);
	close_state(&state);
}

/* No kernel watches devices: the caller's version counters alone show a change. */
static void a_change_that_only_the_caller_saw(void **unused)
{
	struct pawl_ckpt *ckpt = join(0, 1, 0);
	struct pawl_ckpt_status status;
	struct state state;
	uint64_t id;

	open_state(&state);
	await(ckpt, save_late(ckpt, &state, 1), PAWL_CKPT_COMMITTED);
	fill(&state, 2);
	keep_devices_busy(true);
	id = save(ckpt, &state, 2, STORAGES, true);
	state.memory[DEVICE_0][12345]++;
	pawl_ckpt_withdraw(ckpt, id, 0, DEVICE_0);
	keep_devices_busy(false);
	pawl_ckpt_fence(ckpt, 1 | 2);
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, NULL)),
		PAWL_ECANCELED);
	expect_failed(ckpt, id, PAWL_ECHANGED, "storage 1 of partition 0 changed");
	status = status_of(ckpt, id);
	assert_true(status.part == 0 && status.storage == DEVICE_0);
	expect(ckpt, 1, true);
	pawl_ckpt_close(ckpt, WAIT_MS, NULL);
	close_state(&state);
}

struct seen {
	uint64_t id; /* save of the last call of unchanged; 0: none */
	int part, storage;
	bool changed;
};

/* The callback unchanged of pawl_ckpt_options. */
static bool look(void *user, uint64_t id, int *part, int *storage)
{
	struct seen *seen = user;

	seen->id = id;
	*part = seen->part;
	*storage = seen->storage;
	return !seen->changed;
}

/* The copy ends before a fence that could have shown the change. */
static void a_change_that_the_caller_is_asked_for(void **unused)
{
	struct seen seen = {.part = 0, .storage = DEVICE_0};
	struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.world = 1,
		.keep = 2,
		.persist_every_ms = 3600 * 1000,
		.socket = sock,
		.watch = true,
		.unchanged = look,
		.user = &seen};
	struct pawl_ckpt *ckpt = join_as(&options);
	struct state state;
	uint64_t id;

	open_state(&state);
	id = save_late(ckpt, &state, 1);
	await(ckpt, id, PAWL_CKPT_COMMITTED);
	assert_int_equal(seen.id, id);
	seen.changed = true;
	fill(&state, 2);
	id = save(ckpt, &state, 2, STORAGES, true);
	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_COMMITTED, WAIT_MS, NULL)),
		PAWL_ECANCELED);
	assert_int_equal(seen.id, id);
	expect_failed(ckpt, id, PAWL_ECHANGED, "storage 1 of partition 0 changed");
	expect(ckpt, 1, true);
	fill(&state, 3);
	id = save(ckpt, &state, 3, STORAGES,
		false); /* copied before it returns: unchanged is not called */
	await(ckpt, id, PAWL_CKPT_COMMITTED);
	assert_true(seen.id < id);
	expect(ckpt, 3, true);
	pawl_ckpt_close(ckpt, WAIT_MS, NULL);
	close_state(&state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(late_copies_come_back),
		TEST(copies_before_return_come_back),
		TEST(late_copies_need_no_kernel),
		TEST(streamed_saves_come_back),
		TEST(a_device_that_is_not_there),
		TEST(without_a_driver_only_the_host_is_saved),
		TEST(without_a_driver_only_the_host_is_streamed),
		TEST(a_driver_that_fails_in_a_late_copy),
		TEST(a_change_that_only_the_caller_saw),
		TEST(a_change_that_the_caller_is_asked_for),
	};

	return argc > 1 ? run_agent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
