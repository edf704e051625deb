/* Jobs of several nodes, by example, then over random histories with deaths, delays, partitions. */
#include "test_nodes_world.h"

#include "seed.h"

#define HISTORIES 300u

static void nodes_start_and_end_together(void **state)
{
	start_all(3, 1);
	assert_int_equal(w.hosts[0].start.node, 0); /* the coordinator came first */
	end_all_workers(0);
	run_for(5 * S_NS);
	all_left_with(0);
}

static void ranks_are_those_that_were_given(void **state)
{
	struct nodes_options options;

	begin_world(first_seed, 3, 1);
	for (uint32_t h = 0; h < 3; h++) {
		options = usual();
		options.wanted = 2 - h;
		start_host_as(h, options);
	}
	run_for(10 * S_NS);
	check_group();
	for (uint32_t h = 0; h < 3; h++) {
		assert_int_equal(w.hosts[h].start.node, 2 - h);
	}
}

/* A member reports new ports whenever its workers have ended. */
static void ranks_meet_at_a_members_newest_ports(void **state)
{
	struct nodes_options options;

	begin_world(first_seed, 2, 1);
	for (uint32_t h = 0; h < 2; h++) {
		options = usual();
		options.wanted = 1 - h;
		start_host_as(h, options);
	}
	run_for(10 * S_NS);
	check_group();
	end_worker(0, 1, 7, MS_NS);
	run_for(10 * S_NS);
	check_group();
	assert_int_equal(w.hosts[0].generation, 2);
	assert_int_equal(w.hosts[0].start.port, 2002);
	assert_int_equal(w.hosts[0].start.peer_port, 41002);
}

/* All agents agree by links, or none does. */
static void who_cannot_be_reached_has_all_go_without_links(void **state)
{
	for (uint32_t peerless = 0; peerless < 3; peerless++) {
		begin_world(first_seed, 3, 1);
		for (uint32_t h = 0; h < 3; h++) {
			start_host(h);
		}
		w.hosts[peerless].peerless = true;
		run_for(10 * S_NS);
		check_group();
		assert_int_equal(w.hosts[0].start.peer_port, 0);
		w.hosts[peerless].peerless = false;
		end_worker(0, 1, 7, MS_NS);
		run_for(10 * S_NS);
		check_group();
		assert_int_not_equal(w.hosts[0].start.peer_port, 0);
	}
}

static void a_frame_with_a_port_beyond_the_last_is_refused(void **state)
{
	static const enum node_frame_kind kinds[] = {NODE_JOIN, NODE_READY, NODE_START};

	for (size_t i = 0; i < 4 * sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct node_frame frame = {.kind = kinds[i / 4],
			.nodes = 1,
			.workers = 1,
			.world = 1,
			.port = UINT16_MAX + (i & 1),
			.peer_port = UINT16_MAX + (i / 2 & 1),
			.address = "host0",
			.job = "job",
			.ledger = {.generation = 1}};
		struct wire_out out = {0};
		int n;

		node_frame_put(&out, &frame);
		n = node_frame_get(out.bytes, out.len_bytes, &frame, NULL);
		assert_int_equal(n, i % 4 == 0 ? (int)out.len_bytes : PAWL_ECORRUPT);
		wire_out_deinit(&out);
	}
}

static void a_worker_that_fails_restarts_all(void **state)
{
	uint32_t ranks[3];

	start_all(3, 1);
	for (uint32_t h = 0; h < 3; h++) {
		ranks[h] = w.hosts[h].start.node;
	}
	end_worker(2, 1, 7, MS_NS);
	run_for(S_NS);
	check_group();
	for (uint32_t h = 0; h < 3; h++) {
		assert_int_equal(w.hosts[h].generation, 2);
		assert_int_equal(w.hosts[h].start.ledger.restarts, 1);
		assert_int_equal(w.hosts[h].start.node, ranks[h]); /* as before */
		assert_true(h == 2 || has_logged(h, "a worker failed"));
	}
	assert_int_not_equal(w.hosts[0].start.port, 0);
}

static void restarts_are_counted_once_for_the_job(void **state)
{
	start_all(2, 1);
	for (uint32_t i = 0; i < 3; i++) {
		run_for(10 * S_NS);
		end_worker(i % 2, 0, 9, MS_NS);
		run_for(10 * S_NS);
		check_group();
	}
	end_worker(1, 0, 9, MS_NS);
	run_for(20 * S_NS);
	all_left_with(9);
}

