/* Questions that the ranks of all nodes answer alike: the coordinator's table, then simulated nodes
 * whose ranks ask over random histories. */
#include "test_nodes_world.h"

#include "launch/nodes/nodes_impl.h"
#include "seed.h"

#define HISTORIES 60u
#define MOVES     120u
#define ROOTS     2u
#define UNKNOWN   UINT64_MAX

enum { STOP, DUE }; /* questions */

/* ---- the table ---- */

static struct node_frame polled(const char *path, uint64_t seq, uint64_t polls)
{
	struct node_frame frame = {.kind = NODE_POLLED,
		.question = DUE,
		.seq = seq,
		.polls = polls};

	snprintf(frame.text, sizeof(frame.text), "%s", path);
	return frame;
}

static void the_highest_count_of_all_nodes_counts(void **state)
{
	struct nodes_polls *polls = calloc(1, sizeof(*polls));
	struct node_frame frame = polled("root", 1, 5);
	uint64_t yes_at = 0;

	assert_non_null(polls);
	assert_int_equal(nodes_polls_take(polls, &frame, 1, 3, &yes_at), POLLS_HOLD);
	frame.polls = 7;
	assert_int_equal(nodes_polls_take(polls, &frame, 0, 3, &yes_at), POLLS_WAIT);
	/* Again, for a rank that has connected meanwhile: the node counts once. */
	frame.polls = 4;
	assert_int_equal(nodes_polls_take(polls, &frame, 0, 3, &yes_at), POLLS_WAIT);
	assert_int_equal(yes_at, 0);
	assert_int_equal(nodes_polls_take(polls, &frame, 2, 3, &yes_at), POLLS_YES);
	assert_int_equal(yes_at, 8);
	/* What is settled stands. */
	frame.polls = 100;
	assert_int_equal(nodes_polls_take(polls, &frame, 1, 3, &yes_at), POLLS_AGAIN);
	assert_int_equal(yes_at, 8);
	/* Another save, another run, another root, another question. */
	frame = polled("root", 2, 1);
	assert_int_equal(nodes_polls_take(polls, &frame, 0, 3, &yes_at), POLLS_HOLD);
	frame.instance_id = 1;
	assert_int_equal(nodes_polls_take(polls, &frame, 0, 3, &yes_at), POLLS_HOLD);
	frame = polled("other", 1, 1);
	assert_int_equal(nodes_polls_take(polls, &frame, 0, 3, &yes_at), POLLS_HOLD);
	frame.question = STOP;
	assert_int_equal(nodes_polls_take(polls, &frame, 0, 3, &yes_at), POLLS_HOLD);
	free(polls);
}

static void the_oldest_question_is_forgotten(void **state)
{
	struct nodes_polls *polls = calloc(1, sizeof(*polls));
	struct node_frame frame;
	uint64_t yes_at = 0;

	assert_non_null(polls);
	for (uint64_t seq = 0; seq <= NODES_POLLS_MAX; seq++) {
		frame = polled("root", seq, 1);
		assert_int_equal(nodes_polls_take(polls, &frame, 0, 2, &yes_at), POLLS_HOLD);
	}
	frame = polled("root", 1, 1);
	assert_int_equal(nodes_polls_take(polls, &frame, 1, 2, &yes_at), POLLS_YES);
	frame = polled("root", 0, 1);
	assert_int_equal(nodes_polls_take(polls, &frame, 1, 2, &yes_at), POLLS_HOLD);
	free(polls);
}

/* ---- ranks that ask ---- */

/* A rank, and what it knows of a root's question. */
struct rank {
	bool connected;
	bool held;          /* the next poll waits for yes_at */
	uint64_t polls;     /* how often it has asked */
	uint64_t yes_at;    /* the answer is yes at this poll and later */
	uint64_t first_yes; /* first poll that got yes; UNKNOWN: none yet */
};

static struct rank ranks[ROOTS][HOSTS][WORKERS];
static bool asked[ROOTS]
		 [HOSTS]; /* the agent has asked the ranks; it asks those that connect later, too */
static uint32_t generations[HOSTS]; /* start that the ranks belong to */
static struct node_frame reports[ROOTS][HOSTS];

static const char *const paths[ROOTS] = {"/a", "/b"};

