/*
 * The worker processes of `pawl run`: see run_group.h.
 *
 * A worker is requested from the template if that is ready, or if the worker joins others and a
 * template is starting. The pid then comes later (WORKER_REQUESTED). If no pid comes, the worker is
 * executed after all. A worker that cannot be started at all is WORKER_FAILED until a timer, which
 * is due at once, reports it. So starting a worker never calls back.
 *
 * A dead child is examined before it is reaped. While the child is a zombie, no other process has
 * its pid or its process group's id, so what it left in that group can be killed.
 */
#include "launch/run_group.h"
#include "launch/run_devices.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/times.h"
#include "io/loop.h"
#include "ipc/proto.h"
#include "launch/env/run_vars.h"
#include "launch/run_output.h"
#include "launch/run_port.h"
#include "launch/run_spawn.h"
#include "launch/run_template.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOIN_NUMBER_FIRST                                                                          \
	RUN_WORKERS_MAX /* first number of ranks that join, if all ranks are ours */

_Static_assert(RUN_WORKERS_MAX == NODE_WORKERS, "each node tells the others of all its workers");
_Static_assert(RUN_WORKERS_MAX == PROTO_RANKS_LOCAL, "the agent serves all workers of a node");

enum worker_state {
	WORKER_NONE,      /* not started, or reaped */
	WORKER_REQUESTED, /* requested from the template */
	WORKER_ALIVE,     /* started, with a pid */
	WORKER_FAILED,    /* could not be started */
};

/* One rank of the attempt. Ranks in this file are local, except in messages. */
struct worker {
	enum worker_state state; /* how far the worker is */
	bool kill_pending;       /* to be killed once it has a pid */
	int pending_signal;      /* other signal to send once it has a pid; 0: none */
	uint32_t number;         /* unique in the job among live ranks */
	bool joins;              /* joins an attempt that runs */
	bool retiring;           /* told to leave the others */
	pid_t pid;               /* process id; valid in WORKER_ALIVE */
	int fds[2];              /* stdout and stderr; open while WORKER_REQUESTED, else -1 */
	int64_t started_ns;      /* time of the start, monotonic */
};

struct run_group {
	struct run_group_options options; /* as given */
	struct run_place place;           /* place of the attempt that runs */
	struct run_template *tmpl;        /* the template; NULL: none */
	bool tmpl_default_imports;        /* the template has the default imports */
	uint32_t templates;               /* templates started so far */
	uint32_t requested;               /* workers in WORKER_REQUESTED */
	uint32_t used;                    /* places of this attempt that had a worker */
	uint32_t begun;                   /* workers that were last started together */
	uint32_t from_template;           /* how many of begun the template forked */
	uint32_t next_join_number;        /* next number of a worker that joins */
	bool more;                        /* the workers started last join ranks of ours */
	int64_t begun_ns;                 /* when workers were last started, monotonic */
	struct loop_timer request_timer;  /* limit for the template's answers */
	struct loop_timer failed_timer;   /* reports WORKER_FAILED */
	char **argv;                 /* arguments of an executed worker; array owned, strings not */
	int null_fd;                 /* /dev/null */
	char master[ADDRESS_MAX];    /* memory of place.master */
	char servers[NODE_TEXT_MAX]; /* memory of place.servers */
	struct wire_out tmpl_common; /* common variables that the template was given */
	struct worker workers[RUN_WORKERS_MAX]; /* by local rank; the first used are valid */
};

static void close_fds(struct worker *worker)
{
	for (int i = 0; i < 2; i++) {
		if (worker->fds[i] >= 0) {
			close(worker->fds[i]);
		}
		worker->fds[i] = -1;
	}
}

static void fail_worker(struct run_group *group, uint32_t rank, const char *why)
{
	struct worker *worker = &group->workers[rank];

	ASSERT(worker->state == WORKER_NONE || worker->state == WORKER_REQUESTED);
	log_line(LOG_ERROR, "rank %u: %s", group->place.first + rank, why);
	close_fds(worker);
	worker->state = WORKER_FAILED;
	loop_timer_start(group->options.loop, &group->failed_timer, clock_mono_ns());
}

