/* Ends of links that are refused, leave in mid-answer, or send anything at all: each gets a reason
 * in plain words, and does no harm to others. */
#include "base/rng.h"
#include "seed.h"
#include "test_peers_world.h"
#include "times.h"

#include <sys/resource.h>

#define TRIES 3 /* attempts; one is void if this process stood still meanwhile */

/* ---- ends that are refused ---- */

static void be_refused(const char *address, const char *why)
{
	struct peer_link *link = NULL;

	FAILS(PAWL_EPEER, link_to(&link, address, &err));
	SAYS(address);
	SAYS(why);
	assert_null(link);
}

static void other_jobs_are_refused(void **state)
{
	peers_close(there);
	there = open_peers("bert", TOKEN);
	be_refused(peers_address(there), "the agent of job bert was asked by one of job gpt");
}

static void tokens_must_be_the_same(void **state)
{
	static const struct {
		const char *here, *there, *why;
	} cases[] = {{TOKEN, "sixteen bytes and more!", "its token is a different one"},
		{TOKEN, NULL, "it has no token, and this host has one (PAWL_TOKEN)"},
		{NULL, TOKEN, "it has a token, and this host has none (PAWL_TOKEN)"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		end(NULL);
		here = open_peers("gpt", cases[i].here);
		there = open_peers("gpt", cases[i].there);
		be_refused(peers_address(there), cases[i].why);
	}
	end(NULL);
	here = open_peers("gpt", NULL);
	there = open_peers("gpt", NULL);
	peer_link_close(open_link());
}

static void serve_another_program(struct rogue *rogue, int fd)
{
	ASSERT(send(fd, "SSH-2.0-OpenSSH_9.2p1\r\n", 23, MSG_NOSIGNAL) == 23);
	await_close(fd);
	close(fd);
}

static void serve_another_version(struct rogue *rogue, int fd)
{
	ASSERT(send(fd, "pawl-a\x09\x01", 8, MSG_NOSIGNAL) == 8);
	await_close(fd);
	close(fd);
}

static void serve_nothing(struct rogue *rogue, int fd)
{
	close(fd);
}

static void other_programs_are_refused(void **state)
{
	static const struct {
		void (*serve)(struct rogue *rogue, int fd);
		const char *why;
	} cases[] = {{serve_another_program, "it is not an agent of pawl"},
		{serve_another_version, "another version of pawl (protocol 9, 1 here)"},
		{serve_nothing, "its connection ended"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rogue rogue;

		start_rogue(&rogue, cases[i].serve);
		be_refused(rogue.address, cases[i].why);
		end_rogue(&rogue);
	}
}

static void nobody_may_be_there(void **state)
{
	char address[PEER_ADDRESS_MAX];

	snprintf(address, sizeof(address), "%s", peers_address(there));
	peers_close(there);
	there = NULL;
	be_refused(address, "Connection refused");
	be_refused("localhost:80", "no numeric address");
	be_refused("127.0.0.1", "no numeric address");
	be_refused("127.0.0.1:", "no numeric address");
	be_refused("127.0.0.1:http", "no numeric address");
	be_refused(":80", "no numeric address");
	be_refused("[]:80", "no numeric address");
}

/* ---- ends that leave, or send what they like ---- */

static void leave_in_mid_answer(struct rogue *rogue, int fd)
{
	static const uint8_t half[] = {100, 0, 0, 0, PEER_NOTE, 96, 0, 0, 0, 'h'};

	rogue_greet(rogue, fd);
	rogue_receive(rogue);
	rogue_send_bytes(rogue, half, sizeof(half));
	peer_stream_deinit(&rogue->stream);
}

static void a_server_leaves_in_mid_answer(void **state)
{
	struct peer_link *link = NULL;
	struct rogue rogue;
	struct peer_msg reply;

	start_rogue(&rogue, leave_in_mid_answer);
	OK(link_to(&link, rogue.address, &err));
	FAILS(PAWL_EPEER, note(link, PEER_NOTE_READ, "a", NULL, PEER_NOTE, &reply));
	SAYS(rogue.address);
	peer_link_close(link);
	end_rogue(&rogue);
}

/* Answers with PEER_OK, and then with a note that is longer than its message. */
static void answer_wrongly(struct rogue *rogue, int fd)
{
	static const uint8_t note[] = {4, 0, 0, 0, PEER_NOTE, 0xff, 0xff, 0, 0};
	const struct peer_msg ok = {.kind = PEER_OK};

	rogue_greet(rogue, fd);
	rogue_receive(rogue);
	rogue_send(rogue, &ok);
	rogue_receive(rogue);
	rogue_send_bytes(rogue, note, sizeof(note));
	rogue_wait(rogue);
}

static void wrong_answers_are_found(void **state)
{
	struct peer_link *link = NULL;
	struct peer_msg reply;
	struct rogue rogue;

	start_rogue(&rogue, answer_wrongly);
	OK(link_to(&link, rogue.address, &err));
	FAILS(PAWL_ECORRUPT, note(link, PEER_NOTE_READ, "a", NULL, PEER_NOTE, &reply));
	SAYS("its answer has kind 64");
	FAILS(PAWL_ECORRUPT, note(link, PEER_NOTE_READ, "a", NULL, PEER_NOTE, &reply));
	SAYS("is invalid");
	peer_link_close(link);
	end_rogue(&rogue);
}

/* Refuses what is put here, and closes while the client still sends. */
static void refuse_and_close(struct rogue *rogue, int fd)
{
	const struct peer_msg refusal = {.kind = PEER_ERROR,
		.code = PAWL_ENOSPC,
		.text = "this host leaves"};

	rogue_greet(rogue, fd);
	rogue_receive(rogue);
	rogue_send(rogue, &refusal);
	peer_stream_deinit(&rogue->stream);
}

static void the_reason_of_a_server_that_left_is_found(void **state)
{
	struct within within = within_begin(WITHIN_LONG_S);
	uint8_t *block = calloc(1, PEER_BLOCK);
	struct peer_link *link = NULL;
	struct rogue rogue;
	int rv = 0;

	assert_non_null(block);
	start_rogue(&rogue, refuse_and_close);
	OK(link_to(&link, rogue.address, &err));
	while (rv == 0) {
		const struct peer_msg bytes = {.kind = PEER_PUT_BYTES,
			.blob = block,
			.blob_bytes = PEER_BLOCK};

		rv = peer_link_send(link, &bytes, &err);
		within_check(&within, "an error", __FILE__, __LINE__);
	}
	assert_int_equal(rv, PAWL_ENOSPC);
	assert_string_equal(err.msg, "this host leaves");
	free(block);
	peer_link_close(link);
	end_rogue(&rogue);
}

/* Strangers send any bytes, in pieces, and leave at any time; links are not affected. */
static void strangers_do_no_harm(void **state)
{
	struct peer_link *link = open_link();
	struct rng rng = {test_seed()};
	uint8_t bytes[600];

	for (uint32_t i = 0; i < 60; i++) {
		size_t len = rng_below(&rng, sizeof(bytes));
		int fd = connect_raw(there);

		for (size_t b = 0; b < len; b++) {
			bytes[b] = (uint8_t)rng_u64(&rng);
		}
		memcpy(bytes, "pawl-a\x01\x01\x16\x03\x01", rng_below(&rng, 12));
		for (size_t at = 0; at < len;) {
			size_t n = 1 + rng_below(&rng, len - at);

			at += n;
			if (send(fd, bytes + at - n, n, MSG_NOSIGNAL) < 0) {
				break; /* sent away */
			}
		}
		assert_works(link);
		close(fd);
	}
	peer_link_close(link);
}

/* A client with the token may still send what is no message. The last answer says so. */
static void garbage_over_tls_is_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t len_bytes;
		const char *why;
	} cases[] = {{"\xff\xff\xff\xff\x02", 5, "4294967295 bytes"},
		{"\x00\x00\x00\x20\x02", 5, "536870912 bytes"},
		{"\x01\x00\x00\x00\x01z", 6, "is invalid"},
		{"\x00\x00\x00\x00\x07", 5, "did not begin with its job"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct peer_stream stream;
		struct peer_msg reply;

		start_stream(&stream, there);
		send_bytes(&stream, cases[i].bytes, cases[i].len_bytes);
		OK(peer_stream_receive(&stream, &reply, within_ns(WITHIN_LONG_S), PEER_BODY_MAX,
			&err));
		assert_int_equal(reply.kind, PEER_ERROR);
		assert_int_equal(reply.code, PAWL_ECORRUPT);
		assert_non_null(strstr(reply.text, cases[i].why));
		FAILS(PAWL_EPEER,
			peer_stream_receive(&stream, &reply, within_ns(WITHIN_LONG_S),
				PEER_BODY_MAX, &err));
		end_stream(&stream);
	}
}

/* The server discards what still comes, so that the client can read why. */
static void a_refused_client_may_still_send(void **state)
{
	uint8_t *bytes = calloc(1, 8 * PEER_BLOCK);
	int rv = PAWL_EPEER;
	bool late = true;

	assert_non_null(bytes);
	memset(bytes, 0xff, PEER_HEADER);
	for (int i = 0; i < TRIES && rv != 0 && late; i++) {
		int64_t begun_ns = clock_mono_ns();
		struct peer_stream stream;
		struct peer_msg reply;

		start_stream(&stream, there);
		wire_put_raw(&stream.out, bytes, 8 * PEER_BLOCK);
		rv = peer_stream_flush(&stream, &err);
		if (rv == 0) {
			OK(peer_stream_receive(&stream, &reply, within_ns(WITHIN_LONG_S),
				PEER_BODY_MAX, &err));
			assert_int_equal(reply.kind, PEER_ERROR);
		}
		end_stream(&stream);
		late = clock_mono_ns() - begun_ns >= times_ns(TIME_NET_GOODBYE);
	}
	assert_int_equal(rv, 0);
	free(bytes);
}

static void a_server_s_message_is_no_request(void **state)
{
	struct peer_link *link = open_link();
	const struct peer_msg ok = {.kind = PEER_OK};
	const struct peer_msg hello = {.kind = PEER_HELLO, .version = PEER_VERSION, .job = "gpt"};
	struct peer_msg reply;

	FAILS(PAWL_ECORRUPT, peer_link_call(link, &ok, PEER_OK, &reply, &err));
	SAYS("as a request");
	peer_link_close(link);
	link = open_link();
	FAILS(PAWL_ECORRUPT, peer_link_call(link, &hello, PEER_OK, &reply, &err)); /* again */
	peer_link_close(link);
}

/* Too many strangers are disconnected at once, the oldest first; links go on. */
static void strangers_make_room(void **state)
{
	enum { CROWD = 2 * PEER_HOSTS_MAX + 5 };
	struct rlimit limit;
	struct peer_link *link = open_link();
	int *fds = calloc(CROWD, sizeof(*fds));

	assert_non_null(fds);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_max < 4096) {
		free(fds);
		peer_link_close(link);
		skip();
		return;
	}
	limit.rlim_cur = 4096;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (size_t i = 0; i < CROWD; i++) {
		char byte;

		fds[i] = connect_raw(there);
		assert_int_equal(recv(fds[i], &byte, 1, 0), 1); /* the greeting */
	}
	await_close(fds[0]);
	await_close(fds[5]); /* with the link, six are too many */
	within_quiet(0.2);
	for (size_t i = 6; i < CROWD; i++) {
		assert_false(is_closed(fds[i]));
	}
	assert_works(link);
	for (size_t i = 0; i < CROWD; i++) {
		close(fds[i]);
	}
	peer_link_close(link);
	link = open_link();
	peer_link_close(link);
	free(fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(other_jobs_are_refused, begin, end),
		cmocka_unit_test_setup_teardown(tokens_must_be_the_same, begin, end),
		cmocka_unit_test_setup_teardown(other_programs_are_refused, begin, end),
		cmocka_unit_test_setup_teardown(nobody_may_be_there, begin, end),
		cmocka_unit_test_setup_teardown(a_server_leaves_in_mid_answer, begin, end),
		cmocka_unit_test_setup_teardown(wrong_answers_are_found, begin, end),
		cmocka_unit_test_setup_teardown(the_reason_of_a_server_that_left_is_found, begin,
			end),
		cmocka_unit_test_setup_teardown(strangers_do_no_harm, begin, end),
		cmocka_unit_test_setup_teardown(garbage_over_tls_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(a_refused_client_may_still_send, begin, end),
		cmocka_unit_test_setup_teardown(a_server_s_message_is_no_request, begin, end),
		cmocka_unit_test_setup_teardown(strangers_make_room, begin, end),
	};
	const struct sigaction ignore = {.sa_handler = SIG_IGN};

	sigaction(SIGPIPE, &ignore, NULL); /* as every program with an agent has it */
	test_times("peer_connect=100");    /* strangers stay until they are sent away */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
