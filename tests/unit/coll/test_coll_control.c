/* The control channel without a transport: messages in pieces of any size, and malformed frames. */
#include "base/err.h"
#include "base/fault.h"
#include "base/rng.h"
#include "coll/group/control.h"
#include "seed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define LEN_MAX 3000u
#define LETTERS 60

static uint64_t first_seed;

struct pair {
	struct coll_control controls[2];
	struct rng rng;
};

static void open_pair(struct pair *p)
{
	*p = (struct pair){.rng = {first_seed}};
	assert_int_equal(coll_control_init(&p->controls[0], 0, 2, NULL), 0);
	assert_int_equal(coll_control_init(&p->controls[1], 1, 2, NULL), 0);
}

static void close_pair(struct pair *p)
{
	coll_control_deinit(&p->controls[0]);
	coll_control_deinit(&p->controls[1]);
}

/* Delivers some of the bytes that one rank sends to the other. Returns whether there were any. */
static bool carry(struct pair *p, uint32_t from)
{
	struct coll_control *a = &p->controls[from];
	struct coll_control *b = &p->controls[!from];
	const void *bytes;
	size_t n = coll_control_to_send(a, !from, &bytes);
	size_t left = n > 0 ? 1 + rng_below(&p->rng, n) : 0;

	n = left;
	while (left > 0) {
		void *to;
		size_t room = coll_control_to_receive(b, from, &to);
		size_t some = 1 + rng_below(&p->rng, room < left ? room : left);

		memcpy(to, (const uint8_t *)bytes + (n - left), some);
		coll_control_received(b, from, some);
		left -= some;
	}
	if (n > 0) {
		coll_control_sent(a, !from, n);
	}
	return n > 0;
}

static void carry_all(struct pair *p)
{
	while (carry(p, 0) || carry(p, 1)) {
	}
}

struct letter {
	struct coll_message message;
	uint8_t bytes[LEN_MAX];
};

/* Fills in message n of rank 0: its length, its tag, its bytes. */
static void write_letter(struct letter *letter, uint32_t n, bool receive)
{
	struct rng rng = {first_seed + n};

	letter->message = (struct coll_message){.bytes = letter->bytes,
		.len_bytes = rng_below(&rng, 4) == 0 ? 0 : rng_below(&rng, LEN_MAX),
		.tag = (uint32_t)rng_below(&rng, 3),
		.peer = receive ? 0 : 1,
		.receive = receive};
	for (uint64_t i = 0; i < letter->message.len_bytes; i++) {
		letter->bytes[i] = receive ? 0 : (uint8_t)rng_u64(&rng);
	}
}

static void messages_arrive(void **state)
{
	struct letter *sent = calloc(LETTERS, sizeof(*sent));
	struct letter *got = calloc(LETTERS, sizeof(*got));
	struct pair p;
	uint32_t out = 0;
	uint32_t in = 0;

	open_pair(&p);
	while (out < LETTERS || in < LETTERS) {
		bool send = in == LETTERS || (out < LETTERS && rng_below(&p.rng, 2) == 0);

		if (send) {
			write_letter(&sent[out], out, false);
			coll_control_post(&p.controls[0], &sent[out++].message);
		} else {
			write_letter(&got[in], in, true);
			coll_control_post(&p.controls[1], &got[in++].message);
		}
		coll_control_heartbeat(&p.controls[rng_below(&p.rng, 2)], "", 0);
		for (uint32_t i = (uint32_t)rng_below(&p.rng, 5); i > 0; i--) {
			carry(&p, (uint32_t)rng_below(&p.rng, 2));
		}
	}
	carry_all(&p);
	for (uint32_t n = 0; n < LETTERS; n++) {
		assert_memory_equal(sent[n].bytes, got[n].bytes, sent[n].message.len_bytes);
		assert_non_null(coll_control_take(&p.controls[0]));
		assert_non_null(coll_control_take(&p.controls[1]));
	}
	assert_null(coll_control_take(&p.controls[0]));
	assert_null(coll_control_give_up(&p.controls[1]));
	assert_int_equal(p.controls[0].failure.code, 0);
	close_pair(&p);
	free(sent);
	free(got);
}

static void leaving_is_received(void **state)
{
	struct pair p;
	uint64_t number;

	open_pair(&p);
	assert_false(coll_control_left(&p.controls[1], 0, &number));
	coll_control_leave(&p.controls[0], 123);
	assert_true(coll_control_pending(&p.controls[0], 1));
	carry_all(&p);
	assert_false(coll_control_pending(&p.controls[0], 1));
	assert_true(coll_control_left(&p.controls[1], 0, &number));
	assert_int_equal(number, 123);
	close_pair(&p);
}

