/* Messages between agents: what is encoded is decoded again, every field travels, and a body that
 * is cut, too long, or has a field beyond its limit is refused. */
#include "agent/peer/peer_msg.h"
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define BLOB       "join\0run\0"
#define BLOB_BYTES 9u
#define KINDS_MAX  256u

#define PART                                                                                       \
	{                                                                                          \
		.save = {77, 3}, .step = 1200, .tag = "global_step1200", .world = 16,              \
		.first_rank = 8, .ranks = 8, .parity = {                                           \
			3,                                                                         \
			8,                                                                         \
			2,                                                                         \
			1,                                                                         \
			7                                                                          \
		}                                                                                  \
	}

/* One message of each kind, with no other fields than its own. */
static const struct peer_msg messages[] = {
	{.kind = PEER_HELLO, .version = 513, .job = "gpt"},
	{.kind = PEER_NEXT, .root = 12, .save = {77, 3}, .global = {76, 2}},
	{.kind = PEER_DONE, .root = 12, .part = PART, .code = PAWL_EIO, .text = "no host"},
	{.kind = PEER_PUT, .root = 12, .part = PART, .global = {77, 2}, .len_bytes = 1ULL << 40},
	{.kind = PEER_PUT_RECORD,
		.rank = 9,
		.size_bytes = 1ULL << 40,
		.crc = 5,
		.blob = (const uint8_t *)BLOB,
		.blob_bytes = BLOB_BYTES},
	{.kind = PEER_PUT_BYTES,
		.off = 1ULL << 40,
		.blob = (const uint8_t *)BLOB,
		.blob_bytes = BLOB_BYTES},
	{.kind = PEER_PUT_END},
	{.kind = PEER_GET_RECORDS, .root = 12, .part = {.save = {77, 3}, .first_rank = 8}},
	{.kind = PEER_GET,
		.root = 12,
		.part = {.save = {77, 3}, .first_rank = 8, .parity = {8, 32, 8, 7, 31}},
		.off = 1ULL << 40,
		.len_bytes = 4096},
	{.kind = PEER_NOTE_WRITE,
		.root = 12,
		.path = "hosts/0/join",
		.blob = (const uint8_t *)BLOB,
		.blob_bytes = BLOB_BYTES},
	{.kind = PEER_NOTE_READ, .root = 12, .path = "hosts/0/join"},
	{.kind = PEER_CHOICE, .root = 12, .save = {77, 3}, .wanted = {77, 4}},
	{.kind = PEER_OK},
	{.kind = PEER_ERROR, .code = PAWL_ENOMEM, .text = "out of memory"},
	{.kind = PEER_ROUND, .save = {77, 3}, .global = {76, 2}},
	{.kind = PEER_RECORD,
		.rank = 9,
		.size_bytes = 1ULL << 40,
		.crc = 5,
		.blob = (const uint8_t *)BLOB,
		.blob_bytes = BLOB_BYTES},
	{.kind = PEER_BYTES,
		.off = 1ULL << 40,
		.blob = (const uint8_t *)BLOB,
		.blob_bytes = BLOB_BYTES},
	{.kind = PEER_NOTE, .blob = (const uint8_t *)BLOB, .blob_bytes = BLOB_BYTES},
	{.kind = PEER_CHOSEN, .save = {77, 3}},
};

#define MESSAGES (sizeof(messages) / sizeof(messages[0]))

static const struct peer_msg *message(enum peer_kind kind)
{
	for (size_t i = 0; i < MESSAGES; i++) {
		if (messages[i].kind == kind) {
			return &messages[i];
		}
	}
	fail_msg("there is no message of kind %d", (int)kind);
	return NULL;
}

/* Decodes a copy that has no byte to spare, as a sanitizer sees. */
static int decode(struct peer_msg *msg, uint8_t kind, const uint8_t *body, size_t len_bytes,
	uint8_t **copy)
{
	struct pawl_err err;
	int rv;

	*copy = malloc(len_bytes > 0 ? len_bytes : 1);
	assert_non_null(*copy);
	if (len_bytes > 0) {
		memcpy(*copy, body, len_bytes);
	}
	rv = peer_msg_get(msg, kind, *copy, len_bytes, &err);
	assert_true(rv == 0 || (rv == PAWL_ECORRUPT && err.code == rv && err.msg[0] != '\0'));
	return rv;
}

