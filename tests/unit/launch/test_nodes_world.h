/*
 * Simulated nodes: several of nodes.h, a network between them that delays, splits and fails, and
 * workers that end on demand. Time is a number.
 */
#ifndef TEST_NODES_WORLD_H
#define TEST_NODES_WORLD_H

#include "base/rng.h"
#include "launch/nodes/nodes.h"
#include "pawl/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define S_NS    1000000000LL
#define MS_NS   1000000LL
#define HOSTS   8u
#define PLACES  3u
#define EVENTS  4096u
#define WORKERS 2u
#define NOBODY  UINT32_MAX

/* Something that will happen to a host. */
struct later {
	int64_t at_ns;  /* time of the event; 0: this entry is free */
	uint64_t order; /* order among the events of one time */
	uint32_t host;  /* host that the event happens to */
	uint32_t life;  /* life of that host; the event is void if another one has begun */
	struct nodes_event event;
	struct node_frame frame; /* event.frame, if it has one */
};

/* A connection; both ends have its index as their number. */
struct line {
	uint32_t a, b; /* hosts; b NOBODY: nobody listens there */
	uint32_t a_life, b_life;
	bool up;
};

struct host {
	struct nodes nodes;
	bool on;             /* runs */
	bool serves;         /* a server, which only adds, and no node */
	bool silent;         /* sends nothing any more */
	uint32_t life;       /* number of starts */
	int listening;       /* place that it listens at, or -1 */
	uint32_t ports;      /* number of ports given out */
	bool peerless;       /* the agent does not listen for others */
	uint32_t peer_ports; /* number of peer ports given out: a new one at each question */
	uint32_t generation; /* generation started last */
	struct node_frame start;
	bool alive[WORKERS];
	uint64_t begun_nonce;   /* nonce of the last root begun; 0: none */
	int noticed;            /* signal noticed; 0: none */
	uint32_t advised;       /* advices of other hosts that came here */
	bool hangs;             /* storage hangs: no drain ends */
	int status;             /* exit status; -1: has not left */
	char logged_text[4096]; /* all its log lines */
};

struct world {
	struct host hosts[HOSTS];
	struct later later[EVENTS];
	struct line lines[EVENTS];
	uint32_t lines_n;
	uint32_t nodes;            /* nodes of the job */
	uint32_t place_of[PLACES]; /* host that has the place's address */
	uint32_t places;
	/* Cut off from the network: frames are lost, and no end is notified. */
	bool cut[HOSTS];
	int64_t now_ns;
	uint64_t order;
	struct rng rng;
	uint32_t max_restarts;
	bool leaves; /* nodes whose machines go away depart */
	int64_t delay_max_ns;
	uint32_t salt; /* varies the delays */
	/* The ranks of a host are asked a question, or get its answer; NULL: nobody asks. */
	void (*asked)(uint32_t host, const struct node_frame *frame);
};

static struct world w;
static const char *const place_text[PLACES] = {"a:1", "b:1", "c:1"};

static void happen(uint32_t host, int64_t delay_ns, struct nodes_event event,
	const struct node_frame *frame)
{
	for (uint32_t i = 0; i < EVENTS; i++) {
		if (w.later[i].at_ns == 0) {
			w.later[i] = (struct later){.at_ns = w.now_ns + delay_ns,
				.order = w.order++,
				.host = host,
				.life = w.hosts[host].life,
				.event = event};
			if (frame != NULL) {
				w.later[i].frame = *frame;
			}
			return;
		}
	}
	fail_msg("too many events");
}

/* Returns the delay from one host to another. Each pair has a constant one, so that what is sent
 * keeps its order. */
static int64_t delay(uint32_t from, uint32_t to)
{
	return MS_NS + (int64_t)((from * 7 + to * 13 + w.salt) % 10) * w.delay_max_ns / 10;
}

