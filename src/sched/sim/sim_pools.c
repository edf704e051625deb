/*
 * The simulator's cluster of rented nodes: the production core of the scheduler, and an engine
 * whose nodes are numbers. Pure.
 *
 * Time advances to the next event: a job is submitted, a node comes or is taken away, or the core
 * wants CORE_TIMER. Once each interval, jobs report their hints and complete jobs are found. In
 * between, jobs make their steps. The core's updates are carried out at once, and the core gets the
 * outcome in its next step. After a start or a rescale the job pauses for restart_s. Nothing is
 * lost or late, and no start fails. If the core did not move a job from a node in time, the job
 * still loses no progress when the node is taken away.
 */
#include "sched/sim/sim_impl.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"
#include "sched/core/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_A_S     1e9
#define NODES_MAX  4096u /* nodes rented or requested at once, at most */
#define START_S    3600.0
#define GRACE_NS   30000000000LL
#define BACKOFF_NS NS_PER_S
#define PROGRESS_S 3600.0  /* virtual seconds between two reports */
#define SAME_STEPS 100000u /* steps of the core at one moment; more mean an endless loop */

_Static_assert(SIM_POOLS_MAX <= CORE_POOLS_MAX, "the core takes all pools");
_Static_assert(SIM_POOLS_MAX <= SCHED_TYPES_MAX, "each pool may be a type of its own");
_Static_assert(SIM_POOL_NAME + 16 <= CORE_NAME_MAX, "names of nodes, and of pools");

/* A node that was requested. */
struct rented {
	char name[SIM_POOL_NAME + 16];
	uint32_t number; /* never reused */
	uint32_t pool;
	bool there;
	bool going;
	double since_s; /* time of the request */
	double next_s;  /* time at which it comes, is announced to go, or goes; INFINITY: never */
};

/* An event that waits to be sent to the core. */
struct queued_event {
	struct core_event event;
	char name[SIM_POOL_NAME + 16]; /* name of the event's node or pool */
	struct queued_event *next;
};

struct pools {
	struct sim_run *run;
	struct sched_core *core;
	struct core_queue queue;
	struct core_pool pools[SIM_POOLS_MAX];
	double speeds[SCHED_TYPES_MAX]; /* speed of each type, types_n entries */
	uint32_t types_n;
	struct rng rng;
	double now_s;
	double ran_s;          /* last time at which any job ran */
	uint32_t next;         /* index of the first job that is not submitted yet */
	uint32_t first;        /* all jobs before this index are over */
	uint32_t done;         /* number of jobs that are over */
	uint64_t *generations; /* newest generation that the engine got for each job; owned */
	struct rented *nodes;  /* owned; room for NODES_MAX */
	uint32_t nodes_n, next_number;     /* number of entries in nodes; number of the next node */
	double exhausted_s[SIM_POOLS_MAX]; /* time until which each pool has no nodes */
	struct queued_event *first_event, **last_event;
	struct core_run *runs;      /* answer to the newest request for a list; owned */
	uint32_t *grant;            /* scratch: nodes of a job's replicas; owned */
	const char **replica_nodes; /* scratch: names of those nodes; owned */
	int rv;                     /* error of carrying out an update; 0: none */
	struct pawl_err *err;
};

static int64_t ns_of(double seconds)
{
	return (int64_t)llrint(seconds * NS_A_S);
}

/* ---- nodes ---- */

static const struct sched_pool *pool_of(const struct pools *p, const struct rented *node)
{
	return &p->run->setting->pools[node->pool];
}

static struct rented *find_node(struct pools *p, const char *name)
{
	for (uint32_t i = 0; i < p->nodes_n; i++) {
		if (strcmp(p->nodes[i].name, name) == 0) {
			return &p->nodes[i];
		}
	}
	return NULL;
}

