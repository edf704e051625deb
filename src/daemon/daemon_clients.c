/* The scheduler's socket, and its clients: see daemon_impl.h. The daemon never blocks on a client.
 * A reply that a client does not read stays in the client's buffer, and no further request of the
 * client is read until it is sent. A client that sends a malformed frame is disconnected. When
 * there are too many clients, evict_client disconnects one. */
#include "daemon/daemon_impl.h"

#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

/* Frees a client that is in no list any more. */
static void free_client(struct daemon_client *client)
{
	loop_remove(client->daemon->loop, &client->source);
	loop_timer_cancel(client->daemon->loop, &client->turn);
	proto_conn_close(&client->conn);
	wire_out_deinit(&client->out);
	free(client);
}

static void close_client(struct daemon_client *client)
{
	struct daemon *d = client->daemon;
	struct daemon_client **at = &d->clients;

	while (*at != client) {
		at = &(*at)->next;
	}
	*at = client->next;
	d->clients_n--;
	free_client(client);
}

/* Sends as much as the socket takes now. */
static void flush(struct daemon_client *client)
{
	struct wire_out *out = &client->out;
	bool waits;

	client->closing = client->closing || out->failed;
	while (client->off < out->len_bytes && !client->closing) {
		ssize_t n = send(client->conn.fd, out->bytes + client->off,
			out->len_bytes - client->off, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			break;
		}
		client->closing = n < 0 && errno != EINTR;
		client->off += n > 0 ? (size_t)n : 0;
	}
	waits = client->off < out->len_bytes;
	if (!waits) {
		wire_out_reset(out);
		client->off = 0;
	}
	client->closing = client->closing ||
		loop_change(client->daemon->loop, &client->source, waits ? EPOLLOUT : EPOLLIN,
			NULL) != 0;
}

/* Handles the next request, once the last reply is sent: a client that reads no replies has at most
 * one of them buffered. One request a turn, so that other clients have theirs, however many
 * requests this client has sent. */
static void take_request(struct daemon_client *client)
{
	struct proto_frame frame;
	struct pawl_err err;
	int more;

	if (client->out.len_bytes > 0 || client->closing) {
		return;
	}
	/* The rest of a frame that is too long is not waited for. */
	more = proto_next_exceeds(&client->conn, SCHED_MSG_BODY_MAX)
		? -1
		: proto_next(&client->conn, &frame, &err);
	if (more > 0) {
		daemon_answer(client, &frame);
		proto_frame_close(&frame);
		flush(client);
		loop_timer_start(client->daemon->loop, &client->turn, clock_mono_ns());
	}
	client->closing = client->closing || more < 0;
}

static void on_turn(struct loop_timer *timer)
{
	struct daemon_client *client = timer->user;

	client->last_active_ns = clock_mono_ns();
	take_request(client);
	if (client->closing) {
		close_client(client);
	}
}

static void on_client(struct loop_source *source, uint32_t events)
{
	struct daemon_client *client = source->user;
	struct pawl_err err;

	client->last_active_ns = clock_mono_ns();
	if (client->out.len_bytes > 0) {
		flush(client);
	}
	if (client->turn.active) {
		return; /* the client has had its turn */
	}
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && !client->closing) {
		client->closing = proto_fill(&client->conn, &err) < 0;
	}
	take_request(client);
	if (client->closing) {
		close_client(client);
	}
}

static uint32_t count_of(const struct daemon *d, uint32_t uid)
{
	uint32_t n = 0;

	for (const struct daemon_client *c = d->clients; c; c = c->next) {
		n += c->uid == uid;
	}
	return n;
}

/* Disconnects the least recently active client of the user with most connections. */
static void evict_client(struct daemon *d)
{
	struct daemon_client *chosen = d->clients;

	for (struct daemon_client *c = d->clients; c; c = c->next) {
		uint32_t n = count_of(d, c->uid);
		uint32_t most = count_of(d, chosen->uid);

		if (n > most || (n == most && c->last_active_ns < chosen->last_active_ns)) {
			chosen = c;
		}
	}
	if (chosen) {
		close_client(chosen);
	}
}

static void on_connect(struct listener *listener, int fd, const struct sockaddr *from,
	socklen_t from_len)
{
	struct daemon *d = listener->user;
	struct daemon_client *client;
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (d->clients_n == CLIENTS_MAX) {
		evict_client(d);
	}
	client = calloc(1, sizeof(*client));
	if (!client || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) {
		free(client);
		close(fd);
		return;
	}
	client->daemon = d;
	client->uid = peer.uid;
	client->conn = (struct proto_conn){.fd = fd, .refuse_fds = true};
	client->last_active_ns = clock_mono_ns();
	client->source = (struct loop_source){fd, on_client, client};
	client->turn = (struct loop_timer){.fired = on_turn, .user = client};
	if (loop_add(d->loop, &client->source, EPOLLIN, NULL) != 0) {
		close(fd);
		free(client);
		return;
	}
	client->next = d->clients;
	d->clients = client;
	d->clients_n++;
}

/* Commands send no descriptors. To close a client's descriptor may block on the client, as with a
 * file on FUSE, whose server is asked first. An older kernel accepts descriptors; proto_fill leaves
 * them to the kernel. */
static void refuse_descriptors(int fd)
{
	const int no = 0;

	setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

/* Listens. The socket gets its name once its mode and group are set, so that no other user can
 * connect. */
int daemon_listen(struct daemon *d, struct pawl_err *err)
{
	const struct group *group = d->options->group ? getgrnam(d->options->group) : NULL;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[PATH_MAX];
	int rv = 0;
	int fd;

	d->listen = (struct listener){.what = "a command", .accepted = on_connect, .user = d};
	snprintf(path, sizeof(path), "%s/%s", d->options->root, SCHED_SOCKET);
	if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s/.%s", d->options->root,
		    SCHED_SOCKET) >= sizeof(address.sun_path)) {
		return pawl_err_set(err, PAWL_EINVAL, "%s: the path is too long", d->options->root);
	}
	unlink(address.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		return pawl_err_sys(err, "%s: listen", path);
	}
	refuse_descriptors(fd);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
		(group && chown(address.sun_path, (uid_t)-1, group->gr_gid) != 0) ||
		chmod(address.sun_path, group ? 0660 : 0600) != 0 || listen(fd, BACKLOG) != 0 ||
		rename(address.sun_path, path) != 0) {
		rv = pawl_err_sys(err, "%s: listen", path);
	}
	rv = rv == 0 ? listener_start(&d->listen, d->loop, fd, err) : rv;
	if (rv != 0) {
		close(fd);
	}
	return rv;
}

void daemon_disconnect_clients(struct daemon *d)
{
	while (d->clients) {
		struct daemon_client *client = d->clients;

		d->clients = client->next;
		free_client(client);
	}
	listener_stop(&d->listen);
}
