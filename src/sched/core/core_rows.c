/* Encodes the core as records and decodes them: see core_row_next. Each record begins with a
 * version. It has all that decisions depend on, except what each decision computes anew. */
#include "sched/core/core_impl.h"

#include <stdlib.h>
#include <string.h>

#define ROW_VERSION 1u
#define JOB_VERSION 3u /* version of jobs' records; 1 had no spot_least, 2 no place_max */

_Static_assert(CORE_CANCELLED <= UINT8_MAX && CORE_NODE_LOST <= UINT8_MAX, "stored as a byte");
_Static_assert(CORE_THEN_CANCELLED <= UINT8_MAX && CORE_REASONS_N <= UINT8_MAX, "stored as a byte");
_Static_assert(sizeof(double) == sizeof(uint64_t), "a double is stored as its bits");

static void put_time(struct wire_out *out, int64_t t)
{
	wire_put_u64(out, (uint64_t)t);
}

static int64_t get_time(struct wire_in *in)
{
	return (int64_t)wire_get_u64(in);
}

static void put_double(struct wire_out *out, double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	wire_put_u64(out, bits);
}

static double get_double(struct wire_in *in)
{
	uint64_t bits = wire_get_u64(in);
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* ---- the cluster ---- */

static void put_cluster(struct wire_out *out, const struct sched_core *core)
{
	wire_put_u32(out, ROW_VERSION);
	wire_put_u64(out, core->jobs_ever);
	wire_put_u32(out, core->nodes_ever);
	wire_put_u32(out, core->options.pools_n);
	for (uint32_t p = 0; p < core->options.pools_n; p++) {
		wire_put_str(out, core->options.pools[p].name);
		wire_put_u32(out, core->pools[p].requested);
		put_time(out, core->pools[p].requested_ns);
		put_time(out, core->pools[p].retry_ns);
		put_time(out, core->pools[p].surplus_ns);
	}
}

static bool get_cluster(struct sched_core *core, const struct core_row *row)
{
	struct wire_in in;
	uint32_t pools;

	wire_in_init(&in, row->bytes, row->len_bytes);
	if (wire_get_u32(&in) != ROW_VERSION) {
		return false;
	}
	core->jobs_ever = wire_get_u64(&in);
	core->nodes_ever = wire_get_u32(&in);
	pools = wire_get_u32(&in);
	for (uint32_t p = 0; p < pools && !in.failed; p++) {
		char name[CORE_NAME_MAX];
		struct core_pool_state state;
		uint32_t at;

		wire_get_str(&in, name, sizeof(name));
		state.requested = wire_get_u32(&in);
		state.requested_ns = get_time(&in);
		state.retry_ns = get_time(&in);
		state.surplus_ns = get_time(&in);
		at = core_pool_named(core, name);
		if (at != CORE_NO_POOL) { /* else the pool is not configured any more */
			core->pools[at] = state;
		}
	}
	return wire_in_done(&in);
}

/* ---- nodes ---- */

static void put_node(struct wire_out *out, const struct core_node *node)
{
	wire_put_u32(out, ROW_VERSION);
	wire_put_u32(out, node->id);
	wire_put_str(out, node->offer.name);
	wire_put_str(out, node->offer.pool);
	wire_put_u32(out, node->offer.type);
	wire_put_u32(out, node->offer.slots);
	put_double(out, node->offer.price);
	wire_put_u8(out, node->offer.spot);
	wire_put_u8(out, (uint8_t)node->state);
	put_time(out, node->deadline_ns);
	wire_put_u8(out, node->returning);
	wire_put_u8(out, node->returned);
}

static bool get_node(struct sched_core *core, const struct core_row *row)
{
	struct core_node node = {0};
	struct wire_in in;

	wire_in_init(&in, row->bytes, row->len_bytes);
	if (wire_get_u32(&in) != ROW_VERSION) {
		return false;
	}
	node.id = wire_get_u32(&in);
	wire_get_str(&in, node.offer.name, sizeof(node.offer.name));
	wire_get_str(&in, node.offer.pool, sizeof(node.offer.pool));
	node.offer.type = wire_get_u32(&in);
	node.offer.slots = wire_get_u32(&in);
	node.offer.price = get_double(&in);
	node.offer.spot = wire_get_u8(&in) != 0;
	node.state = wire_get_u8(&in);
	node.deadline_ns = get_time(&in);
	node.returning = wire_get_u8(&in) != 0;
	node.returned = wire_get_u8(&in) != 0;
	node.pool = core_pool_named(core, node.offer.pool);
	if (!wire_in_done(&in) || node.state > CORE_NODE_LOST || node.offer.slots < 1 ||
		node.offer.slots > CORE_SLOTS_MAX || node.offer.type >= SCHED_TYPES_MAX) {
		return false;
	}
	ASSERT(core->nodes_n < core->workspace.nodes_max);
	core->nodes[core->nodes_n++] = node;
	return true;
}

/* ---- jobs ---- */

static void put_request(struct wire_out *out, const struct core_request *request)
{
	wire_put_str(out, request->name);
	wire_put_str(out, request->queue);
	wire_put_u32(out, request->owner);
	wire_put_u32(out, request->least);
	wire_put_u32(out, request->most);
	wire_put_u32(out, request->wanted);
	wire_put_u32(out, request->types);
	wire_put_u32(out, request->spot_most);
	wire_put_u32(out, request->spot_least);
	wire_put_u32(out, (uint32_t)request->priority);
	wire_put_u8(out, request->pinned);
	wire_put_u8(out, request->in_place);
	put_double(out, request->restart_s);
	wire_put_u32(out, request->retries);
	put_time(out, request->time_limit_ns);
	put_time(out, request->grace_ns);
}

static void get_request(struct wire_in *in, uint32_t version, struct core_request *request)
{
	wire_get_str(in, request->name, sizeof(request->name));
	wire_get_str(in, request->queue, sizeof(request->queue));
	request->owner = wire_get_u32(in);
	request->least = wire_get_u32(in);
	request->most = wire_get_u32(in);
	request->wanted = wire_get_u32(in);
	request->types = wire_get_u32(in);
	request->spot_most = wire_get_u32(in);
	request->spot_least = version >= 2 ? wire_get_u32(in) : 0;
	request->priority = (int32_t)wire_get_u32(in);
	request->pinned = wire_get_u8(in) != 0;
	request->in_place = wire_get_u8(in) != 0;
	request->restart_s = get_double(in);
	request->retries = wire_get_u32(in);
	request->time_limit_ns = get_time(in);
	request->grace_ns = get_time(in);
}

static void put_place(struct wire_out *out, const struct core_placement *place)
{
	wire_put_u32(out, place->n);
	for (uint32_t i = 0; i < place->n; i++) {
		wire_put_u32(out, place->entries[i].node);
		wire_put_u32(out, place->entries[i].replicas);
	}
}

/* Reads a placement: at most so many replicas, on nodes that ascend. */
static void get_place(struct wire_in *in, struct core_placement *place, uint32_t most)
{
	uint32_t n = wire_get_u32(in);
	uint32_t last = 0;

	for (uint32_t i = 0; i < n && !in->failed; i++) {
		uint32_t node = wire_get_u32(in);
		uint32_t replicas = wire_get_u32(in);

		if (node <= last || replicas == 0 || replicas > most - place->replicas) {
			in->failed = true;
			return;
		}
		placement_add(place, node, replicas);
		last = node;
	}
}

static void put_hints(struct wire_out *out, const struct sched_hints *h)
{
	const double figures[] = {h->perf.alpha_c, h->perf.beta_c, h->perf.alpha_r, h->perf.beta_r,
		h->perf.alpha_n, h->perf.beta_n, h->perf.delta_n, h->perf.gamma, h->noise.sqr,
		h->noise.var, h->progress, h->progress_end};

	wire_put_u8(out, h->fitted);
	for (uint32_t i = 0; i < sizeof(figures) / sizeof(*figures); i++) {
		put_double(out, figures[i]);
	}
	wire_put_u32(out, h->bounds.init);
	wire_put_u32(out, h->bounds.max);
	wire_put_u32(out, h->bounds.atomic_min);
	wire_put_u32(out, h->bounds.atomic_max);
	wire_put_u8(out, h->bounds.accumulate);
	wire_put_u32(out, h->replicas_profiled);
}

static void get_hints(struct wire_in *in, struct sched_hints *h)
{
	double *const figures[] = {&h->perf.alpha_c, &h->perf.beta_c, &h->perf.alpha_r,
		&h->perf.beta_r, &h->perf.alpha_n, &h->perf.beta_n, &h->perf.delta_n,
		&h->perf.gamma, &h->noise.sqr, &h->noise.var, &h->progress, &h->progress_end};

	h->fitted = wire_get_u8(in) != 0;
	for (uint32_t i = 0; i < sizeof(figures) / sizeof(*figures); i++) {
		*figures[i] = get_double(in);
	}
	h->bounds.init = wire_get_u32(in);
	h->bounds.max = wire_get_u32(in);
	h->bounds.atomic_min = wire_get_u32(in);
	h->bounds.atomic_max = wire_get_u32(in);
	h->bounds.accumulate = wire_get_u8(in) != 0;
	h->replicas_profiled = wire_get_u32(in);
}

static void put_job(struct wire_out *out, const struct core_job *job)
{
	wire_put_u32(out, JOB_VERSION);
	wire_put_u64(out, job->id);
	put_request(out, &job->request);
	wire_put_u32(out, job->place_max);
	wire_put_u8(out, (uint8_t)job->state);
	wire_put_u8(out, (uint8_t)job->reason);
	wire_put_u8(out, (uint8_t)job->after);
	wire_put_u64(out, job->generation);
	wire_put_u64(out, job->start_generation);
	put_place(out, &job->current);
	put_place(out, &job->old);
	put_place(out, &job->want);
	put_time(out, job->submitted_ns);
	put_time(out, job->since_ns);
	put_time(out, job->due_ns);
	put_time(out, job->counted_ns);
	put_double(out, job->attained_s);
	put_time(out, job->ran_ns);
	wire_put_u32(out, job->failures);
	wire_put_u32(out, job->refused);
	wire_put_u32(out, job->backoff_count);
	wire_put_u32(out, job->restarts);
	wire_put_u8(out, job->needs_restart);
	wire_put_u8(out, job->killed);
	wire_put_u32(out, (uint32_t)job->exit_code);
	for (uint32_t t = 0; t < SCHED_TYPES_MAX; t++) {
		wire_put_u8(out, job->hints[t] != NULL);
		if (job->hints[t]) {
			put_hints(out, job->hints[t]);
		}
	}
}

static void get_state(struct wire_in *in, struct core_job *job)
{
	job->state = wire_get_u8(in);
	job->reason = wire_get_u8(in);
	job->after = wire_get_u8(in);
	job->generation = wire_get_u64(in);
	job->start_generation = wire_get_u64(in);
	get_place(in, &job->current, job->place_max);
	get_place(in, &job->old, job->place_max);
	get_place(in, &job->want, job->place_max);
	job->submitted_ns = get_time(in);
	job->since_ns = get_time(in);
	job->due_ns = get_time(in);
	job->counted_ns = get_time(in);
	job->attained_s = get_double(in);
	job->ran_ns = get_time(in);
	job->failures = wire_get_u32(in);
	job->refused = wire_get_u32(in);
	job->backoff_count = wire_get_u32(in);
	job->restarts = wire_get_u32(in);
	job->needs_restart = wire_get_u8(in) != 0;
	job->killed = wire_get_u8(in) != 0;
	job->exit_code = (int)wire_get_u32(in);
}

/* Reads the header of a job's record: version, id, request and place_max. */
static int get_header(struct wire_in *in, uint64_t *id, struct core_request *request,
	uint32_t *place_max)
{
	uint32_t version = wire_get_u32(in);

	if (version < 1 || version > JOB_VERSION) {
		return PAWL_ECORRUPT;
	}
	*id = wire_get_u64(in);
	get_request(in, version, request);
	*place_max = version >= 3 ? wire_get_u32(in) : request->most;
	return in->failed || *place_max < request->most || *place_max > CORE_MOST_MAX ||
			request->least < 1 || request->most < request->least ||
			request->spot_least > request->spot_most
		? PAWL_ECORRUPT
		: 0;
}

int core_row_request(const void *bytes, size_t len_bytes, struct core_request *request)
{
	struct core_request decoded = {0};
	struct wire_in in;
	uint32_t place_max;
	uint64_t id;
	int rv;

	wire_in_init(&in, bytes, len_bytes);
	rv = get_header(&in, &id, &decoded, &place_max);
	*request = rv == 0 ? decoded : *request;
	return rv;
}

/* Fails with PAWL_ECORRUPT or PAWL_ENOMEM and no message: the caller adds one. */
static int get_job(struct sched_core *core, const struct core_row *row)
{
	struct core_request request = {0};
	struct core_job *job;
	struct wire_in in;
	uint32_t place_max;
	uint64_t id;

	wire_in_init(&in, row->bytes, row->len_bytes);
	if (get_header(&in, &id, &request, &place_max) != 0) {
		return PAWL_ECORRUPT;
	}
	job = core_job_make(&request, NULL);
	if (!job || core_job_grow(job, place_max, NULL) != 0) {
		core_job_free(job);
		return PAWL_ENOMEM;
	}
	core_add_job(core, job); /* the core owns the job from here on */
	job->id = id;
	job->queue = core_queue_named(core, request.queue);
	/* A job whose queue is not configured any more is in the first one. */
	job->queue = job->queue == UINT32_MAX ? 0 : job->queue;
	get_state(&in, job);
	for (uint32_t t = 0; t < SCHED_TYPES_MAX && !in.failed; t++) {
		if (wire_get_u8(&in) != 0) {
			job->hints[t] = FAULT_MEM("sched.core", calloc(1, sizeof(**job->hints)));
			if (!job->hints[t]) {
				return PAWL_ENOMEM;
			}
			get_hints(&in, job->hints[t]);
		}
	}
	return wire_in_done(&in) && job->state < CORE_DONE && job->after <= CORE_THEN_CANCELLED &&
			job->reason < CORE_REASONS_N && job->id > 0 &&
			job->start_generation <= job->generation
		? 0
		: PAWL_ECORRUPT;
}

/* ---- changed records ---- */

static int encode_row(struct sched_core *core, struct core_row *row, struct core_row like,
	struct pawl_err *err)
{
	wire_out_reset(&core->row);
	if (like.job) {
		put_job(&core->row, like.job);
	} else if (like.node) {
		put_node(&core->row, like.node);
	} else {
		put_cluster(&core->row, core);
	}
	if (core->row.failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "scheduler: no memory for a record");
	}
	*row = like;
	row->bytes = core->row.bytes;
	row->len_bytes = core->row.len_bytes;
	return 1;
}

