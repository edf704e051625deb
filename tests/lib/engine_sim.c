/* An engine on simulated machines: see engine_sim.h. */
#include "engine_sim.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

#define S_NS     1000000000LL
#define MS_NS    1000000LL
#define KEEP_NS  (7200 * S_NS) /* how long ended runs are known; real engines know them longer */
#define HANGS_NS (3600 * S_NS)

static bool happens(struct engine_sim *sim, uint32_t thousandths)
{
	return rng_below(&sim->rng, 1000) < thousandths;
}

static struct esim_item *later(struct engine_sim *sim, enum esim_item_kind kind, int64_t delay_ns)
{
	uint32_t i = 0;

	while (i < sim->items_n && sim->items[i].kind != ESIM_FREE) {
		i++;
	}
	ASSERT(i < ESIM_ITEMS);
	sim->items_n = i == sim->items_n ? i + 1 : sim->items_n;
	memset(&sim->items[i], 0, sizeof(sim->items[i]));
	sim->items[i].kind = kind;
	sim->items[i].at_ns = sim->now_ns + delay_ns;
	sim->items[i].order = sim->order++;
	return &sim->items[i];
}

static int64_t delay(struct engine_sim *sim)
{
	return sim->faults.in_order || sim->faults.slow_ms == 0
		? MS_NS
		: (int64_t)rng_below(&sim->rng, sim->faults.slow_ms) * MS_NS + MS_NS;
}

/* Sends a message to the core, or loses it. */
static struct esim_item *send_event(struct engine_sim *sim, enum core_event_kind kind)
{
	struct esim_item *item = later(sim, ESIM_EVENT, delay(sim));

	item->event.kind = kind;
	if (happens(sim, sim->faults.lost) && kind != CORE_LISTED) {
		item->event.kind = CORE_TIMER;
	}
	return item;
}

static void send_run_event(struct engine_sim *sim, enum core_event_kind kind,
	const struct esim_run *run, uint64_t generation)
{
	struct esim_item *item = send_event(sim, kind);

	item->event.job = run->job;
	item->event.generation = generation;
	item->event.end_cause = run->by;
	item->event.exit_code = run->exit_code;
}

/* ---- runs ---- */

static bool is_alive(const struct esim_run *run)
{
	return run->state == ESIM_STARTING || run->state == ESIM_RUNNING;
}

static struct esim_run *find_run(struct engine_sim *sim, uint64_t job)
{
	struct esim_run *none = NULL;

	for (uint32_t i = 0; i < ESIM_RUNS; i++) {
		struct esim_run *run = &sim->runs[i];
		bool old = run->job == 0 ||
			(!is_alive(run) && sim->now_ns - run->last_action_ns > KEEP_NS);

		if (run->job == job) {
			run->last_action_ns = sim->now_ns;
			return run;
		}
		none = old && !none ? run : none;
	}
	ASSERT(none);
	*none = (struct esim_run){.job = job, .last_action_ns = sim->now_ns};
	return none;
}

const struct esim_run *esim_run_of(const struct engine_sim *sim, uint64_t job)
{
	for (uint32_t i = 0; i < ESIM_RUNS; i++) {
		if (sim->runs[i].job == job && sim->runs[i].state != ESIM_NONE) {
			return &sim->runs[i];
		}
	}
	return NULL;
}

static uint32_t replicas_of(const struct esim_run *run)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < run->spots_n; i++) {
		n += run->spots[i].replicas;
	}
	return n;
}

static void work(struct engine_sim *sim, struct esim_run *run)
{
	if (run->state == ESIM_RUNNING) {
		run->work_s -= replicas_of(run) * (double)(sim->now_ns - run->worked_ns) / 1e9;
	}
	run->worked_ns = sim->now_ns;
}

