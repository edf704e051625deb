/* The agent: connections of workers, and how the loop serves them. See agent.h for the contract,
 * root.h for the parts. */
#include "agent/agent.h"

#include "agent/root.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/times.h"
#include "ckpt/tags.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 64
#define CONNS_MAX      4096u /* connections of one agent, at most */

/* ---- closing ---- */

/* Closes and frees a connection that is in no list any more. */
static void close_conn(struct agent_conn *conn)
{
	struct agent *agent = conn->agent;

	if (conn->root) {
		root_leave(conn->root, conn);
	}
	loop_timer_cancel(agent->loop, &conn->question.timer);
	loop_remove(agent->loop, &conn->socket);
	if (conn->process.fd >= 0) {
		loop_remove(agent->loop, &conn->process);
		close(conn->process.fd);
	}
	proto_conn_close(&conn->io);
	free(conn);
}

static bool has_workers(const struct agent *agent, const struct agent_root *root)
{
	for (const struct agent_conn *conn = agent->conns; conn; conn = conn->next) {
		if (conn->root == root) {
			return true;
		}
	}
	return false;
}

/* Whether a root is given up: its workers left on purpose and reported that their newest save is
 * not durable, and storage still fails. No worker waits for the save, and other jobs may wait for
 * the root. */
static bool is_given_up(const struct agent_root *root)
{
	return root->workers.left && root->workers.left_not_durable &&
		root->alerts[ALERT_SAVE].active &&
		clock_mono_ns() - root->workers.left_ns > times_ns(TIME_ROOT_GIVE_UP);
}

/* Whether a root is no longer needed: its workers left on purpose, and all is durable, or given up.
 * `pawl run` keeps its roots until it ends, for its summary, unless workers on other hosts may go
 * on with them (close_idle_roots). */
static bool is_unused(const struct agent *agent, const struct agent_root *root)
{
	bool unused = agent->close_idle_roots ? !has_workers(agent, root)
					      : agent->idle_exit_ns > 0 && root->workers.left;

	return unused && root->state == ROOT_OPEN &&
		(ledger_all_durable(&root->ledger) || is_given_up(root)) &&
		persist_idle(root->storage.thread);
}

/* Logs what is lost with a root that is closed. */
static void log_lost(const struct agent_root *root)
{
	const struct alert_state *alert = root_worst_alert(root);
	int newest = ledger_newest(&root->ledger);

	if (newest >= 0 && !root->ledger.slots[newest].durable) {
		log_line(LOG_ERROR, "%s: %s is lost: it was in memory only%s%s", root->path,
			root->ledger.slots[newest].tag, alert ? ". " : "",
			alert ? alert->text : "");
	}
}

/* Takes the first connection that is to be closed out of the list; NULL if there is none. */
static struct agent_conn *take_closing(struct agent *agent)
{
	struct agent_conn **at = &agent->conns;
	struct agent_conn *conn;

	while (*at && !(*at)->closing) {
		at = &(*at)->next;
	}
	conn = *at;
	if (conn) {
		*at = conn->next;
	}
	return conn;
}

/* Frees what callbacks marked: connections that have ended, roots that could not be opened or are
 * no longer needed. Every callback of this file calls it last. */
static void sweep(struct agent *agent)
{
	struct agent_root **at = &agent->roots;

	for (struct agent_conn *conn; (conn = take_closing(agent));) {
		close_conn(conn); /* may mark further connections */
	}
	while (*at) {
		struct agent_root *root = *at;

		if (root->state != ROOT_FAILED && !is_unused(agent, root)) {
			at = &root->next;
			continue;
		}
		*at = root->next;
		log_lost(root);
		root_close(root);
	}
	agent_progress(agent);
}

/* ---- listening ---- */