/* Counts with rows_visited through all that may have a record: nodes that are gone, the cluster,
 * nodes, jobs. */
int core_row_next(struct sched_core *core, struct core_row *row, struct pawl_err *err)
{
	for (;;) {
		uint32_t i = core->rows_visited++;

		if (i < core->gone_n) {
			*row = (struct core_row){.kind = CORE_ROW_NODE,
				.id = core->gone[i],
				.gone = true};
			return 1;
		}
		i -= core->gone_n;
		if (i == 0) {
			if (core->dirty) {
				return encode_row(core, row,
					(struct core_row){.kind = CORE_ROW_CLUSTER}, err);
			}
			continue;
		}
		i--;
		if (i < core->nodes_n) {
			const struct core_node *node = &core->nodes[i];

			if (node->dirty) {
				return encode_row(core, row,
					(struct core_row){.kind = CORE_ROW_NODE,
						.id = node->id,
						.node = node},
					err);
			}
			continue;
		}
		i -= core->nodes_n;
		if (i >= core->jobs_n) {
			return 0;
		}
		if (core->jobs[i]->dirty) {
			return encode_row(core, row,
				(struct core_row){.kind = CORE_ROW_JOB,
					.id = core->jobs[i]->id,
					.job = core->jobs[i]},
				err);
		}
	}
}

