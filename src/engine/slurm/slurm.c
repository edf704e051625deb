/* The calls, events and timers of the engine slurm: see slurm.h. */
#include "engine/slurm/slurm.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "engine/slurm/slurm_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- events ---- */

/* Posts all queued events. */
static void on_post(struct loop_timer *timer)
{
	struct sched_slurm *s = timer->user;

	while (s->first) {
		struct slurm_event *pending = s->first;
		struct core_event *event = &pending->event;

		s->first = pending->next;
		if (!s->first) {
			s->last = &s->first;
		}
		event->offer = &pending->offer;
		event->node = pending->name;
		event->pool = pending->name;
		if (event->kind == CORE_LISTED) {
			event->runs = slurm_jobs_list(s, &event->runs_n);
		}
		if (event->kind != CORE_LISTED || event->runs) {
			s->options.post(s->options.user, event);
		}
		free(pending);
	}
	ASSERT(s->last == &s->first);
}

/* ---- timers ---- */

static void on_look(struct loop_timer *timer)
{
	struct sched_slurm *s = timer->user;
	int64_t now_ns = clock_mono_ns();

	loop_timer_start(s->options.loop, timer,
		now_ns + times_ns(TIME_SLURM_LOOK) + s->looked_n * times_ns(TIME_SLURM_LOOK_EACH));
	s->spool_failing = false;
	slurm_pilots_look(s, now_ns);
	slurm_jobs_look(s);
	if (slurm_pilots_known(s) && s->listing) {
		s->listing = false;
		slurm_pilots_post_all(s);
		slurm_jobs_post_all(s);
		slurm_pilots_forget_logs(s);
	}
	slurm_pilots_write(s);
	if (!s->spool_failing && s->spool_failed[0] != '\0') {
		log_line(LOG_INFO, "slurm: the spool can be read and written again");
		s->spool_failed[0] = '\0';
	}
}

static void on_poll(struct loop_timer *timer)
{
	struct sched_slurm *s = timer->user;

	loop_timer_start(s->options.loop, timer, clock_mono_ns() + s->options.poll_ns);
	slurm_queue_poll(s);
}

/* ---- the table ---- */

static void do_start(void *self, const struct sched_core *core, uint64_t job, uint64_t generation,
	const struct core_placement *place)
{
	slurm_jobs_start(self, core, job, generation, place);
}

static void do_rescale(void *self, const struct sched_core *core, uint64_t job, uint64_t generation,
	const struct core_placement *place)
{
	slurm_jobs_rescale(self, core, job, generation, place);
}

static void do_stop(void *self, uint64_t job, uint64_t generation, int64_t grace_ns)
{
	slurm_jobs_stop(self, job, generation, grace_ns);
}

static void do_list(void *self)
{
	struct sched_slurm *s = self;

	s->listing = true;
	slurm_look_soon(s);
}

static void do_request_nodes(void *self, const char *pool, uint32_t count)
{
	struct sched_slurm *s = self;

	for (uint32_t p = 0; p < s->options.pools_n; p++) {
		if (strcmp(s->options.pools[p].pool.name, pool) == 0) {
			slurm_queue_request_nodes(s, p, count);
			return;
		}
	}
	slurm_post_node(s, pool, CORE_POOL_EXHAUSTED);
}

static void do_return_node(void *self, const char *node)
{
	slurm_queue_return_node(self, node);
}

static void do_log(void *self, const char *text)
{
	log_line(LOG_INFO, "%s", text);
}

static void do_remark(void *self, uint64_t job, char *text, size_t cap_bytes)
{
	slurm_remark(self, job, text, cap_bytes);
}

static void do_close(void *self)
{
	sched_slurm_close(self);
}

static bool do_fits(void *self, uint32_t pool, uint32_t cpus, uint64_t memory_bytes,
	uint64_t disk_bytes)
{
	const struct slurm_size least = {cpus, memory_bytes, disk_bytes};

	return slurm_sizes_fit(self, pool, &least);
}

static uint32_t do_hosts(void *self, uint64_t job, uint64_t generation,
	struct sched_engine_host *hosts, uint32_t cap)
{
	return slurm_job_nodes_hosts(self, job, generation, hosts, cap);
}

