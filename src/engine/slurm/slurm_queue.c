/* Requests to Slurm, and Slurm's reports on pilots.
 *
 * The pool of a pilot is part of its job name in Slurm, "pawl-<id>-<pool>". So nothing about pilots
 * has to be stored: after any crash, squeue lists them.
 *
 * A pilot that waits in Slurm's queue stays there even if the core no longer waits for it, because
 * a new request would go to the end of the queue. It counts towards the next request. If it arrives
 * without a request, it is a node like any other, and is returned if it is not needed.
 *
 * squeue prints text, not JSON: with JSON, squeue 22.05 ignores --name and --user, and prints the
 * jobs of the whole cluster. */
#include "engine/slurm/slurm_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "engine/scratch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILED_HELD "requeued held" /* in a reason: the job waits for an administrator */
#define NAME_BYTES  (CORE_NAME_MAX + 16u)
#define NAMES_BYTES (CORE_POOLS_MAX * NAME_BYTES + 16u)
#define ARGS_MAX    (SLURM_POOL_ARGS_MAX + 2 * SCRATCH_DIRS_MAX + 24u)

_Static_assert(sizeof("pawl--") + SLURM_ID_CHARS + CORE_NAME_MAX - 1 <= NAME_BYTES, "pool_name");

static const char queue_format[] = "--Format=" SLURM_QUEUE_FORMAT;
static const char nodes_format[] = "--Format=" SLURM_NODES_FORMAT;

static void pool_name(const struct sched_slurm *s, uint32_t pool, char name[NAME_BYTES])
{
	ASSERT(pool < s->options.pools_n);
	snprintf(name, NAME_BYTES, "pawl-%s-%s", s->id, s->options.pools[pool].pool.name);
}

static uint32_t pool_of(const struct sched_slurm *s, const char *name)
{
	char known[NAME_BYTES];

	for (uint32_t p = 0; p < s->options.pools_n; p++) {
		pool_name(s, p, known);
		if (strcmp(known, name) == 0) {
			return p;
		}
	}
	return SLURM_NO_POOL;
}

static struct pilot_job *find_job(struct sched_slurm *s, uint64_t slurm_job)
{
	for (uint32_t i = 0; i < s->queue_n; i++) {
		if (s->queue[i].row.slurm_job == slurm_job) {
			return &s->queue[i];
		}
	}
	return NULL;
}

uint32_t slurm_queue_pool(struct sched_slurm *s, uint64_t slurm_job)
{
	const struct pilot_job *job = find_job(s, slurm_job);

	return job ? job->pool : SLURM_NO_POOL;
}

bool slurm_queue_is_over(struct sched_slurm *s, const struct pilot *pilot)
{
	const struct pilot_job *job = find_job(s, pilot->have.slurm_job);
	bool over = job && (job->row.state == SLURM_OVER || job->row.state == SLURM_CUT_OFF);

	return job &&
		(job->row.restart > pilot->have.restart ||
			(over && job->row.restart == pilot->have.restart));
}

/* Returns whether the pilot of the job's newest start has arrived, and the core knows it or the
 * pilot is lost. */
static bool has_arrived(const struct sched_slurm *s, const struct slurm_row *row)
{
	for (uint32_t i = 0; i < s->pilots_n; i++) {
		const struct pilot *pilot = &s->pilots[i];

		if ((pilot->posted_arrival || pilot->life >= PILOT_LOST) &&
			pilot->have.slurm_job == row->slurm_job &&
			pilot->have.restart == row->restart) {
			return true;
		}
	}
	return false;
}

static void on_scancel_done(void *user, const struct slurm_done *done)
{
	if (!done->ok) {
		log_line(LOG_WARNING, "slurm: %s", done->error_text);
	}
}

static void cancel(struct sched_slurm *s, uint64_t slurm_job)
{
	char number[24];
	const char *const args[] = {"scancel", number, NULL};
	struct pawl_err err = {0};

	snprintf(number, sizeof(number), "%" PRIu64, slurm_job);
	if (slurm_commands_add(s->commands, args, on_scancel_done, s, 0, &err) != 0) {
		log_line(LOG_WARNING, "slurm: scancel %s: %s", number, err.msg);
	}
}

