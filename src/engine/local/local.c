/* Jobs on this machine: see local.h. */
#include "engine/local/local_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "engine/local/run_placement.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES_MAX 65536u /* limit of open files that a scheduler sets for itself, at most */

/* ---- runs and stops ---- */

/* Finds the newest run of a job; NULL: there is none. */
static struct local_run *find_run(struct local *local, uint64_t job)
{
	struct local_run *found = NULL;

	for (struct local_run *run = local->runs; run; run = run->next) {
		if (run->job == job &&
			(!found || run->start_generation > found->start_generation)) {
			found = run;
		}
	}
	return found;
}

/* Returns the newest generation of the job that may not start any more; 0: none is known. */
static uint64_t stopped_of(const struct local *local, uint64_t job)
{
	uint64_t stopped = 0;

	for (uint32_t i = 0; i < LOCAL_STOPS_MAX; i++) {
		if (local->stops[i].job == job && local->stops[i].stopped > stopped) {
			stopped = local->stops[i].stopped;
		}
	}
	return stopped;
}

static void record_stopped(struct local *local, uint64_t job, uint64_t generation)
{
	for (uint32_t i = 0; i < LOCAL_STOPS_MAX; i++) {
		if (local->stops[i].job == job) {
			if (generation > local->stops[i].stopped) {
				local->stops[i].stopped = generation;
			}
			return;
		}
	}
	local->stops[local->stops_next] = (struct local_stop){job, generation};
	local->stops_next = (local->stops_next + 1) % LOCAL_STOPS_MAX;
}

static void on_peer(struct loop_source *source, uint32_t events);
static void on_retry_timer(struct loop_timer *timer);

static struct local_run *make_run(struct local *local, uint64_t job, uint64_t start_generation)
{
	struct local_run *run = calloc(1, sizeof(*run));

	if (run) {
		run->local = local;
		run->job = job;
		run->start_generation = start_generation;
		run->state_fd = -1;
		run->devices_fd = -1;
		run->peer = (struct loop_source){-1, on_peer, run};
		run->timer = (struct loop_timer){.fired = on_retry_timer, .user = run};
		snprintf(run->dir, sizeof(run->dir), "%s/runs/%llu.%llu", local->options.root,
			(unsigned long long)job, (unsigned long long)start_generation);
	}
	return run;
}

static void disconnect(struct local_run *run)
{
	if (run->peer.fd >= 0) {
		loop_remove(run->local->options.loop, &run->peer);
		close(run->peer.fd);
		run->peer.fd = -1;
	}
}

static void free_run(struct local_run *run)
{
	disconnect(run);
	loop_timer_cancel(run->local->options.loop, &run->timer);
	if (run->state_fd >= 0) {
		close(run->state_fd);
	}
	if (run->devices_fd >= 0) {
		close(run->devices_fd);
	}
	free(run);
}

static void unlink_run(struct local *local, const struct local_run *run)
{
	struct local_run **at = &local->runs;

	while (*at != run) {
		at = &(*at)->next;
	}
	*at = run->next;
}

/* ---- events for the core ---- */

static void post(struct local *local, const struct core_event *event)
{
	pending_events_add(&local->pending, event);
}

static void post_run(struct local *local, enum core_event_kind kind, uint64_t job,
	uint64_t generation)
{
	post(local,
		&(const struct core_event){.kind = kind,
			.job = job,
			.generation = generation,
			.end_cause = CORE_END_UNKNOWN});
}

static void post_end(const struct local_run *run)
{
	bool known = run->state.phase == RUN_ENDED;
	/* What ran when the machine went down is not to blame, and starts again at once. */
	enum core_end_cause unknown = run->mark.booted ? CORE_END_NODE_LOST : CORE_END_UNKNOWN;
	uint64_t generation = run->state.generation > run->start_generation ? run->state.generation
									    : run->start_generation;

	post(run->local,
		&(const struct core_event){.kind = CORE_ENDED,
			.job = run->job,
			.generation = generation,
			.end_cause = !known            ? unknown
				: run->state.by_itself ? CORE_END_EXITED
						       : CORE_END_STOPPED,
			.exit_code = run->state.exit_code});
}

