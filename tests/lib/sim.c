/* A simulated transport: see sim.h for the model. Everything that happens is an event in a heap
 * ordered by time. */
#include "sim.h"

#include "base/assert.h"
#include "base/rng.h"
#include "fiber.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PACKET   (16u << 10) /* bytes sent at a time */
#define LOCAL_NS 1000        /* delay within a host */
/* Longest delay of bytes after the end of the cut that held them up, in millionths of the time from
 * their arrival at the cut to its end. */
#define AGAIN_PPM 100000

enum event_kind {
	EVENT_REACH, /* bytes reach the other host's network */
	EVENT_COME,  /* bytes have passed that network */
	EVENT_ROOM,  /* the sender knows that bytes were read */
	EVENT_END,   /* a stream ends */
	EVENT_BREAK, /* a stream breaks */
	EVENT_CALL,  /* a function given to sim_at is due */
};

struct event {
	int64_t at_ns;            /* time of the event */
	uint64_t order;           /* order among events of the same time */
	enum event_kind kind;     /* kind of the event */
	uint32_t flow;            /* flow, for all kinds but EVENT_CALL */
	uint64_t len_bytes;       /* number of bytes, for the first three kinds */
	void (*call)(void *user); /* function, for EVENT_CALL */
	void *user;               /* passed to call */
};

/* One direction of a stream. */
struct flow {
	uint8_t *ring;       /* owned buffer of window_bytes; NULL until something is sent */
	uint64_t sent;       /* bytes sent, in all */
	uint64_t came, read; /* bytes that have arrived; bytes read */
	uint64_t freed;      /* bytes that the sender knows were read */
	int64_t reach_ns;    /* time at which the last bytes sent reach the other host */
	bool ends;           /* no bytes follow those that were sent */
	bool ended;          /* the receiver has read to the end */
	bool broken;         /* the receiver knows that no more bytes come */
};

/* A rank's side of the network. */
struct side {
	struct coll_transport transport; /* the transport that the group uses */
	struct sim *sim;                 /* the simulation it belongs to */
	uint32_t rank;                   /* this rank */
	atomic_uint count;    /* changes so far: see look in coll/transport/transport.h */
	struct fiber *fiber;  /* owned; NULL: it has returned, or was never spawned */
	uint32_t seen;        /* value of count for whose change it waits */
	int64_t until_ns;     /* end of its wait */
	int64_t turn_ns;      /* earliest time of its next turn */
	int64_t frozen_ns;    /* time until which it does nothing */
	int64_t died_ns;      /* time of its death; SIM_NEVER: alive */
	enum sim_death death; /* kind of its death */
	bool closed;          /* the transport is closed; bytes that still arrive are dropped */
};

/* A host's network. */
struct nic {
	double bytes_per_s;    /* rate each way */
	int64_t more_ns;       /* additional delay to and from all other hosts */
	int64_t out_ns, in_ns; /* time at which it has sent, or received, everything it has */
};

struct sim {
	struct sim_net net;   /* the network as given to sim_open */
	uint32_t ranks;       /* number of ranks */
	struct side *sides;   /* owned; one per rank */
	uint32_t *host_of;    /* owned; host of each rank */
	struct nic *nics;     /* owned; one per host; there are at most as many hosts as ranks */
	int64_t *cut_ns;      /* owned; end of the cut between two hosts, at from * ranks + to */
	struct flow *flows;   /* owned; at (from * ranks + to) * COLL_STREAMS + stream */
	struct event *events; /* owned; a heap */
	size_t events_n;      /* number of events */
	size_t events_cap;    /* events allocated */
	uint64_t order;       /* order of the last event */
	int64_t now_ns;       /* see sim_now_ns */
	struct rng rng;       /* source of all randomness */
	bool over;            /* the run is over; dead and frozen ranks come to an end */
};

static struct side *side_of(struct coll_transport *transport)
{
	return (struct side *)(void *)transport;
}