/* Records that a command has failed. Logs the first failure since Slurm last answered. */
static void report_failure(struct sched_slurm *s, const char *command, const char *why)
{
	if (s->failed[0] == '\0') {
		log_line(LOG_ERROR,
			"slurm: %s: %s; until Slurm answers, jobs go on in the existing pilots",
			command, why);
		s->failed_ns = clock_mono_ns();
	}
	snprintf(s->failed, sizeof(s->failed), "%s: %.400s", command, why);
}

/* ---- requests for nodes ---- */

/* Posts that the pool has no more nodes for now, and keeps the reason. */
static void mark_exhausted(struct sched_slurm *s, uint32_t pool, const char *why)
{
	struct pool_request *request = &s->requests[pool];

	ASSERT(pool < s->options.pools_n);
	snprintf(request->exhausted_reason, sizeof(request->exhausted_reason), "%s", why);
	request->exhausted_ns = clock_mono_ns();
	request->n = 0;
	slurm_post_node(s, s->options.pools[pool].pool.name, CORE_POOL_EXHAUSTED);
}

/* Adds or updates a pilot's job, as submitted or as listed. */
static void put_job(struct sched_slurm *s, const struct slurm_row *row, uint32_t pool)
{
	struct pilot_job *job = find_job(s, row->slurm_job);
	bool alive = row->state == SLURM_PENDING || row->state == SLURM_ACTIVE;

	if (!job) {
		if (!slurm_grow(&s->queue, s->queue_n, &s->queue_cap, sizeof(*s->queue))) {
			return;
		}
		job = &s->queue[s->queue_n++];
		*job = (struct pilot_job){.pool = pool};
	}
	if (row->state != SLURM_ACTIVE || row->restart != job->row.restart) {
		job->active_ns = 0;
	} else if (job->active_ns == 0) {
		job->active_ns = clock_mono_ns();
	}
	job->row = *row;
	job->misses = 0;
	job->awaited = (job->awaited || alive) && !has_arrived(s, row);
}

static void submit_missing(struct sched_slurm *s, uint32_t pool);

/* Returns whether slurmctld did not answer. Then the job was not refused, and may even be
 * queued. */
static bool is_unanswered(const struct slurm_done *done)
{
	return done->late ||
		strstr(done->error_text, "Unable to contact slurm controller") != NULL ||
		strstr(done->error_text, "Socket timed out") != NULL;
}

static void on_submitted(void *user, const struct slurm_done *done)
{
	struct sched_slurm *s = user;
	uint32_t pool = (uint32_t)done->tag;
	struct slurm_row row = {.state = SLURM_PENDING};
	const char *error_text = done->error_text;
	struct pawl_err err = {0};

	ASSERT(s->requests[pool].queued); /* one sbatch at a time */
	s->requests[pool].queued = false;
	error_text += strncmp(error_text, "sbatch: ", 8) == 0 ? 8 : 0;
	if (!done->ok && is_unanswered(done)) {
		report_failure(s, "sbatch", error_text);
		/* The next squeue shows which pilots are missing. */
		return;
	}
	if (!done->ok) {
		pawl_err_set(&err, PAWL_EIO, "sbatch: %s", error_text);
	} else if (slurm_submitted(done->out, &row.slurm_job, &err) == 0) {
		s->requests[pool].exhausted_reason[0] = '\0';
		put_job(s, &row, pool);
		submit_missing(s, pool);
		return;
	} /* else squeue will show whether there is a job */
	log_line(LOG_ERROR, "slurm: no pilot of pool %s: %s", s->options.pools[pool].pool.name,
		err.msg);
	mark_exhausted(s, pool, err.msg);
}

