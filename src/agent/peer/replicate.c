/*
 * A replicator's end in the loop, and the offers: see replicate.h.
 *
 * Lock: one mutex guards the offers, the run in force, the status and the table of links. No I/O is
 * done under it: the thread locks it once for each block that it sends, and the loop for each call.
 *
 * An arena that is withdrawn is written to at once. The thread asks for each block that it has
 * read, under the lock, whether the offer is withdrawn. A block that passes was read before
 * replicator_withdraw had returned, hence before anybody wrote to the arena.
 */
#include "agent/peer/peer_link.h"
#include "agent/peer/peers.h"
#include "agent/peer/replicate_impl.h"
#include "agent/peer/rounds.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- offers ---- */

static void free_offer(struct offer *offer)
{
	for (uint32_t i = 0; offer && offer->ranks && i < offer->part.ranks; i++) {
		free(offer->ranks[i].blob);
		if (offer->ranks[i].fd >= 0) {
			close(offer->ranks[i].fd);
		}
	}
	free(offer ? offer->ranks : NULL);
	free(offer);
}

static int copy_rank(struct offer_rank *to, const struct replicate_rank *from, struct pawl_err *err)
{
	*to = (struct offer_rank){.fd = -1};
	if (!from->blob) {
		return 0;
	}
	to->blob = FAULT_MEM("replicate.blob", malloc(from->blob_bytes));
	if (!to->blob) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a record of %" PRIu32 " bytes",
			from->blob_bytes);
	}
	memcpy(to->blob, from->blob, from->blob_bytes);
	to->blob_bytes = from->blob_bytes;
	to->arena_bytes = from->arena_bytes;
	to->fd = FAULT_SYS("replicate.dup", fcntl(from->fd, F_DUPFD_CLOEXEC, 0));
	return to->fd >= 0 ? 0 : pawl_err_sys(err, "duplicate an arena's descriptor");
}

static int make_offer(struct offer **out, const struct peer_part *part,
	const struct replicate_rank *ranks, struct pawl_err *err)
{
	struct offer *offer = FAULT_MEM("replicate.offer", calloc(1, sizeof(*offer)));
	int rv = 0;

	if (offer) {
		offer->part = *part;
		offer->ranks = FAULT_MEM("replicate.ranks",
			malloc(part->ranks * sizeof(struct offer_rank)));
	}
	if (!offer || !offer->ranks) {
		free(offer);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a save to replicate");
	}
	for (uint32_t i = 0; i < part->ranks; i++) {
		offer->ranks[i] = (struct offer_rank){.fd = -1};
	}
	for (uint32_t i = 0; rv == 0 && i < part->ranks; i++) {
		rv = copy_rank(&offer->ranks[i], &ranks[i], err);
	}
	if (rv != 0) {
		free_offer(offer);
		return rv;
	}
	*out = offer;
	return 0;
}

/* Takes an offer out of its slot. Returns it if nobody uses it: it is to be freed without the lock,
 * which the caller holds. */
static struct offer *clear_slot(struct replicator *replicator, int slot)
{
	struct offer *offer = replicator->offers[slot];

	replicator->offers[slot] = NULL;
	if (offer) {
		offer->withdrawn = true;
		pthread_cond_broadcast(&replicator->changed);
	}
	return offer && !offer->in_use ? offer : NULL;
}

static void clear_slots(struct replicator *replicator, struct offer *unused[ARENA_SLOTS])
{
	for (int slot = 0; slot < ARENA_SLOTS; slot++) {
		unused[slot] = clear_slot(replicator, slot);
	}
}

static void free_offers(struct offer *offers[ARENA_SLOTS])
{
	for (int slot = 0; slot < ARENA_SLOTS; slot++) {
		free_offer(offers[slot]);
	}
}

/* ---- for the thread ---- */

/* The caller holds the lock. */
static bool is_interrupted(const struct replicator *replicator)
{
	return replicator->stop || replicator->epoch != replicator->turn.epoch;
}

bool replicate_interrupted(struct replicator *replicator)
{
	bool interrupted;

	pthread_mutex_lock(&replicator->lock);
	interrupted = is_interrupted(replicator);
	pthread_mutex_unlock(&replicator->lock);
	return interrupted;
}

/* Waits for a change, with the lock. Returns false if due_ns is over. */
static bool await_change(struct replicator *replicator, int64_t due_ns)
{
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};

	return pthread_cond_timedwait(&replicator->changed, &replicator->lock, &due) == 0;
}

bool replicate_pause(struct replicator *replicator, int64_t pause_ns)
{
	int64_t due_ns = clock_add_ns(clock_mono_ns(), pause_ns);
	bool go_on;

	pthread_mutex_lock(&replicator->lock);
	while ((go_on = !is_interrupted(replicator)) && await_change(replicator, due_ns)) {
	}
	pthread_mutex_unlock(&replicator->lock);
	return go_on;
}

/* The caller holds the lock. */
static struct offer *newest_offer(const struct replicator *replicator)
{
	struct offer *newest = NULL;

