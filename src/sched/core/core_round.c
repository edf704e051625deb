/* A decision: the view that the policy gets, and how the core uses the answer. See core.h.
 *
 * Policies do not know which nodes are spot nodes. If jobs that may not be on spot nodes were given
 * more than the other nodes have, a policy that chooses sizes decides once more: spot nodes are
 * then types of their own. */
#include "sched/core/core_impl.h"
#include "sched/policy/policy.h"
#include "sched/policy/worth.h"

#include <math.h>
#include <string.h>

#define NO_TYPE UINT8_MAX

_Static_assert(SCHED_TYPES_MAX < NO_TYPE, "a number of a type is none");
_Static_assert(SCHED_TYPES_MAX < 32, "a bit for each type, and one more, in 32 bits");

/* The types of nodes in the policy's view. */
struct types {
	uint8_t of[CORE_CLASSES]; /* type by class of nodes; NO_TYPE: there are no such nodes */
	bool split; /* some types differ from the core's: their spot nodes are apart */
};

/* Numbers the policy's types. split: types whose spot nodes are a type of their own, a bit each.
 * Returns false if there would be too many. */
static bool number_types(const struct sched_core *core, uint32_t split, struct types *types)
{
	uint32_t n = 0;

	types->split = split != 0;
	for (uint32_t c = 0; c < CORE_CLASSES; c++) {
		types->of[c] = split != 0 ? NO_TYPE : (uint8_t)(c / 2);
	}
	for (uint32_t i = 0; i < core->nodes_n && split != 0; i++) {
		uint32_t class = core_class_of(&core->nodes[i]);
		bool alone = (split >> class / 2 & 1) != 0;
		uint8_t type = types->of[class];

		type = type == NO_TYPE && !alone ? types->of[class ^ 1] : type;
		type = type == NO_TYPE ? (uint8_t)n++ : type;
		types->of[class] = type;
	}
	return n <= SCHED_TYPES_MAX;
}

/* Adds to the view the policy's types that the job may be on, and the job's hints for each. */
static void fill_view_types(const struct core_job *job, const struct types *types,
	struct sched_job *view)
{
	view->types = job->request.types;
	memcpy(view->hints, job->hints, sizeof(view->hints));
	if (!types->split) {
		return;
	}
	view->types = 1u << SCHED_TYPES_MAX; /* no type at all: 0 would be any */
	for (uint32_t c = 0; c < CORE_CLASSES; c++) {
		uint8_t type = types->of[c];

		if (type != NO_TYPE) {
			view->types |= core_class_fits(job, c) ? 1u << type : 0;
			view->hints[type] = sched_hints_of(
				(const struct sched_hints *const *)job->hints, c / 2);
		}
	}
}

/* Adds to the view the job's replicas: those on nodes that have room for them; none if they are
 * fewer than the job's least. */
static void fill_view_place(struct sched_core *core, struct core_job *job, struct sched_job *view,
	uint32_t *used)
{
	const struct core_placement *now = core_place_now(job);
	uint32_t *nodes = core->workspace.now + *used;
	uint32_t shown = 0;

	placement_clear(&job->scratch->next);
	for (uint32_t i = 0; i < now->n; i++) {
		uint32_t n = core_node_at(core, now->entries[i].node);
		uint32_t room = n < core->nodes_n ? core->nodes[n].room : 0;
		uint32_t fit = now->entries[i].replicas < room ? now->entries[i].replicas : room;

		fit = fit < job->scratch->cap - shown ? fit : job->scratch->cap - shown;
		placement_add(&job->scratch->next, now->entries[i].node, fit);
		shown += fit;
	}
	if (shown < job->request.least) {
		placement_clear(&job->scratch->next);
		shown = 0;
	}
	ASSERT(shown == job->scratch->next.replicas && shown <= job->scratch->cap);
	view->nodes = nodes;
	view->replicas = shown;
	*used += shown;
	for (uint32_t i = 0; i < job->scratch->next.n; i++) {
		uint32_t n = core_node_at(core, job->scratch->next.entries[i].node);

		core->nodes[n].room -= job->scratch->next.entries[i].replicas;
		for (uint32_t r = 0; r < job->scratch->next.entries[i].replicas; r++) {
			*nodes++ = n;
		}
	}
}