void core_rows_done(struct sched_core *core)
{
	core->rows_visited = 0;
	core->gone_n = 0;
	core->dirty = false;
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		core->nodes[n].dirty = false;
	}
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		core->jobs[j]->dirty = false;
	}
}

int core_dump(struct sched_core *core, uint8_t **bytes, size_t *len_bytes, struct pawl_err *err)
{
	struct wire_out out = {0};

	put_cluster(&out, core);
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		put_node(&out, &core->nodes[n]);
	}
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		if (!core_is_over(core->jobs[j])) {
			put_job(&out, core->jobs[j]);
		}
	}
	if (out.failed) {
		wire_out_deinit(&out);
		return pawl_err_set(err, PAWL_ENOMEM, "scheduler: no memory for a dump");
	}
	*bytes = out.bytes;
	*len_bytes = out.len_bytes;
	return 0;
}

/* ---- restoring ---- */

static int compare_nodes(const void *a, const void *b)
{
	const struct core_node *x = a;
	const struct core_node *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int compare_jobs(const void *a, const void *b)
{
	const struct core_job *x = *(struct core_job *const *)a;
	const struct core_job *y = *(struct core_job *const *)b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int reserve_rows(struct sched_core *core, const struct core_row *rows, uint32_t rows_n,
	struct pawl_err *err)
{
	uint32_t nodes = 0;
	uint32_t jobs = 0;

	for (uint32_t i = 0; i < rows_n; i++) {
		nodes += rows[i].kind == CORE_ROW_NODE;
		jobs += rows[i].kind == CORE_ROW_JOB;
	}
	if (nodes > CORE_NODES_MAX || jobs > CORE_JOBS_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT,
			"scheduler: %u nodes and %u jobs are stored, more than the limits", nodes,
			jobs);
	}
	return core_reserve(core, jobs, nodes, 0, 0, err);
}

static bool place_exists(const struct sched_core *core, const struct core_placement *place)
{
	for (uint32_t i = 0; i < place->n; i++) {
		if (core_node_at(core, place->entries[i].node) == core->nodes_n) {
			return false;
		}
	}
	return true;
}

/* Whether ids are unique and were given out, and all placements are on nodes that exist, and
 * fit. */
static bool are_rows_consistent(struct sched_core *core)
{
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		if (core->nodes[n].id > core->nodes_ever ||
			(n > 0 && core->nodes[n - 1].id == core->nodes[n].id)) {
			return false;
		}
	}
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		const struct core_job *job = core->jobs[j];

		if (job->id > core->jobs_ever || (j > 0 && core->jobs[j - 1]->id == job->id) ||
			!place_exists(core, &job->current) || !place_exists(core, &job->old) ||
			!place_exists(core, &job->want)) {
			return false;
		}
	}
	core_count_used(core);
	for (uint32_t n = 0; n < core->nodes_n; n++) {
		if (core->nodes[n].used > core->nodes[n].offer.slots) {
			return false;
		}
	}
	return true;
}