/* A message is given up in the middle, by either end or both: its memory is not touched any more,
 * and the failure still arrives. */
static void failing_is_received(void **state)
{
	const struct pawl_err why = {.code = PAWL_ENOMEM, .msg = "no memory\nat rank 0"};

	for (uint32_t giver = 0; giver < 3; giver++) { /* 2: both */
		struct letter *sent = calloc(1, sizeof(*sent));
		struct letter *got = calloc(1, sizeof(*got));
		struct pair p;

		open_pair(&p);
		for (uint32_t n = 0; sent->message.len_bytes < 1000; n++) {
			write_letter(sent, n, false);
			write_letter(got, n, true);
		}
		coll_control_post(&p.controls[0], &sent->message);
		coll_control_post(&p.controls[1], &got->message);
		while (got->message.done_bytes == 0) {
			carry(&p, 0);
			carry(&p, 1);
		}
		if (got->message.done_bytes == got->message.len_bytes) {
			giver = 3; /* the message went in one piece: nothing to give up */
		}
		if (giver == 0 || giver == 2) {
			assert_ptr_equal(coll_control_give_up(&p.controls[0]), &sent->message);
			free(sent);
			sent = NULL;
		}
		if (giver == 1 || giver == 2) {
			assert_ptr_equal(coll_control_give_up(&p.controls[1]), &got->message);
			free(got);
			got = NULL;
		}
		coll_control_fail(&p.controls[0], &why);
		carry_all(&p);
		assert_int_equal(p.controls[1].failure.code, PAWL_ENOMEM);
		assert_string_equal(p.controls[1].failure.msg, "no memory?at rank 0");
		close_pair(&p);
		free(sent);
		free(got);
	}
}

/* A failure is passed on to a third rank too: that rank may see this one end before it receives the
 * failure from the first. */
static void a_received_failure_is_passed_on(void **state)
{
	struct pair p;
	struct pawl_err why;

	open_pair(&p);
	coll_control_deinit(&p.controls[1]);
	assert_int_equal(coll_control_init(&p.controls[1], 1, 3, NULL), 0);
	pawl_err_set(&why, PAWL_EPEER, "rank 7 is lost");
	coll_control_fail(&p.controls[0], &why);
	assert_false(coll_control_pending(&p.controls[1], 2));
	carry_all(&p);
	assert_true(coll_control_pending(&p.controls[1], 2));
	assert_string_equal(p.controls[1].failure.msg, "rank 7 is lost");
	close_pair(&p);
}

/* Notices arrive, also after a failure; of several that were not sent yet, the last. */
static void notices_are_received(void **state)
{
	uint8_t notice[CONTROL_NOTICE_MAX] = {1, 2, 3};
	const uint8_t *got;
	struct pawl_err err;
	struct pair p;
	size_t len;

	open_pair(&p);
	assert_null(coll_control_last_notice(&p.controls[1], 0, &len));
	fault_arm("coll.control", 1, ENOMEM, false);
	assert_int_equal(coll_control_send_notice(&p.controls[1], 0, notice, 3, NULL), PAWL_ENOMEM);
	fault_disarm();
	assert_int_equal(coll_control_send_notice(&p.controls[0], 1, notice, 3, NULL), 0);
	assert_true(coll_control_pending(&p.controls[0], 1));
	carry_all(&p);
	assert_false(coll_control_pending(&p.controls[0], 1));
	got = coll_control_last_notice(&p.controls[1], 0, &len);
	assert_int_equal(len, 3);
	assert_memory_equal(got, notice, 3);
	pawl_err_set(&err, PAWL_EPEER, "it is over");
	coll_control_fail(&p.controls[0], &err);
	assert_int_equal(coll_control_send_notice(&p.controls[0], 1, notice, 3, NULL), 0);
	notice[0] = 9;
	assert_int_equal(coll_control_send_notice(&p.controls[0], 1, notice, sizeof(notice), NULL),
		0);
	carry_all(&p);
	assert_int_equal(p.controls[1].failure.code, PAWL_EPEER);
	got = coll_control_last_notice(&p.controls[1], 0, &len);
	assert_int_equal(len, sizeof(notice));
	assert_memory_equal(got, notice, sizeof(notice));
	assert_null(coll_control_last_notice(&p.controls[0], 1, &len));
	close_pair(&p);
}

/* Heartbeats go on after a failure: a rank that has yet to go on without the lost one must not be
 * taken for lost too. */
static void signs_of_life_go_on_after_a_failure(void **state)
{
	struct pawl_err err;
	struct pair p;

	open_pair(&p);
	pawl_err_set(&err, PAWL_EPEER, "it is over");
	coll_control_fail(&p.controls[0], &err);
	carry_all(&p);
	assert_false(carry(&p, 0));
	coll_control_heartbeat(&p.controls[0], "", 0);
	assert_true(carry(&p, 0));
	close_pair(&p);
}