/* Records and posts the end of a run of which no process is left. */
static void end(struct local_run *run)
{
	ASSERT(run->phase != LOCAL_OVER); /* the end is posted once */
	run->phase = LOCAL_OVER;
	record_stopped(run->local, run->job, run->state.generation);
	record_stopped(run->local, run->job, run->start_generation);
	if (run->state.why[0] != '\0') {
		log_line(LOG_WARNING, "job %llu: %s", (unsigned long long)run->job, run->state.why);
	}
	post_end(run);
}

/* ---- devices ---- */

/* Lists the devices of all other runs that live, or may live. */
static void list_taken(const struct local *local, const struct local_run *own,
	struct devices *taken)
{
	*taken = (struct devices){0};
	for (const struct local_run *run = local->runs; run; run = run->next) {
		for (uint32_t i = 0; run != own && run->phase != LOCAL_OVER && i < run->devices.n &&
			taken->n < DEVICES_MAX;
			i++) {
			taken->at[taken->n++] = run->devices.at[i];
		}
	}
}

int local_give_devices(struct local *local, struct local_run *run, const struct order_node *nodes,
	uint32_t nodes_n, uint64_t generation, struct pawl_err *err)
{
	struct devices was = run->devices;
	struct devices taken;
	int rv = 0;

	list_taken(local, run, &taken);
	if (!devices_change(&run->devices, &taken, local->options.devices, nodes, nodes_n,
		    generation)) {
		return pawl_err_set(err, PAWL_EBUSY,
			"devices: a node has no free device, or ranks would have to change "
			"devices");
	}
	if (run->devices_fd >= 0 && memcmp(&was, &run->devices, sizeof(was)) != 0) {
		rv = devices_save(run->devices_fd, &run->devices, err);
		run->devices = rv == 0 ? run->devices : was;
	}
	return rv;
}

/* Frees the devices that the last rescale took from the run, once its generation runs. */
static void release_devices(struct local_run *run)
{
	struct pawl_err err;

	if (devices_release(&run->devices, run->state.generation) &&
		devices_save(run->devices_fd, &run->devices, &err) != 0) {
		log_line(LOG_WARNING, "job %llu: %s", (unsigned long long)run->job, err.msg);
	}
}

/* ---- the life of a run ---- */

/* Sets the timer for the next try, after ever longer times. */
static void retry(struct local_run *run)
{
	loop_timer_start(run->local->options.loop, &run->timer, clock_mono_ns() + run->wait_ns);
	strays_backoff_ns(&run->wait_ns);
}

/* Handles the death of the shepherd. Either it has recorded the end of the run, or it was killed,
 * and processes of the run may be left. */
static void on_shepherd_gone(struct local_run *run)
{
	int rv = run_state_load(run->state_fd, &run->state, NULL);

	if (run->state.phase == RUN_ENDED) {
		end(run);
		return;
	}
	if (rv != 0 && rv != PAWL_ECORRUPT) {
		retry(run); /* the end may be recorded: read it again later */
		return;
	}
	log_line(LOG_WARNING,
		"job %llu: its shepherd process was killed; the job's other processes are killed",
		(unsigned long long)run->job);
	run->phase = LOCAL_DYING;
	run->wait_ns = 0;
	retry(run);
}

/* Sends a request, and keeps it to send it again after a reconnect. */
static void send_request(struct local_run *run, const struct run_request *request)
{
	run->has_request = true;
	run->request = *request;
	if (run->peer.fd >= 0) { /* the socket buffer has room for hundreds */
		(void)!send(run->peer.fd, request, sizeof(*request), MSG_NOSIGNAL | MSG_DONTWAIT);
	}
}

/* Connects to the shepherd again. Unless it is certainly dead, it counts as alive: it may be
 * stopped, or wait for a disk. */
static void reconnect(struct local_run *run)
{
	int rv = local_connect(run, NULL);

	ASSERT((rv == 0) == (run->peer.fd >= 0));
	if (rv == PAWL_ENOENT) {
		on_shepherd_gone(run);
	} else if (rv != 0) {
		retry(run);
	} else if (run->has_request) {
		send_request(run, &run->request);
	}
}

