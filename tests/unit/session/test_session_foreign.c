/* What the agent does with frames that no worker of this version sends: it names another version,
 * closes the connection on malformed frames, and goes on serving the others. */
#include "ipc/frames.h"
#include "test_session_agent.h"

#include <poll.h>

static int connect_raw(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	await_agent(sock);
	memcpy(addr.sun_path, sock, strlen(sock) + 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

/* Sends a frame whose body is the first len_bytes of what body encodes to, and more zeros. */
static void send_part(int fd, enum proto_type type, const void *body, size_t len_bytes, size_t more)
{
	struct wire_out whole = {0}, out = {0};
	size_t start = proto_start(&out, type, 1);

	frame_encode(&whole, type, body);
	assert_false(whole.failed);
	wire_put_raw(&out, whole.bytes, len_bytes < whole.len_bytes ? len_bytes : whole.len_bytes);
	while (more-- > 0) {
		wire_put_u8(&out, 0);
	}
	proto_end(&out, start);
	assert_int_equal(proto_send(fd, &out, NULL, 0, NULL), 0);
	wire_out_deinit(&whole);
	wire_out_deinit(&out);
}

static void send_whole(int fd, enum proto_type type, const void *body)
{
	send_part(fd, type, body, SIZE_MAX, 0);
}

/* Returns whether the agent closed the connection without sending a frame. */
static bool hangs_up(int fd)
{
	struct pollfd poller = {.fd = fd, .events = POLLIN};
	char byte;

	assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
	return recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

static struct frame_hello greeting(const char *path)
{
	struct frame_hello hello = {.version = PROTO_VERSION, .world = 1, .keep = 1, .ranks = 1};

	snprintf(hello.job, sizeof(hello.job), "test");
	snprintf(hello.root, sizeof(hello.root), "%s", path);
	return hello;
}

static void receive(struct proto_conn *conn, struct proto_frame *frame)
{
	int rv;

	while ((rv = proto_next(conn, frame, NULL)) == 0) {
		assert_int_equal(proto_fill(conn, NULL), 1);
	}
	assert_int_equal(rv, 1);
}

/* Returns the connection of a rank that was welcomed. */
static struct proto_conn welcomed(const char *path)
{
	const struct frame_hello hello = greeting(path);
	struct proto_conn conn = {.fd = connect_raw()};
	struct proto_frame frame;

	send_whole(conn.fd, PROTO_HELLO, &hello);
	receive(&conn, &frame);
	assert_int_equal(frame.type, PROTO_WELCOME);
	return conn;
}

static void another_version_is_named(void **state)
{
	struct frame_hello hello = greeting(root);
	struct proto_conn conn = {.fd = connect_raw()};
	struct proto_frame frame;
	struct frame_error error;

	hello.version = PROTO_VERSION - 1;
	send_part(conn.fd, PROTO_HELLO, &hello, 10, 3); /* fields of that version */
	receive(&conn, &frame);
	assert_int_equal(frame.type, PROTO_ERROR);
	assert_true(frame_decode(&frame.body, PROTO_ERROR, &error, sizeof(error)));
	assert_int_equal(error.code, PAWL_ENOTSUP);
	assert_non_null(strstr(error.text, "speaks protocol"));
	proto_conn_close(&conn);
}

static void nonsense_before_a_greeting_ends_the_connection(void **state)
{
	static const enum proto_type types[] = {PROTO_BEGIN, PROTO_LIST, PROTO_NOTICE, PROTO_OK,
		PROTO_GRANT, PROTO_FROM_MEMORY, PROTO_FETCH, PROTO_FROM_PEERS, PROTO_LEVEL};
	const struct frame_hello hello = greeting(root);
	static const uint64_t zeros[1024]; /* larger than any struct of a frame */
	struct proto_conn good;
	int fd;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		fd = connect_raw();
		send_whole(fd, types[i], zeros);
		assert_true(hangs_up(fd));
		close(fd);
	}
	fd = connect_raw();
	send_part(fd, PROTO_HELLO, &hello, 40, 0);
	assert_true(hangs_up(fd));
	close(fd);
	fd = connect_raw();
	send_part(fd, PROTO_HELLO, &hello, SIZE_MAX, 1);
	assert_true(hangs_up(fd));
	close(fd);
	good = welcomed(root); /* the agent lives, and the rank is free */
	proto_conn_close(&good);
}

static void malformed_frame_of_a_rank_ends_it_alone(void **state)
{
	const struct frame_begin bad = {.step = 1, .need_bytes = 1, .tag = "../up"};
	const struct frame_vote vote = {.why = "because"};
	const struct frame_poll_count poll_count = {.question = QUESTIONS_N};
	struct proto_conn other, conn;
	struct proto_frame frame;
	char path[128];

	snprintf(path, sizeof(path), "%s/another root", dir);
	other = welcomed(path);
	conn = welcomed(root);
	send_whole(conn.fd, PROTO_BEGIN, &bad);
	assert_true(hangs_up(conn.fd));
	proto_conn_close(&conn);
	conn = welcomed(root);
	send_part(conn.fd, PROTO_VOTE, &vote, 5, 0);
	assert_true(hangs_up(conn.fd));
	proto_conn_close(&conn);
	conn = welcomed(root);
	send_whole(conn.fd, PROTO_POLL_COUNT, &poll_count);
	assert_true(hangs_up(conn.fd));
	proto_conn_close(&conn);
	send_whole(other.fd, PROTO_LIST, NULL);
	receive(&other, &frame);
	assert_int_equal(frame.type, PROTO_LISTED);
	proto_conn_close(&other);
}

/* Sends a frame, and expects an error with this text. */
static void expect_error(struct proto_conn *conn, enum proto_type type, const void *body,
	const char *text)
{
	struct proto_frame frame;
	struct frame_error error;

	send_whole(conn->fd, type, body);
	receive(conn, &frame);
	assert_int_equal(frame.type, PROTO_ERROR);
	assert_true(frame_decode(&frame.body, PROTO_ERROR, &error, sizeof(error)));
	assert_int_equal(error.code, PAWL_EINVAL);
	assert_non_null(strstr(error.text, text));
}

static void what_makes_no_sense_is_an_error(void **state)
{
	const struct frame_fetch fetch = {.rank = 0, .hi = 1};
	struct frame_hello hello = greeting(root);
	struct proto_conn conn = {.fd = connect_raw()};

	hello.replicas = 9;
	expect_error(&conn, PROTO_HELLO, &hello, "9 replicas: at most 8");
	proto_conn_close(&conn);
	conn.fd = connect_raw();
	hello.replicas = 4;
	hello.parity = true;
	expect_error(&conn, PROTO_HELLO, &hello, "4 replicas with parity: at most 3");
	proto_conn_close(&conn);
	conn = welcomed(root);
	expect_error(&conn, PROTO_FETCH, &fetch, "no save is being fetched");
	proto_conn_close(&conn);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(another_version_is_named, setup, teardown),
		cmocka_unit_test_setup_teardown(nonsense_before_a_greeting_ends_the_connection,
			setup, teardown),
		cmocka_unit_test_setup_teardown(malformed_frame_of_a_rank_ends_it_alone, setup,
			teardown),
		cmocka_unit_test_setup_teardown(what_makes_no_sense_is_an_error, setup, teardown),
	};

	return argc > 1 ? run_agent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