static void socket_ready(struct loop_source *source, uint32_t events)
{
	struct agent_conn *conn = source->user;
	struct agent *agent = conn->agent;
	struct proto_frame frame;
	struct pawl_err err;
	int more = proto_fill(&conn->io, &err) < 0 ? -1 : 1;

	if (more < 0) {
		conn->closing = true;
	}
	while (more > 0 && !conn->closing) {
		more = proto_next(&conn->io, &frame, &err);
		if (more <= 0) {
			conn->closing = more < 0;
			break;
		}
		frame_handle(conn, &frame);
		proto_frame_close(&frame);
	}
	sweep(agent);
}

/* The worker has ended. Its children may keep the socket open, so only this event shows the end. */
static void process_ready(struct loop_source *source, uint32_t events)
{
	struct agent_conn *conn = source->user;

	conn->closing = true;
	sweep(conn->agent);
}

/* Returns false if the process has ended. */
static bool watch_process(struct agent_conn *conn)
{
	conn->process = (struct loop_source){.fd = proc_peer(conn->io.fd, &conn->pid),
		.ready = process_ready,
		.user = conn};
	if (conn->process.fd < 0) {
		return errno != ESRCH;
	}
	if (loop_add(conn->agent->loop, &conn->process, EPOLLIN, NULL) != 0) {
		close(conn->process.fd);
		conn->process.fd = -1;
	}
	return true;
}

