/*
 * A worker's end of the connection to its agent: see link.h.
 *
 * Locks, never both: send (one frame at a time on the socket); calls_lock (the list of calls that
 * wait, and alive). The event callback runs with neither held.
 */
#include "ipc/link.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/proc.h"
#include "base/times.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINK_NAME_MAX 32u /* bytes of "the agent (pid 7)" */

struct link {
	atomic_uint holders;        /* references: the opener's, and those of calls in progress */
	struct proto_conn conn;     /* the receiving thread owns all but fd */
	int pid;                    /* agent's pid, as the kernel says; 0: another namespace */
	pthread_t thread;           /* receiving thread */
	pthread_mutex_t send;       /* held to send one frame at a time */
	pthread_mutex_t calls_lock; /* guards calls, alive, next_id */
	pthread_cond_t answered;    /* signaled when a call is done, or the agent is gone */
	struct link_call *calls;    /* calls that wait for a reply */
	uint32_t next_id;           /* last request id given out; 0 is for events */
	bool alive;                 /* the agent is there */
	link_event_fn *event;       /* see link.h */
	void *user;                 /* passed to event */
};

/* Gives a reply to the call that waits for it; the caller closes descriptors of a reply that no
 * call waits for. */
static void deliver_reply(struct link *link, struct proto_frame *frame)
{
	pthread_mutex_lock(&link->calls_lock);
	for (struct link_call *call = link->calls; call; call = call->next) {
		if (call->id != frame->id || call->done) {
			continue;
		}
		wire_out_reset(&call->reply->bytes);
		wire_put_raw(&call->reply->bytes, frame->body.at, wire_in_left(&frame->body));
		call->failed = call->reply->bytes.failed;
		call->reply->type = frame->type;
		memcpy(call->reply->fds, frame->fds, frame->fds_n * sizeof(int));
		call->reply->fds_n = frame->fds_n;
		frame->fds_n = 0;
		call->done = true;
	}
	pthread_cond_broadcast(&link->answered);
	pthread_mutex_unlock(&link->calls_lock);
}

static void *receive(void *user)
{
	struct link *link = user;
	struct proto_frame frame;
	union frame_event event;
	int more = 1;

	while (more > 0 && proto_fill(&link->conn, NULL) > 0) {
		while ((more = proto_next(&link->conn, &frame, NULL)) > 0) {
			if (frame.id != 0) {
				deliver_reply(link, &frame);
			} else if (frame_decode(&frame.body, frame.type, &event, sizeof(event))) {
				link->event(link->user, link, frame.type, &event);
			}
			proto_frame_close(&frame);
		}
		more = more == 0;
	}
	pthread_mutex_lock(&link->calls_lock);
	link->alive = false;
	pthread_cond_broadcast(&link->answered);
	pthread_mutex_unlock(&link->calls_lock);
	link->event(link->user, link, 0, NULL);
	return NULL;
}

static int connect_to(const char *path, struct pawl_err *err)
{
	struct timeval send_timeout = times_timeval(TIME_SESSION_BEGIN);
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd;
	int rv;

	if (strlen(path) >= sizeof(addr.sun_path)) {
		return pawl_err_set(err, PAWL_EINVAL, "socket path %s is over %zu bytes", path,
			sizeof(addr.sun_path) - 1);
	}
	memcpy(addr.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		return pawl_err_sys(err, "make a socket");
	}
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		rv = errno == ECONNREFUSED
			? ENOENT
			: errno; /* a socket file without an agent counts as none */
		errno = rv;
		rv = pawl_err_sys(err, "connect to the agent at %s", path);
		close(fd);
		return rv;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof(send_timeout));
	return fd;
}

static int find_pid(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 ? (int)peer.pid : 0;
}

/* "the agent (pid 7)" */
static const char *name_agent(const struct link *link, char buf[LINK_NAME_MAX])
{
	if (link->pid > 0) {
		snprintf(buf, LINK_NAME_MAX, "the agent (pid %d)", link->pid);
	} else {
		snprintf(buf, LINK_NAME_MAX, "the agent");
	}
	return buf;
}

/* Starts a thread that blocks all signals: Python's handlers belong on its main thread. */
static int start_masked_thread(pthread_t *thread, void *(*run)(void *), void *user)
{
	sigset_t all;
	sigset_t old;
	int rv;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rv = pthread_create(thread, NULL, run, user);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rv;
}

int link_open(struct link **out, const char *socket_path, link_event_fn *event, void *user,
	struct pawl_err *err)
{
	int fd = connect_to(socket_path, err);
	struct link *link;

