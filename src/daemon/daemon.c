/* `pawl sched`: see daemon.h. Opens all parts of the daemon, runs its loop, and closes them. */
#include "daemon/daemon_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/times.h"
#include "engine/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what the engine asks ---- */

static int fetch_submission(void *user, uint64_t job, uint8_t **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	struct daemon *d = user;

	return sched_database_spec(d->database, job, bytes, len_bytes, err);
}

static void fill_supervisor(void *user, const struct core_job *job, struct order *order)
{
	const struct daemon *d = user;

	if (http_job_url(d->http, job->id, order->supervisor)) {
		http_space(job->request.owner, order->space, sizeof(order->space));
	}
}

/* ---- timers and signals ---- */

static void on_wake(struct loop_timer *timer)
{
	struct daemon *d = timer->user;
	struct core_event event = {.kind = CORE_TIMER};
	struct pawl_err err;

	if (daemon_handle_event(d, &event, NULL, NULL, &err) != 0) {
		log_line(LOG_ERROR, "%s", err.msg);
	}
}

static void on_hints(struct loop_timer *timer)
{
	struct daemon *d = timer->user;

	daemon_read_hints(d);
	loop_timer_start(d->loop, timer, clock_mono_ns() + times_ns(TIME_DAEMON_HINTS));
}

static void on_signal(struct loop_source *source, uint32_t events)
{
	struct daemon *d = source->user;
	int signal = loop_read_signal(source);

	if (signal == 0) {
		return;
	}
	if (signal == SIGCHLD) {
		if (d->engine->reap) {
			d->engine->reap(d->engine_self);
		}
		return;
	}
	log_line(LOG_INFO, "SIG%s: leaving; jobs go on, and the next scheduler finds them",
		sigabbrev_np(signal));
	loop_stop(d->loop);
}

/* ---- start and end ---- */

/* Lets the group reach the socket and, where jobs do not run as their owners, the logs. */
static int give_to_group(const struct group *group, const char *directory, struct pawl_err *err)
{
	if (chown(directory, (uid_t)-1, group->gr_gid) != 0 ||
		chmod(directory, geteuid() == 0 ? 0711 : 0710) != 0) {
		return pawl_err_sys(err, "give %s to group %s", directory, group->gr_name);
	}
	return 0;
}

static int open_to_group(const struct daemon *d, struct pawl_err *err)
{
	const struct daemon_options *o = d->options;
	const struct group *group = o->group ? getgrnam(o->group) : NULL;
	char jobs[PATH_MAX];
	int rv;

	if (!o->group) {
		return 0;
	}
	if (!group) {
		return pawl_err_set(err, PAWL_EINVAL, "there is no group %s", o->group);
	}
	rv = give_to_group(group, o->root, err);
	rv = rv == 0 && o->spool ? give_to_group(group, o->spool, err) : rv;
	snprintf(jobs, sizeof(jobs), "%s/jobs", daemon_shared_dir(d));
	if (rv == 0 && geteuid() != 0 &&
		(chown(jobs, (uid_t)-1, group->gr_gid) != 0 || chmod(jobs, 02751) != 0)) {
		return pawl_err_sys(err, "give %s to group %s", jobs, o->group);
	}
	return rv;
}

static int refuse_second(int fd, const char *root, struct pawl_err *err)
{
	char text[256] = "";
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return pawl_err_set(err, PAWL_EBUSY,
		"%s is in use by another scheduler (%s): stop that one, or give this one a "
		"directory of its own with --root",
		root, text[0] != '\0' ? text : "which has not written who it is");
}

/* Takes the lock: one scheduler per directory. The lock dies with the process. */
static int take_lock(struct daemon *d, struct pawl_err *err)
{
	int64_t due_ns = clock_mono_ns() + times_ns(TIME_DAEMON_LOCK);
	char path[PATH_MAX];
	char text[128];
	char host[64] = "?";
	int len;

	snprintf(path, sizeof(path), "%s/lock", d->options->root);
	d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock_fd < 0) {
		return pawl_err_sys(err, "%s", path);
	}
	while (flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK) {
			return pawl_err_sys(err, "%s: lock", path);
		}
		if (clock_mono_ns() >= due_ns) {
			return refuse_second(d->lock_fd, d->options->root, err);
		}
		times_sleep(TIME_DAEMON_LOCK_LOOK);
	}
	gethostname(host, sizeof(host) - 1);
	len = snprintf(text, sizeof(text), "pid %d on %s\n", (int)getpid(), host);
	if (ftruncate(d->lock_fd, 0) != 0 || pwrite(d->lock_fd, text, (size_t)len, 0) != len) {
		return pawl_err_sys(err, "%s", path);
	}
	return 0;
}

static int open_loop(struct daemon *d, struct pawl_err *err)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;
	int rv = loop_open(&d->loop, err);

	if (rv != 0) {
		return rv;
	}
	pending_events_init(&d->pending, d->loop, daemon_handle_posted, d);
	sigaction(SIGPIPE, &ignore, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	return loop_add_signals(d->loop, &d->signals, &set, err);
}