static void on_connect(struct listener *listener, int fd, const struct sockaddr *from,
	socklen_t len)
{
	struct agent *agent = listener->user;
	struct timeval patience = times_timeval(TIME_LINK_SEND);
	struct agent_conn *conn = calloc(1, sizeof(*conn));
	uint32_t n = 0;

	for (const struct agent_conn *c = agent->conns; c; c = c->next) {
		n++;
	}
	if (!conn || n >= CONNS_MAX) {
		goto refuse;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	conn->agent = agent;
	conn->io.fd = fd;
	conn->reading = -1;
	conn->socket = (struct loop_source){.fd = fd, .ready = socket_ready, .user = conn};
	if (loop_add(agent->loop, &conn->socket, EPOLLIN, NULL) != 0) {
		goto refuse;
	}
	if (!watch_process(conn)) {
		loop_remove(agent->loop, &conn->socket);
		goto refuse;
	}
	conn->next = agent->conns;
	agent->conns = conn;
	loop_timer_cancel(agent->loop, &agent->idle);
	return;
refuse:
	free(conn);
	close(fd);
}

static void on_wake(void *user)
{
	struct agent *agent = user;

	for (struct agent_root *root = agent->roots; root; root = root->next) {
		root_reap(root);
	}
	sweep(agent);
}

/* Tells the owner what the ranks have answered. */
static void poll_timer_fired(struct loop_timer *timer)
{
	struct agent *agent = timer->user;

	for (struct agent_root *root = agent->roots; root; root = root->next) {
		root_report_polls(root);
	}
	for (uint32_t i = 0; i < AGENT_STOPS_MAX; i++) {
		const struct agent_poll poll = {.path = agent->stops[i].path,
			.question = QUESTION_STOP};

		if (agent->stops[i].unreported) {
			agent->stops[i].unreported = false;
			agent->polled(agent->polled_user, &poll);
		}
	}
}

/* ---- public functions ---- */

/* Makes sure that this is the job's only agent, by a lock beside the socket: a socket file does not
 * show whether its owner runs. */
static int lock_socket(struct agent *agent, struct pawl_err *err)
{
	char path[PATH_MAX];
	char holder[32] = "?";
	int rv;

	snprintf(path, sizeof(path), "%s.lock", agent->socket);
	agent->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (agent->lock_fd < 0) {
		return pawl_err_sys(err, "open %s", path);
	}
	if (flock(agent->lock_fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK) {
			return pawl_err_sys(err, "lock %s", path);
		}
		if (pread(agent->lock_fd, holder, sizeof(holder) - 1, 0) > 0) {
			holder[strcspn(holder, "\n")] = '\0';
		}
		return pawl_err_set(err, PAWL_EBUSY, "job %s has an agent already: pid %s",
			agent->job, holder);
	}
	rv = snprintf(holder, sizeof(holder), "%d\n", (int)getpid());
	if (ftruncate(agent->lock_fd, 0) != 0 ||
		pwrite(agent->lock_fd, holder, (size_t)rv, 0) != rv) {
		return pawl_err_sys(err, "write %s", path);
	}
	return 0;
}

static int listen_on(struct agent *agent, struct pawl_err *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	mode_t mask;
	int fd;
	int rv;

	if (strlen(agent->socket) >= sizeof(addr.sun_path)) {
		return pawl_err_set(err, PAWL_EINVAL, "socket path %s is longer than %zu bytes",
			agent->socket, sizeof(addr.sun_path) - 1);
	}
	memcpy(addr.sun_path, agent->socket, strlen(agent->socket) + 1);
	fd = FAULT_SYS("agent.socket",
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0) {
		return pawl_err_sys(err, "make the agent's socket");
	}
	unlink(agent->socket); /* left by an agent that crashed: we hold the lock */
	mask = umask(0177);
	rv = bind(fd, (struct sockaddr *)&addr, sizeof(addr));
	umask(mask);
	if (rv != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
		rv = pawl_err_sys(err, "listen on %s", agent->socket);
		close(fd);
		return rv;
	}
	agent->listener = (struct listener){.what = "a rank",
		.accepted = on_connect,
		.user = agent,
		.blocking = true};
	rv = listener_start(&agent->listener, agent->loop, fd, err);
	if (rv != 0) {
		close(fd);
		unlink(agent->socket);
	}
	return rv;
}

int agent_open(struct agent **out, struct loop *loop, const struct agent_options *options,
	struct pawl_err *err)
{
	struct agent *agent = calloc(1, sizeof(*agent));
	int rv;

	if (!agent) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for an agent");
	}
	agent->loop = loop;
	agent->pid = getpid();
	agent->job = strdup(options->job);
	agent->socket = strdup(options->socket);
	agent->attempt = options->attempt;
	agent->any_attempt = options->any_attempt;
	agent->idle_exit_ns = options->idle_exit_ns;
	agent->close_idle_roots = options->close_idle_roots;
	agent->log_visible = options->log_visible;
	agent->idle = (struct loop_timer){.fired = agent_idle_fired, .user = agent};
	agent->poll_timer = (struct loop_timer){.fired = poll_timer_fired, .user = agent};
	agent->lock_fd = -1;
	rv = agent->job && agent->socket ? 0
					 : pawl_err_set(err, PAWL_ENOMEM, "no memory for an agent");
	if (rv == 0) {
		rv = lock_socket(agent, err);
	}
	if (rv == 0) {
		rv = listen_on(agent, err);
	}
	if (rv != 0) {
		agent_close(agent);
		return rv;
	}
	loop_on_wake(loop, on_wake, agent);
	agent_progress(agent);
	*out = agent;
	return 0;
}

static void forget_stops(struct agent *agent)
{
	for (uint32_t i = 0; i < AGENT_STOPS_MAX; i++) {
		free(agent->stops[i].path);
		agent->stops[i] = (struct agent_stop){.path = NULL};
	}
}

void agent_close(struct agent *agent)
{
	if (!agent) {
		return;
	}
	agent->drained = NULL;
	agent->idle_exit_ns = 0;
	agent->polled = NULL;
	loop_timer_cancel(agent->loop, &agent->idle);
	loop_timer_cancel(agent->loop, &agent->poll_timer);
	for (struct agent_conn *conn = agent->conns; conn; conn = conn->next) {
		conn->closing = true;
	}
	for (struct agent_conn *conn; (conn = take_closing(agent));) {
		close_conn(conn);
	}
	while (agent->roots) {
		struct agent_root *root = agent->roots;

		agent->roots = root->next;
		if (!agent->log_visible) { /* otherwise the process's last log line has it */
			log_lost(root);
		}
		root_close(root);
	}
	if (agent->listener.loop) {
		loop_on_wake(agent->loop, NULL, NULL);
		listener_stop(&agent->listener);
		unlink(agent->socket);
	}
	if (agent->lock_fd >= 0) {
		close(agent->lock_fd);
	}
	wire_out_deinit(&agent->scratch);
	free(agent->notice);
	free(agent->imports);
	for (uint32_t i = 0; i < AGENT_NONCES_MAX; i++) {
		free(agent->nonces[i].path);
	}
	forget_stops(agent);
	free(agent->job);
	free(agent->socket);
	free(agent);
}

