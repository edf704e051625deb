/* What a mirror and its commands say to each other arrives as it was sent, and nothing else is
 * believed. */
#include "mirror/msg.h"

#include "../lib/seed.h"
#include "base/rng.h"
#include "base/wire.h"
#include "pawl/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct pawl_err err;

static void requests_arrive(void **state)
{
	static const struct msg_request sent[] = {{MSG_STATUS, INT64_MAX}, {MSG_FLUSH, 7000000001}};
	struct msg_request got;
	uint8_t bytes[MSG_REQUEST];

	for (size_t i = 0; i < 2; i++) {
		msg_put_request(bytes, &sent[i]);
		assert_int_equal(msg_get_request(bytes, &got, &err), 0);
		assert_int_equal(got.kind, sent[i].kind);
		assert_true(got.deadline_ns == sent[i].deadline_ns);
	}
	bytes[4]++;
	assert_int_equal(msg_get_request(bytes, &got, &err), PAWL_ENOTSUP);
	bytes[4]--;
	bytes[6] = 9;
	assert_int_equal(msg_get_request(bytes, &got, &err), PAWL_EINVAL);
	bytes[0] = 'x';
	assert_int_equal(msg_get_request(bytes, &got, &err), PAWL_EINVAL);
}

static struct msg_status *make_status(void)
{
	struct msg_status *status = calloc(1, sizeof(*status));

	snprintf(status->dir, sizeof(status->dir), "/data/out");
	snprintf(status->bucket, sizeof(status->bucket), "s3://bucket/run");
	snprintf(status->last_error, sizeof(status->last_error), "no network");
	status->program = 4711;
	status->flushed = true;
	status->dirty_units = 1;
	status->dirty_bytes = 5ull << 40;
	status->oldest_ns = 12345;
	status->units_n = 2;
	status->units = calloc(2, sizeof(*status->units));
	for (uint32_t i = 0; i < 2; i++) {
		struct msg_unit *unit = &status->units[i];

		snprintf(unit->path, sizeof(unit->path), "run/checkpoint-%u", i);
		snprintf(unit->tag, sizeof(unit->tag), "run%%2Fcheckpoint-%u", i);
		unit->step = i;
		unit->state = CORE_SHIPPING;
		unit->kind = UNIT_DCP;
		unit->present = true;
		unit->sent_bytes = 99;
		snprintf(unit->why, sizeof(unit->why), "because");
	}
	return status;
}

static void a_status_arrives(void **state)
{
	struct msg_status *sent = make_status();
	struct msg_status *got = calloc(1, sizeof(*got));
	struct wire_out out = {NULL};

	msg_put_status(&out, sent);
	assert_false(out.failed);
	assert_int_equal(msg_get_status(out.bytes, out.len_bytes, got, &err), 0);
	assert_string_equal(got->dir, sent->dir);
	assert_string_equal(got->last_error, sent->last_error);
	assert_true(got->flushed && !got->lost && got->dirty_bytes == sent->dirty_bytes);
	assert_int_equal(got->units_n, 2);
	assert_memory_equal(got->units, sent->units, 2 * sizeof(*sent->units));
	msg_status_deinit(got);
	for (size_t len = 0; len < out.len_bytes; len++) { /* cut off anywhere */
		assert_int_not_equal(msg_get_status(out.bytes, len, got, &err), 0);
	}
	wire_out_deinit(&out);
	msg_status_deinit(sent);
	free(sent);
	free(got);
}

static void other_bytes_do_no_harm(void **state)
{
	struct rng rng = {test_seed()};
	struct msg_status *sent = make_status();
	struct msg_status *got = calloc(1, sizeof(*got));
	struct wire_out out = {NULL};

	msg_put_status(&out, sent);
	for (uint32_t i = 0; i < 20000; i++) {
		size_t at = rng_below(&rng, out.len_bytes);
		uint8_t before = out.bytes[at];

		out.bytes[at] = (uint8_t)rng_u64(&rng);
		if (msg_get_status(out.bytes, out.len_bytes, got, &err) == 0) {
			assert_true(got->units_n <= 2);
			msg_status_deinit(got);
		}
		out.bytes[at] = before;
	}
	wire_out_deinit(&out);
	msg_status_deinit(sent);
	free(sent);
	free(got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_arrive),
		cmocka_unit_test(a_status_arrives),
		cmocka_unit_test(other_bytes_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