	for (int slot = 0; slot < ARENA_SLOTS; slot++) {
		struct offer *offer = replicator->offers[slot];

		if (offer && (!newest || offer->part.save.number > newest->part.save.number)) {
			newest = offer;
		}
	}
	return newest;
}

struct offer *replicate_take_newest(struct replicator *replicator, uint64_t number,
	int64_t again_ns)
{
	int64_t due_ns = clock_add_ns(clock_mono_ns(), again_ns);
	struct offer *offer = NULL;
	bool again = false;

	pthread_mutex_lock(&replicator->lock);
	while (!is_interrupted(replicator)) {
		offer = newest_offer(replicator);
		if (offer &&
			(offer->part.save.number > number ||
				(again && offer->part.save.number == number))) {
			offer->in_use = true;
			break;
		}
		offer = NULL;
		if (again) {
			pthread_cond_wait(&replicator->changed, &replicator->lock);
		} else {
			again = !await_change(replicator, due_ns);
		}
	}
	pthread_mutex_unlock(&replicator->lock);
	return offer;
}

/* Finds the offer of a save; the caller holds the lock. */
static struct offer *find_offer(const struct replicator *replicator, const struct peer_save *save)
{
	for (int slot = 0; slot < ARENA_SLOTS; slot++) {
		struct offer *offer = replicator->offers[slot];

		if (offer && peer_save_is(&offer->part.save, save)) {
			return offer;
		}
	}
	return NULL;
}

struct offer *replicate_take(struct replicator *replicator, const struct peer_save *save,
	int64_t timeout_ns)
{
	int64_t due_ns = clock_add_ns(clock_mono_ns(), timeout_ns);
	struct offer *offer = NULL;
	bool wait = true;

	pthread_mutex_lock(&replicator->lock);
	while (wait && !is_interrupted(replicator)) {
		offer = find_offer(replicator, save);
		/* Saves are offered in order: one that was passed over does not come any more. */
		if (offer || replicator->newest >= save->number) {
			break;
		}
		wait = await_change(replicator, due_ns);
	}
	if (offer) {
		offer->in_use = true;
	}
	pthread_mutex_unlock(&replicator->lock);
	return offer;
}

void replicate_release(struct replicator *replicator, struct offer *offer)
{
	bool unused;

	pthread_mutex_lock(&replicator->lock);
	ASSERT(offer->in_use);
	offer->in_use = false;
	unused = offer->withdrawn;
	pthread_mutex_unlock(&replicator->lock);
	if (unused) {
		free_offer(offer);
	}
}

bool replicate_may_send(struct replicator *replicator, const struct offer *offer,
	uint32_t len_bytes)
{
	bool may;

	pthread_mutex_lock(&replicator->lock);
	may = !offer->withdrawn && !is_interrupted(replicator);
	replicator->status.sent_bytes += may ? len_bytes : 0;
	pthread_mutex_unlock(&replicator->lock);
	return may;
}

/* Makes a link, which the loop can cancel from then on, also while it connects. */
static int make_link(struct replicator *replicator, uint32_t index, struct pawl_err *err)
{
	struct peer_link *link;
	bool interrupted;
	int rv = peer_link_make(&link, replicator->peers, err);

	if (rv != 0) {
		return rv;
	}
	pthread_mutex_lock(&replicator->lock);
	interrupted = is_interrupted(replicator);
	replicator->links[index] = interrupted ? NULL : link;
	pthread_mutex_unlock(&replicator->lock);
	if (interrupted) {
		peer_link_close(link);
		return pawl_err_set(err, PAWL_ECANCELED, "the run is over");
	}
	return 0;
}

int replicate_link(struct replicator *replicator, uint32_t index, const char *address,
	struct peer_link **link, bool *fresh, struct pawl_err *err)
{
	int rv = 0;

	*fresh = !replicator->links[index];
	if (*fresh) {
		rv = make_link(replicator, index, err);
		rv = rv == 0 ? peer_link_connect(replicator->links[index], address, err) : rv;
	}
	if (rv != 0) {
		replicate_unlink(replicator, index);
		return rv;
	}
	*link = replicator->links[index];
	return 0;
}

void replicate_unlink(struct replicator *replicator, uint32_t index)
{
	struct peer_link *link;

	pthread_mutex_lock(&replicator->lock);
	link = replicator->links[index];
	replicator->links[index] = NULL;
	pthread_mutex_unlock(&replicator->lock);
	peer_link_close(link);
}

/* ---- for the loop ---- */

/* Makes the thread drop what it does. The caller holds the lock. */
static void interrupt(struct replicator *replicator)
{
	for (uint32_t i = 0; i < REPLICATE_LINKS; i++) {
		if (replicator->links[i]) {
			peer_link_cancel(replicator->links[i]);
		}
	}
	pthread_cond_broadcast(&replicator->changed);
}

/* Frees all except the thread. */
static void free_replicator(struct replicator *replicator)
{
	free_offers(replicator->offers);
	pthread_cond_destroy(&replicator->changed);
	pthread_mutex_destroy(&replicator->lock);
	free(replicator->block);
	free(replicator);
}