static uint32_t other_end(uint32_t conn, uint32_t host)
{
	return w.lines[conn].a == host ? w.lines[conn].b : w.lines[conn].a;
}

/* ---- what nodes do ---- */

static struct host *host_of(void *user)
{
	return user;
}

static uint32_t index_of(void *user)
{
	return (uint32_t)(host_of(user) - w.hosts);
}

static int do_listen(void *user, uint32_t place, struct pawl_err *err)
{
	if (w.place_of[place] != index_of(user)) {
		return PAWL_ENOENT;
	}
	host_of(user)->listening = (int)place;
	return 0;
}

static void do_unlisten(void *user)
{
	host_of(user)->listening = -1;
}

static uint32_t do_connect(void *user, uint32_t place)
{
	uint32_t me = index_of(user);
	uint32_t to = w.place_of[place];
	uint32_t conn = w.lines_n++;
	struct nodes_event event = {.kind = NODES_CONNECTED, .conn = conn};
	bool there;

	assert_true(conn < EVENTS);
	there = to != NOBODY && w.hosts[to].on && w.hosts[to].listening == (int)place &&
		!w.cut[me] && !w.cut[to];
	w.lines[conn] = (struct line){me, there ? to : NOBODY, host_of(user)->life,
		there ? w.hosts[to].life : 0, there};
	if (!there) {
		event.kind = NODES_CLOSED;
		event.text = "Connection refused";
	}
	happen(me, delay(me, place), event, NULL);
	return conn;
}

static void do_send(void *user, uint32_t conn, const struct node_frame *frame)
{
	uint32_t me = index_of(user);
	uint32_t to = other_end(conn, me);
	struct wire_out out = {0};
	struct node_frame got;

	node_frame_put(&out, frame); /* every frame can be encoded and decoded */
	assert_int_equal(node_frame_get(out.bytes, out.len_bytes, &got, NULL), out.len_bytes);
	wire_out_deinit(&out);
	if (w.cut[me] || w.cut[to]) {
		w.lines[conn].up = false; /* after a loss nothing more arrives */
	}
	if (w.lines[conn].up) {
		happen(to, delay(me, to), (struct nodes_event){.kind = NODES_FRAME, .conn = conn},
			&got);
	}
}

static void do_close(void *user, uint32_t conn)
{
	uint32_t me = index_of(user);
	uint32_t to = other_end(conn, me);

	if (w.lines[conn].up) {
		w.lines[conn].up = false;
		if (to != NOBODY && !w.cut[me] && !w.cut[to]) {
			happen(to, delay(me, to),
				(struct nodes_event){.kind = NODES_CLOSED,
					.conn = conn,
					.text = "its connection ended"},
				NULL);
		}
	}
}

/* Looks up a name, which may take long: members, which must send heartbeats, never do. */
static int do_address(void *user, uint32_t place, char *address, struct pawl_err *err)
{
	assert_int_not_equal(host_of(user)->nodes.role, NODES_MEMBER);
	snprintf(address, ADDRESS_MAX, "host%u", index_of(user));
	return 0;
}

static uint32_t do_port(void *user, const char *address)
{
	return 1000 * (index_of(user) + 1) + ++host_of(user)->ports % 1000;
}

static uint32_t find_peer_port(uint32_t h)
{
	if (w.hosts[h].peerless) {
		return 0;
	}
	return 40000 + 1000 * h + w.hosts[h].peer_ports % 1000;
}

static uint32_t do_peer_port(void *user, const char *address)
{
	char expected[ADDRESS_MAX];

	snprintf(expected, sizeof(expected), "host%u", index_of(user));
	assert_string_equal(address, expected);
	host_of(user)->peer_ports++;
	return find_peer_port(index_of(user));
}