/* Returns whether the options set a share of the node. Without one, sbatch allocates one CPU. */
static bool has_share_option(const char *const *args)
{
	static const char *const prefixes[] = {"--exclusive", "--oversubscribe", "-s", "--ntasks",
		"-n", "--cpus-per-", "-c", "--mincpus"};

	for (uint32_t i = 0; args && args[i]; i++) {
		for (size_t p = 0; p < sizeof(prefixes) / sizeof(prefixes[0]); p++) {
			if (strncmp(args[i], prefixes[p], strlen(prefixes[p])) == 0) {
				return true;
			}
		}
	}
	return false;
}

/* The words of a command; a NULL follows the last one. */
struct args {
	const char *at[ARGS_MAX];
	uint32_t n;
};

static void add_arg(struct args *args, const char *arg)
{
	ASSERT(args->n + 1 < ARGS_MAX);
	args->at[args->n++] = arg;
}

static int submit(struct sched_slurm *s, uint32_t pool, struct pawl_err *err)
{
	const struct slurm_pool *of = &s->options.pools[pool];
	struct args args = {
		.at = {"sbatch", "--parsable", "--nodes=1", "--requeue", "--open-mode=append"},
		.n = 5};
	char name[NAME_BYTES];
	char named[NAME_BYTES + 16];
	char signal[32];
	char output[SLURM_PATH_MAX + 16];
	char chdir[SLURM_PATH_MAX + 16];
	char script[SLURM_PATH_MAX];
	char fence[24];
	char wait[24];

	pool_name(s, pool, name);
	snprintf(named, sizeof(named), "--job-name=%s", name);
	snprintf(signal, sizeof(signal), "--signal=B:USR1@%u", times_s(TIME_SLURM_NOTICE));
	snprintf(output, sizeof(output), "--output=%s/log/pilot-%%j.log", s->options.spool);
	snprintf(chdir, sizeof(chdir), "--chdir=%s", s->options.spool);
	snprintf(script, sizeof(script), "%s/pilot.sh", s->options.spool);
	snprintf(fence, sizeof(fence), "%" PRId64, (int64_t)(s->options.fence_ns / NS_PER_S));
	snprintf(wait, sizeof(wait), "%" PRId64, (int64_t)(s->kill_wait_ns / NS_PER_S));
	add_arg(&args, named);
	add_arg(&args, signal);
	add_arg(&args, output);
	add_arg(&args, chdir);
	if (!has_share_option(of->args)) {
		add_arg(&args, "--exclusive");
	}
	for (uint32_t i = 0; of->args && of->args[i]; i++) {
		add_arg(&args, of->args[i]);
	}
	add_arg(&args, script);
	add_arg(&args, s->options.program);
	add_arg(&args, "pilot");
	add_arg(&args, "--fence");
	add_arg(&args, fence);
	add_arg(&args, "--kill-wait");
	add_arg(&args, wait);
	for (uint32_t i = 0; of->scratch && of->scratch[i]; i++) {
		add_arg(&args, "--scratch");
		add_arg(&args, of->scratch[i]);
	}
	add_arg(&args, s->options.spool);
	return slurm_commands_add(s->commands, args.at, on_submitted, s, pool, err);
}

/* Submits one of the requested pilots that are not queued yet. Only one sbatch is queued at a time,
 * so that a hanging sbatch delays squeue only once. */
static void submit_missing(struct sched_slurm *s, uint32_t pool)
{
	struct pool_request *request = &s->requests[pool];
	uint32_t have = 0;
	struct pawl_err err = {0};

	if (!s->queue_read || request->queued) {
		return; /* the queued pilots are not known yet, or an sbatch runs */
	}
	for (uint32_t i = 0; i < s->queue_n; i++) {
		have += s->queue[i].pool == pool && s->queue[i].awaited;
	}
	if (have >= request->n) {
		return;
	}
	if (submit(s, pool, &err) == 0) {
		request->queued = true;
	} else {
		log_line(LOG_ERROR, "slurm: %s", err.msg);
		mark_exhausted(s, pool, err.msg);
	}
}