static void report_node(const struct pools *p, const struct rented *node, uint32_t slots)
{
	const struct sched_setting *setting = p->run->setting;
	const struct sched_sim_change change = {.at_s = p->now_s,
		.node = node->name,
		.pool = pool_of(p, node)->name,
		.slots = slots,
		.price = pool_of(p, node)->price};

	if (setting->on_change) {
		setting->on_change(setting->user, &change);
	}
}

/* Removes a node and adds its price to the run. */
static void drop_node(struct pools *p, struct rented *node)
{
	const struct sched_pool *pool = pool_of(p, node);
	double seconds = p->now_s - node->since_s;

	ASSERT(p->nodes_n > 0 && node < p->nodes + p->nodes_n);
	p->run->node_s += seconds;
	p->run->spot_s += pool->spot ? seconds : 0;
	p->run->slot_s += seconds * p->run->setting->slots;
	p->run->cost += pool->price * seconds / 3600;
	if (node->there) {
		report_node(p, node, 0);
	}
	*node = p->nodes[--p->nodes_n];
}

/* ---- events for the core ---- */

static struct queued_event *queue_event(struct pools *p, enum core_event_kind kind,
	const char *name)
{
	struct queued_event *queued = calloc(1, sizeof(*queued));

	if (queued == NULL) {
		p->rv = pawl_err_set(p->err, PAWL_ENOMEM, "simulate: out of memory");
		return NULL;
	}
	queued->event = (struct core_event){.kind = kind};
	snprintf(queued->name, sizeof(queued->name), "%s", name);
	*p->last_event = queued;
	p->last_event = &queued->next;
	return queued;
}

static void queue_job_event(struct pools *p, enum core_event_kind kind, uint64_t id,
	uint64_t generation, enum core_end_cause cause)
{
	struct queued_event *queued = queue_event(p, kind, "");

	if (queued) {
		queued->event.job = id;
		queued->event.generation = generation;
		queued->event.end_cause = cause;
	}
}

/* ---- the engine ---- */

static struct sim_job *job_of(struct pools *p, uint64_t id)
{
	ASSERT(id > 0 && id <= p->next);
	return &p->run->jobs[id - 1]; /* ids are in the order of submission */
}

static void report_job(struct pools *p, const struct sim_job *job)
{
	for (uint32_t i = 0; p->run->setting->on_change && i < job->replicas; i++) {
		for (uint32_t n = 0; n < p->nodes_n; n++) {
			if (p->nodes[n].number == job->nodes[i]) {
				p->replica_nodes[i] = p->nodes[n].name;
			}
		}
	}
	sim_run_report(p->run, job, p->replica_nodes, p->now_s);
}

/* Reads the nodes of place, one entry per replica, into grant. Returns false if a node is gone. */
static bool read_place(struct pools *p, const struct sched_core *core,
	const struct core_placement *place, struct sched_grant *grant)
{
	ASSERT(place->replicas <= p->run->setting->nodes * p->run->setting->slots);
	grant->nodes = p->grant;
	grant->replicas = 0;
	for (uint32_t i = 0; i < place->n; i++) {
		const struct core_node *of = core_node_find(core, place->entries[i].node);
		const struct rented *node = of ? find_node(p, of->offer.name) : NULL;

		if (node == NULL) {
			return false;
		}
		for (uint32_t r = 0; r < place->entries[i].replicas; r++) {
			grant->nodes[grant->replicas++] = node->number;
		}
	}
	return true;
}

static void move(struct pools *p, const struct sched_core *core, uint64_t id, uint64_t generation,
	const struct core_placement *place)
{
	struct sim_job *job = job_of(p, id);
	struct sched_grant grant;

	if (generation == p->generations[id - 1] || job->end_s >= 0) {
		return; /* a repetition, or the job is complete */
	}
	p->generations[id - 1] = generation;
	if (!read_place(p, core, place, &grant)) {
		queue_job_event(p, CORE_REFUSED, id, generation, CORE_END_UNKNOWN);
		return;
	}
	if (p->rv == 0) {
		p->rv = sim_job_move(job, p->run->policy, &grant, p->run->setting->restart_s,
			p->err);
	}
	report_job(p, job);
	queue_job_event(p, CORE_RUNS, id, generation, CORE_END_UNKNOWN);
}

