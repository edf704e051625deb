/* Keeps plans, and the memory of the operations that follow them: see group_impl.h. */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "coll/group/group_impl.h"

#include <stdlib.h>
#include <string.h>

#define TREE_MAX_BYTES 16384u /* longest vector that goes by the tree: hops cost more than bytes */
#define TREE_MAX_TOTAL_BYTES                                                                       \
	65536u /* on one host, all ranks' vectors together up to this many bytes go by the tree */

/* Chooses the algorithm by the length: short vectors cost hops, long ones bandwidth. Each rank that
 * adds 16-bit floats rounds them: between hosts they always use the algorithm in which the fewest
 * ranks add. Servers take part only in that one. */
static enum coll_algorithm choose_algorithm(const struct pawl_group *group,
	const struct pawl_coll_call *call)
{
	const struct coll_hosts hosts = {group->topo.hosts, group->topo.servers};
	bool half = call->dtype == PAWL_FLOAT16 || call->dtype == PAWL_BFLOAT16;

	if (group->server_state) {
		return COLL_DIRECT;
	}
	if (half && call->kind == PAWL_REDUCE && group->topo.hosts > 1) {
		return COLL_DIRECT; /* other algorithms round at other ranks */
	}
	if (call->kind == PAWL_REDUCE || call->kind == PAWL_BROADCAST) {
		return call->len_bytes <= TREE_MAX_BYTES ? COLL_TREE : COLL_DIRECT;
	}
	if (group->topo.hosts == 1) {
		return call->len_bytes <= TREE_MAX_TOTAL_BYTES / group->ranks ? COLL_TREE
									      : COLL_DIRECT;
	}
	return half ? COLL_DIRECT : coll_choose_algorithm(&group->link, &hosts, call->len_bytes);
}

static int make_plan(struct pawl_group *group, struct coll_plan *plan,
	enum coll_algorithm algorithm, const struct pawl_coll_call *call, struct pawl_err *err)
{
	struct coll_topo bare = group->topo; /* topology without servers */
	const struct coll_topo *topo = &bare;

	bare.servers = 0;
	switch (call->kind) {
	case PAWL_ALL_REDUCE:
		return coll_plan_all_reduce(plan, algorithm == COLL_DIRECT ? &group->topo : topo,
			group->rank, algorithm, call->len_bytes, err);
	case PAWL_REDUCE:
		return coll_plan_reduce(plan, topo, group->rank, call->root, algorithm,
			call->len_bytes, err);
	case PAWL_BROADCAST:
		return coll_plan_broadcast(plan, topo, group->rank, call->root, algorithm,
			call->len_bytes, err);
	case PAWL_ALL_GATHER:
		return coll_plan_all_gather(plan, topo, group->rank, call->len_bytes, err);
	case PAWL_REDUCE_SCATTER:
		return coll_plan_reduce_scatter(plan, topo, group->rank, call->len_bytes, err);
	case PAWL_GATHER:
		return coll_plan_gather(plan, topo->ranks, group->rank, call->root, call->len_bytes,
			err);
	case PAWL_SCATTER:
		return coll_plan_scatter(plan, topo->ranks, group->rank, call->root,
			call->len_bytes, err);
	case PAWL_ALL_TO_ALL:
		return coll_plan_all_to_all(plan, topo->ranks, group->rank, call->in_at,
			call->out_at, err);
	default:
		ASSERT(call->kind == PAWL_BARRIER);
		return coll_plan_all_reduce(plan, topo, group->rank, algorithm, 1, err);
	}
}

static bool has_plan(const struct group_slot *slot, const struct pawl_coll_call *call,
	enum coll_algorithm algorithm)
{
	const struct pawl_coll_call *made = &slot->call;

	return slot->exec.plan != NULL && made->kind == call->kind && made->root == call->root &&
		slot->algorithm == algorithm && made->len_bytes == call->len_bytes &&
		call->kind != PAWL_ALL_TO_ALL;
}

/* Returns a free slot with the call's plan, else the least recently used free slot. There is one,
 * as there are more slots than channels. */
static struct group_slot *find_slot(struct pawl_group *group, const struct pawl_coll_call *call,
	enum coll_algorithm algorithm)
{
	struct group_slot *found = NULL;

