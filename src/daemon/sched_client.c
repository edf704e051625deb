/* The commands' end of the scheduler's socket: see sched_client.h. */
#include "daemon/sched_client.h"

#include "base/err.h"
#include "base/times.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- the scheduler's directory ---- */

int sched_user_root(char root[PATH_MAX], struct pawl_err *err)
{
	const char *state = getenv("XDG_STATE_HOME");
	const char *home = getenv("HOME");
	const struct passwd *user = getpwuid(geteuid());
	int len;

	if (geteuid() == 0) {
		len = snprintf(root, PATH_MAX, "%s", SCHED_SYSTEM_ROOT);
	} else if (state && state[0] == '/') {
		len = snprintf(root, PATH_MAX, "%s/pawl", state);
	} else if ((home && home[0] == '/') || user) {
		len = snprintf(root, PATH_MAX, "%s/.local/state/pawl",
			home && home[0] == '/' ? home : user->pw_dir);
	} else {
		return pawl_err_set(err, PAWL_EINVAL,
			"user %u has no home directory: give the scheduler's directory with --root "
			"DIR",
			(unsigned)geteuid());
	}
	return len < PATH_MAX ? 0 : pawl_err_set(err, PAWL_EINVAL, "%s: too long", root);
}

static int name_socket(const char *root, struct sockaddr_un *address, struct pawl_err *err)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (size_t)snprintf(address->sun_path, sizeof(address->sun_path), "%s/%s", root,
		       SCHED_SOCKET) < sizeof(address->sun_path)
		? 0
		: pawl_err_set(err, PAWL_EINVAL,
			  "%s: the path is too long: a socket in it may have %zu bytes", root,
			  sizeof(address->sun_path) - 1);
}

int sched_find_root(const char *given, char root[PATH_MAX], struct pawl_err *err)
{
	const char *chosen = given ? given : getenv(SCHED_ROOT_VAR);
	struct sockaddr_un address;
	int rv;

	if (chosen && chosen[0] != '\0') {
		return snprintf(root, PATH_MAX, "%s", chosen) < PATH_MAX
			? 0
			: pawl_err_set(err, PAWL_EINVAL, "%s: the path is too long", chosen);
	}
	rv = sched_user_root(root, err);
	if (rv == 0) {
		rv = name_socket(root, &address, err);
	}
	if (rv == 0 && access(address.sun_path, F_OK) != 0 &&
		access(SCHED_SYSTEM_ROOT "/" SCHED_SOCKET, F_OK) == 0) {
		snprintf(root, PATH_MAX, "%s", SCHED_SYSTEM_ROOT);
	}
	return rv;
}

/* ---- the client ---- */

struct sched_client {
	struct proto_conn conn;
	struct wire_out out; /* the request */
	uint32_t id;         /* id of the last request */
	char root[PATH_MAX];
};

int sched_client_open(struct sched_client **out, const char *root, struct pawl_err *err)
{
	const struct timeval wait = times_timeval(TIME_SCHED_ANSWER);
	struct sockaddr_un address;
	struct sched_client *client = calloc(1, sizeof(*client));
	int rv = name_socket(root, &address, err);

	if (!client || rv != 0) {
		free(client);
		return rv != 0 ? rv : pawl_err_set(err, PAWL_ENOMEM, "out of memory");
	}
	snprintf(client->root, sizeof(client->root), "%s", root);
	client->conn.refuse_fds = true;
	client->conn.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client->conn.fd < 0) {
		rv = pawl_err_sys(err, "make a socket");
	} else if (connect(client->conn.fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		rv = errno == ENOENT || errno == ECONNREFUSED
			? pawl_err_set(err, PAWL_ENOENT,
				  "no scheduler runs in %s: `pawl sched --root %s` starts one, "
				  "--root or " SCHED_ROOT_VAR " names another directory",
				  root, root)
			: pawl_err_sys(err, "the scheduler in %s", root);
	}
	if (rv != 0) {
		sched_client_close(client);
		return rv;
	}
	setsockopt(client->conn.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(client->conn.fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	*out = client;
	return 0;
}

void sched_client_close(struct sched_client *client)
{
	if (client) {
		proto_conn_close(&client->conn);
		wire_out_deinit(&client->out);
		free(client);
	}
}

int sched_client_peer_uid(const struct sched_client *client, uint32_t *uid, struct pawl_err *err)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(client->conn.fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) {
		return pawl_err_sys(err, "find the user that runs the scheduler in %s",
			client->root);
	}
	*uid = peer.uid;
	return 0;
}

static int receive(struct sched_client *client, struct proto_frame *frame, struct pawl_err *err)
{
	int rv;

	while ((rv = proto_next(&client->conn, frame, err)) == 0) {
		rv = proto_fill(&client->conn, err);
		if (rv == 0) {
			return pawl_err_set(err, PAWL_ETIMEDOUT,
				"the scheduler in %s has not answered for %u s", client->root,
				times_s(TIME_SCHED_ANSWER));
		}
		if (rv < 0) {
			return pawl_err_prefix(err, rv, "the scheduler in %s", client->root);
		}
	}
	proto_frame_close(frame);
	return rv < 0 ? rv : 0;
}

int sched_client_call(struct sched_client *client, enum sched_msg_type type, const void *request,
	enum sched_msg_type wanted, void *reply, size_t reply_bytes, struct pawl_err *err)
{
	struct sched_msg_error refused;
	struct proto_frame frame;
	size_t start;
	int rv;

	wire_out_reset(&client->out);
	client->id++;
	start = proto_start(&client->out, (enum proto_type)type, client->id);
	sched_msg_encode(&client->out, type, request);
	proto_end(&client->out, start);
	rv = proto_send(client->conn.fd, &client->out, NULL, 0, err);
	rv = rv == 0 ? receive(client, &frame, err) : rv;
	if (rv != 0) {
		return rv;
	}
	if (frame.type == SCHED_MSG_ERROR &&
		sched_msg_decode(&frame.body, frame.type, &refused, sizeof(refused))) {
		return pawl_err_set(err,
			refused.code < 0 && refused.code > -128 ? refused.code : PAWL_EIO, "%s",
			refused.text);
	}
	if (frame.type == wanted && frame.id == client->id &&
		sched_msg_decode(&frame.body, frame.type, reply, reply_bytes)) {
		return 0;
	}
	return pawl_err_set(err, PAWL_ECORRUPT,
		"the scheduler in %s sent a reply that this command cannot read: is it another "
		"version of Pawl?",
		client->root);
}