static void on_retry_timer(struct loop_timer *timer)
{
	struct local_run *run = timer->user;

	if (run->phase == LOCAL_ALIVE) {
		reconnect(run);
	} else if (strays_signal(&run->mark, SIGKILL) == 0) {
		end(run);
	} else {
		retry(run);
	}
}

/* Reads the run's state, and posts what is new in it. */
static void check_state(struct local_run *run)
{
	struct run_state state;

	if (run_state_load(run->state_fd, &state, NULL) != 0) {
		return; /* the state is being written: the shepherd will notify again */
	}
	run->state = state;
	release_devices(run);
	if (state.phase == RUN_RUNNING && state.generation > run->posted_started) {
		run->posted_started = state.generation;
		post_run(run->local, CORE_RUNS, run->job, state.generation);
	}
	if (state.refused > run->posted_refused) {
		run->posted_refused = state.refused;
		post_run(run->local, CORE_REFUSED, run->job, state.refused);
	}
}

/* Handles a notification of the shepherd, or the end of its connection. A closed connection does
 * not prove that the shepherd is dead. A recorded end does, or a socket on which nobody listens. */
static void on_peer(struct loop_source *source, uint32_t events)
{
	struct local_run *run = source->user;
	char bytes[64];
	ssize_t n = recv(source->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n > 0) {
		run->wait_ns = 0;
		check_state(run);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		disconnect(run);
		run_state_load(run->state_fd, &run->state, NULL);
		if (run->state.phase == RUN_ENDED) {
			end(run);
		} else {
			retry(run);
		}
	}
}

/* ---- the engine ---- */

/* Starts a new run. An error refuses the start. */
static void start_new_run(struct local *local, const struct sched_core *core, uint64_t job,
	uint64_t generation, const struct core_placement *place)
{
	struct order_node *nodes = calloc(ORDER_NODES_MAX, sizeof(*nodes));
	const struct core_job *at = core_job_find(core, job);
	struct local_run *run = make_run(local, job, generation);
	struct pawl_err err;
	int rv;

	if (!nodes || !run) {
		rv = pawl_err_set(&err, PAWL_ENOMEM, "no memory for a run");
	} else if (!at) {
		rv = pawl_err_set(&err, PAWL_ENOENT, "the job is not known");
	} else {
		rv = local_name_nodes(core, place, nodes, &err);
		rv = rv == 0 ? local_start(local, at, generation, nodes, place->n, run, &err) : rv;
	}
	free(nodes);
	if (rv == 0) {
		run->next = local->runs;
		local->runs = run;
		return;
	}
	log_line(LOG_WARNING, "job %llu cannot be started: %s", (unsigned long long)job, err.msg);
	if (run) {
		free_run(run);
	}
	post_run(local, CORE_REFUSED, job, generation);
}

static void start(void *self, const struct sched_core *core, uint64_t job, uint64_t generation,
	const struct core_placement *place)
{
	struct local *local = self;
	struct local_run *run = find_run(local, job);

	if (run && run->phase == LOCAL_OVER && run->start_generation < generation) {
		run = NULL; /* a run of an earlier start, whose end was posted */
	}
	if (!run && generation <= stopped_of(local, job)) {
		post_run(local, CORE_ENDED, job, generation);
	} else if (!run) {
		start_new_run(local, core, job, generation, place);
	} else if (run->phase == LOCAL_OVER) {
		post_end(run);
	} else if (run->phase == LOCAL_ALIVE && run->start_generation == generation) {
		run->posted_started = 0; /* post it again */
		check_state(run);
	} /* else the end will be posted */
}

/* Assigns devices for another number of replicas. Returns false if that is not possible, such as
 * when ranks would have to change devices; then the core restarts the job. */