static void do_move(void *self, const struct sched_core *core, uint64_t id, uint64_t generation,
	const struct core_placement *place)
{
	move(self, core, id, generation, place);
}

static void do_stop(void *self, uint64_t id, uint64_t generation, int64_t grace_ns)
{
	struct pools *p = self;
	struct sim_job *job = job_of(p, id);

	(void)grace_ns;
	if (job->end_s < 0) {
		job->replicas = 0;
		report_job(p, job);
	}
	queue_job_event(p, CORE_ENDED, id, generation,
		job->end_s < 0 ? CORE_END_STOPPED : CORE_END_EXITED);
}

static void do_list(void *self)
{
	struct pools *p = self;
	struct queued_event *queued = queue_event(p, CORE_LISTED, "");
	uint32_t n = 0;

	for (uint32_t j = p->first; j < p->next; j++) {
		if (p->run->jobs[j].replicas > 0 && p->run->jobs[j].end_s < 0) {
			p->runs[n++] = (struct core_run){j + 1, p->generations[j], true};
		}
	}
	if (queued) {
		queued->event.runs = p->runs;
		queued->event.runs_n = n;
	}
}

static void do_request_nodes(void *self, const char *name, uint32_t count)
{
	struct pools *p = self;
	const struct sched_setting *setting = p->run->setting;
	uint32_t pool = 0;

	while (strcmp(setting->pools[pool].name, name) != 0) {
		pool++;
	}
	if (p->now_s < p->exhausted_s[pool]) {
		queue_event(p, CORE_POOL_EXHAUSTED, name);
		return;
	}
	for (uint32_t i = 0; i < count && p->nodes_n < NODES_MAX; i++) {
		struct rented *node = &p->nodes[p->nodes_n++];

		*node = (struct rented){.number = p->next_number++,
			.pool = pool,
			.since_s = p->now_s,
			.next_s = p->now_s + setting->pools[pool].boot_s};
		snprintf(node->name, sizeof(node->name), "%s-%u", name, node->number);
	}
}

static void do_return_node(void *self, const char *name)
{
	struct pools *p = self;
	struct rented *node = find_node(p, name);

	if (node) {
		drop_node(p, node);
		queue_event(p, CORE_NODE_GONE, name);
	}
}

/* Keeps the core's message as an error: the core reports only that its policy is wrong. */
static void do_log(void *self, const char *text)
{
	struct pools *p = self;

	p->rv = p->rv ? p->rv : pawl_err_set(p->err, PAWL_EINVAL, "simulate: %s", text);
}

static const struct sched_engine engine = {.name = "sim",
	.start = do_move,
	.rescale = do_move,
	.stop = do_stop,
	.list = do_list,
	.request_nodes = do_request_nodes,
	.return_node = do_return_node,
	.log = do_log};

/* ---- steps of the core ---- */

static int step_core(struct pools *p, struct core_event *event)
{
	const struct core_update *updates;
	uint64_t refused;
	uint64_t before = core_decisions(p->core, &refused);
	int64_t (*clock_ns)(void) = p->run->setting->clock_ns;
	int64_t from = clock_ns ? clock_ns() : 0;
	uint32_t n;
	int rv;

	event->now_ns = ns_of(p->now_s);
	rv = core_step(p->core, event, &event->job, p->err);
	if (rv == PAWL_ENOENT) {
		return 0; /* the core returned the event's node before */
	}
	if (rv == 0 && core_decisions(p->core, &refused) > before) {
		rv = sim_run_solved(p->run, clock_ns ? (double)(clock_ns() - from) / NS_A_S : 0,
			core_gap(p->core), p->err);
	}
	if (rv != 0) {
		return rv;
	}
	core_rows_done(p->core);
	updates = core_updates(p->core, &n);
	for (uint32_t i = 0; i < n; i++) {
		sched_engine_do(&engine, p, p->core, p->pools, &updates[i]);
	}
	return p->rv;
}