static void check_nodes(const struct engine_sim *sim)
{
	uint32_t used[ESIM_NODES] = {0};

	for (uint32_t r = 0; r < ESIM_RUNS; r++) {
		for (uint32_t i = 0; i < sim->runs[r].spots_n && is_alive(&sim->runs[r]); i++) {
			used[sim->runs[r].spots[i].node] += sim->runs[r].spots[i].replicas;
		}
	}
	for (uint32_t n = 0; n < ESIM_NODES; n++) {
		ASSERT(used[n] <= sim->nodes[n].slots || sim->nodes[n].shrunk);
	}
}

/* Returns the replicas that a run has on a node. */
static uint32_t replicas_on(const struct esim_run *run, uint32_t node)
{
	uint32_t replicas = 0;

	for (uint32_t i = 0; i < run->spots_n; i++) {
		replicas += run->spots[i].node == node ? run->spots[i].replicas : 0;
	}
	return replicas;
}

/* Returns the replicas on a node of all runs but one. */
static uint32_t replicas_of_others(const struct engine_sim *sim, uint32_t node,
	const struct esim_run *but)
{
	uint32_t replicas = 0;

	for (uint32_t r = 0; r < ESIM_RUNS; r++) {
		if (is_alive(&sim->runs[r]) && &sim->runs[r] != but) {
			replicas += replicas_on(&sim->runs[r], node);
		}
	}
	return replicas;
}

static void end(struct engine_sim *sim, struct esim_run *run, enum core_end_cause cause)
{
	work(sim, run);
	run->state = ESIM_ENDED;
	run->by = cause;
	run->ended_ns = sim->now_ns;
	run->stamp = 0;
	run->stopped = run->generation > run->stopped ? run->generation : run->stopped;
	send_run_event(sim, CORE_ENDED, run, run->generation);
}

/* Plans when a run ends by itself. */
static void plan_end(struct engine_sim *sim, struct esim_run *run)
{
	double left_s = run->work_s / replicas_of(run);
	struct esim_item *item;

	if (run->exit_code != 0) {
		left_s *= (double)rng_below(&sim->rng, 1000) / 1000;
	}
	left_s = left_s > 0.001 ? left_s : 0.001;
	item = later(sim, ESIM_END, (int64_t)(left_s * 1e9) + (run->hangs ? HANGS_NS : 0));
	item->job = run->job;
	item->stamp = run->stamp = item->order;
}

/* Whether a run can get a place: all its nodes are up, and those that have lost slots still have
 * enough for it. A run can always give replicas up. */
static bool stands(const struct engine_sim *sim, const struct esim_run *run,
	const struct esim_run *place)
{
	for (uint32_t i = 0; i < place->spots_n; i++) {
		const struct esim_node *node = &sim->nodes[place->spots[i].node];
		uint32_t owned = is_alive(run) ? replicas_on(run, place->spots[i].node) : 0;
		uint32_t all = place->spots[i].replicas +
			replicas_of_others(sim, place->spots[i].node, run);

		if (!node->up ||
			(node->shrunk && place->spots[i].replicas > owned && all > node->slots)) {
			return false;
		}
	}
	return true;
}