int replicator_start(struct replicator **out, struct peers *peers, struct loop *loop, uint64_t root,
	struct pawl_err *err)
{
	struct replicator *replicator =
		FAULT_MEM("replicate.start", calloc(1, sizeof(*replicator)));
	int sys;

	if (!replicator) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a replicator");
	}
	replicator->peers = peers;
	replicator->loop = loop;
	replicator->root = root;
	pthread_mutex_init(&replicator->lock, NULL);
	clock_cond_init(&replicator->changed);
	replicator->block = FAULT_MEM("replicate.block", malloc(PEER_BLOCK));
	if (!replicator->block) {
		free_replicator(replicator);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a replicator");
	}
	sys = FAULT_SYS("replicate.thread",
		pthread_create(&replicator->thread, NULL, replicate_run, replicator));
	if (sys != 0) {
		int rv;

		errno = sys > 0 ? sys : errno; /* an injected fault sets errno */
		rv = pawl_err_sys(err, "start the thread that sends replicas");
		free_replicator(replicator);
		return rv;
	}
	*out = replicator;
	return 0;
}

void replicator_stop(struct replicator *replicator)
{
	if (!replicator) {
		return;
	}
	pthread_mutex_lock(&replicator->lock);
	replicator->stop = true;
	interrupt(replicator);
	pthread_mutex_unlock(&replicator->lock);
	if (replicator->leads) {
		rounds_cancel(peers_rounds(replicator->peers), replicator->root);
	}
	pthread_join(replicator->thread, NULL);
	free_replicator(replicator);
}

int replicator_set_map(struct replicator *replicator, const struct peer_map *map,
	struct pawl_err *err)
{
	bool leads = map && peers_is_leader(replicator->peers);
	struct offer *unused[ARENA_SLOTS];
	bool led;

	if (map && (map->run == 0 || map->n > PEER_HOSTS_MAX || map->own >= map->n)) {
		return pawl_err_set(err, PAWL_EINVAL, "the hosts of the run are not a valid list");
	}
	pthread_mutex_lock(&replicator->lock);
	led = replicator->leads;
	replicator->leads = leads;
	replicator->epoch++;
	replicator->newest = 0;
	replicator->before = (struct peer_save){0};
	replicator->status.global = (struct peer_save){0};
	replicator->status.why[0] = '\0';
	if (map) {
		replicator->map = *map;
	} else {
		replicator->map.run = 0;
	}
	clear_slots(replicator, unused);
	interrupt(replicator);
	pthread_mutex_unlock(&replicator->lock);
	if (led || leads) {
		rounds_begin(peers_rounds(replicator->peers), replicator->root,
			leads ? map->run : 0);
	}
	free_offers(unused);
	return 0;
}

void replicator_set_before(struct replicator *replicator, const struct peer_save *before)
{
	pthread_mutex_lock(&replicator->lock);
	replicator->before = *before;
	pthread_mutex_unlock(&replicator->lock);
}

/* Whether a save of this run is to be sent. The caller holds the lock. */
static bool is_wanted(const struct replicator *replicator, const struct peer_save *save)
{
	const struct peer_map *map = &replicator->map;

	return save->run != 0 && save->run == map->run && map->hosts[map->own].replicas > 0;
}

int replicator_offer(struct replicator *replicator, int slot, const struct peer_part *part,
	const struct replicate_rank *ranks, struct pawl_err *err)
{
	struct offer *offer = NULL;
	struct offer *unused = NULL;
	bool wanted;
	int rv = 0;

	ASSERT(slot >= 0 && slot < ARENA_SLOTS && part->ranks > 0);
	pthread_mutex_lock(&replicator->lock);
	wanted = is_wanted(replicator, &part->save);
	pthread_mutex_unlock(&replicator->lock);
	if (wanted) { /* the map changes in this thread only */
		rv = make_offer(&offer, part, ranks, err);
	}
	pthread_mutex_lock(&replicator->lock);
	if (part->save.run == replicator->map.run && part->save.number > replicator->newest) {
		replicator->newest = part->save.number;
	}
	if (offer) {
		unused = clear_slot(replicator, slot);
		replicator->offers[slot] = offer;
	}
	pthread_cond_broadcast(&replicator->changed);
	pthread_mutex_unlock(&replicator->lock);
	free_offer(unused);
	return rv;
}

void replicator_withdraw(struct replicator *replicator, int slot)
{
	struct offer *unused;

	ASSERT(slot >= 0 && slot < ARENA_SLOTS);
	pthread_mutex_lock(&replicator->lock);
	unused = clear_slot(replicator, slot);
	pthread_mutex_unlock(&replicator->lock);
	free_offer(unused);
}

void replicator_status(struct replicator *replicator, struct replicate_status *status)
{
	pthread_mutex_lock(&replicator->lock);
	*status = replicator->status;
	pthread_mutex_unlock(&replicator->lock);
}