static void activate_worker(struct run_group *group, uint32_t rank, pid_t pid)
{
	struct worker *worker = &group->workers[rank];

	ASSERT(worker->state == WORKER_NONE || worker->state == WORKER_REQUESTED);
	close_fds(worker);
	worker->pid = pid;
	worker->state = WORKER_ALIVE;
	if (worker->kill_pending) {
		kill(-pid, SIGKILL);
		return;
	}
	if (worker->retiring) {
		kill(pid, SIGUSR1);
	}
	if (worker->pending_signal != 0) {
		kill(pid, worker->pending_signal);
	}
}

/* Returns the place of a worker in the attempt. For a worker that joins, that includes its number,
 * and the sizes count this group's workers alone. */
static struct run_place place_of(const struct run_group *group, uint32_t rank)
{
	struct run_place place = group->place;

	if (group->workers[rank].joins) {
		place.joins = true;
		place.number = group->workers[rank].number;
		place.first = 0;
		place.workers = group->used;
		place.world = group->used;
	}
	return place;
}

static void exec_worker(struct run_group *group, uint32_t rank)
{
	struct worker *worker = &group->workers[rank];
	const struct run_place place = place_of(group, rank);
	struct wire_out set = {NULL};
	struct run_program program = {
		.path = group->options.plan->python,
		.argv = group->argv,
		.fds = {group->null_fd, worker->fds[0], worker->fds[1]},
		.fds_n = 3,
	};
	struct pawl_err err;
	char **env;
	pid_t pid = 0;
	int rv;

	run_vars_put_common(&set, &place);
	run_vars_put_varying(&set, &place, rank);
	run_devices_put(&set);
	env = FAULT_MEM("run.env", run_vars_merge(environ, &set));
	program.env = env;
	rv = env != NULL ? run_spawn(&program, &pid, &err)
			 : pawl_err_set(&err, PAWL_ENOMEM, "environment: out of memory");
	if (rv == 0) {
		activate_worker(group, rank, pid);
	} else {
		fail_worker(group, rank, err.msg);
	}
	free(env);
	wire_out_deinit(&set);
}

/* Requests a worker from the template. Returns false if that is not possible. */
static bool request_worker(struct run_group *group, uint32_t rank)
{
	struct worker *worker = &group->workers[rank];
	const struct run_place place = place_of(group, rank);
	struct wire_out varying = {NULL};
	struct pawl_err err;
	int rv;

	/* The others go on training until a worker joins, so it can wait for the template, rather
	 * than import all modules itself. */
	if (!run_template_is_ready(group->tmpl) &&
		(!place.joins || !run_template_is_starting(group->tmpl))) {
		return false;
	}
	run_vars_put_varying(&varying, &place, rank);
	run_devices_put(&varying);
	rv = run_template_start(group->tmpl, rank, worker->fds[0], worker->fds[1], &varying, &err);
	wire_out_deinit(&varying);
	if (rv != 0) {
		log_line(LOG_WARNING, "%s", err.msg);
		return false;
	}
	worker->state = WORKER_REQUESTED;
	group->requested++;
	return true;
}

static bool is_taken(const struct run_group *group, uint32_t number)
{
	for (uint32_t rank = 0; rank < group->used; rank++) {
		if (group->workers[rank].state != WORKER_NONE &&
			group->workers[rank].number == number) {
			return true;
		}
	}
	return false;
}

