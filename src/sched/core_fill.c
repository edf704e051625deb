/* What the core changes of a policy's answer: replicas where a job may not be, and jobs that were
 * admitted and given nothing. node.room is what is left of each node, throughout.
 */
#include "core_impl.h"

static uint32_t count_spot(const struct sched_core *core, const struct core_job *job)
{
	uint32_t spot = 0;

	for (uint32_t i = 0; i < job->next.n; i++) {
		uint32_t n = core_node_at(core, job->next.spots[i].node);

		spot += core->nodes[n].offer.spot ? job->next.spots[i].replicas : 0;
	}
	return spot;
}

static bool may_take(const struct sched_core *core, const struct core_job *job,
	const struct core_node *node)
{
	return core_may_use(job, node) &&
		(!node->offer.spot || count_spot(core, job) < job->ask.spot_most);
}

/* The node to give it a replica on: where it is already, then where most is free. */
static struct core_node *find_room(struct sched_core *core, const struct core_job *job)
{
	struct core_node *best = NULL;
	bool best_own = false;

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		struct core_node *node = &core->nodes[n];
		bool own = place_on(&job->next, node->id) > 0;

		if (node->room == 0 || node->state != CORE_NODE_UP || !may_take(core, job, node)) {
			continue;
		}
		if (!best || own > best_own || (own == best_own && node->room > best->room)) {
			best = node;
			best_own = own;
		}
	}
	return best;
}

/* One more, of what is free. */
static bool give_one(struct sched_core *core, struct core_job *job)
{
	struct core_node *node = find_room(core, job);

	if (node) {
		node->room--;
		place_add(&job->next, node->id, 1);
	}
	return node != NULL;
}

static void give_back(struct sched_core *core, struct core_job *job)
{
	for (uint32_t i = 0; i < job->next.n; i++) {
		const struct core_spot *spot = &job->next.spots[i];

		core->nodes[core_node_at(core, spot->node)].room += spot->replicas;
	}
	place_clear(&job->next);
}

/* Replicas where it may not be: as many elsewhere, or fewer. */
static void bend_job(struct sched_core *core, struct core_job *job)
{
	uint32_t had = job->next.replicas;
	uint32_t spot = count_spot(core, job);

	for (uint32_t i = 0; i < job->next.n;) {
		const struct core_spot *at = &job->next.spots[i];
		struct core_node *node = &core->nodes[core_node_at(core, at->node)];
		uint32_t on = at->replicas;
		uint32_t over = spot > job->ask.spot_most ? spot - job->ask.spot_most : 0;
		uint32_t taken = 0;

		if (!core_may_use(job, node)) {
			taken = place_take(&job->next, node->id, on);
		} else if (node->offer.spot && over > 0) {
			taken = place_take(&job->next, node->id, over);
		}
		spot -= node->offer.spot ? taken : 0;
		node->room += taken;
		i += taken < on; /* else the next one has come there */
	}
	while (job->next.replicas < had && give_one(core, job)) {
	}
	if (job->next.replicas < job->ask.least) {
		give_back(core, job);
	}
}

void core_bend(struct sched_core *core, uint32_t candidates)
{
	for (uint32_t i = 0; i < candidates; i++) {
		struct core_job *job = core->desk.order[i];

		if (job->cap > 0 && job->next.n > 0 && !core->desk.jobs[job->row].pinned) {
			bend_job(core, job);
		}
	}
}

/* ---- who gives a replica, so that another has one ----
 *
 * A job that needs one takes a free slot, or one of a job that has more than its least. Where there
 * is neither on nodes that it may be on, others move: one gives it a replica and takes one itself,
 * of what is free, of a third one, and so on: the shortest such chain is found.
 */

static bool is_rich(const struct core_job *job)
{
	return job->next.replicas > job->ask.least;
}

/* Whether it may have a replica on the node, once it has given the one that it is asked for. */
static bool may_swap(const struct sched_core *core, const struct core_job *job,
	const struct core_node *node)
{
	uint32_t spot = count_spot(core, job);

	if (job->taker) {
		spot -= core->nodes[core_node_at(core, job->given)].offer.spot ? 1 : 0;
	}
	return node->state == CORE_NODE_UP && core_may_use(job, node) &&
		(!node->offer.spot || spot < job->ask.spot_most);
}