void slurm_queue_request_nodes(struct sched_slurm *s, uint32_t pool, uint32_t count)
{
	struct pool_request *request = &s->requests[pool];
	int64_t now_ns = clock_mono_ns();

	ASSERT(pool < s->options.pools_n);
	if (now_ns - request->requested_ns >= CORE_POOL_RETRY_NS) {
		request->n = 0; /* the core no longer waits for earlier requests */
	}
	request->n += count;
	request->requested_ns = now_ns;
	submit_missing(s, pool);
}

void slurm_queue_return_node(struct sched_slurm *s, const char *node)
{
	struct pilot *pilot = slurm_pilot_named(s, node);

	if (!pilot || pilot->life >= PILOT_LOST) {
		slurm_post_node(s, node, CORE_NODE_GONE);
		return;
	}
	slurm_pilot_end(pilot);
	cancel(s, pilot->have.slurm_job);
	slurm_look_soon(s);
}

/* ---- squeue ---- */

/* Logs why pilots wait, once per reason until a pilot arrives. Slurm reports Priority for all jobs
 * but the first of a partition, and None for jobs that it has not considered yet. */
static void report_wait_reason(struct sched_slurm *s, const struct pilot_job *job)
{
	struct pool_request *request = &s->requests[job->pool];
	const char *reason = job->row.reason;

	if (strcmp(reason, "None") == 0 || strcmp(reason, "Priority") == 0 ||
		strcmp(request->wait_reason, reason) == 0) {
		return;
	}
	snprintf(request->wait_reason, sizeof(request->wait_reason), "%s", reason);
	log_line(LOG_INFO, "slurm: pilots of pool %s wait in Slurm's queue: %s",
		s->options.pools[job->pool].pool.name, reason);
}

/* Sets err to why a pilot has not arrived. Returns false if it may still arrive. */
static bool find_fault(const struct sched_slurm *s, const struct pilot_job *job,
	struct pawl_err *err)
{
	const struct slurm_row *row = &job->row;

	if (row->state == SLURM_PENDING) {
		pawl_err_set(err, PAWL_EIO,
			"pilot %" PRIu64 " is cancelled: Slurm could not start it (%s): see "
			"scontrol show node",
			row->slurm_job, row->reason);
		return strstr(row->reason, FAILED_HELD) != NULL;
	}
	if (row->state != SLURM_ACTIVE) {
		pawl_err_set(err, PAWL_EIO,
			"pilot %" PRIu64
			" ended on %s before it registered: see %s/log/pilot-%" PRIu64 ".log there",
			row->slurm_job, row->node[0] ? row->node : "no node", s->options.spool,
			row->slurm_job);
		return true;
	}
	pawl_err_set(err, PAWL_EIO,
		"pilot %" PRIu64 " runs on %s, but has not registered: does that node see %s?",
		row->slurm_job, row->node, s->options.spool);
	return job->active_ns > 0 &&
		clock_mono_ns() - job->active_ns >= times_ns(TIME_SLURM_APPEAR);
}

static void check_awaited(struct sched_slurm *s, struct pilot_job *job)
{
	struct pawl_err err;

	job->awaited = job->awaited && !has_arrived(s, &job->row);
	if (!job->awaited) {
		return;
	}
	if (!find_fault(s, job, &err)) {
		if (job->row.state == SLURM_PENDING) {
			report_wait_reason(s, job);
		}
		return;
	}
	if (job->row.state == SLURM_PENDING || job->row.state == SLURM_ACTIVE) {
		cancel(s, job->row.slurm_job);
	}
	log_line(LOG_ERROR, "slurm: %s", err.msg);
	job->awaited = false;
	mark_exhausted(s, job->pool, err.msg);
}

