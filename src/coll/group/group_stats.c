/*
 * Statistics of a group: where the time of its operations went. See pawl/coll.h for the figures,
 * group_impl.h for the locks.
 *
 * The statistics cost one more reading of the clock per operation, and two per part whose adding
 * takes long enough for that not to matter. All else gets the time at which the driver began to
 * poll.
 */
#include "coll/group/group_impl.h"
#include "coll/group/group_trace.h"

#include <string.h>
#include <unistd.h>

#define TIMED_MIN_BYTES (16u << 10) /* parts of at least this many bytes are timed when added */

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* ---- an operation under way ---- */

void group_stats_begin(const struct pawl_group *group, struct pawl_work *work)
{
	struct group_slot *slot = priv_of(work)->slot;
	struct group_times *times = &slot->times;
	/* The work may have been submitted after the driver began to poll. */
	int64_t now_ns = later(group->now_ns, priv_of(work)->submitted_ns);

	*times = (struct group_times){.begun_ns = now_ns,
		.all_begun_ns = now_ns,
		.last = PAWL_ANY_RANK};
	for (uint32_t p = 0; p < slot->exec.peers; p++) {
		times->missing += slot->headers[p].incoming;
	}
}

void group_stats_header(const struct pawl_group *group, struct group_slot *slot, uint32_t peer)
{
	struct group_times *times = &slot->times;

	times->missing--;
	if (times->missing == 0 && group->now_ns > times->begun_ns) {
		times->all_begun_ns = group->now_ns;
		times->last = peer;
	}
}

void group_stats_add(struct pawl_group *group, struct group_slot *slot, uint32_t peer, size_t n)
{
	int64_t from_ns;

	if (n < TIMED_MIN_BYTES || slot->times.missing > 0) {
		coll_exec_received(&slot->exec, peer, n);
		return;
	}
	from_ns = group_clock_ns(group);
	coll_exec_received(&slot->exec, peer, n);
	group->now_ns = group_clock_ns(group);
	slot->times.added_ns += group->now_ns - from_ns;
}

void group_stats_moved(const struct pawl_group *group, struct group_slot *slot, uint32_t peer)
{
	struct group_times *times = &slot->times;

	if (group->topo.hosts + group->servers > 1 && times->missing == 0 &&
		group_is_remote(group, peer)) {
		times->remote_ns = later(group->now_ns, times->all_begun_ns);
		times->remote_added_ns = times->added_ns;
	}
}

void group_stats_turn(const struct pawl_group *group, struct pawl_work *work, int64_t before_ns)
{
	struct group_slot *slot = work ? priv_of(work)->slot : NULL;
	struct group_header *header;

	if (!slot || work->number != group->turn.number) {
		return; /* the collective is done */
	}
	header = &slot->headers[group->turn.peer];
	header->sending_ns += group->now_ns - before_ns;
	header->from_ns = header->from_ns > 0 ? header->from_ns : before_ns;
	header->to_ns = group->now_ns;
}

/* ---- done ---- */

static uint64_t count_bytes(const struct pawl_group *group, const struct pawl_coll_call *call)
{
	return call->kind == PAWL_ALL_TO_ALL ? call->in_at[group->ranks] - call->in_at[0]
					     : call->len_bytes;
}

static void add_phases(const struct pawl_group *group, struct pawl_work *work, int64_t first_ns,
	uint64_t *phase_ns)
{
	const struct group_times *times = &priv_of(work)->slot->times;
	int64_t remote_ns = later(times->remote_ns, times->all_begun_ns);
	int64_t ns[PAWL_PHASES] = {
		[PAWL_PHASE_QUEUED] = first_ns - priv_of(work)->submitted_ns,
		[PAWL_PHASE_IDLE] = times->begun_ns - first_ns,
		[PAWL_PHASE_LATE] = times->all_begun_ns - times->begun_ns,
		[PAWL_PHASE_NETWORK] = remote_ns - times->all_begun_ns - times->remote_added_ns,
		[PAWL_PHASE_MEMORY] =
			group->now_ns - remote_ns - (times->added_ns - times->remote_added_ns),
		[PAWL_PHASE_ADDING] = times->added_ns,
	};

	for (int p = 0; p < PAWL_PHASES; p++) {
		phase_ns[p] += (uint64_t)ns[p];
	}
}