/* Steps the core with an event, and with all events that follow at this moment. */
static int step(struct pools *p, struct core_event *event)
{
	int rv = step_core(p, event);

	for (uint32_t i = 0; rv == 0 && p->first_event; i++) {
		struct queued_event *queued = p->first_event;

		p->first_event = queued->next;
		p->last_event = p->first_event ? p->last_event : &p->first_event;
		queued->event.node = queued->name;
		queued->event.pool = queued->name;
		rv = i < SAME_STEPS
			? step_core(p, &queued->event)
			: pawl_err_set(p->err, PAWL_ELIMIT,
				  "simulate: at %.0f s the core makes updates without end",
				  p->now_s);
		free(queued);
	}
	return rv;
}

/* ---- simulated events ---- */

static int submit(struct pools *p)
{
	const struct sched_setting *setting = p->run->setting;
	const struct sched_submission *of = &p->run->workload->jobs[p->next];
	uint32_t all = setting->nodes * setting->slots;
	struct core_request request = {.least = 1,
		.most = of->app->replicas_most < all ? of->app->replicas_most : all,
		.in_place = true,
		.restart_s = setting->restart_s,
		.grace_ns = GRACE_NS};
	struct core_event event = {.kind = CORE_SUBMIT, .request = &request};

	request.wanted = of->replicas < request.most ? of->replicas : request.most;
	request.spot_most = request.most;
	snprintf(request.name, sizeof(request.name), "%.*s", (int)sizeof(request.name) - 1,
		of->name);
	report_job(p, &p->run->jobs[p->next++]);
	return step(p, &event);
}

/* Scales all terms of a step's time for nodes of another speed: less time on faster nodes. */
static void speed_up(struct pawl_perf *perf, double speed)
{
	perf->alpha_c /= speed;
	perf->beta_c /= speed;
	perf->alpha_r /= speed;
	perf->beta_r /= speed;
	perf->alpha_n /= speed;
	perf->beta_n /= speed;
	perf->delta_n /= speed;
}

static int report_hints(struct pools *p, struct sim_job *job)
{
	int rv = sim_job_update_hints(job, p->err);

	for (uint32_t t = 0; t < p->types_n && rv == 0; t++) {
		struct sched_hints hints = job->reported;
		struct core_event event = {.kind = CORE_HINTS,
			.job = job->index + 1,
			.type = t,
			.hints = &hints};

		speed_up(&hints.perf, p->speeds[t]);
		rv = step(p, &event);
	}
	return rv;
}

/* Checks the jobs that run: ends those that are complete and reports the hints of the others. */
static int check_jobs(struct pools *p)
{
	int rv = 0;

	for (uint32_t j = p->first; j < p->next && rv == 0; j++) {
		struct sim_job *job = &p->run->jobs[j];

		if (job->replicas == 0) {
			continue;
		}
		p->ran_s = p->now_s;
		if (job->end_s < 0) {
			rv = report_hints(p, job);
			continue;
		}
		report_job(p, job);
		job->replicas = 0;
		p->done++;
		queue_job_event(p, CORE_ENDED, j + 1, p->generations[j], CORE_END_EXITED);
		rv = step(p, &(struct core_event){.kind = CORE_TIMER});
	}
	while (p->first < p->next && p->run->jobs[p->first].end_s >= 0 &&
		p->run->jobs[p->first].replicas == 0) {
		p->first++;
	}
	ASSERT(p->done <= p->next && p->first <= p->next);
	return rv;
}

static int report_new_node(struct pools *p, struct rented *node)
{
	const struct sched_pool *pool = pool_of(p, node);
	struct core_offer offer = {.type = p->pools[node->pool].type,
		.slots = p->run->setting->slots,
		.price = pool->price,
		.spot = pool->spot};
	struct core_event event = {.kind = CORE_NODE_REPORTED, .offer = &offer};

	snprintf(offer.name, sizeof(offer.name), "%s", node->name);
	snprintf(offer.pool, sizeof(offer.pool), "%s", pool->name);
	node->there = true;
	node->next_s = INFINITY;
	if (pool->spot && pool->life_s > 0) {
		double life_s = -log(1 - rng_unit(&p->rng)) * pool->life_s;

		node->next_s = p->now_s + fmax(life_s - pool->notice_s, 0);
	}
	report_node(p, node, offer.slots);
	return step(p, &event);
}