/* Opens a pipe for one stream of a worker; the read end goes to the output. */
static int open_stream(struct run_group *group, uint32_t rank, int which, struct pawl_err *err)
{
	const char *log_dir = group->options.run->log_dir;
	uint32_t global = group->place.first + rank;
	struct run_stream stream = {.rank = global, .is_stderr = which == 1};
	char log[PATH_MAX];
	int ends[2];

	if (log_dir != NULL) {
		int len = snprintf(log, sizeof(log), "%s/attempt%u/rank%u.%s", log_dir,
			group->place.attempt, global, which == 1 ? "err" : "out");

		if (len < 0 || (size_t)len >= sizeof(log)) {
			return pawl_err_set(err, PAWL_ELIMIT, "log directory: path too long");
		}
		stream.log = log;
	}
	if (FAULT_SYS("run.pipe", pipe2(ends, O_CLOEXEC)) != 0) {
		return pawl_err_sys(err, "make a pipe");
	}
	group->workers[rank].fds[which] = ends[1];
	stream.fd = ends[0];
	return run_output_add(group->options.output, &stream, err);
}

/* Returns the number of a worker that joins. If several launchers share the job, this one has
 * RUN_WORKERS_MAX numbers. It reuses each as late as possible: the membership may still have it. */
static uint32_t next_number(struct run_group *group)
{
	const struct run_plan *plan = group->options.plan;
	uint32_t number;

	if (!plan->shared) {
		return group->next_join_number++;
	}
	do {
		number = plan->first + group->next_join_number++ % RUN_WORKERS_MAX;
	} while (is_taken(group, number));
	return number;
}

static void start_worker(struct run_group *group, uint32_t rank, bool joins)
{
	struct worker *worker = &group->workers[rank];
	uint32_t number = joins ? next_number(group) : group->place.first + rank;
	struct pawl_err err;
	int rv;

	ASSERT(worker->state == WORKER_NONE);
	*worker = (struct worker){.number = number,
		.joins = joins,
		.fds = {-1, -1},
		.started_ns = clock_mono_ns()};
	rv = open_stream(group, rank, 0, &err);
	if (rv == 0) {
		rv = open_stream(group, rank, 1, &err);
	}
	if (rv != 0) {
		fail_worker(group, rank, err.msg);
	} else if (!request_worker(group, rank)) {
		exec_worker(group, rank);
	}
}

static void log_start(const struct run_group *group)
{
	const struct run_place *place = &group->place;

	char node[64] = "";

	if (place->nodes > 1) {
		snprintf(node, sizeof(node), "node %u of %u: ", place->node, place->nodes);
	}
	log_line(LOG_INFO, "job %s: attempt %u: %s%u %sworker%s started in %.0f ms, %s", place->job,
		place->attempt, node, group->begun, group->more ? "more " : "",
		group->begun == 1 ? "" : "s",
		(double)(clock_mono_ns() - group->begun_ns) / NS_PER_MS,
		group->from_template > 0 ? "from the template" : "afresh");
}

/* Closes the template if its common variables have changed, for example because the job has other
 * nodes. Modules may have read the old values when the template imported them. */
static void check_template(struct run_group *group)
{
	struct wire_out common = {NULL};

	run_vars_put_common(&common, &group->place);
	if (group->tmpl != NULL &&
		(common.failed || common.len_bytes != group->tmpl_common.len_bytes ||
			memcmp(common.bytes, group->tmpl_common.bytes, common.len_bytes) != 0)) {
		run_template_close(group->tmpl);
		group->tmpl = NULL;
	}
	wire_out_deinit(&common);
}

/* Starts n workers, in free places from the first on. */
static void begin(struct run_group *group, uint32_t n, bool joins, bool more)
{
	uint32_t rank = 0;

	group->begun_ns = clock_mono_ns();
	group->begun = n;
	group->more = more;
	group->from_template = 0;
	for (; n > 0 && rank < RUN_WORKERS_MAX; rank++) {
		if (rank < group->used && group->workers[rank].state != WORKER_NONE) {
			continue;
		}
		group->used = rank < group->used ? group->used : rank + 1;
		group->workers[rank].state = WORKER_NONE;
		start_worker(group, rank, joins);
		n--;
	}
	ASSERT(n == 0);
	if (group->requested > 0) {
		loop_timer_start(group->options.loop, &group->request_timer,
			group->begun_ns +
				(run_template_is_ready(group->tmpl)
						? times_ns(TIME_RUN_TEMPLATE_ASK)
						: times_ns(TIME_RUN_TEMPLATE_COME)));
	} else {
		log_start(group);
	}
}

