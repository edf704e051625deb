/* Answers `pawl mirror status` and `pawl mirror flush`, and asks for them: see mirror_impl.h and
 * mirror.h. The socket lies in a directory that only this user can enter. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/times.h"
#include "base/wire.h"
#include "mirror/mirror_impl.h"
#include "mirror/msg.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 16

/* ---- bytes ---- */

static bool send_all(int fd, const void *bytes, size_t len_bytes)
{
	const uint8_t *at = bytes;

	while (len_bytes > 0) {
		ssize_t n = send(fd, at, len_bytes, MSG_NOSIGNAL);

		if (n <= 0 && errno != EINTR) {
			return false;
		}
		if (n > 0) {
			at += n;
			len_bytes -= (size_t)n;
		}
	}
	return true;
}

static bool receive_all(int fd, void *bytes, size_t len_bytes)
{
	uint8_t *at = bytes;

	while (len_bytes > 0) {
		ssize_t n = recv(fd, at, len_bytes, 0);

		if (n == 0 || (n < 0 && errno != EINTR)) {
			return false;
		}
		if (n > 0) {
			at += n;
			len_bytes -= (size_t)n;
		}
	}
	return true;
}

/* Bounds how long a peer that does nothing can hold us. 0: no bound. */
static void set_patience(int fd, int64_t ns)
{
	const struct timeval wait = {(time_t)(ns / NS_PER_S), (suseconds_t)(ns % NS_PER_S / 1000)};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
}

/* ---- answering ---- */

static void fill_unit(const struct mirror *mirror, const struct core_unit *unit,
	struct msg_unit *out)
{
	bool shipping = unit->state == CORE_SHIPPING && mirror->job.unit == unit;

	*out = (struct msg_unit){.step = unit->step,
		.state = (uint8_t)unit->state,
		.kind = (uint8_t)unit->kind,
		.present = unit->present,
		.in_bucket = unit->in_bucket,
		.size_bytes = unit->size_bytes,
		.sent_bytes = shipping ? uplink_sent(mirror->uplink) : 0};
	snprintf(out->path, sizeof(out->path), "%s", unit->path);
	snprintf(out->tag, sizeof(out->tag), "%s", unit->tag);
	snprintf(out->why, sizeof(out->why), "%s", unit->why);
}

/* Units that neither the directory nor the bucket has are not worth a line. */
static bool is_shown(const struct core_unit *unit)
{
	return unit->present || unit->in_bucket || unit->state == CORE_PINNED ||
		unit->state == CORE_SHIPPING;
}

static bool fill_status(const struct mirror *mirror, struct msg_status *status)
{
	const struct core *core = &mirror->core;
	struct core_left left;

	core_count_left(core, &left);
	*status = (struct msg_status){.program = (uint32_t)mirror->program,
		.lost = core->stopped,
		.full = core->full,
		.flushed = core_is_flushed(core),
		.dirty_units = left.units,
		.dirty_loose = left.loose,
		.dirty_bytes = left.dirty_bytes,
		.oldest_ns = left.oldest_ns == INT64_MAX ? 0 : clock_mono_ns() - left.oldest_ns,
		.pinned_bytes = core->pinned_bytes,
		.fetching = mirror->behind != NULL};
	snprintf(status->dir, sizeof(status->dir), "%s", mirror->work.dir);
	snprintf(status->bucket, sizeof(status->bucket), "%s", mirror->options->bucket);
	snprintf(status->last_error, sizeof(status->last_error), "%s", mirror->last_error);
	status->units =
		FAULT_MEM("mirror.status", calloc(core->units_n + 1u, sizeof(*status->units)));
	for (uint32_t i = 0; i < core->units_n && status->units != NULL; i++) {
		if (is_shown(core->units[i])) {
			fill_unit(mirror, core->units[i], &status->units[status->units_n++]);
		}
	}
	return status->units != NULL;
}

/* Answers a command, and closes its connection. */
static void answer(const struct mirror *mirror, int fd)
{
	struct msg_status *status = FAULT_MEM("mirror.status", malloc(sizeof(*status)));
	struct wire_out out = {NULL};

	if (status != NULL && fill_status(mirror, status)) {
		wire_put_u32(&out, 0);
		msg_put_status(&out, status);
		if (!out.failed) {
			wire_patch_u32(&out, 0, (uint32_t)(out.len_bytes - 4));
			send_all(fd, out.bytes, out.len_bytes);
		}
		msg_status_deinit(status);
	}
	free(status);
	wire_out_deinit(&out);
	close(fd);
}

void mirror_answer_waiters(struct mirror *mirror, bool all)
{
	int64_t now_ns = clock_mono_ns();
	int64_t due_ns = INT64_MAX;
	bool flushed =
		mirror->look_began_ns >= mirror->core.flush_ns && core_is_flushed(&mirror->core);
	bool any = false;

	for (uint32_t i = 0; i < MIRROR_WAITERS_MAX; i++) {
		struct mirror_waiter *waiter = &mirror->waiters[i];

		if (waiter->fd < 0) {
			continue;
		}
		if (all || flushed || mirror->core.stopped || waiter->deadline_ns <= now_ns) {
			answer(mirror, waiter->fd);
			waiter->fd = -1;
		} else {
			any = true;
			due_ns = waiter->deadline_ns < due_ns ? waiter->deadline_ns : due_ns;
		}
	}
	if (!any && !mirror->ended) {
		mirror->core.flush_ns = 0;
	}
	if (due_ns != INT64_MAX) {
		loop_timer_start(mirror->loop, &mirror->waiter_timer, due_ns);
	}
}