/* Checks whether Slurm still has the pilot. */
static void check_pilot(struct sched_slurm *s, struct pilot *pilot, int64_t now_ns)
{
	const struct pilot_job *job = find_job(s, pilot->have.slurm_job);
	bool listed = job && job->misses == 0;
	bool same = job && job->row.restart == pilot->have.restart;
	bool fenced;

	if (pilot->life >= PILOT_EMPTY || pilot->number == 0) {
		return;
	}
	pilot->pool = job ? job->pool : pilot->pool;
	if (pilot->first_seen_ns >= s->polled_ns && !slurm_queue_is_over(s, pilot)) {
		return; /* squeue may have run before the pilot started */
	}
	if (!listed && !pilot->missed) { /* perhaps the output was cut off at a line's end */
		pilot->missed = true;
		return;
	}
	pilot->missed = false;
	if (same && (job->row.state == SLURM_ACTIVE || job->row.state == SLURM_ENDING)) {
		return;
	}
	if (same && job->row.state == SLURM_OVER) {
		slurm_pilot_lose(s, pilot, PILOT_EMPTY);
		return;
	}
	fenced = now_ns - pilot->last_seen_ns >= s->options.fence_ns + s->options.fence_ns / 2;
	slurm_pilot_end(pilot); /* the pilot reads this if it still sees the spool */
	slurm_pilot_lose(s, pilot, fenced ? PILOT_EMPTY : PILOT_LOST);
}

static void drop_unlisted(struct sched_slurm *s)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->queue_n; i++) {
		struct pilot_job *job = &s->queue[i];

		if (job->misses < 2) { /* a single miss may be an error */
			s->queue[kept++] = *job;
		} else {
			job->row.state = SLURM_CUT_OFF;
			check_awaited(s, job);
		}
	}
	s->queue_n = kept;
}

static int read_queue(struct sched_slurm *s, const char *text, struct pawl_err *err)
{
	struct slurm_row row;
	const char *at = text;
	int rv;

	while ((rv = slurm_queue_next(&at, &row, err)) == 1) {
	}
	if (rv != 0) {
		return rv; /* use nothing unless all lines are valid */
	}
	for (uint32_t i = 0; i < s->queue_n; i++) {
		s->queue[i].misses++; /* put_job sets it back to 0 */
	}
	at = text;
	while (slurm_queue_next(&at, &row, err) == 1) {
		uint32_t pool = pool_of(s, row.name);

		if (pool != SLURM_NO_POOL) {
			put_job(s, &row, pool);
		}
	}
	drop_unlisted(s);
	return 0;
}

static void check_queue(struct sched_slurm *s)
{
	int64_t now_ns = clock_mono_ns();

	for (uint32_t i = 0; i < s->queue_n; i++) {
		check_awaited(s, &s->queue[i]);
	}
	for (uint32_t i = 0; i < s->pilots_n; i++) {
		check_pilot(s, &s->pilots[i], now_ns);
	}
	s->queue_read = true;
	for (uint32_t p = 0; p < s->options.pools_n; p++) {
		submit_missing(s, p);
	}
	slurm_look_soon(s);
}

static void report_recovery(struct sched_slurm *s)
{
	if (s->failed[0] != '\0') {
		log_line(LOG_INFO, "slurm: Slurm answers again");
	}
	s->failed[0] = '\0';
}

static void poll_nodes(struct sched_slurm *s);

static void on_queue(void *user, const struct slurm_done *done)
{
	struct sched_slurm *s = user;
	struct pawl_err err = {0};

	s->polling = false;
	if (!done->ok) {
		report_failure(s, "squeue", done->error_text);
	} else if (read_queue(s, done->out, &err) != 0) {
		report_failure(s, "squeue", err.msg);
	} else {
		check_queue(s);
		poll_nodes(s);
		slurm_sizes_poll(s);
	}
}

/* ---- sinfo ---- */

static void set_drained(struct sched_slurm *s, const char *node, bool drained)
{
	for (uint32_t i = 0; i < s->pilots_n; i++) {
		struct pilot *pilot = &s->pilots[i];

		if (pilot->life >= PILOT_LOST || strcmp(pilot->have.host, node) != 0) {
			continue;
		}
		pilot->drained = drained;
		/* Nothing starts on the node any more, and the administrator waits for it. */
		if (drained && pilot->posted_drained && !pilot->leave &&
			!slurm_pilot_has_jobs(s, pilot)) {
			slurm_queue_return_node(s, pilot->name);
		}
	}
}