/* Finds a port for AdaptDL's replicas in a job of the scheduler's; 0 elsewhere, where AdaptDL's
 * variables are left as they were set. The replicas listen without SO_REUSEADDR: neither at
 * MASTER_PORT, which is held, nor at the port of the attempt before. All nodes must name the same
 * port, though only one of them can look. */
static uint32_t find_adaptdl_port(const struct run_start *start)
{
	uint32_t port = 0;
	struct pawl_err err;

	if (getenv("PAWL_SCHED_JOB") == NULL || getenv("ADAPTDL_SUPERVISOR_URL") == NULL) {
		return 0;
	}
	if (start->nodes > 1) {
		return start->port < UINT16_MAX ? start->port + 1 : start->port - 1;
	}
	if (run_port_find(&port, &err) != 0) {
		log_line(LOG_WARNING, "%s", err.msg);
	}
	return port;
}

void run_group_start(struct run_group *group, const struct run_start *start)
{
	struct run_place *place = &group->place;

	ASSERT(group->requested == 0); /* no worker of the attempt before is left */
	place->workers = start->workers;
	place->first = start->first;
	place->world = start->world;
	place->node = start->node;
	place->nodes = start->nodes;
	place->restarts = start->restarts;
	place->attempt = start->attempt;
	place->port = start->port;
	place->adaptdl_port = find_adaptdl_port(start);
	snprintf(group->master, sizeof(group->master), "%s", start->master);
	snprintf(group->servers, sizeof(group->servers), "%s", start->servers);
	group->used = 0;
	group->next_join_number = !group->options.plan->shared ? JOIN_NUMBER_FIRST
		: start->joins                                 ? 0
							       : place->workers;
	check_template(group);
	begin(group, place->workers, start->joins, false);
}

void run_group_add(struct run_group *group, uint32_t n)
{
	begin(group, n, true, true);
}

bool run_group_has(const struct run_group *group, uint32_t number)
{
	for (uint32_t rank = 0; rank < group->used; rank++) {
		if (group->workers[rank].state == WORKER_ALIVE &&
			group->workers[rank].number == number) {
			return true;
		}
	}
	return false;
}

/* Returns the pid, or the negative process group, to signal. A shell does not forward signals to
 * its children, so a worker that is not Python is signalled as a process group. */
static pid_t signal_target(const struct run_group *group, const struct worker *worker)
{
	return group->options.run->no_python ? -worker->pid : worker->pid;
}

void run_group_retire(struct run_group *group, uint32_t n)
{
	for (uint32_t rank = group->used; n > 0 && rank > 0; rank--) {
		struct worker *worker = &group->workers[rank - 1];

		if (worker->retiring || worker->state == WORKER_NONE) {
			continue;
		}
		worker->retiring = true;
		if (worker->state == WORKER_ALIVE) {
			kill(signal_target(group, worker), SIGUSR1);
		}
		n--;
	}
}

/* Counts one request to the template as answered, whatever the result. */
static void finish_request(struct run_group *group)
{
	ASSERT(group->requested > 0);
	group->requested--;
	if (group->requested == 0) {
		loop_timer_cancel(group->options.loop, &group->request_timer);
		log_start(group);
	}
}

static void on_template_started(void *user, uint32_t rank, pid_t pid)
{
	struct run_group *group = user;

	if (rank >= group->used || group->workers[rank].state != WORKER_REQUESTED) {
		kill(-pid, SIGKILL); /* reported after the request timed out */
		return;
	}
	activate_worker(group, rank, pid);
	group->from_template++;
	finish_request(group);
}

static void on_template_failed(void *user, uint32_t failed_rank)
{
	struct run_group *group = user;

	for (uint32_t rank = 0; rank < group->used; rank++) {
		struct worker *worker = &group->workers[rank];

		if (worker->state != WORKER_REQUESTED ||
			(failed_rank != UINT32_MAX && failed_rank != rank)) {
			continue;
		}
		if (worker->kill_pending) {
			fail_worker(group, rank, "killed before it was started");
		} else {
			exec_worker(group, rank);
		}
		finish_request(group);
	}
}