static void start(struct engine_sim *sim, const struct esim_item *item)
{
	struct esim_run *run = find_run(sim, item->job);

	if (item->generation <= run->stopped && is_alive(run)) {
		return; /* a stop was requested, and the run's end will be reported */
	}
	if (item->generation <= run->stopped) {
		sim->late++;
		run->by = run->state == ESIM_ENDED ? run->by : CORE_END_UNKNOWN;
		send_run_event(sim, CORE_ENDED, run, item->generation);
		return;
	}
	if (is_alive(run) || item->generation == run->refused) { /* the core has repeated it */
		ASSERT(item->generation <= run->generation || item->generation == run->refused);
		if (item->generation == run->refused) {
			send_run_event(sim, CORE_REFUSED, run, item->generation);
		} else if (run->state == ESIM_RUNNING) {
			send_run_event(sim, CORE_RUNS, run, run->generation);
		}
		return;
	}
	if (!stands(sim, run, &item->place) || happens(sim, sim->faults.refused)) {
		run->refused = item->generation;
		send_run_event(sim, CORE_REFUSED, run, item->generation);
		return;
	}
	if (run->generation == 0) {
		run->work_s = (double)rng_below(&sim->rng, (uint64_t)sim->work_max_s) + 10;
		run->ignores_stop = happens(sim, sim->faults.ignores_stop);
	}
	sim->starts++;
	run->state = ESIM_STARTING;
	run->generation = item->generation;
	run->stop_requested = false;
	run->exit_code = happens(sim, sim->faults.fails) ? 1 : 0;
	run->hangs = happens(sim, sim->faults.hangs);
	run->spots_n = item->place.spots_n;
	memcpy(run->spots, item->place.spots, sizeof(run->spots));
	check_nodes(sim);
	later(sim, ESIM_STEP, (int64_t)rng_below(&sim->rng, 10000) * MS_NS)->job = run->job;
}

/* Makes all replicas of a starting run work. */
static void run_now(struct engine_sim *sim, uint64_t job)
{
	struct esim_run *run = find_run(sim, job);

	if (run->state == ESIM_STARTING) {
		work(sim, run);
		run->state = ESIM_RUNNING;
		plan_end(sim, run);
		send_run_event(sim, CORE_RUNS, run, run->generation);
	}
}

static void rescale(struct engine_sim *sim, const struct esim_item *item)
{
	struct esim_run *run = find_run(sim, item->job);

	if (item->generation <= run->stopped || item->generation < run->generation) {
		return;
	}
	if (run->state == ESIM_ENDED) {
		send_run_event(sim, CORE_ENDED, run, item->generation);
		return;
	}
	if (run->state != ESIM_RUNNING || item->generation == run->refused ||
		(item->generation > run->generation &&
			(!stands(sim, run, &item->place) || happens(sim, sim->faults.refused)))) {
		run->refused = item->generation;
		send_run_event(sim, CORE_REFUSED, run, item->generation);
		return;
	}
	if (item->generation > run->generation) {
		work(sim, run);
		run->generation = item->generation;
		run->spots_n = item->place.spots_n;
		memcpy(run->spots, item->place.spots, sizeof(run->spots));
		check_nodes(sim);
		plan_end(sim, run);
	}
	send_run_event(sim, CORE_RUNS, run, run->generation);
}

static void stop(struct engine_sim *sim, const struct esim_item *item)
{
	struct esim_run *run = find_run(sim, item->job);

	run->stopped = item->generation > run->stopped ? item->generation : run->stopped;
	if (!is_alive(run)) {
		run->by = run->state == ESIM_ENDED ? run->by : CORE_END_UNKNOWN;
		send_run_event(sim, CORE_ENDED, run, item->generation);
		return;
	}
	if (run->generation > item->generation) {
		return; /* the order is for an earlier generation */
	}
	if (item->grace_ns == 0) {
		sim->kills += run->ignores_stop;
		end(sim, run, CORE_END_STOPPED);
	} else if (!run->ignores_stop && !run->stop_requested) {
		struct esim_item *last =
			later(sim, ESIM_END, (int64_t)rng_below(&sim->rng, 5000) * MS_NS);

		run->stop_requested = true;
		last->job = run->job;
		last->stamp = run->stamp = last->order;
	}
}

/* ---- nodes ---- */

const char *esim_node_comes(struct engine_sim *sim, uint32_t slots, const char *pool, bool spot)
{
	struct esim_node *node = NULL;

	for (uint32_t n = 0; n < ESIM_NODES && !node; n++) {
		node = !sim->nodes[n].known ? &sim->nodes[n] : NULL;
	}
	ASSERT(node);
	*node = (struct esim_node){.known = true, .up = true, .slots = slots, .spot = spot};
	snprintf(node->name, sizeof(node->name), "node%u", ++sim->nodes_ever);
	snprintf(node->pool, sizeof(node->pool), "%s", pool);
	return node->name;
}