static void a_users_error_ends_it_everywhere(void **state)
{
	start_all(2, 1);
	end_worker(1, 0, RUN_EXIT_USER, MS_NS);
	run_for(5 * S_NS);
	all_left_with(RUN_EXIT_USER);
}

static void a_lost_node_is_named_and_replaced(void **state)
{
	start_all(3, 1);
	end_host(2, true);
	run_for(4 * S_NS);
	assert_int_equal(count_working(), 0);
	for (uint32_t h = 0; h < 2; h++) {
		assert_true(has_logged(h, "(host2) is lost: no heartbeat for 2."));
		assert_true(has_logged(h, "2 of 3 nodes are here"));
		assert_true(has_logged(h, "which was host2"));
	}
	start_host(5);
	run_for(5 * S_NS);
	check_group();
	assert_int_equal(w.hosts[5].start.node, w.hosts[2].start.node);
	assert_int_equal(w.hosts[5].start.ledger.restarts, 0); /* nobody's fault */
	assert_int_equal(w.hosts[5].generation, 2);
	end_all_workers(0);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[0].status, 0);
	assert_int_equal(w.hosts[5].status, 0);
}

/* A node that is cut off kills its workers itself, and is taken back. */
static void a_node_that_was_cut_off_comes_back(void **state)
{
	start_all(2, 1);
	w.cut[1] = true;
	run_for(5 * S_NS);
	assert_int_equal(count_working(), 0);
	assert_true(has_logged(1, "the coordinator at a:1 is lost: no heartbeat"));
	assert_true(has_logged(1, "only a node with that address can take its place"));
	w.cut[1] = false;
	run_for(10 * S_NS);
	check_group();
	assert_int_equal(w.hosts[1].start.node, 1);
}

static void the_next_place_takes_over(void **state)
{
	start_all(3, 2);
	assert_int_equal(w.hosts[0].nodes.role, NODES_LEADING);
	end_worker(1, 0, 9, MS_NS);
	run_for(2 * S_NS);
	end_host(0, true);
	run_for(8 * S_NS);
	assert_int_equal(w.hosts[1].nodes.role, NODES_LEADING);
	assert_int_equal(w.hosts[2].nodes.role, NODES_MEMBER);
	start_host(4); /* host 4 has no place's address */
	run_for(10 * S_NS);
	check_group();
	assert_int_equal(w.hosts[4].generation, 3); /* host 4 goes on from what the members knew */
	assert_int_equal(w.hosts[4].start.ledger.restarts, 1);
	end_all_workers(0);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[4].status, 0);
}

/* A new, empty node has the first place's address: it coordinates, and learns from the others. */
static void a_new_coordinator_learns_how_far_the_job_is(void **state)
{
	start_all(3, 2);
	end_worker(1, 0, 9, MS_NS);
	run_for(2 * S_NS);
	end_host(0, true);
	run_for(8 * S_NS);
	w.place_of[0] = 6;
	start_host(6);
	run_for(10 * S_NS);
	check_group();
	assert_int_equal(w.hosts[6].nodes.role, NODES_LEADING);
	assert_int_equal(w.hosts[6].generation, 3);
	assert_int_equal(w.hosts[6].start.ledger.restarts, 1);
}

/* The second place's host is there first; it gives way once the first place's host is. */
static void the_first_place_has_precedence(void **state)
{
	begin_world(first_seed, 3, 2);
	start_host(1);
	start_host(2);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[1].nodes.role, NODES_LEADING);
	start_host(0);
	run_for(10 * S_NS);
	check_group();
	assert_int_equal(w.hosts[0].nodes.role, NODES_LEADING);
}