static bool prepare_rescale(struct local *local, struct local_run *run,
	const struct sched_core *core, uint64_t generation, const struct core_placement *place)
{
	struct order_node *nodes;
	struct pawl_err err;
	int rv;

	if (local->options.devices->n == 0 || run->devices_fd < 0) {
		return true; /* there are none to assign */
	}
	nodes = calloc(ORDER_NODES_MAX, sizeof(*nodes));
	rv = nodes ? local_name_nodes(core, place, nodes, &err)
		   : pawl_err_set(&err, PAWL_ENOMEM, "no memory for a list of nodes");
	rv = rv == 0 ? local_give_devices(local, run, nodes, place->n, generation, &err) : rv;
	if (rv != 0) {
		log_line(LOG_INFO, "job %llu: %s; the job restarts", (unsigned long long)run->job,
			err.msg);
	}
	free(nodes);
	return rv == 0;
}

/* Records the run's placement, for a scheduler that has lost its database. */
static void save_placement(struct local_run *run, const struct sched_core *core,
	uint64_t generation, const struct core_placement *place)
{
	struct run_placement_entry *entry = calloc(1, sizeof(*entry));
	struct pawl_err err;
	int rv = entry ? local_name_nodes(core, place, entry->nodes, &err)
		       : pawl_err_set(&err, PAWL_ENOMEM, "no memory for a placement");

	if (rv == 0) {
		entry->generation = generation;
		entry->nodes_n = place->n;
		rv = run_placement_save(run->dir, entry, run->state.generation, &err);
	}
	if (rv != 0) {
		log_line(LOG_WARNING, "job %llu: %s", (unsigned long long)run->job, err.msg);
	}
	free(entry);
}

/* Whether a rescale of the run comes too late: after a stop of its generation, whose end will be
 * posted, or after a newer rescale. */
static bool is_late(const struct local_run *run, uint64_t generation)
{
	bool newer = run->has_request && run->request.command == RUN_RESCALE &&
		generation < run->request.generation;

	return newer || generation < run->state.generation ||
		generation <= stopped_of(run->local, run->job);
}

static void rescale(void *self, const struct sched_core *core, uint64_t job, uint64_t generation,
	const struct core_placement *place)
{
	struct local *local = self;
	struct local_run *run = find_run(local, job);
	const struct run_request request = {.command = RUN_RESCALE,
		.replicas = place->replicas,
		.generation = generation};

	if (!run) {
		post_run(local, CORE_ENDED, job, generation);
	} else if (run->phase == LOCAL_OVER) {
		post_end(run);
	} else if (is_late(run, generation)) {
		return;
	} else if (run->phase == LOCAL_ALIVE && run->state.generation < generation &&
		!prepare_rescale(local, run, core, generation, place)) {
		post_run(local, CORE_REFUSED, job, generation);
	} else if (run->phase == LOCAL_ALIVE) {
		if (run->state.generation < generation) {
			save_placement(run, core, generation, place);
		}
		run->posted_started =
			run->posted_started < generation ? run->posted_started : generation - 1;
		run->posted_refused = run->posted_refused < generation ? run->posted_refused : 0;
		send_request(run, &request);
	}
}

static void stop(void *self, uint64_t job, uint64_t generation, int64_t grace_ns)
{
	struct local *local = self;
	struct local_run *run = find_run(local, job);
	const struct run_request request = {.command = RUN_STOP, .grace_ns = grace_ns};

	record_stopped(local, job, generation);
	if (!run) {
		post_run(local, CORE_ENDED, job, generation);
	} else if (run->phase == LOCAL_OVER) {
		post_end(run);
	} else if (run->phase == LOCAL_ALIVE && run->start_generation <= generation) {
		send_request(run, &request);
		if (grace_ns <= 0 && run->kill_sent) {
			strays_signal(&run->mark, SIGKILL); /* the shepherd does not answer */
		}
		run->kill_sent = run->kill_sent || grace_ns <= 0;
	}
}

static void post_node(struct local *local, const struct core_offer *offer)
{
	post(local, &(const struct core_event){.kind = CORE_NODE_REPORTED, .offer = offer});
}

