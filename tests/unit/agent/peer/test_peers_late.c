/* Links between agents, one end of which does nothing: the other gives it up, with a reason. Times
 * are short here; a call that must succeed is made again if this process stood still meanwhile. */
#include "test_peers_world.h"
#include "times.h"

#include <poll.h>

#define TRIES 5

/* Opens a link to an address; tries again if that was too slow. */
static struct peer_link *open_to(const char *address)
{
	struct peer_link *link = NULL;
	int rv = PAWL_ETIMEDOUT;

	for (int i = 0; i < TRIES && rv == PAWL_ETIMEDOUT; i++) {
		rv = link_to(&link, address, &err);
	}
	assert_int_equal(rv, 0);
	return link;
}

static void listen_only(int *fd, char address[PEER_ADDRESS_MAX])
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);

	*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(*fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(*fd, 1), 0);
	assert_int_equal(getsockname(*fd, (struct sockaddr *)&at, &len), 0);
	snprintf(address, PEER_ADDRESS_MAX, "127.0.0.1:%u", ntohs(at.sin_port));
}

/* The kernel connects, and nobody sends a greeting. */
static void a_server_without_a_greeting_is_given_up(void **state)
{
	char address[PEER_ADDRESS_MAX];
	struct peer_link *link = NULL;
	int fd;

	listen_only(&fd, address);
	FAILS(PAWL_ETIMEDOUT, link_to(&link, address, &err));
	SAYS(address);
	assert_null(link);
	close(fd);
}

static void answer_nothing(struct rogue *rogue, int fd)
{
	rogue_greet(rogue, fd);
	rogue_wait(rogue);
}

static void a_server_that_never_answers_is_given_up(void **state)
{
	struct peer_link *link;
	struct peer_msg reply;
	struct rogue rogue;

	start_rogue(&rogue, answer_nothing);
	link = open_to(rogue.address);
	FAILS(PAWL_ETIMEDOUT, note(link, PEER_NOTE_READ, "a", NULL, PEER_NOTE, &reply));
	SAYS("sends nothing for 0.3 s");
	SAYS(rogue.address);
	peer_link_close(link);
	end_rogue(&rogue);
}

static void answer_half(struct rogue *rogue, int fd)
{
	static const uint8_t half[] = {100, 0, 0, 0, PEER_NOTE, 96, 0, 0, 0, 'h'};

	rogue_greet(rogue, fd);
	rogue_receive(rogue);
	rogue_send_bytes(rogue, half, sizeof(half));
	rogue_wait(rogue);
}

static void half_an_answer_is_given_up(void **state)
{
	struct peer_link *link;
	struct peer_msg reply;
	struct rogue rogue;

	start_rogue(&rogue, answer_half);
	link = open_to(rogue.address);
	FAILS(PAWL_ETIMEDOUT, note(link, PEER_NOTE_READ, "a", NULL, PEER_NOTE, &reply));
	peer_link_close(link);
	end_rogue(&rogue);
}

/* Reads nothing. The end of a connection whose bytes nobody takes does not arrive either. */
static void read_nothing(struct rogue *rogue, int fd)
{
	struct pollfd ends = {rogue->stop_fd, POLLIN, 0};

	rogue_greet(rogue, fd);
	while (poll(&ends, 1, -1) <= 0) {
	}
	peer_stream_deinit(&rogue->stream);
}

static void a_server_that_reads_nothing_is_given_up(void **state)
{
	struct within within = within_begin(WITHIN_LONG_S);
	uint8_t *block = calloc(1, PEER_BLOCK);
	struct peer_link *link;
	struct rogue rogue;
	int rv = 0;

	assert_non_null(block);
	start_rogue(&rogue, read_nothing);
	link = open_to(rogue.address);
	while (rv == 0) {
		const struct peer_msg bytes = {.kind = PEER_PUT_BYTES,
			.blob = block,
			.blob_bytes = PEER_BLOCK};

		rv = peer_link_send(link, &bytes, &err);
		within_check(&within, "an error", __FILE__, __LINE__);
	}
	assert_int_equal(rv, PAWL_ETIMEDOUT);
	SAYS("takes nothing for 0.3 s");
	peer_link_close(link);
	end_rogue(&rogue);
	free(block);
}

/* Reads a little at a time, each time just before it would be given up; the whole takes longer. */
static void read_slowly(struct rogue *rogue, int fd)
{
	const struct peer_msg ok = {.kind = PEER_OK};

	rogue_greet(rogue, fd);
	for (int i = 0; i < 3; i++) {
		within_pace(0.1);
		rogue_receive(rogue);
	}
	within_pace(0.1);
	rogue_send(rogue, &ok);
	rogue_wait(rogue);
}