static void send_node_event(struct engine_sim *sim, struct esim_node *node,
	enum core_event_kind kind, int64_t deadline_ns)
{
	struct esim_item *item = send_event(sim, kind);

	snprintf(item->name, sizeof(item->name), "%s", node->name);
	snprintf(item->offer.name, sizeof(item->offer.name), "%s", node->name);
	snprintf(item->offer.pool, sizeof(item->offer.pool), "%s", node->pool);
	item->offer.slots = node->slots;
	item->offer.price = node->spot ? 0.3 : 1;
	item->offer.spot = node->spot;
	item->event.deadline_ns = deadline_ns;
	item->at_ns = item->at_ns > node->last_event_ns ? item->at_ns : node->last_event_ns + 1;
	node->last_event_ns = item->at_ns; /* keeps the order of messages about one node */
}

void esim_node_dies(struct engine_sim *sim, uint32_t n)
{
	struct esim_node *node = &sim->nodes[n];

	if (!node->up) {
		return;
	}
	node->up = false;
	node->going = false;
	for (uint32_t r = 0; r < ESIM_RUNS; r++) {
		struct esim_run *run = &sim->runs[r];
		bool on = false;

		for (uint32_t i = 0; i < run->spots_n && is_alive(run); i++) {
			on = on || run->spots[i].node == n;
		}
		if (on) { /* the whole run ends: the replicas that are left cannot go on alone */
			end(sim, run, CORE_END_NODE_LOST);
		}
	}
	send_node_event(sim, node, CORE_NODE_GONE, 0);
}

void esim_node_goes(struct engine_sim *sim, uint32_t n, int64_t in_ns)
{
	struct esim_item *item;

	if (!sim->nodes[n].up || sim->nodes[n].going) {
		return;
	}
	sim->nodes[n].going = true;
	send_node_event(sim, &sim->nodes[n], CORE_NODE_NOTICE, sim->now_ns + in_ns);
	item = later(sim, ESIM_DIES, in_ns);
	item->node = n;
	snprintf(item->name, sizeof(item->name), "%s", sim->nodes[n].name);
}

void esim_node_resize(struct engine_sim *sim, uint32_t n, uint32_t slots)
{
	struct esim_node *node = &sim->nodes[n];

	if (node->known && node->up) {
		node->shrunk = node->shrunk || slots < node->slots;
		node->slots = slots;
		send_node_event(sim, node, CORE_NODE_REPORTED, 0);
	}
}

void esim_node_returns(struct engine_sim *sim, uint32_t n)
{
	if (sim->nodes[n].known && !sim->nodes[n].up) {
		sim->nodes[n].up = true;
		send_node_event(sim, &sim->nodes[n], CORE_NODE_REPORTED, 0);
	}
}

static void give_back(struct engine_sim *sim, const char *name)
{
	for (uint32_t n = 0; n < ESIM_NODES; n++) {
		if (sim->nodes[n].known && strcmp(sim->nodes[n].name, name) == 0) {
			esim_node_dies(sim, n);
			sim->nodes[n].known = false;
			return;
		}
	}
	snprintf(send_event(sim, CORE_NODE_GONE)->name, CORE_NAME_MAX, "%s", name);
}

static void ask(struct engine_sim *sim, const struct esim_item *item)
{
	struct esim_item *dry;

	for (uint32_t i = 0; i < item->count; i++) {
		bool spot = strstr(item->name, "spot") != NULL;
		const char *name;

		if (happens(sim, sim->faults.dry) && spot) {
			dry = send_event(sim, CORE_POOL_EXHAUSTED);
			snprintf(dry->name, sizeof(dry->name), "%s", item->name);
			return;
		}
		name = esim_node_comes(sim, 4, item->name, spot);
		for (uint32_t n = 0; n < ESIM_NODES; n++) {
			if (strcmp(sim->nodes[n].name, name) == 0) {
				send_node_event(sim, &sim->nodes[n], CORE_NODE_REPORTED, 0);
			}
		}
	}
}