static void assert_part(const struct peer_part *a, const struct peer_part *b)
{
	assert_int_equal(a->save.run, b->save.run);
	assert_int_equal(a->save.number, b->save.number);
	assert_int_equal(a->step, b->step);
	assert_string_equal(a->tag, b->tag);
	assert_int_equal(a->world, b->world);
	assert_int_equal(a->first_rank, b->first_rank);
	assert_int_equal(a->ranks, b->ranks);
	assert_int_equal(a->parity.group, b->parity.group);
	assert_int_equal(a->parity.k, b->parity.k);
	assert_int_equal(a->parity.m, b->parity.m);
	assert_int_equal(a->parity.row, b->parity.row);
	assert_int_equal(a->parity.index, b->parity.index);
}

static void assert_message(const struct peer_msg *a, const struct peer_msg *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->version, b->version);
	assert_string_equal(a->job, b->job);
	assert_int_equal(a->root, b->root);
	assert_int_equal(a->save.run, b->save.run);
	assert_int_equal(a->save.number, b->save.number);
	assert_int_equal(a->global.run, b->global.run);
	assert_int_equal(a->global.number, b->global.number);
	assert_int_equal(a->wanted.run, b->wanted.run);
	assert_int_equal(a->wanted.number, b->wanted.number);
	assert_part(&a->part, &b->part);
	assert_int_equal(a->rank, b->rank);
	assert_int_equal(a->size_bytes, b->size_bytes);
	assert_int_equal(a->crc, b->crc);
	assert_int_equal(a->off, b->off);
	assert_int_equal(a->len_bytes, b->len_bytes);
	assert_int_equal(a->code, b->code);
	assert_string_equal(a->text, b->text);
	assert_string_equal(a->path, b->path);
	assert_int_equal(a->blob_bytes, b->blob_bytes);
	if (a->blob_bytes > 0) {
		assert_memory_equal(a->blob, b->blob, a->blob_bytes);
	}
}

static void what_is_encoded_is_decoded(void **state)
{
	for (size_t i = 0; i < MESSAGES; i++) {
		struct wire_out out = {0};
		struct peer_msg got;
		struct wire_in in;
		uint8_t *copy;

		wire_put_u8(&out, 1); /* a message goes behind what is there */
		peer_msg_put(&out, &messages[i]);
		assert_false(out.failed);
		wire_in_init(&in, out.bytes + 1, PEER_HEADER);
		assert_int_equal(wire_get_u32(&in), out.len_bytes - 1 - PEER_HEADER);
		assert_int_equal(wire_get_u8(&in), messages[i].kind);
		assert_int_equal(decode(&got, (uint8_t)messages[i].kind,
					 out.bytes + 1 + PEER_HEADER,
					 out.len_bytes - 1 - PEER_HEADER, &copy),
			0);
		assert_message(&messages[i], &got);
		free(copy);
		wire_out_deinit(&out);
	}
}

/* The blob's bytes are the last ones, and may be sent from where they lie. */
static void a_head_and_the_blob_are_the_message(void **state)
{
	for (size_t i = 0; i < MESSAGES; i++) {
		struct wire_out whole = {0};
		struct wire_out head = {0};

		peer_msg_put(&whole, &messages[i]);
		peer_msg_put_head(&head, &messages[i]);
		wire_put_raw(&head, messages[i].blob, messages[i].blob_bytes);
		assert_int_equal(head.len_bytes, whole.len_bytes);
		assert_memory_equal(head.bytes, whole.bytes, whole.len_bytes);
		wire_out_deinit(&head);
		wire_out_deinit(&whole);
	}
}

