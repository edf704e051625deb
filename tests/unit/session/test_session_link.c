/* The connection to the agent is replaced while other threads use it: none of them touches freed
 * memory, another file's descriptor, or a connection that the agent has not welcomed yet. */
#include "ipc/link.h"
#include "test_session_state.h"

#include <pthread.h>
#include <stdatomic.h>

#define REPLACED 12 /* agents that end while threads call the session */

/* ---- the link ---- */

static void ignore(void *user, struct link *link, uint16_t type, const union frame_event *event)
{
}

/* Listens at sock, and never answers. */
static int listen_mute(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(addr.sun_path, sock, strlen(sock) + 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static int setup_dir(void **state)
{
	make_dir();
	return 0;
}

/* A call that waits for an answer, with a reference of its own. */
struct waiting {
	struct link *link;
	atomic_bool sent; /* the request was sent */
	int rv;           /* result of link_await */
};

static void *call_and_release(void *user)
{
	struct waiting *waiting = user;
	struct wire_out out = {0};
	struct link_reply reply = {0};
	struct link_call call;

	assert_int_equal(link_request(waiting->link, &call, &out, PROTO_LIST, NULL, &reply, NULL),
		0);
	waiting->sent = true;
	waiting->rv = link_await(waiting->link, &call, -1, NULL);
	link_release(waiting->link);
	wire_out_deinit(&out);
	link_reply_deinit(&reply);
	return NULL;
}

static void a_closed_link_stays_for_its_holders(void **state)
{
	struct waiting waiting = {0};
	struct wire_out out = {0};
	int listener = listen_mute();
	struct link *link;
	struct pawl_err err;
	pthread_t thread;

	assert_int_equal(link_open(&link, sock, ignore, NULL, &err), 0);
	waiting.link = link_hold(link);
	link_hold(link); /* the test's own, for use after link_close */
	assert_int_equal(pthread_create(&thread, NULL, call_and_release, &waiting), 0);
	WITHIN(WITHIN_LONG_S, waiting.sent);
	link_close(link);
	pthread_join(thread, NULL);
	assert_int_equal(waiting.rv, PAWL_EPEER);
	assert_false(link_alive(link));
	assert_int_equal(link_send(link, &out, PROTO_DONE, NULL, &err), PAWL_EPEER);
	link_release(link);
	wire_out_deinit(&out);
	close(listener);
}

/* ---- the session ---- */

struct callers {
	struct pawl_ckpt *ckpt;
	atomic_bool over;         /* the threads end */
	atomic_uint_fast64_t id;  /* newest save */
	atomic_uint_fast64_t did; /* calls made */
};

static void *wait_and_flush(void *user)
{
	struct callers *callers = user;

	while (!callers->over) {
		pawl_ckpt_wait(callers->ckpt, callers->id, PAWL_CKPT_DURABLE, 5, NULL);
		pawl_ckpt_flush(callers->ckpt, 5, NULL);
		callers->did++;
	}
	return NULL;
}

static void *list_and_stop(void *user)
{
	struct pawl_ckpt_pending pending[PAWL_CKPT_PENDING_MAX];
	struct callers *callers = user;
	uint32_t n;

	while (!callers->over) {
		pawl_ckpt_pending(callers->ckpt, pending, &n, NULL);
		pawl_ckpt_stop(callers->ckpt);
		pawl_ckpt_report_imports(callers->ckpt, "os", 2, NULL);
		callers->did++;
	}
	return NULL;
}

static void the_agent_is_replaced_under_callers(void **state)
{
	static void *(*const calls[])(void *) = {wait_and_flush, list_and_stop, wait_and_flush};
	struct callers callers = {.ckpt = join(0, 1, 0)};
	struct state saved = {.big = malloc(BIG)};
	pthread_t threads[3];
	struct pawl_err err;
	uint64_t id;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, calls[i], &callers), 0);
	}
	for (uint64_t step = 1; step <= REPLACED; step++) {
		uint64_t before = callers.did;

		fill(&saved, step, 0);
		WITHIN_DOING(WITHIN_LONG_S, save(callers.ckpt, &saved, step, false, &id, &err) == 0,
			within_pace(0.005));
		callers.id = id;
		WITHIN(WITHIN_LONG_S, callers.did >= before + 3);
		kill_agent();
		start_agent();
	}
	callers.over = true;
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
	}
	pawl_ckpt_close(callers.ckpt, WAIT_MS, NULL);
	free(saved.big);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_closed_link_stays_for_its_holders, setup_dir,
			teardown),
		cmocka_unit_test_setup_teardown(the_agent_is_replaced_under_callers, setup,
			teardown),
	};

	if (argc == 2 && strcmp(argv[0], "agent") == 0) {
		return run_agent(argv[1]);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
