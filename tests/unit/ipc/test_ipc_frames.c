/* Every frame between worker and agent: what is encoded is decoded again, each field of each struct
 * travels, and a body that is not whole, too long, or of another type is refused. */
#include "test_ipc_layouts.h"

#include "ipc/frames.h"
#include "ipc/proto.h"

#include "pawl/err.h"

#include <sys/socket.h>
#include <unistd.h>

static void encode(struct wire_out *out, uint16_t type, const void *body)
{
	frame_encode(out, (enum proto_type)type, body);
}

static const struct layout_table frames = {frame_layout_of, encode, frame_decode};

static bool decode(const uint8_t *bytes, size_t len_bytes, uint16_t type, void *body, size_t cap)
{
	return decode_bytes(&frames, bytes, len_bytes, type, body, cap);
}

static void what_is_encoded_is_decoded(void **state)
{
	check_types(&frames, 40);
}

static void every_field_travels(void **state)
{
	check_tables(&frames);
}

/* docs/protocol.md: a body is its fields in order, little endian, text with its length. */
static void bytes_are_those_of_the_protocol(void **state)
{
	static const uint8_t wanted[] = {
		7, 0, 0, 0, 0, 0, 0, 0,                /* seq */
		2, 1, 0, 0, 0, 0, 0, 0,                /* step */
		0, 16, 0, 0, 0, 0, 0, 0,               /* need_bytes */
		3, 0, 0, 0, 'a', '/', 'b',             /* tag */
		3,                                     /* flags */
		255, 255, 255, 255, 255, 255, 255, 255 /* since_ns */
	};
	const struct frame_begin begin = {.seq = 7,
		.step = 258,
		.need_bytes = 4096,
		.tag = "a/b",
		.flags = 3,
		.since_ns = -1};
	struct wire_out out = {0};

	frame_encode(&out, PROTO_BEGIN, &begin);
	assert_int_equal(out.len_bytes, sizeof(wanted));
	assert_memory_equal(out.bytes, wanted, sizeof(wanted));
	wire_out_deinit(&out);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct frame_tag tag;
	struct frame_grant grant;
	struct frame_fail fail;
	char text[CKPT_TAG_MAX];
	struct wire_out out = {0};
	uint8_t nothing = 0;

	memset(text, 'x', sizeof(text));
	wire_put_blob(&out, text, sizeof(text)); /* no room for the terminator */
	assert_false(decode(out.bytes, out.len_bytes, PROTO_FIND, &tag, sizeof(tag)));
	wire_out_reset(&out);
	wire_put_blob(&out, "a\0b", 3);
	assert_false(decode(out.bytes, out.len_bytes, PROTO_FIND, &tag, sizeof(tag)));
	wire_out_reset(&out);
	wire_put_u8(&out, 0);
	wire_put_u8(&out, 0);
	wire_put_u64(&out, 1);
	wire_put_u32(&out, ARENA_SLOTS + 1); /* more arenas than there are slots */
	for (int i = 0; i <= ARENA_SLOTS; i++) {
		wire_put_u8(&out, 0);
		wire_put_u64(&out, 1);
	}
	wire_put_str(&out, "");
	assert_false(decode(out.bytes, out.len_bytes, PROTO_GRANT, &grant, sizeof(grant)));
	for (uint32_t code = 255; code <= 256;
		code++) { /* the greatest one, and one that is none */
		wire_out_reset(&out);
		wire_put_u64(&out, 1);
		wire_put_u32(&out, code);
		wire_put_str(&out, "why");
		wire_put_str(&out, "tag");
		assert_int_equal(decode(out.bytes, out.len_bytes, PROTO_FAIL, &fail, sizeof(fail)),
			code == 255);
		assert_true(code > 255 || fail.code == -255);
	}
	assert_false(decode(&nothing, 0, 21, &nothing, 1)); /* no type has this number */
	assert_true(decode(&nothing, 0, PROTO_OK, &nothing, 0));
	wire_out_deinit(&out);
}

static void version_is_read_whatever_follows(void **state)
{
	static const uint8_t bytes[] = {3, 1, 0xff};
	struct wire_in in;

	wire_in_init(&in, bytes, sizeof(bytes));
	assert_int_equal(frame_hello_version(in), 259);
	wire_in_init(&in, bytes, 1);
	assert_int_equal(frame_hello_version(in), 0);
}

static void a_frame_without_memory_is_not_sent(void **state)
{
	struct wire_out out = {.failed = true};
	struct pawl_err err;
	uint8_t byte;
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(proto_send(ends[0], &out, NULL, 0, &err), PAWL_ENOMEM);
	assert_int_equal(recv(ends[1], &byte, 1, MSG_DONTWAIT), -1);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_encoded_is_decoded),
		cmocka_unit_test(every_field_travels),
		cmocka_unit_test(bytes_are_those_of_the_protocol),
		cmocka_unit_test(what_does_not_fit_is_refused),
		cmocka_unit_test(version_is_read_whatever_follows),
		cmocka_unit_test(a_frame_without_memory_is_not_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