/* As an agent: holds the ranks of a host, and reports the highest count a moment later. */
static void hold(uint32_t root, uint32_t h)
{
	uint64_t highest = 0;

	asked[root][h] = true;
	for (uint32_t i = 0; i < WORKERS; i++) {
		struct rank *rank = &ranks[root][h][i];

		rank->held = rank->held || rank->connected;
		highest = rank->polls > highest ? rank->polls : highest;
	}
	reports[root][h] = (struct node_frame){.kind = NODE_POLLED,
		.question = root == 0 ? STOP : DUE,
		.instance_id = 7 * root,
		.seq = 3 * root,
		.polls = highest};
	snprintf(reports[root][h].text, sizeof(reports[root][h].text), "%s", paths[root]);
	happen(h, MS_NS, (struct nodes_event){.kind = NODES_POLLED}, &reports[root][h]);
}

static void take_question(uint32_t h, const struct node_frame *frame)
{
	uint32_t root = strcmp(frame->text, paths[0]) == 0 ? 0 : 1;

	assert_string_equal(frame->text, paths[root]);
	assert_int_equal(frame->question, root == 0 ? STOP : DUE);
	assert_int_equal(frame->instance_id, 7 * root);
	assert_int_equal(frame->seq, 3 * root);
	if (frame->kind == NODE_HOLD) {
		if (!asked[root][h]) {
			hold(root, h);
		}
		return;
	}
	for (uint32_t i = 0; i < WORKERS; i++) {
		struct rank *rank = &ranks[root][h][i];

		if (rank->held) {
			assert_true(rank->yes_at == UNKNOWN || rank->yes_at == frame->polls);
			assert_true(rank->yes_at != UNKNOWN || rank->polls < frame->polls);
			rank->yes_at = frame->polls;
		}
	}
}

/* Ranks that were started anew know nothing. */
static void begin_ranks(void)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		if (w.hosts[h].generation == generations[h]) {
			continue;
		}
		generations[h] = w.hosts[h].generation;
		for (uint32_t root = 0; root < ROOTS; root++) {
			asked[root][h] = false;
			for (uint32_t i = 0; i < WORKERS; i++) {
				ranks[root][h][i] =
					(struct rank){.yes_at = UNKNOWN, .first_yes = UNKNOWN};
			}
		}
	}
}

static bool works(uint32_t h)
{
	return w.hosts[h].on && w.hosts[h].alive[0] && w.hosts[h].alive[1];
}

/* Every step ends in a collective, so no rank asks twice while another has not asked once. */
static bool may_poll(uint32_t root, const struct rank *rank)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		for (uint32_t i = 0; works(h) && i < WORKERS; i++) {
			if (ranks[root][h][i].polls < rank->polls) {
				return false;
			}
		}
	}
	return rank->connected && !(rank->held && rank->yes_at == UNKNOWN);
}

/* A rank connects or asks, if it can. */
static void move(uint32_t root, uint32_t h, uint32_t i)
{
	struct rank *rank = &ranks[root][h][i];

	if (!works(h)) {
		return;
	}
	if (!rank->connected) {
		rank->connected = true;
		if (asked[root][h]) {
			hold(root, h);
		}
	} else if (may_poll(root, rank)) {
		rank->polls++;
		if (rank->held && rank->polls >= rank->yes_at && rank->first_yes == UNKNOWN) {
			rank->first_yes = rank->polls;
		}
	}
}

static void move_randomly(uint32_t moves)
{
	for (uint32_t m = 0; m < moves; m++) {
		move((uint32_t)rng_below(&w.rng, ROOTS), (uint32_t)rng_below(&w.rng, HOSTS),
			(uint32_t)rng_below(&w.rng, WORKERS));
		run_for((int64_t)rng_below(&w.rng, 20) * MS_NS);
		begin_ranks();
	}
}

/* The ranks of all hosts get their first yes at the same poll. */
static void all_get_yes_alike(uint32_t root)
{
	uint64_t first = UNKNOWN;
	uint32_t n = 0;

	for (uint32_t h = 0; h < HOSTS; h++) {
		for (uint32_t i = 0; works(h) && i < WORKERS; i++) {
			const struct rank *rank = &ranks[root][h][i];

			first = n == 0 ? rank->first_yes : first;
			assert_int_not_equal(rank->first_yes, UNKNOWN);
			assert_int_equal(rank->first_yes, first);
			n++;
		}
	}
	assert_int_equal(n, w.nodes * WORKERS);
}