static void list(void *self)
{
	struct local *local = self;
	struct core_run *runs;
	uint32_t n = 0;

	for (uint32_t i = 0; i < local->options.nodes_n; i++) {
		post_node(local, &local->options.nodes[i]);
	}
	for (struct local_run *run = local->runs; run; run = run->next) {
		n++;
	}
	runs = calloc(n + 1, sizeof(*runs));
	if (!runs) {
		return; /* the core lists again */
	}
	n = 0;
	for (struct local_run *run = local->runs; run; run = run->next) {
		if (run->phase == LOCAL_OVER) {
			post_end(run);
			continue;
		}
		if (run->phase == LOCAL_ALIVE) {
			check_state(run);
		}
		runs[n++] = (struct core_run){.job = run->job,
			.generation = run->state.generation,
			.running = run->phase == LOCAL_ALIVE && run->state.phase == RUN_RUNNING};
	}
	post(local, &(const struct core_event){.kind = CORE_LISTED, .runs = runs, .runs_n = n});
	free(runs);
}

static void request_nodes(void *self, const char *pool, uint32_t count)
{
	post(self, &(const struct core_event){.kind = CORE_POOL_EXHAUSTED, .pool = pool});
}

static void return_node(void *self, const char *node)
{
	post(self, &(const struct core_event){.kind = CORE_NODE_GONE, .node = node});
}

static void log_text(void *self, const char *text)
{
	log_line(LOG_WARNING, "%s", text);
}

static void close_engine(void *self)
{
	local_close(self);
}

static bool has_node(void *self, const char *node)
{
	const struct local_options *o = &((struct local *)self)->options;

	for (uint32_t i = 0; i < o->nodes_n; i++) {
		if (strcmp(o->nodes[i].name, node) == 0) {
			return true;
		}
	}
	return false;
}

static void each_run(void *self, void (*visit)(void *user, const struct sched_engine_run *run),
	void *user)
{
	const struct local *local = self;

	for (const struct local_run *run = local->runs; run; run = run->next) {
		visit(user,
			&(const struct sched_engine_run){.job = run->job,
				.start_generation = run->start_generation,
				.generation = run->state.generation > run->start_generation
					? run->state.generation
					: run->start_generation,
				.over = run->phase == LOCAL_OVER || run->state.phase == RUN_ENDED,
				.dir = run->dir});
	}
}

static void forget(void *self, uint64_t job, uint64_t generation)
{
	struct local *local = self;
	struct local_run *run = local->runs;

	while (run &&
		(run->job != job || run->phase != LOCAL_OVER ||
			run->start_generation > generation)) {
		run = run->next;
	}
	if (run) {
		unlink_run(local, run);
		local_remove(run->dir);
		free_run(run);
	}
}

static void reap(void *self)
{
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
}

const struct sched_engine engine_local = {.name = "local",
	.start = start,
	.rescale = rescale,
	.stop = stop,
	.list = list,
	.request_nodes = request_nodes,
	.return_node = return_node,
	.log = log_text,
	.close = close_engine,
	.has_node = has_node,
	.each_run = each_run,
	.forget = forget,
	.reap = reap};

/* ---- opening ---- */

/* Raises the limit of open files: each run needs three, so the usual 1024 allow some 330 runs.
 * Returns the limit before. */
static uint64_t raise_nofile_limit(void)
{
	struct rlimit limit;
	rlim_t was;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
		return FILES_MAX;
	}
	was = limit.rlim_cur;
	limit.rlim_cur = limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
	if (limit.rlim_cur > was) {
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	return was;
}

/* Opens a file of the run. A missing file is no error: *fd becomes -1. */
static int open_run_file(const struct local_run *run, const char *name, int flags, int *fd,
	struct pawl_err *err)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/%s", run->dir, name);
	*fd = FAULT_SYS("local.run_file", open(path, flags | O_CLOEXEC | O_NOFOLLOW));
	return *fd >= 0 || errno == ENOENT ? 0 : pawl_err_sys(err, "%s", path);
}

/* Reads the files of a run, and connects to its shepherd. On errors it is not known whether the run
 * lives. */