static void a_signal_at_one_node_is_a_notice_on_all(void **state)
{
	start_all(3, 1);
	happen(2, MS_NS, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
	run_for(S_NS);
	for (uint32_t h = 0; h < 3; h++) {
		assert_int_equal(w.hosts[h].noticed, 15);
	}
	check_group(); /* the workers may finish */
	end_all_workers(0);
	run_for(5 * S_NS);
	all_left_with(143);
}

/* All nodes are signalled, as srun does, twice each, as Slurm and a keeper do: workers that still
 * save are not killed. A second signal at the same node later kills them. */
static void a_signal_at_all_nodes_is_one(void **state)
{
	for (uint32_t first = 0; first < 3; first++) {
		start_all(3, 1);
		for (uint32_t h = 0; h < 6; h++) {
			happen((first + h) % 3, MS_NS * (h + 1),
				(struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
		}
		run_for(S_NS);
		check_group();
		end_worker(1, 0, 143, MS_NS);
		end_worker(1, 1, 143, MS_NS);
		run_for(5 * S_NS);
		assert_int_equal(count_working(), 2);
		happen(first, MS_NS, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15},
			NULL);
		run_for(5 * S_NS);
		all_left_with(143);
	}
}

/* All nodes have that time, whatever the grace is (20 s), and exit with the coordinator's code. */
static void a_machine_that_goes_away_is_a_notice_on_all(void **state)
{
	for (uint32_t at = 0; at < 3; at++) {
		start_all(3, 1);
		w.hosts[0].nodes.policy.preempted_status = 33;
		machine_goes(at, MS_NS, 100 * S_NS);
		run_for(S_NS);
		for (uint32_t h = 0; h < 3; h++) {
			assert_int_equal(w.hosts[h].noticed, 15);
			assert_true(w.hosts[h].nodes.policy.noticed);
			/* The machine's own launcher has logged it before. */
			assert_int_equal(strstr(w.hosts[h].logged_text, "this machine goes away") !=
					NULL,
				h != at);
		}
		/* SIGTERM follows, as a machine shuts down: it is no second signal. */
		happen(at, MS_NS, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
		run_for(60 * S_NS);
		check_group();
		end_all_workers(0);
		run_for(5 * S_NS);
		all_left_with(33);
	}
}

static void a_machine_takes_its_workers_along_in_time(void **state)
{
	start_all(2, 1);
	machine_goes(1, MS_NS, 10 * S_NS);
	run_for(6 * S_NS);
	check_group();
	run_for(3 * S_NS);
	all_left_with(143);
}

/* A node whose machine goes away loses the coordinator before the coordinator answers. */
static void a_machine_goes_away_without_coordinator(void **state)
{
	start_all(2, 1);
	w.hosts[1].nodes.policy.preempted_status = 33;
	w.cut[0] = true;
	machine_goes(1, MS_NS, 60 * S_NS);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[1].status, 33);
}

static void workers_that_do_not_leave_are_killed(void **state)
{
	start_all(2, 1);
	happen(1, MS_NS, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
	run_for(16 * S_NS);
	check_group();
	run_for(3 * S_NS);
	all_left_with(143);
}

/* A root that one node reports is relayed to all others. */
static void a_begun_root_is_relayed(void **state)
{
	for (uint32_t at = 0; at < 2; at++) {
		start_all(3, 1);
		happen(at, MS_NS,
			(struct nodes_event){.kind = NODES_ROOT_BEGUN,
				.nonce = 77,
				.text = "/root"},
			NULL);
		run_for(S_NS);
		for (uint32_t h = 0; h < 3; h++) {
			assert_int_equal(w.hosts[h].begun_nonce, h == at ? 0 : 77);
		}
	}
}

/* A node that gets a signal loses the coordinator before the coordinator answers. */
static void a_signal_is_not_forgotten(void **state)
{
	start_all(2, 1);
	w.cut[0] = true;
	happen(1, MS_NS, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[1].status, 143);
}

/* The coordinator dies while the others leave: they end by themselves, in time. */
static void leaving_needs_no_coordinator(void **state)
{
	start_all(3, 1);
	happen(0, MS_NS, (struct nodes_event){.kind = NODES_SIGNALED, .signal = 15}, NULL);
	run_for(S_NS);
	end_host(0, true);
	run_for(5 * S_NS);
	assert_int_equal(count_working(), 2);
	end_worker(1, 0, 0, MS_NS);
	end_worker(1, 1, 0, MS_NS);
	run_for(S_NS);
	assert_int_equal(w.hosts[1].status, 143);
	run_for(15 * S_NS);
	assert_int_equal(w.hosts[2].status, 143); /* host 2's workers were killed in time */
}

static void missing_nodes_are_logged_and_the_wait_ends(void **state)
{
	begin_world(first_seed, 3, 1);
	start_host(0);
	start_host(1);
	run_for(30 * S_NS);
	assert_true(has_logged(0, "2 of 3 nodes are here: host0 (2 workers), host1 (2 workers)"));
	run_for(600 * S_NS);
	assert_true(has_logged(1, "only 2 of 3 nodes came within 600 s"));
	all_left_with(RUN_EXIT_NODES);
}

static void without_a_coordinator_the_wait_ends_too(void **state)
{
	begin_world(first_seed, 2, 1);
	w.place_of[0] = NOBODY;
	start_host(3);
	run_for(601 * S_NS);
	assert_true(has_logged(3, "no coordinator within 600 s: a:1 (Connection refused)"));
	all_left_with(RUN_EXIT_NODES);
}

static void who_does_not_fit_is_refused(void **state)
{
	struct nodes_options options;

	start_all(2, 1);
	options = usual();
	options.nodes = 3;
	start_host_as(3, options);
	options = usual();
	options.job = "another";
	start_host_as(4, options);
	start_host(5); /* one too many: it waits */
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[3].status, RUN_EXIT_USAGE);
	assert_true(has_logged(3, "--nnodes is 3 there and 2 here"));
	assert_int_equal(w.hosts[4].status, RUN_EXIT_USAGE);
	assert_true(has_logged(4, "the job is another there and job here"));
	assert_true(w.hosts[5].on && has_logged(5, "the job already has its 2 nodes"));
	end_host(1, true);
	run_for(10 * S_NS);
	check_group();
	assert_true(w.hosts[5].alive[0]);
}

/* A job waits for its servers, and starts again with another one when one is lost. */
static void servers_are_waited_for_and_replaced(void **state)
{
	struct nodes_options options;

	begin_world(first_seed, 2, 1);
	options = usual();
	options.servers = 2;
	start_host_as(0, options);
	start_host_as(1, options);
	run_for(2 * S_NS);
	start_server(5);
	run_for(5 * S_NS);
	assert_int_equal(count_working(), 0);
	assert_true(has_logged(1, "and for 1 of 2 servers"));
	start_server(6);
	run_for(5 * S_NS);
	check_group();
	for (uint32_t h = 0; h < 2; h++) {
		assert_non_null(strstr(w.hosts[h].start.text, "server5:1:5"));
		assert_non_null(strstr(w.hosts[h].start.text, "server6:1:5"));
	}
	start_server(7); /* one too many */
	run_for(S_NS);
	assert_true(has_logged(7, "the job already has its servers"));
	w.hosts[5].silent = true;
	run_for(4 * S_NS);
	assert_true(has_logged(1, "server server5:1:5 is lost: no heartbeat for 2."));
	assert_int_equal(count_working(), 0);
	start_server(7);
	run_for(5 * S_NS);
	check_group();
	assert_string_equal(w.hosts[1].start.text, "server7:1:5,server6:1:5");
	assert_int_equal(w.hosts[1].start.ledger.restarts, 0); /* nobody's fault */
	end_host(6, false);
	run_for(S_NS);
	assert_true(has_logged(1, "server server6:1:5 is lost: its connection ended"));
	start_server(6);
	run_for(5 * S_NS);
	check_group();
	end_all_workers(3);
	run_for(40 * S_NS);
	end_all_workers(0);
	run_for(5 * S_NS);
	assert_int_equal(w.hosts[0].status, w.hosts[6].status); /* the servers learn of the end */
	assert_int_equal(w.hosts[0].status, w.hosts[7].status);
	assert_false(w.hosts[0].on);
}

static void a_job_without_servers_refuses_them(void **state)
{
	start_all(2, 1);
	start_server(5);
	run_for(S_NS);
	assert_true(has_logged(5, "the job uses no servers"));
	check_group();
}

/* A coordinator that stood still takes nobody for lost because of that; but its members do. */
static void who_stood_still_blames_nobody(void **state)
{
	struct nodes *n;

	start_all(2, 1);
	n = &w.hosts[0].nodes;
	w.now_ns += 1900 * MS_NS; /* shorter than members wait */
	step_host(0, (struct nodes_event){.kind = NODES_TICK});
	assert_int_equal(n->policy.phase, RUN_WORKING);
	w.now_ns += 60 * S_NS;
	step_host(0, (struct nodes_event){.kind = NODES_TICK});
	assert_int_equal(n->policy.phase, RUN_WORKING);
}

/* A start of a generation that is over, and what its workers did, count for nothing. */
static void what_is_old_is_refused(void **state)
{
	struct node_frame old;
	uint32_t conn;

	start_all(2, 1);
	old = w.hosts[1].start;
	end_worker(1, 0, 9, MS_NS);
	run_for(5 * S_NS);
	check_group();
	conn = w.hosts[1].nodes.conn;
	happen(0, MS_NS, (struct nodes_event){.kind = NODES_FRAME, .conn = conn},
		&(struct node_frame){.kind = NODE_EXITED, .generation = 1, .status = 1});
	run_for(S_NS);
	assert_int_equal(w.hosts[0].generation, 2);
	happen(1, MS_NS, (struct nodes_event){.kind = NODES_FRAME, .conn = conn}, &old);
	run_for(10 * S_NS);
	assert_true(has_logged(1, "it sent a start of an old generation"));
	check_group();
	assert_int_equal(w.hosts[1].generation, 3);
}

/* ---- random histories ---- */

static uint32_t count_on(void)
{
	uint32_t on = 0;

	for (uint32_t h = 0; h < HOSTS; h++) {
		on += w.hosts[h].on;
	}
	return on;
}

/* Something bad happens to a random host. */
static void disturb(void)
{
	uint32_t h = (uint32_t)rng_below(&w.rng, HOSTS);
	struct host *host = &w.hosts[h];

	switch (rng_below(&w.rng, 7)) {
	case 0:
		if (host->on) {
			end_host(h, true);
		}
		break;
	case 1:
		if (host->on) {
			end_host(h, false);
		}
		break;
	case 2:
		w.cut[h] = !w.cut[h];
		break;
	case 3: /* Fewer hosts than two jobs need: halves of a network must not both be whole. */
		if (!host->on && count_on() < 2 * w.nodes - 1) {
			start_host(h);
		}
		break;
	case 4:
		if (host->on) {
			machine_goes(h, MS_NS, (int64_t)rng_below(&w.rng, 10000) * MS_NS);
		}
		break;
	case 5:
		if (count_working() == w.nodes && rng_below(&w.rng, 4) == 0) {
			end_all_workers(0);
		}
		break;
	default:
		end_worker(h, (uint32_t)rng_below(&w.rng, WORKERS), 9, MS_NS);
	}
}

/* Makes everything well again: as many hosts as needed, on one network, one with each place. */
static void heal(void)
{
	uint32_t on = count_on();

	memset(w.cut, 0, sizeof(w.cut));
	for (uint32_t h = 0; h < HOSTS; h++) {
		if (!w.hosts[h].on && on < w.nodes) {
			start_host(h);
			on++;
		}
	}
	for (uint32_t p = 0; p < w.places; p++) {
		for (uint32_t h = 0; h < HOSTS && !w.hosts[w.place_of[p]].on; h++) {
			w.place_of[p] = h;
		}
	}
}

static void print_history(uint64_t seed)
{
	print_error("history %llu, %u nodes, %u places\n", (unsigned long long)seed, w.nodes,
		w.places);
	for (uint32_t h = 0; h < HOSTS; h++) {
		const struct nodes *n = &w.hosts[h].nodes;
		size_t len = strlen(w.hosts[h].logged_text);

		if (w.hosts[h].on) {
			print_error("host %u: role %d, phase %d, generation %u, alive %u: …%s", h,
				n->role, n->policy.phase, n->ledger.generation, n->alive,
				w.hosts[h].logged_text + (len > 400 ? len - 400 : 0));
		}
	}
}

/* ---- an elastic job of one node ---- */

static void start_one(void *user, const struct node_frame *start)
{
	((struct host *)user)->start = *start;
}

static void add_to_one(void *user, uint32_t n)
{
}

/* Ends a worker of the one node, a moment after its start. */
static void fail_one(struct nodes *n, enum run_verdict verdict)
{
	w.now_ns += S_NS;
	nodes_step(n,
		&(struct nodes_event){.kind = NODES_EXITED,
			.now_ns = w.now_ns,
			.exit = {.status = 1, .verdict = verdict, .lasted_ns = S_NS},
			.text = ""});
}

static void a_group_that_shrank_has_a_new_port_at_each_start(void **state)
{
	struct nodes_ops elastic = ops;
	struct nodes_options options;
	struct nodes *n = &w.hosts[0].nodes;
	uint32_t port = 0;

	begin_world(first_seed, 1, 0);
	elastic.start = start_one;
	elastic.add = add_to_one;
	options = usual();
	options.min_workers = 1;
	options.max_restarts = 2;
	options.ops = &elastic;
	options.user = &w.hosts[0];
	nodes_init(n, &options);
	nodes_step(n, &(struct nodes_event){.kind = NODES_BEGIN, .now_ns = w.now_ns});
	for (uint32_t i = 0; i < 3; i++) { /* two are replaced, the third one is not */
		fail_one(n, RUN_VERDICT_GO_ON);
	}
	assert_int_equal(n->alive, 1);
	for (uint32_t i = 0; i < 2; i++) { /* the whole group starts again */
		port = w.hosts[0].start.port;
		fail_one(n, RUN_VERDICT_NONE_LEFT);
		assert_int_equal(n->ledger.generation, 2 + i);
		assert_int_equal(w.hosts[0].start.world, 1);
		assert_int_not_equal(w.hosts[0].start.port, port);
	}
}

static void every_history_ends_well(void **state)
{
	bool worked[HOSTS];

	for (uint32_t i = 0; i < HISTORIES; i++) {
		uint32_t nodes = 2 + i % 3;

		begin_world(first_seed + i, nodes, 1 + i % PLACES);
		w.max_restarts = 1000000;
		w.leaves = i % 4 != 0;
		for (uint32_t h = 0; h < nodes; h++) {
			start_host(h);
		}
		for (uint32_t e = rng_below(&w.rng, 12); e > 0; e--) {
			run_for((int64_t)rng_below(&w.rng, 4000) * MS_NS);
			disturb();
		}
		heal();
		run_for(60 * S_NS);
		heal(); /* a group whose workers had all ended well has left */
		run_for(60 * S_NS);
		if (count_working() != nodes) {
			print_history(first_seed + i);
		}
		check_group();
		for (uint32_t h = 0; h < HOSTS; h++) {
			worked[h] = w.hosts[h].on && w.hosts[h].alive[0];
		}
		end_all_workers(0);
		run_for(10 * S_NS);
		for (uint32_t h = 0; h < HOSTS; h++) {
			assert_true(!worked[h] || w.hosts[h].status == 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_start_and_end_together),
		cmocka_unit_test(ranks_are_those_that_were_given),
		cmocka_unit_test(ranks_meet_at_a_members_newest_ports),
		cmocka_unit_test(who_cannot_be_reached_has_all_go_without_links),
		cmocka_unit_test(a_frame_with_a_port_beyond_the_last_is_refused),
		cmocka_unit_test(a_worker_that_fails_restarts_all),
		cmocka_unit_test(restarts_are_counted_once_for_the_job),
		cmocka_unit_test(a_users_error_ends_it_everywhere),
		cmocka_unit_test(a_lost_node_is_named_and_replaced),
		cmocka_unit_test(a_node_that_was_cut_off_comes_back),
		cmocka_unit_test(the_next_place_takes_over),
		cmocka_unit_test(a_new_coordinator_learns_how_far_the_job_is),
		cmocka_unit_test(the_first_place_has_precedence),
		cmocka_unit_test(a_signal_at_one_node_is_a_notice_on_all),
		cmocka_unit_test(a_signal_at_all_nodes_is_one),
		cmocka_unit_test(a_machine_that_goes_away_is_a_notice_on_all),
		cmocka_unit_test(a_machine_takes_its_workers_along_in_time),
		cmocka_unit_test(a_machine_goes_away_without_coordinator),
		cmocka_unit_test(workers_that_do_not_leave_are_killed),
		cmocka_unit_test(a_begun_root_is_relayed),
		cmocka_unit_test(a_signal_is_not_forgotten),
		cmocka_unit_test(leaving_needs_no_coordinator),
		cmocka_unit_test(missing_nodes_are_logged_and_the_wait_ends),
		cmocka_unit_test(without_a_coordinator_the_wait_ends_too),
		cmocka_unit_test(who_does_not_fit_is_refused),
		cmocka_unit_test(servers_are_waited_for_and_replaced),
		cmocka_unit_test(a_job_without_servers_refuses_them),
		cmocka_unit_test(who_stood_still_blames_nobody),
		cmocka_unit_test(what_is_old_is_refused),
		cmocka_unit_test(a_group_that_shrank_has_a_new_port_at_each_start),
		cmocka_unit_test(every_history_ends_well),
	};

	first_seed = test_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