static void do_start(void *user, const struct node_frame *start)
{
	struct host *host = host_of(user);

	assert_true(start->ledger.generation > host->generation);
	assert_true(start->ledger.restarts <= w.max_restarts);
	assert_int_equal(start->world, w.nodes * WORKERS);
	assert_int_equal(start->first, start->node * WORKERS);
	host->generation = start->ledger.generation;
	host->start = *start;
	for (uint32_t i = 0; i < WORKERS; i++) {
		assert_false(host->alive[i]); /* no worker of the group before is left */
		host->alive[i] = true;
	}
}

static void do_notice(void *user, int signal, int64_t left_ns)
{
	host_of(user)->noticed = signal;
}

/* Ends a worker of a host, now or in a moment. */
static void end_worker(uint32_t h, uint32_t i, int status, int64_t delay_ns)
{
	struct host *host = &w.hosts[h];

	if (host->alive[i]) {
		host->alive[i] = false;
		happen(h, delay_ns,
			(struct nodes_event){.kind = NODES_EXITED,
				.rank = host->start.first + i,
				.exit = {.status = status},
				.text = "a worker failed"},
			NULL);
	}
}

static void do_kill(void *user)
{
	for (uint32_t i = 0; i < WORKERS; i++) {
		end_worker(index_of(user), i, 137, MS_NS + (int64_t)rng_below(&w.rng, 50) * MS_NS);
	}
}

static void do_notify_root_begun(void *user, const char *path, uint64_t nonce)
{
	host_of(user)->begun_nonce = nonce;
}

static void do_ask(void *user, const struct node_frame *frame)
{
	if (w.asked != NULL) {
		w.asked(index_of(user), frame);
	}
}

static void do_save_soon(void *user)
{
	host_of(user)->advised++;
}

static void do_drain(void *user)
{
	if (host_of(user)->hangs) {
		return;
	}
	happen(index_of(user), MS_NS, (struct nodes_event){.kind = NODES_DRAINED, .ok = true},
		NULL);
}

/* Ends a host. A process leaves closed connections; a machine that dies (silently) leaves
 * nothing. */
static void end_host(uint32_t h, bool silently)
{
	struct host *host = &w.hosts[h];

	host->on = false;
	host->listening = -1;
	memset(host->alive, 0, sizeof(host->alive));
	for (uint32_t i = 0; i < w.lines_n; i++) {
		if (w.lines[i].up && (w.lines[i].a == h || w.lines[i].b == h)) {
			if (silently) {
				w.lines[i].up = false;
			} else {
				do_close(host, i);
			}
		}
	}
}

static void do_exit(void *user, int status)
{
	host_of(user)->status = status;
	end_host(index_of(user), false);
}

static void do_log(void *user, bool is_error, const char *text)
{
	struct host *host = host_of(user);
	size_t len = strlen(host->logged_text);

	snprintf(host->logged_text + len, sizeof(host->logged_text) - len, "%s\n", text);
}

static const struct nodes_ops ops = {.listen = do_listen,
	.unlisten = do_unlisten,
	.connect = do_connect,
	.send = do_send,
	.close = do_close,
	.address = do_address,
	.port = do_port,
	.peer_port = do_peer_port,
	.start = do_start,
	.notice = do_notice,
	.kill = do_kill,
	.notify_root_begun = do_notify_root_begun,
	.ask = do_ask,
	.save_soon = do_save_soon,
	.drain = do_drain,
	.exit = do_exit,
	.log = do_log};

/* ---- the world ---- */

static void begin_world(uint64_t seed, uint32_t nodes, uint32_t places)
{
	memset(&w, 0, sizeof(w));
	w.now_ns = 1000 * S_NS;
	w.rng.state = seed;
	w.salt = (uint32_t)(seed % 10);
	w.nodes = nodes;
	w.places = places;
	w.max_restarts = 3;
	w.delay_max_ns = 100 * MS_NS;
	for (uint32_t p = 0; p < PLACES; p++) {
		w.place_of[p] = p;
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		w.hosts[h].listening = -1;
		w.hosts[h].status = -1;
	}
}