static void fill_view_job(struct sched_core *core, struct core_job *job, const struct types *types,
	struct sched_job *view)
{
	*view = (struct sched_job){
		.id = job->id,
		.age_s = (double)(core->now_ns - job->submitted_ns) / 1e9,
		.attained = core_attained_s(core, job),
		.restarts = job->restarts,
		.least = job->request.least,
		.most = job->scratch->cap,
		.wanted = job->request.wanted > 0 ? job->request.wanted : job->request.most,
		.weight = core->options.queues[job->queue].weight,
		.restart_s = job->request.restart_s,
	};
	view->wanted = view->wanted < view->least ? view->least : view->wanted;
	view->wanted = view->wanted > view->most ? view->most : view->wanted;
	fill_view_types(job, types, view);
}

/* Fills the view with the admitted jobs, in order of submission; jobs that run get room first. */
static uint32_t fill_view(struct sched_core *core, uint32_t candidates, const struct types *types)
{
	struct core_workspace *work = &core->workspace;
	uint32_t shown = 0;
	uint32_t used = 0;

	for (uint32_t j = 0; j < core->jobs_n; j++) {
		struct core_job *job = core->jobs[j];

		placement_clear(&job->scratch->next);
		if (job->scratch->candidate && job->scratch->cap > 0) {
			job->scratch->row = shown++;
			ASSERT(shown <= work->jobs_max);
			fill_view_job(core, job, types, &work->jobs[job->scratch->row]);
			work->grants[job->scratch->row] =
				(struct sched_grant){.nodes = work->granted +
						(size_t)job->scratch->row * work->slots_max};
		}
	}
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		work->nodes[n] = (struct sched_node){.slots = core->nodes[n].room,
			.type = types->of[core_class_of(&core->nodes[n])],
			.price = core->nodes[n].offer.price};
	}
	for (uint32_t pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < candidates; i++) {
			struct core_job *job = work->order[i];

			if (job->scratch->cap > 0 && core_is_up(job) == (pass == 0)) {
				struct sched_job *view = &work->jobs[job->scratch->row];

				fill_view_place(core, job, view, &used);
				view->pinned =
					job->request.pinned && view->replicas > 0 && pass == 0;
			}
		}
	}
	return shown;
}

/* Reads the policy's grant for the job into next. Returns what is wrong with the grant; NULL:
 * nothing. */
static const char *read_grant(struct sched_core *core, struct core_job *job)
{
	const struct sched_job *view = &core->workspace.jobs[job->scratch->row];
	const struct sched_grant *grant = &core->workspace.grants[job->scratch->row];

	if (grant->replicas > view->most) {
		return "more replicas than its most";
	}
	if (grant->replicas > 0 && grant->replicas < view->least) {
		return "fewer replicas than its least";
	}
	if (view->pinned) { /* next is what the policy was shown */
		if (grant->replicas != view->replicas) {
			return "other replicas, though it is pinned";
		}
		for (uint32_t r = 0; r < grant->replicas; r++) {
			if (grant->nodes[r] >= core->nodes_n) {
				return "a node that does not exist";
			}
			if (placement_remove(&job->scratch->next, core->nodes[grant->nodes[r]].id,
				    1) == 0) {
				return "another place, though it is pinned";
			}
		}
	}
	placement_clear(&job->scratch->next);
	for (uint32_t r = 0; r < grant->replicas; r++) {
		if (grant->nodes[r] >= core->nodes_n) {
			return "a node that does not exist";
		}
		placement_add(&job->scratch->next, core->nodes[grant->nodes[r]].id, 1);
	}
	ASSERT(job->scratch->next.replicas == grant->replicas);
	return NULL;
}

/* Reads the policy's answer into next of each job; node.room becomes what is left. Reports a wrong
 * answer, and returns false. */
