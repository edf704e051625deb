/* Ranks that are processes: one that is killed in the middle is named by all others, whether they
 * wait, compute or send; and a forked child of a rank is refused. */
#include "../coll/test_coll_procs.h"

#include "pawl/stage.h"

#include <stdio.h>

#include <stddef.h>

#define RANKS  3u
#define VICTIM 2u
#define LEN    (4u << 20)

static uint8_t bytes[LEN];
static int object;

/* A forked child can do nothing with the stage, and ends. */
static bool child_is_refused(struct pawl_stage *stage)
{
	struct pawl_stage_event event;
	pid_t child = fork();
	int status;

	if (child == 0) {
		bool refused = pawl_stage_next(stage, -1, &event, NULL) == PAWL_ENOTSUP &&
			pawl_stage_send(stage, NULL) == PAWL_ENOTSUP &&
			pawl_stage_fail(stage, "x", 1, NULL) == PAWL_ENOTSUP;

		pawl_stage_leave(stage);
		pawl_stage_close(stage, NULL);
		_exit(refused ? 0 : 1);
	}
	status = WITHIN_CHILD(child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Sends the victim more than it can take, and goes on after it is dead. */
static void push_values(struct pawl_stage *stage)
{
	struct pawl_stage_value value = {.data = bytes, .len_bytes = LEN, .held = &object};
	struct pawl_err err;
	int rv = 0;

	for (uint64_t v = 0; v < 60 && rv == 0; v++) {
		value.id = 2 * v;
		rv = pawl_stage_put(stage, &value, &err);
		for (uint32_t r = 1; r < RANKS && rv == 0; r++) {
			rv = pawl_stage_push(stage, 0, value.id, r, &err);
		}
		if (rv == 0) {
			struct pawl_stage_call call = {.id = 2 * v + 1,
				.needs_n = 1,
				.needs = &value.id};

			rv = pawl_stage_call(stage, VICTIM, &call, &err);
		}
		if (rv == 0) {
			rv = pawl_stage_send(stage, &err);
		}
	}
	if (rv != 0 && rv != PAWL_EPEER) {
		_exit(3);
	}
}

/* A rank. The victim kills itself during its third call. */
static void take_part(struct shared *shared, uint32_t rank)
{
	struct pawl_group *group = join_by_endpoints(&shared->endpoints, rank, RANKS);
	struct pawl_stage_event event;
	struct pawl_stage *stage;
	struct pawl_err err = {0};
	uint32_t calls = 0;
	int rv;

	if (pawl_stage_open(&stage, group, &err) != 0 || !child_is_refused(stage) ||
		pawl_stage_begin(stage, NULL, 0, &err) != 0) {
		_exit(2);
	}
	if (rank == 0) {
		push_values(stage);
	}
	while ((rv = IN_TIME(pawl_stage_next(stage, LONG_NS, &event, &err))) == 0) {
		calls++;
		if (rank == VICTIM && calls == 3) {
			raise(SIGKILL);
		}
		if (event.kind != PAWL_STAGE_CALL) {
			_exit(4);
		}
		pawl_stage_done(stage, event.call.id, NULL, 0, &err);
	}
	if (rv != PAWL_EPEER || !strstr(err.msg, "rank 2")) {
		fprintf(stderr, "rank %u: %d %s\n", rank, rv, err.msg);
		_exit(5);
	}
	pawl_stage_close(stage, NULL);
	pawl_group_close(group);
	_exit(0);
}

static void a_killed_rank_is_named(void **state)
{
	pid_t pids[RANKS];

	start(pids, RANKS, RANKS, take_part);
	assert_int_equal(status_of(pids[VICTIM]), 128 + SIGKILL);
	assert_int_equal(status_of(pids[0]), 0);
	assert_int_equal(status_of(pids[1]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_rank_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