static struct core_node *find_free(struct sched_core *core, const struct core_job *job)
{
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		if (core->nodes[n].room > 0 && may_swap(core, job, &core->nodes[n])) {
			return &core->nodes[n];
		}
	}
	return NULL;
}

/* A node on which the job may have a replica of the other's. */
static struct core_node *find_spare(struct sched_core *core, const struct core_job *job,
	const struct core_job *other)
{
	for (uint32_t i = 0; i < other->next.n; i++) {
		struct core_node *node =
			&core->nodes[core_node_at(core, other->next.spots[i].node)];

		if (may_swap(core, job, node)) {
			return node;
		}
	}
	return NULL;
}

/* The better of two who have more than their least: who comes last, and has most above it. */
static bool gives_rather(const struct core_job *job, const struct core_job *other)
{
	if (job->ask.priority != other->ask.priority) {
		return job->ask.priority < other->ask.priority;
	}
	return job->next.replicas - job->ask.least > other->next.replicas - other->ask.least;
}

/* Those who were not asked yet and have a replica that the job may have join those who are asked,
 * after last. Returns the last of them; *rich: the one of them who may give without taking. */
static struct core_job *ask_others(struct sched_core *core, struct core_job *job,
	struct core_job *last, uint32_t candidates, struct core_job **rich)
{
	for (uint32_t i = 0; i < candidates; i++) {
		struct core_job *other = core->desk.order[i];
		struct core_node *node;

		if (other->cap == 0 || other->asked || core->desk.jobs[other->row].pinned) {
			continue;
		}
		node = find_spare(core, job, other);
		if (!node) {
			continue;
		}
		other->asked = true;
		other->taker = job;
		other->given = node->id;
		last->giver = other;
		last = other;
		if (is_rich(other) && (!*rich || gives_rather(other, *rich))) {
			*rich = other;
		}
	}
	return last;
}

/* Each gives the next one its replica, down to who needs it. */
static void hand_down(struct core_job *from)
{
	for (struct core_job *job = from; job->taker; job = job->taker) {
		place_take(&job->next, job->given, 1);
	}
	for (struct core_job *job = from; job->taker; job = job->taker) {
		place_add(&job->taker->next, job->given, 1);
	}
}

/* One replica, by the shortest chain. */
static bool take_one(struct sched_core *core, struct core_job *job, uint32_t candidates)
{
	struct core_job *last = job;

	for (uint32_t i = 0; i < candidates; i++) {
		core->desk.order[i]->asked = false;
		core->desk.order[i]->taker = NULL;
		core->desk.order[i]->giver = NULL;
	}
	job->asked = true;
	for (struct core_job *asked = job; asked; asked = asked->giver) {
		struct core_job *rich = NULL;
		struct core_node *node = find_free(core, asked);

		if (node) {
			hand_down(asked);
			node->room--;
			place_add(&asked->next, node->id, 1);
			return true;
		}
		last = ask_others(core, asked, last, candidates, &rich);
		if (rich) {
			hand_down(rich);
			return true;
		}
	}
	return false;
}

/* Whether free slots, and what others have above their least, are as many as its least. */
static bool could_have(const struct sched_core *core, const struct core_job *job,
	uint32_t candidates)
{
	uint32_t could = 0;

	for (uint32_t n = 0; n < core->nodes_n; n++) {
		could += core->nodes[n].state == CORE_NODE_UP ? core->nodes[n].room : 0;
	}
	for (uint32_t i = 0; i < candidates && could < job->ask.least; i++) {
		const struct core_job *other = core->desk.order[i];

		if (other->cap > 0 && !core->desk.jobs[other->row].pinned && is_rich(other)) {
			could += other->next.replicas - other->ask.least;
		}
	}
	return could >= job->ask.least;
}

void core_mend(struct sched_core *core, uint32_t candidates)
{
	for (uint32_t i = 0; i < candidates; i++) {
		struct core_job *job = core->desk.order[i];

		if (job->cap == 0 || job->next.n > 0 || !could_have(core, job, candidates)) {
			continue;
		}
		while (job->next.replicas < job->ask.least && give_one(core, job)) {
		}
		while (job->next.replicas < job->ask.least && take_one(core, job, candidates)) {
		}
		if (job->next.replicas < job->ask.least) {
			give_back(core, job);
		}
	}
}