/* Carries out the next change of a node, which is due now. */
static int node_changes(struct pools *p, struct rented *node)
{
	const struct sched_pool *pool = pool_of(p, node);
	struct core_event event = {.kind = CORE_NODE_NOTICE};
	char name[sizeof(node->name)];

	if (!node->there) {
		return report_new_node(p, node);
	}
	memcpy(name, node->name, sizeof(name));
	event.node = name;
	event.deadline_ns = ns_of(p->now_s + pool->notice_s);
	if (!node->going) {
		node->going = true;
		node->next_s = p->now_s + pool->notice_s;
		p->exhausted_s[node->pool] = node->next_s + pool->gap_s;
		p->run->reclaims++;
		return step(p, &event);
	}
	drop_node(p, node);
	event.kind = CORE_NODE_GONE;
	return step(p, &event);
}

/* ---- time ---- */

static double find_speed(struct pools *p, const struct sim_job *job)
{
	double speed = INFINITY;

	for (uint32_t i = 0; i < job->replicas; i++) {
		for (uint32_t n = 0; n < p->nodes_n; n++) {
			if (p->nodes[n].number == job->nodes[i]) {
				speed = fmin(speed, pool_of(p, &p->nodes[n])->speed);
			}
		}
	}
	return isinf(speed) ? 1 : speed;
}

static int advance_to(struct pools *p, double until_s)
{
	double seconds = until_s - p->now_s;
	int rv = 0;

	ASSERT(seconds >= 0);
	for (uint32_t j = p->first; j < p->next && rv == 0 && seconds > 0; j++) {
		struct sim_job *job = &p->run->jobs[j];

		if (job->end_s < 0) {
			rv = sim_job_step(job, p->run->policy, p->now_s, seconds,
				find_speed(p, job), p->err);
		}
	}
	p->now_s = until_s;
	return rv;
}

static struct rented *next_node(struct pools *p)
{
	struct rented *next = NULL;

	for (uint32_t i = 0; i < p->nodes_n; i++) {
		if (!next || p->nodes[i].next_s < next->next_s) {
			next = &p->nodes[i];
		}
	}
	return next;
}

/* Advances time to the next event and carries it out. *check_s: time of the next check of jobs. */
static int run_next_event(struct pools *p, double *check_s)
{
	const struct sched_workload *workload = p->run->workload;
	double wake_s =
		core_wake_ns(p->core) > 0 ? (double)core_wake_ns(p->core) / NS_A_S : INFINITY;
	double job_s = p->next < workload->n ? workload->jobs[p->next].at_s : INFINITY;
	struct rented *node = next_node(p);
	double node_s = node ? node->next_s : INFINITY;
	double until_s = fmin(fmin(wake_s, job_s), fmin(node_s, *check_s));
	int rv = advance_to(p, fmax(until_s, p->now_s));

	if (rv != 0) {
		return rv;
	}
	if (node && node_s <= p->now_s) {
		return node_changes(p, node);
	}
	if (job_s <= p->now_s) {
		return submit(p);
	}
	if (*check_s <= p->now_s) {
		*check_s += p->run->setting->interval_s;
		return check_jobs(p);
	}
	return step(p, &(struct core_event){.kind = CORE_TIMER});
}

