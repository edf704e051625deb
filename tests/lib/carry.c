/* Simulates plans of an all-reduce: see carry.h for the model. */
#include "carry.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* A message in flight, or a free entry. */
struct message {
	double left_s; /* time at which all of it has left its sender */
	uint32_t next; /* next message between the same two hosts, or next free entry */
};

/* A step of a plan, without sums, which take no time. */
struct move {
	uint32_t peer;      /* rank that the step sends to or receives from */
	bool send;          /* true: sends, false: receives */
	uint64_t len_bytes; /* bytes moved by the step */
};

struct host {
	struct move *moves; /* owned */
	size_t n, at;       /* number of moves; index of the next one */
	double now_s;       /* time at which the previous moves are over */
	double out_s;       /* time at which the network accepts the next message */
	double in_s;        /* time at which the network has delivered the last message */
	uint32_t waits_for; /* host whose message must come next; NONE: not waiting */
};

struct simulation {
	const struct coll_link *link; /* the caller's */
	struct host *hosts;           /* owned */
	uint32_t n;                   /* number of hosts */
	uint32_t *first, *last;   /* owned; first and last message of each pair, at from * n + to */
	struct message *messages; /* owned */
	uint32_t messages_n, free; /* entries ever used; the first free entry */
	uint32_t messages_cap;     /* entries allocated */
	uint32_t *due;             /* owned; stack of hosts that can go on */
	uint32_t due_n;            /* number of entries in due */
};

static uint32_t take_message(struct simulation *p)
{
	uint32_t l = p->free;

	if (l != NONE) {
		p->free = p->messages[l].next;
		return l;
	}
	if (p->messages_n == p->messages_cap) {
		p->messages_cap = 2 * p->messages_cap + 1024;
		p->messages = realloc(p->messages, p->messages_cap * sizeof(*p->messages));
		ASSERT(p->messages != NULL);
	}
	return p->messages_n++;
}

static void send_move(struct simulation *p, uint32_t from, const struct move *move)
{
	struct host *host = &p->hosts[from];
	struct host *peer = &p->hosts[move->peer];
	size_t pair = (size_t)from * p->n + move->peer;
	uint32_t l = take_message(p);
	double start_s = host->now_s > host->out_s ? host->now_s : host->out_s;

	host->out_s = start_s + p->link->message_s + (double)move->len_bytes / p->link->bytes_per_s;
	p->messages[l] = (struct message){host->out_s, NONE};
	if (p->first[pair] == NONE) {
		p->first[pair] = l;
	} else {
		p->messages[p->last[pair]].next = l;
	}
	p->last[pair] = l;
	if (peer->waits_for == from) {
		peer->waits_for = NONE;
		p->due[p->due_n++] = move->peer;
	}
}

/* Receives a message. Returns false if it was not sent yet. Its bytes arrive while they are sent,
 * unless those of other messages are arriving. */
static bool receive_move(struct simulation *p, uint32_t to, const struct move *move)
{
	struct host *host = &p->hosts[to];
	size_t pair = (size_t)move->peer * p->n + to;
	uint32_t l = p->first[pair];
	double came_s;
	double busy_s = host->in_s + (double)move->len_bytes / p->link->bytes_per_s;

	if (l == NONE) {
		host->waits_for = move->peer;
		return false;
	}
	came_s = p->messages[l].left_s + p->link->latency_s;
	p->first[pair] = p->messages[l].next;
	p->messages[l].next = p->free;
	p->free = l;
	host->in_s = came_s > busy_s ? came_s : busy_s;
	host->now_s = host->now_s > host->in_s ? host->now_s : host->in_s;
	return true;
}

static void go_on(struct simulation *p, uint32_t h)
{
	struct host *host = &p->hosts[h];

	for (; host->at < host->n; host->at++) {
		const struct move *move = &host->moves[host->at];

		if (move->send) {
			send_move(p, h, move);
		} else if (!receive_move(p, h, move)) {
			return;
		}
	}
}

/* Returns the seconds until the last host is done. Each host does its list in order, but does not
 * wait for what it sends. */
static double carry_out(struct simulation *p, const struct coll_link *link)
{
	double last_s = 0;

	p->link = link;
	p->due_n = 0;
	for (uint32_t h = p->n; h-- > 0;) {
		struct host *host = &p->hosts[h];

		host->at = 0;
		host->now_s = host->out_s = host->in_s = 0;
		host->waits_for = NONE;
		p->due[p->due_n++] = h;
	}
	while (p->due_n > 0) {
		go_on(p, p->due[--p->due_n]);
	}
	for (uint32_t h = 0; h < p->n; h++) {
		ASSERT(p->hosts[h].at == p->hosts[h].n);
		last_s = p->hosts[h].now_s > last_s ? p->hosts[h].now_s : last_s;
	}
	return last_s;
}

static void take_moves(struct host *host, const struct coll_plan *plan)
{
	host->moves = malloc((plan->steps_n + 1) * sizeof(*host->moves));
	ASSERT(host->moves != NULL);
	for (size_t s = 0; s < plan->steps_n; s++) {
		const struct coll_step *step = &plan->steps[s];

		if (step->op != COLL_SUM) {
			host->moves[host->n++] =
				(struct move){step->peer, step->op == COLL_SEND, step->len_bytes};
		}
	}
}

static struct simulation *open_paper(uint32_t hosts, enum coll_algorithm algorithm,
	uint64_t len_bytes)
{
	struct simulation *p = calloc(1, sizeof(*p));
	size_t pairs = (size_t)hosts * hosts;
	struct coll_plan plan = {0};
	struct coll_topo topo;

	ASSERT(p != NULL);
	p->n = hosts;
	p->free = NONE;
	p->hosts = calloc(hosts, sizeof(*p->hosts));
	p->first = malloc(pairs * sizeof(*p->first));
	p->last = malloc(pairs * sizeof(*p->last));
	p->due = calloc(hosts, sizeof(*p->due));
	ASSERT(p->hosts && p->first && p->last && p->due);
	memset(p->first, 0xff, pairs * sizeof(*p->first));
	for (uint32_t h = 0; h < hosts; h++) {
		p->due[h] = h;
	}
	ASSERT(coll_topo_init(&topo, p->due, hosts, 0, NULL) == 0);
	for (uint32_t h = 0; h < hosts; h++) {
		ASSERT(coll_plan_all_reduce(&plan, &topo, h, algorithm, len_bytes, NULL) == 0);
		take_moves(&p->hosts[h], &plan);
	}
	coll_plan_deinit(&plan);
	coll_topo_deinit(&topo);
	return p;
}

void carry_all_reduce(double *took_s, const struct coll_link *links, uint32_t links_n,
	uint32_t hosts, enum coll_algorithm algorithm, uint64_t len_bytes)
{
	struct simulation *p = open_paper(hosts, algorithm, len_bytes);

	for (uint32_t i = 0; i < links_n; i++) {
		took_s[i] = carry_out(p, &links[i]);
	}
	for (uint32_t h = 0; h < hosts; h++) {
		free(p->hosts[h].moves);
	}
	free(p->hosts);
	free(p->first);
	free(p->last);
	free(p->messages);
	free(p->due);
	free(p);
}
