/* Every message between commands and the scheduler: what is encoded is decoded again, each field of
 * each struct travels, and a body that is not whole, too long, or of another version is refused. */
#include "../ipc/test_ipc_layouts.h"

#include "daemon/sched_msg.h"

static void encode(struct wire_out *out, uint16_t type, const void *body)
{
	sched_msg_encode(out, (enum sched_msg_type)type, body);
}

static const struct layout_table messages = {sched_msg_layout_of, encode, sched_msg_decode};

static void what_is_encoded_is_decoded(void **state)
{
	check_types(&messages, 14);
}

static void every_field_travels(void **state)
{
	check_tables(&messages);
}

static void check_bytes(enum sched_msg_type type, const void *body, const uint8_t *wanted,
	size_t len_bytes)
{
	struct wire_out out = {0};

	sched_msg_encode(&out, type, body);
	assert_int_equal(out.len_bytes, len_bytes);
	assert_memory_equal(out.bytes, wanted, len_bytes);
	wire_out_deinit(&out);
}

/* docs/protocol.md: a request begins with its version; a body is its fields in order, little
 * endian, text with its length, a list with its count. */
static void bytes_are_those_of_the_protocol(void **state)
{
	static const uint8_t list[] = {2, 0, /* version */
		1,                           /* ended */
		44, 1, 0, 0};                /* most */
	static const uint8_t drain[] = {2, 0, 1, 0, 0, 0, 'n', 0};
	static const uint8_t scale[] = {2, 0, 1, 0, 0, 0, 'j', /* job */
		1, 1, 0, 0, 0, 4, 0, 0, 0,                     /* sized, least, most */
		1, 254, 255, 255, 255};                        /* prioritized, priority */
	static const uint8_t error[] = {2, 0, 0, 0, 3, 0, 0, 0, 'w', 'h', 'y'};
	static const uint8_t nodes[] = {1, 0, 0, 0, /* count */
		1, 0, 0, 0, 'a',                    /* name */
		0, 0, 0, 0,                         /* type */
		8, 0, 0, 0,                         /* slots */
		3, 0, 0, 0,                         /* used */
		0,                                  /* state */
		1,                                  /* spot */
		0, 0, 0, 0, 0, 0, 4, 64};           /* price */
	static const uint8_t jobs[] = {0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, '!'};
	struct sched_msg_node node = {.name = "a",
		.slots = 8,
		.used = 3,
		.spot = true,
		.price = 2.5};
	struct wire_out rows = {0};
	struct sched_msg_nodes reply;

	check_bytes(SCHED_MSG_LIST, &(struct sched_msg_list){.ended = true, .most = 300}, list,
		sizeof(list));
	check_bytes(SCHED_MSG_NODES, NULL, list, 2);
	check_bytes(SCHED_MSG_DRAIN, &(struct sched_msg_drain){.node = "n"}, drain, sizeof(drain));
	check_bytes(SCHED_MSG_SCALE,
		&(struct sched_msg_scale){.job = "j",
			.sized = true,
			.least = 1,
			.most = 4,
			.prioritized = true,
			.priority = -2},
		scale, sizeof(scale));
	check_bytes(SCHED_MSG_ERROR, &(struct sched_msg_error){.code = -2, .text = "why"}, error,
		sizeof(error));
	check_bytes(SCHED_MSG_JOBS, &(struct sched_msg_jobs){.left_out = 7, .remark = "!"}, jobs,
		sizeof(jobs));
	frame_layout_encode(&rows, &sched_msg_node_layout, &node);
	reply.nodes = (struct frame_rows){rows.bytes, (uint32_t)rows.len_bytes, 1};
	check_bytes(SCHED_MSG_NODE_ROWS, &reply, nodes, sizeof(nodes));
	wire_out_deinit(&rows);
}

static bool decode(const struct wire_out *out, uint16_t type, void *body, size_t size_bytes)
{
	return decode_bytes(&messages, out->bytes, out->len_bytes, type, body, size_bytes);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct sched_msg_selector selector;
	struct sched_msg_jobs jobs;
	char text[CORE_NAME_MAX];
	struct wire_out out = {0};
	struct wire_in in;
	uint8_t nothing = 0;

	memset(text, 'x', sizeof(text));
	wire_put_u16(&out, SCHED_MSG_VERSION);
	wire_put_blob(&out, text, sizeof(text)); /* no room for the terminator */
	assert_false(decode(&out, SCHED_MSG_SHOW, &selector, sizeof(selector)));
	wire_out_reset(&out);
	wire_put_u16(&out, SCHED_MSG_VERSION + 1);
	wire_put_str(&out, "job");
	assert_false(decode(&out, SCHED_MSG_SHOW, &selector, sizeof(selector)));
	wire_in_init(&in, out.bytes, out.len_bytes);
	assert_int_equal(sched_msg_version(in), SCHED_MSG_VERSION + 1);
	wire_in_init(&in, out.bytes, 1);
	assert_int_equal(sched_msg_version(in), 0);
	wire_out_reset(&out);
	wire_put_u32(&out, UINT32_MAX); /* rows that are not there */
	wire_put_u32(&out, 0);
	wire_put_str(&out, "");
	assert_false(decode(&out, SCHED_MSG_JOBS, &jobs, sizeof(jobs)));
	wire_out_reset(&out);
	assert_false(decode(&out, SCHED_MSG_SCALE + 1, &nothing, 1)); /* no type has this number */
	wire_put_u16(&out, SCHED_MSG_VERSION);
	assert_true(decode(&out, SCHED_MSG_NODES, &nothing, 0));
	wire_out_deinit(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_encoded_is_decoded),
		cmocka_unit_test(every_field_travels),
		cmocka_unit_test(bytes_are_those_of_the_protocol),
		cmocka_unit_test(what_does_not_fit_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