/* Chooses the fastest scratch directory. */
static int choose_scratch(struct daemon *d, struct pawl_err *err)
{
	const struct daemon_options *o = d->options;
	uint32_t best;
	double rate;
	int rv;

	if (o->scratch_n == 0) {
		return 0;
	}
	rv = scratch_choose(o->scratch, o->scratch_n, &best, &rate, err);
	if (rv == 0) {
		d->scratch = o->scratch[best];
	}
	if (rv == 0 && rate > 0) {
		log_line(LOG_INFO, "scratch in %s: %.0f MB/s, the fastest of %u", d->scratch,
			rate / 1e6, o->scratch_n);
	}
	return rv;
}

static int open_engine(struct daemon *d, struct pawl_err *err)
{
	const struct local_options options = {.root = d->options->root,
		.nodes = d->options->nodes,
		.nodes_n = d->options->nodes_n,
		.devices = d->options->devices,
		.scratch = d->scratch,
		.as_owner = geteuid() == 0,
		.grace_ns = d->options->grace_ns,
		.loop = d->loop,
		.post = daemon_post,
		.get_submission = fetch_submission,
		.set_supervisor = fill_supervisor,
		.user = d};
	struct local *local = NULL;
	int rv;

	if (d->options->pools) {
		return daemon_open_slurm(d, err);
	}
	rv = local_open(&local, &options, err);
	d->engine = &engine_local;
	d->engine_self = local;
	return rv;
}

/* Carries out the updates of the restored core. Reports nodes that the engine no longer has as
 * gone. */
static void begin(struct daemon *d)
{
	const struct core_node *nodes;
	uint32_t nodes_n = core_nodes(d->core, &nodes);
	uint32_t n;
	const struct core_update *updates = core_updates(d->core, &n);

	ASSERT(nodes || nodes_n == 0);
	for (uint32_t i = 0; i < nodes_n; i++) {
		if (d->engine->has_node &&
			!d->engine->has_node(d->engine_self, nodes[i].offer.name)) {
			daemon_post(d,
				&(const struct core_event){.kind = CORE_NODE_GONE,
					.node = nodes[i].offer.name});
		}
	}
	for (uint32_t i = 0; i < n && !d->rebuilt; i++) {
		sched_engine_do(d->engine, d->engine_self, d->core, d->options->core.pools,
			&updates[i]);
	}
	if (d->rebuilt) { /* later steps have carried out these updates */
		const struct core_update list = {.kind = CORE_DO_LIST};

		sched_engine_do(d->engine, d->engine_self, d->core, d->options->core.pools, &list);
	}
	daemon_set_wake(d);
	loop_timer_start(d->loop, &d->hints, clock_mono_ns());
}

static int open_all(struct daemon *d, struct pawl_err *err)
{
	int rv = daemon_make_root(d->options, err);

	rv = rv == 0 ? take_lock(d, err) : rv;
	rv = rv == 0 ? open_loop(d, err) : rv;
	rv = rv == 0 ? daemon_open_database(d, err) : rv;
	rv = rv == 0 ? choose_scratch(d, err) : rv;
	rv = rv == 0 ? daemon_record_engine(d, err) : rv;
	rv = rv == 0 ? open_engine(d, err) : rv;
	rv = rv == 0 ? daemon_check_runs(d, err) : rv;
	rv = rv == 0 ? open_to_group(d, err) : rv;
	rv = rv == 0 ? daemon_listen(d, err) : rv;
	return rv == 0 ? http_open(&d->http, d, &d->options->http, err) : rv;
}

static void close_all(struct daemon *d)
{
	http_close(d->http);
	daemon_disconnect_clients(d);
	if (d->engine && d->engine->close) {
		d->engine->close(d->engine_self);
	}
	core_close(d->core);
	sched_database_close(d->database);
	pending_events_deinit(&d->pending);
	free(d->hint_files);
	if (d->signals.fd >= 0) {
		close(d->signals.fd);
	}
	loop_close(d->loop);
	if (d->lock_fd >= 0) {
		close(d->lock_fd);
	}
}

int daemon_main(struct daemon_options *options, struct pawl_err *err)
{
	struct daemon d = {.options = options,
		.lock_fd = -1,
		.signals = {-1, on_signal, &d},
		.wake = {.fired = on_wake, .user = &d},
		.hints = {.fired = on_hints, .user = &d}};
	uint32_t slots = 0;
	int rv;

	proc_boot_id(d.boot);
	metrics_init(&d.metrics);
	rv = open_all(&d, err);
	for (uint32_t i = 0; i < options->nodes_n; i++) {
		slots += options->nodes[i].slots;
	}
	if (rv == 0 && options->pools) {
		log_line(LOG_INFO, "scheduler in %s: %u pool%s of Slurm's, policy %s",
			options->root, options->pools_n, options->pools_n == 1 ? "" : "s",
			options->core.policy->name);
	} else if (rv == 0) {
		log_line(LOG_INFO, "scheduler in %s: %u node%s, %u slots, policy %s", options->root,
			options->nodes_n, options->nodes_n == 1 ? "" : "s", slots,
			options->core.policy->name);
	}
	if (rv == 0) {
		daemon_open_history(&d);
		begin(&d);
		rv = loop_run(d.loop, err);
		if (rv == 0 && d.failed.code == 0) {
			daemon_forget_types(&d);
		}
		daemon_close_history(&d, rv == 0 && d.failed.code == 0);
	}
	if (rv == 0 && d.failed.code != 0) {
		*err = d.failed;
		rv = pawl_err_prefix(err, d.failed.code,
			"an event cannot be stored (jobs go on without a scheduler)");
	}
	close_all(&d);
	return rv;
}