	for (uint32_t i = 0; i < GROUP_SLOTS; i++) {
		struct group_slot *slot = &group->slots[i];

		if (slot->busy) {
			continue;
		}
		if (has_plan(slot, call, algorithm)) {
			return slot;
		}
		if (found == NULL || slot->last_used < found->last_used) {
			found = slot;
		}
	}
	return found;
}

static int fill_slot(struct pawl_group *group, struct group_slot *slot,
	enum coll_algorithm algorithm, const struct pawl_coll_call *call, struct pawl_err *err)
{
	uint32_t peers = group->peers;
	int rv;

	group_slot_deinit(slot);
	slot->call = *call;
	slot->algorithm = algorithm;
	rv = make_plan(group, &slot->plan, algorithm, call, err);
	if (rv == 0) {
		rv = coll_exec_init(&slot->exec, &slot->plan, peers, coll_kernel_best(), err);
	}
	if (rv != 0) {
		return rv;
	}
	slot->headers = FAULT_MEM("coll.group", calloc(peers, sizeof(*slot->headers)));
	if (!slot->headers) {
		coll_exec_deinit(&slot->exec);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a collective of %u ranks",
			peers);
	}
	return 0;
}

const uint8_t *group_header_prefix(const struct pawl_group *group, uint64_t number)
{
	const uint8_t *prefix = group->prefixes[number % GROUP_PREFIXES];

	return number != UINT64_MAX && group_header_number(prefix) == number ? prefix : NULL;
}

/* Begins the exchange of headers. In an all-to-all, ranks exchange headers even without bytes,
 * since the peer may expect some. Keeps the prefix of our header; a server keeps none, since its
 * headers are those of ranks. Prefixes of collectives under way are not overwritten: the next
 * collective at the same index is on the same channel. */
static void begin_headers(struct pawl_group *group, struct pawl_work *work, struct group_slot *slot)
{
	bool all = work->call.kind == PAWL_ALL_TO_ALL;

	_Static_assert(GROUP_PREFIXES % COLL_CHANNELS == 0, "of another channel");
	_Static_assert(sizeof(group->prefixes) <= CONTROL_STATUS_MAX,
		"the prefixes do not fit a status");
	slot->headers_left = 0;
	for (uint32_t p = 0; p < slot->exec.peers; p++) {
		bool both = all && p < group->ranks && p != group->rank;

		slot->headers[p] = (struct group_header){.incoming = both ||
				coll_exec_recv_pending(&slot->exec, p),
			.outgoing = both || coll_exec_send_pending(&slot->exec, p)};
		slot->headers_left +=
			(uint32_t)slot->headers[p].incoming + slot->headers[p].outgoing;
	}
	group_header_encode(slot->header, work, priv_of(work)->digest,
		group_header_prefix(group, work->number - 1));
	if (!group->server_state) {
		memcpy(group->prefixes[work->number % GROUP_PREFIXES], slot->header,
			GROUP_PREFIX_BYTES);
	}
}

int group_slot_take(struct pawl_group *group, struct pawl_work *work, struct pawl_err *err)
{
	const struct pawl_coll_call *call = &work->call;
	enum coll_algorithm algorithm = choose_algorithm(group, call);
	struct group_slot *slot = find_slot(group, call, algorithm);
	bool barrier = call->kind == PAWL_BARRIER;
	int rv;

	rv = has_plan(slot, call, algorithm) ? 0 : fill_slot(group, slot, algorithm, call, err);
	if (rv != 0) {
		return rv;
	}
	slot->busy = true;
	slot->last_used = work->number + 1;
	priv_of(work)->slot = slot;
	if (barrier) {
		coll_exec_start(&slot->exec, PAWL_SUM, PAWL_UINT8, &slot->barrier_byte,
			&slot->barrier_byte);
	} else {
		coll_exec_start(&slot->exec, call->op, call->dtype, call->in, call->out);
	}
	begin_headers(group, work, slot);
	group_stats_begin(group, work);
	return 0;
}

void group_slot_deinit(struct group_slot *slot)
{
	coll_exec_deinit(&slot->exec);
	free(slot->headers);
	slot->headers = NULL;
}