	if (fd < 0) {
		return fd;
	}
	link = calloc(1, sizeof(*link));
	if (!link) {
		close(fd);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a connection");
	}
	atomic_init(&link->holders, 1);
	link->conn.fd = fd;
	link->pid = find_pid(fd);
	link->event = event;
	link->user = user;
	link->alive = true;
	pthread_mutex_init(&link->send, NULL);
	pthread_mutex_init(&link->calls_lock, NULL);
	clock_cond_init(&link->answered);
	errno = start_masked_thread(&link->thread, receive, link);
	if (errno == 0) {
		*out = link;
		return 0;
	}
	pawl_err_sys(err, "start a thread");
	proto_conn_close(&link->conn);
	free(link);
	return PAWL_EIO;
}

void link_close(struct link *link)
{
	if (!link) {
		return;
	}
	shutdown(link->conn.fd, SHUT_RDWR); /* wakes the receiver */
	pthread_join(link->thread, NULL);
	link_release(link);
}

struct link *link_hold(struct link *link)
{
	unsigned holders = atomic_fetch_add(&link->holders, 1);

	ASSERT(holders > 0); /* else it is freed already */
	return link;
}

void link_release(struct link *link)
{
	if (atomic_fetch_sub(&link->holders, 1) > 1) {
		return;
	}
	/* closed only now: with the descriptor reused, another thread would send into a new file */
	proto_conn_close(&link->conn);
	pthread_cond_destroy(&link->answered);
	pthread_mutex_destroy(&link->calls_lock);
	pthread_mutex_destroy(&link->send);
	free(link);
}

bool link_alive(struct link *link)
{
	bool alive;

	pthread_mutex_lock(&link->calls_lock);
	alive = link->alive;
	pthread_mutex_unlock(&link->calls_lock);
	return alive;
}

/* Builds a frame with a fresh id, which is returned. */
static uint32_t build(struct link *link, struct wire_out *out, enum proto_type type,
	const void *body)
{
	size_t start;
	uint32_t id;

	pthread_mutex_lock(&link->calls_lock);
	link->next_id = link->next_id == UINT32_MAX ? 1 : link->next_id + 1;
	id = link->next_id;
	pthread_mutex_unlock(&link->calls_lock);
	wire_out_reset(out);
	start = proto_start(out, type, id);
	frame_encode(out, type, body);
	proto_end(out, start);
	return id;
}

/* Sets the error of a failed send: names the agent, if it is gone or hangs. */
static void explain_send(struct link *link, int rv, const struct pawl_err *why,
	struct pawl_err *err)
{
	char name[LINK_NAME_MAX];

	if (rv == PAWL_EPEER && (why->sys == EPIPE || why->sys == ECONNRESET)) {
		pawl_err_set(err, rv, "%s is gone", name_agent(link, name));
		return;
	}
	if (rv == PAWL_EPEER && why->sys == EAGAIN) {
		pawl_err_set(err, rv, "%s has read nothing for %u s", name_agent(link, name),
			times_s(TIME_SESSION_BEGIN));
		return;
	}
	if (err) {
		*err = *why;
	}
}

/* Sends the frame in out. */
static int send_built(struct link *link, struct wire_out *out, struct pawl_err *err)
{
	struct pawl_err why;
	int rv;

	pthread_mutex_lock(&link->send);
	rv = proto_send(link->conn.fd, out, NULL, 0, &why);
	pthread_mutex_unlock(&link->send);
	if (rv != 0) {
		explain_send(link, rv, &why, err);
	}
	/* after PAWL_EPEER nothing can be sent any more, or only part of the frame was sent */
	if (rv == PAWL_EPEER) {
		shutdown(link->conn.fd, SHUT_RDWR);
		pthread_mutex_lock(&link->calls_lock);
		link->alive = false;
		pthread_mutex_unlock(&link->calls_lock);
	}
	return rv;
}

int link_send(struct link *link, struct wire_out *out, enum proto_type type, const void *body,
	struct pawl_err *err)
{
	build(link, out, type, body);
	return send_built(link, out, err);
}

static void forget_call(struct link *link, struct link_call *call)
{
	struct link_call **at = &link->calls;

	while (*at != call) {
		ASSERT(*at != NULL); /* the call waits: link_request put it there */
		at = &(*at)->next;
	}
	*at = call->next;
}

/* Waits until the call is done, the agent is gone, or the time is up. Returns true if the agent was
 * found stopped in two checks within TIME_LINK_STUCK: more waiting is useless. The caller holds
 * calls_lock. */