static void add_peers(struct pawl_group *group, const struct group_slot *slot)
{
	const struct group_times *times = &slot->times;

	for (uint32_t p = 0; p < slot->exec.peers; p++) {
		group->stats.peers[p].sent_bytes += slot->exec.send_total_bytes[p];
		group->stats.peers[p].received_bytes += slot->exec.recv_total_bytes[p];
		group->stats.peers[p].sending_ns += (uint64_t)slot->headers[p].sending_ns;
	}
	if (times->last != PAWL_ANY_RANK) {
		group->stats.peers[times->last].last_n++;
		group->stats.peers[times->last].late_ns +=
			(uint64_t)(times->all_begun_ns - times->begun_ns);
	}
}

/* Adds the time of a work without a slot, and so without phases. */
static void add_whole(struct pawl_group *group, struct pawl_work *work)
{
	bool message = is_message(&work->call);
	struct pawl_peer_stats *peer = &group->stats.peers[message ? work->from : group->rank];
	struct pawl_kind_stats *kind = &group->stats.kinds[work->call.kind];
	bool remote = message && group_is_remote(group, work->from);
	uint64_t ns = (uint64_t)(later(group->now_ns, priv_of(work)->submitted_ns) -
		priv_of(work)->submitted_ns);

	kind->phase_ns[remote ? PAWL_PHASE_NETWORK : PAWL_PHASE_MEMORY] += ns;
	if (message && work->call.kind == PAWL_SEND) {
		peer->sent_bytes += work->call.len_bytes;
	} else if (message) {
		peer->received_bytes += work->call.len_bytes;
	}
}

void group_stats_done(struct pawl_group *group, struct pawl_work *work)
{
	const struct group_slot *slot = is_message(&work->call) ? NULL : priv_of(work)->slot;
	struct pawl_kind_stats *kind = &group->stats.kinds[work->call.kind];
	uint32_t channel = work->number % COLL_CHANNELS;
	int64_t first_ns = priv_of(work)->submitted_ns;

	kind->count++;
	kind->bytes += count_bytes(group, &work->call);
	if (slot) {
		first_ns = later(first_ns, group->stats.free_ns[channel]);
		add_phases(group, work, first_ns, kind->phase_ns);
		add_peers(group, slot);
		group->stats.free_ns[channel] = group->now_ns;
	} else {
		add_whole(group, work);
	}
	if (group->stats.trace) {
		group_trace_done(group, work, first_ns);
	}
}

/* Returns when a work was done, without reading the clock if it succeeded and is a collective. If
 * the channel's next work was done before this thread awoke, returns the time of that one. */
static int64_t find_end(const struct pawl_group *group, const struct pawl_work *work)
{
	if (!pawl_work_done(work) || work->code != 0 || is_message(&work->call)) {
		return group_clock_ns(group);
	}
	return group->stats.free_ns[work->number % COLL_CHANNELS];
}

void group_stats_waited(struct pawl_group *group, const struct pawl_work *work, int64_t from_ns)
{
	int64_t to_ns = later(find_end(group, work), from_ns);

	group->stats.kinds[work->call.kind].blocked_ns += (uint64_t)(to_ns - from_ns);
	if (group->stats.trace) {
		group_trace_waited(group, work, from_ns, to_ns);
	}
}

/* ---- reporting ---- */

uint32_t pawl_group_stats(struct pawl_group *group, struct pawl_stats *stats,
	struct pawl_peer_stats *peers, uint32_t n)
{
	*stats = (struct pawl_stats){.now_ns = group_clock_ns(group)};
	if (group->pid != getpid()) {
		return 0;
	}
	pthread_mutex_lock(&group->state);
	memcpy(stats->kinds, group->stats.kinds, sizeof(stats->kinds));
	n = n < group->peers ? n : group->peers;
	for (uint32_t p = 0; p < n; p++) {
		peers[p] = group->stats.peers[p];
	}
	pthread_mutex_unlock(&group->state);
	return group->peers;
}