static void other_lengths_are_refused(void **state)
{
	for (size_t i = 0; i < MESSAGES; i++) {
		struct wire_out out = {0};
		struct peer_msg got;
		size_t body_bytes;
		uint8_t *copy;

		peer_msg_put(&out, &messages[i]);
		body_bytes = out.len_bytes - PEER_HEADER;
		wire_put_u8(&out, 0);
		for (size_t len = 0; len <= body_bytes + 1; len++) {
			int rv = decode(&got, (uint8_t)messages[i].kind, out.bytes + PEER_HEADER,
				len, &copy);

			assert_int_equal(rv, len == body_bytes ? 0 : PAWL_ECORRUPT);
			free(copy);
		}
		wire_out_deinit(&out);
	}
}

static void other_kinds_are_refused(void **state)
{
	for (unsigned kind = 0; kind < KINDS_MAX; kind++) {
		struct peer_msg got;
		bool known = false;

		for (size_t i = 0; i < MESSAGES; i++) {
			known = known || messages[i].kind == kind;
		}
		if (!known) {
			assert_int_equal(peer_msg_get(&got, (uint8_t)kind, NULL, 0, NULL),
				PAWL_ECORRUPT);
		}
	}
}

static void assert_verdict(const struct peer_msg *msg, int verdict, int line)
{
	struct wire_out out = {0};
	struct peer_msg got;
	uint8_t *copy;
	int rv;

	peer_msg_put(&out, msg);
	assert_false(out.failed);
	rv = decode(&got, (uint8_t)msg->kind, out.bytes + PEER_HEADER, out.len_bytes - PEER_HEADER,
		&copy);
	if (rv != verdict) {
		print_error("line %d\n", line);
	}
	assert_int_equal(rv, verdict);
	free(copy);
	wire_out_deinit(&out);
}

/* Changes one field of a kind's message. */
#define WITH(k, verdict, ...)                                                                      \
	do {                                                                                       \
		struct peer_msg m = *message(k);                                                   \
                                                                                                   \
		__VA_ARGS__;                                                                       \
		assert_verdict(&m, verdict, __LINE__);                                             \
	} while (0)
#define REFUSED(k, ...)  WITH(k, PAWL_ECORRUPT, __VA_ARGS__)
#define ACCEPTED(k, ...) WITH(k, 0, __VA_ARGS__)

static void set(char *field, size_t cap_bytes, const char *text)
{
	snprintf(field, cap_bytes, "%s", text);
}

#define SET(field, text) set(field, sizeof(field), text)

static void parts_have_limits(void **state)
{
	static const enum peer_kind kinds[] = {PEER_PUT, PEER_DONE};

	for (size_t k = 0; k < 2; k++) {
		REFUSED(kinds[k], m.part.save.run = 0);
		REFUSED(kinds[k], m.part.ranks = 0);
		REFUSED(kinds[k], m.part.ranks = 9);
		REFUSED(kinds[k], m.part.first_rank = 9);
		REFUSED(kinds[k], m.part.first_rank = UINT32_MAX - 7);
		REFUSED(kinds[k], m.part.ranks = UINT32_MAX);
		REFUSED(kinds[k], m.part.world = 15);
		REFUSED(kinds[k], m.part.world = PEER_RANKS_MAX + 1);
		ACCEPTED(kinds[k], m.part.world = PEER_RANKS_MAX);
		REFUSED(kinds[k], SET(m.part.tag, ""));
		REFUSED(kinds[k], SET(m.part.tag, ".."));
		REFUSED(kinds[k], SET(m.part.tag, "../x"));
		REFUSED(kinds[k], SET(m.part.tag, "a/b"));
		REFUSED(kinds[k], SET(m.part.tag, "a\nb"));
		REFUSED(kinds[k], SET(m.part.tag, "a\x7f"));
		REFUSED(kinds[k], m.root = 0);
	}
}