static bool await(struct link *link, const struct link_call *call, int timeout_ms)
{
	int64_t due_ns = timeout_ms < 0 ? INT64_MAX : clock_mono_ns() + timeout_ms * NS_PER_MS;
	bool stopped = false;

	while (!call->done && link->alive) {
		int64_t check_ns = clock_mono_ns() + times_ns(TIME_LINK_STUCK) / 2;
		int64_t next_ns = check_ns < due_ns ? check_ns : due_ns;
		struct timespec next = {.tv_sec = next_ns / NS_PER_S,
			.tv_nsec = next_ns % NS_PER_S};
		bool before = stopped;

		if (pthread_cond_timedwait(&link->answered, &link->calls_lock, &next) == 0) {
			continue;
		}
		stopped = link->pid > 0 && proc_is_stopped((uint32_t)link->pid);
		if (stopped && before) {
			return true;
		}
		if (next_ns == due_ns) {
			return false;
		}
	}
	return false;
}

/* Sets the error of an ERROR reply. */
static int reply_error(const struct link_reply *reply, struct pawl_err *err)
{
	struct frame_error error;

	if (link_reply_get(reply, PROTO_ERROR, &error, sizeof(error), NULL) != 0 ||
		error.code == 0) {
		return pawl_err_set(err, PAWL_EPEER, "the agent's error reply is malformed");
	}
	pawl_err_set(err, error.code, "%s", error.text);
	if (err) {
		err->sys = error.sys;
	}
	return error.code;
}

int link_request(struct link *link, struct link_call *call, struct wire_out *out,
	enum proto_type type, const void *body, struct link_reply *reply, struct pawl_err *err)
{
	int rv;

	*call = (struct link_call){.id = build(link, out, type, body), .reply = reply};
	reply->fds_n = 0;
	pthread_mutex_lock(&link->calls_lock);
	call->next = link->calls;
	link->calls = call;
	pthread_mutex_unlock(&link->calls_lock);
	rv = send_built(link, out, err);
	if (rv != 0) {
		pthread_mutex_lock(&link->calls_lock);
		forget_call(link, call);
		pthread_mutex_unlock(&link->calls_lock);
	}
	return rv;
}

int link_await(struct link *link, struct link_call *call, int timeout_ms, struct pawl_err *err)
{
	struct link_reply *reply = call->reply;
	char name[LINK_NAME_MAX];
	bool stopped;
	bool alive;

	pthread_mutex_lock(&link->calls_lock);
	stopped = await(link, call, timeout_ms);
	forget_call(link, call);
	alive = link->alive;
	pthread_mutex_unlock(&link->calls_lock);
	if (!call->done && !alive) {
		return pawl_err_set(err, PAWL_EPEER, "%s is gone", name_agent(link, name));
	}
	if (!call->done && stopped) {
		return pawl_err_set(err, PAWL_ETIMEDOUT,
			"%s is stopped, by SIGSTOP or a debugger: kill -CONT %d resumes it",
			name_agent(link, name), link->pid);
	}
	if (!call->done) {
		return pawl_err_set(err, PAWL_ETIMEDOUT, "%s has not answered within %d ms",
			name_agent(link, name), timeout_ms);
	}
	if (call->failed) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the agent's answer");
	}
	return reply->type == PROTO_ERROR ? reply_error(reply, err) : 0;
}

int link_call(struct link *link, struct wire_out *out, enum proto_type type, const void *body,
	int timeout_ms, struct link_reply *reply, struct pawl_err *err)
{
	struct link_call call;
	int rv = link_request(link, &call, out, type, body, reply, err);

	return rv == 0 ? link_await(link, &call, timeout_ms, err) : rv;
}

int link_reply_get(const struct link_reply *reply, enum proto_type type, void *body,
	size_t size_bytes, struct pawl_err *err)
{
	struct wire_in in;

	wire_in_init(&in, reply->bytes.bytes, reply->bytes.len_bytes);
	if (reply->type != type || !frame_decode(&in, reply->type, body, size_bytes)) {
		return pawl_err_set(err, PAWL_ECORRUPT, "the agent's answer is malformed");
	}
	return 0;
}

void link_reply_close(struct link_reply *reply)
{
	for (uint32_t i = 0; i < reply->fds_n; i++) {
		close(reply->fds[i]);
	}
	reply->fds_n = 0;
}

void link_reply_deinit(struct link_reply *reply)
{
	wire_out_deinit(&reply->bytes);
}