static void on_request_timeout(struct loop_timer *timer)
{
	struct run_group *group = timer->user;

	log_line(LOG_WARNING, "the template does not answer: starting afresh");
	run_template_close(group->tmpl);
	group->tmpl = NULL;
	on_template_failed(group, UINT32_MAX);
}

static void report(struct run_group *group, uint32_t rank, int status, int signal)
{
	struct worker *worker = &group->workers[rank];
	const struct run_end end = {
		.rank = group->place.first + rank,
		.number = worker->number,
		.pid = worker->pid,
		.exit = {.status = status,
			.signal = signal,
			.retired = worker->retiring,
			.lasted_ns = clock_mono_ns() - worker->started_ns},
	};

	ASSERT(worker->state == WORKER_ALIVE || worker->state == WORKER_FAILED);
	worker->state = WORKER_NONE;
	group->options.exited(group->options.user, &end);
}

static void on_failed_timer(struct loop_timer *timer)
{
	struct run_group *group = timer->user;
	uint32_t rank = 0;

	while (rank < group->used && group->workers[rank].state != WORKER_FAILED) {
		rank++;
	}
	if (rank < group->used) {
		/* fires again for the next failed worker */
		loop_timer_start(group->options.loop, timer, clock_mono_ns());
		report(group, rank, 1, 0);
	}
}

void run_group_kill(struct run_group *group, int signal)
{
	for (uint32_t rank = 0; rank < group->used; rank++) {
		struct worker *worker = &group->workers[rank];

		if (worker->state == WORKER_ALIVE) {
			kill(signal == SIGKILL ? -worker->pid : signal_target(group, worker),
				signal);
		} else if (worker->state == WORKER_REQUESTED && signal == SIGKILL) {
			worker->kill_pending = true;
		} else if (worker->state == WORKER_REQUESTED) {
			worker->pending_signal = signal;
		}
	}
}

static struct worker *find_worker(struct run_group *group, pid_t pid)
{
	for (uint32_t rank = 0; rank < group->used; rank++) {
		if (group->workers[rank].state == WORKER_ALIVE && group->workers[rank].pid == pid) {
			return &group->workers[rank];
		}
	}
	return NULL;
}

/* Reaps a dead child. */
static void reap_child(struct run_group *group, const siginfo_t *info)
{
	struct worker *worker;
	siginfo_t gone;
	bool failed = info->si_code != CLD_EXITED || info->si_status != 0;
	int signal = info->si_code != CLD_EXITED ? info->si_status : 0;
	int rv;

	run_template_poll(group->tmpl); /* the child may be a worker whose report is still unread */
	worker = find_worker(group, info->si_pid);
	if (worker != NULL && failed) {
		/* The processes that the worker started must not go on without it. */
		kill(-info->si_pid, SIGKILL);
	}
	if (info->si_pid == run_template_pid(group->tmpl)) {
		run_template_close(group->tmpl);
		group->tmpl = NULL;
		on_template_failed(group, UINT32_MAX);
	}
	rv = waitid(P_PID, (id_t)info->si_pid, &gone, WEXITED | WNOHANG);
	ASSERT(rv == 0); /* nobody else waits for a child of ours */
	if (worker != NULL) {
		report(group, (uint32_t)(worker - group->workers),
			signal != 0 ? 128 + signal : info->si_status, signal);
	}
}

void run_group_reap(struct run_group *group)
{
	siginfo_t info = {.si_pid = 0};

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
		reap_child(group, &info);
		info.si_pid = 0;
	}
}

