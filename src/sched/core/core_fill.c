/* Corrections of a policy's answer: it may put replicas where a job may not be, and give admitted
 * jobs nothing. Throughout, node.room is what is left of each node. A firm node is one that is not
 * spot: it cannot be taken away. */
#include "sched/core/core_impl.h"

static uint32_t count_spot(const struct sched_core *core, const struct core_job *job)
{
	uint32_t spot = 0;

	for (uint32_t i = 0; i < job->scratch->next.n; i++) {
		uint32_t n = core_node_at(core, job->scratch->next.entries[i].node);

		spot += core->nodes[n].offer.spot ? job->scratch->next.entries[i].replicas : 0;
	}
	return spot;
}

/* Whether the job, with so many replicas on spot nodes, may have one more on this node. */
static bool suits(const struct core_job *job, const struct core_node *node, uint32_t spot)
{
	return core_may_use(job, node) &&
		(node->offer.spot ? spot < job->request.spot_most
				  : spot >= job->request.spot_least);
}

/* Finds the node for one more replica of the job: preferably one where it is already, then the one
 * with most room. */
static struct core_node *find_room(struct sched_core *core, const struct core_job *job)
{
	uint32_t spot = count_spot(core, job);
	struct core_node *best = NULL;
	bool best_own = false;

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		struct core_node *node = &core->nodes[n];
		bool own = placement_replicas_on(&job->scratch->next, node->id) > 0;

		if (node->room == 0 || node->state != CORE_NODE_UP || !suits(job, node, spot)) {
			continue;
		}
		if (!best || own > best_own || (own == best_own && node->room > best->room)) {
			best = node;
			best_own = own;
		}
	}
	return best;
}

/* Gives the job one more replica, on a free slot. Returns false if there is none. */
static bool give_one(struct sched_core *core, struct core_job *job)
{
	struct core_node *node = find_room(core, job);

	if (node) {
		node->room--;
		placement_add(&job->scratch->next, node->id, 1);
	}
	return node != NULL;
}

static void release_all(struct sched_core *core, struct core_job *job)
{
	for (uint32_t i = 0; i < job->scratch->next.n; i++) {
		const struct core_placement_entry *entry = &job->scratch->next.entries[i];

		core->nodes[core_node_at(core, entry->node)].room += entry->replicas;
	}
	placement_clear(&job->scratch->next);
}

/* Returns how many of the job's replicas on node from could be on node to instead; replicas at
 * most. */
static uint32_t count_movable(const struct sched_core *core, const struct core_job *job,
	const struct core_node *from, const struct core_node *to, uint32_t replicas)
{
	uint32_t most = replicas;
	uint32_t spot;

	if (!core_may_use(job, to)) {
		return 0;
	}
	if (to->offer.spot == from->offer.spot) {
		return replicas;
	}
	spot = count_spot(core, job);
	if (to->offer.spot) {
		most = job->request.spot_most > spot ? job->request.spot_most - spot : 0;
	} else {
		most = spot > job->request.spot_least ? spot - job->request.spot_least : 0;
	}
	return most < replicas ? most : replicas;
}

/* Exchanges replicas that the job has too many of on nodes of a kind, spot or firm, with another
 * job's on nodes of the other kind: at most so many. Returns how many. */
static uint32_t swap_with(struct sched_core *core, struct core_job *job, struct core_node *node,
	struct core_job *other, uint32_t replicas)
{
	uint32_t swapped = 0;

	for (uint32_t i = 0; i < other->scratch->next.n && swapped < replicas;) {
		struct core_node *to =
			&core->nodes[core_node_at(core, other->scratch->next.entries[i].node)];
		uint32_t on = other->scratch->next.entries[i].replicas;
		uint32_t n = on < replicas - swapped ? on : replicas - swapped;

		n = to->offer.spot != node->offer.spot ? count_movable(core, job, node, to, n) : 0;
		n = n > 0 ? count_movable(core, other, to, node, n) : 0;
		if (n == 0) {
			i++;
			continue;
		}
		placement_remove(&job->scratch->next, node->id, n);
		placement_remove(&other->scratch->next, to->id, n);
		placement_add(&job->scratch->next, to->id, n);
		placement_add(&other->scratch->next, node->id, n);
		swapped += n;
		i = 0; /* the entries have changed: start over */
	}
	ASSERT(swapped <= replicas);
	return swapped;
}