static int read_rows(struct sched_core *core, const struct core_row *rows, uint32_t rows_n,
	struct pawl_err *err)
{
	static const char *const kinds[] = {"the cluster", "node", "job"};
	int rv = reserve_rows(core, rows, rows_n, err);

	for (uint32_t i = 0; i < rows_n && rv == 0; i++) {
		if (rows[i].kind == CORE_ROW_JOB) {
			rv = get_job(core, &rows[i]);
		} else if (rows[i].kind == CORE_ROW_NODE) {
			rv = get_node(core, &rows[i]) ? 0 : PAWL_ECORRUPT;
		} else {
			rv = get_cluster(core, &rows[i]) ? 0 : PAWL_ECORRUPT;
		}
		if (rv != 0) {
			return pawl_err_set(err, rv,
				rv == PAWL_ENOMEM ? "scheduler: no memory for the record of %s %llu"
						  : "scheduler: the record of %s %llu is not what "
						    "was written",
				kinds[rows[i].kind], (unsigned long long)rows[i].id);
		}
	}
	return rv;
}

int core_restore(struct sched_core **out, const struct core_options *options,
	const struct core_row *rows, uint32_t rows_n, int64_t then_ns, struct pawl_err *err)
{
	struct sched_core *core = NULL;
	int rv = core_open(&core, options, err);

	rv = rv == 0 ? read_rows(core, rows, rows_n, err) : rv;
	rv = rv == 0 ? core_reserve(core, 0, 0, 0, 0, err) : rv; /* slots are known now */
	if (rv == 0) {
		qsort(core->nodes, core->nodes_n, sizeof(*core->nodes), compare_nodes);
		qsort(core->jobs, core->jobs_n, sizeof(struct core_job *), compare_jobs);
		if (!are_rows_consistent(core)) {
			rv = pawl_err_set(err, PAWL_ECORRUPT,
				"scheduler: the stored records contradict each other");
		}
	}
	if (rv != 0) {
		core_close(core);
		return rv;
	}
	core->now_ns = then_ns > core->now_ns ? then_ns : core->now_ns;
	for (uint32_t j = 0; j < core->jobs_n; j++) {
		const struct core_job *job = core->jobs[j];

		core->now_ns = job->counted_ns > core->now_ns ? job->counted_ns : core->now_ns;
	}
	ASSERT(core->updates_n == 0 && core->nodes_n <= CORE_NODES_MAX);
	core->recovering = true;
	core->recovery_ns = core->now_ns;
	core_request_list(core);
	*out = core;
	return 0;
}