const struct sched_engine sched_slurm_engine = {.name = "slurm",
	.remote = true,
	.loses_nodes = true,
	.start = do_start,
	.rescale = do_rescale,
	.stop = do_stop,
	.list = do_list,
	.request_nodes = do_request_nodes,
	.return_node = do_return_node,
	.log = do_log,
	.remark = do_remark,
	.close = do_close,
	.fits = do_fits,
	.hosts = do_hosts};

/* ---- open and close ---- */

static bool is_name(const char *text)
{
	size_t len = strspn(text,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		"0123456789._-");

	return len > 0 && len < CORE_NAME_MAX && text[len] == '\0';
}

static int check_options(const struct slurm_options *options, struct pawl_err *err)
{
	for (uint32_t p = 0; p < options->pools_n; p++) {
		const struct slurm_pool *pool = &options->pools[p];
		uint32_t n = 0;

		if (!is_name(pool->pool.name)) {
			return pawl_err_set(err, PAWL_EINVAL,
				"pool %s: a name may have letters, digits, '.', '_' and '-'",
				pool->pool.name);
		}
		for (; pool->args && pool->args[n]; n++) {
			if (pool->args[n][0] != '-' || n == SLURM_POOL_ARGS_MAX) {
				return pawl_err_set(err, PAWL_EINVAL,
					"pool %s: %s: give options of sbatch, such as "
					"--partition=gpu, at most %u",
					pool->pool.name, pool->args[n], SLURM_POOL_ARGS_MAX);
			}
		}
	}
	if (options->fence_ns < SLURM_FENCE_LEAST_S * NS_PER_S ||
		options->fence_ns > SLURM_FENCE_MOST_S * NS_PER_S || options->poll_ns <= 0) {
		return pawl_err_set(err, PAWL_EINVAL, "the fence must be %u to %u s",
			SLURM_FENCE_LEAST_S, SLURM_FENCE_MOST_S);
	}
	return 0;
}

/* Takes the spool's lock. This also works on NFS, where Linux locks the file on the server. */
static int take_lock(struct sched_slurm *s, struct pawl_err *err)
{
	char path[SLURM_PATH_MAX];

	snprintf(path, sizeof(path), "%s/lock", s->options.spool);
	s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->lock < 0) {
		return pawl_err_sys(err, "open %s", path);
	}
	if (flock(s->lock, LOCK_EX | LOCK_NB) != 0) {
		return pawl_err_set(err, PAWL_EBUSY, "%s: another scheduler uses this spool",
			s->options.spool);
	}
	return 0;
}

int sched_slurm_open(struct sched_slurm **slurm, const struct slurm_options *options,
	struct pawl_err *err)
{
	struct sched_slurm *s;
	int rv = check_options(options, err);

	ASSERT(options->pools_n <= CORE_POOLS_MAX);
	if (rv != 0) {
		return rv;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		return pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	s->options = *options;
	s->last = &s->first;
	s->lock = -1;
	s->look = (struct loop_timer){.fired = on_look, .user = s};
	s->poll = (struct loop_timer){.fired = on_poll, .user = s};
	s->post = (struct loop_timer){.fired = on_post, .user = s};
	s->requests = calloc(options->pools_n > 0 ? options->pools_n : 1, sizeof(*s->requests));
	rv = s->requests ? slurm_spool_open(options->spool, s->id, err)
			 : pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	rv = rv == 0 ? take_lock(s, err) : rv;
	rv = rv == 0 ? slurm_jobs_load(s, err) : rv;
	rv = rv == 0 ? slurm_commands_open(&s->commands, options->loop, err) : rv;
	if (rv != 0) {
		sched_slurm_close(s);
		return rv;
	}
	loop_timer_start(options->loop, &s->poll, clock_mono_ns());
	loop_timer_start(options->loop, &s->look, clock_mono_ns());
	*slurm = s;
	return 0;
}

void sched_slurm_close(struct sched_slurm *s)
{
	if (!s) {
		return;
	}
	loop_timer_cancel(s->options.loop, &s->look);
	loop_timer_cancel(s->options.loop, &s->poll);
	loop_timer_cancel(s->options.loop, &s->post);
	slurm_commands_close(s->commands);
	slurm_pilots_close(s);
	slurm_jobs_close(s);
	while (s->first) {
		struct slurm_event *next = s->first->next;

		free(s->first);
		s->first = next;
	}
	if (s->lock >= 0) {
		close(s->lock);
	}
	free(s->requests);
	free(s->machines);
	free(s->runs);
	free(s);
}