/* The bytes of a message that was asked for and given up do not mix with what follows. */
static void what_was_asked_for_and_given_up_is_skipped(void **state)
{
	struct letter sent;
	struct letter got;
	struct pawl_err err;
	struct pair p;
	size_t len;
	uint32_t n = 0;

	do {
		write_letter(&sent, n, false);
		write_letter(&got, n++, true);
	} while (sent.message.len_bytes < 2 * CONTROL_HEADER_BYTES);
	open_pair(&p);
	coll_control_post(&p.controls[0], &sent.message);
	coll_control_post(&p.controls[1], &got.message);
	while (carry(&p, 0)) { /* the offer */
	}
	while (carry(&p, 1)) { /* the request for it */
	}
	pawl_err_set(&err, PAWL_EPEER, "it is over");
	coll_control_fail(&p.controls[1], &err);
	assert_ptr_equal(coll_control_give_up(&p.controls[1]), &got.message);
	while (carry(&p, 0)) { /* rank 0 has not received the failure */
	}
	assert_int_equal(coll_control_send_notice(&p.controls[0], 1, "note", 4, NULL), 0);
	carry_all(&p);
	assert_non_null(coll_control_last_notice(&p.controls[1], 0, &len));
	assert_int_equal(len, 4);
	close_pair(&p);
}

static void heartbeats_carry_a_status(void **state)
{
	uint8_t status[CONTROL_STATUS_MAX];
	struct pair p;
	size_t len;

	memset(status, 7, sizeof(status));
	open_pair(&p);
	assert_null(coll_control_status(&p.controls[1], 0, &len));
	coll_control_heartbeat(&p.controls[0], status, sizeof(status));
	carry_all(&p);
	assert_memory_equal(coll_control_status(&p.controls[1], 0, &len), status, sizeof(status));
	assert_int_equal(len, sizeof(status));
	assert_true(p.controls[1].status_received);
	coll_control_heartbeat(&p.controls[0], "more", 4);
	coll_control_leave(&p.controls[0], 5); /* received after the heartbeat */
	while (!coll_control_left(&p.controls[1], 0, &(uint64_t){0}) && carry(&p, 0)) {
	}
	assert_memory_equal(coll_control_status(&p.controls[1], 0, &len), "more", 4);
	assert_int_equal(len, 4);
	close_pair(&p);
}

/* Frames that no rank sends: kind, id, a, b. */
static void frames_that_are_none(void **state)
{
	const uint64_t frames[][4] = {
		{0, 0, 0, 0}, {8, 0, 0, 0}, {2, 5, 0, 0}, /* asks for what it was not offered */
		{3, 5, 0, 10},                            /* sends data that it was not asked for */
		{4, 0, 0, CONTROL_STATUS_MAX + 1}, /* a heartbeat with a status that is too long */
		{6, 0, 0, 10},                     /* a failure without a code */
		{6, 0, 1, 0},                      /* … without a text */
		{6, 0, 1, 100000},                 /* … whose text is too long */
		{7, 0, 0, 0},                      /* an empty notice */
		{7, 0, 0, CONTROL_NOTICE_MAX + 1}, /* … that is too long */
	};

	for (size_t i = 0; i < sizeof(frames) / sizeof(*frames); i++) {
		uint8_t header[CONTROL_HEADER_BYTES] = {(uint8_t)frames[i][0],
			[4] = (uint8_t)frames[i][1], [8] = (uint8_t)frames[i][2]};
		struct pair p;

		open_pair(&p);
		memcpy(header + 16, &frames[i][3], 8);
		for (size_t at = 0; at < sizeof(header); at++) {
			void *to;

			coll_control_to_receive(&p.controls[0], 1, &to);
			*(uint8_t *)to = header[at];
			coll_control_received(&p.controls[0], 1, 1);
		}
		assert_int_equal(p.controls[0].failure.code, PAWL_EPEER);
		assert_non_null(strstr(p.controls[0].failure.msg, "rank 1 is lost: it sent"));
		close_pair(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_arrive),
		cmocka_unit_test(leaving_is_received),
		cmocka_unit_test(failing_is_received),
		cmocka_unit_test(a_received_failure_is_passed_on),
		cmocka_unit_test(notices_are_received),
		cmocka_unit_test(signs_of_life_go_on_after_a_failure),
		cmocka_unit_test(what_was_asked_for_and_given_up_is_skipped),
		cmocka_unit_test(heartbeats_carry_a_status),
		cmocka_unit_test(frames_that_are_none),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
