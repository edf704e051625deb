/*
 * Starts shepherds: see local_impl.h.
 *
 * The scheduler makes the listening socket, and the shepherd inherits it. So from the spawn on, a
 * connection either reaches the shepherd or is refused because the shepherd is dead. A scheduler
 * that is killed at any moment leaves either no run, or one that the next scheduler finds.
 */
#include "engine/local/local_impl.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "engine/local/run_placement.h"
#include "engine/submission.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG  4
#define FD_ASIDE 16 /* descriptors are first moved above this, so that none is overwritten */
#define FDS      4

_Static_assert(ORDER_FD_DEVICES - ORDER_FD_LISTEN + 1 == FDS, "the shepherd's descriptors");
_Static_assert(FD_ASIDE >= ORDER_FD_LISTEN + FDS, "aside of where they are to be");

static const char *const files[] = {"order", "state", "sock", DEVICES_FILE, RUN_PLACEMENT_FILE};

void local_remove(const char *dir)
{
	char path[PATH_MAX + 16];

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		unlink(path);
	}
	rmdir(dir);
}

static int name_socket(const char *dir, struct sockaddr_un *address, struct pawl_err *err)
{
	int len;

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	len = snprintf(address->sun_path, sizeof(address->sun_path), "%s/sock", dir);
	return len > 0 && (size_t)len < sizeof(address->sun_path)
		? 0
		: pawl_err_set(err, PAWL_EINVAL, "%s: the path is too long for a socket", dir);
}

int local_connect(struct local_run *run, struct pawl_err *err)
{
	struct sockaddr_un address;
	int rv = name_socket(run->dir, &address, err);
	int fd;

	ASSERT(run->peer.fd < 0);
	if (rv != 0) {
		return rv;
	}
	fd = FAULT_SYS("local.socket",
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0) {
		return pawl_err_sys(err, "%s: make a socket", run->dir);
	}
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		bool dead = errno == ENOENT || errno == ECONNREFUSED;
		bool busy = errno == EAGAIN;

		rv = pawl_err_sys(err, "%s: connect", run->dir);
		close(fd);
		return dead ? PAWL_ENOENT : busy ? PAWL_EBUSY : rv;
	}
	run->peer.fd = fd;
	rv = loop_add(run->local->options.loop, &run->peer, EPOLLIN, err);
	if (rv != 0) {
		close(fd);
		run->peer.fd = -1;
	}
	return rv;
}

/* Makes the run's directory. Replaces one that a failed start left, or a start during which the
 * scheduler was killed. PAWL_EBUSY: processes of that start may be left. */
static int make_dir(const char *dir, struct pawl_err *err)
{
	struct strays_mark mark;
	int rv;

	if (mkdir(dir, 0700) == 0) {
		return 0;
	}
	if (errno != EEXIST) {
		return pawl_err_sys(err, "directory %s", dir);
	}
	rv = strays_mark_load(&mark, dir, err);
	if (rv != 0) {
		return rv;
	}
	if (strays_signal(&mark, SIGKILL) != 0) {
		return pawl_err_set(err, PAWL_EBUSY,
			"%s: processes of an earlier start are, or may be, still alive", dir);
	}
	local_remove(dir);
	return mkdir(dir, 0700) == 0 ? 0 : pawl_err_sys(err, "directory %s", dir);
}

static int open_in(const char *dir, const char *name, int flags, struct pawl_err *err)
{
	char path[PATH_MAX + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = FAULT_SYS("local.open", open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600));
	return fd >= 0 ? fd : pawl_err_sys(err, "%s", path);
}

/* Returns a listening socket in the directory, or an error. */
static int listen_in(const char *dir, struct pawl_err *err)
{
	struct sockaddr_un address;
	int rv = name_socket(dir, &address, err);
	int fd;

	if (rv != 0) {
		return rv;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
		listen(fd, BACKLOG) != 0) {
		rv = pawl_err_sys(err, "%s: listen", dir);
		if (fd >= 0) {
			close(fd);
		}
		return rv;
	}
	return fd;
}

/* Completes the order, writes it and syncs it. Returns its descriptor, or an error. */
static int write_order(struct local *local, const struct core_job *job, struct order *order,
	struct pawl_err *err)
{
	struct submission submission;
	struct wire_out out = {NULL};
	uint8_t *bytes = NULL;
	size_t len_bytes = 0;
	int fd = -1;
	int rv = local->options.get_submission(local->options.user, job->id, &bytes, &len_bytes,
		err);