static void on_nodes(void *user, const struct slurm_done *done)
{
	struct sched_slurm *s = user;
	struct pawl_err err = {0};
	const char *at = done->out;
	char node[CORE_NAME_MAX];
	bool drained;
	int rv;

	if (!done->ok) {
		report_failure(s, "sinfo", done->error_text);
		return;
	}
	while ((rv = slurm_nodes_next(&at, node, &drained, &err)) == 1) {
		set_drained(s, node, drained);
	}
	if (rv != 0) {
		report_failure(s, "sinfo", err.msg);
	} else {
		report_recovery(s);
	}
	slurm_look_soon(s);
}

/* Returns "--nodes=" and the nodes with pilots, perhaps with duplicates. The caller frees it. NULL:
 * there are none, or out of memory. */
static char *node_list(const struct sched_slurm *s)
{
	static const char option[] = "--nodes=";
	char *list = malloc(sizeof(option) + (size_t)s->pilots_n * CORE_NAME_MAX);
	size_t len = sizeof(option) - 1;
	bool any = false;

	if (!list) {
		return NULL;
	}
	memcpy(list, option, sizeof(option));
	for (uint32_t i = 0; i < s->pilots_n; i++) {
		if (s->pilots[i].life < PILOT_LOST && s->pilots[i].number > 0) {
			len += (size_t)snprintf(list + len, CORE_NAME_MAX + 1, "%s%s",
				any ? "," : "", s->pilots[i].have.host);
			any = true;
		}
	}
	ASSERT(len < sizeof(option) + (size_t)s->pilots_n * CORE_NAME_MAX);
	if (!any) {
		free(list);
		return NULL;
	}
	return list;
}

static void poll_nodes(struct sched_slurm *s)
{
	char *nodes = node_list(s);
	const char *const args[] = {"sinfo", "--noheader", "--Node", nodes, nodes_format, NULL};
	struct pawl_err err = {0};

	if (!nodes) {
		report_recovery(s);
	} else if (slurm_commands_add(s->commands, args, on_nodes, s, 0, &err) != 0) {
		report_failure(s, "sinfo", err.msg);
	}
	free(nodes);
}

/* ---- polling ---- */

static void on_config(void *user, const struct slurm_done *done)
{
	struct sched_slurm *s = user;
	struct pawl_err err = {0};

	if (!done->ok || slurm_kill_wait(done->out, &s->kill_wait_ns, &err) != 0) {
		log_line(LOG_WARNING,
			"slurm: scontrol show config: %s; assuming a KillWait of %d s",
			done->ok ? err.msg : done->error_text, (int)times_s(TIME_SLURM_KILL_WAIT));
		s->kill_wait_ns = times_ns(TIME_SLURM_KILL_WAIT);
	}
}

void slurm_queue_poll(struct sched_slurm *s)
{
	static const char *const config[] = {"scontrol", "show", "config", NULL};
	char names[NAMES_BYTES] = "--name=";
	char user[32];
	const char *const args[] = {"squeue", "--noheader", "--states=all", user, names,
		queue_format, NULL};
	size_t len = strlen(names);
	struct pawl_err err = {0};
	int rv = 0;

	if (s->polling) {
		return;
	}
	snprintf(user, sizeof(user), "--user=%u", (unsigned)geteuid());
	for (uint32_t p = 0; p < s->options.pools_n; p++) {
		char name[NAME_BYTES];

		pool_name(s, p, name);
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", p > 0 ? "," : "",
			name);
	}
	ASSERT(len < sizeof(names));
	if (s->kill_wait_ns == 0) {
		rv = slurm_commands_add(s->commands, config, on_config, s, 0, &err);
	}
	rv = rv == 0 ? slurm_commands_add(s->commands, args, on_queue, s, 0, &err) : rv;
	if (rv != 0) {
		report_failure(s, "squeue", err.msg);
		return;
	}
	s->polling = true;
	s->polled_ns = clock_mono_ns();
}