static int load_run(struct local_run *run, struct pawl_err *err)
{
	int rv = open_run_file(run, "state", O_RDONLY, &run->state_fd, err);

	rv = rv == 0 ? open_run_file(run, DEVICES_FILE, O_RDWR, &run->devices_fd, err) : rv;
	rv = rv == 0 ? strays_mark_load(&run->mark, run->dir, err) : rv;
	if (rv != 0) {
		return rv;
	}
	rv = local_connect(run, err);
	if (rv != 0 && rv != PAWL_ENOENT && rv != PAWL_EBUSY) {
		return rv;
	}
	run->phase = rv == PAWL_ENOENT ? LOCAL_DYING : LOCAL_ALIVE;
	run->state.generation = run->start_generation;
	/* Read after connecting: if the shepherd is dead, this is its last state. */
	rv = run_state_load(run->state_fd, &run->state, err);
	if (rv != 0 && rv != PAWL_ECORRUPT) {
		return rv;
	}
	if (run->devices_fd >= 0) {
		devices_load(run->devices_fd, &run->devices);
		release_devices(run);
	}
	return 0;
}

/* Adopts a run that an earlier scheduler started. */
static int adopt(struct local *local, uint64_t job, uint64_t start_generation, struct pawl_err *err)
{
	struct local_run *run = make_run(local, job, start_generation);
	int rv;

	if (!run) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a run");
	}
	rv = load_run(run, err);
	if (rv != 0) {
		free_run(run);
		return rv;
	}
	if (run->phase == LOCAL_DYING && run->state.phase == RUN_STARTING &&
		strays_signal(&run->mark, SIGKILL) == 0) {
		local_remove(run->dir); /* the core starts the job again */
		free_run(run);
		return 0;
	}
	run->next = local->runs;
	local->runs = run;
	if (run->phase == LOCAL_DYING && run->state.phase == RUN_ENDED) {
		run->phase = LOCAL_OVER;
	} else if (run->peer.fd < 0) {
		retry(run);
	}
	return 0;
}

static int adopt_all(struct local *local, struct pawl_err *err)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir;
	int rv = 0;

	snprintf(path, sizeof(path), "%s/runs", local->options.root);
	dir = opendir(path);
	if (!dir) {
		return pawl_err_sys(err, "%s", path);
	}
	while (rv == 0 && (errno = 0, entry = FAULT_MEM("local.list", readdir(dir)))) {
		unsigned long long job;
		unsigned long long start_generation;
		int used = 0;

		if (sscanf(entry->d_name, "%llu.%llu%n", &job, &start_generation, &used) == 2 &&
			entry->d_name[used] == '\0') {
			rv = adopt(local, job, start_generation, err);
		}
	}
	if (rv == 0 && errno != 0) {
		rv = pawl_err_sys(err, "%s", path); /* the list may be incomplete */
	}
	closedir(dir);
	return rv;
}

static int make_dirs(const char *root, struct pawl_err *err)
{
	static const struct {
		const char *name;
		mode_t mode;
	} dirs[] = {{"runs", 0700}, {"jobs", 0751}};
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", root, dirs[i].name) >=
			sizeof(path)) {
			return pawl_err_set(err, PAWL_EINVAL, "%s: the path is too long", root);
		}
		if (mkdir(path, dirs[i].mode) != 0 && errno != EEXIST) {
			return pawl_err_sys(err, "directory %s", path);
		}
	}
	return 0;
}

int local_open(struct local **out, const struct local_options *options, struct pawl_err *err)
{
	struct local *local = calloc(1, sizeof(*local));
	int rv;

	if (!local) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the engine");
	}
	local->options = *options;
	pending_events_init(&local->pending, options->loop, options->post, options->user);
	local->nofile_limit = raise_nofile_limit();
	rv = make_dirs(options->root, err);
	rv = rv == 0 ? adopt_all(local, err) : rv;
	if (rv != 0) {
		local_close(local);
		return rv;
	}
	*out = local;
	return 0;
}

void local_close(struct local *local)
{
	if (local) {
		while (local->runs) {
			struct local_run *run = local->runs;

			local->runs = run->next;
			free_run(run);
		}
		pending_events_deinit(&local->pending);
		free(local);
	}
}
