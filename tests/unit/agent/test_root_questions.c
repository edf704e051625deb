/* Questions to the ranks of one of several hosts: what the agent asks the ranks, and what it
 * reports to its owner. Ranks are socket pairs. */
#include "agent/root.h"

#include <string.h>
#include <sys/socket.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANKS 2u

static struct agent agent;
static struct agent_root root;
static struct agent_rank ranks[RANKS];
static struct agent_conn conns[RANKS];
static struct proto_conn workers[RANKS]; /* the other ends */
static struct agent_poll reported;       /* the last report */
static uint32_t reports_n;

static void take_report(void *user, const struct agent_poll *poll)
{
	reported = *poll;
	reports_n++;
}

static void ignore(struct loop_timer *timer)
{
}

/* The second of two hosts, whose ranks have made the save of that number. */
static int set_up(void **state)
{
	memset(&agent, 0, sizeof(agent));
	memset(&root, 0, sizeof(root));
	memset(ranks, 0, sizeof(ranks));
	memset(conns, 0, sizeof(conns));
	memset(workers, 0, sizeof(workers));
	reports_n = 0;
	assert_int_equal(loop_open(&agent.loop, NULL), 0);
	agent.polled = take_report;
	agent.poll_timer.fired = ignore;
	root.agent = &agent;
	root.path = (char *)"/root";
	root.first_rank = RANKS;
	root.remote_ranks = RANKS;
	root.ledger.world = RANKS;
	root.ranks = ranks;
	root.schedule.asked_seq = 4;
	for (uint32_t r = 0; r < RANKS; r++) {
		int fds[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
		conns[r].agent = &agent;
		conns[r].root = &root;
		conns[r].io.fd = fds[0];
		conns[r].welcomed = true;
		workers[r].fd = fds[1];
		ranks[r].conn = &conns[r];
		ranks[r].asked_seq = 4;
	}
	return 0;
}

static int tear_down(void **state)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		proto_conn_close(&conns[r].io);
		proto_conn_close(&workers[r]);
	}
	wire_out_deinit(&agent.scratch);
	loop_close(agent.loop);
	return 0;
}

/* Reads the only event that each rank was sent. */
static union frame_event expect(enum proto_type type)
{
	union frame_event event = {.hold = {.seq = 0}};
	struct proto_frame frame;
	struct pawl_err err;

	for (uint32_t r = 0; r < RANKS; r++) {
		assert_true(proto_fill(&workers[r], &err) >= 0);
		assert_int_equal(proto_next(&workers[r], &frame, &err), 1);
		assert_int_equal(frame.type, type);
		assert_true(frame_decode(&frame.body, frame.type, &event, sizeof(event)));
		proto_frame_close(&frame);
		assert_int_equal(proto_next(&workers[r], &frame, &err), 0);
	}
	return event;
}

static void expect_nothing(void)
{
	char byte;

	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(recv(workers[r].fd, &byte, 1, MSG_DONTWAIT), -1);
	}
}

/* A rank's POLL_COUNT. */
static void answer(uint32_t r, enum proto_question question, uint64_t polls)
{
	conns[r].hold_answered[question] = true;
	conns[r].polls[question] = polls;
	root_settle(&root, question);
	root_report_polls(&root);
}

static void the_highest_count_here_is_reported(void **state)
{
	const struct agent_poll yes = {.path = root.path, .question = QUESTION_STOP, .polls = 12};

	root_request_stop(&root);
	assert_int_equal(expect(PROTO_HOLD).hold.question, QUESTION_STOP);
	answer(0, QUESTION_STOP, 9);
	assert_int_equal(reports_n, 0);
	answer(1, QUESTION_STOP, 7);
	assert_int_equal(reports_n, 1);
	assert_string_equal(reported.path, "/root");
	assert_int_equal(reported.question, QUESTION_STOP);
	assert_int_equal(reported.polls, 9);
	expect_nothing(); /* the hosts have not agreed yet */
	root_yes_at(&root, &yes);
	assert_int_equal(expect(PROTO_YES_AT).yes_at.polls, 12);
	/* Asked by another host, too: the ranks were asked already. */
	root_hold_too(&root, &yes);
	root_report_polls(&root);
	expect_nothing();
	assert_int_equal(reports_n, 1);
}