static void start_host_as(uint32_t h, struct nodes_options options)
{
	struct host *host = &w.hosts[h];

	options.places = w.places;
	options.place = place_text;
	options.instance_id = rng_u64(&w.rng);
	options.ops = &ops;
	options.user = host;
	memset(&host->nodes, 0, sizeof(host->nodes));
	host->life++;
	host->on = true;
	host->generation = 0;
	host->noticed = 0;
	host->begun_nonce = 0;
	host->status = -1;
	host->listening = -1;
	host->logged_text[0] = '\0';
	nodes_init(&host->nodes, &options);
	happen(h, MS_NS, (struct nodes_event){.kind = NODES_BEGIN}, NULL);
}

static struct nodes_options usual(void)
{
	return (struct nodes_options){.times = {.answer_ns = 5 * S_NS,
					      .retry_ns = S_NS / 2,
					      .probe_ns = S_NS,
					      .log_interval_ns = 10 * S_NS,
					      .close_ns = 2 * S_NS,
					      .together_ns = S_NS},
		.run_times = {.fast_ns = 5 * S_NS,
			.backoff_ns = S_NS,
			.backoff_max_ns = 4 * S_NS,
			.reserve_ns = 3 * S_NS,
			.drain_ns = 1800 * S_NS,
			.look_ns = S_NS / 4},
		.nodes = w.nodes,
		.workers = WORKERS,
		.wanted = NODE_NONE,
		.heartbeat_interval_ns = S_NS / 2,
		.job = "job",
		.max_restarts = w.max_restarts,
		.grace_ns = 20 * S_NS,
		.leaves_on_notice = w.leaves,
		.timeout_ns = 600 * S_NS};
}

static void start_host(uint32_t h)
{
	start_host_as(h, usual());
}

/* Starts a server, a host that only adds. */
static inline void start_server(uint32_t h)
{
	struct host *host = &w.hosts[h];

	host->life++;
	host->on = true;
	host->serves = true;
	host->silent = false;
	host->status = -1;
	host->logged_text[0] = '\0';
	do_connect(host, 0);
}

/* Handles an event as `pawl serve` does. */
static void step_server(struct host *host, const struct nodes_event *event)
{
	struct node_frame frame = {.kind = NODE_SERVE, .instance_id = 1 + index_of(host)};

	if (event->kind == NODES_CONNECTED) {
		snprintf(frame.text, sizeof(frame.text), "server%u:1:5", index_of(host));
		do_send(host, event->conn, &frame);
	} else if (event->kind == NODES_FRAME && event->frame->kind == NODE_HEARTBEAT &&
		!host->silent) {
		frame = (struct node_frame){.kind = NODE_HEARTBEAT};
		do_send(host, event->conn, &frame);
	} else if (event->kind == NODES_FRAME && event->frame->kind == NODE_REFUSE) {
		do_log(host, true, event->frame->text);
	} else if (event->kind == NODES_FRAME && event->frame->kind == NODE_EXIT) {
		do_exit(host, event->frame->status);
	}
}

static void step_host(uint32_t h, struct nodes_event event)
{
	if (w.hosts[h].serves) {
		step_server(&w.hosts[h], &event);
		return;
	}
	event.now_ns = w.now_ns;
	nodes_step(&w.hosts[h].nodes, &event);
}