void agent_set_peers(struct agent *agent, struct peers *peers)
{
	agent->peers = peers;
}

void agent_set_attempt(struct agent *agent, uint32_t attempt)
{
	agent->attempt = attempt;
	agent->drained = NULL;
	agent->left_not_durable = false;
	free(agent->notice);
	agent->notice = NULL;
	forget_stops(agent);
	for (struct agent_root *root = agent->roots; root; root = root->next) {
		root_new_epoch(root, root->ledger.world, attempt);
	}
	sweep(agent);
}

void agent_notice(struct agent *agent, const char *why)
{
	if (agent->notice) {
		return;
	}
	agent->notice = strdup(why);
	for (struct agent_root *root = agent->roots; root; root = root->next) {
		root_request_stop(root);
	}
	sweep(agent);
}

void agent_save_soon(struct agent *agent)
{
	for (struct agent_root *root = agent->roots; root; root = root->next) {
		root_save_soon(root);
		root_advance(root);
	}
	sweep(agent);
}

void agent_drain(struct agent *agent, void (*drained)(void *user, bool ok), void *user)
{
	agent->drained = drained;
	agent->drained_user = user;
	for (struct agent_root *root = agent->roots; root; root = root->next) {
		root->storage.failed_since_drain = false;
		ledger_want_durable(&root->ledger, 0);
		root_advance(root);
	}
	agent_progress(agent);
}

/* Writes "step 1260", or the name of a tag that is not named after its step. */
static void name_tag(const char *tag, char *name, size_t cap_bytes)
{
	uint64_t step;

	if (tag_parse(tag, &step)) {
		snprintf(name, cap_bytes, "step %llu", (unsigned long long)step);
	} else {
		snprintf(name, cap_bytes, "%s", tag);
	}
}

static bool is_replicated(const struct agent_root *root, int slot)
{
	return root->peers.global.run != 0 &&
		peer_save_is(&root->peers.saves[slot], &root->peers.global);
}

/* Writes which step of a root is safe. */
static void summarize(const struct agent_root *root, char *buf, size_t cap_bytes)
{
	int newest = ledger_newest(&root->ledger);
	bool lost = newest >= 0 && !root->ledger.slots[newest].durable;
	char lost_name[CKPT_TAG_MAX] = "";
	char safe_name[CKPT_TAG_MAX] = "nothing that this run saved";

	if (root->storage.has_durable) {
		name_tag(root->storage.durable_tag, safe_name, sizeof(safe_name));
	}
	if (lost) {
		name_tag(root->ledger.slots[newest].tag, lost_name, sizeof(lost_name));
		snprintf(buf, cap_bytes, "%s: %s%s could not be made durable%s; %s is", root->path,
			lost_name, is_replicated(root, newest) ? " is replicated, but" : "",
			root->storage.failed_since_drain ? "" : " in time", safe_name);
	} else {
		snprintf(buf, cap_bytes, "%s: %s is durable", root->path, safe_name);
	}
}

const char *agent_summary(const struct agent *agent, char *buf, size_t cap_bytes)
{
	size_t len = 0;

	buf[0] = '\0';
	for (const struct agent_root *root = agent->roots; root && len + 2 < cap_bytes;
		root = root->next) {
		if (len > 0) {
			len += (size_t)snprintf(buf + len, cap_bytes - len, "; ");
		}
		summarize(root, buf + len, cap_bytes - len);
		len += strlen(buf + len);
	}
	return buf;
}