/* Lists jobs that may be on nodes of both kinds, in workspace.some. Returns how many. */
static uint32_t find_partners(struct sched_core *core, uint32_t candidates)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < candidates; i++) {
		struct core_job *job = core->workspace.order[i];

		if (job->scratch->cap > 0 && job->request.spot_most > 0 &&
			!core->workspace.jobs[job->scratch->row].pinned) {
			core->workspace.some[n++] = job;
		}
	}
	return n;
}

/* Exchanges replicas with some of the partners: first those that need no restart for it, the last
 * in order first. Returns how many. */
static uint32_t swap_some(struct sched_core *core, struct core_job *job, struct core_node *node,
	uint32_t replicas, uint32_t partners)
{
	uint32_t swapped = 0;

	for (uint32_t pass = 0; pass < 2; pass++) {
		for (uint32_t i = partners; i-- > 0 && swapped < replicas;) {
			struct core_job *other = core->workspace.some[i];
			bool stops = core_is_up(other) && !other->request.in_place;

			if (other != job && stops == (pass == 1) && core_may_use(other, node)) {
				swapped += swap_with(core, job, node, other, replicas - swapped);
			}
		}
	}
	return swapped;
}

/* Moves as many of the replicas as there are free slots elsewhere. Returns how many. */
static uint32_t move_to_free(struct sched_core *core, struct core_job *job, struct core_node *node,
	uint32_t replicas)
{
	uint32_t moved = 0;

	for (; moved < replicas; moved++) {
		/* Removed first: with one replica more, the job might not be allowed elsewhere. */
		placement_remove(&job->scratch->next, node->id, 1);
		if (!give_one(core, job)) {
			placement_add(&job->scratch->next, node->id, 1);
			break;
		}
		node->room++;
	}
	return moved;
}

/* Returns how many of the job's replicas on a node break its limits on types and spot nodes. */
static uint32_t count_wrong(const struct core_job *job, const struct core_node *node, uint32_t on,
	uint32_t spot)
{
	uint32_t over = spot > job->request.spot_most ? spot - job->request.spot_most : 0;
	uint32_t under = spot < job->request.spot_least ? job->request.spot_least - spot : 0;
	uint32_t wrong = node->offer.spot ? over : under;

	if (!core_may_use(job, node)) {
		return on;
	}
	return wrong < on ? wrong : on;
}

static bool fits_type(const struct core_job *job, const struct core_node *node)
{
	return core_class_fits(job, 2 * node->offer.type);
}

/* Makes so many replicas leave a node: for free slots, else in exchange for another job's, else
 * without replacement. Returns how many are on other nodes now. */
static uint32_t leave(struct sched_core *core, struct core_job *job, struct core_node *node,
	uint32_t replicas, uint32_t partners)
{
	uint32_t moved = move_to_free(core, job, node, replicas);

	if (fits_type(job, node)) {
		moved += swap_some(core, job, node, replicas - moved, partners);
	}
	node->room += placement_remove(&job->scratch->next, node->id, replicas - moved);
	return moved;
}

/* Frees the firm nodes of a job that has too few replicas on spot nodes. */
static void leave_firm(struct sched_core *core, struct core_job *job)
{
	bool few = count_spot(core, job) < job->request.spot_least;

	for (uint32_t i = 0; i < job->scratch->next.n && few;) {
		struct core_node *node =
			&core->nodes[core_node_at(core, job->scratch->next.entries[i].node)];

		if (node->offer.spot) {
			i++;
		} else {
			node->room += placement_remove(&job->scratch->next, node->id, UINT32_MAX);
		}
	}
}

/* Moves replicas from where the job may not be: as many elsewhere, or fewer. Returns the types of
 * nodes of which the job has fewer because of its limits on spot nodes: a bit each. */