static void progress_restarts_the_clock(void **state)
{
	uint8_t *block = calloc(1, 32 * PEER_BLOCK);
	struct peer_link *link = NULL;
	struct peer_msg reply;
	int rv = PAWL_ETIMEDOUT;

	assert_non_null(block);
	for (int i = 0; i < TRIES && rv == PAWL_ETIMEDOUT; i++) {
		const struct peer_msg note = {.kind = PEER_NOTE_WRITE,
			.root = ROOT,
			.path = "a",
			.blob = block,
			.blob_bytes = 32 * PEER_BLOCK};
		struct rogue rogue;

		start_rogue(&rogue, read_slowly);
		link = open_to(rogue.address);
		rv = 0;
		for (int k = 0; k < 3 && rv == 0; k++) {
			rv = peer_link_send(link, &note, &err);
		}
		rv = rv == 0 ? peer_link_receive(link, &reply, &err) : rv;
		peer_link_close(link);
		end_rogue(&rogue);
	}
	assert_int_equal(rv, 0);
	free(block);
}

/* ---- clients ---- */

static void a_stranger_without_a_greeting_is_closed(void **state)
{
	int fd = connect_raw(there);

	await_close(fd);
	close(fd);
}

/* Drips bytes: that is no progress of a stranger, whose time is limited as a whole. */
static void a_stranger_that_drips_is_closed(void **state)
{
	static const char greeting[] = "pawl-a\x01\x01";
	int fd = connect_raw(there);
	size_t sent = 0;
	char byte;

	assert_int_equal(recv(fd, &byte, 1, 0), 1);
	WITHIN_DOING(WITHIN_LONG_S,
		     send(fd, sent < 8 ? &greeting[sent] : "\x16", 1, MSG_NOSIGNAL) < 0, sent++;
		     within_pace(0.2));
	close(fd);
}

static void a_stranger_without_a_hello_is_closed(void **state)
{
	struct peer_stream stream;

	start_stream(&stream, there);
	await_close(stream.fd);
	end_stream(&stream);
}

/* Connects as a link does, up to the answer to PEER_HELLO. */
static void send_hello(struct peer_stream *stream)
{
	const struct peer_msg hello = {.kind = PEER_HELLO, .version = PEER_VERSION, .job = "gpt"};
	struct peer_msg reply;

	start_stream(stream, there);
	OK(peer_stream_send(stream, &hello, &err));
	OK(peer_stream_flush(stream, &err));
	OK(peer_stream_receive(stream, &reply, within_ns(WITHIN_LONG_S), PEER_BODY_MAX, &err));
	assert_int_equal(reply.kind, PEER_OK);
}

static void a_client_that_sends_half_a_message_is_closed(void **state)
{
	struct peer_link *link = open_to(peers_address(there));
	struct peer_stream stream;

	send_hello(&stream);
	send_bytes(&stream, "\x40\x00", 2);
	await_close(stream.fd);
	end_stream(&stream);
	assert_works(link);
	peer_link_close(link);
}

/* A link that has nothing to ask stays. */
static void a_client_may_be_idle(void **state)
{
	struct peer_link *link = open_to(peers_address(there));

	within_pace(0.8);
	assert_works(link);
	peer_link_close(link);
}

/* A client that takes no answers is closed, and what it was reading is released. */
static void a_client_that_reads_nothing_is_closed(void **state)
{
	struct peer_msg read = {.kind = PEER_NOTE_READ, .root = ROOT, .path = "a"};
	uint8_t *block = calloc(1, 32 * PEER_BLOCK);
	struct peer_stream stream;

	assert_non_null(block);
	OK(notes_write(peers_notes(there), ROOT, "a", block, 32 * PEER_BLOCK, &err));
	send_hello(&stream);
	OK(peer_stream_send(&stream, &read, &err));
	OK(peer_stream_flush(&stream, &err));
	within_pace(0.8);
	await_close(stream.fd);
	end_stream(&stream);
	free(block);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_server_without_a_greeting_is_given_up, begin,
			end),
		cmocka_unit_test_setup_teardown(a_server_that_never_answers_is_given_up, begin,
			end),
		cmocka_unit_test_setup_teardown(half_an_answer_is_given_up, begin, end),
		cmocka_unit_test_setup_teardown(a_server_that_reads_nothing_is_given_up, begin,
			end),
		cmocka_unit_test_setup_teardown(progress_restarts_the_clock, begin, end),
		cmocka_unit_test_setup_teardown(a_stranger_without_a_greeting_is_closed, begin,
			end),
		cmocka_unit_test_setup_teardown(a_stranger_that_drips_is_closed, begin, end),
		cmocka_unit_test_setup_teardown(a_stranger_without_a_hello_is_closed, begin, end),
		cmocka_unit_test_setup_teardown(a_client_that_sends_half_a_message_is_closed, begin,
			end),
		cmocka_unit_test_setup_teardown(a_client_may_be_idle, begin, end),
		cmocka_unit_test_setup_teardown(a_client_that_reads_nothing_is_closed, begin, end),
	};
	const struct sigaction ignore = {.sa_handler = SIG_IGN};

	sigaction(SIGPIPE, &ignore, NULL); /* as every program with an agent has it */
	test_times("peer_answer=0.3,peer_connect=1,peer_next=0.05,net_goodbye=0.2");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