void run_group_open_template(struct run_group *group, const char *imports)
{
	const char *level = getenv("PAWL_LOG");
	bool debug = level != NULL && strcmp(level, "debug") == 0;
	struct wire_out *common = &group->tmpl_common;
	struct run_template_options options = {
		.python = group->options.plan->python,
		.worker = group->options.run->worker,
		.imports = imports != NULL                     ? imports
			: group->options.run->max_workers != 0 ? "torch\npawl.elastic"
							       : "torch",
		.null_fd = group->null_fd,
		.stderr_fd = debug ? STDERR_FILENO : group->null_fd,
		.started = on_template_started,
		.failed = on_template_failed,
		.user = group,
	};
	struct pawl_err err;
	char **env;

	if (group->templates == RUN_TEMPLATES_MAX || group->requested > 0 ||
		(group->tmpl != NULL && (imports == NULL || !group->tmpl_default_imports))) {
		return;
	}
	run_template_close(group->tmpl);
	group->tmpl = NULL;
	group->tmpl_default_imports = imports == NULL;
	group->templates++;
	wire_out_reset(common);
	run_vars_put_common(common, &group->place);
	env = FAULT_MEM("run.env", run_vars_merge(environ, common));
	options.env = env;
	if (env != NULL && run_template_open(&group->tmpl, group->options.loop, &options, &err)) {
		log_line(LOG_WARNING, "%s: restarts will start afresh", err.msg);
	}
	free(env);
}

static int make_argv(struct run_group *group, struct pawl_err *err)
{
	char *const *worker = group->options.run->worker;
	size_t n = 0;

	while (worker[n] != NULL) {
		n++;
	}
	group->argv = FAULT_MEM("run.argv", calloc(n + 3, sizeof(*group->argv)));
	if (group->argv == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "workers: out of memory");
	}
	if (group->options.run->no_python) {
		memcpy(group->argv, worker, n * sizeof(*worker));
		return 0;
	}
	group->argv[0] = (char *)(uintptr_t)group->options.plan->python;
	group->argv[1] = (char *)(uintptr_t) "-u";
	memcpy(group->argv + 2, worker, n * sizeof(*worker));
	return 0;
}

int run_group_open(struct run_group **group, const struct run_group_options *options,
	struct pawl_err *err)
{
	struct run_group *g = FAULT_MEM("run.group", calloc(1, sizeof(*g)));
	int rv;

	if (g == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "workers: out of memory");
	}
	g->options = *options;
	g->request_timer = (struct loop_timer){.fired = on_request_timeout, .user = g};
	g->failed_timer = (struct loop_timer){.fired = on_failed_timer, .user = g};
	g->place = (struct run_place){
		.workers = options->run->workers,
		.max_restarts = options->run->max_restarts,
		.job = options->plan->job,
		.agent = options->plan->socket,
		.membership_path = options->plan->membership_path[0] != '\0'
			? options->plan->membership_path
			: NULL,
		.min_workers = options->plan->shared ? 0 : options->run->min_workers,
		.one_thread = (options->run->workers > 1 || options->run->max_workers > 1) &&
			getenv("OMP_NUM_THREADS") == NULL,
		.our_backend = options->run->our_backend,
		.nccl_async = getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING") == NULL,
		.master = g->master,
		.servers = g->servers,
	};
	g->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	rv = g->null_fd < 0 ? pawl_err_sys(err, "open /dev/null") : make_argv(g, err);
	if (rv != 0) {
		run_group_close(g);
		return rv;
	}
	*group = g;
	return 0;
}

void run_group_close(struct run_group *group)
{
	if (group == NULL) {
		return;
	}
	run_template_close(group->tmpl);
	run_group_kill(group, SIGKILL);
	loop_timer_cancel(group->options.loop, &group->request_timer);
	loop_timer_cancel(group->options.loop, &group->failed_timer);
	for (uint32_t rank = 0; rank < group->used; rank++) {
		if (group->workers[rank].state == WORKER_REQUESTED) {
			close_fds(&group->workers[rank]);
		}
	}
	if (group->null_fd >= 0) {
		close(group->null_fd);
	}
	wire_out_deinit(&group->tmpl_common);
	free(group->argv);
	free(group);
}