static uint32_t fix_job_nodes(struct sched_core *core, struct core_job *job, uint32_t partners)
{
	uint32_t had = job->scratch->next.replicas;
	uint32_t spot = count_spot(core, job);
	uint32_t types = 0;

	for (uint32_t i = 0; i < job->scratch->next.n;) {
		const struct core_placement_entry *at = &job->scratch->next.entries[i];
		struct core_node *node = &core->nodes[core_node_at(core, at->node)];
		uint32_t wrong = count_wrong(job, node, at->replicas, spot);

		if (wrong == 0) {
			i++;
			continue;
		}
		types |= fits_type(job, node) ? 1u << node->offer.type : 0;
		if (leave(core, job, node, wrong, partners) < wrong) {
			/* Firm replicas are of no use with too few spot ones. */
			leave_firm(core, job);
		}
		spot = count_spot(core, job);
		i = 0; /* the entries have changed: start over */
	}
	while (job->scratch->next.replicas < had && give_one(core, job)) {
	}
	types = job->scratch->next.replicas < had ? types : 0;
	if (job->scratch->next.replicas < job->request.least) {
		release_all(core, job);
	}
	return types;
}

uint32_t core_fix_nodes(struct sched_core *core, uint32_t candidates)
{
	uint32_t partners = find_partners(core, candidates);
	uint32_t types = 0;

	for (uint32_t i = 0; i < candidates; i++) {
		struct core_job *job = core->workspace.order[i];

		if (job->scratch->cap > 0 && job->scratch->next.n > 0 &&
			!core->workspace.jobs[job->scratch->row].pinned) {
			types |= fix_job_nodes(core, job, partners);
		}
	}
	return types;
}

/* ---- jobs that give a replica to another job ----
 *
 * A job that needs a replica takes a free slot, or one of a job that has more than its least. If
 * nodes that it may be on have neither, other jobs move: one gives it a replica and takes one
 * itself, from the free slots, from a third job, and so on. The shortest such chain is used. */

/* Whether the job can do without a replica on that node, and needs no other in exchange. A job with
 * fewer on spot nodes than it must have there is on spot nodes alone. */
static bool can_spare(const struct core_job *job, const struct core_node *node, uint32_t spot)
{
	return job->scratch->next.replicas > job->request.least &&
		(!node->offer.spot || spot > job->request.spot_least || spot > job->request.least);
}

/* Whether the job, to give a replica on that node, would have to leave all firm nodes. */
static bool must_leave(const struct core_job *job, const struct core_node *node, uint32_t spot)
{
	return node->offer.spot && spot <= job->request.spot_least &&
		spot < job->scratch->next.replicas;
}

/* Returns the job's replicas on spot nodes once it has given the one that it was asked for. */
static uint32_t count_kept(const struct sched_core *core, const struct core_job *job)
{
	bool gives = job->scratch->taker &&
		core->nodes[core_node_at(core, job->scratch->given)].offer.spot;
	uint32_t spot = count_spot(core, job);

	ASSERT(!gives || spot > 0); /* the replica that it is asked for is on a spot node */
	return spot - (gives ? 1 : 0);
}

/* Finds a free node for the job once it has given the replica that it was asked for; NULL: none. */
static struct core_node *find_free(struct sched_core *core, const struct core_job *job)
{
	uint32_t spot = count_kept(core, job);

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		struct core_node *node = &core->nodes[n];

		if (node->room > 0 && node->state == CORE_NODE_UP && suits(job, node, spot)) {
			return node;
		}
	}
	return NULL;
}

/* Returns how well the job can do without a replica on that node: 2: it needs no other; 1: any
 * other will do; 0: only another one on a spot node. */
static uint32_t spare_rank(const struct core_job *job, const struct core_node *node, uint32_t spot)
{
	return can_spare(job, node, spot) ? 2 : !node->offer.spot || spot > job->request.spot_least;
}

/* Finds a node of the other job on which the job, with kept replicas on spot nodes, may have a
 * replica: the one whose replica the other can spare most easily; NULL: none. */
static struct core_node *find_spare(struct sched_core *core, const struct core_job *job,
	uint32_t kept, const struct core_job *other)
{
	uint32_t spot = count_spot(core, other);
	struct core_node *best = NULL;

	for (uint32_t i = 0; i < other->scratch->next.n; i++) {
		struct core_node *node =
			&core->nodes[core_node_at(core, other->scratch->next.entries[i].node)];

		if ((!best || spare_rank(other, node, spot) > spare_rank(other, best, spot)) &&
			node->state == CORE_NODE_UP && suits(job, node, kept)) {
			best = node;
		}
	}
	return best;
}

/* Whether the job, rather than the other, gives a replica, if both have more than their least: the
 * one of lower priority; at the same priority, the one with most above its least. */
static bool gives_before(const struct core_job *job, const struct core_job *other)
{
	if (job->request.priority != other->request.priority) {
		return job->request.priority < other->request.priority;
	}
	return job->scratch->next.replicas - job->request.least >
		other->scratch->next.replicas - other->request.least;
}