static void places_in_sums_have_limits(void **state)
{
	static const enum peer_kind kinds[] = {PEER_PUT, PEER_GET, PEER_GET_RECORDS};
	static const struct peer_parity good = {8, 32, 8, 7, 31};

	for (size_t k = 0; k < 3; k++) {
		ACCEPTED(kinds[k], m.part.parity = good);
		REFUSED(kinds[k], m.part.parity = good, m.part.parity.group = 9);
		REFUSED(kinds[k], m.part.parity = good, m.part.parity.k = 33);
		REFUSED(kinds[k], m.part.parity = good, m.part.parity.k = 31);
		REFUSED(kinds[k], m.part.parity = good, m.part.parity.m = 9);
		REFUSED(kinds[k], m.part.parity = good, m.part.parity.m = 7);
		REFUSED(kinds[k], m.part.parity = good, m.part.parity.m = 0);
		ACCEPTED(kinds[k], m.part.parity = (struct peer_parity){0});
		REFUSED(kinds[k], m.part.parity = (struct peer_parity){.group = 1});
		REFUSED(kinds[k], m.part.parity = (struct peer_parity){.m = 1});
		REFUSED(kinds[k], m.part.parity = (struct peer_parity){.row = 1});
		REFUSED(kinds[k], m.part.parity = (struct peer_parity){.index = 1});
	}
}

static void requests_have_limits(void **state)
{
	REFUSED(PEER_HELLO, SET(m.job, ""));
	REFUSED(PEER_HELLO, SET(m.job, "a\x1b[2J"));
	REFUSED(PEER_NEXT, m.root = 0);
	ACCEPTED(PEER_NEXT, m.save = m.global = (struct peer_save){0});
	REFUSED(PEER_DONE, m.code = 1);
	REFUSED(PEER_DONE, m.code = -1000);
	ACCEPTED(PEER_DONE, m.code = 0, SET(m.text, ""));
	REFUSED(PEER_DONE, SET(m.text, "a\rb"));
	REFUSED(PEER_GET_RECORDS, m.root = 0);
	REFUSED(PEER_GET_RECORDS, m.part.save.run = 0);
	REFUSED(PEER_GET_RECORDS, m.part.first_rank = PEER_RANKS_MAX);
	REFUSED(PEER_GET, m.root = 0);
	REFUSED(PEER_GET, m.part.save.run = 0);
	REFUSED(PEER_GET, m.part.first_rank = PEER_RANKS_MAX);
	REFUSED(PEER_GET, m.off = UINT64_MAX - 4095);
	ACCEPTED(PEER_GET, m.off = UINT64_MAX - 4096);
	REFUSED(PEER_PUT_RECORD, m.rank = PEER_RANKS_MAX);
	ACCEPTED(PEER_PUT_RECORD, m.blob_bytes = 0);
	REFUSED(PEER_RECORD, m.rank = PEER_RANKS_MAX);
	REFUSED(PEER_ERROR, m.code = 0);
	REFUSED(PEER_ERROR, m.code = 5);
	REFUSED(PEER_ERROR, SET(m.text, "\x07"));
}

static void paths_have_limits(void **state)
{
	static const char *const bad[] = {"/etc/passwd", "..", "../x", "a/..", "a/../b", ".",
		"a/./b", "a//b", "a/", "a\tb"};
	static const enum peer_kind kinds[] = {PEER_NOTE_WRITE, PEER_NOTE_READ};

	for (size_t k = 0; k < 2; k++) {
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			REFUSED(kinds[k], SET(m.path, bad[i]));
		}
		REFUSED(kinds[k], m.root = 0);
		ACCEPTED(kinds[k], SET(m.path, "..a/b.."));
		REFUSED(kinds[k], SET(m.path, ""));
		ACCEPTED(kinds[k], memset(m.path, 'a', sizeof(m.path) - 1));
	}
}

static void blobs_have_limits(void **state)
{
	static const enum peer_kind kinds[] = {PEER_PUT_BYTES, PEER_BYTES};
	uint8_t *block = calloc(1, PEER_BLOCK + 1);

	assert_non_null(block);
	for (size_t k = 0; k < 2; k++) {
		REFUSED(kinds[k], m.blob_bytes = 0);
		REFUSED(kinds[k], m.off = UINT64_MAX - BLOB_BYTES + 1);
		ACCEPTED(kinds[k], m.off = UINT64_MAX - BLOB_BYTES);
		ACCEPTED(kinds[k], m.blob = block, m.blob_bytes = PEER_BLOCK);
		REFUSED(kinds[k], m.blob = block, m.blob_bytes = PEER_BLOCK + 1);
	}
	free(block);
	ACCEPTED(PEER_NOTE, m.blob_bytes = 0);
}