static void begin_asking(uint64_t seed, uint32_t nodes)
{
	begin_world(seed, nodes, PLACES);
	w.asked = take_question;
	memset(generations, 0, sizeof(generations));
	memset(ranks, 0, sizeof(ranks));
	for (uint32_t h = 0; h < nodes; h++) {
		start_host(h);
	}
	run_for(10 * S_NS);
	check_group();
	begin_ranks();
}

/* One host or several ask, in one root or both, while ranks connect and ask. The coordinator may be
 * lost, or a rank may fail, before all have answered: the ranks are started and asked anew. */
static void ranks_of_all_nodes_get_yes_at_one_poll(void **state)
{
	for (uint32_t i = 0; i < HISTORIES; i++) {
		uint32_t nodes = 2 + i % 3;
		bool loses = i % 4 == 3;

		begin_asking(first_seed + i, nodes);
		move_randomly((uint32_t)rng_below(&w.rng, MOVES));
		for (uint32_t asks = 0; asks < 3; asks++) {
			uint32_t root = (uint32_t)rng_below(&w.rng, ROOTS);
			uint32_t h = (uint32_t)rng_below(&w.rng, nodes);

			if (!asked[root][h]) {
				hold(root, h);
			}
			move_randomly((uint32_t)rng_below(&w.rng, 4));
		}
		if (loses) {
			if (rng_below(&w.rng, 3) == 0) {
				end_worker(1, 0, 7, MS_NS);
			} else {
				end_host(0, rng_below(&w.rng, 2) == 0);
				start_host(nodes);
			}
			run_for(30 * S_NS);
			check_group();
			begin_ranks();
			move_randomly(MOVES);
		}
		for (uint32_t root = 0; root < ROOTS; root++) {
			uint32_t h = 1 + (uint32_t)rng_below(&w.rng, nodes - 1);

			if (!asked[root][h]) {
				hold(root, h);
			}
		}
		for (uint32_t round = 0; round < MOVES; round++) {
			for (uint32_t r = 0; r < ROOTS * HOSTS * WORKERS; r++) {
				move(r % ROOTS, r / ROOTS % HOSTS, r / ROOTS / HOSTS);
			}
			run_for(20 * MS_NS);
		}
		all_get_yes_alike(0);
		all_get_yes_alike(1);
	}
}

/* The answer of an earlier start may come late. */
static void an_answer_of_an_earlier_start_does_not_count(void **state)
{
	struct node_frame frame = polled(paths[1], 3, 1000);

	begin_asking(first_seed, 2);
	frame.instance_id = 7;
	frame.generation = w.hosts[0].generation;
	end_worker(1, 0, 7, MS_NS);
	run_for(10 * S_NS);
	check_group();
	begin_ranks();
	assert_int_not_equal(w.hosts[0].generation, frame.generation);
	happen(0, MS_NS, (struct nodes_event){.kind = NODES_FRAME, .conn = w.hosts[1].nodes.conn},
		&frame);
	run_for(S_NS);
	assert_false(asked[1][0]);
	hold(1, 0);
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t r = 0; r < HOSTS * WORKERS; r++) {
			move(1, r % HOSTS, r / HOSTS);
		}
		run_for(S_NS);
	}
	all_get_yes_alike(1);
}

/* What one machine's cloud advises, the agents of all other nodes hear once. */
static void an_advice_to_one_node_reaches_the_others(void **state)
{
	for (uint32_t from = 0; from < 3; from++) {
		begin_asking(first_seed, 3);
		happen(from, MS_NS, (struct nodes_event){.kind = NODES_ADVISED}, NULL);
		run_for(S_NS);
		for (uint32_t h = 0; h < 3; h++) {
			assert_int_equal(w.hosts[h].advised, h != from);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_highest_count_of_all_nodes_counts),
		cmocka_unit_test(the_oldest_question_is_forgotten),
		cmocka_unit_test(ranks_of_all_nodes_get_yes_at_one_poll),
		cmocka_unit_test(an_answer_of_an_earlier_start_does_not_count),
		cmocka_unit_test(an_advice_to_one_node_reaches_the_others),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