/* Reports nodes, ended runs, and what runs. The messages of one list keep their order. */
static void list(struct engine_sim *sim)
{
	struct esim_faults faults = sim->faults;
	struct esim_item *item;

	sim->faults.lost = 0;
	sim->faults.in_order = true;
	for (uint32_t n = 0; n < ESIM_NODES; n++) {
		struct esim_node *node = &sim->nodes[n];

		if (node->known) {
			send_node_event(sim, node, node->up ? CORE_NODE_REPORTED : CORE_NODE_GONE,
				0);
		} else if (node->name[0] != '\0') {
			send_node_event(sim, node, CORE_NODE_GONE, 0);
		}
	}
	for (uint32_t r = 0; r < ESIM_RUNS; r++) {
		const struct esim_run *run = &sim->runs[r];

		if (run->state == ESIM_ENDED && sim->now_ns - run->ended_ns <= KEEP_NS) {
			send_run_event(sim, CORE_ENDED, run, run->generation);
		}
	}
	item = send_event(sim, CORE_LISTED);
	item->event.runs = sim->listed; /* filled when the event is taken */
	sim->faults = faults;
}

/* ---- the core's commands ---- */

static void command(struct engine_sim *sim, const struct esim_item *item)
{
	switch (item->command) {
	case CORE_DO_START:
		start(sim, item);
		break;
	case CORE_DO_RESCALE:
		rescale(sim, item);
		break;
	case CORE_DO_STOP:
		stop(sim, item);
		break;
	case CORE_DO_REQUEST_NODES:
		ask(sim, item);
		break;
	case CORE_DO_RETURN_NODE:
		give_back(sim, item->name);
		break;
	default:
		list(sim);
	}
}

static struct esim_item *take_command(struct engine_sim *sim, enum core_update_kind kind,
	uint64_t job, uint64_t generation)
{
	struct esim_item *item = later(sim, ESIM_COMMAND, delay(sim));

	item->command = kind;
	item->job = job;
	item->generation = generation;
	if (happens(sim, sim->faults.lost) && kind != CORE_DO_LIST) {
		item->kind = ESIM_EVENT; /* the lost command becomes a mere tick */
		item->event.kind = CORE_TIMER;
	}
	return item;
}

static void take_place(struct engine_sim *sim, struct esim_item *item,
	const struct sched_core *core, const struct core_placement *place)
{
	ASSERT(place->n > 0 && place->n <= ESIM_SPOTS);
	for (uint32_t i = 0; i < place->n; i++) {
		const char *name = core_node_find(core, place->entries[i].node)->offer.name;
		uint32_t n = 0;

		while (n < ESIM_NODES && strcmp(sim->nodes[n].name, name) != 0) {
			n++;
		}
		if (n < ESIM_NODES) { /* else the node is gone, and another one has its place */
			item->place.spots[item->place.spots_n].node = n;
			item->place.spots[item->place.spots_n++].replicas =
				place->entries[i].replicas;
		} else if (item->kind == ESIM_COMMAND) {
			item->kind = ESIM_EVENT;
			item->event.kind = CORE_REFUSED;
			item->event.job = item->job;
			item->event.generation = item->generation;
		}
	}
}

static void do_start(void *self, const struct sched_core *core, uint64_t job, uint64_t generation,
	const struct core_placement *place)
{
	take_place(self, take_command(self, CORE_DO_START, job, generation), core, place);
}

static void do_rescale(void *self, const struct sched_core *core, uint64_t job, uint64_t generation,
	const struct core_placement *place)
{
	take_place(self, take_command(self, CORE_DO_RESCALE, job, generation), core, place);
}

static void do_stop(void *self, uint64_t job, uint64_t generation, int64_t grace_ns)
{
	take_command(self, CORE_DO_STOP, job, generation)->grace_ns = grace_ns;
}