static uint32_t flow_at(const struct sim *sim, uint32_t from, uint32_t to, uint32_t stream)
{
	return (from * sim->ranks + to) * COLL_STREAMS + stream;
}

static uint32_t sender_of(const struct sim *sim, uint32_t flow)
{
	return flow / COLL_STREAMS / sim->ranks;
}

static uint32_t receiver_of(const struct sim *sim, uint32_t flow)
{
	return flow / COLL_STREAMS % sim->ranks;
}

static bool is_local(const struct sim *sim, uint32_t a, uint32_t b)
{
	return sim->host_of[a] == sim->host_of[b];
}

static void count_change(struct sim *sim, uint32_t rank)
{
	atomic_fetch_add(&sim->sides[rank].count, 1);
}

/* ---- events ---- */

static bool is_before(const struct event *a, const struct event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void push_event(struct sim *sim, struct event event)
{
	size_t i = sim->events_n++;

	if (sim->events_n > sim->events_cap) {
		sim->events_cap = 2 * sim->events_n;
		sim->events = realloc(sim->events, sim->events_cap * sizeof(event));
		ASSERT(sim->events != NULL);
	}
	event.order = sim->order++;
	for (; i > 0 && is_before(&event, &sim->events[(i - 1) / 2]); i = (i - 1) / 2) {
		sim->events[i] = sim->events[(i - 1) / 2];
	}
	sim->events[i] = event;
}

static struct event pop_event(struct sim *sim)
{
	struct event first = sim->events[0];
	struct event last = sim->events[--sim->events_n];
	size_t i = 0;

	for (;;) {
		size_t next = 2 * i + 1;

		if (next + 1 < sim->events_n &&
			is_before(&sim->events[next + 1], &sim->events[next])) {
			next++;
		}
		if (next >= sim->events_n || !is_before(&sim->events[next], &last)) {
			break;
		}
		sim->events[i] = sim->events[next];
		i = next;
	}
	sim->events[i] = last;
	return first;
}

static void push_flow(struct sim *sim, enum event_kind kind, int64_t at_ns, uint32_t flow,
	uint64_t len_bytes)
{
	push_event(sim,
		(struct event){.at_ns = at_ns, .kind = kind, .flow = flow, .len_bytes = len_bytes});
}

void sim_at(struct sim *sim, int64_t at_ns, void (*call)(void *user), void *user)
{
	push_event(sim,
		(struct event){.at_ns = at_ns, .kind = EVENT_CALL, .call = call, .user = user});
}

/* ---- the network ---- */

static int64_t bytes_ns(const struct nic *nic, uint64_t len_bytes)
{
	return (int64_t)((double)len_bytes / nic->bytes_per_s * 1e9);
}

/* Returns the delay from one rank to another, not counting the time for the bytes. */
static int64_t path_delay_ns(struct sim *sim, uint32_t from, uint32_t to)
{
	int64_t ns = sim->net.latency_ns + sim->nics[sim->host_of[from]].more_ns +
		sim->nics[sim->host_of[to]].more_ns;

	if (is_local(sim, from, to)) {
		return LOCAL_NS;
	}
	if (sim->net.jitter_ns > 0) {
		ns += (int64_t)rng_below(&sim->rng, (uint64_t)sim->net.jitter_ns);
	}
	return ns;
}

/* Delays an event while the connection from one rank to the other is cut: the event comes again
 * later, or never. Returns false if it is not cut. */
static bool hold_up(struct sim *sim, const struct event *event, uint32_t from, uint32_t to)
{
	int64_t until_ns = sim->cut_ns[sim->host_of[from] * sim->ranks + sim->host_of[to]];
	struct event again = *event;
	uint64_t late;

	if (until_ns <= sim->now_ns) {
		return false;
	}
	if (until_ns != SIM_NEVER) {
		late = (uint64_t)(until_ns - sim->now_ns) * AGAIN_PPM / 1000000;
		again.at_ns = until_ns + (int64_t)rng_below(&sim->rng, late + 1);
		push_event(sim, again);
	}
	return true;
}

/* Breaks a flow: the receiver learns of it after the delay between the two. */
static void break_flow(struct sim *sim, uint32_t f)
{
	int64_t delay_ns = path_delay_ns(sim, sender_of(sim, f), receiver_of(sim, f));

	push_flow(sim, EVENT_BREAK, sim->now_ns + delay_ns, f, 0);
}

static void reach(struct sim *sim, const struct event *event)
{
	uint32_t from = sender_of(sim, event->flow);
	uint32_t to = receiver_of(sim, event->flow);
	struct side *side = &sim->sides[to];
	struct nic *nic = &sim->nics[sim->host_of[to]];
	int64_t through_ns = nic->in_ns + bytes_ns(nic, event->len_bytes);

	if (hold_up(sim, event, from, to)) {
		return;
	}
	if (side->died_ns <= sim->now_ns || side->closed) {
		if (side->died_ns <= sim->now_ns && side->death != SIM_SILENT) {
			break_flow(sim, flow_at(sim, to, from, event->flow % COLL_STREAMS));
		}
		return;
	}
	nic->in_ns = through_ns > sim->now_ns ? through_ns : sim->now_ns;
	push_flow(sim, EVENT_COME, nic->in_ns, event->flow, event->len_bytes);
}

static void happen(struct sim *sim, const struct event *event)
{
	struct flow *flow = &sim->flows[event->flow];
	uint32_t from = sender_of(sim, event->flow);
	uint32_t to = receiver_of(sim, event->flow);

	switch (event->kind) {
	case EVENT_REACH:
		reach(sim, event);
		return;
	case EVENT_COME:
		if (!flow->broken || sim->sides[from].death != SIM_RESET) {
			flow->came += event->len_bytes;
		}
		count_change(sim, to);
		return;
	case EVENT_ROOM:
		if (is_local(sim, from, to) || !hold_up(sim, event, to, from)) {
			flow->freed += event->len_bytes;
			count_change(sim, from);
		}
		return;
	case EVENT_END:
	case EVENT_BREAK:
		if (!hold_up(sim, event, from, to)) {
			flow->ends |= event->kind == EVENT_END;
			flow->broken |= event->kind == EVENT_BREAK;
			count_change(sim, to);
		}
		return;
	case EVENT_CALL:
		event->call(event->user);
		return;
	}
}

/* ---- the transport ---- */

static size_t take_bytes(struct sim *sim, uint32_t f, const void *bytes, size_t len_bytes)
{
	struct flow *flow = &sim->flows[f];
	uint64_t window = sim->net.window_bytes;
	uint64_t room = window - (flow->sent - flow->freed);
	size_t n = len_bytes < room ? len_bytes : room;
	size_t at = flow->sent % window;
	size_t first;

	n = n < PACKET ? n : PACKET;
	first = n < window - at ? n : window - at;
	if (n > 0 && !flow->ring) {
		flow->ring = malloc(window);
		ASSERT(flow->ring != NULL);
	}
	if (n > 0) {
		memcpy(flow->ring + at, bytes, first);
		memcpy(flow->ring, (const uint8_t *)bytes + first, n - first);
		flow->sent += n;
	}
	return n;
}

static size_t sim_send(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	const void *bytes, size_t len_bytes)
{
	struct side *side = side_of(transport);
	struct sim *sim = side->sim;
	uint32_t f = flow_at(sim, side->rank, peer, stream);
	struct nic *nic = &sim->nics[sim->host_of[side->rank]];
	int64_t at_ns = sim->now_ns;
	size_t n;

	if (side->died_ns <= sim->now_ns) {
		return len_bytes;
	}
	n = take_bytes(sim, f, bytes, len_bytes);
	if (n == 0) {
		return 0;
	}
	if (is_local(sim, side->rank, peer)) {
		push_flow(sim, EVENT_COME, at_ns + LOCAL_NS, f, n);
		return n;
	}
	at_ns = (nic->out_ns > at_ns ? nic->out_ns : at_ns) + bytes_ns(nic, n);
	nic->out_ns = at_ns;
	at_ns += path_delay_ns(sim, side->rank, peer);
	if (rng_below(&sim->rng, 1000000) < sim->net.loss_ppm) {
		at_ns += sim->net.loss_ns;
	}
	at_ns = at_ns > sim->flows[f].reach_ns ? at_ns : sim->flows[f].reach_ns;
	sim->flows[f].reach_ns = at_ns;
	push_flow(sim, EVENT_REACH, at_ns, f, n);
	return n;
}

static size_t sim_receive(struct coll_transport *transport, uint32_t peer, uint32_t stream,
	void *bytes, size_t len_bytes)
{
	struct side *side = side_of(transport);
	struct sim *sim = side->sim;
	uint32_t f = flow_at(sim, peer, side->rank, stream);
	struct flow *flow = &sim->flows[f];
	uint64_t window = sim->net.window_bytes;
	uint64_t there = side->died_ns <= sim->now_ns ? 0 : flow->came - flow->read;
	size_t n = len_bytes < there ? len_bytes : there;
	size_t at = flow->read % window;
	size_t first = n < window - at ? n : window - at;

	if (n == 0) {
		flow->ended |= len_bytes > 0 && flow->ends && flow->read == flow->sent;
		return 0;
	}
	memcpy(bytes, flow->ring + at, first);
	memcpy((uint8_t *)bytes + first, flow->ring, n - first);
	flow->read += n;
	push_flow(sim, EVENT_ROOM, sim->now_ns + path_delay_ns(sim, side->rank, peer), f, n);
	return n;
}

static uint32_t sim_look(struct coll_transport *transport)
{
	return atomic_load(&side_of(transport)->count);
}

static void sim_wake(struct coll_transport *transport)
{
	atomic_fetch_add(&side_of(transport)->count, 1);
}

static int64_t sim_clock(struct coll_transport *transport)
{
	return side_of(transport)->sim->now_ns;
}

static const char *sim_lost(struct coll_transport *transport, uint32_t peer)
{
	const struct side *side = side_of(transport);
	const struct sim *sim = side->sim;
	const struct side *other = &sim->sides[peer];

	if (side->died_ns <= sim->now_ns) {
		return "it is this rank that died";
	}
	if (is_local(sim, side->rank, peer)) {
		return other->died_ns <= sim->now_ns ? "its process ended" : NULL;
	}
	for (uint32_t s = 0; s < COLL_STREAMS; s++) {
		if (sim->flows[flow_at(sim, peer, side->rank, s)].broken) {
			return "its connection broke";
		}
	}
	return sim->flows[flow_at(sim, peer, side->rank, COLL_CONTROL)].ended
		? "its connection was closed"
		: NULL;
}

/* Ends all flows of a rank: everything it has sent arrives, then the end. */
static void end_flows(struct sim *sim, uint32_t rank)
{
	for (uint32_t i = 0; i < sim->ranks * COLL_STREAMS; i++) {
		uint32_t peer = i / COLL_STREAMS;
		uint32_t f = flow_at(sim, rank, peer, i % COLL_STREAMS);
		int64_t at_ns = sim->now_ns + path_delay_ns(sim, rank, peer);

		if (peer != rank && !is_local(sim, rank, peer)) {
			at_ns = at_ns > sim->flows[f].reach_ns ? at_ns : sim->flows[f].reach_ns;
			push_flow(sim, EVENT_END, at_ns, f, 0);
		}
	}
}

static void sim_close_transport(struct coll_transport *transport)
{
	struct side *side = side_of(transport);

	side->closed = true;
	if (side->died_ns == SIM_NEVER) {
		end_flows(side->sim, side->rank);
	}
}

/* ---- turns ---- */

/* Handles the next event, if it is not after end_ns. */
static bool go_on(struct sim *sim, int64_t end_ns)
{
	struct event event;

	if (sim->events_n == 0 || sim->events[0].at_ns > end_ns) {
		sim->now_ns = end_ns > sim->now_ns ? end_ns : sim->now_ns;
		return false;
	}
	event = pop_event(sim);
	sim->now_ns = event.at_ns > sim->now_ns ? event.at_ns : sim->now_ns;
	happen(sim, &event);
	return true;
}

static void sim_wait(struct coll_transport *transport, uint32_t seen, int64_t timeout_ns)
{
	struct side *side = side_of(transport);
	struct sim *sim = side->sim;

	side->seen = seen;
	side->until_ns =
		timeout_ns < SIM_NEVER - sim->now_ns ? sim->now_ns + timeout_ns : SIM_NEVER;
	if (fiber_runs()) {
		fiber_pause();
		return;
	}
	while (atomic_load(&side->count) == seen && go_on(sim, side->until_ns)) {
	}
}

/* Returns the time at which a rank has something to do: now or earlier if it has something
 * already. */
static int64_t due_ns(const struct sim *sim, const struct side *side)
{
	int64_t due_ns = atomic_load(&side->count) != side->seen ? sim->now_ns : side->until_ns;

	if (!side->fiber || (side->died_ns <= sim->now_ns && !sim->over)) {
		return SIM_NEVER;
	}
	due_ns = due_ns > side->frozen_ns || sim->over ? due_ns : side->frozen_ns;
	return due_ns > side->turn_ns ? due_ns : side->turn_ns;
}

static void take_turn(struct sim *sim, struct side *side)
{
	side->turn_ns = sim->now_ns + sim->net.turn_ns;
	if (fiber_resume(side->fiber)) {
		fiber_close(side->fiber);
		side->fiber = NULL;
	}
}

/* Gives a turn to all ranks that have something to do, from a random one on. Returns the time of
 * the next turn. */
static int64_t take_turns(struct sim *sim)
{
	uint32_t first = (uint32_t)rng_below(&sim->rng, sim->ranks);
	int64_t next_ns = SIM_NEVER;

	for (uint32_t i = 0; i < sim->ranks; i++) {
		struct side *side = &sim->sides[(first + i) % sim->ranks];
		int64_t at_ns = due_ns(sim, side);

		if (at_ns <= sim->now_ns) {
			take_turn(sim, side);
		}
		at_ns = due_ns(sim, side);
		next_ns = at_ns < next_ns ? at_ns : next_ns;
	}
	return next_ns;
}

static bool has_living(const struct sim *sim)
{
	bool any = false;

	for (uint32_t r = 0; r < sim->ranks; r++) {
		const struct side *side = &sim->sides[r];

		any |= side->fiber &&
			(sim->over || (side->died_ns > sim->now_ns && side->frozen_ns < SIM_NEVER));
	}
	return any;
}

static bool run_all(struct sim *sim, int64_t end_ns)
{
	while (has_living(sim) && sim->now_ns < end_ns) {
		int64_t next_ns = take_turns(sim);

		if (next_ns > sim->now_ns && has_living(sim)) {
			go_on(sim, next_ns < end_ns ? next_ns : end_ns);
		}
	}
	return !has_living(sim);
}

bool sim_run(struct sim *sim, int64_t end_ns)
{
	bool ended;

	sim->over = false;
	ended = run_all(sim, end_ns);
	for (uint32_t r = 0; r < sim->ranks; r++) {
		struct side *side = &sim->sides[r];

		side->died_ns =
			side->fiber && side->died_ns > sim->now_ns ? sim->now_ns : side->died_ns;
	}
	sim->over = true;
	run_all(sim, SIM_NEVER);
	return ended;
}

void sim_spawn(struct sim *sim, uint32_t rank, void (*run)(void *user), void *user)
{
	ASSERT(sim->sides[rank].fiber == NULL);
	sim->sides[rank].fiber = fiber_open(run, user);
	sim->sides[rank].until_ns = sim->now_ns;
}

void sim_sleep(struct sim *sim, uint32_t rank, int64_t for_ns)
{
	struct side *side = &sim->sides[rank];

	sim_freeze(sim, rank, sim->now_ns + for_ns);
	side->until_ns = sim->now_ns;
	fiber_pause();
}

/* ---- faults ---- */

void sim_kill(struct sim *sim, uint32_t rank, enum sim_death death)
{
	struct side *side = &sim->sides[rank];

	if (side->died_ns != SIM_NEVER || side->closed) {
		return;
	}
	side->died_ns = sim->now_ns;
	side->death = death;
	if (death == SIM_CLOSED) {
		end_flows(sim, rank);
	}
	for (uint32_t i = 0; i < sim->ranks * COLL_STREAMS && death == SIM_RESET; i++) {
		uint32_t peer = i / COLL_STREAMS;

		if (!is_local(sim, rank, peer)) {
			break_flow(sim, flow_at(sim, rank, peer, i % COLL_STREAMS));
		}
	}
}

bool sim_died(const struct sim *sim, uint32_t rank)
{
	return sim->sides[rank].died_ns <= sim->now_ns;
}

void sim_freeze(struct sim *sim, uint32_t rank, int64_t until_ns)
{
	struct side *side = &sim->sides[rank];

	side->frozen_ns = until_ns > side->frozen_ns ? until_ns : side->frozen_ns;
}

void sim_cut(struct sim *sim, uint32_t from_host, uint32_t to_host, int64_t until_ns)
{
	int64_t *cut_ns = &sim->cut_ns[from_host * sim->ranks + to_host];

	*cut_ns = until_ns > *cut_ns ? until_ns : *cut_ns;
}

void sim_slow(struct sim *sim, uint32_t host, double bytes_per_s, int64_t more_ns)
{
	sim->nics[host].bytes_per_s = bytes_per_s;
	sim->nics[host].more_ns = more_ns;
}

/* ---- opening ---- */

struct sim *sim_open(const struct sim_net *net, const uint32_t *host_of, uint32_t ranks,
	uint64_t seed)
{
	struct sim *sim = calloc(1, sizeof(*sim));

	ASSERT(sim != NULL);
	sim->net = *net;
	sim->ranks = ranks;
	sim->rng.state = seed;
	sim->sides = calloc(ranks, sizeof(*sim->sides));
	sim->host_of = calloc(ranks, sizeof(*sim->host_of));
	sim->nics = calloc(ranks, sizeof(*sim->nics));
	sim->cut_ns = calloc((size_t)ranks * ranks, sizeof(*sim->cut_ns));
	sim->flows = calloc((size_t)ranks * ranks * COLL_STREAMS, sizeof(*sim->flows));
	ASSERT(sim->sides && sim->host_of && sim->nics && sim->cut_ns && sim->flows);
	memcpy(sim->host_of, host_of, ranks * sizeof(*host_of));
	for (uint32_t r = 0; r < ranks; r++) {
		sim->nics[r].bytes_per_s = net->bytes_per_s;
		sim->sides[r].transport = (struct coll_transport){sim_send, sim_receive, sim_look,
			sim_wait, sim_wake, sim_lost, sim_close_transport, sim_clock};
		sim->sides[r].sim = sim;
		sim->sides[r].rank = r;
		sim->sides[r].died_ns = SIM_NEVER;
	}
	return sim;
}

void sim_close(struct sim *sim)
{
	for (uint32_t f = 0; f < sim->ranks * sim->ranks * COLL_STREAMS; f++) {
		free(sim->flows[f].ring);
	}
	free(sim->sides);
	free(sim->host_of);
	free(sim->nics);
	free(sim->cut_ns);
	free(sim->flows);
	free(sim->events);
	free(sim);
}

struct coll_transport *sim_transport(struct sim *sim, uint32_t rank)
{
	return &sim->sides[rank].transport;
}

int64_t sim_now_ns(const struct sim *sim)
{
	return sim->now_ns;
}