	if (rv == 0) {
		rv = submission_decode(&submission, bytes, len_bytes, err);
	}
	if (rv == 0) {
		order_name_task(order->task, job, submission.wall_ns);
		if (local->options.scratch) { /* several schedulers may share the directory */
			snprintf(order->scratch, sizeof(order->scratch), "%.2000s/%s",
				local->options.scratch, order->task);
		} else {
			snprintf(order->scratch, sizeof(order->scratch), "%.4000s/scratch",
				order->job_dir);
		}
		submission_deinit(&submission);
		order->submission = bytes;
		order->submission_bytes = (uint32_t)len_bytes;
		order_encode(&out, order);
		fd = open_in(order->run_dir, "order", O_RDWR | O_CREAT | O_TRUNC, err);
		rv = fd < 0 ? fd : 0;
	}
	if (rv == 0 &&
		(out.failed || write(fd, out.bytes, out.len_bytes) != (ssize_t)out.len_bytes ||
			fdatasync(fd) != 0 || lseek(fd, 0, SEEK_SET) != 0)) {
		rv = out.failed ? pawl_err_set(err, PAWL_ENOMEM, "no memory for an order")
				: pawl_err_sys(err, "%s/order", order->run_dir);
	}
	rv = rv == 0 ? file_sync_dir(order->run_dir, err) : rv;
	wire_out_deinit(&out);
	free(bytes);
	if (rv != 0 && fd >= 0) {
		close(fd);
	}
	return rv == 0 ? fd : rv;
}

static int spawn(const struct order *order, const int fds[FDS], struct pawl_err *err)
{
	char var[PATH_MAX + 32];
	char key[ORDER_KEY_CHARS + 32u];
	char *const env[] = {(char *)(uintptr_t) "PATH=/usr/local/bin:/usr/bin:/bin", var, key,
		NULL};
	char *const argv[] = {(char *)(uintptr_t) "pawl", (char *)(uintptr_t) "shepherd", NULL};
	posix_spawn_file_actions_t files_of;
	posix_spawnattr_t attr;
	int aside[FDS];
	sigset_t set;
	pid_t pid;
	int rc = 0;

	snprintf(var, sizeof(var), "%s=%s", RUN_VAR, order->run_dir);
	snprintf(key, sizeof(key), "%s=%s", RUN_KEY_VAR, order->key);
	posix_spawn_file_actions_init(&files_of);
	posix_spawnattr_init(&attr);
	sigemptyset(&set);
	posix_spawnattr_setsigmask(&attr, &set);
	sigaddset(&set, SIGPIPE);
	posix_spawnattr_setsigdefault(&attr, &set);
	posix_spawnattr_setflags(&attr,
		POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	for (int fd = 0; fd <= 2; fd++) {
		posix_spawn_file_actions_addopen(&files_of, fd, "/dev/null", O_RDWR, 0);
	}
	for (int i = 0; i < FDS; i++) {
		aside[i] = FAULT_SYS("local.aside", fcntl(fds[i], F_DUPFD_CLOEXEC, FD_ASIDE));
		rc = aside[i] < 0 ? errno : rc;
		posix_spawn_file_actions_adddup2(&files_of, aside[i], ORDER_FD_LISTEN + i);
	}
	posix_spawn_file_actions_addclosefrom_np(&files_of, ORDER_FD_LISTEN + FDS);
	rc = rc != 0 ? rc : posix_spawn(&pid, "/proc/self/exe", &files_of, &attr, argv, env);
	for (int i = 0; i < FDS; i++) {
		if (aside[i] >= 0) {
			close(aside[i]);
		}
	}
	posix_spawn_file_actions_destroy(&files_of);
	posix_spawnattr_destroy(&attr);
	errno = rc;
	return rc == 0 ? 0 : pawl_err_sys(err, "start the job's shepherd process");
}

static int start_in(struct local *local, const struct core_job *job, struct order *order,
	struct local_run *run, struct pawl_err *err)
{
	int fds[FDS] = {-1, -1, -1, -1}; /* in the order of ORDER_FD_… */
	int rv;

	strays_mark_set(&run->mark, order);
	fds[0] = listen_in(order->run_dir, err);
	rv = fds[0] < 0 ? fds[0] : 0;
	if (rv == 0) {
		fds[1] = open_in(order->run_dir, "state", O_RDWR | O_CREAT | O_TRUNC, err);
		rv = fds[1] < 0 ? fds[1] : run_state_save(fds[1], &run->state, err);
	}
	if (rv == 0) {
		fds[2] = write_order(local, job, order, err);
		rv = fds[2] < 0 ? fds[2] : 0;
	}
	if (rv == 0) {
		run->devices_fd =
			open_in(order->run_dir, DEVICES_FILE, O_RDWR | O_CREAT | O_TRUNC, err);
		rv = run->devices_fd < 0 ? run->devices_fd
					 : local_give_devices(local, run, order->nodes,
						   order->nodes_n, order->generation, err);
	}
	if (rv == 0) {
		fds[3] = open_in(order->run_dir, DEVICES_FILE, O_RDONLY, err);
		rv = fds[3] < 0 ? fds[3] : 0;
	}
	if (rv == 0) {
		run->state_fd = open_in(order->run_dir, "state", O_RDONLY, err);
		rv = run->state_fd < 0 ? run->state_fd : local_connect(run, err);
	}
	rv = rv == 0 ? spawn(order, fds, err) : rv;
	for (int i = 0; i < FDS; i++) {
		if (fds[i] >= 0) {
			close(fds[i]);
		}
	}
	return rv;
}

/* Looks up the user that the job runs as. The scheduler does it, because a refused start is tried
 * again, and the server of the user database may not answer. Without an entry, the user's groups
 * are not known. */
static int name_user(struct order *order, struct pawl_err *err)
{
	const struct passwd *user = getpwuid(order->uid);

	if (!user && order->uid != geteuid()) {
		return pawl_err_set(err, PAWL_ENOENT,
			"user %u is not known on this machine (getent passwd %u); the user's jobs "
			"start once the user database has the entry, or answers again",
			order->uid, order->uid);
	}
	order->gid = user ? user->pw_gid : getegid();
	if (user) {
		snprintf(order->user, sizeof(order->user), "%s", user->pw_name);
	} else {
		snprintf(order->user, sizeof(order->user), "%u", order->uid);
	}
	snprintf(order->home, sizeof(order->home), "%s", user ? user->pw_dir : "/");
	snprintf(order->shell, sizeof(order->shell), "%s",
		user && user->pw_shell[0] ? user->pw_shell : "/bin/sh");
	return 0;
}

int local_name_nodes(const struct sched_core *core, const struct core_placement *place,
	struct order_node *nodes, struct pawl_err *err)
{
	if (place->n == 0) {
		return pawl_err_set(err, PAWL_EINVAL, "the placement has no nodes");
	}
	if (place->n > ORDER_NODES_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "%u nodes: a job can have at most %u here",
			place->n, ORDER_NODES_MAX);
	}
	for (uint32_t i = 0; i < place->n; i++) {
		uint32_t id = place->entries[i].node;
		const struct core_node *node = core_node_find(core, id);

		if (!node) {
			return pawl_err_set(err, PAWL_ENOENT, "node %u is not known", id);
		}
		memcpy(nodes[i].name, node->offer.name, sizeof(nodes[i].name));
		nodes[i].replicas = place->entries[i].replicas;
	}
	return 0;
}

