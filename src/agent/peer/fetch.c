/*
 * The requests of a fetch, and its thread: see fetch.h.
 *
 * Lock: one mutex guards the state, the queues of requests and the table of links. No I/O is done
 * under it. The records, the memory and the tables of parts are made by the thread before it sets
 * the state to FETCH_READY, and do not change afterwards: the loop reads them without the lock.
 */
#include "agent/peer/fetch_impl.h"
#include "agent/peer/peer_link.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"
#include "ckpt/format/pieces.h"
#include "io/loop.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- queues ---- */

static void push(struct fetch_queue *queue, struct fetch_request *request)
{
	request->next = NULL;
	if (queue->tail) {
		queue->tail->next = request;
	} else {
		queue->head = request;
	}
	queue->tail = request;
}

static struct fetch_request *pop(struct fetch_queue *queue)
{
	struct fetch_request *request = queue->head;

	if (request) {
		queue->head = request->next;
		queue->tail = queue->head ? queue->tail : NULL;
	}
	return request;
}

/* Drops the requests of user; all: those of everybody. */
static void drop(struct fetch_queue *queue, const void *user, bool all)
{
	struct fetch_queue kept = {0};

	for (struct fetch_request *request; (request = pop(queue));) {
		if (all || request->done.user == user) {
			free(request);
		} else {
			push(&kept, request);
		}
	}
	*queue = kept;
}

/* ---- the thread ---- */

/* The caller holds the lock. */
static bool is_interrupted(const struct peer_fetch *fetch)
{
	return fetch->stop || (fetch->current && fetch->current->forgotten);
}

bool fetch_interrupted(struct peer_fetch *fetch)
{
	bool interrupted;

	pthread_mutex_lock(&fetch->lock);
	interrupted = is_interrupted(fetch);
	pthread_mutex_unlock(&fetch->lock);
	return interrupted;
}

bool fetch_await_lost(struct peer_fetch *fetch)
{
	int64_t due_ns = clock_add_ns(clock_mono_ns(), times_ns(TIME_PEER_RETRY));
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
	bool lost = false;
	bool go_on;

	for (uint32_t i = 0; i < fetch->map->n; i++) {
		lost = lost || fetch->hosts[i].lost;
	}
	pthread_mutex_lock(&fetch->lock);
	while ((go_on = lost && !is_interrupted(fetch)) &&
		pthread_cond_timedwait(&fetch->changed, &fetch->lock, &due) == 0) {
	}
	pthread_mutex_unlock(&fetch->lock);
	return go_on;
}

struct fetch_part *fetch_find(struct peer_fetch *fetch, uint32_t rank)
{
	for (uint32_t i = 0; i < fetch->parts_n; i++) {
		struct fetch_part *part = &fetch->parts[i];

		if (rank >= part->first_rank && rank - part->first_rank < part->ranks) {
			return part;
		}
	}
	return NULL;
}

static void open_save(struct peer_fetch *fetch)
{
	struct pawl_err err = {0};
	int rv = fetch_get_records(fetch, &err);

	pthread_mutex_lock(&fetch->lock);
	fetch->state = rv == 0 ? FETCH_READY : FETCH_FAILED;
	fetch->err = err;
	pthread_mutex_unlock(&fetch->lock);
	loop_wake(fetch->loop);
}

/* Waits for the next request, and makes it the current one. NULL: the thread is to end. */
static struct fetch_request *take_request(struct peer_fetch *fetch)
{
	struct fetch_request *request = NULL;

	pthread_mutex_lock(&fetch->lock);
	while (!fetch->stop && !(request = pop(&fetch->todo))) {
		pthread_cond_wait(&fetch->changed, &fetch->lock);
	}
	fetch->current = request;
	pthread_mutex_unlock(&fetch->lock);
	return request;
}

static void end_request(struct peer_fetch *fetch, struct fetch_request *request)
{
	bool forgotten;

	pthread_mutex_lock(&fetch->lock);
	fetch->current = NULL;
	forgotten = request->forgotten;
	if (!forgotten) {
		push(&fetch->ended, request);
	}
	pthread_mutex_unlock(&fetch->lock);
	if (forgotten) {
		free(request);
	} else {
		loop_wake(fetch->loop);
	}
}