static void on_waiter_timer(struct loop_timer *timer)
{
	mirror_answer_waiters(timer->user, false);
}

/* Begins a flush for a command: it looks at the directory first. */
static void begin_flush(struct mirror *mirror, int fd, int64_t deadline_ns)
{
	int64_t now_ns = clock_mono_ns();

	for (uint32_t i = 0; i < MIRROR_WAITERS_MAX; i++) {
		if (mirror->waiters[i].fd < 0) {
			mirror->waiters[i] =
				(struct mirror_waiter){fd, clock_add_ns(now_ns, deadline_ns)};
			mirror->core.flush_ns = now_ns;
			loop_timer_start(mirror->loop, &mirror->look_timer, 0);
			mirror_answer_waiters(mirror, false);
			return;
		}
	}
	close(fd); /* too many wait */
}

static void on_accepted(struct listener *listener, int fd, const struct sockaddr *from,
	socklen_t len)
{
	struct mirror *mirror = listener->user;
	uint8_t bytes[MSG_REQUEST];
	struct msg_request request;
	struct pawl_err err;

	set_patience(fd, NS_PER_S);
	if (!receive_all(fd, bytes, sizeof(bytes)) || msg_get_request(bytes, &request, &err) != 0) {
		close(fd);
	} else if (request.kind == MSG_FLUSH) {
		begin_flush(mirror, fd, request.deadline_ns);
	} else {
		answer(mirror, fd);
	}
}

int mirror_listen(struct mirror *mirror, struct pawl_err *err)
{
	struct sockaddr_un address;
	int fd = FAULT_SYS("mirror.listen",
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int rv;

	workdir_socket(&mirror->work, &address);
	unlinkat(mirror->work.fd, "socket", 0); /* we have the lock: it is of one that is gone */
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
		listen(fd, BACKLOG) != 0) {
		rv = pawl_err_sys(err, "listen in %s", mirror->work.path);
		if (fd >= 0) {
			close(fd);
		}
		return rv;
	}
	mirror->listener = (struct listener){.what = "a command",
		.accepted = on_accepted,
		.user = mirror,
		.blocking = true};
	mirror->waiter_timer.fired = on_waiter_timer;
	mirror->waiter_timer.user = mirror;
	rv = listener_start(&mirror->listener, mirror->loop, fd, err);
	if (rv != 0) {
		close(fd);
	}
	return rv;
}

void mirror_stop_listening(struct mirror *mirror)
{
	listener_stop(&mirror->listener);
	mirror_answer_waiters(mirror, true);
	unlinkat(mirror->work.fd, "socket", 0);
}

/* ---- asking ---- */

static int receive_status(int fd, struct msg_status *status, struct pawl_err *err)
{
	struct wire_in in;
	uint8_t head[4];
	uint32_t len_bytes;
	uint8_t *bytes;
	int rv;

	if (!receive_all(fd, head, sizeof(head))) {
		return pawl_err_set(err, PAWL_ETIMEDOUT, "the mirror does not answer");
	}
	wire_in_init(&in, head, sizeof(head));
	len_bytes = wire_get_u32(&in);
	if (len_bytes > MSG_ANSWER_MAX) {
		return pawl_err_set(err, PAWL_EIO, "the mirror's answer makes no sense");
	}
	bytes = FAULT_MEM("mirror.ask", malloc(len_bytes + 1u));
	if (bytes == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the mirror's answer");
	}
	rv = receive_all(fd, bytes, len_bytes)
		? msg_get_status(bytes, len_bytes, status, err)
		: pawl_err_set(err, PAWL_ETIMEDOUT, "the mirror's answer is cut off");
	free(bytes);
	return rv;
}

int mirror_ask(const char *dir, const struct msg_request *request, struct msg_status *status,
	struct pawl_err *err)
{
	struct workdir work;
	struct sockaddr_un address;
	uint8_t bytes[MSG_REQUEST];
	int fd = -1;
	int rv = workdir_find(&work, dir, err);

	if (rv != 0) {
		return rv;
	}
	workdir_socket(&work, &address);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		rv = errno == ENOENT || errno == ECONNREFUSED
			? pawl_err_set(err, PAWL_ENOENT, "no pawl mirror runs for %s", dir)
			: pawl_err_sys(err, "connect to the mirror of %s", dir);
	}
	if (rv == 0) {
		int64_t wait_ns = times_ns(TIME_MIRROR_ASK);

		if (request->kind == MSG_FLUSH) {
			wait_ns = request->deadline_ns == INT64_MAX
				? 0
				: clock_add_ns(request->deadline_ns, wait_ns);
		}
		set_patience(fd, wait_ns);
		msg_put_request(bytes, request);
		rv = send_all(fd, bytes, sizeof(bytes))
			? receive_status(fd, status, err)
			: pawl_err_sys(err, "ask the mirror of %s", dir);
	}
	if (fd >= 0) {
		close(fd);
	}
	workdir_close(&work);
	return rv;
}