int local_start(struct local *local, const struct core_job *job, uint64_t generation,
	const struct order_node *nodes, uint32_t nodes_n, struct local_run *run,
	struct pawl_err *err)
{
	struct order *order = calloc(1, sizeof(*order));
	int rv;

	ASSERT(nodes_n > 0 && nodes_n <= ORDER_NODES_MAX);
	ASSERT(run->job == job->id && run->start_generation == generation);
	if (!order) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for an order");
	}
	*order = (struct order){.job = job->id,
		.generation = generation,
		.starts = job->restarts,
		.uid = local->options.as_owner ? job->request.owner : (uint32_t)geteuid(),
		.owner = job->request.owner,
		.least = job->request.least,
		.most = job->request.most,
		.priority = job->request.priority,
		.grace_ns = local->options.grace_ns,
		.nofile_limit = local->nofile_limit,
		.cluster = "pawl",
		.nodes_n = nodes_n};
	memcpy(order->nodes, nodes, nodes_n * sizeof(*nodes));
	local->options.set_supervisor(local->options.user, job, order);
	snprintf(order->run_dir, sizeof(order->run_dir), "%s", run->dir);
	snprintf(order->job_dir, sizeof(order->job_dir), "%s/jobs/%llu", local->options.root,
		(unsigned long long)job->id);
	run->state = (struct run_state){.generation = generation};
	rv = name_user(order, err);
	rv = rv == 0 ? order_make_key(order->key, err) : rv;
	proc_boot_id(order->boot);
	rv = rv == 0 ? make_dir(run->dir, err) : rv;
	if (rv == 0) {
		rv = start_in(local, job, order, run, err);
		if (rv != 0) {
			local_remove(run->dir);
		}
	}
	free(order);
	return rv;
}