static int run_all(struct pools *p)
{
	const struct sched_setting *setting = p->run->setting;
	double check_s = setting->interval_s;
	double reported_s = 0;
	int rv = step(p, &(struct core_event){.kind = CORE_TIMER});

	while (rv == 0 && p->done < p->run->workload->n) {
		rv = run_next_event(p, &check_s);
		if (p->next == p->done) {
			p->ran_s = p->now_s;
		}
		if (rv == 0 && p->done < p->run->workload->n &&
			(p->now_s - p->ran_s > SIM_IDLE_S || p->now_s > SIM_LAST_S)) {
			rv = pawl_err_set(p->err, PAWL_ELIMIT,
				"policy %s: %u jobs are not done after %.0f days",
				p->run->policy->policy->name, p->run->workload->n - p->done,
				p->now_s / 86400);
		}
		if (setting->on_progress && p->now_s - reported_s >= PROGRESS_S) {
			reported_s = p->now_s;
			setting->on_progress(setting->user, p->now_s, p->done);
		}
	}
	while (p->nodes_n > 0) {
		drop_node(p, &p->nodes[0]);
	}
	return rv;
}

/* ---- open and close ---- */

/* Fills in the core's pools and queue. Pools of the same speed share a type. */
static void fill_pools(struct pools *p)
{
	const struct sched_setting *setting = p->run->setting;

	for (uint32_t i = 0; i < setting->pools_n; i++) {
		const struct sched_pool *from = &setting->pools[i];
		uint32_t type = 0;

		while (type < p->types_n && p->speeds[type] != from->speed) {
			type++;
		}
		p->types_n = type == p->types_n ? type + 1 : p->types_n;
		ASSERT(p->types_n <= SCHED_TYPES_MAX);
		p->speeds[type] = from->speed;
		p->pools[i] = (struct core_pool){.type = type,
			.slots = setting->slots,
			.price = from->price,
			.spot = from->spot,
			.least = from->least,
			.most = from->most};
		snprintf(p->pools[i].name, sizeof(p->pools[i].name), "%s", from->name);
	}
	p->queue = (struct core_queue){.name = "main", .weight = 1};
}

static int open_pools(struct pools *p)
{
	const struct sched_setting *setting = p->run->setting;
	uint32_t jobs_n = p->run->workload->n;
	size_t slots = (size_t)setting->nodes * setting->slots;
	struct core_options options = {.queues = &p->queue,
		.queues_n = 1,
		.pools = p->pools,
		.pools_n = setting->pools_n,
		.pool_slots_max = (uint32_t)slots,
		.round_ns = ns_of(setting->interval_s),
		.start_timeout_ns = ns_of(START_S),
		.kill_interval_ns = GRACE_NS,
		.backoff_ns = BACKOFF_NS,
		.backoff_max_ns = BACKOFF_NS,
		.policy = p->run->policy->policy,
		.seed = setting->seed,
		.fairness = setting->fairness,
		.good_use = setting->good_use};

	p->generations = calloc(jobs_n, sizeof(*p->generations));
	p->nodes = calloc(NODES_MAX, sizeof(*p->nodes));
	p->runs = calloc(jobs_n, sizeof(*p->runs));
	p->grant = calloc(2 * slots, sizeof(*p->grant));
	p->replica_nodes = calloc(2 * slots, sizeof(*p->replica_nodes));
	if (!p->generations || !p->nodes || !p->runs || !p->grant || !p->replica_nodes) {
		return pawl_err_set(p->err, PAWL_ENOMEM, "simulate: out of memory");
	}
	return core_open(&p->core, &options, p->err);
}

static void close_pools(struct pools *p)
{
	while (p->first_event) {
		struct queued_event *queued = p->first_event;

		p->first_event = queued->next;
		free(queued);
	}
	core_close(p->core);
	free(p->generations);
	free(p->nodes);
	free(p->runs);
	free(p->grant);
	free(p->replica_nodes);
}

int sim_pools_run(struct sim_run *run, struct pawl_err *err)
{
	struct pools p = {.run = run, .rng = {run->setting->seed}, .err = err};
	int rv;

	p.last_event = &p.first_event;
	fill_pools(&p);
	rv = open_pools(&p);
	rv = rv ? rv : run_all(&p);
	close_pools(&p);
	return rv;
}