static void do_list(void *self)
{
	take_command(self, CORE_DO_LIST, 0, 0);
}

static void do_ask(void *self, const char *pool, uint32_t count)
{
	struct esim_item *item = take_command(self, CORE_DO_REQUEST_NODES, 0, 0);

	item->count = count;
	snprintf(item->name, sizeof(item->name), "%s", pool);
}

static void do_give_back(void *self, const char *node)
{
	struct esim_item *item = take_command(self, CORE_DO_RETURN_NODE, 0, 0);

	snprintf(item->name, sizeof(item->name), "%s", node);
}

static void do_log(void *self, const char *text)
{
	struct engine_sim *sim = self;

	sim->lines_n++;
	snprintf(sim->last, sizeof(sim->last), "%s", text);
}

const struct sched_engine engine_sim = {.name = "sim",
	.loses_nodes = true,
	.start = do_start,
	.rescale = do_rescale,
	.stop = do_stop,
	.list = do_list,
	.request_nodes = do_ask,
	.return_node = do_give_back,
	.log = do_log};

/* ---- time ---- */

void esim_open(struct engine_sim *sim, uint64_t seed)
{
	memset(sim, 0, sizeof(*sim));
	sim->rng.state = seed;
	sim->now_ns = S_NS;
	sim->work_max_s = 600;
}

static struct esim_item *first_item(struct engine_sim *sim)
{
	struct esim_item *first = NULL;

	for (uint32_t i = 0; i < sim->items_n; i++) {
		struct esim_item *item = &sim->items[i];

		if (item->kind != ESIM_FREE &&
			(!first || item->at_ns < first->at_ns ||
				(item->at_ns == first->at_ns && item->order < first->order))) {
			first = item;
		}
	}
	return first;
}

static void run_ends(struct engine_sim *sim, const struct esim_item *item)
{
	struct esim_run *run = find_run(sim, item->job);

	if (is_alive(run) && run->stamp == item->stamp) {
		if (run->stop_requested) {
			run->exit_code = 143;
		}
		end(sim, run, run->stop_requested ? CORE_END_STOPPED : CORE_END_EXITED);
	}
}

static const struct core_event *give_event(struct engine_sim *sim, struct esim_item *item)
{
	struct core_event *event = &item->event;

	event->now_ns = sim->now_ns;
	event->offer = &item->offer;
	event->node = item->name;
	event->pool = item->name;
	if (event->kind == CORE_LISTED) {
		for (uint32_t r = 0; r < ESIM_RUNS; r++) {
			const struct esim_run *run = &sim->runs[r];

			if (is_alive(run)) {
				sim->listed[event->runs_n++] = (struct core_run){.job = run->job,
					.generation = run->generation,
					.running = run->state == ESIM_RUNNING};
			}
		}
	}
	return event;
}

const struct core_event *esim_next(struct engine_sim *sim, int64_t until_ns)
{
	static struct esim_item item; /* copy of the item, since its slot is reused */
	struct esim_item *first;

	for (first = first_item(sim); first && first->at_ns <= until_ns; first = first_item(sim)) {
		item = *first;
		first->kind = ESIM_FREE;
		sim->now_ns = item.at_ns > sim->now_ns ? item.at_ns : sim->now_ns;
		switch (item.kind) {
		case ESIM_EVENT:
			return give_event(sim, &item);
		case ESIM_COMMAND:
			command(sim, &item);
			break;
		case ESIM_STEP:
			run_now(sim, item.job);
			break;
		case ESIM_END:
			run_ends(sim, &item);
			break;
		case ESIM_DIES:
			if (strcmp(sim->nodes[item.node].name, item.name) == 0) {
				esim_node_dies(sim, item.node);
			}
			break;
		default:
			break;
		}
	}
	sim->now_ns = until_ns > sim->now_ns ? until_ns : sim->now_ns;
	return NULL;
}