/* Asks the jobs that were not asked yet and have a replica that the job may have: they join the
 * queue after last. Returns the last job of the queue. rich[0]: the best job that can give a
 * replica and needs none in exchange; rich[1]: the best that would have to leave its firm nodes for
 * that. */
static struct core_job *ask_others(struct sched_core *core, struct core_job *job,
	struct core_job *last, uint32_t candidates, struct core_job *rich[2])
{
	uint32_t kept = count_kept(core, job);

	for (uint32_t i = 0; i < candidates; i++) {
		struct core_job *other = core->workspace.order[i];
		struct core_node *node;
		uint32_t spot;

		if (other->scratch->cap == 0 || other->scratch->asked ||
			core->workspace.jobs[other->scratch->row].pinned) {
			continue;
		}
		node = find_spare(core, job, kept, other);
		if (!node) {
			continue;
		}
		other->scratch->asked = true;
		other->scratch->taker = job;
		other->scratch->given = node->id;
		last->scratch->next_asked = other;
		last = other;
		spot = count_spot(core, other);
		if (can_spare(other, node, spot)) {
			struct core_job **best = &rich[must_leave(other, node, spot)];

			*best = !*best || gives_before(other, *best) ? other : *best;
		}
	}
	return last;
}

/* Each job in the chain gives its replica to the next one, down to the job that needs it. */
static void pass_down(struct core_job *from)
{
	for (struct core_job *job = from; job->scratch->taker; job = job->scratch->taker) {
		uint32_t taken = placement_remove(&job->scratch->next, job->scratch->given, 1);

		ASSERT(taken == 1);
	}
	for (struct core_job *job = from; job->scratch->taker; job = job->scratch->taker) {
		placement_add(&job->scratch->taker->scratch->next, job->scratch->given, 1);
	}
}

/* Gives the job one replica, by the shortest chain. Returns false if there is none. */
static bool take_one(struct sched_core *core, struct core_job *job, uint32_t candidates)
{
	struct core_job *rich[2] = {NULL};
	struct core_job *last = job;

	for (uint32_t i = 0; i < candidates; i++) {
		core->workspace.order[i]->scratch->asked = false;
		core->workspace.order[i]->scratch->taker = NULL;
		core->workspace.order[i]->scratch->next_asked = NULL;
	}
	job->scratch->asked = true;
	for (struct core_job *asked = job; asked; asked = asked->scratch->next_asked) {
		struct core_node *node = find_free(core, asked);

		if (node) {
			pass_down(asked);
			node->room--;
			placement_add(&asked->scratch->next, node->id, 1);
			return true;
		}
		last = ask_others(core, asked, last, candidates, rich);
		if (rich[0]) {
			pass_down(rich[0]);
			return true;
		}
	}
	if (rich[1]) {
		pass_down(rich[1]);
		leave_firm(core, rich[1]);
	}
	return rich[1] != NULL;
}

/* Whether free slots, and what other jobs have above their least, suffice for the job's least. */
static bool could_have(const struct sched_core *core, const struct core_job *job,
	uint32_t candidates)
{
	uint32_t could = 0;

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		could += core->nodes[n].state == CORE_NODE_UP ? core->nodes[n].room : 0;
	}
	for (uint32_t i = 0; i < candidates && could < job->request.least; i++) {
		const struct core_job *other = core->workspace.order[i];

		if (other->scratch->cap > 0 && !core->workspace.jobs[other->scratch->row].pinned &&
			other->scratch->next.replicas > other->request.least) {
			could += other->scratch->next.replicas - other->request.least;
		}
	}
	return could >= job->request.least;
}

void core_fix_least(struct sched_core *core, uint32_t candidates)
{
	for (uint32_t i = 0; i < candidates; i++) {
		struct core_job *job = core->workspace.order[i];

		if (job->scratch->cap == 0 || job->scratch->next.n > 0 ||
			!could_have(core, job, candidates)) {
			continue;
		}
		while (job->scratch->next.replicas < job->request.least && give_one(core, job)) {
		}
		while (job->scratch->next.replicas < job->request.least &&
			take_one(core, job, candidates)) {
		}
		if (job->scratch->next.replicas < job->request.least) {
			release_all(core, job);
		}
	}
}