bool agent_left_not_durable(const struct agent *agent)
{
	return agent->left_not_durable;
}

const char *agent_imports(const struct agent *agent)
{
	return agent->imports;
}

void agent_on_imports(struct agent *agent, void (*imported)(void *user), void *user)
{
	agent->imported = imported;
	agent->imported_user = user;
}

void agent_on_begun(struct agent *agent,
	void (*begun)(void *user, const char *path, uint64_t nonce), void *user)
{
	agent->begun = begun;
	agent->begun_user = user;
}

void agent_on_polled(struct agent *agent, void (*polled)(void *user, const struct agent_poll *poll),
	void *user)
{
	agent->polled = polled;
	agent->polled_user = user;
}

/* Remembers that ranks of another host were told to stop in a root. */
static struct agent_stop *note_stop(struct agent *agent, const char *path)
{
	char *copy = NULL;
	uint32_t i = 0;

	while (i < AGENT_STOPS_MAX && agent->stops[i].path != NULL) {
		if (strcmp(agent->stops[i].path, path) == 0) {
			return &agent->stops[i];
		}
		i++;
	}
	copy = strdup(path);
	if (copy == NULL) {
		/* Without a copy, ranks that connect later do not hear of it. */
		return NULL;
	}
	i = i < AGENT_STOPS_MAX ? i : AGENT_STOPS_MAX - 1;
	free(agent->stops[i].path);
	memmove(agent->stops + 1, agent->stops, i * sizeof(agent->stops[0]));
	agent->stops[0] = (struct agent_stop){.path = copy};
	return &agent->stops[0];
}

void agent_hold(struct agent *agent, const struct agent_poll *poll)
{
	struct agent_root *root = root_find(agent, poll->path);
	struct agent_stop *stop = NULL;

	if (agent->polled == NULL || poll->question >= QUESTIONS_N) {
		return;
	}
	if (poll->question == QUESTION_STOP) {
		stop = note_stop(agent, poll->path);
	}
	if (root) {
		root_hold_too(root, poll);
		root_advance(root);
	} else if (stop) {
		stop->unreported = true;
		loop_timer_start(agent->loop, &agent->poll_timer, clock_mono_ns());
	}
	sweep(agent);
}

void agent_yes_at(struct agent *agent, const struct agent_poll *poll)
{
	struct agent_root *root = root_find(agent, poll->path);

	if (root && poll->question < QUESTIONS_N) {
		root_yes_at(root, poll);
		sweep(agent);
	}
}

void agent_on_scale(struct agent *agent,
	int (*scale)(void *user, uint32_t wanted, struct agent_scale *now, struct pawl_err *err),
	void *user)
{
	agent->scale = scale;
	agent->scale_user = user;
}

void agent_on_preempt(struct agent *agent, void (*preempted)(void *user, int64_t left_ns),
	void *user)
{
	agent->preempted = preempted;
	agent->preempted_user = user;
}

void agent_expect_nonce(struct agent *agent, const char *path, uint64_t nonce)
{
	char *copy = strdup(path);
	uint32_t i = 0;

	if (copy == NULL) {
		/* Without a copy, a root in another directory is found later, by the time-out. */
		return;
	}
	while (i < AGENT_NONCES_MAX - 1 && agent->nonces[i].path != NULL &&
		strcmp(agent->nonces[i].path, path) != 0) {
		i++;
	}
	free(agent->nonces[i].path);
	memmove(agent->nonces + 1, agent->nonces, i * sizeof(agent->nonces[0]));
	agent->nonces[0] = (struct agent_nonce){.path = copy, .nonce = nonce};
	for (struct agent_root *root = agent->roots; root; root = root->next) {
		root_hosts_expect_nonce(root);
	}
}