/* No rank is connected: none has asked, and those that connect are asked. */
static void a_host_without_ranks_answers(void **state)
{
	const struct agent_poll stop = {.path = root.path, .question = QUESTION_STOP};

	ranks[0].conn = ranks[1].conn = NULL;
	root_hold_too(&root, &stop);
	root_report_polls(&root);
	assert_int_equal(reports_n, 1);
	assert_int_equal(reported.polls, 0);
	assert_true(root.questions.hold_sent[QUESTION_STOP]);
}

/* Ranks that are behind are asked later, and those that are ahead answer. */
static void whether_a_save_is_due_is_asked_after_that_save(void **state)
{
	struct agent_poll due = {.path = root.path, .question = QUESTION_DUE, .run = 7, .seq = 5};

	root.peers.has_links = true;
	root.peers.map.run = 7;
	root_hold_too(&root, &due);
	ranks[0].asked_seq = 5;
	assert_false(root_hold_wanted(&root));
	expect_nothing();
	ranks[1].asked_seq = 6;
	assert_false(root_hold_wanted(&root));
	assert_int_equal(expect(PROTO_HOLD).hold.seq, 5);
	assert_false(root_hold_wanted(&root)); /* once */
	expect_nothing();
	answer(0, QUESTION_DUE, 20);
	answer(1, QUESTION_DUE, 21);
	assert_int_equal(reports_n, 1);
	assert_int_equal(reported.run, 7);
	assert_int_equal(reported.seq, 5);
	assert_int_equal(reported.polls, 21);
	/* Answers to other questions, then the answer. */
	due.seq = 4;
	root_yes_at(&root, &due);
	due.seq = 5;
	due.run = 8;
	root_yes_at(&root, &due);
	expect_nothing();
	due = (struct agent_poll){.path = root.path,
		.question = QUESTION_DUE,
		.run = 7,
		.seq = 5,
		.polls = 22};
	root_yes_at(&root, &due);
	assert_int_equal(expect(PROTO_YES_AT).yes_at.polls, 22);
}

/* Ranks of an earlier run count from another start. */
static void ranks_of_another_run_are_not_asked(void **state)
{
	const struct agent_poll due = {.path = root.path, .question = QUESTION_DUE, .run = 8};

	root.peers.has_links = true;
	root.peers.map.run = 7;
	root_hold_too(&root, &due);
	assert_false(root_hold_wanted(&root));
	root.peers.map.run = 0; /* the ranks begin anew */
	assert_true(root_hold_wanted(&root));
	expect_nothing();
	root.peers.map.run = 8;
	assert_false(root_hold_wanted(&root));
	assert_int_equal(expect(PROTO_HOLD).hold.seq, 0);
}

/* Rank 0's host asks once a run is known, and no other host does. */
static void rank_0s_host_asks_when_a_save_is_due(void **state)
{
	root.peers.has_links = true;
	root.schedule.due.fired = ignore;
	root_set_running(&root, true);
	assert_false(root.schedule.due.active);
	root.first_rank = 0;
	root_set_running(&root, true);
	assert_true(root.schedule.due.active);
	root_due(&root);
	expect_nothing();
	assert_true(root_hold_wanted(&root)); /* needs the run */
	root.peers.map.run = 7;
	assert_false(root_hold_wanted(&root));
	root_due(&root);
	assert_int_equal(expect(PROTO_HOLD).hold.seq, 4);
	assert_int_equal(root.questions.run, 7);
	root_set_running(&root, false);
}

#define WITH_RANKS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_RANKS(the_highest_count_here_is_reported),
		WITH_RANKS(a_host_without_ranks_answers),
		WITH_RANKS(whether_a_save_is_due_is_asked_after_that_save),
		WITH_RANKS(ranks_of_another_run_are_not_asked),
		WITH_RANKS(rank_0s_host_asks_when_a_save_is_due),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