static void *run_thread(void *user)
{
	struct peer_fetch *fetch = user;
	struct fetch_request *request;

	open_save(fetch);
	while ((request = take_request(fetch))) {
		request->done.rv = fetch_bring(fetch, request, &request->done.err);
		end_request(fetch, request);
	}
	return NULL;
}

/* ---- for the loop ---- */

/* Puts this host in front of n sources of a part: its memory is nearer than any other. */
static void prefer_own(struct peer_fetch *fetch, struct recover_source *first, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		if (first[i].host == fetch->map->hosts[fetch->map->own].first_rank) {
			struct recover_source own = first[i];

			memmove(first + 1, first, i * sizeof(*first));
			first[0] = own;
		}
	}
}

/* Groups the plan's sources, which are in order of first_rank, by their parts. */
static int group_sources(struct peer_fetch *fetch, struct pawl_err *err)
{
	struct recover_plan *plan = fetch->plan;
	struct fetch_part *part = NULL; /* the last one */

	fetch->parts = FAULT_MEM("fetch.parts", calloc(plan->sources_n, sizeof(*fetch->parts)));
	if (!fetch->parts) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %" PRIu32 " parts of a save",
			plan->sources_n);
	}
	for (uint32_t i = 0; i < plan->sources_n; i++) {
		struct recover_source *source = &plan->sources[i];

		if (!part || part->first_rank != source->first_rank) {
			part = &fetch->parts[fetch->parts_n++];
			*part = (struct fetch_part){.first_rank = source->first_rank,
				.ranks = source->ranks,
				.sources = source,
				.sums = source};
		}
		ASSERT(part->ranks == source->ranks && source->ranks <= fetch->world &&
			source->first_rank <= fetch->world - source->ranks);
		if (source->parity.k != 0) {
			part->sums_n++;
		} else if (part->sums_n == 0) { /* sums are the last */
			part->sources_n++;
			part->sums++;
			prefer_own(fetch, source + 1 - part->sources_n, part->sources_n);
		}
	}
	return 0;
}

/* Copies what the caller gave. */
static int fill(struct peer_fetch *fetch, const struct recover_plan *plan,
	const struct peer_map *map, struct pawl_err *err)
{
	fetch->plan = FAULT_MEM("fetch.plan", malloc(sizeof(*plan)));
	fetch->map = FAULT_MEM("fetch.map", malloc(sizeof(*map)));
	fetch->ranks = FAULT_MEM("fetch.ranks", calloc(fetch->world, sizeof(*fetch->ranks)));
	fetch->piece = FAULT_MEM("fetch.piece", malloc(CKPT_CHUNK));
	if (!fetch->plan || !fetch->map || !fetch->ranks || !fetch->piece) {
		return pawl_err_set(err, PAWL_ENOMEM,
			"no memory to fetch a save of %" PRIu32 " ranks", fetch->world);
	}
	*fetch->plan = *plan;
	*fetch->map = *map;
	return group_sources(fetch, err);
}

/* Frees all except the thread. */
static void free_fetch(struct peer_fetch *fetch)
{
	for (uint32_t i = 0; i < PEER_HOSTS_MAX; i++) {
		peer_link_close(fetch->hosts[i].link);
	}
	drop(&fetch->todo, NULL, true);
	drop(&fetch->ended, NULL, true);
	fetch_drop_records(fetch);
	pthread_cond_destroy(&fetch->changed);
	pthread_mutex_destroy(&fetch->lock);
	free(fetch->parts);
	free(fetch->ranks);
	free(fetch->piece);
	free(fetch->rows);
	free(fetch->plan);
	free(fetch->map);
	free(fetch);
}

int peer_fetch_open(struct peer_fetch **out, struct peers *peers, struct loop *loop, uint64_t root,
	const struct recover_plan *plan, uint32_t world, const struct peer_map *map,
	struct pawl_err *err)
{
	struct peer_fetch *fetch = FAULT_MEM("fetch.open", calloc(1, sizeof(*fetch)));
	int rv;
	int sys;