static bool read_answer(struct sched_core *core, uint32_t candidates)
{
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		core->nodes[n].room = core->workspace.nodes[n].slots;
	}
	for (uint32_t c = 0; c < candidates; c++) {
		struct core_job *job = core->workspace.order[c];
		const char *wrong = job->scratch->cap > 0 ? read_grant(core, job) : NULL;

		for (uint32_t i = 0; i < job->scratch->next.n && !wrong && job->scratch->cap > 0;
			i++) {
			const struct core_placement_entry *entry = &job->scratch->next.entries[i];
			struct core_node *node = &core->nodes[core_node_at(core, entry->node)];

			wrong = entry->replicas > node->room ? "slots that do not exist" : NULL;
			node->room -= wrong ? 0 : entry->replicas;
		}
		if (wrong) {
			core_log(core,
				"a bug: policy %s gave job %llu %s; the whole answer is ignored",
				core->options.policy->name, (unsigned long long)job->id, wrong);
			return false;
		}
	}
	return true;
}

static void set_wants(struct sched_core *core, uint32_t candidates)
{
	for (uint32_t i = 0; i < candidates; i++) {
		struct core_job *job = core->workspace.order[i];

		if (job->scratch->cap == 0) {
			placement_clear(&job->scratch->next);
		}
		ASSERT(job->scratch->next.replicas <= job->scratch->cap);
		if (!placement_equal(&job->want, &job->scratch->next)) {
			placement_copy(&job->want, &job->scratch->next);
			job->dirty = true;
		}
		if (job->want.replicas == 0 && job->scratch->cap > 0) {
			job->wait = CORE_WHY_SLOTS; /* slots of the kind that the job may have */
		}
	}
}

/* Asks the policy, and reads its answer into next of each job. Returns false if there is none.
 * split_types: types whose spot nodes jobs could not use, or lack: a bit each. */
static bool ask_policy(struct sched_core *core, uint32_t candidates, const struct types *types,
	uint32_t *split_types)
{
	uint32_t shown = fill_view(core, candidates, types);
	struct sched_view view = {.now_s = (double)core->now_ns / 1e9,
		.nodes = core->workspace.nodes,
		.nodes_n = core->nodes_n,
		.jobs = core->workspace.jobs,
		.jobs_n = shown,
		.fairness = core->options.fairness};
	struct sched_verdict verdict = {NAN, NAN};
	struct pawl_err err = {0};
	int rv = 0;

	core->gap = NAN;
	if (shown > 0) {
		rv = core->options.policy->decide(core->policy, &view, core->workspace.grants,
			&verdict, &err);
	}
	if (rv != 0) {
		core_log(core, "policy %s failed: %s", core->options.policy->name, err.msg);
		return false;
	}
	if (!read_answer(core, candidates)) {
		return false;
	}
	/* With spot nodes as types of their own, the bound holds only where each job is on one such
	 * type. */
	core->gap = types->split ? NAN : sched_verdict_gap(&verdict);
	*split_types = core_fix_nodes(core, candidates);
	return true;
}

void core_decide(struct sched_core *core)
{
	uint32_t candidates = core_admit(core);
	struct types types;
	uint32_t split_types = 0;
	bool answered;

	ASSERT(candidates <= core->jobs_n);
	core->decided_ns = core->now_ns;
	core->changed = false;
	core->urgent = false;
	core->decisions++;
	number_types(core, 0, &types);
	answered = ask_policy(core, candidates, &types, &split_types);
	if (core->options.policy->chooses_sizes && split_types != 0 &&
		number_types(core, split_types, &types)) {
		for (uint32_t n = 0; n < core->nodes_n; n++) {
			core->nodes[n].room = core->workspace.nodes[n].slots;
		}
		answered = ask_policy(core, candidates, &types, &split_types);
	}
	if (answered) {
		core_fix_least(core, candidates);
		set_wants(core, candidates);
	} else {
		core->refused++;
	}
	core_pools_adjust(core);
}
