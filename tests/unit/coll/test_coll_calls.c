/* Calls that cannot be: a group refuses them before anything is sent. */
#include "base/err.h"
#include "coll/group/group_call.h"
#include "test_coll_heartbeat.h"
#include "test_coll_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void what_cannot_be_is_refused(void **state)
{
	struct world w;
	struct pawl_work work;
	struct pawl_err err;
	struct pawl_coll_call call = {.kind = PAWL_ALL_REDUCE,
		.dtype = PAWL_FLOAT32,
		.len_bytes = 401};

	open_world(&w);
	assert_int_equal(pawl_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "401 bytes"));
	call = (struct pawl_coll_call){.op = PAWL_BXOR, .dtype = PAWL_FLOAT32, .len_bytes = 400};
	assert_int_equal(pawl_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "floating-point"));
	call = (struct pawl_coll_call){.kind = PAWL_GATHER, .root = RANKS, .len_bytes = 400};
	assert_int_equal(pawl_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_string_equal(err.msg, "collectives: gather: rank 4 of 4 ranks");
	call = (struct pawl_coll_call){.dtype = PAWL_INT64, .mean = true};
	assert_int_equal(pawl_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "only sums of floats have a mean"));
	call = (struct pawl_coll_call){.kind = PAWL_SEND};
	assert_int_equal(pawl_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "send: a rank cannot exchange messages with itself"));
	call = (struct pawl_coll_call){.kind = PAWL_ALL_TO_ALL};
	assert_int_equal(pawl_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, "all_to_all: no parts"));
	call = (struct pawl_coll_call){.kind = PAWL_ALL_GATHER, .len_bytes = 1ull << 63};
	assert_int_equal(pawl_group_submit(w.members[0].group, &work, &call, &err), PAWL_EINVAL);
	assert_non_null(strstr(err.msg, " bytes of each of 4 ranks are too many"));
	close_world(&w);
}

static void parts_that_cannot_be_are_refused(void **state)
{
	static const struct {
		uint64_t in_at[RANKS + 1];
		uint64_t out_at[RANKS + 1];
		const char *expected;
	} bad[] = {
		{{0, 8, 4, 8, 8}, {0, 8, 8, 8, 8}, "the limits of the parts decrease"},
		{{0, 8, 8, 8, 8}, {0, 8, 8, 10, 12}, "byte 10, the limit of a part"},
		{{2, 6, 6, 6, 6}, {0, 4, 4, 4, 4}, "byte 2, the limit of a part"},
		{{0, 8, 8, 8, 8}, {0, 4, 8, 8, 8}, "sends 8 bytes to itself, and expects 4"},
		{{0, 8, 8, 8, 1ull << 60}, {0, 8, 8, 8, 8}, "1152921504606846976 bytes are too"},
	};
	struct world w;
	struct pawl_work work;
	struct pawl_err err;

	open_world(&w);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const struct pawl_coll_call call = {.kind = PAWL_ALL_TO_ALL,
			.dtype = PAWL_FLOAT32,
			.in_at = bad[i].in_at,
			.out_at = bad[i].out_at};

		assert_int_equal(pawl_group_submit(w.members[0].group, &work, &call, &err),
			PAWL_EINVAL);
		assert_non_null(strstr(err.msg, bad[i].expected));
	}
	close_world(&w);
}

/* A server takes the length of a vector from a rank's header. */
static void a_server_is_asked_to_add_too_much(void **state)
{
	uint8_t header[GROUP_HEADER_BYTES];
	struct pawl_work work = {
		.call = {.kind = PAWL_ALL_REDUCE, .dtype = PAWL_FLOAT32, .len_bytes = 4000}};
	struct pawl_coll_call call;
	uint64_t number;

	group_header_encode(header, &work, 0, NULL);
	assert_int_equal(group_header_decode(header, 1, &call, &number, NULL), 0);
	work.call.len_bytes = 1ull << 62; /* as many bytes of four ranks are none */
	group_header_encode(header, &work, 0, NULL);
	assert_int_equal(group_header_decode(header, 1, &call, &number, NULL), PAWL_EPEER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(parts_that_cannot_be_are_refused),
		cmocka_unit_test(a_server_is_asked_to_add_too_much),
	};

	bear_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