/* A string is not longer than its field, its terminator included. */
static void long_strings_are_refused(void **state)
{
	struct wire_out out = {0};
	struct peer_msg got;
	char job[CKPT_JOB_MAX + 1] = {0};

	memset(job, 'j', CKPT_JOB_MAX);
	wire_put_u16(&out, PEER_VERSION);
	wire_put_str(&out, job);
	assert_int_equal(peer_msg_get(&got, PEER_HELLO, out.bytes, out.len_bytes, NULL),
		PAWL_ECORRUPT);
	wire_out_reset(&out);
	wire_put_u16(&out, PEER_VERSION);
	wire_put_str(&out, job + 1);
	assert_int_equal(peer_msg_get(&got, PEER_HELLO, out.bytes, out.len_bytes, NULL), 0);
	wire_out_deinit(&out);
}

/* docs/protocol.md: fields in order, little endian, a string or blob with its length. */
static void bytes_are_those_of_the_protocol(void **state)
{
	static const uint8_t record[] = {29, 0, 0, 0, 5, /* header */
		9, 0, 0, 0,                              /* rank */
		0, 0, 0, 0, 0, 1, 0, 0,                  /* size */
		5, 0, 0, 0,                              /* checksum */
		9, 0, 0, 0,                              /* length of the blob */
		'j', 'o', 'i', 'n', 0, 'r', 'u', 'n', 0};
	static const uint8_t error[] = {13, 0, 0, 0, 65, /* header */
		0xff, 0xff, 0xff, 0xff,                  /* code */
		5, 0, 0, 0, 'w', 'h', 'y', ' ', '?'};
	const struct peer_msg failed = {.kind = PEER_ERROR, .code = PAWL_ENOMEM, .text = "why ?"};
	struct wire_out out = {0};

	peer_msg_put(&out, message(PEER_PUT_RECORD));
	assert_int_equal(out.len_bytes, sizeof(record));
	assert_memory_equal(out.bytes, record, sizeof(record));
	wire_out_reset(&out);
	peer_msg_put(&out, &failed);
	assert_int_equal(out.len_bytes, sizeof(error));
	assert_memory_equal(out.bytes, error, sizeof(error));
	wire_out_deinit(&out);
}

/* What is too long for a message is an error of the sender. */
static void a_body_has_a_limit(void **state)
{
	struct peer_msg msg = *message(PEER_NOTE_WRITE);
	struct wire_out out = {0};
	struct pawl_err err;

	msg.blob_bytes = PEER_BODY_MAX;
	peer_msg_put_head(&out, &msg);
	assert_true(out.failed);
	assert_int_equal(wire_out_error(&out, "a note", &err), PAWL_ELIMIT);
	wire_out_deinit(&out);
}

static void saves_and_roots(void **state)
{
	const struct peer_save one = {77, 3};
	const struct peer_save other = {77, 4};
	const struct peer_save none = {0, 3};

	assert_true(peer_save_is(&one, &one));
	assert_false(peer_save_is(&one, &other));
	assert_false(peer_save_is(&one, &(struct peer_save){78, 3}));
	assert_false(peer_save_is(&none, &none));
	assert_true(peer_root("123456789") == 0xe3069283cbf43926ULL);
	assert_true(peer_root("/a") != peer_root("/b"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_encoded_is_decoded),
		cmocka_unit_test(a_head_and_the_blob_are_the_message),
		cmocka_unit_test(other_lengths_are_refused),
		cmocka_unit_test(other_kinds_are_refused),
		cmocka_unit_test(parts_have_limits),
		cmocka_unit_test(places_in_sums_have_limits),
		cmocka_unit_test(requests_have_limits),
		cmocka_unit_test(paths_have_limits),
		cmocka_unit_test(blobs_have_limits),
		cmocka_unit_test(long_strings_are_refused),
		cmocka_unit_test(bytes_are_those_of_the_protocol),
		cmocka_unit_test(a_body_has_a_limit),
		cmocka_unit_test(saves_and_roots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