/* Lets the next thing happen, no later than until_ns. Returns false if there is nothing. */
static bool step_world(int64_t until_ns)
{
	struct later *next = NULL;
	struct later now;
	uint32_t ticking = NOBODY;
	int64_t at_ns = until_ns;

	for (uint32_t i = 0; i < EVENTS; i++) {
		struct later *l = &w.later[i];

		if (l->at_ns != 0 &&
			(l->at_ns < at_ns ||
				(next && l->at_ns == at_ns && l->order < next->order))) {
			next = l;
			at_ns = l->at_ns;
		}
	}
	for (uint32_t h = 0; h < HOSTS; h++) {
		bool node = w.hosts[h].on && !w.hosts[h].serves;
		int64_t timer_ns = node ? w.hosts[h].nodes.timer_ns : 0;

		if (timer_ns != 0 && timer_ns < at_ns) {
			ticking = h;
			at_ns = timer_ns;
		}
	}
	if (next == NULL && ticking == NOBODY) {
		w.now_ns = until_ns;
		return false;
	}
	w.now_ns = at_ns > w.now_ns ? at_ns : w.now_ns;
	if (ticking != NOBODY) {
		step_host(ticking, (struct nodes_event){.kind = NODES_TICK});
		return true;
	}
	now = *next;
	next->at_ns = 0;
	if (w.hosts[now.host].on && w.hosts[now.host].life == now.life) {
		now.event.frame = &now.frame;
		step_host(now.host, now.event);
	}
	return true;
}

static void run_for(int64_t ns)
{
	int64_t until_ns = w.now_ns + ns;

	while (step_world(until_ns)) {
	}
}

static uint32_t count_working(void)
{
	uint32_t n = 0;

	for (uint32_t h = 0; h < HOSTS; h++) {
		n += w.hosts[h].on && (w.hosts[h].alive[0] || w.hosts[h].alive[1]);
	}
	return n;
}

/* Whether the agent of a host that works does not listen for others. */
static bool has_peerless(void)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		if (w.hosts[h].on && w.hosts[h].alive[0] && w.hosts[h].peerless) {
			return true;
		}
	}
	return false;
}

/* Checks that all working hosts are one group, which is whole. */
static void check_group(void)
{
	uint32_t generation = 0;
	bool seen[HOSTS] = {false};
	const struct node_frame *one = NULL;

	assert_int_equal(count_working(), w.nodes);
	for (uint32_t h = 0; h < HOSTS; h++) {
		const struct host *host = &w.hosts[h];

		if (!host->on || !host->alive[0]) {
			continue;
		}
		one = one ? one : &host->start;
		generation = generation ? generation : host->generation;
		assert_int_equal(host->generation, generation);
		assert_int_equal(host->start.port, one->port);
		assert_int_equal(host->start.peer_port, one->peer_port);
		assert_string_equal(host->start.address, one->address);
		assert_false(seen[host->start.node]);
		seen[host->start.node] = true;
		if (host->start.node == 0) { /* ranks meet at the node of rank 0 */
			assert_int_equal(host->start.port / 1000, h + 1);
			assert_int_equal(host->start.peer_port,
				has_peerless() ? 0 : find_peer_port(h));
		}
	}
}

static inline bool has_logged(uint32_t h, const char *text)
{
	return strstr(w.hosts[h].logged_text, text) != NULL;
}

static uint64_t first_seed;

/* Starts hosts from 0 on, which form a group. */
static inline void start_all(uint32_t nodes, uint32_t places)
{
	begin_world(first_seed, nodes, places);
	for (uint32_t h = 0; h < nodes; h++) {
		start_host(h);
	}
	run_for(10 * S_NS);
	check_group();
}

static inline void end_all_workers(int status)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		for (uint32_t i = 0; i < WORKERS; i++) {
			end_worker(h, i, status, MS_NS);
		}
	}
}

static inline void all_left_with(int status)
{
	for (uint32_t h = 0; h < HOSTS; h++) {
		assert_false(w.hosts[h].on);
		if (w.hosts[h].life > 0) {
			assert_int_equal(w.hosts[h].status, status);
		}
	}
}

static inline void machine_goes(uint32_t h, int64_t delay_ns, int64_t left_ns)
{
	happen(h, delay_ns,
		(struct nodes_event){.kind = NODES_NOTICED,
			.signal = 15,
			.deadline_ns = w.now_ns + delay_ns + left_ns,
			.text = "this machine goes away"},
		NULL);
}

#endif