	ASSERT(plan->found && plan->sources_n > 0 && plan->sources_n <= PEER_PARTS_MAX &&
		world > 0);
	if (!fetch) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to fetch a save");
	}
	fetch->peers = peers;
	fetch->loop = loop;
	fetch->root = root;
	fetch->world = world;
	fetch->fd = -1;
	pthread_mutex_init(&fetch->lock, NULL);
	clock_cond_init(&fetch->changed);
	rv = fill(fetch, plan, map, err);
	if (rv == 0) {
		sys = FAULT_SYS("fetch.thread",
			pthread_create(&fetch->thread, NULL, run_thread, fetch));
		if (sys == 0) {
			*out = fetch;
			return 0;
		}
		errno = sys > 0 ? sys : errno; /* an injected fault sets errno */
		rv = pawl_err_sys(err, "start the thread that fetches a save");
	}
	free_fetch(fetch);
	return rv;
}

void peer_fetch_close(struct peer_fetch *fetch)
{
	if (!fetch) {
		return;
	}
	pthread_mutex_lock(&fetch->lock);
	fetch->stop = true;
	for (uint32_t i = 0; i < PEER_HOSTS_MAX; i++) {
		if (fetch->hosts[i].link) {
			peer_link_cancel(fetch->hosts[i].link);
		}
	}
	pthread_cond_broadcast(&fetch->changed);
	pthread_mutex_unlock(&fetch->lock);
	pthread_join(fetch->thread, NULL);
	free_fetch(fetch);
}

enum peer_fetch_state peer_fetch_state(struct peer_fetch *fetch, struct pawl_err *err)
{
	enum peer_fetch_state state;

	pthread_mutex_lock(&fetch->lock);
	state = fetch->state;
	if (state == FETCH_FAILED && err) {
		*err = fetch->err;
	}
	pthread_mutex_unlock(&fetch->lock);
	return state;
}

void peer_fetch_memory(struct peer_fetch *fetch, int *fd, uint64_t *size_bytes)
{
	*fd = fetch->fd;
	*size_bytes = fetch->size_bytes;
}

void peer_fetch_rank(struct peer_fetch *fetch, uint32_t rank, struct peer_fetch_rank *out)
{
	ASSERT(rank < fetch->world);
	*out = fetch->ranks[rank].given;
}

int peer_fetch_ask(struct peer_fetch *fetch, uint32_t rank, uint32_t part, uint64_t lo, uint64_t hi,
	void *user, struct pawl_err *err)
{
	const struct fetch_part *holder;
	struct fetch_request *request;

	ASSERT(peer_fetch_state(fetch, NULL) == FETCH_READY);
	holder = rank < fetch->world ? fetch_find(fetch, rank) : NULL;
	if (!holder || part >= holder->records[rank - holder->first_rank].parts_n) {
		return pawl_err_set(err, PAWL_EINVAL,
			"step %" PRIu64 " has no partition %" PRIu32 " of rank %" PRIu32,
			fetch->plan->step, part, rank);
	}
	request = FAULT_MEM("fetch.ask", calloc(1, sizeof(*request)));
	if (!request) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to ask for bytes of a save");
	}
	request->rank = rank;
	request->part = part;
	request->lo = lo;
	request->hi = hi;
	request->done.user = user;
	pthread_mutex_lock(&fetch->lock);
	push(&fetch->todo, request);
	pthread_cond_broadcast(&fetch->changed);
	pthread_mutex_unlock(&fetch->lock);
	return 0;
}

bool peer_fetch_reap(struct peer_fetch *fetch, struct peer_fetch_done *done)
{
	struct fetch_request *request;

	pthread_mutex_lock(&fetch->lock);
	request = pop(&fetch->ended);
	pthread_mutex_unlock(&fetch->lock);
	if (request) {
		*done = request->done;
		free(request);
	}
	return request != NULL;
}

void peer_fetch_forget(struct peer_fetch *fetch, const void *user)
{
	pthread_mutex_lock(&fetch->lock);
	drop(&fetch->todo, user, false);
	drop(&fetch->ended, user, false);
	if (fetch->current && fetch->current->done.user == user) {
		fetch->current->forgotten = true;
		pthread_cond_broadcast(&fetch->changed);
	}
	pthread_mutex_unlock(&fetch->lock);
}
